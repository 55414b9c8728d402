//! cuDNN's attention as Transformer Engine calls it, alone or over a sequence that several GPUs share.
//!
//! Source: transformer_engine/pytorch/attention/dot_product_attention/{backends,context_parallel}.py of Transformer Engine 2.11.

use crate::dtype::Dtype;
use crate::model::blocks::Attention;
use crate::step::autograd::{Grad, INPUTS, Node};
use crate::step::forward::Pass;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, torch};
use crate::work::Group;

use super::super::functions::Sharing;
use super::ATTENTION;

pub(super) static ATTENDED: What = What::own(
    "attention",
    "attention's output, saved with q, k and v for its own backward and for the projection's",
    ATTENTION,
);
pub(super) static STATISTICS: What = What::own(
    "attention (softmax statistics)",
    "one number per query and head, of which backward makes the probabilities again",
    ATTENTION,
);
pub(super) static ATTENTION_GRADIENT: What =
    What::own("attention (gradient)", "the gradient of queries, keys or values", ATTENTION);
pub(super) static ATTENTION_SUMS: What = What::own(
    "attention (workspace)",
    "scratch space of attention's backward: the queries' gradient summed in float32, and a number per query and head",
    Source::At("cudnn-frontend, node/scaled_dot_product_flash_attention.h"),
);
static EXCHANGED: What = What::own(
    "all-to-all",
    "what GPUs that share a sequence gave each other: all tokens of a share of the heads, or a share of the tokens of all heads",
    Source::At(
        "Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py",
    ),
);

/// Bytes of a state of the random numbers.
pub(super) const RANDOM_STATE: u64 = 16;

/// What an attention multiplies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attended {
    /// Rows of its scores.
    pub rows: u64,
    /// Floating-point operations of its two products.
    pub flops: u64,
    /// Elements of its output.
    pub output: u64,
}

impl<'a> Pass<'_, 'a> {
    /// `TEDotProductAttention.forward`: cuDNN's attention. Values lie between keys of other heads and are copied.
    pub(in super::super) fn te_core(
        &self,
        attention: &Attention,
        query: &Tensor<'a>,
        key: &Tensor<'a>,
        value: &Tensor<'a>,
    ) -> Tensor<'a> {
        let value = value.dense_copy();
        let heads = attention.heads.saturating_mul(self.batch.sequences);
        let rows = heads.saturating_mul(self.batch.length);
        let Sharing { context, rings, .. } = self.sharing();
        let keys = self.batch.length.saturating_mul(context);
        // half of the scores lie above the diagonal
        let flops = rows.saturating_mul(keys).saturating_mul(attention.head_dim).saturating_mul(2);
        let attended = Attended { rows, flops, output: query.value.numel };
        if context > 1 && rings {
            query.te_attended_in_ring([key, &value], attended, context)
        } else if context > 1 {
            query.te_attended_in_context([key, &value], attended, context)
        } else {
            query.te_attended([key, &value], attended)
        }
    }
}

