//! models/gemma4/modeling_gemma4.py: two kinds of attention with different heads, experts beside a dense network.

use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::blocks::{Attention, FeedForward, Moe, Norm, NormKind, Projection};
use crate::step::forward::inputs::{Embedded, Seen, Shared};
use crate::step::forward::layer::Mixed;
use crate::step::forward::router::Routed;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, roles, torch};

static PLACEHOLDERS: What =
    What::own("placeholders", "which tokens stand for images or sounds, one byte each", Source::Modeling);

/// How many layers at the end hold the last one that sees a window and the last one that sees everything.
pub(in crate::step::forward) fn last_kinds(architecture: &Architecture) -> usize {
    let kinds = architecture.order.iter().rev().map(|kind| {
        let block = architecture.blocks.get(usize::from(*kind))?;
        block.mixer.attention().map(|attention| attention.window.is_some())
    });
    let kinds: Vec<Option<bool>> = kinds.collect();
    let last = |window| kinds.iter().position(|kind| *kind == Some(window)).map_or(0, |index| index + 1);
    last(true).max(last(false))
}

/// Notes which layers are the last of their kind: transformers keeps their keys and values for layers that have none of
/// their own, whether there are any or not.
pub(in crate::step::forward) fn note_last_kinds(layers: &mut [BoundLayer<'_>]) {
    for window in [true, false] {
        let is = |layer: &&mut BoundLayer<'_>| {
            layer.block.mixer.attention().is_some_and(|attention| attention.window.is_some() == window)
        };
        if let Some(layer) = layers.iter_mut().rev().find(is) {
            layer.leaves_keys = true;
        }
    }
}

/// A norm without a weight.
fn bare_norm(name: &'static str, width: u64) -> NormLayer {
    NormLayer { name, width, kind: NormKind::RmsPower, weight: None, bias: None, heads: 1, kernel: None }
}

