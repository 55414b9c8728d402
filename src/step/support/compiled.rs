//! What of compiled layers is modelled: what was compared with the code that inductor generates.

use crate::hardware::Device;
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, Job, Loss, Member};
use crate::model::Architecture;
use crate::model::blocks::{Activation, Attention, Block, FeedForward, Mixer, Mlp, Projection, Wiring};
use crate::scenario::software::{ModelCode, Trainer};
use crate::scenario::{
    AttentionKernel, Checkpointing, Compile, Lengths, LoraTargets, LossKernel, Mask, Method, Modules,
    Offloading, Precision, StepTime, Tuner,
};

/// The least compute capability, times ten, on which graphs were compared.
const LEAST_CAPABILITY: u32 = 80;

/// The compute capabilities, times ten, on which SDPA takes cuDNN's kernel first.
const CUDNN: std::ops::RangeInclusive<u32> = 90..=109;

/// Numbers of a row from which on rows are padded (torch/_inductor/config.py `padding_stride_threshold`).
const PADDED_FROM: u64 = 1024;

/// The work of scheduling a graph grows with the square of its layers; the deepest llama, that of 405B, has 126.
const MOST_LAYERS: u64 = 256;

/// Elements that each row of a matrix is a multiple of, so that inductor pads none of them (torch/_inductor/config.py
/// `padding_alignment_bytes`, of 16-bit elements) and needs no padding before a product (fx_passes/pad_mm.py).
const ROW: u64 = 64;
/// The same of the rank of adapters, whose elements are of 32 bits.
const RANK: u64 = 4;
/// The same of the tokens, which weights' gradients are summed over.
const TOKENS: u64 = 8;

/// What is compiled, in messages.
fn named(member: &Member) -> &'static str {
    match member.compile {
        Compile::Off | Compile::Layers => "compiled layers",
        Compile::Model => "models that are compiled whole",
    }
}

