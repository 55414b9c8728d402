//! Heads that never hold all logits: the output layer and the cross entropy as one operation.
//!
//! Source: liger-kernel 0.8.5 ops/fused_linear_cross_entropy.py and transformers/model/loss_utils.py; cut-cross-entropy
//! 25.1.1 cce.py, cce_lse_forward.py, indexed_dot.py and cce_backward.py. Compared with the allocator's trace of that code.

use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Input, Node, Results, saved_gradients};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::linear::Shape;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Dims, Rows, Source, What, torch};

static MM: What =
    What::own("mm", "what one chunk adds to the gradient of the head's weight", Source::FusedLoss);
static FLOAT: What = What::own(
    "float",
    "what one chunk adds to the gradient of the head's weight, in float32",
    Source::FusedLoss,
);
static LOSSES: What = What::own("losses", "one loss per token", Source::FusedLoss);
static TARGET_MASK: What =
    What::own("target mask", "which tokens have a label, one byte each", Source::FusedLoss);
static TARGETS: What = What::own("targets", "which tokens have a label", Source::FusedLoss);
static AVERAGE_LOGITS: What = What::own(
    "average logits",
    "the average logit of each vocabulary entry, by which they are put in order",
    Source::FusedLoss,
);
static TARGET_LOGITS: What = What::own("target logits", "the logit of each token's label", Source::FusedLoss);
static VOCABULARY_ORDER: What =
    What::own("vocabulary order", "the order in which the kernel visits the vocabulary", Source::FusedLoss);
static LOCKS: What =
    What::own("locks", "locks of the blocks of the gradients that the kernel writes", Source::FusedLoss);
static CUT_GRADIENT: What =
    What::own("cut cross entropy", "the gradient of the head's input or weight", Source::FusedLoss);
static LOSS_WEIGHT_GRADIENT: What = What::own(
    "gradient of the weight",
    "the gradient of the head's weight, which the fused loss makes in its forward pass already",
    Source::FusedLoss,
);

/// Rows of a block of the kernel's locks, and columns.
const LOCK_ROWS: u64 = 128;
const LOCK_COLUMNS: u64 = 64;

impl<'m> Tensor<'m> {
    /// `LigerFusedLinearCrossEntropyFunction`: the rows' logits and their gradients in chunks, both already in the forward
    /// pass, of `times` as many logits as hidden states at once.
    pub fn liger_loss(&self, shape: Shape, weight: ParamId, times: u64) -> Tensor<'m> {
        self.apply(|state, x| state.liger_loss(x, (shape, times), weight))
    }

    /// `LigerCrossEntropyFunction` of all logits of so many rows: their gradient is written over them.
    pub fn liger_cross_entropy(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, _| saved_gradients(state, node));
            let losses = state.alloc_for(x.storage, rows, Dtype::F32, &LOSSES);
            let mask = state.alloc_for(x.storage, rows, Dtype::Bool, &TARGET_MASK);
            // how many have a label, the largest label and the smallest
            state.scratch(rows.saturating_mul(Dtype::I64.bytes()), &torch::SUM);
            state.scratch(rows.saturating_mul(Dtype::I64.bytes()), &torch::MUL);
            state.scratch(rows.saturating_mul(Dtype::I64.bytes()), &torch::MUL);
            let loss = state.alloc(1, Dtype::F32, &torch::LOSS);
            state.release(mask);
            state.release(losses);
            state.save(node, x.storage);
            Value::plain(loss, 1, Dtype::F32).at(node.output(0))
        })
    }

    /// `linear_cross_entropy(…, shift=True)`: logits and their gradients stay inside the kernels.
    pub fn cut_loss(&self, shape: Shape, weight: ParamId) -> Tensor<'m> {
        // what autocast made float32 is made what the weight is
        let stored = self.machine.with(|state| state.params.get(weight).dtype);
        self.to(stored).apply(|state, x| state.cut_loss(x, shape, weight))
    }
}

