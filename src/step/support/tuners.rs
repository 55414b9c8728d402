//! Which of peft's adapters are followed, and where.

use super::runs_transformers;
use crate::issue::{Field, Issue};
use crate::job::{Batch, HeadKind, Member};
use crate::model::blocks::{FeedForward, LinearClass, Mixer};
use crate::model::modeling::{Code, Modeling, Router};
use crate::model::{Architecture, Objective};
use crate::scenario::software::{Software, Trainer};
use crate::scenario::tuners::{scaled, slides_prefix};
use crate::scenario::{
    AttentionKernel, Checkpointing, LoraTargets, Method, Offloading, Precision, Tuner, WeightFormat,
};
use crate::step::forward::Model;
use crate::step::ops::linear::Layer;
use crate::step::ops::tuned::Tuned;

/// What stands in the way of the adapters that were chosen.
pub(super) fn tuner(
    modeling: Modeling,
    architecture: &Architecture,
    member: &Member,
    batch: Batch,
) -> Result<(), Issue> {
    if !member.adapts {
        return Ok(());
    }
    match member.lora.tuner {
        Tuner::Lora => on_router(modeling, architecture, member),
        Tuner::Dora => dora(modeling, member).and_then(|()| on_router(modeling, architecture, member)),
        other @ (Tuner::Ia3 | Tuner::Vera | Tuner::Loha | Tuner::Lokr | Tuner::Oft) => {
            another(other, modeling, architecture, member)
        }
        other @ (Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected) => {
            another(other, modeling, architecture, member)?;
            virtual_tokens(other, modeling, architecture, (member, batch))
        }
    }
}

/// llama4's router is a linear layer that returns two tensors, of which peft asks the type.
fn on_router(modeling: Modeling, architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let routers = architecture.blocks.iter().filter_map(|block| match &block.ffn {
        FeedForward::Moe(moe) => Some(moe.router.name),
        _ => None,
    });
    let named = match member.lora.targets {
        LoraTargets::AllLinear | LoraTargets::AllLinearAndHead => routers.count() > 0,
        LoraTargets::Named | LoraTargets::Qv | LoraTargets::Attention | LoraTargets::Mlp => false,
    };
    if modeling.router != Router::Every || !named || !member.software().peft {
        return Ok(());
    }
    let family = &architecture.model_type;
    let message = format!(
        "peft stops at adapters on {family}'s routers, which return two tensors where a layer returns one (\"'tuple' object has no attribute \
         'dtype'\"), and \"all-linear\" names them"
    );
    refuse(
        Field::LoraTargets,
        message,
        "adapt attention only, or name layers: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj",
    )
}

fn refuse(field: Field, message: String, fix: &str) -> Result<(), Issue> {
    Err(Issue::error(field, message).with_fix(fix))
}

/// LoRA with magnitudes beside it.
fn dora(modeling: Modeling, member: &Member) -> Result<(), Issue> {
    let name = Tuner::Dora.label();
    if !member.software().peft || !runs_transformers(member) {
        let message = format!("{name} is modelled as peft runs it, not as {} does", member.stack.label());
        return refuse(Field::Adapter, message, &member.or_transformers("choose LoRA"));
    }
    let all = matches!(member.lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead);
    if modeling.peft.experts && all {
        let message = format!(
            "peft stops at {name} on experts that are one tensor (\"lora.ParamWrapper does not work\")"
        );
        return refuse(Field::LoraTargets, message, "adapt attention only, or choose LoRA");
    }
    at_last(Tuner::Dora, member)
}

/// Tuners that are no LoRA, where they were compared with peft's own: in transformers' own loop, on models of text that have
/// no experts, without trained embeddings beside them.
fn another(
    tuner: Tuner,
    modeling: Modeling,
    architecture: &Architecture,
    member: &Member,
) -> Result<(), Issue> {
    let (name, family) = (tuner.label(), &architecture.model_type);
    let Software { peft, trainer, liger_kernels, .. } = *member.software();
    // under trl those that adapt layers, over weights in 16 bits
    let is_of_trl = trainer == Trainer::Trl && tuner.adapts_layers() && member.method == Method::Lora;
    let is_compared = trainer == Trainer::Loop || is_of_trl;
    if !peft || !runs_transformers(member) || !is_compared || liger_kernels {
        let message = format!("{name} was not compared under {}", member.stack.label());
        return refuse(Field::Adapter, message, &member.or_transformers("choose LoRA"));
    }
    if member.head != HeadKind::Language {
        return refuse(
            Field::Adapter,
            format!("{name} was not compared with a head of numbers"),
            "choose LoRA",
        );
    }
    if modeling.peft.experts || architecture.encoder.is_some() || !architecture.towers.is_empty() {
        return refuse(Field::Adapter, format!("{name} was not compared on {family}"), "choose LoRA");
    }
    if member.lora.trains_embeddings {
        let message = format!("{name} beside embeddings that are trained whole was not compared");
        return refuse(Field::TrainEmbeddings, message, "leave the embeddings frozen, or choose LoRA");
    }
    if tuner == Tuner::Ia3 && scaled(architecture).is_none() {
        let message = format!(
            "peft has no feed-forward layers of {family} for {name} (\"Please specify `feedforward_modules` in `peft_config`\")"
        );
        return refuse(Field::Adapter, message, "choose another adapter");
    }
    if tuner == Tuner::Ia3
        && member.method == Method::Qlora
        && !member.quantization.makes_rest_float32()
        && member.precision == Precision::Bf16
    {
        let message = format!(
            "PyTorch stops at {name} over 4-bit weights in pure bf16 without k-bit preparation: what is scaled is float32, the next layer's \
             weight is not"
        );
        return refuse(Field::KbitPrepare, message, "switch kbit-prepare on, or choose bf16 mixed");
    }
    if matches!(tuner, Tuner::Loha | Tuner::Lokr) {
        lycoris(tuner, member)?;
    }
    at_last(tuner, member)
}

