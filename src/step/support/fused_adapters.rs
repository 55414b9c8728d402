//! What of axolotl's functions over projections and their adapters is modelled: what was compared with its code.

use super::float8::followed;
use crate::issue::{Field, Issue};
use crate::job::{Job, Member};
use crate::model::Architecture;
use crate::model::modeling::families;
use crate::scenario::software::{ModelCode, Software, Trainer};
use crate::scenario::{Compile, Method, Offloading, Precision, StepTime, Tuner, WeightFormat};

/// Refuses what of fused adapters does not run or was not compared.
pub(in crate::step) fn fused_adapters(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
) -> Result<(), Issue> {
    let Some(training) = member.training.as_ref().filter(|_| member.adapts && member.lora.fused) else {
        return Ok(());
    };
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let off = "switch fused-adapters off";
    if job.members.len() > 1 || !job.round.iter().all(followed) {
        let message = "axolotl's fused adapters are modelled of fine-tuning on texts alone, for which it switches them on";
        return refuse(Field::Task, message.into(), off);
    }
    let software = Software::of(member.stack);
    if software.trainer != Trainer::Loop || software.model != ModelCode::Transformers {
        let message = format!(
            "axolotl's fused adapters stand in transformers' modules: {} has others",
            member.stack.label()
        );
        return refuse(Field::Stack, message, "choose transformers or Liger, or switch fused-adapters off");
    }
    if member.lora.tuner != Tuner::Lora {
        let message = "axolotl's fused adapters are modelled of LoRA alone";
        return refuse(Field::Adapter, message.into(), "choose LoRA, or switch fused-adapters off");
    }
    if !matches!(member.precision, Precision::Bf16 | Precision::AmpBf16Weights) {
        let message = "axolotl's fused adapters were compared over weights in bfloat16";
        return refuse(Field::Precision, message.into(), "choose bf16, or switch fused-adapters off");
    }
    if member.method == Method::Qlora && member.quantization.format != WeightFormat::Nf4 {
        let message = "axolotl's fused adapters take weights in 16 bits or in nf4";
        return refuse(Field::WeightFormat, message.into(), "choose nf4, or switch fused-adapters off");
    }
    if member.method == Method::Qlora && member.quantization.makes_rest_float32() {
        let message =
            "axolotl makes norms and embeddings bfloat16 again after prepare_model_for_kbit_training";
        return refuse(Field::KbitPrepare, message.into(), "switch kbit-prepare off");
    }
    if member.offloading == Offloading::On || training.step != StepTime::AfterBackward {
        let message =
            "axolotl's fused adapters were compared with activations on the GPU and a step after backward";
        return refuse(Field::FusedAdapters, message.into(), off);
    }
    if member.float8.is_on() || member.compile != Compile::Off {
        let message = "axolotl's fused adapters were compared without FP8 training and compiled layers";
        return refuse(Field::FusedAdapters, message.into(), off);
    }
    if job.cluster.has_engine() || job.cluster.layout.gpus() > 1 {
        let message = "axolotl's fused adapters are modelled on one GPU";
        return refuse(Field::Sharding, message.into(), "choose one GPU, or switch fused-adapters off");
    }
    if architecture.family.is_some_and(|family| family.stacks.axolotl) {
        return Ok(());
    }
    let known = families().filter(|family| family.stacks.axolotl);
    let names: Vec<&str> = known.flat_map(|family| family.model_types).copied().collect();
    let message = format!("axolotl's fused adapters of {} are not modelled", architecture.model_type);
    let fix = format!("switch fused-adapters off, or choose {}", names.join(", "));
    refuse(Field::FusedAdapters, message, &fix)
}