impl State {
    fn liger_loss(&mut self, x: &Value, (shape, times): (Shape, u64), weight: ParamId) -> Value {
        let rows = x.numel / shape.input.max(1);
        let parameter = self.weight(weight);
        let node = self.node([x, &parameter], |state, node, _| saved_gradients(state, node));
        let outer = std::mem::replace(&mut self.graph.enabled, false);
        let input_gradient = self.alloc_for(x.storage, x.numel, x.dtype, &torch::LOSS_INPUT_GRADIENT);
        let weight_gradient = if parameter.wants() {
            self.alloc_for(parameter.storage, parameter.numel, parameter.dtype, &LOSS_WEIGHT_GRADIENT)
        } else {
            NOTHING
        };
        let losses = self.alloc_for(x.storage, rows, Dtype::F32, &LOSSES);
        let mask = self.alloc_for(x.storage, rows, Dtype::Bool, &TARGET_MASK);
        self.scratch(rows.saturating_mul(Dtype::I64.bytes()), &torch::SUM);
        self.liger_chunks(x, (rows, chunk(rows, shape, times), shape), weight, parameter.wants());
        let loss = self.alloc(1, Dtype::F32, &torch::LOSS);
        self.release(mask);
        self.release(losses);
        self.graph.enabled = outer;
        for gradient in [input_gradient, weight_gradient] {
            self.save(node, gradient);
            self.release(gradient);
        }
        self.release(parameter.storage);
        Value::plain(loss, 1, Dtype::F32).at(node.output(0))
    }

    /// The loop over chunks of the rows.
    fn liger_chunks(
        &mut self,
        x: &Value,
        (rows, length, shape): (u64, u64, Shape),
        weight: ParamId,
        trained: bool,
    ) {
        let stored = self.params.get(weight).dtype;
        let dtype = self.autocast.unwrap_or(x.dtype);
        // `_can_use_mm_out`: no operand is cast
        let direct = x.dtype == stored && dtype == x.dtype;
        let buffer = if direct { self.logits_of(length, shape.output, dtype) } else { NOTHING };
        // logits, the input's gradient, the weight's
        let numel = rows.saturating_mul(shape.output);
        (0..2 + u64::from(trained)).for_each(|_| self.multiply(numel, shape.input));
        // the logits are written and become their own gradient
        (0..2).for_each(|_| self.write(numel.saturating_mul(dtype.bytes())));
        for length in lengths(rows, length) {
            let logits = if direct { NOTHING } else { self.liger_logits(x, (length, shape), stored, dtype) };
            let inputs = length.saturating_mul(shape.input);
            if !direct {
                let copy = self.cast_weight(weight, true).storage;
                self.scratch(inputs.saturating_mul(dtype.bytes()), &torch::CHUNK_GRADIENT);
                self.release(copy);
            }
            if trained {
                self.liger_weight_gradient((inputs, x.dtype), (shape.weights(), stored), dtype);
            }
            self.release(logits);
        }
        self.release(buffer);
    }

    /// `input @ weight.t()` with operands that autocast casts: a view of a weight is cast at every use.
    fn liger_logits(
        &mut self,
        x: &Value,
        (length, shape): (u64, Shape),
        stored: Dtype,
        dtype: Dtype,
    ) -> StorageId {
        let mut cast = |numel: u64, from: Dtype| {
            if from == dtype { NOTHING } else { self.alloc(numel, dtype, &torch::CAST) }
        };
        let weight = cast(shape.weights(), stored);
        let input = cast(length.saturating_mul(shape.input), x.dtype);
        let logits = self.logits_of(length, shape.output, dtype);
        self.release(input);
        self.release(weight);
        logits
    }

    /// The logits of so many tokens.
    pub(super) fn logits_of(&mut self, rows: u64, width: u64, dtype: Dtype) -> StorageId {
        let logits = self.alloc(rows.saturating_mul(width), dtype, &torch::LOGITS);
        self.note_dims(logits, Dims::Rows(Rows::Tokens, rows));
        logits
    }

    /// What one chunk adds to the weight's gradient: in place, where a kernel can, else by way of a whole further one.
    fn liger_weight_gradient(
        &mut self,
        (inputs, input): (u64, Dtype),
        (weights, stored): (u64, Dtype),
        dtype: Dtype,
    ) {
        let half = dtype != Dtype::F32;
        if half && self.device.capability >= 80 && (stored == Dtype::F32 || stored == dtype) {
            let copy = if input == dtype { NOTHING } else { self.alloc(inputs, dtype, &torch::CAST) };
            self.release(copy);
            return;
        }
        let copy = if input == dtype { NOTHING } else { self.alloc(inputs, dtype, &torch::CAST) };
        let product = self.alloc(weights, dtype, &MM);
        self.release(copy);
        let float = if half { self.alloc(weights, Dtype::F32, &FLOAT) } else { NOTHING };
        self.release(product);
        self.release(float);
    }

