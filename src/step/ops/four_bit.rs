//! Products with 4-bit weights.

mod bitsandbytes;
mod kernel;
mod torchao;

use super::linear::Shape;
use crate::dtype::Dtype;
use crate::step::machine::State;
use crate::step::tensor::Value;

/// Weights of one 4-bit scale (bitsandbytes' default block size).
pub(in crate::step) const QUANT_BLOCK: u64 = 64;
/// Scales of one second-level scale under double quantisation (bitsandbytes' `quantize_blockwise` block size).
pub(in crate::step) const DOUBLE_QUANT_BLOCK: u64 = 256;

/// How a 4-bit weight is dequantised.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Quantised {
    pub format: Format,
    /// Element type of the computation (`bnb_4bit_compute_dtype`).
    pub compute: Dtype,
    /// Element type that the weight had before: what dequantising gives in backward.
    pub origin: Dtype,
    /// Element type that the forward product dequantises into: bitsandbytes 0.50 takes the computation's at once.
    pub opened: Dtype,
    /// Whether the block scales are quantised themselves.
    pub double: bool,
}

/// Whose 4-bit weights they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Format {
    /// bitsandbytes'.
    Bitsandbytes,
    /// bitsandbytes' before 0.43.2: always dequantised, and the input is held.
    BitsandbytesEarly,
    /// torchao's `NF4Tensor`.
    Nf4Tensor,
}

impl State {
    /// `F.linear(x, weight)` with a frozen 4-bit weight.
    pub fn linear_4bit(&mut self, x: &Value, shape: Shape, quantised: Quantised) -> Value {
        match quantised.format {
            Format::Bitsandbytes => self.linear_bitsandbytes(x, shape, quantised, false),
            Format::BitsandbytesEarly => self.linear_bitsandbytes(x, shape, quantised, true),
            Format::Nf4Tensor => self.linear_nf4(x, shape, quantised.origin),
        }
    }
}
