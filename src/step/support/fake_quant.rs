//! What of quantisation-aware training is modelled: what was compared with torchao's own layers.

use super::float8::{followed, keeps_layers};
use crate::issue::{Field, Issue};
use crate::job::{Job, Member};
use crate::model::Architecture;
use crate::model::blocks::FeedForward;
use crate::scenario::software::{ModelCode, Trainer};
use crate::scenario::{LossKernel, Offloading, Precision};

/// Refuses what of layers that round does not run or was not compared.
pub(in crate::step) fn fake_quant(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
) -> Result<(), Issue> {
    if !member.qat.is_on() || member.training.is_none() {
        return Ok(());
    }
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if job.members.len() > 1 || !job.round.iter().all(followed) {
        let message = "quantisation-aware training is modelled of fine-tuning on texts alone";
        return refuse(Field::Task, message.into(), "fine-tune, or switch it off");
    }
    let software = member.software();
    if software.trainer != Trainer::Loop || software.model != ModelCode::Transformers {
        let message = format!("quantisation-aware training under {} is not modelled", member.stack.label());
        return refuse(Field::Stack, message, &member.or_transformers("switch it off"));
    }
    if member.loss != LossKernel::Standard {
        let message = "a fused, cut or chunked loss reads the output head's weight past the layer that rounds it: it was not compared";
        return refuse(Field::Loss, message.into(), "choose the default loss, or switch it off");
    }
    if member.adapts {
        let message = "quantisation-aware training is modelled of full fine-tuning alone";
        return refuse(Field::Method, message.into(), "choose full fine-tuning, or switch it off");
    }
    if member.float8.is_on() {
        let message = "a layer is either torchao's Float8Linear or its FakeQuantizedLinear";
        return refuse(Field::Qat, message.into(), "switch FP8 training off, or quantisation-aware training");
    }
    if member.offloading == Offloading::On {
        let message = "activations in the CPU's memory beside quantisation-aware training are not modelled";
        return refuse(Field::Offloading, message.into(), "keep them on the GPU");
    }
    if matches!(member.precision, Precision::Fp16 | Precision::AmpFp16 | Precision::AmpFp16Weights) {
        let message = "quantisation-aware training was not compared in float16";
        return refuse(Field::Precision, message.into(), "train in bfloat16");
    }
    if job.cluster.has_engine() || job.cluster.layout.gpus() > 1 {
        let message = "quantisation-aware training is modelled on one GPU, without FSDP2 or DeepSpeed";
        return refuse(Field::Sharding, message.into(), "choose one GPU, or switch it off");
    }
    let experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    let because = if experts { Some("it has experts") } else { keeps_layers(architecture) };
    match because {
        None => Ok(()),
        Some(because) => {
            let family = &architecture.model_type;
            let message = format!("quantisation-aware training of {family} is not modelled: {because}");
            refuse(Field::Qat, message, "choose another model, or switch it off")
        }
    }
}