impl<'a> Pass<'_, 'a> {
    /// `Gemma4Model.forward` and `Gemma4TextModel.forward` up to the layers.
    pub(in crate::step::forward) fn gemma4_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let mut locals = Vec::new();
        let mut ids = None;
        if self.modeling.replaces_placeholders {
            // which tokens stand for a picture, a film or a sound; their ids are replaced
            let bools = || self.of_tokens(self.batch.tokens(), Dtype::Bool, &PLACEHOLDERS);
            let longs = || self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::IDS);
            locals.extend([bools(), bools(), bools()]);
            let all = {
                let _both = bools();
                bools()
            };
            locals.push(all);
            let _copy = longs();
            let replaced = longs();
            ids = Some(replaced);
        }
        let mut hidden = self.embed_ids(ids.as_ref());
        let sighted = locals.first().and_then(|placeholders| self.gemma4_sighted(&hidden, placeholders));
        let has_pictures = sighted.is_some();
        if let Some(sighted) = sighted {
            hidden = sighted;
        }
        locals.extend(ids);
        let positions = self.generating.is_none().then(|| self.range());
        let mut embedded = Embedded { hidden, kept: true, positions, locals };
        let mut shared = if has_pictures {
            self.windowed_picture_masks(&mut embedded)
        } else {
            self.masks(&embedded, self.mask_call())
        };
        let dtype = embedded.hidden.value.dtype;
        let rotated = |window: bool| {
            let mut attentions = self.attentions();
            let attention = attentions.find(|attention| attention.window.is_some() == window)?;
            let dim = attention.rotary.width(attention.head_dim)?;
            Some(self.machine.within("rotary_emb", &roles::ROTARY, || self.rotary(dim, dtype)))
        };
        shared.local_rotary = rotated(true);
        shared.rotary = rotated(false);
        (embedded, shared)
    }

    /// `Gemma4TextDecoderLayer`.
    pub(in crate::step::forward) fn gemma4_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, after_first, second, after_second]: [&Norm; 4],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let Mixed { output: mut states, weights } = {
            let normed = hidden.normed(&layer.norm(first));
            self.mixer(layer, &normed, shared)
        };
        states = states.normed(&layer.norm(after_first));
        let residual = hidden.add(&states);
        drop(states);
        let mut states = residual.normed(&layer.norm(second));
        let mut _kept = None;
        match &layer.block.ffn {
            FeedForward::Moe(moe) => {
                states = self.machine.within("mlp", &roles::FEED_FORWARD, || match &moe.shared {
                    Some(mlp) => self.mlp(layer, mlp, &states),
                    None => states.clone(),
                });
                let (sum, kept) = self.gemma4_experts(layer, moe, [&residual, &states], weights);
                states = sum;
                _kept = Some(kept);
            }
            FeedForward::Dense(_) | FeedForward::None => {
                states = self.feed_forward(layer, &states);
                drop(weights);
            }
        }
        states = states.normed(&layer.norm(after_second));
        states = residual.add(&states);
        // `hidden_states *= self.layer_scalar`: a buffer
        let output = states.times_buffer_in_place();
        drop(states);
        drop(residual);
        output
    }

    /// The experts, which are given the states before the dense network, and the sum of both; with it what the layer keeps
    /// until it returns.
    fn gemma4_experts(
        &self,
        layer: &BoundLayer<'a>,
        moe: &Moe,
        [residual, fed]: [&Tensor<'a>; 2],
        weights: Option<Tensor<'a>>,
    ) -> (Tensor<'a>, ([Tensor<'a>; 2], Routed<'a>)) {
        let norm = |name: &str, x: &Tensor<'a>| match layer.norm_named(name) {
            Some(norm) => x.normed(&norm),
            None => x.clone(),
        };
        let own = norm("post_feedforward_layernorm_1", fed);
        let flat = residual.flattened();
        let routed = self.machine.within("router", &roles::ROUTER, || self.gemma4_router(layer, moe, &flat));
        drop(weights);
        let mut chosen = norm("pre_feedforward_layernorm_2", &flat);
        chosen = self.machine.within("experts", &roles::EXPERTS, || {
            let [first, last] = layer.experts[..] else {
                return chosen.unmodelled("experts without two layers");
            };
            self.through_wrappers([&first, &last], &chosen, |chosen, deltas| {
                self.chosen_experts(layer, moe, chosen, (&routed.weights, routed.indices.clone()), deltas)
            })
        });
        chosen = norm("post_feedforward_layernorm_2", &chosen.unflattened());
        (own.add(&chosen), ([own, chosen], routed))
    }

    /// `Gemma4TextRouter`.
    fn gemma4_router(&self, layer: &BoundLayer<'a>, moe: &Moe, x: &Tensor<'a>) -> Routed<'a> {
        let mut hidden = x.normed(&bare_norm("router.norm", moe.hidden));
        hidden = match layer.param_named("router.scale") {
            Some(scale) => hidden.times_weight(scale).scale(),
            None => hidden.scale(),
        };
        let scores = hidden.through(&layer.linear(&moe.router));
        let logits = scores.softmax_float();
        let [mut weights, indices] = logits.top(moe.top_k, moe.experts);
        let sum = weights.sum_rows(moe.top_k);
        weights = weights.divide_rows_in_place(&sum);
        drop(sum);
        if let Some(scales) = layer.param_named("router.per_expert_scale") {
            let scales = self.machine.weight(scales);
            weights = weights.mul(&scales.rows_at(&indices, indices.value.numel, 1));
        }
        drop(hidden);
        drop(scores);
        Routed { logits, weights, indices }
    }

    /// `Gemma4TextAttention`: positions come in before the heads do; values have a norm without a weight.
    pub(in crate::step::forward) fn gemma4_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let seen = Seen::by_attention(attention);
        let norms = attention.qk_norm.as_ref();
        let rotated = |mut x: Tensor<'a>, norm: Option<&Norm>| {
            if let Some(norm) = norm {
                x = x.normed(&layer.norm(norm));
            }
            if let Some((cos, sin)) = shared.rotary(seen) {
                x = self.machine.serving(&roles::ROTATION, || x.rotated(cos, sin));
            }
            x.heads_first()
        };
        let project = |spec| x.through(&layer.linear(spec)).split_heads();
        let (q, k, v) = match &attention.projection {
            Projection::Separate { q, k, v } => (q, k, Some(v)),
            Projection::KeysAreValues { q, k } => (q, k, None),
            Projection::QueriesOnly(q) | Projection::Fused(q) => {
                drop(x.unmodelled("projections that gemma4 keeps apart"));
                (q, q, None)
            }
        };
        let saved = || self.machine.with(|state| state.recomputed().len());
        let before = saved();
        let q = rotated(project(q), norms.map(|norms| &norms.q));
        let between = saved();
        let keys = project(k);
        let mut v = v.map_or_else(|| keys.clone(), project);
        let k = rotated(keys, norms.map(|norms| &norms.k));
        v = v.normed(&bare_norm("self_attn.v_norm", attention.head_dim));
        let mut heads = Heads { q, k, v: v.heads_first() };
        drop(v);
        self.remember(&mut heads, attention.window);
        if layer.leaves_keys {
            self.machine.with(|state| {
                let recomputed = state.recomputed();
                // the graph that made them stays with them
                let (first, last) = (recomputed.get(..before), recomputed.get(between..));
                let graph = first.into_iter().chain(last).flatten().copied();
                let left = graph.chain([heads.k.value.storage, heads.v.value.storage]).collect();
                state.leave(usize::from(seen == Seen::Window), left);
            });
        }
        let Mixed { mut output, weights } = self.attend(attention, &heads, shared.mask(seen), None);
        output = output.through(&layer.linear(&attention.output));
        Mixed { output, weights }
    }
}

impl State {
    /// A layer leaves tensors for later ones in the place of those that were there: they live until
    /// [`State::drop_left`], or until the first checkpointed layer lets go of its arguments.
    fn leave(&mut self, key: usize, tensors: Vec<StorageId>) {
        for storage in &tensors {
            self.retain(*storage);
            self.share(*storage);
        }
        if let Some(place) = self.graph.left.get_mut(key) {
            let old = std::mem::replace(place, tensors);
            old.into_iter().for_each(|storage| self.release(storage));
        }
    }

    /// Lets go of what layers left for later ones.
    pub fn drop_left(&mut self) {
        let left = std::mem::take(&mut self.graph.left);
        left.into_iter().flatten().for_each(|storage| self.release(storage));
    }
}
