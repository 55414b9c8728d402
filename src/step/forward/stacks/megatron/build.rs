//! What one rank builds of a model: Megatron-core's modules, of each its part of the heads, columns and vocabulary, and the
//! layers of its stage.

use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::blocks::{
    Activation, FeedForward, Linear, Mixer, Mlp, NormKind, Projection, Rotary, Wiring,
};
use crate::model::{Architecture, Objective};
use crate::scenario::{
    AttentionKernel, Checkpointing, Cluster, ContextComm, Lengths, LossKernel, Mask, Method, Offloading,
    Optimizer, Precision, Sharding, StepTime, TransformerImpl,
};
use crate::units::grouped;

/// The most stages, with virtual ones, that a micro-batch goes through: more than the deepest models have layers.
const MOST_STAGES: u64 = 1024;

/// Names of the modules, by which their parameters are put in Megatron's order.
pub(super) const QKV: &str = "self_attention.linear_qkv";
pub(super) const PROJECTION: &str = "self_attention.linear_proj";
pub(super) const FC1: &str = "mlp.linear_fc1";
pub(super) const FC2: &str = "mlp.linear_fc2";
pub(super) const INPUT_NORM: &str = "input_layernorm";
pub(super) const MLP_NORM: &str = "pre_mlp_layernorm";

/// Whether each GPU has some of a layer's inputs (`RowParallelLinear`), so that its outputs are sums; the others have some of the
/// outputs, and the gradient of the input is a sum.
pub(super) fn is_row_parallel(name: &str) -> bool {
    [PROJECTION, FC2].contains(&name)
}

/// The part of a model that one rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) struct Share {
    /// Its stage, counted from 0.
    pub stage: u64,
    /// Layers that it runs at a time.
    pub layers: usize,
    /// How often it does so: 1 where stages are not interleaved.
    pub times: usize,
    pub is_first: bool,
    pub is_last: bool,
    /// Whether the embedding is the head too, of which the first and the last stage have a copy each.
    pub shares_embedding: bool,
}

impl Share {
    /// All of a model.
    pub const WHOLE: Share = Share {
        stage: 0,
        layers: usize::MAX,
        times: 1,
        is_first: true,
        is_last: true,
        shares_embedding: false,
    };

    /// Whether it is all of a model's layers, run at a time.
    pub fn is_whole(&self) -> bool {
        self.is_first && self.is_last && self.times == 1
    }

    /// That of a stage.
    pub fn of(cluster: Cluster, model: &Architecture) -> Share {
        let (layout, layers) = (cluster.layout, model.order.len());
        let stage = layout.stage.clamp(1, layout.pipeline.max(1)) - 1;
        let each = layers / usize::try_from(layout.pipeline).unwrap_or(usize::MAX).max(1);
        let at_a_time = match usize::try_from(layout.interleaved).unwrap_or(usize::MAX) {
            0 => each,
            own => own.min(each),
        };
        Share {
            stage,
            layers: at_a_time,
            times: (each / at_a_time.max(1)).max(1),
            is_first: stage == 0,
            is_last: stage + 1 == layout.pipeline,
            shares_embedding: model.head.tied && layout.pipeline > 1,
        }
    }
}

