//! The own code of qwen 1 (modeling_qwen.py of the Hub's Qwen/Qwen-7B, run with `trust_remote_code`).
//!
//! With flash-attn installed its attention and its rotary kernel run, without it `scaled_dot_product_attention` with a mask
//! that every layer builds. The loss is computed on the logits as they are; under autocast accelerate converts the output
//! to float32 afterwards.

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, FeedForward, Mlp, Projection, Wiring};
use crate::scenario::AttentionKernel;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::forward::{BoundLayer, Pass, find};
use crate::step::heap::NOTHING;
use crate::step::ops::attention::{Arguments, Kernel, Scores, scaled_dot_product};
use crate::step::ops::loss;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{MASKS, What, roles, torch};

static INVERSE: What = What::own("inverse", "a mask turned round", MASKS);

/// Positions for which the code keeps a factor per layer (`range(1, 32768)`).
pub(in crate::step::forward) const LOG_POSITIONS: u64 = 32_767;

impl<'a> Pass<'_, 'a> {
    /// The embedding and the positions; cosines and sines are a cache.
    pub(in crate::step::forward) fn qwen_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let positions = self.range();
        let mut locals = Vec::with_capacity(1);
        if self.batch.mask.is_given() {
            locals.push(self.of_tokens(self.batch.tokens(), self.embedding_dtype(), &torch::ATTENTION_MASK));
        }
        let hidden = self.embed_tokens();
        let width = self.attentions().find_map(|attention| attention.rotary.width(attention.head_dim));
        let cached =
            |numel| Tensor { machine: self.machine, value: Value::plain(NOTHING, numel, Dtype::F32) };
        let rotary = width.map(|width| {
            let numel = self.batch.length.saturating_mul(width);
            (cached(numel), cached(numel))
        });
        let embedded = Embedded { hidden, kept: true, positions: Some(positions), locals };
        (self.drop_out(embedded), Shared { rotary, ..Shared::none() })
    }

    fn embedding_dtype(&self) -> Dtype {
        self.machine.with(|state| state.params.get(self.outside.tokens).dtype)
    }

    /// `QWenBlock.forward`.
    pub(in crate::step::forward) fn qwen_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let (Wiring::PreNorm { attention: first, mlp: second }, Some(attention)) =
            (&layer.block.wiring, layer.block.mixer.attention())
        else {
            return hidden.unmodelled("layers that qwen 1 has nowhere");
        };
        let mut normed = hidden.normed(&layer.norm(first));
        let attended =
            self.within("attn", &roles::ATTENTION, || self.qwen_attention(layer, attention, &normed, shared));
        let sum = attended.add(hidden);
        normed = sum.normed(&layer.norm(second));
        let fed = self.within("mlp", &roles::FEED_FORWARD, || self.qwen_mlp(layer, &normed));
        let output = sum.add(&fed);
        drop(fed);
        drop(sum);
        drop(attended);
        drop(normed);
        output
    }

    fn qwen_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let Projection::Fused(spec) = &attention.projection else {
            return x.unmodelled("projections that qwen 1 has as one");
        };
        let joint = x.through(&layer.linear(spec));
        let each = joint.value.numel / 3;
        let [mut q, mut k, v] = joint.split([each; 3]).map(|part| part.split_heads());
        let flash = self.member.attention == AttentionKernel::Flash;
        if let Some((cos, sin)) = &shared.rotary {
            let turn = |x: &Tensor<'a>| {
                self.machine.serving(&roles::ROTATION, || {
                    if flash { x.rotated_by_kernel() } else { x.rotated_in_python(cos, sin) }
                })
            };
            q = turn(&q);
            k = turn(&k);
        }
        let heads = [&q, &k, &v].map(Tensor::heads_first);
        let mask = if flash { None } else { Some(self.qwen_mask(&heads[0])) };
        let attended = {
            let [q, k, v] = &heads;
            let arguments = Arguments { q, k, v, mask: mask.as_ref(), causal: flash, dropout: false };
            let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
            let kernel = if flash { Kernel::Flash } else { self.kernel(scores, &arguments) };
            scaled_dot_product(Scores { kernel, ..scores }, &arguments).to_tokens()
        };
        let output = attended.through(&layer.linear(&attention.output));
        drop(attended);
        drop(mask);
        drop(heads);
        drop((q, k, v));
        drop(joint);
        output
    }

    /// The causal mask, filled into the batch's own where there is one.
    fn qwen_mask(&self, q: &Tensor<'a>) -> Tensor<'a> {
        let square = self.batch.length.saturating_mul(self.batch.length);
        let causal = {
            let _ones = self.of_queries(square, Dtype::Bool, &torch::ONES);
            self.of_queries(square, Dtype::Bool, &torch::CAUSAL_MASK)
        };
        if !self.batch.mask.is_given() {
            return causal;
        }
        let _inverse = self.of_queries(square, Dtype::Bool, &INVERSE);
        self.of_queries(square.saturating_mul(self.batch.sequences), q.value.dtype, &torch::ADDITIVE_MASK)
    }

    fn qwen_mlp(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        let FeedForward::Dense(Mlp::Gated { gate, up, down, act }) = &layer.block.ffn else {
            return x.unmodelled("a feed-forward network that qwen 1 has nowhere");
        };
        let first = x.through(&layer.linear(up));
        let second = x.through(&layer.linear(gate));
        let product = {
            let active = second.activated(*act, &layer.params);
            first.mul(&active)
        };
        let output = product.through(&layer.linear(down));
        drop(product);
        drop(second);
        drop(first);
        output
    }

    /// `QWenLMHeadModel.forward` from the last hidden state on.
    pub(in crate::step::forward) fn qwen_head(&self, hidden: Tensor<'a>) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let head = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let logits = hidden.through(&head).named_logits();
        let loss = {
            let row = self.batch.sequences.saturating_mul(head.shape.output);
            let shifted = logits.slice(logits.value.numel.saturating_sub(row));
            // the slice of one sequence is contiguous
            let shifted =
                if self.batch.sequences > 1 { shifted.copied_rows(head.shape.output) } else { shifted };
            let (_padded, labels) =
                loss::shifted_labels(self.machine, self.batch.sequences, self.batch.length);
            shifted.cross_entropy(&labels)
        };
        drop(hidden);
        match self.autocast {
            None => (loss, vec![logits]),
            // accelerate's `convert_outputs_to_fp32`
            Some(_) => {
                let float = logits.to(Dtype::F32);
                (loss, vec![float])
            }
        }
    }
}

impl<'m> Tensor<'m> {
    /// flash-attn's rotary kernel in float32.
    fn rotated_by_kernel(&self) -> Tensor<'m> {
        let float = self.to(Dtype::F32);
        let rotated = float.negate();
        drop(float);
        rotated.to(self.value.dtype)
    }

    /// `t * cos + rotate_half(t) * sin` in float32 and a `cat` with what is not rotated.
    fn rotated_in_python(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let float = self.to(Dtype::F32);
        let front = float.slice(float.value.numel);
        let rest = float.slice(0);
        let rotated = front.rotated(cos, sin);
        let whole = rotated.cat(&rest);
        whole.to(self.value.dtype)
    }
}