    fn cut_loss(&mut self, x: &Value, shape: Shape, weight: ParamId) -> Value {
        let rows = x.numel / shape.input.max(1);
        let parameter = self.weight(weight);
        let node = self.node([x, &parameter], move |state, node, _| cut_backward(state, node, shape));
        self.multiply(rows.saturating_mul(shape.output), shape.input);
        // `_build_flat_valids`: sequence and position of every target, then one number for both
        let mask = self.alloc_for(x.storage, rows, Dtype::Bool, &TARGET_MASK);
        let wide = self.alloc(rows.saturating_mul(2), Dtype::I64, &torch::NONZERO);
        let pairs = self.alloc(rows.saturating_mul(2), Dtype::I32, &torch::NONZERO);
        self.release(wide);
        let valid = self.alloc_for(x.storage, rows, Dtype::I64, &TARGETS);
        self.release(mask);
        self.release(pairs);
        let sums = self.alloc_for(x.storage, rows, Dtype::F32, &torch::SUMS_OF_LOGITS);
        let averages = self.alloc(shape.output, Dtype::F32, &AVERAGE_LOGITS);
        let products = self.alloc_for(x.storage, rows, Dtype::F32, &TARGET_LOGITS);
        let loss = self.alloc(1, Dtype::F32, &torch::LOSS);
        self.release(products);
        for storage in [x.storage, sums, valid, averages] {
            self.save(node, storage);
        }
        for storage in [sums, valid, averages, parameter.storage] {
            self.release(storage);
        }
        Value::plain(loss, 1, Dtype::F32).at(node.output(0))
    }
}

/// Rows of a chunk: as many as hold about so many times as many logits as all inputs together.
fn chunk(rows: u64, shape: Shape, times: u64) -> u64 {
    let chunks = shape.output.div_ceil(shape.input.saturating_mul(times).max(1)).max(1);
    let rows_of_one = rows.div_ceil(chunks);
    rows_of_one.checked_next_power_of_two().unwrap_or(rows).min(rows).max(1)
}

/// Lengths of the chunks of a whole, each of `length` but the last: those between the second and the last repeat the
/// second.
pub(in crate::step) fn lengths(whole: u64, length: u64) -> impl Iterator<Item = u64> {
    let (full, rest) = ((whole / length).min(2), whole % length);
    (0..full).map(move |_| length).chain((rest > 0).then_some(rest))
}

/// `cce_backward_kernel`.
fn cut_backward(state: &mut State, node: &Node, shape: Shape) -> Results {
    let [input, weight, _] = node.inputs;
    // the order in which the kernel visits the vocabulary
    let values = state.alloc(shape.output, Dtype::F32, &torch::SORT);
    let indices = state.alloc(shape.output, Dtype::I64, &torch::SORT);
    state.release(values);
    let order = state.alloc(shape.output, Dtype::I32, &VOCABULARY_ORDER);
    state.release(indices);
    let mut gradient = |wanted: &Input| {
        wanted.wants().then(|| {
            // the logits once more, and the gradient from them
            (0..2).for_each(|_| state.multiply(input.numel, shape.output));
            let storage = state.alloc_for(wanted.storage, wanted.numel, input.dtype, &CUT_GRADIENT);
            Grad::new(storage, wanted.numel, input.dtype, Layout::Tokens)
        })
    };
    let (own, other) = (gradient(&input), gradient(&weight));
    let mut locks = |wanted: bool, rows: u64| {
        let numel = rows.div_ceil(LOCK_ROWS).saturating_mul(shape.input.div_ceil(LOCK_COLUMNS));
        if wanted { state.alloc(numel, Dtype::I32, &LOCKS) } else { NOTHING }
    };
    let locks =
        [locks(own.is_some(), input.numel / shape.input.max(1)), locks(other.is_some(), shape.output)];
    locks.into_iter().chain([order]).for_each(|storage| state.release(storage));
    [own, other, None]
}