/// Whose code was compared with virtual tokens before the text, and with a prefix.
fn follows(code: Code, tuner: Tuner) -> bool {
    match code {
        Code::Llama | Code::Gpt2 | Code::GptNeox | Code::Phi => true,
        Code::StableLm | Code::GptJ | Code::GptNeo | Code::Opt | Code::Bloom | Code::Falcon => {
            tuner.lengthens()
        }
        Code::GptBigCode
        | Code::Mpt
        | Code::Qwen
        | Code::Bert
        | Code::Bart
        | Code::ModernBert
        | Code::Gemma4
        | Code::DeepseekSparse
        | Code::OpenAiGpt
        | Code::BioGpt
        | Code::Deberta => false,
    }
}

/// Where virtual tokens do not go, or were not compared with peft's own code.
fn virtual_tokens(
    tuner: Tuner,
    modeling: Modeling,
    architecture: &Architecture,
    (member, batch): (&Member, Batch),
) -> Result<(), Issue> {
    let (name, family) = (tuner.label(), &architecture.model_type);
    let plain = architecture.blocks.iter().all(|block| matches!(block.mixer, Mixer::Attention(_)));
    let decodes = architecture.head.objective == Objective::CausalLm;
    if !plain || !decodes || !follows(modeling.code, tuner) {
        return refuse(Field::Adapter, format!("{name} was not compared on {family}"), "choose LoRA");
    }
    if batch.mask.is_packed() {
        let message =
            format!("{name} does not go with texts that share a sequence: peft drops their positions");
        return refuse(Field::Mask, message, "choose a sequence for each text");
    }
    if !tuner.is_prefix() {
        return Ok(());
    }
    if member.checkpointing != Checkpointing::Off {
        let message = format!(
            "peft stops at {name} on a model that is checkpointed (\"PREFIX_TUNING does not work with gradient checkpointing.\"): \
             a layer that ran again would find its own keys in the cache"
        );
        return refuse(Field::Checkpointing, message, "switch checkpointing off, or choose prompt tuning");
    }
    if member.attention == AttentionKernel::FlashAttn {
        let message = format!("{name} was not compared with the package flash-attn");
        return refuse(Field::Attention, message, "choose sdpa");
    }
    // its cache has layers that see a window, of which it keeps slices
    if slides_prefix(architecture) {
        return refuse(
            Field::Adapter,
            format!("{name} was not compared on {family}"),
            "choose prompt tuning",
        );
    }
    Ok(())
}

/// Where peft stops at LoHa and LoKr: they are as large as the weight that they find.
fn lycoris(tuner: Tuner, member: &Member) -> Result<(), Issue> {
    if member.method == Method::Qlora {
        let said = match tuner {
            Tuner::Loha => "mat1 and mat2 shapes cannot be multiplied",
            _ => "shape is invalid for input",
        };
        let message = format!("peft makes {tuner} of the shape of a packed weight and stops (\"{said}\")");
        return refuse(Field::Method, message, "choose the method LoRA, whose weights are not packed");
    }
    Ok(())
}

/// The layers that a tuner of LyCORIS' does not take.
pub(super) fn layers(model: &Model<'_>) -> Result<(), Issue> {
    let is_transposed = |layer: &Layer| {
        matches!(layer.tuned, Some(Tuned::Loha(_) | Tuned::Lokr(_))) && layer.class == LinearClass::Conv1d
    };
    if !model.layers.iter().flat_map(|layer| &layer.linears).any(is_transposed) {
        return Ok(());
    }
    let message = format!(
        "peft stops at {} on layers of {} (\"currently only adapters for Conv2d, Conv1d, Linear are supported\")",
        model.member.lora.tuner, model.architecture.model_type
    );
    refuse(Field::Adapter, message, "choose another adapter")
}

/// What none of them was compared with.
fn at_last(tuner: Tuner, member: &Member) -> Result<(), Issue> {
    let name = tuner.label();
    if member.method == Method::Qlora
        && !matches!(member.quantization.format, WeightFormat::Nf4 | WeightFormat::Nf4Early)
    {
        let message =
            format!("{name} beside weights in {} is not modelled", member.quantization.format.label());
        return refuse(Field::WeightFormat, message, "choose NF4, or LoRA");
    }
    if member.offloading == Offloading::On {
        let message = format!("activations in the CPU's memory are not modelled of {name}");
        return refuse(Field::Offloading, message, "keep them on the GPU");
    }
    Ok(())
}