/// Refuses what of compiled layers and models was not compared.
pub(in crate::step) fn compiled(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
    device: Device,
) -> Result<(), Issue> {
    if member.compile == Compile::Off {
        return Ok(());
    }
    let whole = member.compile == Compile::Model;
    let what = named(member);
    let off = "switch torch.compile off";
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let (Some(training), [_]) = (&member.training, &job.members[..]) else {
        return refuse(Field::Task, format!("{what} are modelled of fine-tuning alone"), off);
    };
    if !job.round.iter().all(followed) {
        let message = format!(
            "{what} are modelled of fine-tuning on texts, without evaluation and answers: their graph without gradients is another one"
        );
        return refuse(Field::Compile, message, off);
    }
    let software = member.software();
    if software.model == ModelCode::Unsloth {
        // of which scenarios stands in theirs (`Scenario::compiled_otherwise`)
        return Ok(());
    }
    let is_written_out = software.model == ModelCode::Transformers && !software.liger_kernels;
    if software.trainer != Trainer::Loop || !is_written_out {
        let message = format!("{what} under {} are not modelled", member.stack.label());
        return refuse(Field::Stack, message, &member.or_transformers("switch torch.compile off"));
    }
    if whole && member.method != Method::Full {
        let message = format!(
            "{what} are modelled where all weights are trained: with adapters and other methods their graph is another one"
        );
        return refuse(Field::Method, message, "choose full fine-tuning, or compile the layers one by one");
    }
    adapters(member, architecture)?;
    if member.float8.is_on() {
        let message = format!(
            "{what} that multiply in 8-bit floats are not modelled: the casts are compiled into their graphs"
        );
        return refuse(Field::Float8, message, "switch FP8 training off, or torch.compile");
    }
    let autocast = member.precision == Precision::AmpBf16 && member.method == Method::Full;
    if whole && member.precision != Precision::Bf16 {
        let message =
            format!("{what} are modelled in bfloat16: under autocast their graph casts every weight");
        return refuse(Field::Precision, message, "choose pure bfloat16, or compile the layers one by one");
    }
    if member.precision != Precision::Bf16 && !autocast {
        let message = format!(
            "{what} are modelled of a model in bfloat16, and of one in float32 under bfloat16's autocast that is trained whole: otherwise their graphs are others"
        );
        return refuse(Field::Precision, message, "choose pure bfloat16, or switch torch.compile off");
    }
    if member.qat.is_on() {
        let message = format!(
            "{what} that round their weights are not modelled: the rounding is compiled into their graphs"
        );
        return refuse(Field::Qat, message, "switch quantisation-aware training off, or torch.compile");
    }
    if member.checkpointing.is_reentrant() {
        let message = "a reentrant checkpoint runs a compiled layer without gradients first, whose graph is another one";
        return refuse(Field::Checkpointing, message.into(), "choose checkpointing with use_reentrant=False");
    }
    if !matches!(member.checkpointing, Checkpointing::Off | Checkpointing::NonReentrant) {
        let message = format!("{what} are modelled with checkpointing of whole layers, or without");
        return refuse(Field::Checkpointing, message, off);
    }
    if member.offloading == Offloading::On {
        let message = format!("activations of {what} in the CPU's memory are not modelled");
        return refuse(Field::Offloading, message, "keep them on the GPU");
    }
    if training.step == StepTime::InBackward {
        let message = format!("{what} with an optimizer that steps in backward are not modelled");
        return refuse(Field::Step, message, "let the optimizer step after backward");
    }
    if member.fills_cache {
        let message = format!("a cache of keys and values is not modelled of {what}");
        return refuse(Field::UseCache, message, "switch the cache off");
    }
    if job.cluster.has_engine() || job.cluster.layout.gpus() > 1 {
        return refuse(
            Field::Sharding,
            format!("{what} are modelled on one GPU, without FSDP2 or DeepSpeed"),
            off,
        );
    }
    if whole && member.loss != LossKernel::Standard {
        let message =
            format!("{what} are modelled with transformers' own loss, which is part of their graph");
        return refuse(Field::Loss, message, "choose the standard loss, or compile the layers one by one");
    }
    if whole
        && (![AttentionKernel::Sdpa, AttentionKernel::Efficient].contains(&member.attention)
            || device.capability < LEAST_CAPABILITY)
    {
        let message = format!(
            "{what} build a mask, which SDPA's memory-efficient kernel and cuDNN's take, and are modelled with these on compute capability 8.0 and later"
        );
        return refuse(Field::Attention, message, "choose SDPA and such a card, or switch torch.compile off");
    }
    let kernels = [AttentionKernel::Sdpa, AttentionKernel::Flash, AttentionKernel::Cudnn];
    if !whole && !kernels.contains(&member.attention) || device.capability < LEAST_CAPABILITY {
        let message = format!(
            "{what} are modelled with SDPA's flash and cuDNN kernels, on compute capability 8.0 and later"
        );
        return refuse(Field::Attention, message, "choose SDPA and such a card, or switch torch.compile off");
    }
    job.round.iter().filter_map(Act::batch).try_for_each(|batch| texts(architecture, batch, (member, device)))
}

/// Refuses adapters beside which layers are compiled to graphs that were not compared.
fn adapters(member: &Member, architecture: &Architecture) -> Result<(), Issue> {
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let off = "switch torch.compile off";
    match member.method {
        Method::Full => return Ok(()),
        Method::Lora => {}
        _ => {
            let message = "compiled layers are modelled of full fine-tuning and of LoRA: the code of other methods is compiled to other graphs";
            return refuse(Field::Method, message, "choose LoRA, or switch torch.compile off");
        }
    }
    let lora = &member.lora;
    if lora.tuner != Tuner::Lora {
        let message = "compiled layers with another tuner than LoRA are not modelled: its code is compiled into their graphs";
        return refuse(Field::Adapter, message, "choose LoRA, or switch torch.compile off");
    }
    let targets = match lora.targets {
        LoraTargets::Named
            if Modules::NONE.with("q_proj").and_then(|q| q.with("v_proj")) == Some(lora.modules) =>
        {
            Some(LoraTargets::Qv)
        }
        LoraTargets::Named => lora.modules.group(architecture),
        group => Some(group),
    };
    if !matches!(targets, Some(LoraTargets::AllLinear | LoraTargets::Attention | LoraTargets::Qv)) {
        let message = "compiled layers are modelled with adapters on all linear layers, on attention's, and on queries and values: with others their graphs are others";
        return refuse(Field::LoraTargets, message, "choose one of these, or switch torch.compile off");
    }
    if lora.dropout {
        let message = "compiled layers whose adapters drop elements are not modelled: the masks are made within their graphs";
        return refuse(Field::LoraDropout, message, "switch the adapters' dropout off, or torch.compile");
    }
    if !lora.fp32_adapters {
        let message = "compiled layers with adapters in bfloat16 are not modelled: nothing is cast between them, and their graphs are others";
        return refuse(Field::Fp32Adapters, message, "leave the adapters in float32 (peft's default)");
    }
    if !lora.rank.is_multiple_of(RANK) {
        let message = "4 does not divide the adapters' rank, and inductor pads products then";
        return refuse(Field::LoraRank, message, "choose a multiple of 4, or switch torch.compile off");
    }
    if lora.trains_embeddings {
        let message = "compiled layers beside trained embeddings and frozen layers were not compared";
        return refuse(Field::TrainEmbeddings, message, off);
    }
    Ok(())
}

