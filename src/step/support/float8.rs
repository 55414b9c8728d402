//! What of training with products in 8-bit floats is modelled: what was compared with torchao's own layers.

use super::has_linear_subclass;
use crate::hardware::Device;
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, Job, Loss, Member};
use crate::model::Architecture;
use crate::scenario::software::{ModelCode, Trainer};
use crate::scenario::{Float8, Float8Layers, Lengths, Method, Offloading, Sharding, Tuner, WrappedBy};
use crate::step::float8::MULTIPLE;
use crate::units::grouped;

/// The least compute capability, times ten, with products in 8-bit floats (`torch._scaled_mm`).
const LEAST_CAPABILITY: u32 = 89;

/// Refuses what of 8-bit products does not run or was not compared.
pub(in crate::step) fn float8(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
    device: Device,
) -> Result<(), Issue> {
    if !member.float8.is_on() || member.training.is_none() {
        return Ok(());
    }
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let family = &architecture.model_type;
    if device.capability < LEAST_CAPABILITY {
        let message = "products in 8-bit floats are followed on NVIDIA's cards of compute capability 8.9 and later (RTX 40, L4, H100), where torch._scaled_mm runs; an amount of memory stands for a card of 8.0";
        return refuse(
            Field::Float8,
            message.into(),
            "choose such a card by name, or switch FP8 training off",
        );
    }
    if job.round.iter().any(|act| matches!(act, Act::Merge { .. })) {
        let message = "adapters that are merged after FP8 training were not compared";
        return refuse(Field::Merging, message.into(), "switch merging off");
    }
    if job.members.len() > 1 || !job.round.iter().all(followed) {
        let message = "FP8 training is modelled of fine-tuning on texts alone";
        return refuse(Field::Task, message.into(), "fine-tune, or switch FP8 training off");
    }
    let software = member.software();
    if software.trainer != Trainer::Loop || software.model != ModelCode::Transformers {
        let message = format!("FP8 training under {} is not modelled", member.stack.label());
        return refuse(Field::Stack, message, &member.or_transformers("switch FP8 training off"));
    }
    if member.method == Method::Qlora {
        let message = "torchao puts a Float8Linear in the place of bitsandbytes' layers too, which then cannot multiply packed weights";
        return refuse(Field::Method, message.into(), "choose LoRA or full fine-tuning");
    }
    if member.adapts && (member.lora.tuner != Tuner::Lora || member.lora.trains_embeddings) {
        let message = "FP8 training is modelled of LoRA's adapters alone";
        return refuse(Field::Adapter, message.into(), "choose LoRA, or switch FP8 training off");
    }
    if member.offloading == Offloading::On {
        let message = "activations in the CPU's memory beside FP8 training are not modelled";
        return refuse(Field::Offloading, message.into(), "keep them on the GPU");
    }
    if let Some(because) = keeps_layers(architecture) {
        let message = format!("FP8 training of {family} is not modelled: {because}");
        return refuse(Field::Float8, message, "choose another model, or switch FP8 training off");
    }
    if job.cluster.has_engine() && !matches!(job.cluster.sharding, Sharding::Ddp | Sharding::Fsdp2)
        || job.cluster.layout.gpus() > 1
    {
        let message = "FP8 training is modelled on one GPU, under DDP and under FSDP2";
        return refuse(Field::Sharding, message.into(), "choose FSDP2, or switch FP8 training off");
    }
    if job.cluster.is_fsdp2() && job.cluster.wrapped_by == WrappedBy::Axolotl {
        let message = "accelerate stops: torchao's FP8 under FSDP2 does not go with cpu_ram_efficient_loading, by which what axolotl loads is followed";
        let fix =
            "switch FP8 training off, or set cpu_ram_efficient_loading to false, which is not followed here";
        return refuse(Field::WrappedBy, message.into(), fix);
    }
    if job.cluster.is_fsdp2() && job.cluster.wrapped_by == WrappedBy::Accelerate {
        let message = "FP8 training was not compared under FSDP2 as accelerate wraps a model";
        return refuse(
            Field::WrappedBy,
            message.into(),
            "choose fully_shard in a loop of one's own, or switch FP8 training off",
        );
    }
    if job.cluster.is_fsdp2() && member.adapts {
        let message = "adapters beside FP8 training under FSDP2 were not compared";
        return refuse(
            Field::Method,
            message.into(),
            "choose full fine-tuning, DDP, or switch FP8 training off",
        );
    }
    wrapped(job, member, architecture)?;
    job.round.iter().filter_map(Act::batch).try_for_each(|batch| tokens(member, batch))
}

