//! What is refused because it was not compared with Megatron-core's code.

use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::scenario::{
    AttentionKernel, Checkpointing, Cluster, ContextComm, Lengths, LossKernel, Mask, Method, Offloading,
    Optimizer, Precision, Sharding, StepTime, TransformerImpl,
};
use crate::units::grouped;

/// The most GPUs that keys and values go round: each step of them is run.
const LONGEST_RING: u64 = 256;

/// Refuses sequences that GPUs cannot share as they are asked to.
fn divided_sequences(batch: Batch, cluster: Cluster) -> Option<Issue> {
    let layout = cluster.layout;
    let local = !layout.has_transformer_engine();
    if local && layout.sequence && layout.tensor > 1 {
        let message = "sequence parallelism needs Transformer Engine's layers";
        return Some(
            Issue::error(Field::SequenceParallel, message).with_fix("choose these, or switch it off"),
        );
    }
    if local && layout.context > 1 {
        let message = "context parallelism needs Transformer Engine's layers";
        return Some(Issue::error(Field::ContextParallel, message).with_fix("choose these, or a size of 1"));
    }
    let parts = layout.sequence_parts();
    if !batch.length.is_multiple_of(parts) {
        let message =
            format!("{} tokens cannot be divided into {} equal parts", grouped(batch.length), grouped(parts));
        let next = batch.length.div_ceil(parts).saturating_mul(parts);
        return Some(
            Issue::error(Field::Sequence, message).with_fix(format!("use {} tokens", grouped(next))),
        );
    }
    if layout.context > LONGEST_RING && layout.context_comm == ContextComm::P2p {
        let message = format!("keys and values that go round more than {LONGEST_RING} GPUs are not followed");
        let fix = format!("use a context parallel size of at most {LONGEST_RING}");
        return Some(Issue::error(Field::ContextParallel, message).with_fix(fix));
    }
    None
}

/// Refuses what GPT-3's layers were not compared with.
fn gpt_layers(member: &Member, cluster: Cluster) -> Result<(), Issue> {
    let layout = cluster.layout;
    if !layout.has_transformer_engine() {
        let message = "GPT-3's layers are followed as Transformer Engine runs them";
        return Err(Issue::error(Field::TransformerImpl, message).with_fix("choose its layers"));
    }
    if layout.context > 1 {
        let message = "context parallelism is not followed in GPT-3's layers";
        return Err(Issue::error(Field::ContextParallel, message).with_fix("choose a size of 1"));
    }
    if member.checkpointing == Checkpointing::Selective {
        let message = "recomputation of attention alone is not followed in GPT-3's layers";
        return Err(Issue::error(Field::Checkpointing, message).with_fix("choose \"On\", or switch it off"));
    }
    Ok(())
}