fn followed(act: &Act) -> bool {
    matches!(act, Act::Train { loss: Loss::Labels, .. } | Act::Update { .. } | Act::Save { .. })
}

/// What a batch has to be like.
fn texts(
    architecture: &Architecture,
    batch: Batch,
    (member, device): (&Member, Device),
) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let off = "switch torch.compile off";
    if batch.lengths != Lengths::Equal {
        let message =
            "texts of any length have a layer compiled anew, for any length, whose code is another one";
        return refuse(Field::Lengths, message.into(), "choose equal lengths, or switch torch.compile off");
    }
    let what = named(member);
    if batch.mask.is_packed() || batch.mask == Mask::Padded && member.compile != Compile::Model {
        let message = match member.compile {
            Compile::Off | Compile::Layers => {
                "compiled layers are modelled without a mask: with one attention takes another kernel".into()
            }
            Compile::Model => {
                format!("{what} were not compared with positions that start anew in a sequence")
            }
        };
        return refuse(Field::Mask, message, "choose another mask, or switch torch.compile off");
    }
    let whole = (member.compile == Compile::Model).then(|| not_whole(architecture, batch, (member, device)));
    match unfollowed(architecture, batch, (member, device)).or(whole.flatten()) {
        None => Ok(()),
        Some(because) => {
            let family = &architecture.model_type;
            refuse(Field::Compile, format!("{what} of {family} are not modelled: {because}"), off)
        }
    }
}

/// Why a model is not compiled whole as those that were compared, if its layers are such.
fn not_whole(
    architecture: &Architecture,
    batch: Batch,
    (member, device): (&Member, Device),
) -> Option<&'static str> {
    let vocabulary = architecture.head.linear.output;
    if !vocabulary.is_multiple_of(ROW) {
        return Some("64 does not divide its vocabulary, and inductor pads rows then");
    }
    if !batch.length.is_multiple_of(TOKENS) || batch.length > PADDED_FROM && !batch.length.is_multiple_of(ROW)
    {
        return Some(
            "its mask would have its rows padded: 8 has to divide the tokens of a sequence, and 64 those of one of more than 1,024",
        );
    }
    if batch.tokens() < device.multiprocessors.saturating_mul(2) && vocabulary > 8192 {
        return Some("inductor splits the sums of logits where there are so few tokens");
    }
    let mut blocks = architecture.blocks.iter();
    let shape = |block: &Block| match (&block.mixer, &block.ffn) {
        (Mixer::Attention(attention), FeedForward::Dense(Mlp::Gated { gate, .. })) => {
            Some((attention.heads, attention.kv_heads, attention.head_dim, gate.output))
        }
        _ => None,
    };
    let first = blocks.next().and_then(shape);
    if blocks.any(|block| shape(block) != first) {
        return Some("its layers are not all of one size");
    }
    let is_plain = |block: &Block| match &block.mixer {
        Mixer::Attention(attention) => {
            attention.qk_norm.is_none()
                && matches!(&attention.projection, Projection::Separate { q, .. } if !q.bias)
        }
        _ => false,
    };
    if !architecture.blocks.iter().all(is_plain) {
        return Some("the whole graphs of llama's and mistral's code alone are known");
    }
    let (heads, keys) = first.map_or((0, 0), |(heads, keys, ..)| (heads, keys));
    if keys == 1 {
        return Some("with one head of keys inductor copies less");
    }
    let group = heads / keys.max(1);
    if (5..8).contains(&group) {
        return Some("five to seven heads of queries for each of keys were not compared");
    }
    let cudnn = member.attention == AttentionKernel::Sdpa && CUDNN.contains(&device.capability);
    if cudnn && group >= 8 {
        return Some("with cuDNN's kernel eight heads of queries for each of keys were not compared");
    }
    if architecture.depth() < 2 {
        return Some("one layer alone was not compared");
    }
    if architecture.depth() > MOST_LAYERS {
        return Some("of more than 256 layers no graph is scheduled");
    }
    if member.checkpointing != Checkpointing::Off {
        if cudnn {
            return Some(
                "checkpoints were compared with the memory-efficient kernel alone (attention: efficient)",
            );
        }
        if !(2..=4).contains(&group) {
            return Some("checkpoints were compared with two to four heads of queries for each of keys");
        }
        if batch.mask.is_given() {
            return Some("checkpoints were compared without a mask in the batch");
        }
    }
    if architecture
        .blocks
        .iter()
        .any(|block| matches!(&block.mixer, Mixer::Attention(attention) if attention.window.is_some()))
    {
        return Some("its window is part of the mask, which was not compared");
    }
    None
}

