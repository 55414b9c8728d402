//! Attention whose keys and values are divided among GPUs: what PyTorch's context parallelism puts in a kernel's place, in which every GPU
//! gathers the keys and values of all, runs the kernel once for each GPU's, and merges what comes of it.
//!
//! The first rank stands for all. Beside its own share it only looks with the later half of its queries, and merges that into half of its output,
//! which keeps more than what the last rank does, whose queries all look at half of the others' keys.
//!
//! Source: torch 2.11 distributed/tensor/experimental/_context_parallel/_attention.py, `rotate_method` "allgather", load balanced.

use super::arguments::{Kernel, Scores};
use super::fused::{ATTENDED, LOG_SUM_EXP, SEED, kernel_gradients, split_scratch};
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Input, Node, NodeRef, Results};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{Source, What, torch};
use crate::work::Group;

const RING: Source =
    Source::At("PyTorch, torch/distributed/tensor/experimental/_context_parallel/_attention.py");

static SENT: What = What::own("keys and values", "this GPU's, in one tensor, as they are sent", RING);
static GATHERED: What =
    What::own("keys and values (gathered)", "those of all GPUs that share the sequence", RING);
static MERGED: What = What::own(
    "attention (merged)",
    "attention's output so far, in float32, of the GPUs' keys that were looked at",
    RING,
);
static MERGED_SUMS: What = What::own(
    "attention (merged log-sum-exp)",
    "one number per query and head, over the keys of all GPUs that were looked at",
    RING,
);
static BLOCK: What = What::own(
    "attention (one GPU's keys)",
    "attention to the keys of one GPU, in float32, before it is merged",
    RING,
);
static MERGING: What =
    What::own("attention (merging)", "scratch space in which attention to one GPU's keys is merged", RING);
static OWN_GRADIENT: What = What::own(
    "attention (gradient so far)",
    "the gradient of this GPU's queries, keys or values, summed in float32",
    RING,
);
static TURNING: What = What::own(
    "attention (gradient that goes round)",
    "the gradient of keys and values in float32, on its way from GPU to GPU",
    RING,
);
static OWN_SUMS: What =
    What::own("attention (log-sum-exp, half)", "one number per query and head of half of the queries", RING);

/// What a kernel returns.
struct Made {
    output: StorageId,
    sums: StorageId,
    seeds: [StorageId; 2],
}

impl Made {
    /// The kernel of so many queries like those.
    fn of(state: &mut State, scores: Scores, q: &Value) -> Made {
        let seeds =
            |state: &mut State, first: u64| [first, 1].map(|numbers| state.alloc(numbers, Dtype::I64, &SEED));
        let before = if scores.kernel == Kernel::Cudnn { seeds(state, 1) } else { [NOTHING; 2] };
        let output = state.alloc_for(q.storage, scores.outputs(), q.dtype, &ATTENDED);
        let sums = state.alloc_for(q.storage, scores.rows(), Dtype::F32, &LOG_SUM_EXP);
        let seeds = if scores.kernel == Kernel::Flash {
            split_scratch(state, scores, scores.dropout);
            seeds(state, 2)
        } else {
            before
        };
        Made { output, sums, seeds }
    }

    /// Output and sums, then what its random numbers began with.
    fn release(self, state: &mut State) {
        state.release(self.output);
        state.release(self.sums);
        self.seeds.into_iter().rev().for_each(|seed| state.release(seed));
    }
}

/// A tensor as dense as its shape is: itself where it lies so.
fn contiguous(state: &mut State, value: &Value, what: &'static What) -> StorageId {
    if matches!(value.layout, Layout::Heads | Layout::Either) {
        state.retain(value.storage);
        return value.storage;
    }
    state.alloc_for(value.storage, value.numel, value.dtype, what)
}

/// Half of the queries, of which all GPUs have as many.
fn half(scores: Scores) -> Scores {
    Scores { sequence: scores.sequence / 2, ..scores }
}

