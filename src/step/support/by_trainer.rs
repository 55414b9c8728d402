//! What transformers' Trainer does beside fine-tuning, classification and evaluation, on one GPU and on several: what of it was not compared.

use super::acts::engine;
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, HeadKind, Job, Member};
use crate::model::blocks::{Block, Mixer};
use crate::model::{Architecture, Objective};
use crate::scenario::software::{HeadCode, Trainer};
use crate::scenario::{
    Cluster, CpuOffload, LossKernel, Method, Offloading, Sharding, StepTime, Tuner, WrappedBy,
};
use crate::step::forward::stacks::classifies;

/// What of classifying texts is not modelled.
pub(super) fn classification(job: &Job, member: usize, batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message, fix| Err(Issue::error(field, message).with_fix(fix));
    let member = &job.members[member];
    if !classifies(member.stack) {
        return refuse(
            Field::Stack,
            "classification is modelled with transformers' Trainer",
            "choose transformers",
        );
    }
    if job.cluster.has_engine() && !job.cluster.is_many() {
        return engine(job, "classification", "is");
    }
    by_trainer_on_many(job, member, (Field::Task, "classification"), "choose one GPU")?;
    classifies_on_many(job, member)?;
    if batch.mask.is_packed() {
        return refuse(Field::Mask, "each text that is classified has a row of its own", "choose padded");
    }
    if member.step_time() == StepTime::InBackward {
        return refuse(Field::Step, "Trainer steps after backward", "let the optimizer step after backward");
    }
    if member.offloading == Offloading::On {
        return refuse(Field::Offloading, "Trainer offloads no activations", "keep them on the GPU");
    }
    Ok(())
}

/// What of an evaluation is not modelled, whatever the model is.
pub(super) fn evaluates(job: &Job, evaluated: usize) -> Result<(), Issue> {
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let off = "switch evaluation off";
    let member = &job.members[evaluated];
    if !job.round.iter().all(Act::is_of_fine_tuning) {
        let message =
            "the evaluation of this task is not modelled: it is of fine-tuning and of classification";
        return refuse(Field::Evaluation, message, off);
    }
    if job.cluster.has_engine() && !job.cluster.is_many() {
        return refuse(
            Field::Evaluation,
            &format!("evaluation {} is not modelled", job.cluster.place_in_words()),
            &format!("switch evaluation off, or {}", job.cluster.without_engine().1),
        );
    }
    if !matches!(member.software().head, HeadCode::Transformers | HeadCode::Trl) {
        let message = format!("evaluation with {} is not modelled", member.stack.label());
        return refuse(
            Field::Evaluation,
            &message,
            "switch evaluation off, or choose transformers, trl or Liger",
        );
    }
    if member.offloading == Offloading::On {
        return refuse(Field::Evaluation, "evaluation beside offloaded activations was not measured", off);
    }
    if member.adapts && member.lora.tuner != Tuner::Lora {
        return refuse(Field::Evaluation, "evaluation beside another tuner than LoRA was not measured", off);
    }
    if member.loss != LossKernel::Standard && member.loss != LossKernel::Full {
        let message = "evaluation beside a fused loss was not measured: some make all logits then, some none";
        return refuse(Field::Evaluation, message, "switch evaluation off, or choose the standard loss");
    }
    by_trainer_on_many(job, member, (Field::Evaluation, "evaluation"), off)?;
    if member.has_all_logits_of_trl() {
        let message = "evaluation by trl up to 1.6, which makes all logits, was not measured";
        return refuse(Field::Evaluation, message, "switch evaluation off, or choose the standard loss");
    }
    Ok(())
}

