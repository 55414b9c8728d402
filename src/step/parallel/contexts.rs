//! What of sequences that GPUs share outside of Megatron-core is modelled: PyTorch's context parallelism as transformers' Trainer and accelerate
//! run it (`ParallelismConfig(cp_size)`).
//!
//! Sources: accelerate 1.15 parallelism_config.py, big_modeling.py `_attach_context_parallel_hooks`; transformers 5.17 trainer.py
//! `_prepare_context_parallel_inputs`; torch 2.11 distributed/tensor/experimental/_context_parallel.

use crate::issue::{Field, Issue};
use crate::job::{Act, Job, Loss, Member};
use crate::model::Architecture;
use crate::model::blocks::{Attention, Mixer};
use crate::model::modeling::{Code, Modeling};
use crate::scenario::software::Trainer;
use crate::scenario::{
    AttentionKernel, Cluster, CpuOffload, Lengths, LossKernel, Mask, Precision, WrappedBy,
};
use crate::units::grouped;

/// Among how many GPUs each sequence is divided where that is followed of transformers' modules; 1 where it is not.
pub(super) fn followed(cluster: Cluster) -> u64 {
    let by_accelerate =
        cluster.is_many() && cluster.is_fsdp2() && cluster.wrapped_by == WrappedBy::Accelerate;
    if by_accelerate { cluster.layout.context.max(1) } else { 1 }
}

/// An issue where a library divides sequences in another way than is followed, or not at all.
pub(super) fn unfollowed(cluster: Cluster, member: &Member) -> Issue {
    let library = member.stack.label();
    let message = match member.software().trainer {
        Trainer::Loop if cluster.is_fsdp2() && cluster.wrapped_by == WrappedBy::Axolotl => {
            "axolotl divides sequences by a package of its own (ring-flash-attn), which is not modelled".to_owned()
        }
        // Liger's rotary kernel copies the gradients of queries and keys that come head after head: it was run, and is not followed
        Trainer::Loop if followed(cluster) > 1 => {
            format!("{library} beside attention that GPUs share is not modelled")
        }
        Trainer::Loop => {
            "sequences divided among GPUs are followed under FSDP2 as accelerate wraps it (ParallelismConfig(cp_size)): DeepSpeed's Ulysses and \
             context_parallel in a loop of one's own are not modelled"
                .to_owned()
        }
        Trainer::Trl => "what trl's trainers do with sequences that GPUs share is not modelled".to_owned(),
        Trainer::Torchtitan => "torchtitan's context parallelism is not modelled".to_owned(),
        Trainer::Torchtune | Trainer::Megatron => format!("{library} does not divide sequences among GPUs"),
    };
    let fix = "choose transformers under FSDP2 with wrapped-by accelerate, Megatron-core, or a size of 1";
    Issue::error(Field::ContextParallel, message).with_fix(fix)
}

