//! models/openai/modeling_openai.py: the first gpt, which writes its attention out and norms behind its halves.

use crate::model::blocks::{Attention, Linear, Norm};
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::forward::layer::Mixed;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::matmul::{Product, Second};
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, roles, torch};

static FORBIDDEN: What =
    What::own("forbidden", "the lowest number where a token may not look", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `OpenAIGPTModel.forward` up to its layers.
    pub(in crate::step::forward) fn openai_gpt_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let embeddings = &self.architecture.embeddings;
        let dtype = super::super::loader::weights_dtype(self.member);
        let mask = self.batch.mask.is_given().then(|| {
            let make = || self.of_tokens(self.batch.tokens(), dtype, &torch::MASK);
            let given = make();
            let others = make();
            drop(given);
            let mask = make();
            drop(others);
            mask
        });
        let words = self.embed_tokens();
        let mut locals = Vec::with_capacity(2);
        let mut hidden = words.clone();
        if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
            let rows = self.within(table.name, &roles::EMBEDDING, || {
                self.lookup(param, None, self.batch.length, table.width)
            });
            hidden = words.add_row(&rows);
            // no token types: 0 is added
            hidden = hidden.add_number();
            locals.push(rows);
        }
        locals.insert(0, words);
        hidden = hidden.dropout(self.dropout(embeddings.dropout));
        let shared = Shared { full: mask, ..Shared::none() };
        (Embedded { hidden, kept: false, positions: None, locals }, shared)
    }

    /// `Block`.
    pub(in crate::step::forward) fn openai_gpt_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let Mixed { output: attended, weights: _weights } = self.mixer(layer, hidden, shared);
        let normed = hidden.add(&attended).normed(&layer.norm(first));
        let fed = {
            let (_active, fed) =
                self.machine.within("mlp", &roles::FEED_FORWARD, || self.mlp_kept(layer, &normed));
            fed.dropout(self.residual_dropout(layer))
        };
        let output = normed.add(&fed).normed(&layer.norm(second));
        drop(attended);
        drop(normed);
        drop(fed);
        output
    }

    /// `Attention`: a causal mask of numbers that is a buffer.
    pub(in crate::step::forward) fn openai_gpt_attention(
        &self,
        layer: &BoundLayer<'a>,
        (attention, qkv): (&Attention, &Linear),
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let fused = x.through(&layer.linear(qkv));
        let third = fused.value.numel / 3;
        let [q, k, v] = fused.split([third, third, third]).map(|part| part.to_heads());
        let context = {
            let numel = third / attention.head_dim.max(1) * self.batch.length;
            let shape = Product { numel, batch: self.batch.sequences, groups: 1, second: Second::Keys };
            let mut weights = self.machine.product(&q, &k, shape, self.autocast);
            weights = weights.scale();
            weights = {
                let allowed = weights.times_buffer();
                let square = self.batch.length.saturating_mul(self.batch.length);
                let dtype = super::super::loader::weights_dtype(self.member);
                let others = self.of_queries(square, dtype, &torch::OTHERS);
                let forbidden = self.of_queries(square, dtype, &FORBIDDEN);
                drop(others);
                allowed.add_row(&forbidden)
            };
            if let Some(mask) = &shared.full {
                weights = weights.add_row(mask);
            }
            weights = self.probabilities(|| weights.softmax());
            weights = self.probabilities(|| weights.dropout(self.dropout(attention.dropout)));
            let shape = Product { numel: q.value.numel, second: Second::Plain, ..shape };
            self.machine.product(&weights, &v, shape, self.autocast)
        };
        let mut output = context.to_tokens();
        output = output.through(&layer.linear(&attention.output));
        output = output.dropout(self.residual_dropout(layer));
        drop(fused);
        drop((q, k, v));
        drop(context);
        Mixed { output, weights: None }
    }
}
