//! The log-probabilities of labels, straight from the hidden states: the logits exist a tile at a time, in forward and again
//! in backward.
//!
//! Source: trl 1.16 kernels/chunked_logprob.py `ChunkedLogProbFunction` and trainer/utils.py `add_fused_lm_head`, which
//! all its trainers score labels with. Compared with the allocator's trace of that code.

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::autograd::{Edge, Grad, Input, Node, Results, only};
use crate::step::forward::stacks::fused_loss::lengths;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::{Machine, State};
use crate::step::ops::linear::Shape;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static MASKED_SCATTER: What = What::step("masked_scatter", "what counts, among zeros");
static MASKED_SELECT: What = What::step("masked_select", "what the mask chooses");
static SUMMED_GRADIENT: What = What::own(
    "summed gradient",
    "the gradient of the head's weight or input, summed in float32 over tiles of the logits",
    Source::FusedLoss,
);
static LOGIT_STATISTICS: What = What::own(
    "statistics of the logits",
    "what is gathered of each token's logits over all tiles",
    Source::FusedLoss,
);
static WHOLE_WEIGHT: What = What::own(
    "full_tensor",
    "the head's whole weight, gathered as it is stored: kept for backward",
    Source::At("PyTorch, torch/distributed/tensor; trl, trainer/utils.py add_fused_lm_head"),
);
static OWN_ROWS: What = What::own(
    "split",
    "this rank's rows of the gradient of the head's whole weight",
    Source::At("PyTorch, torch/distributed/tensor/placement_types.py _select_split_tensor"),
);
static LOG: What = What::own("log", "the logarithm of each token's sum of exponentials", Source::FusedLoss);
static ENTROPY: What = What::own("entropy", "the entropy of each token's probabilities", Source::FusedLoss);
static MEAN_LOGITS: What = What::own("mean logits", "the mean logit of each token", Source::FusedLoss);
static COMPARISON: What =
    What::own("comparison", "whether a label is the likeliest token, one byte each", Source::FusedLoss);
static LIKELIEST: What =
    What::own("likeliest token", "whether a label is the likeliest token, one byte each", Source::FusedLoss);

/// Rows of a tile (`TOKEN_CHUNK_SIZE`), at most.
const ROWS: u64 = 4096;
/// Entries of the vocabulary that a tile is wide (`_CHUNKED_LOGPROB_CHUNK_SIZE`), however few there are.
const COLUMNS: u64 = 32_768;
/// Statistics that the kernel keeps of each row, asked for or not: the running maximum, sums of exponentials, of their
/// squares, of them times logits and of logits, the highest logit before the label and the label's own.
const STATISTICS: usize = 7;

/// The output head, as far as its products go.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Head {
    pub shape: Shape,
    pub weight: ParamId,
    pub bias: Option<ParamId>,
}

/// Weight and bias of the output head as its code reads them, the bias empty where there is none.
pub(in crate::step) struct Opened<'m> {
    shape: Shape,
    parameters: [Tensor<'m>; 2],
}

impl Machine {
    /// `lm_head.weight`, and its bias.
    pub fn open_head(&self, head: Head) -> Opened<'_> {
        let read = |id| Tensor { machine: self, value: self.with(|state| state.read_by_head(id)) };
        Opened { shape: head.shape, parameters: [Some(head.weight), head.bias].map(read) }
    }
}

/// What is asked for of each row beside the label's log-probability (`outputs`).
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Asked {
    pub entropy: bool,
    pub mean_logits: bool,
    /// Whether the label is the likeliest token.
    pub is_top1: bool,
}

impl Asked {
    /// The log-probability alone: what a reference model is asked.
    pub const NOTHING: Asked = Asked { entropy: false, mean_logits: false, is_top1: false };
    /// What `DPOTrainer` logs of its model.
    pub const OF_PREFERENCES: Asked = Asked { entropy: true, mean_logits: true, is_top1: true };
    /// What `KTOTrainer` logs of its model.
    pub const OF_DESIRABILITY: Asked = Asked { entropy: true, mean_logits: true, is_top1: false };
    /// What `GRPOTrainer` and `RLOOTrainer` log of their model.
    pub const OF_REWARDS: Asked = Asked { entropy: true, mean_logits: false, is_top1: false };
}

/// What is told of each row.
pub(in crate::step) struct Scores<'m> {
    pub log_probs: Tensor<'m>,
    /// What else was [`Asked`] for, in that order.
    pub others: Vec<Tensor<'m>>,
}

