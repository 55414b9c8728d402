//! What axolotl trains in 8 bits, and what it rounds as it will be quantised.

use super::super::reader::Reader;
use super::WHY;
use crate::scenario::{Float8, Float8Layers, Precision, Qat, QatGroup, QatLayers};

/// torchao's products in 8 bits, as its trainer asks accelerate for them (core/trainers/base.py `additional_accelerator_args`).
pub(super) fn float8(reader: &mut Reader) {
    let gathers = reader.switch(&["fp8_enable_fsdp_float8_all_gather"]);
    match (reader.switch(&["fp8"]), gathers) {
        (Some((true, said)), gathers) => {
            reader.set("float8", Float8::Tensorwise.slug(), &said);
            reader.quietly("float8-layers", Float8Layers::Inner.slug());
            reader.quietly("float8-padding", "off");
            // whatever bf16 says, accelerate has autocast to bfloat16 beside it
            let precision = match reader.scenario.precision {
                Precision::Bf16 => Some(Precision::AmpBf16Weights),
                Precision::Fp32 => Some(Precision::AmpBf16),
                Precision::Fp16
                | Precision::AmpBf16
                | Precision::AmpBf16Weights
                | Precision::AmpFp16
                | Precision::AmpFp16Weights => None,
            };
            if let Some(precision) = precision {
                reader.set("precision", precision.slug(), &said);
            }
            let second = reader.given(&["fsdp_version", "fsdp_config.fsdp_version"]);
            match gathers {
                Some((true, said)) if second.is_empty() => {
                    reader.leave(&said, "axolotl refuses it without fsdp_version: 2");
                    reader.quietly("float8-gather", "off");
                }
                Some((on, said)) => reader.set("float8-gather", if on { "on" } else { "off" }, &said),
                None => reader.quietly("float8-gather", "off"),
            }
        }
        (off, gathers) => {
            reader.quietly("float8", Float8::Off.slug());
            reader.idle.extend(off.into_iter().chain(gathers).map(|(_, said)| said));
        }
    }
}

/// Quantisation-aware training, as its loader prepares a model (utils/quantization.py `prepare_model_for_qat`).
pub(super) fn qat(reader: &mut Reader) {
    let [weights, inputs, group, after] =
        ["weight_dtype", "activation_dtype", "group_size", "fake_quant_after_n_steps"]
            .map(|name| reader.take(&[&format!("qat.{name}")]));
    reader.quietly("qat-layers", QatLayers::All.slug());
    let Some(weights) = weights else {
        reader.quietly("qat", Qat::Off.slug());
        // its default is int8, with which axolotl stops
        for said in [inputs, group, after].into_iter().flatten() {
            reader.leave(
                &said.said,
                "axolotl stops without a qat.weight_dtype: its default, int8, is none that torchao rounds to",
            );
        }
        return;
    };
    let said = match &inputs {
        Some(inputs) => format!("{}, {}", weights.said, inputs.said),
        None => weights.said.clone(),
    };
    let known = |name: String| match name.as_str() {
        "float8_e4m3fn" | "float8" => "fp8".to_owned(),
        _ => name,
    };
    let asked = (known(weights.text()), inputs.as_ref().map(|inputs| known(inputs.text())));
    let is_asked = |scheme: &&Qat| {
        scheme
            .of_axolotl()
            .is_some_and(|(weights, inputs)| weights == asked.0 && inputs == asked.1.as_deref())
    };
    match Qat::ALL.iter().find(is_asked) {
        Some(scheme) => reader.set("qat", scheme.slug(), &said),
        None => reader.keep(
            "qat",
            &said,
            "of its schemes int4 weights with inputs as they are, in int8 or fp8, and fp8 for both are predicted",
        ),
    }
    match group {
        Some(group) => reader.set("qat-group", &group.text(), &group.said),
        None => reader.assume("qat-group", QatGroup::Of32.slug(), WHY),
    }
    if let Some(after) = after {
        reader.leave(&after.said, "until then less is needed: what is predicted are the steps that round");
    }
}
