//! Latent attention: low-rank queries, keys and values, the projections up from them with a norm before each, and the positions
//! of queries and keys as one kernel each, that of the queries in place.
//!
//! Source: megatron/core/transformer/multi_latent_attention.py, megatron/core/fusions/fused_mla_yarn_rope_apply.py and
//! megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py of Megatron-core 0.16.1.

use super::attention::Attended;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::blocks::{Latent, LatentQuery};
use crate::scenario::Checkpointing;
use crate::step::autograd::{Results, fresh, only, share};
use crate::step::forward::stacks::megatron::Shared;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::NOTHING;
use crate::step::parallel::{Parallel, TunedKernel};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles};

const POSITIONS: Source = Source::At("Megatron-core, megatron/core/fusions/fused_mla_yarn_rope_apply.py");
const TABLES: Source =
    Source::At("Megatron-core, megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py");

static KEYS: What = What::own("keys", "each head's keys with the shared part that has a position", POSITIONS);
static VALUES: What = What::own("values", "each head's values, in a tensor of their own", POSITIONS);
static UNTURNED: What = What::own(
    "rotary positions (gradient)",
    "the gradient of what keys and values were made of, or of the keys' shared part",
    POSITIONS,
);
static ANGLES: What =
    What::own("rotary embedding", "the angles of all positions, which a cache of the function keeps", TABLES);
static TABLE: What = What::own(
    "cosines and sines",
    "of all positions, which the attention of each layer keeps for itself from its first forward pass on",
    TABLES,
);

/// How many angles the function that makes them keeps (`lru_cache(maxsize=32)`), whichever layers asked for them.
const CACHED_ANGLES: usize = 32;

impl<'a> Pass<'_, 'a> {
    /// `MultiLatentAttention.forward`.
    pub(super) fn te_latent(
        &self,
        layer: &BoundLayer<'a>,
        latent: &Latent,
        x: &Tensor<'a>,
        shared: &Shared,
    ) -> Tensor<'a> {
        let sharing = self.sharing();
        self.keep_tables(layer.number, latent);
        let low_rank = match &latent.query {
            LatentQuery::LowRank { a, .. } => x.te_through(&layer.linear(a), sharing),
            LatentQuery::Full(_) => x.clone(),
        };
        let combined = x.te_through(&layer.linear(&latent.kv_a), sharing);
        let tokens = self.batch.tokens();
        let of_tokens = |width: u64| tokens.saturating_mul(width);
        let [compressed, position] = combined.split([of_tokens(latent.kv_rank), of_tokens(latent.rope_dim)]);
        let query = match &latent.query {
            LatentQuery::LowRank { norm, b, .. } => {
                low_rank.te_normed_through(&layer.norm(norm), &layer.linear(b), sharing)
            }
            LatentQuery::Full(linear) => low_rank.te_through(&layer.linear(linear), sharing),
        };
        drop(low_rank);
        let joint = {
            // the norm asks for a tensor that lies by itself
            let compressed = compressed.dense_copy();
            compressed.te_normed_through(&layer.norm(&latent.kv_norm), &layer.linear(&latent.kv_b), sharing)
        };
        let roped = query.turned_in_place();
        let [key, value] = joint.keys_and_values(&position, latent, tokens);
        drop((query, joint));
        let context = if self.checkpointing() == Checkpointing::Selective {
            let number = {
                let mut attended = shared.attended.borrow_mut();
                attended.push([key.value, value.value]);
                attended.len() - 1
            };
            let held = [key.value.storage, value.value.storage, NOTHING, NOTHING, NOTHING];
            self.machine
                .checkpointed(number, &roped, held, || self.te_latent_core(latent, &roped, [&key, &value]))
        } else {
            self.te_latent_core(latent, &roped, [&key, &value])
        };
        let output = context.te_through(&layer.linear(&latent.output), sharing);
        drop((roped, key, value, context));
        drop((compressed, position, combined));
        output
    }

    /// `TEDotProductAttention.forward` over heads whose values are narrower than their keys.
    pub(in super::super) fn te_latent_core(
        &self,
        latent: &Latent,
        query: &Tensor<'a>,
        [key, value]: [&Tensor<'a>; 2],
    ) -> Tensor<'a> {
        let rows = self.batch.tokens().saturating_mul(latent.heads);
        // half of the scores lie above the diagonal
        let widths = latent.nope_dim.saturating_add(latent.rope_dim).saturating_add(latent.value_dim);
        let flops = rows.saturating_mul(self.batch.length).saturating_mul(widths);
        query.te_attended([key, value], Attended { rows, flops, output: value.value.numel })
    }

    /// The tables of a layer's positions.
    fn keep_tables(&self, layer: usize, latent: &Latent) {
        let numel = self.batch.length.saturating_mul(latent.rope_dim);
        self.machine.with(|state| {
            let Parallel::Megatron(engine) = &mut state.parallel else { return };
            if std::mem::replace(&mut engine.held(layer).has_tables, true) {
                return;
            }
            let known = engine.held.iter().filter(|held| held.has_tables).count();
            let mut keep = |dtype: Dtype, what| {
                let bytes = numel.saturating_mul(dtype.bytes());
                state.persistent(bytes, dtype, 1, Category::Activations, what)
            };
            if known <= CACHED_ANGLES {
                keep(Dtype::F32, &ANGLES);
            }
            for _ in ["cosines", "sines"] {
                keep(Dtype::Bf16, &TABLE);
            }
        });
    }
}

