//! What one of several GPUs has of a model whose layers they share by transformers' own plan (`base_model_tp_plan`): of attention
//! and feed-forward networks its heads and columns, of the head its part of the vocabulary. Norms it has whole, and the embedding
//! where it is not the head.
//!
//! Source: transformers 5.17 models/*/configuration_*.py, configuration_utils.py, distributed/tensor_parallel.py.

use crate::issue::{Field, Issue};
use crate::job::Batch;
use crate::job::{HeadKind, Member};
use crate::model::blocks::{Divided, FeedForward, Linear, Mixer, Mlp, Projection};
use crate::model::modeling::shares_layers_by_plan;
use crate::model::{Architecture, Objective};
use crate::scenario::{
    AttentionKernel, Cluster, CpuOffload, LossKernel, Mask, Method, Optimizer, Precision, Sharding,
};
use crate::units::grouped;

/// The model as each of the GPUs has it.
///
/// # Errors
/// Where it has no such plan, its sizes cannot be divided, or a setting was not compared.
pub(super) fn architecture(
    architecture: &Architecture,
    member: &Member,
    batch: Batch,
    cluster: Cluster,
) -> Result<Architecture, Issue> {
    settings(member, batch, cluster)?;
    let refuse = |what: &str| {
        let message = format!(
            "the plan by which GPUs share the layers of {} is not modelled: {what}",
            architecture.model_type
        );
        Err(Issue::error(Field::TensorParallel, message)
            .with_fix("choose a llama, mistral, qwen2, qwen3, gemma2 or granite, or no tensor parallelism"))
    };
    if !shares_layers_by_plan(&architecture.model_type)
        || architecture.head.objective != Objective::CausalLm
        || !architecture.towers.is_empty()
    {
        return refuse("it was not compared with transformers' code");
    }
    let parts = cluster.layout.tensor.max(1);
    let divided = |number: u64, what: &str| {
        if number.is_multiple_of(parts) {
            return Ok(number / parts);
        }
        let message = format!("{parts} GPUs cannot share the {} {what}", grouped(number));
        let below = (1..parts.min(number)).rev().find(|size| number.is_multiple_of(*size)).unwrap_or(1);
        Err(Issue::error(Field::TensorParallel, message)
            .with_fix(format!("use a tensor parallel size of {below}")))
    };
    let mut own = architecture.clone();
    for block in &mut own.blocks {
        let Mixer::Attention(attention) = &mut block.mixer else {
            return refuse("layers without softmax attention");
        };
        attention.heads = divided(attention.heads, "heads of queries")?;
        attention.kv_heads = divided(attention.kv_heads, "heads of keys and values")?;
        let Projection::Separate { q, k, v } = &mut attention.projection else {
            return refuse("its projections");
        };
        for projection in [q, k, v] {
            columns(projection, projection.output / parts);
        }
        let width = attention.output.input / parts;
        rows(&mut attention.output, width);
        let FeedForward::Dense(Mlp::Gated { gate, up, down, .. }) = &mut block.ffn else {
            return refuse("its feed-forward networks");
        };
        let width = divided(gate.output, "columns of the feed-forward networks")?;
        columns(gate, width);
        columns(up, width);
        rows(down, width);
    }
    let vocab = divided(architecture.vocab, "rows of the vocabulary")?;
    own.head.linear.output = vocab;
    own.head.linear.divided = Divided::Gathered;
    if own.head.tied {
        own.embeddings.tokens.rows = vocab;
    }
    Ok(own)
}

fn columns(linear: &mut Linear, output: u64) {
    (linear.output, linear.divided) = (output, Divided::Columns);
}

fn rows(linear: &mut Linear, input: u64) {
    (linear.input, linear.divided) = (input, Divided::Rows);
}

/// Refuses what was not compared with transformers' code.
fn settings(member: &Member, batch: Batch, cluster: Cluster) -> Result<(), Issue> {
    let refuse = |field, what: &str, fix: &str| {
        let message = format!("{what} beside tensor parallelism is not modelled");
        Err(Issue::error(field, message).with_fix(fix))
    };
    let Cluster { gpus, replicas, sharding, layout, cpu, .. } = cluster;
    if layout.pipeline > 1 || layout.context > 1 {
        let field = if layout.pipeline > 1 { Field::PipelineParallel } else { Field::ContextParallel };
        let message = "transformers divides layers among GPUs, not their order or sequences";
        return Err(Issue::error(field, message).with_fix("choose Megatron-core, or a size of 1"));
    }
    if !gpus.is_multiple_of(layout.tensor) {
        let message = format!(
            "{} GPUs cannot be groups of {} that share the layers",
            grouped(gpus),
            grouped(layout.tensor)
        );
        return Err(
            Issue::error(Field::TensorParallel, message).with_fix("use a number that divides the GPUs")
        );
    }
    let is_all = layout.tensor == gpus;
    match sharding {
        Sharding::Ddp if is_all => {}
        Sharding::Fsdp2 if !is_all => {}
        Sharding::Fsdp2 => {
            let message = "where all GPUs share the layers there are none left that share shards (accelerate: \"no dimension for \
                           FSDP to shard across\")";
            return Err(Issue::error(Field::Sharding, message)
                .with_fix("choose DDP, which has no copies then, or a smaller tensor parallel size"));
        }
        Sharding::Ddp | Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 | Sharding::Distributed => {
            let message = format!(
                "{} of models whose layers GPUs share is nothing that accelerate has (\"composing DDP + TP is currently not supported\")",
                sharding.label()
            );
            return Err(Issue::error(Field::Sharding, message)
                .with_fix("choose FSDP2, or let all GPUs share the layers"));
        }
    }
    if replicas > 1 {
        return refuse(Field::Replicas, "hybrid sharding", "choose one replica");
    }
    if member.head != HeadKind::Language {
        return refuse(Field::Task, "another head than a language model's", "choose fine-tuning");
    }
    if member.method != Method::Full {
        return refuse(Field::Method, "adapters", "choose full fine-tuning");
    }
    if cpu != CpuOffload::Off {
        return refuse(Field::CpuOffload, "CPU offload", "keep all on the GPUs");
    }
    if batch.mask != Mask::None {
        return refuse(Field::Mask, "padding and packing", "choose batches without padding");
    }
    match member.attention {
        AttentionKernel::Sdpa | AttentionKernel::Eager => {}
        AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Math
        | AttentionKernel::Cudnn
        | AttentionKernel::FlashAttn => {
            return refuse(Field::Attention, "this attention kernel", "choose SDPA or eager");
        }
    }
    if member.loss != LossKernel::Standard {
        return refuse(Field::Loss, "another loss", "choose the standard one");
    }
    match member.precision {
        Precision::Bf16 | Precision::AmpBf16 | Precision::AmpBf16Weights => {}
        Precision::Fp32 | Precision::Fp16 | Precision::AmpFp16 | Precision::AmpFp16Weights => {
            return refuse(Field::Precision, member.precision.label(), "choose bf16 mixed, or pure bf16");
        }
    }
    match member.training.map(|training| training.optimizer) {
        None | Some(Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::AdamWForLoop) => Ok(()),
        Some(other) => refuse(Field::Optimizer, other.label(), "choose AdamW"),
    }
}