/// `_templated_ring_attention`: the output, which lies head after head. Queries, keys and values are saved.
pub(super) fn forward(state: &mut State, node: NodeRef, scores: Scores, [q, k, v]: [&Value; 3]) -> Value {
    let ranks = scores.ranks;
    let both = k.numel.saturating_add(v.numel);
    let copies = [k, v].map(|given| contiguous(state, given, &torch::CONTIGUOUS));
    let sent = state.alloc_for(k.storage, both, k.dtype, &SENT);
    let gathered = state.alloc_for(k.storage, both.saturating_mul(ranks), k.dtype, &GATHERED);
    state.send_around(Group::Tensor, both.saturating_mul(ranks).saturating_mul(k.dtype.bytes()), ranks);
    state.release(sent);
    let mut made = Made::of(state, scores, q);
    let mut total_sums = made.sums;
    state.retain(total_sums);
    let mut total = state.alloc_for(q.storage, scores.outputs(), Dtype::F32, &MERGED);
    let part = half(scores);
    for step in 1..ranks {
        if step + 1 < ranks {
            // it is gathered once, whatever it is given further
            let sent = state.alloc_for(k.storage, both, k.dtype, &SENT);
            state.release(sent);
        }
        if step == 1 {
            copies.into_iter().for_each(|copy| state.release(copy));
        }
        let next = Made::of(state, part, q);
        std::mem::replace(&mut made, next).release(state);
        [total_sums, total] = merge(state, part, scores, [total_sums, total]);
    }
    let output = state.alloc_for(q.storage, scores.outputs(), q.dtype, &ATTENDED);
    state.release(total);
    state.release(gathered);
    state.release(made.output);
    state.release(made.sums);
    let value = Value {
        storage: output,
        numel: scores.outputs(),
        layout: Layout::Heads,
        shape: Layout::Heads,
        edge: node.output(0),
        ..*q
    };
    state.save(node, total_sums);
    state.save_view(node, &value);
    state.release(total_sums);
    for seed in made.seeds {
        state.save(node, seed);
        state.release(seed);
    }
    value
}

/// `_SDPAMerger.step` of some of the queries: sums and output of all of them, with these.
fn merge(state: &mut State, part: Scores, whole: Scores, [sums, output]: [StorageId; 2]) -> [StorageId; 2] {
    let alloc = |state: &mut State, of: StorageId, numel: u64, what: &'static What| {
        state.alloc_for(of, numel, Dtype::F32, what)
    };
    let block = alloc(state, output, part.outputs(), &BLOCK);
    let rows = |state: &mut State| alloc(state, sums, part.rows(), &MERGING);
    let elements = |state: &mut State| alloc(state, output, part.outputs(), &MERGING);
    // out - sigmoid(block_lse - lse) * (out - block_out)
    let difference = rows(state);
    let share = rows(state);
    state.release(difference);
    let apart = elements(state);
    let weighed = elements(state);
    state.release(share);
    state.release(apart);
    let merged = elements(state);
    state.release(weighed);
    // lse - logsigmoid(lse - block_lse)
    let difference = rows(state);
    let share = rows(state);
    state.release(difference);
    let merged_sums = rows(state);
    state.release(share);
    // `_partial_update`
    let all_sums = alloc(state, sums, whole.rows(), &MERGED_SUMS);
    state.release(sums);
    let all = alloc(state, output, whole.outputs(), &MERGED);
    for old in [output, merged_sums, merged, block] {
        state.release(old);
    }
    [all_sums, all]
}

