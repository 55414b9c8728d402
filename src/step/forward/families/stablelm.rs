//! models/stablelm/modeling_stablelm.py.

use crate::model::blocks::Norm;
use crate::step::forward::inputs::Shared;
use crate::step::forward::layer::Mixed;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::tensor::Tensor;

impl<'a> Pass<'_, 'a> {
    /// models/stablelm `StableLmDecoderLayer`: what it gives attention and gets from it lives to the end.
    pub(in crate::step::forward) fn stablelm_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let normed = hidden.normed(&layer.norm(first));
        let Mixed { output: attended, weights: _weights } = self.mixer(layer, &normed, shared);
        let sum = hidden.add(&attended);
        let mut fed = self.feed_forward(layer, &sum.normed(&layer.norm(second)));
        fed = fed.dropout(self.residual_dropout(layer));
        let output = sum.add(&fed);
        drop(normed);
        drop(sum);
        drop(attended);
        drop(fed);
        output
    }
}
