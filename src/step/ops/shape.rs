//! What a linear layer and the 4-bit weight in it have in common.

use crate::step::what::{DERIVATIVES, Dims, What};

pub(in crate::step) static INPUT: What = What::own(
    "cast",
    "the layer's input in the element type that it computes in, saved for its weight's gradient",
    DERIVATIVES,
);
pub(in crate::step) static OUTPUT: What =
    What::own("cast", "the layer's output in the element type that its input has", DERIVATIVES);

/// Features of a linear layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Shape {
    pub input: u64,
    pub output: u64,
}

impl Shape {
    /// Elements of the weight.
    pub fn weights(self) -> u64 {
        self.input.saturating_mul(self.output)
    }

    /// Dimensions of the weight.
    pub fn dims(self) -> Dims {
        Dims::matrix(self.output, self.input)
    }
}
