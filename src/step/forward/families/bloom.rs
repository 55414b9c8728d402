//! models/bloom/modeling_bloom.py.

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Linear, Norm, Projection};
use crate::step::forward::inputs::{Embedded, MaskCall, Shared};
use crate::step::forward::layer::Mixed;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::attention::Kernel;
use crate::step::ops::matmul::{Product, Second};
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, roles, torch};

static DISTANCES: What = What::own(
    "distances",
    "each token's distance from the first, of which the bias is made",
    Source::Modeling,
);

impl<'a> Pass<'_, 'a> {
    /// `BloomModel.forward` up to its layers: embedding, its norm, a mask of ones, alibi.
    pub(in crate::step::forward) fn bloom_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let looked_up = self.embed_tokens();
        let hidden = self.embedding_norm(&looked_up);
        let dtype = hidden.value.dtype;
        let ones = self.of_tokens(self.batch.tokens(), Dtype::F32, &torch::MASK_OF_ONES);
        let alibi = self.alibi(Dtype::F32, Dtype::F32, dtype);
        let call = MaskCall { given: true, eager: true, ..self.mask_call() };
        let full = self.mask(None, looked_up.value.dtype, call);
        let shared = Shared { full, alibi: Some(alibi), ..Shared::none() };
        (Embedded { hidden, kept: false, positions: None, locals: vec![ones, looked_up] }, shared)
    }

    /// models/bloom `BloomBlock`: both halves add their residual themselves.
    pub(in crate::step::forward) fn bloom_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let drops = self.residual_dropout(layer);
        let normed = hidden.normed(&layer.norm(first));
        let fused = layer.block.mixer.attention().and_then(|attention| match &attention.projection {
            Projection::Fused(qkv) => Some((attention, qkv)),
            Projection::Separate { .. } | Projection::KeysAreValues { .. } | Projection::QueriesOnly(_) => {
                None
            }
        });
        let Mixed { output: attended, weights } = match fused {
            Some(fused) => self.machine.within("self_attn", &roles::ATTENTION, || {
                self.bloom_attention(layer, fused, &normed, hidden, shared)
            }),
            None => self.mixer(layer, &normed, shared),
        };
        let next = attended.normed(&layer.norm(second));
        drop(normed);
        let output = {
            let (_active, fed) =
                self.machine.within("mlp", &roles::FEED_FORWARD, || self.mlp_kept(layer, &next));
            fed.dropout_add(&attended, drops)
        };
        drop(next);
        drop(attended);
        self.keep_weights(weights);
        output
    }

    /// `build_alibi_tensor`: slopes of the heads times distances, computed in `own` and cast to `dtype`; `mask` is the
    /// mask's element type.
    pub(in crate::step::forward) fn alibi(&self, mask: Dtype, own: Dtype, dtype: Dtype) -> Tensor<'a> {
        let tokens = self.batch.tokens();
        let heads = self.attentions().next().map_or(0, |attention| attention.heads);
        let distances = {
            let shifted = {
                let _summed = self.of_tokens(tokens, mask, &torch::POSITIONS);
                self.of_tokens(tokens, mask, &torch::POSITIONS)
            };
            let distances = self.of_tokens(tokens, mask, &DISTANCES);
            drop(shifted);
            distances
        };
        let alibi = self.constant(tokens.saturating_mul(heads), own, &torch::ALIBI);
        let cast = alibi.to(dtype);
        drop(distances);
        cast
    }

    /// `BloomAttention`, the residual sum included.
    fn bloom_attention(
        &self,
        layer: &BoundLayer<'a>,
        (attention, qkv): (&Attention, &Linear),
        x: &Tensor<'a>,
        residual: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let machine = self.machine;
        let batch = self.batch.sequences;
        let fused = x.through(&layer.linear(qkv));
        let third = fused.value.numel / 3;
        let [q, k, v] = [(); 3].map(|()| fused.slice(third).heads_first());
        let q = q.of_heads(attention.heads);
        // a cache copies its keys and values
        let [k, v] = [k, v].map(|x| if self.fills_cache { x } else { x.of_heads(attention.heads) });
        let q = q.dense_heads(batch);
        let k = k.dense_heads(batch);
        let v = v.dense_heads(batch);
        let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
        let products = machine.biased_product(shared.alibi.as_ref(), &q, &k, scores.numel());
        let weights = match &shared.full {
            Some(mask) => products.add_row(mask),
            None => products.clone(),
        };
        let mut probabilities = self.probabilities(|| {
            let float = weights.softmax_float();
            float.to(q.value.dtype)
        });
        probabilities =
            self.probabilities(|| probabilities.dropout(self.attention_dropout(attention.dropout)));
        let shape = Product { numel: q.value.numel, batch, groups: 1, second: Second::Plain };
        let mut context = machine.product(&probabilities, &v, shape, self.autocast);
        context = context.to_tokens();
        let mut output = context.through(&layer.linear(&attention.output));
        output = output.dropout_add(residual, self.residual_dropout(layer));
        drop(fused);
        drop((q, k, v));
        drop(products);
        drop(weights);
        drop(context);
        Mixed { output, weights: Some(probabilities) }
    }
}
