//! What of training with products in 8-bit floats is modelled: what was compared with torchao's own layers.

use super::has_linear_subclass;
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, Job, Loss, Member};
use crate::model::Architecture;
use crate::scenario::software::{ModelCode, Software, Trainer};
use crate::scenario::{Float8, Lengths, Mask, Method, Offloading, Sharding, Tuner, WrappedBy};
use crate::step::device::Device;
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
        let message = "products in 8-bit floats need compute capability 8.9 (RTX 40, L4, H100 and later): torch._scaled_mm stops";
        return refuse(Field::Float8, message.into(), "choose another card, or off");
    }
    if job.members.len() > 1 || !job.round.iter().all(followed) {
        let message = "FP8 training is modelled of fine-tuning alone";
        return refuse(Field::Task, message.into(), "fine-tune, or switch FP8 training off");
    }
    let software = Software::of(member.stack);
    if software.trainer != Trainer::Loop || software.model != ModelCode::Transformers {
        let message = format!("FP8 training under {} is not modelled", member.stack.label());
        return refuse(Field::Stack, message, "choose transformers, or switch FP8 training off");
    }
    if member.method == Method::Qlora {
        let message = "layers that are quantised already do not become torchao's Float8Linear";
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
    let recurrent = architecture.blocks.iter().any(|block| block.mixer.is_recurrent());
    if recurrent || !architecture.towers.is_empty() || has_linear_subclass(architecture) {
        let message = format!("FP8 training of {family} is not modelled");
        return refuse(Field::Float8, message, "choose a decoder of text alone");
    }
    if job.cluster.has_engine() && !matches!(job.cluster.sharding, Sharding::Ddp | Sharding::Fsdp2)
        || job.cluster.layout.gpus() > 1
    {
        let message = "FP8 training is modelled on one GPU, under DDP and under FSDP2";
        return refuse(Field::Sharding, message.into(), "choose FSDP2, or switch FP8 training off");
    }
    if job.cluster.is_fsdp2() && job.cluster.wrapped_by == WrappedBy::Axolotl {
        let message = "accelerate stops: torchao's FP8 under FSDP2 does not go with cpu_ram_efficient_loading, by which what axolotl loads is followed";
        return refuse(
            Field::WrappedBy,
            message.into(),
            "choose a loop of one's own, or switch FP8 training off",
        );
    }
    if member.float8.gathers && member.float8.recipe != Float8::Tensorwise {
        let message = "torchao stops: weights are wrapped for gathers in 8 bits with the tensorwise recipe alone (enable_fsdp_float8_all_gather)";
        return refuse(Field::Float8Gather, message.into(), "choose tensorwise, or switch FP8 gathers off");
    }
    job.round.iter().filter_map(Act::batch).try_for_each(|batch| tokens(member, batch))
}

fn followed(act: &Act) -> bool {
    matches!(
        act,
        Act::Train { loss: Loss::Labels | Loss::Classes, .. }
            | Act::Update { .. }
            | Act::Evaluate { .. }
            | Act::Save { .. }
    )
}

/// The weight's gradient is a sum over the tokens of the micro-batch.
fn tokens(member: &Member, batch: Batch) -> Result<(), Issue> {
    let all = batch.tokens();
    let sums_in_8_bits = match member.float8.recipe {
        Float8::Tensorwise | Float8::Rowwise => !member.float8.pads,
        Float8::RowwiseWithGwHp | Float8::Off => false,
    };
    if !sums_in_8_bits {
        return Ok(());
    }
    if batch.lengths != Lengths::Equal || batch.mask == Mask::PaddingFree {
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
