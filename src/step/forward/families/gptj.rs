//! models/gptj/modeling_gptj.py.

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Projection};
use crate::step::forward::inputs::Shared;
use crate::step::forward::layer::Mixed;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::matmul::{Product, Second};
use crate::step::tensor::Tensor;
use crate::step::what::{What, roles, torch};

static REPEAT: What = What::step("repeat", "repeated");

impl<'a> Pass<'_, 'a> {
    /// `GPTJAttention`: sines and cosines are gathered in every layer, attention is written out in float32.
    pub(in crate::step::forward) fn gptj_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let Projection::Separate { q, k, v } = &attention.projection else {
            return Mixed { output: x.clone(), weights: None };
        };
        let mut query = x.through(&layer.linear(q)).split_heads();
        let mut key = x.through(&layer.linear(k)).split_heads();
        let value = x.through(&layer.linear(v)).to_heads();
        let dim = attention.rotary.width(attention.head_dim).unwrap_or(attention.head_dim);
        let rows = self.architecture.max_positions.unwrap_or(self.batch.length);
        let numel = self.batch.length.saturating_mul(dim);
        let table = self.constant(rows.saturating_mul(dim), Dtype::F32, &REPEAT);
        let positions = self.constant(numel, Dtype::I64, &REPEAT);
        let angles = {
            let gathered = self.constant(numel, Dtype::F32, &torch::GATHER);
            gathered.to(key.value.dtype)
        };
        let cut = |x: &Tensor<'a>| {
            let front = x.value.numel / attention.head_dim.max(1) * dim;
            [x.slice(front), x.slice(x.value.numel.saturating_sub(front))]
        };
        let [mut k_rotated, k_rest] = cut(&key);
        let [mut q_rotated, q_rest] = cut(&query);
        k_rotated = self.rotated_by(&k_rotated, &angles, numel);
        q_rotated = self.rotated_by(&q_rotated, &angles, numel);
        key = k_rotated.cat(&k_rest);
        query = q_rotated.cat(&q_rest);
        let (key, query) = (key.heads_first(), query.heads_first());
        let mut heads = Heads { q: query, k: key, v: value };
        self.remember(&mut heads, None);
        let Heads { q: query, k: key, v: value } = heads;
        let scores = (query.value.numel / attention.head_dim.max(1)).saturating_mul(self.batch.length);
        let batch = self.batch.sequences;
        let (context, weights) = {
            let (query, key) = (query.to(Dtype::F32), key.to(Dtype::F32));
            let shape = Product { numel: scores, batch, groups: 1, second: Second::Keys };
            let mut weights = self.machine.product(&query, &key, shape, self.autocast);
            weights = weights.scale();
            if let Some(mask) = &shared.full {
                weights = weights.add_row(mask);
            }
            weights = self.probabilities(|| weights.softmax());
            weights = self.probabilities(|| weights.to(value.value.dtype));
            weights = self.probabilities(|| weights.dropout(self.attention_dropout(attention.dropout)));
            let shape = Product { numel: query.value.numel, second: Second::Plain, ..shape };
            let context = self.machine.product(&weights, &value, shape, self.autocast);
            drop((query, key));
            (context, weights)
        };
        let mut output = context.to_tokens();
        drop(context);
        output = output.through(&layer.linear(&attention.output));
        output = output.dropout(self.residual_dropout(layer));
        drop((query, key, value));
        drop((table, positions, angles));
        drop((k_rotated, k_rest, q_rotated, q_rest));
        Mixed { output, weights: Some(weights) }
    }

    /// `apply_rotary_pos_emb`: sines and cosines are repeated for each pair of neighbours first.
    fn rotated_by(&self, x: &Tensor<'a>, angles: &Tensor<'a>, numel: u64) -> Tensor<'a> {
        let repeat = || angles.fresh(numel, angles.value.dtype, &torch::REPEAT_INTERLEAVE);
        let (sin, cos) = (repeat(), repeat());
        self.machine.serving(&roles::ROTATION, || x.rotated(&cos, &sin))
    }
}
