//! models/gpt_neox/modeling_gpt_neox.py.

use crate::model::blocks::Norm;
use crate::step::forward::inputs::Shared;
use crate::step::forward::layer::Mixed;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::tensor::Tensor;

impl<'a> Pass<'_, 'a> {
    /// models/gpt_neox `GPTNeoXLayer` without parallel residual.
    pub(in crate::step::forward) fn neox_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let drops = self.residual_dropout(layer);
        let Mixed { mut output, weights: _weights } = {
            let normed = hidden.normed(&layer.norm(first));
            self.mixer(layer, &normed, shared)
        };
        output = output.dropout(drops);
        output = output.add(hidden);
        let mut fed = self.feed_forward(layer, &output.normed(&layer.norm(second)));
        fed = fed.dropout(drops);
        let sum = fed.add(&output);
        drop(output);
        drop(fed);
        sum
    }
}
