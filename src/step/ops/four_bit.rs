//! Products with weights that are quantised: 4-bit ones, and the way to 8-bit ones.

mod bitsandbytes;
mod kernel;
mod torchao;

use super::shape::Shape;
use crate::dtype::Dtype;
use crate::step::machine::State;
use crate::step::params::ParamId;
pub(in crate::step) use crate::step::params::{DOUBLE_QUANT_BLOCK, QUANT_BLOCK};
use crate::step::tensor::Value;
use crate::step::what::{Source, What};

pub(in crate::step) static PACKED_WEIGHT: What =
    What::own("4-bit weight", "the frozen weights, two to a byte: there from load to end", Source::FourBit);
pub(in crate::step) static SCALES: What =
    What::own("scales", "scales by which 4-bit weights are dequantised", Source::FourBit);
pub(in crate::step) static SCALES_8BIT: What =
    What::own("scales (8-bit)", "scales by which 4-bit weights are dequantised, in 8 bits", Source::FourBit);
pub(in crate::step) static SCALES_OF_SCALES: What =
    What::own("scales of scales", "scales by which 8-bit scales are dequantised", Source::FourBit);
pub(in crate::step) static CODE_BOOK: What =
    What::own("code book", "the numbers that 4 or 8 bits stand for", Source::FourBit);
pub(in crate::step) static DEQUANTISED: What =
    What::own("dequantised weight", "a 4-bit weight dequantised for one product", Source::FourBit);

/// How a quantised weight is read.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Quantised {
    /// The packed weight.
    pub weight: ParamId,
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
    /// bitsandbytes' 8-bit weights.
    Int8,
    /// torchao's 8-bit weights (`Int8Tensor`).
    TorchaoInt8,
    /// GPTQ's, in 4 bits or 8 (`TritonV2Linear` of gptqmodel).
    Gptq,
    /// AWQ's.
    Awq(AwqKernel),
}

impl Format {
    /// Whether a bias is added by itself, or in place, rather than by the product.
    pub fn adds_bias_apart(self) -> bool {
        match self {
            Format::Bitsandbytes | Format::BitsandbytesEarly | Format::Nf4Tensor => false,
            Format::Int8 | Format::TorchaoInt8 | Format::Gptq | Format::Awq(_) => true,
        }
    }
}

/// Which kernel of gptqmodel multiplies by AWQ's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum AwqKernel {
    /// `AwqGEMMTritonLinear`.
    Triton,
    /// `AwqGEMMLinear`, an extension that was compiled with nvcc.
    Cuda,
}

impl State {
    /// `F.linear(x, weight)` with a frozen quantised weight.
    pub fn linear_quantised(
        &mut self,
        x: &Value,
        shape: Shape,
        quantised: Quantised,
        bias: Option<ParamId>,
    ) -> Value {
        match quantised.format {
            Format::Bitsandbytes => self.linear_bitsandbytes(x, shape, quantised, false),
            Format::BitsandbytesEarly => self.linear_bitsandbytes(x, shape, quantised, true),
            Format::Nf4Tensor => self.linear_nf4(x, shape, quantised),
            Format::Int8 => self.linear_8bit(x, shape, quantised.weight),
            Format::TorchaoInt8 => self.linear_weight_only(x, shape, quantised.weight),
            Format::Gptq => self.linear_gptq(x, shape, quantised.weight, bias),
            Format::Awq(kernel) => self.linear_awq(x, shape, (quantised.weight, bias), kernel),
        }
    }
}
