//! What of axolotl's functions over projections and their adapters is modelled: what was compared with its code.

use super::float8::followed;
use crate::issue::{Field, Issue};
use crate::job::{Job, Member};
use crate::model::Architecture;
use crate::model::modeling::families;
use crate::scenario::software::{ModelCode, Trainer};
use crate::scenario::{
    Cluster, Compile, Method, Offloading, Precision, StepTime, Tuner, WeightFormat, WrappedBy,
};

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
    let software = member.software();
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
    over_gpus(job.cluster)?;
    if architecture.family.is_some_and(|family| family.stacks.axolotl) {
        return Ok(());
    }
    let known = families().filter(|family| family.stacks.axolotl);
    let names: Vec<&str> = known.flat_map(|family| family.model_types).copied().collect();
    let message = format!("axolotl's fused adapters of {} are not modelled", architecture.model_type);
    let fix = format!("switch fused-adapters off, or choose {}", names.join(", "));
    refuse(Field::FusedAdapters, message, &fix)
}

/// The engines of several GPUs with which they were compared.
fn over_gpus(cluster: Cluster) -> Result<(), Issue> {
    if cluster.layout.gpus() > 1 {
        let message =
            "axolotl's fused adapters read whole weights: shared layers were not compared with them";
        let fix = "choose a tensor-parallel size of 1, or switch fused-adapters off";
        return Err(Issue::error(Field::TensorParallel, message).with_fix(fix));
    }
    if cluster.is_fsdp2() && cluster.wrapped_by != WrappedBy::Axolotl {
        let message = "under FSDP2 axolotl's fused adapters are modelled as axolotl itself wraps a model";
        let fix = "choose wrapped-by axolotl, or switch fused-adapters off";
        return Err(Issue::error(Field::WrappedBy, message).with_fix(fix));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;
    use crate::scenario::{Scenario, Sharding};

    /// LoRA of a small llama with fused adapters on so many GPUs, as far as it is answered.
    fn refused(change: impl Fn(&mut Scenario)) -> Option<Field> {
        let mut scenario =
            Scenario { method: Method::Lora, precision: Precision::AmpBf16Weights, ..Scenario::default() };
        scenario.lora.fused = true;
        scenario.cluster = Cluster { gpus: 4, ..Cluster::ONE };
        change(&mut scenario);
        let answer = estimate(&scenario);
        let errors = answer.issues.iter().filter(|issue| issue.severity == crate::issue::Severity::Error);
        let first = errors.map(|issue| issue.field).next();
        assert_eq!(first.is_none(), answer.memory.is_some());
        first
    }

    #[test]
    fn they_are_followed_under_the_engines_that_they_were_compared_with() {
        let under = |sharding, wrapped_by| {
            refused(|scenario| {
                scenario.cluster.sharding = sharding;
                scenario.cluster.wrapped_by = wrapped_by;
            })
        };
        assert_eq!(under(Sharding::Fsdp2, WrappedBy::Axolotl), None);
        assert_eq!(under(Sharding::Fsdp2, WrappedBy::Accelerate), Some(Field::WrappedBy));
        for whole in [Sharding::Ddp, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3] {
            assert_eq!(under(whole, WrappedBy::Loop), None, "{whole:?}");
        }
        let by_loop = refused(|scenario| {
            scenario.precision = Precision::Bf16;
            scenario.cluster.sharding = Sharding::Fsdp2;
        });
        assert_eq!(by_loop, Some(Field::WrappedBy));
    }
}
