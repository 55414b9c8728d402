//! The fused kernels: flash, memory-efficient and cuDNN's, and the package flash-attn.
//!
//! Sources: aten/src/ATen/native/transformers/cuda/attention.cu and cuda/attention_backward.cu.

use super::arguments::{Arguments, Kernel, Scores, additive_mask, float_mask};
use super::ring;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::autograd::{Grad, INPUTS, Input, Node, Results};
use crate::step::heap::{BLOCK, NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{ATTENTION, What, torch};

pub(super) static ATTENDED: What = What::own(
    "attention",
    "attention's output, saved with q, k and v for its own backward and for the projection's",
    ATTENTION,
);
static ATTENTION_OUTPUT: What = What::own(
    "attention (output)",
    "attention's output in the order that its kernel's backward reads",
    ATTENTION,
);
static OUTPUT_GRADIENT: What = What::own(
    "attention (output's gradient)",
    "the gradient of attention's output in the order that its kernel's backward reads",
    ATTENTION,
);
static DELTA: What = What::own(
    "attention (delta)",
    "scratch space of the attention kernel's backward: one number per query and head",
    ATTENTION,
);
static DQ: What = What::own(
    "attention (dq)",
    "scratch space of the attention kernel's backward: the queries' gradient, summed in float32",
    ATTENTION,
);
static DK: What = What::own(
    "attention (dk)",
    "scratch space of the attention kernel's backward: the keys' gradient for every query head",
    ATTENTION,
);
static DV: What = What::own(
    "attention (dv)",
    "scratch space of the attention kernel's backward: the values' gradient for every query head",
    ATTENTION,
);
static ATTENTION_GRADIENT: What =
    What::own("attention (gradient)", "the gradient of queries, keys or values", ATTENTION);
pub(super) static LOG_SUM_EXP: What = What::own(
    "attention (log-sum-exp)",
    "one number per query and head, of which backward makes the probabilities again",
    ATTENTION,
);
static PARTIAL_SUMS: What = What::own(
    "attention (partial log-sum-exp)",
    "partial results of the attention kernel where it splits keys and values over thread blocks",
    ATTENTION,
);
static PARTIAL_OUTPUT: What = What::own(
    "attention (partial output)",
    "partial results of the attention kernel where it splits keys and values over thread blocks",
    ATTENTION,
);
pub(super) static SEED: What =
    What::own("attention (seed)", "the state of the random numbers, for the same dropout again", ATTENTION);
static OUTPUT_SUMS: What = What::own(
    "attention (sums of the output)",
    "scratch space of the attention kernel: its output, summed in float32",
    ATTENTION,
);
static WORKSPACE: What =
    What::own("attention (workspace)", "scratch space of the attention kernel's backward", ATTENTION);
static GRADIENT_TIMES_OUTPUT: What =
    What::own("grad · out", "scratch space of the attention kernel's backward", ATTENTION);

/// Attention by one of these kernels. autocast casts its arguments from the last to the first.
pub(super) fn attention<'m>(scores: Scores, given: &Arguments<'_, 'm>) -> Tensor<'m> {
    let machine = given.q.machine;
    let target = machine.with(|state| state.autocast);
    let cast = |tensor: &Tensor<'m>| tensor.to(target.unwrap_or(tensor.value.dtype));
    let mask = float_mask(given.mask, cast);
    let (v, k) = (cast(given.v), cast(given.k));
    let arguments = [cast(given.q), k, v];
    let bias = mask.map(|mask| {
        let additive = additive_mask(machine, &mask, scores, arguments[0].value.dtype);
        if scores.kernel == Kernel::Efficient { aligned_mask(additive, scores.keys) } else { additive }
    });
    let unpadded = scores.outputs();
    let padded = scores.head_dim.div_ceil(FLASH_ALIGNMENT).saturating_mul(FLASH_ALIGNMENT);
    let (scores, [q, k, v]) = if scores.kernel == Kernel::Flash && padded != scores.head_dim {
        let wider = |tensor: &Tensor<'m>| {
            tensor.padded_to((tensor.value.numel / scores.head_dim.max(1)).saturating_mul(padded))
        };
        (Scores { head_dim: padded, value_dim: padded, ..scores }, arguments.each_ref().map(wider))
    } else {
        (scores, arguments.clone())
    };
    let output = machine.tensor(|state| {
        let wanting = bias.as_ref().map(|bias| bias.value).filter(Input::wants);
        let scores = Scores { bias: wanting, dropout: given.dropout, ..scores };
        let flops = scores.flops(given.causal).saturating_mul(scores.ranks);
        state.attend(flops);
        let inputs = [&q.value, &k.value, &v.value];
        state.read_operand(k.value.bytes().saturating_add(v.value.bytes()));
        let node = state.node(inputs, move |state, node, grad| {
            // the scores once more, and four products for the gradients
            state.attend(flops.saturating_mul(5) / 2);
            if scores.ranks > 1 {
                return ring::backward(state, node, grad, &scores);
            }
            attention_backward(state, node, grad, &scores)
        });
        state.expect_gradient(scores.bias);
        // saved variables are named in alphabetical order: attn_bias, key, query, value; the package's in its own
        let operands = if scores.kernel == Kernel::Package { [&q, &k, &v] } else { [&k, &q, &v] };
        for tensor in bias.iter().chain(operands) {
            state.save_view(node, &tensor.value);
        }
        if scores.ranks > 1 {
            return ring::forward(state, node, scores, inputs);
        }
        // a block of the allocator for each call's
        let each = scores
            .calls
            .max(1)
            .saturating_sub(1)
            .saturating_mul(BLOCK / Dtype::I64.bytes())
            .saturating_add(1);
        let seeds = |state: &mut State| [(); 2].map(|()| state.alloc(each, Dtype::I64, &SEED));
        let mut drawn = [NOTHING; 2];
        if scores.kernel == Kernel::Cudnn {
            drawn = seeds(state);
        }
        if scores.texts > 0 {
            let starts = state.alloc(scores.texts.saturating_add(1), Dtype::I32, &torch::TEXT_STARTS);
            state.save(node, starts);
            state.release(starts);
        }
        // flash and cuDNN lay their output out as the queries are, the memory-efficient kernel token after token
        let layout = if scores.kernel == Kernel::Efficient { Layout::Tokens } else { q.value.layout };
        let output = Value { layout, numel: scores.outputs(), ..q.value };
        let value = state.new_like(&output, q.value.dtype, &ATTENDED, node.output(0));
        // `should_compute_logsumexp`: flash makes it always, the others where there will be a backward
        let recorded =
            state.graph.is_recorded() && [&q, &k, &v].into_iter().any(|tensor| tensor.value.requires_grad());
        let sums = match scores.kernel {
            Kernel::Efficient | Kernel::Cudnn if !recorded => NOTHING,
            Kernel::Flash
            | Kernel::Package
            | Kernel::Efficient
            | Kernel::Cudnn
            | Kernel::Math
            | Kernel::Eager => state.alloc_for(q.value.storage, scores.sums(), Dtype::F32, &LOG_SUM_EXP),
        };
        scratch(state, scores, q.value.dtype);
        match scores.kernel {
            Kernel::Flash => {
                split_scratch(state, scores, given.dropout);
                drawn = seeds(state);
            }
            Kernel::Package => {
                split_scratch(state, scores, given.dropout || scores.texts > 0);
                drawn[0] = state.alloc(2, Dtype::I64, &SEED);
                state.save_view(node, &value);
            }
            Kernel::Efficient | Kernel::Cudnn | Kernel::Math | Kernel::Eager => {}
        }
        state.save(node, sums);
        if scores.kernel != Kernel::Package {
            state.save_view(node, &value);
        }
        state.release(sums);
        for seed in drawn.into_iter().filter(|seed| *seed != NOTHING) {
            state.save(node, seed);
            state.release(seed);
        }
        value
    });
    drop((bias, v, k, q));
    drop(arguments);
    output.slice(unpadded)
}