/// What of classification stops, or was not measured, where GPUs share the model.
fn classifies_on_many(job: &Job, member: &Member) -> Result<(), Issue> {
    let refuse = |field, message, fix| Err(Issue::error(field, message).with_fix(fix));
    let divides = job.cluster.is_many() && job.cluster.sharding != Sharding::Ddp;
    if divides && job.cluster.cpu != CpuOffload::Off {
        let message =
            "classification beside an optimizer in the CPU's memory was not measured on several GPUs";
        return refuse(Field::CpuOffload, message, "keep it on the GPUs");
    }
    if divides && member.method == Method::Qlora {
        let message = "classification with 4-bit weights that GPUs share was not measured";
        return refuse(Field::Method, message, "choose LoRA, or DDP");
    }
    if divides && job.cluster.sharding == Sharding::Zero3 && member.adapts && !member.lora.fp32_adapters {
        let message = "classification beside 16-bit adapters was not measured under ZeRO-3";
        return refuse(Field::Sharding, message, "choose FSDP2 or ZeRO-2");
    }
    if divides && job.cluster.sharding == Sharding::Zero3 && member.adapts {
        let message = "peft trains the head that classifies in the weights' type beside adapters in float32, and DeepSpeed's third stage puts all \
                       that is trained into one buffer: it stops (stage3.py `defragment`, AssertionError)";
        return refuse(Field::Sharding, message, "choose FSDP2 or ZeRO-2, or full fine-tuning");
    }
    Ok(())
}

/// What transformers' Trainer does on several GPUs beside fine-tuning that was not measured.
pub(super) fn by_trainer_on_many(
    job: &Job,
    member: &Member,
    (field, what): (Field, &str),
    or: &str,
) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: &str| {
        Err(Issue::error(field, message).with_fix(format!("{fix}, or {or}")))
    };
    let Cluster { layout, cpu, wrapped_by, replicas, sharding, .. } = job.cluster;
    if !job.cluster.is_many() {
        return Ok(());
    }
    if layout.parts() > 1 {
        return refuse(
            field,
            format!("{what} by layers that GPUs share was not measured"),
            "choose a size of 1",
        );
    }
    if cpu != CpuOffload::Off {
        let message = format!("{what} beside what is in the CPU's memory was not measured");
        return refuse(Field::CpuOffload, message, "keep all on the GPUs");
    }
    if replicas > 1 {
        return refuse(
            Field::Replicas,
            format!("{what} by replicas of shards was not measured"),
            "choose one replica",
        );
    }
    if sharding == Sharding::Zero3 && member.method == Method::Qlora {
        let message = format!("{what} with 4-bit weights under ZeRO-3 was not measured");
        return refuse(Field::Sharding, message, "choose FSDP2 or ZeRO-2");
    }
    if member.software().runs_loop() && job.cluster.is_fsdp2() && wrapped_by != WrappedBy::Accelerate {
        let message = format!(
            "the {what} that is followed is the one of transformers' Trainer, whose model accelerate wraps"
        );
        return refuse(Field::WrappedBy, message, "choose accelerate as what wraps the model");
    }
    Ok(())
}

/// What stands in the way of evaluating a family's code.
pub(in crate::step) fn evaluation(
    architecture: &Architecture,
    (member, batch): (&Member, Batch),
) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let attends = |block: &Block| matches!(block.mixer, Mixer::Attention(_) | Mixer::Latent(_) | Mixer::None);
    let causal = architecture.head.objective == Objective::CausalLm || member.head != HeadKind::Language;
    if !causal
        || architecture.encoder.is_some()
        || !architecture.towers.is_empty()
        || !architecture.blocks.iter().all(attends)
    {
        let message = format!("evaluation of {} was not compared", architecture.model_type);
        return refuse(Field::Evaluation, message, "switch evaluation off, or choose another model");
    }
    if batch.mask.is_packed() && member.software().trainer != Trainer::Trl {
        let message = "evaluation of packed texts was measured of trl's trainer";
        return refuse(Field::Evaluation, message.into(), "switch evaluation off, or choose a padded batch");
    }
    if batch.pictures.count > 0 {
        let message = "evaluation with pictures is not modelled";
        return refuse(Field::Evaluation, message.into(), "switch evaluation off, or leave them out");
    }
    Ok(())
}
