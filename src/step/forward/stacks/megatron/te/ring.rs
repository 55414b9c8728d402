//! Context parallelism whose keys and values go round from GPU to GPU (`cp_comm_type` "p2p", Megatron-LM's own default): each GPU's queries
//! attend to its own keys first, then to those of one GPU after the other, and the parts of the output are put together at the end.
//! Every other step runs on a second stream.
//!
//! A sequence is cut into twice as many parts as there are GPUs, which have one from each end: the last GPU, which is followed, the two in the
//! middle. All its queries see what comes round, where half of the others' do, so that its parts of the output are the largest.
//!
//! Source: `AttnFuncWithCPAndKVP2P` of
//! transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py of Transformer Engine 2.11. Compared with the
//! allocator's trace of that code.

use super::attention::{ATTENDED, ATTENTION_GRADIENT, ATTENTION_SUMS, Attended, RANDOM_STATE, STATISTICS};
use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};
use crate::work::Group;

const RING: Source = Source::At(
    "Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py",
);

static GOING_ROUND: What =
    What::own("keys and values (going round)", "those of another GPU, beside those that are read", RING);
static GRADIENTS_GOING_ROUND: What = What::own(
    "keys, values and gradients (going round)",
    "another GPU's keys and values, and what all GPUs so far add to their gradients",
    RING,
);
static PART: What =
    What::own("attention (part of the output)", "what the queries get of the keys of one GPU", RING);

/// The stream of every other step: Megatron has no other beside the one that computes.
const SECOND: Stream = Stream::Gathers;

impl<'m> Tensor<'m> {
    /// `AttnFuncWithCPAndKVP2P` of queries.
    pub(super) fn te_attended_in_ring(
        &self,
        [key, value]: [&Tensor<'m>; 2],
        attended: Attended,
        context: u64,
    ) -> Tensor<'m> {
        self.apply(|state, query| {
            state.attend(attended.flops);
            let node = state.node([query, &key.value, &value.value], move |state, node, grad| {
                ring_gradients(state, node, grad, attended, context)
            });
            let keys = key.value.numel.saturating_add(value.value.numel);
            state.send_round(keys.saturating_mul(query.dtype.bytes()), context);
            let mut round = vec![state.alloc_for(query.storage, keys, query.dtype, &GOING_ROUND)];
            let (mut parts, mut statistics, mut random) = (Vec::new(), Vec::new(), Vec::new());
            let mut all = NOTHING;
            for step in 0..context {
                let stream = if step.is_multiple_of(2) { Stream::Compute } else { SECOND };
                if step + 1 < context {
                    round.push(state.alloc_at(stream, (keys, query.dtype), &GOING_ROUND));
                }
                parts.push(state.alloc_at(stream, (query.numel, query.dtype), &PART));
                random.push(state.alloc_at(stream, (RANDOM_STATE, Dtype::U8), &torch::RANGE));
                statistics.push(state.alloc_at(stream, (attended.rows, Dtype::F32), &STATISTICS));
                if step == 1 {
                    all = state.alloc(attended.rows, Dtype::F32, &STATISTICS);
                }
            }
            let output = state.alloc_for(query.storage, attended.output, query.dtype, &ATTENDED);
            for storage in parts.into_iter().rev().chain(statistics.into_iter().rev()) {
                state.release(storage);
            }
            // backward begins with what came last
            let last = round.pop().unwrap_or(NOTHING);
            round.into_iter().rev().for_each(|storage| state.release(storage));
            state.save_view(node, query);
            state.save(node, last);
            state.release(last);
            state.save(node, output);
            for storage in std::iter::once(all).chain(random) {
                state.save(node, storage);
                state.release(storage);
            }
            Value { storage: output, numel: attended.output, ..*query }.at(node.output(0))
        })
    }
}

impl State {
    fn alloc_at(&mut self, stream: Stream, (numel, dtype): (u64, Dtype), what: &'static What) -> StorageId {
        let bytes = numel.saturating_mul(dtype.bytes());
        let category = self.category;
        self.alloc_on(stream, category, bytes, dtype, what)
    }

    /// So many bytes go on to the next GPU until each has had those of all.
    fn send_round(&mut self, bytes: u64, gpus: u64) {
        self.send_around(Group::Data, bytes.saturating_mul(gpus), gpus);
    }
}

/// The same backward, over what goes round once more with the gradients of those whose keys they are.
fn ring_gradients(state: &mut State, node: &Node, grad: &Grad, attended: Attended, context: u64) -> Results {
    // the scores once more, and four products for the gradients
    state.attend(attended.flops.saturating_mul(5) / 2);
    let [query, key, value] = node.inputs;
    let both = key.numel.saturating_add(value.numel).saturating_mul(2);
    state.send_round(both.saturating_mul(grad.dtype.bytes()), context);
    let own = state.alloc_for(grad.storage, query.numel, grad.dtype, &ATTENTION_GRADIENT);
    let [first, second] =
        [(); 2].map(|()| state.alloc_for(grad.storage, both, grad.dtype, &GRADIENTS_GOING_ROUND));
    let sums = query.numel.saturating_add(attended.rows).saturating_mul(Dtype::F32.bytes());
    let mut parts = [NOTHING; 3];
    for step in 0..context {
        parts.into_iter().for_each(|storage| state.release(storage));
        // all its own keys, and the earlier half of others'
        let seen = if step + 1 < context { 2 } else { 1 };
        parts = [query.numel, key.numel / seen, value.numel / seen]
            .map(|numel| state.alloc_for(grad.storage, numel, grad.dtype, &ATTENTION_GRADIENT));
        state.scratch(sums, &ATTENTION_SUMS);
    }
    parts.into_iter().for_each(|storage| state.release(storage));
    let (kept, gone) = if context.is_multiple_of(2) { (first, second) } else { (second, first) };
    state.release(gone);
    state.retain(kept);
    // both lie in what came round
    let of = |storage, input: &Value, view| {
        Some(Grad { view, ..Grad::new(storage, input.numel, grad.dtype, Layout::Tokens) })
    };
    [of(own, &query, false), of(kept, &key, true), of(kept, &value, true)]
}