/// transformers' blocks as a rank of Megatron-core builds them.
pub(in crate::step::forward::stacks) fn architecture(
    architecture: &Architecture,
    member: &Member,
    batch: Batch,
    cluster: Cluster,
) -> Result<Architecture, Issue> {
    settings(member, batch, cluster)?;
    let refuse = |what: &str| {
        let message = format!("Megatron-core's {} is not modelled: {what}", architecture.model_type);
        Err(Issue::error(Field::Stack, message).with_fix("choose a llama, or transformers"))
    };
    if architecture.encoder.is_some() || architecture.head.objective != Objective::CausalLm {
        return refuse("an encoder");
    }
    let embeddings = &architecture.embeddings;
    if embeddings.positions.is_some() || embeddings.scaled || embeddings.project_in.is_some() {
        return refuse("its embedding");
    }
    if architecture.head.softcap || architecture.head.scaled || architecture.head.transform.is_some() {
        return refuse("its head");
    }
    if !architecture.towers.is_empty() || !architecture.extra.is_empty() {
        return refuse("parts beside its layers");
    }
    if !matches!(&architecture.final_norm, Some(norm) if norm.kind == NormKind::Rms) {
        return refuse("norms that are no RMSNorm");
    }
    let layout = cluster.layout;
    let tensor = layout.tensor.max(1);
    let divided = |number: u64, what: &str| {
        if number.is_multiple_of(tensor) {
            return Ok(number / tensor);
        }
        let message =
            format!("{tensor} GPUs cannot share the {} {what}: Megatron gives each as many", grouped(number));
        Err(Issue::error(Field::TensorParallel, message).with_fix(fix_of(number, tensor)))
    };
    stages(architecture, cluster)?;
    let mut own = architecture.clone();
    for block in &mut own.blocks {
        let Mixer::Attention(attention) = &mut block.mixer else {
            return refuse("layers without softmax attention");
        };
        if attention.rotary != Rotary::Full {
            return refuse("its positions");
        }
        if attention.softcap || attention.qk_norm.is_some() || attention.sinks || attention.gated {
            return refuse("what its attention has beyond llama's");
        }
        if attention.window.is_some_and(|window| window < batch.length) {
            return refuse("a sliding window");
        }
        attention.window = None;
        if layout.has_transformer_engine()
            && (attention.head_dim > 128 || !attention.head_dim.is_multiple_of(8))
        {
            return refuse("heads that cuDNN's attention is not followed with: a multiple of 8 up to 128");
        }
        let Projection::Separate { q, k, .. } = &attention.projection else {
            return refuse("its projections");
        };
        if q.bias || k.bias || attention.output.bias {
            return refuse("biases");
        }
        for (heads, what) in
            [(attention.heads, "heads of queries"), (attention.kv_heads, "heads of keys and values")]
        {
            let all = layout.tensor.saturating_mul(layout.context);
            if layout.context > 1 && !heads.is_multiple_of(all) {
                let message = format!("{} GPUs cannot share the {} {what}", grouped(all), grouped(heads));
                let fix = "use a smaller context parallel size: all-to-all divides heads once more";
                return Err(Issue::error(Field::ContextParallel, message).with_fix(fix));
            }
        }
        attention.heads = divided(attention.heads, "heads of queries")?;
        attention.kv_heads = divided(attention.kv_heads, "heads of keys and values")?;
        let width = |heads: u64| heads.saturating_mul(attention.head_dim);
        let joint = width(attention.kv_heads).saturating_mul(2).saturating_add(width(attention.heads));
        attention.projection = Projection::Fused(Linear::new(QKV, q.input, joint));
        attention.output = Linear::new(PROJECTION, width(attention.heads), attention.output.output);
        // the modules are made in this order
        block.layout = &[PROJECTION];
        let FeedForward::Dense(Mlp::Gated { gate, down, act, .. }) = &block.ffn else {
            return refuse("its feed-forward networks");
        };
        if *act != Activation::Silu || gate.bias || down.bias {
            return refuse("its feed-forward networks");
        }
        let columns = divided(gate.output, "columns of the feed-forward networks")?;
        block.ffn = FeedForward::Dense(Mlp::GatedFused {
            gate_up: Linear::new(FC1, gate.input, columns.saturating_mul(2)),
            down: Linear::new(FC2, columns, down.output),
            act: *act,
        });
        let Wiring::PreNorm { attention, mlp } = &mut block.wiring else { return refuse("its wiring") };
        for (norm, name) in [(attention, INPUT_NORM), (mlp, MLP_NORM)] {
            if norm.kind != NormKind::Rms {
                return refuse("norms that are no RMSNorm");
            }
            norm.name = name;
        }
    }
    let part = Share::of(cluster, architecture);
    own.order = of_rank(&architecture.order, part, cluster.layout.pipeline);
    let vocab = divided(architecture.vocab, "rows of the vocabulary")?;
    own.vocab = vocab;
    own.embeddings.tokens.rows = if part.is_first { vocab } else { 0 };
    own.head.linear.output = if part.is_last { vocab } else { 0 };
    if cluster.layout.pipeline > 1 {
        // the last stage has a copy of its own
        own.head.tied = false;
    }
    if !part.is_last {
        own.final_norm = None;
    }
    Ok(own)
}

/// What would be right in the place of a size that does not divide a number.
fn fix_of(number: u64, size: u64) -> String {
    let below = (1..size.min(number)).rev().find(|size| number.is_multiple_of(*size)).unwrap_or(1);
    format!("use a tensor parallel size of {below}")
}

/// Refuses stages of which one would have other layers than the others.
fn stages(architecture: &Architecture, cluster: Cluster) -> Result<(), Issue> {
    let layout = cluster.layout;
    let (layers, stages) = (architecture.order.len() as u64, layout.pipeline.max(1));
    if stages > layers.max(1) || !layers.is_multiple_of(stages) {
        let message =
            format!("{} stages cannot have as many each of the {} layers", grouped(stages), grouped(layers));
        let fix = (1..=stages.min(layers)).rev().find(|stages| layers.is_multiple_of(*stages));
        return Err(Issue::error(Field::PipelineParallel, message)
            .with_fix(format!("use {} stages", fix.unwrap_or(1))));
    }
    if layout.stage > layout.pipeline {
        let message = format!("there is no stage {} of {}", grouped(layout.stage), grouped(layout.pipeline));
        return Err(Issue::error(Field::PipelineStage, message)
            .with_fix(format!("choose one up to {}", grouped(layout.pipeline))));
    }
    let each = layers / stages;
    if layout.interleaved > 0 && layout.pipeline > 1 && !each.is_multiple_of(layout.interleaved) {
        let message = format!(
            "the {} layers of a stage cannot be run {} at a time",
            grouped(each),
            grouped(layout.interleaved)
        );
        let fix = (1..=layout.interleaved.min(each)).rev().find(|layers| each.is_multiple_of(*layers));
        return Err(Issue::error(Field::Interleaved, message).with_fix(format!("use {}", fix.unwrap_or(1))));
    }
    let share = Share::of(cluster, architecture);
    let visited = stages.saturating_mul(share.times as u64);
    if visited > MOST_STAGES {
        let message =
            format!("a pipeline of {} stages, virtual ones counted, is not followed", grouped(visited));
        return Err(Issue::error(Field::PipelineParallel, message)
            .with_fix(format!("use at most {}", grouped(MOST_STAGES))));
    }
    let kinds = |stage: &[u16]| stage.to_vec();
    let mut parts = architecture.order.chunks(usize::try_from(each).unwrap_or(usize::MAX).max(1));
    let first = parts.next().map(kinds);
    if parts.any(|part| Some(kinds(part)) != first) {
        let message = "layers that differ are not modelled over several stages";
        return Err(Issue::error(Field::PipelineParallel, message).with_fix("use one stage"));
    }
    Ok(())
}

