//! What of a training's spikes outside its steps is not modelled.

use crate::issue::{Field, Issue};
use crate::job::{Act, Job, Loss, Member};
use crate::model::Architecture;
use crate::model::blocks::FeedForward;
use crate::model::modeling::Modeling;
use crate::scenario::{Lengths, LoraTargets, Method, Offloading, Tuner, WeightFormat};

/// What would be right instead of merging on the GPU.
const ELSEWHERE: &str = "merge on the CPU, or switch merging off";

/// What would be right instead of a checkpoint.
const NOT_SAVED: &str = "switch saving off";

/// What stands in the way of merging on the GPU, whatever the model is.
pub(super) fn merges(job: &Job, merged: usize) -> Result<(), Issue> {
    let refuse = |message: &str| Err(Issue::error(Field::Merging, message).with_fix(ELSEWHERE));
    let member = &job.members[merged];
    let compared = |act: &Act| {
        act.is_of_fine_tuning()
            && !matches!(act, Act::Train { loss: Loss::Classes, .. })
            && act.batch().is_none_or(|batch| batch.lengths == Lengths::Equal)
    };
    if !job.round.iter().all(compared) {
        return refuse("merging on the GPU was compared after fine-tuning with texts of one length");
    }
    let merges = job.round.iter().filter(|act| matches!(act, Act::Merge { .. })).count();
    if merges > 1 || !matches!(job.round.last(), Some(Act::Merge { .. })) {
        return refuse("adapters are merged once, when all else is done");
    }
    if job.cluster.has_engine() {
        return refuse(&format!("merging {} is not modelled", job.cluster.place_in_words()));
    }
    let software = member.software();
    if !software.peft || !software.runs_transformers() {
        return refuse(&format!("merging with {} was not compared", member.stack.label()));
    }
    if !member.adapts {
        return refuse("there are no adapters to merge");
    }
    if member.lora.tuner != Tuner::Lora {
        return refuse("merging another tuner than LoRA was not compared");
    }
    if member.lora.trains_embeddings {
        return refuse("merging beside embeddings that are trained whole was not compared");
    }
    if member.method == Method::Qlora && member.quantization.format != WeightFormat::Nf4 {
        return refuse("merging into weights that are not NF4 of bitsandbytes 0.50 was not compared");
    }
    if member.offloading == Offloading::On {
        return refuse("merging beside offloaded activations was not compared");
    }
    Ok(())
}

/// What stands in the way of saving, whatever the model is.
pub(super) fn saves(job: &Job, saved: usize) -> Result<(), Issue> {
    let refuse = |message: &str| Err(Issue::error(Field::Saving, message).with_fix(NOT_SAVED));
    let member = &job.members[saved];
    if !job.round.iter().all(Act::is_of_fine_tuning) {
        return refuse(
            "the checkpoints of this task are not modelled: they are of fine-tuning and of classification",
        );
    }
    if job.cluster.layout.tensor > 1 {
        return refuse("checkpoints of layers that several GPUs share were not compared");
    }
    if !member.software().runs_transformers() {
        return refuse(&format!("checkpoints of {} were not compared", member.stack.label()));
    }
    if member.adapts && (member.lora.tuner != Tuner::Lora || member.lora.trains_embeddings) {
        return refuse(
            "checkpoints of another tuner than LoRA, or with embeddings that are trained whole, were not compared",
        );
    }
    Ok(())
}

/// What stands in the way of saving a family's weights.
pub(in crate::step) fn saving(
    architecture: &Architecture,
    modeling: Modeling,
    member: &Member,
) -> Result<(), Issue> {
    let mixes = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    let family = &architecture.model_type;
    let what = if mixes && (member.method != Method::Full || !modeling.cuts_experts) {
        "a mixture of experts trained in that way,"
    } else if !architecture.towers.is_empty() || architecture.encoder.is_some() {
        "with an encoder or a tower"
    } else {
        return Ok(());
    };
    Err(Issue::error(Field::Saving, format!("a checkpoint of {family}, {what} was not compared"))
        .with_fix(NOT_SAVED))
}

/// What stands in the way of merging into a family's modules.
pub(in crate::step) fn merging(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let mixes = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    let what = if mixes {
        "adapters of a mixture of experts"
    } else if !architecture.towers.is_empty() || architecture.encoder.is_some() {
        "adapters of a model with an encoder or a tower"
    } else if architecture.head.tied && member.lora.targets == LoraTargets::AllLinearAndHead {
        "an adapter of a head that is tied to the embedding"
    } else {
        return Ok(());
    };
    let message = format!("merging {what} was not compared");
    Err(Issue::error(Field::Merging, message).with_fix(ELSEWHERE))
}