/// What stops a run whose sequences are divided, and what of it was not compared.
pub(super) fn supported(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
    modeling: Modeling,
) -> Result<(), Issue> {
    let cluster = job.cluster;
    let refuse = |field, what: String, fix: &str| Err(Issue::error(field, what).with_fix(fix));
    let not_compared = |field, what: &str, fix: &str| {
        refuse(field, format!("{what} where GPUs share each sequence was not compared"), fix)
    };
    by_mesh(cluster)?;
    let attends = |mixer: &Mixer| matches!(mixer, Mixer::Attention(attention) if attention.window.is_none());
    if !architecture.blocks.iter().all(|block| attends(&block.mixer)) {
        let message = "layers that look at a window, or that are no plain attention, cannot be divided so: accelerate stops (\"Context parallelism does \
                       not support attention layers of type\") or they were not compared";
        return refuse(
            Field::Model,
            message.into(),
            "choose a model whose layers all see the whole text, or a context parallel size of 1",
        );
    }
    if modeling.code != Code::Llama {
        let what = format!("the code of {}", architecture.model_type);
        return not_compared(Field::Model, &what, "choose another model, or a context parallel size of 1");
    }
    if !architecture.towers.is_empty() {
        return not_compared(Field::Model, "a model that sees", "choose a text decoder");
    }
    let mut attentions = architecture.blocks.iter().filter_map(|block| block.mixer.attention());
    if attentions
        .any(|attention: &Attention| !attention.head_dim.is_multiple_of(8) || attention.head_dim > 256)
    {
        return not_compared(
            Field::Model,
            "heads that are no multiple of 8 or wider than 256",
            "choose another model",
        );
    }
    if cluster.cpu != CpuOffload::Off {
        return not_compared(Field::CpuOffload, "what lies in the CPU's memory", "keep all on the GPUs");
    }
    if !matches!(member.precision, Precision::AmpBf16 | Precision::AmpBf16Weights) {
        let what = member.precision.label();
        return not_compared(Field::Precision, what, "choose bf16 mixed");
    }
    if architecture.has_experts() {
        return not_compared(Field::Model, "a mixture of experts", "choose a dense model");
    }
    match member.attention {
        AttentionKernel::Sdpa | AttentionKernel::Flash | AttentionKernel::Cudnn => {}
        AttentionKernel::Eager | AttentionKernel::FlashAttn => {
            let message =
                "transformers' Trainer stops (\"Context parallelism is supported only with SDPA attention\")";
            return refuse(Field::Attention, message.into(), "choose SDPA");
        }
        AttentionKernel::Efficient | AttentionKernel::Math => {
            return not_compared(Field::Attention, member.attention.label(), "choose SDPA");
        }
    }
    if !matches!(member.loss, LossKernel::Standard | LossKernel::Liger) {
        return not_compared(Field::Loss, member.loss.label(), "choose the standard loss");
    }
    for act in &job.round {
        match act {
            Act::Train { loss: Loss::Labels, .. } | Act::Update { .. } | Act::Save { .. } => {}
            Act::Evaluate { .. } => {
                return not_compared(Field::Evaluation, "an evaluation", "switch evaluation off");
            }
            _ => return not_compared(Field::Task, "what is no fine-tuning", "choose fine-tuning"),
        }
        let Some(batch) = act.batch() else { continue };
        if batch.mask != Mask::Ones {
            let message = match batch.mask {
                Mask::Padded | Mask::Packed | Mask::PaddingFree => {
                    "attention that GPUs share has no mask but the causal one: accelerate drops what tells padding or texts apart"
                }
                Mask::None | Mask::Ones => {
                    "without a mask transformers takes the order in which GPUs share a sequence for texts that share a row, and makes a mask that nothing \
                     reads: that is not modelled"
                }
            };
            return refuse(
                Field::Mask,
                message.into(),
                "choose the mask ones, which collators give with texts of one length",
            );
        }
        if batch.lengths != Lengths::Equal {
            return not_compared(Field::Lengths, "texts of different lengths", "give one length");
        }
        if batch.pictures.count > 0 {
            return not_compared(Field::Pictures, "a step with pictures", "train on text alone");
        }
        // `_HeadTailLoadBalancer._generate_indices`
        let pieces = cluster.layout.sequence_parts();
        if !batch.length.is_multiple_of(pieces) {
            let message = format!(
                "{} tokens are no multiple of {}: each GPU has a piece of either end, and PyTorch stops (\"assert seq_length % (world_size * 2) == 0\")",
                grouped(batch.length),
                grouped(pieces)
            );
            let fix = format!("choose {} tokens", grouped(batch.length.next_multiple_of(pieces)));
            return Err(Issue::error(Field::Sequence, message).with_fix(fix));
        }
    }
    Ok(())
}

/// What accelerate stops at when it lays the GPUs out.
fn by_mesh(cluster: Cluster) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let (context, replicas) = (cluster.layout.context, cluster.replicas.max(1));
    if cluster.layout.tensor > 1 {
        let message =
            "layers and sequences divided at once are not modelled outside of Megatron-core".to_owned();
        return refuse(Field::TensorParallel, message, "choose a tensor-parallel size of 1");
    }
    if !cluster.gpus.is_multiple_of(context.saturating_mul(replicas)) {
        let message = format!(
            "{} GPUs cannot be divided into groups of {} that share a sequence",
            grouped(cluster.gpus / replicas),
            grouped(context)
        );
        return refuse(Field::ContextParallel, message, "choose a divisor of the GPUs");
    }
    if replicas > 1 && cluster.gpus / replicas == context {
        let message = "accelerate stops where replicas have nothing but divided sequences (\"cannot be used with pure data parallelism\")".to_owned();
        return refuse(Field::Replicas, message, "choose one replica, or fewer GPUs for each sequence");
    }
    Ok(())
}
