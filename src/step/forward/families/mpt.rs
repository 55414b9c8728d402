//! models/mpt/modeling_mpt.py.

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Linear, Norm};
use crate::step::forward::inputs::{Embedded, MaskCall, Shared};
use crate::step::forward::layer::Mixed;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::matmul::{Product, Second};
use crate::step::tensor::Tensor;
use crate::step::what::{roles, torch};

impl<'a> Pass<'_, 'a> {
    /// `MptModel.forward` up to its layers: alibi over the longest sequence, a mask as booleans.
    pub(in crate::step::forward) fn mpt_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let hidden = self.embed_tokens();
        let dtype = hidden.value.dtype;
        let heads = self.attentions().next().map_or(0, |attention| attention.heads);
        let longest = self.architecture.max_positions.unwrap_or(self.batch.length);
        let alibi = {
            let range = self.constant(longest, Dtype::I32, &torch::RANGE);
            let alibi = self.constant(longest.saturating_mul(heads), Dtype::F32, &torch::ALIBI);
            drop(range);
            alibi
        };
        let embedded = Embedded { hidden, kept: true, positions: None, locals: Vec::new() };
        let call = MaskCall { eager: true, ..self.mask_call() };
        let mask = self.mask(None, dtype, call).map(|mask| {
            let bools = self.of_queries(mask.value.numel, Dtype::Bool, &torch::MASK);
            drop(mask);
            bools
        });
        let shared = Shared { full: mask, alibi: Some(alibi), ..self.no_masks(&embedded) };
        (embedded, shared)
    }

    /// `MptBlock`.
    pub(in crate::step::forward) fn mpt_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let drops = self.residual_dropout(layer);
        let mut normed = hidden.normed(&layer.norm(first));
        let Mixed { output: attended, weights } = self.mixer(layer, &normed, shared);
        let sum = {
            let dropped = attended.dropout(drops);
            dropped.add(hidden)
        };
        normed = sum.normed(&layer.norm(second));
        let output = self.machine.within("mlp", &roles::FEED_FORWARD, || {
            let (active, fed) = self.mlp_kept(layer, &normed);
            let dropped = fed.dropout(self.dropout_of_function(layer.block.residual_dropout));
            let output = dropped.add(&sum);
            drop(dropped);
            drop((active, fed));
            output
        });
        drop(normed);
        drop((sum, attended));
        self.keep_weights(weights);
        output
    }

    /// `MptAttention`.
    pub(in crate::step::forward) fn mpt_attention(
        &self,
        layer: &BoundLayer<'a>,
        (attention, qkv): (&Attention, &Linear),
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let batch = self.batch.sequences;
        let mut fused = x.through(&layer.linear(qkv));
        if attention.clipped {
            fused = fused.limited();
        }
        let third = fused.value.numel / 3;
        let [q, k, v] = fused.split([third, third, third]).map(|part| part.to_heads());
        let mut heads = Heads { q, k, v };
        self.remember(&mut heads, None);
        let Heads { q, k, v } = heads;
        let scores = (third / attention.head_dim.max(1)).saturating_mul(self.batch.length);
        let shape = Product { numel: scores, batch, groups: 1, second: Second::Keys };
        let mut products = {
            let products = self.machine.product(&q, &k, shape, self.autocast);
            products.scale()
        };
        if let Some(alibi) = &shared.alibi {
            products = products.add_row(alibi);
        }
        if let Some(mask) = &shared.full {
            products = products.masked_fill(mask);
        }
        let mut weights = self.probabilities(|| {
            let float = products.to(Dtype::F32);
            float.softmax().to(v.value.dtype)
        });
        weights = self.probabilities(|| weights.dropout(self.attention_dropout(attention.dropout)));
        let shape = Product { numel: q.value.numel, second: Second::Plain, ..shape };
        let mut context = self.machine.product(&weights, &v, shape, self.autocast);
        context = context.to_tokens();
        let output = context.through(&layer.linear(&attention.output));
        drop(fused);
        drop((q, k, v));
        drop(products);
        drop(context);
        Mixed { output, weights: Some(weights) }
    }
}
