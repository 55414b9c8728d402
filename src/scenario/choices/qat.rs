//! Quantisation-aware training.

use super::Choice;

choices! {
    /// What linear layers round to while they are trained (torchao's base configurations of a `QATConfig`).
    Qat {
        Off = "off", "Off", "Layers compute with their weights as they are.";
        Int4 = "int4", "4-bit weights", "Each weight is rounded to 4 bits in passing, for 16-bit inputs (Int4WeightOnlyConfig).";
        Int8Int4 = "int8-int4", "8-bit inputs, 4-bit weights", "Inputs are rounded to 8 bits with a scale for each token, weights to 4 bits with a scale for each group (Int8DynamicActivationIntxWeightConfig).";
        Float8 = "fp8", "FP8 inputs and weights", "Inputs and weights are rounded to 8-bit floats, each with one scale (Float8DynamicActivationFloat8WeightConfig).";
        Float8Int4 = "fp8-int4", "FP8 inputs, 4-bit weights", "Inputs are rounded to 8-bit floats with a scale for each token, weights to 8-bit floats and then to 4 bits (Float8DynamicActivationInt4WeightConfig).";
        Int4Axolotl = "int4-axolotl", "4-bit weights (axolotl)", "Weights are rounded to 8-bit floats and then to 4 bits: what axolotl makes of weight_dtype int4 alone.";
        Int8Int4Axolotl = "int8-int4-axolotl", "8-bit inputs, 4-bit weights (axolotl)", "Inputs are rounded to 8 bits with 32-bit scales, weights as for 16-bit inputs: what axolotl makes of activation_dtype int8 with weight_dtype int4.";
        Float8Axolotl = "fp8-axolotl", "FP8 inputs and weights (axolotl)", "Inputs and weights are rounded to 8-bit floats with a scale for each row: what axolotl makes of fp8 for both.";
    }
}

impl Qat {
    /// Whether inputs are rounded too.
    pub const fn rounds_inputs(self) -> bool {
        match self {
            Qat::Off | Qat::Int4 | Qat::Int4Axolotl => false,
            Qat::Int8Int4 | Qat::Float8 | Qat::Float8Int4 | Qat::Int8Int4Axolotl | Qat::Float8Axolotl => true,
        }
    }

    /// Whether weights have a scale for a group of them.
    pub const fn has_groups(self) -> bool {
        match self {
            Qat::Off | Qat::Float8 | Qat::Float8Axolotl => false,
            Qat::Int4 | Qat::Int8Int4 | Qat::Float8Int4 | Qat::Int4Axolotl | Qat::Int8Int4Axolotl => true,
        }
    }

    /// What axolotl's `qat` says where it prepares a model so: `weight_dtype`, and `activation_dtype` where inputs are rounded.
    pub const fn of_axolotl(self) -> Option<(&'static str, Option<&'static str>)> {
        match self {
            Qat::Off | Qat::Int4 | Qat::Int8Int4 | Qat::Float8 => None,
            Qat::Int4Axolotl => Some(("int4", None)),
            Qat::Int8Int4Axolotl => Some(("int4", Some("int8"))),
            Qat::Float8Int4 => Some(("int4", Some("fp8"))),
            Qat::Float8Axolotl => Some(("fp8", Some("fp8"))),
        }
    }
}

choices! {
    /// How many weights of a row share a scale (`group_size`).
    QatGroup {
        Of128 = "128", "128", "A scale for every 128 weights of a row.";
        Of32 = "32", "32", "A scale for every 32 weights of a row: axolotl's default.";
        Of64 = "64", "64", "A scale for every 64 weights of a row.";
        Of256 = "256", "256", "A scale for every 256 weights of a row.";
    }
}

impl QatGroup {
    /// As a number.
    pub const fn weights(self) -> u64 {
        match self {
            QatGroup::Of32 => 32,
            QatGroup::Of64 => 64,
            QatGroup::Of128 => 128,
            QatGroup::Of256 => 256,
        }
    }

    /// The group of so many.
    pub fn of(weights: u64) -> Option<QatGroup> {
        QatGroup::ALL.iter().copied().find(|group| group.weights() == weights)
    }
}

choices! {
    /// Which layers round.
    QatLayers {
        All = "all", "All", "All linear layers, the output head too: what quantize_ does without a filter, and axolotl.";
        Body = "body", "All but the head", "All linear layers but the output head.";
    }
}