/// `_templated_ring_attention_backward`.
pub(super) fn backward(state: &mut State, node: &Node, grad: &Grad, scores: &Scores) -> Results {
    let ranks = scores.ranks;
    let [q, k, v] = node.inputs;
    let both = k.numel.saturating_add(v.numel);
    let [mut dq, dk, dv] =
        [q, k, v].map(|of| state.alloc_for(of.storage, of.numel, Dtype::F32, &OWN_GRADIENT));
    let copies = [k, v].map(|given| contiguous(state, &given, &torch::CONTIGUOUS));
    let mut sent = state.alloc_for(k.storage, both, k.dtype, &SENT);
    let gathered = state.alloc_for(k.storage, both.saturating_mul(ranks), k.dtype, &GATHERED);
    state.send_around(Group::Tensor, both.saturating_mul(ranks).saturating_mul(k.dtype.bytes()), ranks);
    // what a kernel makes of all queries, or of half
    let run = |state: &mut State, scores: Scores, queries: u64, given: Layout| {
        let inputs = [Input { numel: queries, ..q }, k, v];
        kernel_gradients(state, inputs, [given, Layout::Heads], &scores)
    };
    let turned = |state: &mut State| {
        // each GPU hands them on as often as there are GPUs
        let bytes = both.saturating_mul(Dtype::F32.bytes());
        state.send_around(Group::Tensor, bytes.saturating_mul(ranks), ranks);
        state.alloc_for(k.storage, both, Dtype::F32, &TURNING)
    };
    let mut made = run(state, *scores, q.numel, grad.layout);
    let flat = [(k, dk), (v, dv)].map(|(of, own)| {
        let own = Value { storage: own, dtype: Dtype::F32, ..of };
        contiguous(state, &own, &torch::CONTIGUOUS)
    });
    let mut joined = state.alloc_for(k.storage, both, Dtype::F32, &TURNING);
    flat.into_iter().rev().for_each(|copy| state.release(copy));
    let mut handed = turned(state);
    // what the sums so far are views of
    let mut summed = [dk, dv];
    let mut sums = NOTHING;
    let part = half(*scores);
    // half of the queries of several sequences do not lie one after the other
    let given = if scores.batch > 1 { Layout::Heads } else { grad.layout };
    for step in 1..ranks {
        if step + 1 < ranks {
            let next = state.alloc_for(k.storage, both, k.dtype, &SENT);
            state.release(sent);
            sent = next;
        }
        let own_sums = state.alloc_for(q.storage, part.rows(), Dtype::F32, &OWN_SUMS);
        state.release(sums);
        sums = own_sums;
        if step == 1 {
            copies.into_iter().for_each(|copy| state.release(copy));
        }
        let next = run(state, part, q.numel / 2, given);
        release_all(state, std::mem::replace(&mut made, next));
        state.release(joined);
        summed.into_iter().for_each(|own| state.release(own));
        summed = [handed, NOTHING];
        joined = state.alloc_for(k.storage, both, Dtype::F32, &TURNING);
        handed = turned(state);
        // `_partial_update`
        let all = state.alloc_for(q.storage, q.numel, Dtype::F32, &OWN_GRADIENT);
        state.release(dq);
        dq = all;
    }
    let queries = state.alloc_for(q.storage, q.numel, q.dtype, &torch::CAST);
    state.release(dq);
    let others = state.alloc_for(k.storage, both, k.dtype, &torch::CAST);
    state.release(joined);
    summed.into_iter().for_each(|own| state.release(own));
    state.release(sent);
    release_all(state, made);
    for old in [handed, gathered, sums] {
        state.release(old);
    }
    // the gradients of keys and values are views of one tensor
    state.retain(others);
    let result = |storage: StorageId, of: Input| Grad {
        view: true,
        ..Grad::new(storage, of.numel, of.dtype, Layout::Heads)
    };
    let mut wanted = [Some(result(queries, q)), Some(result(others, k)), Some(result(others, v))];
    for (slot, input) in wanted.iter_mut().zip([q, k, v]) {
        if !input.wants() {
            slot.take().into_iter().for_each(|grad| state.release(grad.storage));
        }
    }
    wanted
}

fn release_all(state: &mut State, made: [Grad; 3]) {
    made.into_iter().for_each(|grad| state.release(grad.storage));
}
