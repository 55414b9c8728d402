//! Training in fewer bits, or as if.

use super::choices::{Float8, Float8Layers, Qat, QatGroup, QatLayers};

/// Training with products in 8-bit floats, as torchao's `Float8LinearConfig` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float8Training {
    /// Of what the casts have scales.
    pub recipe: Float8,
    /// Which layers.
    pub layers: Float8Layers,
    /// Whether operands are padded along the dimension that is summed over (`pad_inner_dim`).
    pub pads: bool,
    /// Whether the weights are wrapped so that FSDP2 gathers them in 8 bits (`enable_fsdp_float8_all_gather`).
    pub gathers: bool,
}

impl Float8Training {
    /// None.
    pub const OFF: Float8Training =
        Float8Training { recipe: Float8::Off, layers: Float8Layers::Inner, pads: false, gathers: false };

    /// Whether a product's rows may be of any number: their gradients are not summed over in 8 bits, or what is summed over is padded.
    pub const fn takes_any_rows(self) -> bool {
        match self.recipe {
            Float8::Tensorwise | Float8::Rowwise => self.pads,
            Float8::RowwiseWithGwHp | Float8::Off => true,
        }
    }

    /// Whether any product is in 8 bits.
    pub const fn is_on(self) -> bool {
        !matches!(self.recipe, Float8::Off)
    }
}

/// Quantisation-aware training, as torchao's `QATConfig` prepares a model for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QatTraining {
    /// To what is rounded.
    pub scheme: Qat,
    /// Weights of a row that share a scale.
    pub group: QatGroup,
    /// Which layers.
    pub layers: QatLayers,
}

impl QatTraining {
    /// None.
    pub const OFF: QatTraining =
        QatTraining { scheme: Qat::Off, group: QatGroup::Of128, layers: QatLayers::All };

    /// Whether anything is rounded.
    pub const fn is_on(self) -> bool {
        !matches!(self.scheme, Qat::Off)
    }
}
