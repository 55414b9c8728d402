//! How the weights of a measured case are stored, and in which floats its layers multiply.

use super::error::CheckError;
use super::fields::{Fields, unknown};
use crate::scenario::{
    Compile, Float8, Float8Layers, Float8Training, GroupSize, Qat, QatGroup, QatLayers, QatTraining,
    Quantization, WeightFormat,
};

/// Products in 8-bit floats.
pub(super) fn float8(fields: &mut Fields<'_>) -> Result<Float8Training, CheckError> {
    // computed after the step or before a gather, scales are as large
    fields.switch("float8_precompute", false)?;
    Ok(Float8Training {
        recipe: match fields.text("float8")? {
            None => Float8::Off,
            Some(name) => Float8::of_recipe(name).ok_or_else(|| unknown("float8", name))?,
        },
        layers: match fields.text_or("float8_filter", "accelerate")? {
            "accelerate" => Float8Layers::Inner,
            "head" => Float8Layers::Body,
            "auto" => Float8Layers::Large,
            "none" => Float8Layers::All,
            other => return Err(unknown("float8_filter", other)),
        },
        pads: fields.switch("float8_pad", false)?,
        gathers: fields.switch("float8_gather", false)?,
    })
}

/// Quantisation-aware training.
pub(super) fn qat(fields: &mut Fields<'_>) -> Result<QatTraining, CheckError> {
    let qat = QatTraining {
        scheme: fields.choice("qat", Qat::Off)?,
        group: match fields.get("qat_group") {
            None => QatGroup::Of128,
            Some(given) => {
                given.as_u64().and_then(QatGroup::of).ok_or_else(|| unknown("qat_group", given))?
            }
        },
        layers: match fields.text_or("qat_layers", "body")? {
            "body" => QatLayers::Body,
            "all" => QatLayers::All,
            other => return Err(unknown("qat_layers", other)),
        },
    };
    Ok(if qat.is_on() { qat } else { QatTraining::OFF })
}

/// What torch.compile compiles.
pub(super) fn compile(fields: &mut Fields<'_>) -> Result<Compile, CheckError> {
    match fields.text("compile")? {
        None => Ok(Compile::Off),
        Some("layers") => Ok(Compile::Layers),
        Some("model") => Ok(Compile::Model),
        Some(other) => Err(unknown("compile", other)),
    }
}

/// How frozen weights are quantised.
pub(super) fn quantization(fields: &mut Fields<'_>) -> Result<Quantization, CheckError> {
    Ok(Quantization {
        format: match fields.text_or("base", "nf4")? {
            "nf4" => WeightFormat::Nf4,
            "int8" => WeightFormat::Int8,
            "torchao-int8" => WeightFormat::TorchaoInt8,
            "gptq-4" => WeightFormat::Gptq4,
            "gptq-8" => WeightFormat::Gptq8,
            "awq-4" => WeightFormat::Awq4,
            "awq-4-cuda" => WeightFormat::Awq4Cuda,
            other => return Err(unknown("base", other)),
        },
        group: group_size(fields)?,
        double_quant: fields.switch("qlora_double_quant", true)?,
        prepare: fields.switch("qlora_prepare", true)?,
    })
}

/// Of how many weights a scale of GPTQ's or AWQ's is.
fn group_size(fields: &mut Fields<'_>) -> Result<GroupSize, CheckError> {
    match fields.get("group_size") {
        None => Ok(GroupSize::Of128),
        Some(given) => match given.as_i64() {
            Some(-1) => Ok(GroupSize::Column),
            Some(128) => Ok(GroupSize::Of128),
            Some(64) => Ok(GroupSize::Of64),
            Some(32) => Ok(GroupSize::Of32),
            _ => Err(unknown("group_size", given)),
        },
    }
}
