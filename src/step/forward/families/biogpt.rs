//! models/biogpt/modeling_biogpt.py: opt's positions, bart's attention.

use crate::dtype::Dtype;
use crate::model::blocks::{FeedForward, Mlp, Norm};
use crate::step::forward::inputs::{Embedded, MaskCall, Shared};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::tensor::Tensor;
use crate::step::what::{roles, torch};

impl<'a> Pass<'_, 'a> {
    /// `BioGptModel.forward` up to its layers.
    pub(in crate::step::forward) fn biogpt_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let embeddings = &self.architecture.embeddings;
        let words = self.embed_tokens();
        let mut locals = vec![words.clone()];
        if !self.batch.mask.is_given() {
            locals.push(self.of_tokens(self.batch.tokens(), Dtype::F32, &torch::ATTENTION_MASK));
        }
        let call = MaskCall { given: true, ..self.mask_call() };
        let full = self.mask(None, words.value.dtype, call);
        let positions = self.range();
        let mut hidden = words.clone();
        if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
            let rows = self.within(table.name, &roles::EMBEDDING, || {
                let ids = positions.fresh(self.batch.length, Dtype::I64, &torch::POSITIONS);
                self.lookup(param, Some(&ids), self.batch.length, table.width)
            });
            hidden = words.add_row(&rows);
            locals.push(rows);
        }
        drop(words);
        hidden = hidden.dropout(self.dropout(embeddings.dropout));
        let shared = Shared { full, positions: Some(positions.clone()), ..Shared::none() };
        (Embedded { hidden, kept: false, positions: Some(positions), locals }, shared)
    }

    /// `BioGptDecoderLayer`.
    pub(in crate::step::forward) fn biogpt_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let drops = self.residual_dropout(layer);
        let mut _weights = None;
        let states = self.bart_part(layer, (first, true), hidden.clone(), |states| {
            let mixed = self.mixer(layer, &states, shared);
            drop(states);
            _weights = mixed.weights;
            mixed.output.dropout(drops)
        });
        self.bart_part(layer, (second, true), states, |states| {
            let FeedForward::Dense(Mlp::Plain { up, down, act }) = &layer.block.ffn else {
                return self.feed_forward(layer, &states);
            };
            let mut inner = states.through(&layer.linear(up));
            drop(states);
            inner = inner.activated(*act, &layer.params);
            inner = inner.dropout(self.dropout(self.architecture.inner_dropout));
            inner = inner.through(&layer.linear(down));
            inner.dropout(drops)
        })
    }
}