/// Why the layers of a model are not compiled as those that were compared, if they are not.
fn unfollowed(
    architecture: &Architecture,
    batch: Batch,
    (member, device): (&Member, Device),
) -> Option<&'static str> {
    if !architecture.family.is_some_and(|family| family.modeling.compiles) {
        return Some("the graphs of llama's, mistral's, qwen2's and qwen3's layers alone are known");
    }
    if !batch.tokens().is_multiple_of(TOKENS) {
        return Some("8 does not divide the tokens of the micro-batch, and inductor pads products then");
    }
    if architecture.hidden > 8192 && batch.tokens() < device.multiprocessors.saturating_mul(2) {
        return Some(
            "inductor splits the sums of its norms' rows where there are so few tokens of so many features",
        );
    }
    if !architecture.hidden.is_multiple_of(ROW) {
        return Some("64 does not divide its hidden size, and inductor pads rows then");
    }
    architecture.blocks.iter().find_map(|block| {
        let Mixer::Attention(attention) = &block.mixer else {
            return Some("its layers have no attention like llama's");
        };
        let (Wiring::PreNorm { .. }, FeedForward::Dense(Mlp::Gated { gate, up, down, act })) =
            (&block.wiring, &block.ffn)
        else {
            return Some("its layers are not wired as llama's");
        };
        if *act != Activation::Silu || [gate, up, down].into_iter().any(|linear| linear.bias) {
            return Some("its feed-forward network is not like llama's");
        }
        if !gate.output.is_multiple_of(ROW) {
            return Some(
                "64 does not divide the width of its feed-forward network, and inductor pads rows then",
            );
        }
        attends(attention, batch.length, member)
    })
}

/// The same of an attention.
fn attends(attention: &Attention, length: u64, member: &Member) -> Option<&'static str> {
    let Projection::Separate { q, k, v } = &attention.projection else {
        return Some("its projections are fused");
    };
    if attention.output.bias || [k, v].into_iter().any(|linear| linear.bias != q.bias) {
        return Some("its projections have other biases than qwen2's");
    }
    let is_plain = !q.bias && attention.qk_norm.is_none();
    if !is_plain && member.method == Method::Lora {
        return Some("adapters beside biases and norms of heads were not compared");
    }
    if !is_plain && member.precision != Precision::Bf16 {
        return Some("autocast over biases and norms of heads was not compared");
    }
    if attention.heads == 1 && member.method == Method::Lora {
        return Some("inductor fuses more where there is one head");
    }
    if attention.window.is_some_and(|window| window <= length) {
        return Some("the sequence is longer than its window, and has a mask then");
    }
    if attention.dropout.is_active(member.dropout) {
        return Some("its attention drops probabilities");
    }
    if attention.head_dim > 256 {
        return Some("flash attention and cuDNN's take heads of up to 256 features");
    }
    (!attention.head_dim.is_multiple_of(ROW))
        .then_some("64 does not divide the size of its heads, and inductor pads rows then")
}
