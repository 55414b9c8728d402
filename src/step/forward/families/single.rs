//! Layers of one half: a state space, an attention, a feed-forward network or a mixture of experts behind one norm.
//!
//! Source: models/mamba `MambaBlock`, models/mamba2 `Mamba2Block`, models/nemotron_h `NemotronHBlock`.

use super::super::{BoundLayer, Pass, Shared};
use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Mixer, Norm, Wiring};
use crate::step::tensor::Tensor;

/// Whether the layers' residual is float32 whatever the weights are.
pub(in crate::step::forward) fn has_wide_residual(architecture: &Architecture) -> bool {
    architecture.blocks.iter().any(|block| matches!(block.wiring, Wiring::Single { wide: true, .. }))
}

/// Whether the model's forward itself makes its logits float32: those whose layers have one half do.
pub(in crate::step::forward) fn returns_float_logits(architecture: &Architecture) -> bool {
    architecture.blocks.iter().any(|block| matches!(block.wiring, Wiring::Single { .. }))
}

impl<'a> Pass<'_, 'a> {
    /// `residual + mixer(norm(hidden))`; a `wide` residual is float32.
    pub(in crate::step::forward) fn single_layer(
        &self,
        layer: &BoundLayer<'a>,
        (norm, wide): (&Norm, bool),
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let bound = layer.norm(norm);
        let normed = {
            let weight = bound.weight.map(|weight| self.machine.with(|state| state.params.get(weight).dtype));
            hidden.to(weight.unwrap_or(hidden.value.dtype)).normed(&bound)
        };
        let residual = if wide { hidden.to(Dtype::F32) } else { hidden.clone() };
        let (output, _weights) = match (&layer.block.mixer, &layer.block.ffn) {
            (Mixer::None, FeedForward::Dense(_) | FeedForward::Moe(_)) => {
                (self.feed_forward(layer, &normed), None)
            }
            _ => {
                let mixed = self.mixer(layer, &normed, shared);
                (mixed.output, mixed.weights)
            }
        };
        drop(normed);
        let sum = residual.add(&output);
        drop(output);
        drop(residual);
        sum
    }
}