/// Rows of the memory-efficient kernel's mask begin at multiples of so many elements (attention.cpp `preprocess_mask`).
const MASK_ALIGNMENT: u64 = 8;

/// `pad_bias`: a mask with longer rows, of which the kernel is given a slice.
fn aligned_mask(mask: Tensor<'_>, keys: u64) -> Tensor<'_> {
    if keys.is_multiple_of(MASK_ALIGNMENT) {
        return mask;
    }
    let rows = mask.value.numel / keys.max(1);
    let padded = keys.div_ceil(MASK_ALIGNMENT).saturating_mul(MASK_ALIGNMENT);
    let whole = Value { numel: rows.saturating_mul(padded), ..mask.value };
    let value = mask
        .machine
        .with(|state| state.new_like(&whole, whole.dtype, &torch::ADDITIVE_MASK, mask.value.edge));
    Tensor { machine: mask.machine, value }
}

/// Float32 sums of a wide head's output, which the memory-efficient kernel has in memory.
fn scratch(state: &mut State, scores: Scores, dtype: Dtype) {
    if scores.kernel == Kernel::Efficient && scores.head_dim > 128 && dtype.is_half() {
        state.scratch(scores.one_call().outputs().saturating_mul(4), &OUTPUT_SUMS);
    }
}

/// The kernel alone, of queries, keys and values that lie token after token, as a compiled graph calls it: its output, one number per
/// query and head, and the state of the random numbers. No mask, no dropout.
pub(in crate::step) fn alone(
    state: &mut State,
    scores: Scores,
    (of, dtype): (StorageId, Dtype),
) -> Vec<StorageId> {
    state.attend(scores.flops(true));
    let seeds =
        |state: &mut State, first: u64| [first, 1].map(|numbers| state.alloc(numbers, Dtype::I64, &SEED));
    let drawn = if scores.kernel == Kernel::Cudnn { seeds(state, 1) } else { [NOTHING; 2] };
    let output = state.alloc_for(of, scores.outputs(), dtype, &ATTENDED);
    let sums = state.alloc_for(of, scores.sums(), Dtype::F32, &LOG_SUM_EXP);
    scratch(state, scores, dtype);
    let drawn = if scores.kernel == Kernel::Flash {
        split_scratch(state, scores, false);
        seeds(state, 2)
    } else {
        drawn
    };
    vec![output, sums, drawn[0], drawn[1]]
}

/// Its backward: the gradients of queries, keys and values.
pub(in crate::step) fn alone_backward(
    state: &mut State,
    scores: Scores,
    inputs: [Input; 3],
) -> Vec<StorageId> {
    state.attend(scores.flops(true).saturating_mul(5) / 2);
    let results = kernel_backward(state, inputs, [Layout::Tokens, inputs[0].layout], &scores);
    results.into_iter().flatten().map(|grad| grad.storage).collect()
}

/// `pad_last_dim<8>` of attention.cpp: the flash kernel's heads are of a multiple of so many elements.
const FLASH_ALIGNMENT: u64 = 8;

/// Partial results of the flash kernel where it splits keys and values over more blocks than there are queries for.
///
/// Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp `set_params_splitkv`.
pub(super) fn split_scratch(state: &mut State, scores: Scores, dropout: bool) {
    let scores = scores.one_call();
    let splits = if dropout { 1 } else { scores.splits(state.device.multiprocessors * 2) };
    if splits <= 1 {
        return;
    }
    let rows = scores.rows().saturating_mul(splits);
    let width = rounded_dim(scores.head_dim);
    let sums = state.alloc(rows, Dtype::F32, &PARTIAL_SUMS);
    let output = state.alloc(rows.saturating_mul(width), Dtype::F32, &PARTIAL_OUTPUT);
    state.release(sums);
    state.release(output);
}

/// Elements of a head in the flash kernels' accumulators (flash_api.cpp `head_size_rounded`; measured from 32 to 256).
fn rounded_dim(head_dim: u64) -> u64 {
    let step = if head_dim <= 128 { 32 } else { 64 };
    head_dim.div_ceil(step).saturating_mul(step)
}

/// The gradients of queries, keys and values from a fused kernel.
fn attention_backward(state: &mut State, node: &Node, grad: &Grad, scores: &Scores) -> Results {
    let mut inputs = node.inputs;
    if node.brought_back {
        inputs.iter_mut().for_each(|input| input.layout = input.dense_layout());
    }
    // the output lies as the queries do
    kernel_backward(state, inputs, [grad.layout, inputs[0].layout], scores)
}

/// The same of inputs that lie so, and of the output's gradient and the output that do.
fn kernel_backward(state: &mut State, inputs: [Input; 3], given: [Layout; 2], scores: &Scores) -> Results {
    let results = kernel_gradients(state, inputs, given, scores);
    let mut wanted: Results = [None; INPUTS];
    for ((input, result), slot) in inputs.iter().zip(results).zip(&mut wanted) {
        if input.wants() {
            *slot = Some(result);
        } else {
            state.release(result.storage);
        }
    }
    wanted
}

/// The gradients that the kernel makes, whether they are wanted or not.
pub(super) fn kernel_gradients(
    state: &mut State,
    inputs: [Input; 3],
    [given, output]: [Layout; 2],
    scores: &Scores,
) -> [Grad; 3] {
    let dtype = inputs[0].dtype;
    let [q, k, v] = inputs.map(|input| input.numel);
    let make = |state: &mut State, of: StorageId, numel: u64, layout: Layout| {
        // the memory-efficient kernel makes them token after token, the others as their inputs lie
        let by_tokens = layout == Layout::Expanded || scores.kernel == Kernel::Efficient;
        let layout = if by_tokens { Layout::Tokens } else { layout };
        let storage = state.alloc_for(of, numel, dtype, &ATTENTION_GRADIENT);
        Grad { view: true, ..Grad::new(storage, numel, dtype, layout) }
    };
    // the flash kernel reads its output and the gradient of that token after token
    let copied =
        |layout: Layout| scores.kernel == Kernel::Flash && !matches!(layout, Layout::Tokens | Layout::Either);
    let copies = [(given, &OUTPUT_GRADIENT), (output, &ATTENTION_OUTPUT)].map(|(layout, name)| {
        if copied(layout) { state.alloc_for(inputs[0].storage, q, dtype, name) } else { NOTHING }
    });
    let [lq, lk, lv] = inputs.map(|input| input.layout);
    let [oq, ok, ov] = inputs.map(|input| input.storage);
    let results = [make(state, oq, q, lq), make(state, ok, k, lk), make(state, ov, v, lv)];
    let biased = scores.bias.map(|bias| (bias, make(state, bias.storage, scores.numel(), Layout::Heads)));
    let call = scores.one_call();
    let accumulator = (q / scores.calls.max(1)).saturating_mul(4);
    match scores.kernel {
        Kernel::Flash | Kernel::Package => {
            let padded = match scores.texts {
                0 => scores.sequence.div_ceil(128).saturating_mul(128),
                texts => scores.sequence.saturating_add(texts.saturating_mul(128)),
            };
            let dims = rounded_dim(scores.head_dim);
            let rows = call.batch.saturating_mul(scores.heads).saturating_mul(padded);
            let delta = state.alloc_for(oq, rows, Dtype::F32, &DELTA);
            let partial = state.alloc_for(oq, rows.saturating_mul(dims), Dtype::F32, &DQ);
            if scores.heads != scores.kv_heads {
                let all = k.saturating_mul(scores.heads / scores.kv_heads.max(1));
                let expanded = [&DK, &DV].map(|what| state.alloc_for(ok, all, dtype, what));
                expanded.into_iter().rev().for_each(|storage| state.release(storage));
            }
            state.release(partial);
            state.release(delta);
        }
        Kernel::Efficient => {
            let product = if dtype.is_half() {
                NOTHING
            } else {
                state.alloc_for(oq, call.outputs(), dtype, &GRADIENT_TIMES_OUTPUT)
            };
            let delta = state.alloc_for(oq, call.rows(), Dtype::F32, &DELTA);
            let delta = if product == NOTHING {
                delta
            } else {
                let transposed = state.alloc_for(oq, call.rows(), Dtype::F32, &DELTA);
                state.release(delta);
                transposed
            };
            state.release(product);
            let workspace = call.staged(dtype.is_half(), state.device.capability);
            let workspace = state.alloc_as(Category::Temporaries, workspace, Dtype::U8, &WORKSPACE);
            state.release(delta);
            state.release(workspace);
        }
        Kernel::Cudnn => {
            state.scratch(accumulator.saturating_add(call.rows().saturating_mul(4)), &WORKSPACE);
        }
        Kernel::Math | Kernel::Eager => {}
    }
    if let Some((bias, mut grad)) = biased {
        if grad.numel > bias.numel {
            let sum = state.alloc_for(bias.storage, bias.numel, dtype, &torch::SUM);
            state.release(grad.storage);
            grad = Grad::new(sum, bias.numel, dtype, Layout::Tokens);
        }
        state.give(bias.edge, grad);
    }
    copies.into_iter().rev().for_each(|copy| state.release(copy));
    results
}