impl<'m> Tensor<'m> {
    /// `zeros.masked_scatter(mask, x)`: what belongs to the rows where the mask is true, among zeros. The mask is kept.
    pub fn scattered_where(&self, mask: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scattered_where_backward);
            state.save(node, mask.value.storage);
            let whole = Value { numel: mask.value.numel, ..*x };
            let zeros = state.alloc_for(whole.storage, whole.numel, x.dtype, &torch::ZEROS);
            let value = state.new_like(&whole, x.dtype, &MASKED_SCATTER, node.output(0));
            kernels::prefix_sum_scratch(state, whole.numel);
            state.release(zeros);
            value
        })
    }

    /// `ChunkedLogProbFunction.apply(x, weight, bias, targets, …)`.
    pub fn log_probs(&self, head: &Opened<'m>, targets: &Tensor<'m>, asked: Asked) -> Scores<'m> {
        let targets = targets.value.storage;
        let parameters = head.parameters.each_ref().map(|own| own.value);
        let (log_probs, others) =
            self.machine.with(|state| state.log_probs(&self.value, (head.shape, parameters), targets, asked));
        let tensor = |value| Tensor { machine: self.machine, value };
        Scores { log_probs: tensor(log_probs), others: others.into_iter().map(tensor).collect() }
    }
}

impl State {
    fn log_probs(
        &mut self,
        x: &Value,
        (shape, parameters): (Shape, [Value; 2]),
        targets: StorageId,
        asked: Asked,
    ) -> (Value, Vec<Value>) {
        let rows = x.numel / shape.input.max(1);
        let compute = self.autocast.unwrap_or(x.dtype);
        let stored = parameters[0].dtype;
        let [weight, bias] = parameters;
        let node = self.node_of(2, [x, &weight, &bias], move |state, node, _| {
            log_probs_backward(state, node, shape, (compute, stored))
        });
        let statistics: Vec<StorageId> =
            (0..STATISTICS).map(|_| self.alloc(rows, Dtype::F32, &LOGIT_STATISTICS)).collect();
        let buffer = self.tile(rows, compute);
        let numel = rows.saturating_mul(shape.output);
        self.multiply(numel, shape.input);
        self.write(numel.saturating_mul(compute.bytes()));
        let mut hidden = NOTHING;
        for length in lengths(rows, ROWS) {
            let next = self.cast_part(length.saturating_mul(shape.input), x.dtype, compute);
            self.release(std::mem::replace(&mut hidden, next));
            for columns in lengths(shape.output, COLUMNS) {
                let weight = self.cast_part(columns.saturating_mul(shape.input), stored, compute);
                self.get_workspace();
                self.release(weight);
                if bias.numel > 0 {
                    let bias = self.cast_part(columns, bias.dtype, compute);
                    self.release(bias);
                }
            }
        }
        let mut of_rows = |dtype: Dtype, what: &'static What| self.alloc(rows, dtype, what);
        let log = of_rows(Dtype::F32, &LOG);
        let log_sum = of_rows(Dtype::F32, &torch::SUMS_OF_LOGITS);
        self.release(log);
        let mut of_rows = |dtype: Dtype, what: &'static What| self.alloc(rows, dtype, what);
        let log_probs = of_rows(Dtype::F32, &torch::LOG_PROBABILITIES);
        let mut others = Vec::with_capacity(3);
        let mut told_entropy = None;
        if asked.entropy {
            let quotient = self.alloc(rows, Dtype::F32, &torch::DIV);
            let entropy = self.alloc(rows, Dtype::F32, &ENTROPY);
            self.release(quotient);
            others.push(Value::plain(entropy, rows, Dtype::F32).at(node.output(1)));
            told_entropy = Some(entropy);
        }
        if asked.mean_logits {
            let mean = self.alloc(rows, Dtype::F32, &MEAN_LOGITS);
            others.push(Value::plain(mean, rows, Dtype::F32));
        }
        let mut compared = [NOTHING; 2];
        if asked.is_top1 {
            compared = [(); 2].map(|()| self.alloc(rows, Dtype::Bool, &COMPARISON));
            let is_top1 = self.alloc(rows, Dtype::Bool, &LIKELIEST);
            others.push(Value::plain(is_top1, rows, Dtype::Bool));
        }
        // variables of the function, in their order: the last tile is a view of the buffer
        let locals = statistics.into_iter().chain([hidden, buffer]);
        compared.into_iter().chain(locals).for_each(|storage| self.release(storage));
        self.save(node, x.storage);
        parameters
            .iter()
            .filter(|parameter| parameter.numel > 0)
            .for_each(|own| self.save(node, own.storage));
        for storage in [targets, log_sum, told_entropy.unwrap_or(log_sum)] {
            self.save(node, storage);
        }
        self.release(log_sum);
        (Value::plain(log_probs, rows, Dtype::F32).at(node.output(0)), others)
    }

