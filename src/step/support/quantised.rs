//! What of quantised and 16-bit weights cannot be, or was not compared.

use super::{has_linear_subclass, runs_transformers};
use crate::issue::{Field, Issue};
use crate::job::{HeadKind, Member};
use crate::model::blocks::{FeedForward, Param, ParamRole};
use crate::model::modeling::scales_activations;
use crate::model::{Architecture, Objective};
use crate::scenario::software::{Quantiser, Software, Trainer};
use crate::scenario::{Precision, Tuner, WeightFormat};
use crate::units::grouped;

/// An issue where groups of weights do not end with a column: gptqmodel's layers refuse such a checkpoint.
fn whole_groups(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    // a whole column is a group of any size
    let Ok(size) = u64::try_from(member.quantization.group.size()) else { return Ok(()) };
    let mut cut = None;
    for block in &architecture.blocks {
        block.visit(&mut |param: Param| {
            if let (ParamRole::LinearWeight, [_, inputs]) = (param.role, &param.shape[..])
                && !inputs.is_multiple_of(size)
            {
                cut.get_or_insert(*inputs);
            }
        });
    }
    let Some(inputs) = cut else { return Ok(()) };
    let message = format!(
        "a column of {} weights is no number of groups of {size}: no checkpoint can be so",
        grouped(inputs)
    );
    Err(Issue::error(Field::GroupSize, message).with_fix("choose a smaller group, or the whole column"))
}

/// Where 8-bit weights were compared with bitsandbytes' own and torchao's, and those of a checkpoint of GPTQ's or AWQ's with gptqmodel's.
pub(super) fn eight_bit(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let format = match member.quantization.format {
        WeightFormat::Nf4 | WeightFormat::Nf4Early => return Ok(()),
        format @ (WeightFormat::Int8
        | WeightFormat::TorchaoInt8
        | WeightFormat::Gptq4
        | WeightFormat::Gptq8
        | WeightFormat::Awq4
        | WeightFormat::Awq4Cuda) => format,
    };
    if let Some(method) = format.checkpoint() {
        checkpoint(architecture, method)?;
        whole_groups(architecture, member)?;
    }
    if !format.is_of_bitsandbytes() && has_linear_subclass(architecture) {
        let message = format!(
            "layers of {} compute with their weight by themselves: {} of them is not modelled",
            architecture.model_type,
            format.label()
        );
        return Err(Issue::error(Field::WeightFormat, message).with_fix("choose NF4"));
    }
    if !format.is_of_bitsandbytes() && member.precision == Precision::Fp32 {
        let message = format!("weights in {} in a float32 model were not compared", format.label());
        return Err(Issue::error(Field::Precision, message).with_fix("choose bf16"));
    }
    let Software { quantiser, trainer, liger_kernels, .. } = *member.software();
    if member.adapts && member.lora.tuner != Tuner::Lora {
        let message = format!("{} over weights in {} is not modelled", member.lora.tuner, format.label());
        return Err(Issue::error(Field::WeightFormat, message).with_fix("choose NF4, or LoRA"));
    }
    // under trl's trainers bitsandbytes' own
    let is_of_trl = trainer == Trainer::Trl && format.is_of_bitsandbytes();
    let is_compared = trainer == Trainer::Loop || is_of_trl;
    if is_compared && quantiser == Quantiser::Transformers && !liger_kernels {
        return Ok(());
    }
    let message = format!("weights in {} under {} are not modelled", format.label(), member.stack.label());
    Err(Issue::error(Field::WeightFormat, message).with_fix(member.or_transformers("choose NF4")))
}

/// float16 autocast over float16 weights: its scaler divides gradients of float32 alone, and under what it was compared.
pub(super) fn float16_weights(member: &Member) -> Result<(), Issue> {
    if member.precision != Precision::AmpFp16Weights {
        return Ok(());
    }
    let Software { trainer, liger_kernels, .. } = *member.software();
    let trains_half = !member.adapts
        || !member.lora.fp32_adapters
        || member.lora.trains_embeddings
        || matches!(member.head, HeadKind::Numbers(_));
    let message = if !runs_transformers(member) || trainer != Trainer::Loop || liger_kernels {
        format!("{} under {} was not compared", member.precision.label(), member.stack.label())
    } else if member.training.is_some() && trains_half {
        "PyTorch's gradient scaler stops at gradients of float16 (\"Attempting to unscale FP16 gradients\")"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(Issue::error(Field::Precision, message)
        .with_fix("choose fp16 mixed over fp32 weights, or bf16 mixed"))
}

/// What a checkpoint of GPTQ's or AWQ's cannot be, or was not compared.
fn checkpoint(architecture: &Architecture, method: &str) -> Result<(), Issue> {
    let family = &architecture.model_type;
    let experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    let message = if experts {
        format!(
            "the experts of {family} are tensors of three dimensions in transformers 5, which {method}'s checkpoints are not loaded into"
        )
    } else if architecture.head.objective != Objective::CausalLm || architecture.vision().is_some() {
        format!("only decoders of text are loaded with {method}'s weights, which {family} is not")
    } else if method == "AWQ" && scales_activations(family) {
        format!("the activations of {family} are scaled beside AWQ's weights, which is not modelled")
    } else {
        return Ok(());
    };
    Err(Issue::error(Field::WeightFormat, message).with_fix("choose NF4"))
}
