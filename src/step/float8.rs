//! How a linear layer multiplies in 8-bit floats (torchao's `Float8LinearConfig`).

pub(super) mod casts;
pub(super) mod stream_k;

use crate::scenario::{Float8, Float8Training};

/// How a layer's products are in 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    pub scales: Scales,
    /// Whether both operands are padded along the dimension that is summed over (`pad_inner_dim`).
    pub pads: bool,
    /// Whether the weight comes in 8 bits: FSDP2 gathers it so.
    pub gathers: bool,
}

/// Of what the casts have a scale each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scales {
    /// Of a whole tensor.
    Tensor,
    /// Of each row or column.
    Row,
    /// The same, the weight's gradient being multiplied as it is.
    RowBesideWeightGradient,
}

impl Recipe {
    /// The recipe of that training, if it is in 8 bits (`Float8LinearConfig.from_recipe_name`), of a model that FSDP2 may shard.
    pub fn of(float8: Float8Training, is_sharded: bool) -> Option<Recipe> {
        let scales = match float8.recipe {
            Float8::Off => return None,
            Float8::Tensorwise => Scales::Tensor,
            Float8::Rowwise => Scales::Row,
            Float8::RowwiseWithGwHp => Scales::RowBesideWeightGradient,
        };
        Some(Recipe { scales, pads: float8.pads, gathers: float8.gathers && is_sharded })
    }

    /// Whether scales are of rows, and powers of two.
    pub fn is_by_row(self) -> bool {
        self.scales != Scales::Tensor
    }
}

/// What the dimensions of a product in 8 bits have to be multiples of (`torch._scaled_mm`).
pub(super) const MULTIPLE: u64 = 16;