/// The layers of a rank, part after part: interleaved stages have every so many'th.
fn of_rank(order: &[u16], part: Share, stages: u64) -> Vec<u16> {
    let stages = usize::try_from(stages).unwrap_or(usize::MAX);
    let stage = usize::try_from(part.stage).unwrap_or(usize::MAX);
    let first = |time: usize| time.saturating_mul(stages).saturating_add(stage).saturating_mul(part.layers);
    let layers = |time: usize| order.iter().skip(first(time)).take(part.layers).copied();
    (0..part.times).flat_map(layers).collect()
}

/// Refuses numbers of micro-batches at which Megatron's interleaved schedule stops.
pub(in crate::step) fn micro_batches(cluster: Cluster, times: u64) -> Result<(), Issue> {
    let layout = cluster.layout;
    if layout.pipeline <= 1 || layout.interleaved == 0 || times.is_multiple_of(layout.pipeline) && times > 0 {
        return Ok(());
    }
    let message = format!(
        "interleaved stages take micro-batches in groups of {}, and a step has {}",
        grouped(layout.pipeline),
        grouped(times)
    );
    let next = times.div_ceil(layout.pipeline).max(1).saturating_mul(layout.pipeline);
    Err(Issue::error(Field::Accumulation, message).with_fix(format!("use {}", grouped(next))))
}

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
    // a causal mask gives each GPU of a sequence two parts of it, one from either end
    let parts = if layout.context > 1 { layout.context.saturating_mul(2) } else { 1 };
    let parts = parts.saturating_mul(layout.shares_tokens());
    if !batch.length.is_multiple_of(parts) {
        let message =
            format!("{} tokens cannot be divided into {} equal parts", grouped(batch.length), grouped(parts));
        let next = batch.length.div_ceil(parts).saturating_mul(parts);
        return Some(
            Issue::error(Field::Sequence, message).with_fix(format!("use {} tokens", grouped(next))),
        );
    }
    if layout.context > 1 && layout.context_comm == ContextComm::P2p {
        let message = "keys and values that go round from GPU to GPU are not followed";
        return Some(Issue::error(Field::ContextComm, message).with_fix("choose a2a"));
    }
    None
}

/// Refuses what was not compared with Megatron-core's code.
fn settings(member: &Member, batch: Batch, cluster: Cluster) -> Result<(), Issue> {
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if member.method != Method::Full {
        let message = "Megatron-core has no adapters of its own";
        return refuse(Field::Method, message, "choose full fine-tuning");
    }
    match member.precision {
        Precision::Bf16 | Precision::AmpBf16Weights => {}
        Precision::Fp32 | Precision::Fp16 | Precision::AmpBf16 | Precision::AmpFp16 => {
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
        Checkpointing::Reentrant | Checkpointing::Offloaded => {
            let message = "Megatron-core recomputes whole layers, or attention alone";
            return refuse(Field::Checkpointing, message, "choose \"On\", or attention only");
        }
    }
    match (member.loss, cluster.layout.layers) {
        (LossKernel::Standard, _) | (LossKernel::TransformerEngine, TransformerImpl::TransformerEngine) => {}
        (LossKernel::TransformerEngine, TransformerImpl::Local) => {
            let message = "Transformer Engine's cross entropy is followed beside its layers";
            return refuse(Field::Loss, message, "choose the default, or Transformer Engine's layers");
        }
        (LossKernel::Full | LossKernel::Liger | LossKernel::Cut | LossKernel::Chunked, _) => {
            let message = "Megatron-core is followed with its own cross entropy and Transformer Engine's";
            return refuse(Field::Loss, message, "choose the default");
        }
    }
    if batch.mask != Mask::None || batch.lengths != Lengths::Equal {
        let message = "Megatron-core is followed with sequences of one length and its causal mask";
        return refuse(Field::Mask, message, "choose no mask and equal lengths");
    }
    if member.dropout.is_some_and(|dropout| dropout > 0) {
        return refuse(Field::Dropout, "Megatron-core is followed without dropout", "leave it out");
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