    /// A parameter of the head, which is never called: where FSDP2 has not gathered it, it is gathered here, and as it is stored
    /// (`weight.full_tensor()`), of which a single GPU makes no copy. The gradient of the whole is cut to this rank's rows, which no unit
    /// reduces.
    fn read_by_head(&mut self, id: Option<ParamId>) -> Value {
        id.into_iter().for_each(|id| self.read_outside(id));
        let sharded = id.filter(|id| self.parallel.has_units() && !self.parallel.is_there(*id));
        let Some(id) = sharded else { return self.weight_if(id) };
        let (numel, kept) = (self.params.get(id).numel, self.params.get(id).kept);
        let padded = self.parallel.all_of(kept);
        let is_part = padded > kept.numel;
        let storage = if is_part { self.alloc(padded, kept.dtype, &WHOLE_WEIGHT) } else { NOTHING };
        self.parallel.send_shards(&mut self.heap, padded.saturating_mul(kept.dtype.bytes()));
        let mut shard = Value::plain(NOTHING, kept.numel, kept.dtype);
        if self.params.get(id).trainable && self.graph.enabled {
            shard = shard.at(Edge::Param(self.leaf(&shard, false)));
        }
        let node = self.node([&shard], move |state, _, _| {
            let bytes = kept.numel.saturating_mul(kept.dtype.bytes());
            let own = state.alloc_as(Category::Gradients, bytes, kept.dtype, &OWN_ROWS);
            if let Some(fsdp) = state.parallel.units() {
                fsdp.add_gradient(&mut state.heap, id, own);
            }
            [None; 3]
        });
        Value::plain(storage, numel, kept.dtype).at(node.output(0))
    }

    /// `mm_buf`: what every tile of the logits is written into.
    fn tile(&mut self, rows: u64, compute: Dtype) -> StorageId {
        self.logits_of(rows.min(ROWS), COLUMNS, compute)
    }

    /// `part.to(compute)`: a copy where the element type is another.
    fn cast_part(&mut self, numel: u64, stored: Dtype, compute: Dtype) -> StorageId {
        if stored == compute { NOTHING } else { self.alloc(numel, compute, &torch::CAST) }
    }
}

/// `ChunkedLogProbFunction.backward`: every tile of the logits again; gradients are summed in float32.
fn log_probs_backward(
    state: &mut State,
    node: &Node,
    shape: Shape,
    (compute, stored): (Dtype, Dtype),
) -> Results {
    let [input, weight, bias] = node.inputs;
    let rows = input.numel / shape.input.max(1);
    let wanted = [input, weight, bias];
    let sums = float32_sums(state, wanted);
    let buffer = state.tile(rows, compute);
    // every tile once more, and from it a gradient for each that wants one
    let numel = rows.saturating_mul(shape.output);
    let products = 1 + [&input, &weight].into_iter().filter(|wanted| wanted.wants()).count();
    (0..products).for_each(|_| state.multiply(numel, shape.input));
    (0..2).for_each(|_| state.write(numel.saturating_mul(compute.bytes())));
    let (mut hidden, mut part) = (NOTHING, NOTHING);
    for length in lengths(rows, ROWS) {
        let next = state.cast_part(length.saturating_mul(shape.input), input.dtype, compute);
        state.release(std::mem::replace(&mut hidden, next));
        for columns in lengths(shape.output, COLUMNS) {
            let next = state.cast_part(columns.saturating_mul(shape.input), stored, compute);
            state.release(std::mem::replace(&mut part, next));
            state.get_workspace();
            if bias.numel > 0 {
                let own = state.cast_part(columns, bias.dtype, compute);
                state.release(own);
            }
            if bias.wants() {
                let sum = state.alloc(columns, Dtype::F32, &torch::SUM);
                kernels::column_sum_scratch(state, length, columns, compute);
                state.release(sum);
            }
        }
    }
    let results = in_own_types(state, wanted, sums);
    sums.into_iter().chain([hidden, part, buffer]).for_each(|storage| state.release(storage));
    results
}

/// Float32 sums over tiles for the input, the weight and the bias that want a gradient.
pub(super) fn float32_sums(state: &mut State, wanted: [Input; 3]) -> [StorageId; 3] {
    wanted.map(|wanted| {
        if wanted.wants() {
            state.alloc_for(wanted.storage, wanted.numel, Dtype::F32, &SUMMED_GRADIENT)
        } else {
            NOTHING
        }
    })
}

/// The sums as gradients, in the element types of what they are of.
pub(super) fn in_own_types(state: &mut State, wanted: [Input; 3], sums: [StorageId; 3]) -> Results {
    let mut results: Results = [None; 3];
    for ((wanted, sum), result) in wanted.into_iter().zip(sums).zip(&mut results) {
        if !wanted.wants() {
            continue;
        }
        let storage = if wanted.dtype == Dtype::F32 {
            state.retain(sum);
            sum
        } else {
            state.alloc_for(wanted.storage, wanted.numel, wanted.dtype, &torch::GRADIENT_CAST)
        };
        *result = Some(Grad::new(storage, wanted.numel, wanted.dtype, Layout::Tokens));
    }
    results
}

/// masked_scatter_backward: `grad.masked_select(mask)`.
fn scattered_where_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let part = node.inputs[0];
    let found = kernels::true_positions(state, grad.numel, part.numel);
    let storage = state.alloc_for(part.storage, part.numel, grad.dtype, &MASKED_SELECT);
    state.release(found);
    only(Grad::new(storage, part.numel, grad.dtype, Layout::Tokens))
}