/// Why linear layers of the model were not compared with others in their place, if they were not.
pub(super) fn keeps_layers(architecture: &Architecture) -> Option<&'static str> {
    if architecture.blocks.iter().any(|block| block.mixer.is_recurrent()) {
        Some("it keeps a state from token to token")
    } else if !architecture.towers.is_empty() {
        Some("it has parts beside the text's")
    } else if has_linear_subclass(architecture) {
        Some("its layers compute with their weight by themselves")
    } else if architecture.embeddings.project_in.is_some() {
        Some("linear layers stand before its layers")
    } else {
        None
    }
}

/// What does not go with weights that are wrapped for gathers in 8 bits, or a choice of layers.
fn wrapped(job: &Job, member: &Member, architecture: &Architecture) -> Result<(), Issue> {
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let float8 = member.float8;
    if float8.layers == Float8Layers::Large && float8.recipe == Float8::RowwiseWithGwHp {
        let message = "torchao has no choice of layers by shape for this recipe: _auto_filter_for_recipe raises NotImplementedError";
        return refuse(Field::Float8Layers, message, "choose tensorwise or rowwise, or other layers");
    }
    if !float8.gathers {
        return Ok(());
    }
    if float8.recipe != Float8::Tensorwise {
        let message = "torchao stops: weights are wrapped for gathers in 8 bits with the tensorwise recipe alone (enable_fsdp_float8_all_gather)";
        return refuse(Field::Float8Gather, message, "choose tensorwise, or switch FP8 gathers off");
    }
    if float8.layers == Float8Layers::All && architecture.head.tied {
        let message = "the output head shares its weight with the embedding: wrapping it makes a second parameter of it, which is trained apart";
        return refuse(Field::Float8Layers, message, "choose all but the head, or switch FP8 gathers off");
    }
    if job.round.iter().any(|act| matches!(act, Act::Save { .. })) {
        let message = "save_pretrained stops at weights that are wrapped for gathers in 8 bits: they have no storage of their own";
        return refuse(Field::Saving, message, "switch saving off, or FP8 gathers");
    }
    Ok(())
}

pub(super) fn followed(act: &Act) -> bool {
    matches!(
        act,
        Act::Train { loss: Loss::Labels, .. } | Act::Update { .. } | Act::Evaluate { .. } | Act::Save { .. }
    )
}

/// The weight's gradient is a sum over the tokens of the micro-batch.
fn tokens(member: &Member, batch: Batch) -> Result<(), Issue> {
    let all = batch.tokens();
    if member.float8.takes_any_rows() {
        return Ok(());
    }
    if batch.lengths != Lengths::Equal {
        let message = "the gradients of weights are products over the micro-batch's tokens in 8 bits, of which 16 has to divide the number: texts of any length stop it";
        let fix = "pad the operands (pad_inner_dim), or choose equal lengths";
        return Err(Issue::error(Field::Float8Padding, message).with_fix(fix));
    }
    if all.is_multiple_of(MULTIPLE) {
        return Ok(());
    }
    let message = format!(
        "PyTorch stops in backward: 16 has to divide the {} tokens of the micro-batch (\"Expected trailing dimension of mat1 to be divisible by 16\")",
        grouped(all)
    );
    let fix = "pad the operands (pad_inner_dim), or choose a length that 16 divides";
    Err(Issue::error(Field::Float8Padding, message).with_fix(fix))
}