/// Refuses what was not compared with Megatron-core's code.
pub(super) fn settings(member: &Member, batch: Batch, cluster: Cluster, gpt: bool) -> Result<(), Issue> {
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if member.method != Method::Full {
        let message = "Megatron-core has no adapters of its own";
        return refuse(Field::Method, message, "choose full fine-tuning");
    }
    match member.precision {
        Precision::Bf16 | Precision::AmpBf16Weights => {}
        Precision::Fp32
        | Precision::Fp16
        | Precision::AmpBf16
        | Precision::AmpFp16
        | Precision::AmpFp16Weights => {
            let message = "Megatron-core is followed with --bf16: bfloat16 weights and float32 masters";
            return refuse(Field::Precision, message, "choose bf16 mixed over bf16 weights");
        }
    }
    if let Some(training) = member.training {
        if !matches!(training.optimizer, Optimizer::AdamW) {
            let message = "Megatron-core is followed with torch.optim.AdamW, which it takes where Apex and Transformer Engine \
                           are not there";
            return refuse(Field::Optimizer, message, "choose AdamW");
        }
        if training.step == StepTime::InBackward {
            return refuse(Field::Step, "Megatron-core steps after backward", "choose after backward");
        }
        if training.keeps_outputs {
            return refuse(Field::KeepOutputs, "Megatron's schedules keep no output", "switch it off");
        }
    }
    match (cluster.layout.layers, member.attention) {
        (TransformerImpl::Local, AttentionKernel::Eager)
        | (TransformerImpl::TransformerEngine, AttentionKernel::Cudnn) => {}
        // of GPT-3's layers Transformer Engine's other ways to attend were compared too
        (TransformerImpl::TransformerEngine, AttentionKernel::Eager | AttentionKernel::FlashAttn) if gpt => {}
        (TransformerImpl::Local, _) => {
            return refuse(
                Field::Attention,
                "Megatron-core's local layers write attention out",
                "choose eager, or Transformer Engine's layers",
            );
        }
        (TransformerImpl::TransformerEngine, _) => {
            let message = "Transformer Engine's layers are followed with cuDNN's attention";
            return refuse(Field::Attention, message, "choose cudnn, or Megatron's own layers");
        }
    }
    if let Some(issue) = divided_sequences(batch, cluster) {
        return Err(issue);
    }
    if member.offloading == Offloading::On {
        let message = "activations in the CPU's memory are not modelled of Megatron-core";
        return refuse(Field::Offloading, message, "keep them on the GPU");
    }
    match member.checkpointing {
        Checkpointing::Off | Checkpointing::NonReentrant | Checkpointing::Selective => {}
        Checkpointing::Reentrant
        | Checkpointing::Offloaded
        | Checkpointing::Alternate
        | Checkpointing::Operations => {
            let message = "Megatron-core recomputes whole layers, or attention alone";
            return refuse(Field::Checkpointing, message, "choose \"On\", or attention only");
        }
    }
    match (member.loss, cluster.layout.layers) {
        (LossKernel::Standard | LossKernel::MegatronFused, _)
        | (LossKernel::TransformerEngine, TransformerImpl::TransformerEngine) => {}
        (LossKernel::TransformerEngine, TransformerImpl::Local) => {
            let message = "Transformer Engine's cross entropy is followed beside its layers";
            return refuse(
                Field::Loss,
                message,
                "choose Megatron's plain or fused one, or Transformer Engine's layers",
            );
        }
        (
            LossKernel::Full
            | LossKernel::Axolotl
            | LossKernel::LogSoftmax
            | LossKernel::FloatLogits
            | LossKernel::VocabularyChunks
            | LossKernel::Liger
            | LossKernel::Cut
            | LossKernel::Chunked,
            _,
        ) => {
            let message = "Megatron-core is followed with its own cross entropy, plain or fused, and Transformer Engine's";
            return refuse(Field::Loss, message, "choose the default, or Megatron's fused one");
        }
    }
    if batch.mask != Mask::None || batch.lengths != Lengths::Equal {
        let message = "Megatron-core is followed with sequences of one length and its causal mask";
        return refuse(Field::Mask, message, "choose no mask and equal lengths");
    }
    if member.dropout.is_some_and(|dropout| dropout > 0) && !gpt {
        let message = "Megatron-core is followed with dropout in GPT-3's layers alone";
        return refuse(Field::Dropout, message, "leave it out");
    }
    if gpt {
        gpt_layers(member, cluster)?;
    }
    if !member.training.is_none_or(|training| training.grads_to_none) {
        return refuse(Field::SetToNone, "Megatron's zero_grad frees gradients", "let it free them");
    }
    if member.fills_cache {
        return refuse(
            Field::UseCache,
            "Megatron's training fills no cache of keys and values",
            "switch it off",
        );
    }
    match cluster.sharding {
        Sharding::Ddp | Sharding::Distributed => {}
        Sharding::Fsdp2 | Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => {
            let message = format!("{} does not go with Megatron-core's own layout", cluster.sharding.label());
            return Err(
                Issue::error(Field::Sharding, message).with_fix("choose its distributed optimizer, or DDP")
            );
        }
    }
    let together = cluster.layout.gpus();
    if together == 0 || !cluster.gpus.is_multiple_of(together) {
        let message = format!(
            "{} GPUs cannot each have a part of a model that {} × {} hold together",
            grouped(cluster.gpus),
            grouped(cluster.layout.tensor.saturating_mul(cluster.layout.context)),
            grouped(cluster.layout.pipeline)
        );
        return Err(Issue::error(Field::Gpus, message)
            .with_fix(format!("use a multiple of {}", grouped(together.max(1)))));
    }
    Ok(())
}
