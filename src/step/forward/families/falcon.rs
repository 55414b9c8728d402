//! models/falcon/modeling_falcon.py.

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Linear, Rotary};
use crate::scenario::Mask;
use crate::step::attention::{Arguments, Kernel, Product, scaled_dot_product};
use crate::step::forward::attention::Heads;
use crate::step::forward::inputs::{Embedded, MaskCall, Shared};
use crate::step::forward::layer::Mixed;
use crate::step::forward::{BoundLayer, Model};
use crate::step::tensor::Tensor;

impl<'a> Model<'a> {
    /// `FalconModel.forward` up to its layers: a mask is always built.
    pub(in crate::step::forward) fn falcon_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let hidden = self.embed_tokens();
        let dtype = hidden.value.dtype;
        let alibi = self.attentions().any(|attention| attention.rotary == Rotary::Alibi).then(|| {
            let given = self.scenario.mask != Mask::None;
            let _mask = (!given).then(|| self.constant(self.scenario.tokens(), Dtype::I64, "mask of ones"));
            self.alibi(Dtype::I64, dtype)
        });
        let embedded = Embedded { hidden, kept: true, positions: Some(self.range()), locals: Vec::new() };
        let call = MaskCall { may_skip: false, ..self.mask_call() };
        let shared = self.shared(&embedded, call);
        (embedded, Shared { alibi, ..shared })
    }

    /// `FalconAttention`.
    pub(in crate::step::forward) fn falcon_attention(
        &self,
        layer: &BoundLayer<'a>,
        (attention, qkv): (&Attention, &Linear),
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let fused = x.through(&layer.linear(qkv));
        let mut heads = self.falcon_heads(attention, &fused);
        if let (Some((cos, sin)), None) = (&shared.rotary, &shared.alibi) {
            let (q, k) = (heads.q.rotated(cos, sin), heads.k.rotated(cos, sin));
            heads.q = q;
            heads.k = k;
        }
        let Heads { q, k, v } = &heads;
        let kv_heads = if attention.kv_heads == 1 { 1 } else { attention.heads };
        let mask = shared.full.as_ref();
        let mut mixed = if self.is_eager() {
            let scores = self.scores(attention, Kernel::Eager, kv_heads);
            let batch = self.scenario.batch;
            let groups = attention.heads / kv_heads;
            let product = Product { numel: scores.numel(), batch, groups, transposed: true };
            let products = self.machine.product(q, k, product, self.autocast);
            let products = products.scale_in_place();
            let masked = match mask {
                Some(mask) => products.add_row(mask),
                None => products.clone(),
            };
            drop(products);
            let weights = masked.softmax();
            drop(masked);
            let product = Product { numel: q.value.numel, transposed: false, ..product };
            let output = self.machine.product(&weights, v, product, self.autocast);
            Mixed { output, weights: Some(weights) }
        } else {
            let dtype = self.autocast.unwrap_or(q.value.dtype);
            let kernel = self.kernel(dtype, mask.is_some(), kv_heads != attention.heads, attention.head_dim);
            let arguments = Arguments { q, k, v, mask, causal: true, dropout: false };
            let output = scaled_dot_product(self.scores(attention, kernel, kv_heads), &arguments);
            Mixed { output, weights: None }
        };
        mixed.output = mixed.output.to_tokens();
        mixed.output = mixed.output.through(&layer.linear(&attention.output));
        mixed
    }

    /// `_split_heads`.
    fn falcon_heads(&self, attention: &Attention, fused: &Tensor<'a>) -> Heads<'a> {
        let tokens = self.scenario.tokens();
        let width = |heads: u64| tokens.saturating_mul(heads).saturating_mul(attention.head_dim);
        let (q, kv) = (width(attention.heads), width(attention.kv_heads));
        let view = fused.split_heads();
        if attention.kv_heads == attention.heads {
            let [q, k, v] = [(); 3].map(|()| view.slice(q).heads_first());
            return Heads { q, k, v };
        }
        let query = view.slice(q);
        let key = view.picked(kv);
        let value = view.picked(kv);
        if attention.kv_heads == 1 {
            return Heads { q: query.heads_first(), k: key.heads_first(), v: value.heads_first() };
        }
        // the newer architecture: keys and values are copied for every head of their group
        let groups = attention.heads / attention.kv_heads;
        let query = query.copied();
        let key = key.broadcast(groups);
        let value = value.broadcast(groups);
        Heads { q: query.heads_first(), k: key.heads_first(), v: value.heads_first() }
    }
}