impl<'m> Tensor<'m> {
    /// `FusedAttnFunc` of queries.
    pub(super) fn te_attended(&self, [key, value]: [&Tensor<'m>; 2], attended: Attended) -> Tensor<'m> {
        self.apply(|state, query| {
            state.attend(attended.flops);
            let node = state.node([query, &key.value, &value.value], move |state, node, grad| {
                attention_gradients(state, node, grad, attended).map(Some)
            });
            let rows = attended.rows;
            let output = Value { numel: attended.output, ..*query };
            let output = state.new_like(&output, query.dtype, &ATTENDED, node.output(0));
            let random = state.alloc(RANDOM_STATE, Dtype::U8, &torch::RANGE);
            let statistics = state.alloc_for(query.storage, rows, Dtype::F32, &STATISTICS);
            for saved in [query, &key.value, &value.value, &output] {
                state.save_view(node, saved);
            }
            state.save(node, statistics);
            state.save(node, random);
            state.release(statistics);
            state.release(random);
            output
        })
    }

    /// `AttnFuncWithCPAndQKVOA2A`: each GPU has its tokens of all heads before and after, and all tokens of its share of the heads
    /// in between. What is sent is laid out by GPUs first, and what came by the order of tokens.
    fn te_attended_in_context(
        &self,
        [key, value]: [&Tensor<'m>; 2],
        attended: Attended,
        context: u64,
    ) -> Tensor<'m> {
        self.apply(|state, query| {
            state.attend(attended.flops);
            let given = [*query, key.value, value.value];
            let node = state.node([query, &key.value, &value.value], move |state, node, grad| {
                let all =
                    state.of_share_of_heads(&[Value::plain(grad.storage, grad.numel, grad.dtype)], context);
                let gradients = attention_gradients(state, node, grad, attended);
                let own = state.of_own_tokens(
                    &gradients.map(|own| Value::plain(own.storage, own.numel, own.dtype)),
                    context,
                );
                gradients.into_iter().for_each(|own| state.release(own.storage));
                all.into_iter().for_each(|storage| state.release(storage));
                let mut results = gradients.map(Some);
                for (result, storage) in results.iter_mut().zip(own) {
                    *result = result.map(|gradient| Grad { storage, ..gradient });
                }
                results
            });
            let all = state.of_share_of_heads(&given, context);
            let output = state.alloc_for(query.storage, query.numel, query.dtype, &ATTENDED);
            let random = state.alloc(RANDOM_STATE, Dtype::U8, &torch::RANGE);
            let statistics = state.alloc_for(query.storage, attended.rows, Dtype::F32, &STATISTICS);
            let own = state.of_own_tokens(&[Value::plain(output, query.numel, query.dtype)], context);
            let saved = all.into_iter().chain([output, statistics, random]);
            for storage in saved {
                state.save(node, storage);
                state.release(storage);
            }
            let storage = own.into_iter().next().unwrap_or(NOTHING);
            Value { storage, ..*query }.at(node.output(0))
        })
    }
}

impl State {
    /// `flash_attn_a2a_communicate` before attention. While one tensor is on its way the next is laid out, and the one before put in order.
    fn of_share_of_heads(&mut self, given: &[Value], context: u64) -> Vec<StorageId> {
        let mut laid_out = Vec::with_capacity(given.len());
        let mut ordered = Vec::with_capacity(given.len());
        let mut on_its_way: Option<(StorageId, Value)> = None;
        for value in given.iter().map(Some).chain([None]) {
            let sent = value.map(|value| {
                laid_out.push(self.exchanged(value));
                self.send_around(Group::Data, value.bytes(), context);
                (self.exchanged(value), *value)
            });
            if let Some((received, value)) = std::mem::replace(&mut on_its_way, sent) {
                ordered.push(self.exchanged(&value));
                self.release(received);
            }
        }
        laid_out.into_iter().rev().for_each(|storage| self.release(storage));
        ordered
    }

    /// The same after attention: the next tensor is put in the order of GPUs while the one before is on its way.
    fn of_own_tokens(&mut self, given: &[Value], context: u64) -> Vec<StorageId> {
        let mut ordered = Vec::with_capacity(given.len());
        let mut own = Vec::with_capacity(given.len());
        let mut on_its_way: Option<(StorageId, Value)> = None;
        let mut next = given.iter();
        ordered.extend(next.next().map(|value| self.exchanged(value)));
        for value in given.iter().map(Some).chain([None]) {
            let sent = value.map(|value| {
                self.send_around(Group::Data, value.bytes(), context);
                (self.exchanged(value), *value)
            });
            ordered.extend(next.next().map(|value| self.exchanged(value)));
            if let Some((received, value)) = std::mem::replace(&mut on_its_way, sent) {
                own.push(self.exchanged(&value));
                self.release(received);
            }
        }
        ordered.into_iter().rev().for_each(|storage| self.release(storage));
        own
    }

    fn exchanged(&mut self, value: &Value) -> StorageId {
        self.alloc_for(value.storage, value.numel, value.dtype, &EXCHANGED)
    }
}

/// `fused_attn_bwd`: the gradients of queries, keys and values.
fn attention_gradients(state: &mut State, node: &Node, grad: &Grad, attended: Attended) -> [Grad; INPUTS] {
    // the scores once more, and four products for the gradients
    state.attend(attended.flops.saturating_mul(5) / 2);
    let gradients = node.inputs.map(|input| {
        let storage = state.alloc_for(grad.storage, input.numel, grad.dtype, &ATTENTION_GRADIENT);
        Grad::new(storage, input.numel, grad.dtype, input.layout)
    });
    let sums = node.inputs[0].numel.saturating_add(attended.rows).saturating_mul(Dtype::F32.bytes());
    state.scratch(sums, &ATTENTION_SUMS);
    gradients
}
