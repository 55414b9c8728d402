//! models/falcon/modeling_falcon.py.

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, AttentionCode, Linear, Norm, Rotary};
use crate::step::forward::inputs::{Embedded, MaskCall, Shared};
use crate::step::forward::layer::Mixed;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::attention::{Arguments, Kernel};
use crate::step::ops::matmul::{Product, Second};
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, roles, torch};

static ALIBI_MASK: What = What::own(
    "alibi mask",
    "a bias of the scores by distance with the mask in it, which all layers are given",
    Source::Modeling,
);

impl<'a> Pass<'_, 'a> {
    /// `FalconModel.forward` up to its layers: a mask is always built.
    pub(in crate::step::forward) fn falcon_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let hidden = self.embed_tokens();
        let dtype = hidden.value.dtype;
        let alibi = self.attentions().any(|attention| attention.rotary == Rotary::Alibi).then(|| {
            let given = self.batch.mask.is_given();
            let ones =
                (!given).then(|| self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::MASK_OF_ONES));
            (self.alibi(Dtype::I64, Dtype::Bf16, dtype), ones)
        });
        let (alibi, ones) = alibi.unzip();
        let locals = ones.flatten().into_iter().collect();
        let positions = self.generating.is_none().then(|| self.range());
        let embedded = Embedded { hidden, kept: true, positions, locals };
        let call = MaskCall { may_skip: false, ..self.mask_call() };
        let mut shared = self.shared(&embedded, call);
        if let Some(alibi) = &alibi {
            shared.full = shared.full.take().map(|mask| self.alibi_mask(alibi, mask));
            // the rotary embedding is made and not used
            let dim = self.attentions().next().map_or(0, |attention| attention.head_dim);
            shared.rotary = Some(self.within("rotary_emb", &roles::ROTARY, || self.rotary(dim, dtype)));
        }
        (embedded, Shared { alibi, ..shared })
    }

    /// models/falcon `FalconDecoderLayer` without parallel attention.
    pub(in crate::step::forward) fn falcon_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let drops = self.residual_dropout(layer);
        let normed = hidden.normed(&layer.norm(first));
        let Mixed { output: mixed, weights } = self.mixer(layer, &normed, shared);
        let residual = mixed.dropout_add(hidden, drops);
        let own = residual.normed(&layer.norm(second));
        let fed = self.feed_forward(layer, &own);
        let output = fed.dropout_add(&residual, drops);
        drop(residual);
        drop(normed);
        drop(mixed);
        drop(own);
        drop(fed);
        self.keep_weights(weights);
        output
    }

    /// Alibi's bias with the mask's zeros: one for every head.
    fn alibi_mask(&self, alibi: &Tensor<'a>, mask: Tensor<'a>) -> Tensor<'a> {
        let dtype = alibi.value.dtype;
        let square = self.batch.length.saturating_mul(self.batch.length);
        let mask = if self.is_eager() {
            mask
        } else {
            let additive =
                self.of_queries(square.saturating_mul(self.batch.sequences), dtype, &torch::ADDITIVE_MASK);
            drop(mask);
            additive
        };
        let scaled = self.constant(alibi.value.numel, dtype, &torch::ALIBI);
        let masked = self.of_queries(mask.value.numel, Dtype::Bool, &torch::MASKED);
        let numel = alibi.value.numel.saturating_mul(self.batch.length);
        let result = self.constant(numel, dtype, &ALIBI_MASK);
        drop(mask);
        drop(masked);
        drop(scaled);
        result
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
            let (q, k) = self
                .machine
                .serving(&roles::ROTATION, || (heads.q.rotated(cos, sin), heads.k.rotated(cos, sin)));
            heads.q = q;
            heads.k = k;
        }
        self.remember(&mut heads, None);
        let Heads { q, k, v } = &heads;
        let kv_heads = match attention.code {
            AttentionCode::FalconGrouped => attention.heads,
            _ => attention.kv_heads,
        };
        let mask = shared.full.as_ref();
        let (mut mixed, _kept) = if self.is_eager() {
            let scores = self.scores(attention, Kernel::Eager, kv_heads);
            let batch = self.batch.sequences;
            let groups = attention.heads / kv_heads;
            let product = Product { numel: scores.numel(), batch, groups, second: Second::Keys };
            let products = {
                let products = self.machine.product(q, k, product, self.autocast);
                if shared.alibi.is_some() { products } else { products.scale_in_place() }
            };
            let scores = shared.alibi.as_ref().map(|_| products.to(Dtype::F32));
            let logits = match (&shared.alibi, &scores) {
                (Some(alibi), Some(scores)) => scores.add_row(alibi).scale_in_place(),
                _ => products.clone(),
            };
            let weights = {
                let masked = mask.map_or_else(|| logits.clone(), |mask| logits.add_row(mask));
                self.probabilities(|| masked.to(x.value.dtype).softmax())
            };
            // with alibi each of them has a name of its own
            let kept = scores.map(|scores| (products.clone(), scores, logits.clone()));
            drop(products);
            drop(logits);
            let product = Product { numel: q.value.numel, second: Second::Plain, ..product };
            let output = self.machine.product(&weights, v, product, self.autocast);
            (Mixed { output, weights: Some(weights) }, kept)
        } else {
            let arguments = Arguments { q, k, v, mask, causal: true, dropout: false };
            let output = self.scaled_dot_product(self.scores(attention, Kernel::Eager, kv_heads), &arguments);
            (Mixed { output, weights: None }, None)
        };
        mixed.output = mixed.output.to_tokens();
        mixed.output = mixed.output.through(&layer.linear(&attention.output));
        drop(fused);
        drop(heads);
        mixed
    }

    /// `_split_heads`.
    fn falcon_heads(&self, attention: &Attention, fused: &Tensor<'a>) -> Heads<'a> {
        let tokens = self.batch.tokens();
        let width = |heads: u64| tokens.saturating_mul(heads).saturating_mul(attention.head_dim);
        let (q, kv) = (width(attention.heads), width(attention.kv_heads));
        let view = fused.split_heads();
        let grouped = attention.code == AttentionCode::FalconGrouped;
        if attention.kv_heads == attention.heads && !grouped {
            let [q, k, v] = [(); 3].map(|()| view.slice(q).heads_first());
            return Heads { q, k, v };
        }
        let query = view.slice(q);
        let key = view.picked(kv);
        let value = view.picked(kv);
        if !grouped {
            return Heads { q: query.heads_first(), k: key.heads_first(), v: value.heads_first() };
        }
        // the newer architecture: keys and values are copied for every head of their group
        let groups = attention.heads / attention.kv_heads;
        if groups == 1 {
            return Heads { q: query.heads_first(), k: key.heads_first(), v: value.heads_first() };
        }
        if attention.kv_heads == 1 {
            // one group: `flatten` has nothing to copy
            let [key, value] = [key, value].map(|one| one.expanded_to(q).heads_first());
            return Heads { q: query.heads_first(), k: key, v: value };
        }
        let query = query.copied();
        let key = key.broadcast(groups);
        let value = value.broadcast(groups);
        Heads { q: query.heads_first(), k: key.heads_first(), v: value.heads_first() }
    }
}
