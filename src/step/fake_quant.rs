//! How a linear layer is trained as if it were quantised already (torchao's quantisation-aware training, `QATConfig`).

use super::heap::{NOTHING, StorageId};
use crate::scenario::{Qat, QatTraining};

/// What rounds a layer's weight, and maybe its input, in passing (torchao's fake quantizers).
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeQuantizer {
    /// How the input is rounded, if it is.
    pub input: Option<InputRounding>,
    pub weight: WeightRounding,
    /// Weights of a row that share a scale.
    pub group: u64,
    /// What the modules keep of their last pass: scales and zero points of the input, and of the weight.
    pub kept: [[StorageId; 2]; 2],
}

/// How an input is rounded to 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputRounding {
    /// To integers, with a scale for each token that the module keeps (`IntxFakeQuantizer`).
    ByToken(Scales),
    /// To floats (`Float8FakeQuantizer`).
    Float8(Granularity),
}

/// How a weight is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightRounding {
    /// To 4 bits as MSLK's kernels for 16-bit inputs have it (`Int4WeightFakeQuantizer`).
    Mslk,
    /// To 8-bit floats, then to 4 bits, as its kernels for inputs in 8-bit floats have it.
    MslkOfFloat8,
    /// To 4 bits by scales that the module keeps (`IntxFakeQuantizer`).
    ByScale,
    /// To 8-bit floats (`Float8FakeQuantizer`).
    Float8(Granularity),
}

/// Of what 8-bit floats have a scale each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Granularity {
    PerTensor,
    PerRow,
}

impl Granularity {
    /// How many elements of a tensor with such rows share a scale.
    pub fn width(self, numel: u64, row: u64) -> u64 {
        match self {
            Granularity::PerTensor => numel,
            Granularity::PerRow => row,
        }
    }
}

/// In which type scales are (`scale_precision`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scales {
    /// That of what is rounded: what a base configuration leaves open.
    AsRounded,
    /// 32 bits: the default where the fake quantizers are named one by one.
    Wide,
}

impl FakeQuantizer {
    /// That of a training, if it has one, before its first pass.
    pub fn of(qat: QatTraining) -> Option<FakeQuantizer> {
        use {Granularity::*, InputRounding as Input, WeightRounding as Weight};
        let (input, weight) = match qat.scheme {
            Qat::Off => return None,
            Qat::Int4 => (None, Weight::Mslk),
            Qat::Int8Int4 => (Some(Input::ByToken(Scales::AsRounded)), Weight::ByScale),
            Qat::Float8 => (Some(Input::Float8(PerTensor)), Weight::Float8(PerTensor)),
            Qat::Float8Int4 => (Some(Input::Float8(PerRow)), Weight::MslkOfFloat8),
            Qat::Int4Axolotl => (None, Weight::MslkOfFloat8),
            Qat::Int8Int4Axolotl => (Some(Input::ByToken(Scales::Wide)), Weight::Mslk),
            Qat::Float8Axolotl => (Some(Input::Float8(PerRow)), Weight::Float8(PerRow)),
        };
        Some(FakeQuantizer { input, weight, group: qat.group.weights(), kept: [[NOTHING; 2]; 2] })
    }

    /// Whether the scales of the last pass stay until the next.
    pub fn keeps_scales(self) -> bool {
        matches!(self.input, Some(InputRounding::ByToken(_))) || self.weight == WeightRounding::ByScale
    }
}