impl<'m> Tensor<'m> {
    /// `ApplyMLARotaryEmbQ`: turned where it lies, and so is its gradient.
    fn turned_in_place(&self) -> Tensor<'m> {
        self.machine.serving(&roles::ROTATION, || {
            self.apply(|state, x| {
                let node = state.node([x], |state, _, grad| {
                    let bytes = grad.numel.saturating_mul(grad.dtype.bytes());
                    state.tune(TunedKernel::QueryPositionsBackward, bytes);
                    only(share(state, grad))
                });
                state.tune(TunedKernel::QueryPositions, x.bytes());
                state.save(node, NOTHING);
                state.save(node, NOTHING);
                state.retain(x.storage);
                x.at(node.output(0))
            })
        })
    }

    /// `ApplyMLARotaryEmbKV`: keeps nothing but the angles.
    fn keys_and_values(&self, position: &Tensor<'m>, latent: &Latent, tokens: u64) -> [Tensor<'m>; 2] {
        let (joint, position) = (self.value, position.value);
        let of_heads = |width: u64| tokens.saturating_mul(latent.heads).saturating_mul(width);
        let keys = of_heads(latent.nope_dim.saturating_add(latent.rope_dim));
        let values = of_heads(latent.value_dim);
        self.machine.serving(&roles::ROTATION, || {
            self.machine.tensors(|state| {
                let node = state.split_node(2, [&joint, &position], |state, node, grads| {
                    let mut results: Results = Default::default();
                    let Some(grad) = grads.iter().flatten().next().copied() else { return results };
                    for (result, input) in results.iter_mut().zip(node.inputs).take(2) {
                        *result = Some(fresh(state, &grad, (input.numel, Layout::Tokens), &UNTURNED));
                    }
                    state.tune(TunedKernel::KeysAndValuesBackward, 0);
                    results
                });
                state.save(node, NOTHING);
                state.save(node, NOTHING);
                let mut make = |numel: u64, what, output| {
                    let storage = state.alloc_for(joint.storage, numel, joint.dtype, what);
                    Value::plain(storage, numel, joint.dtype).at(node.output(output))
                };
                let made = [make(keys, &KEYS, 0), make(values, &VALUES, 1)];
                state.tune(TunedKernel::KeysAndValues, 0);
                made
            })
        })
    }
}
