//! Other projects' code for the same models: the same tape, other operations.
//!
//! A stack is two things: the modules as that project writes them (its description of a block, derived here from
//! transformers' own, and its forward pass) and its way from the last hidden state to the loss.

mod adapted;
mod axolotl;
mod common;
pub(in crate::step) mod expert_layers;
pub(in crate::step) mod fused_loss;
pub(in crate::step) mod liger;
mod liger_experts;
mod litgpt;
pub(in crate::step) mod megatron;
mod tensor_plan;
mod torchtitan;
pub(in crate::step::forward) mod torchtune;
pub(in crate::step) mod trl;
pub(in crate::step) mod unsloth;
mod vocabulary_chunks;

use std::borrow::Cow;

use super::adapters;
use super::classification::classified;
use super::embedding::embedded;
use crate::issue::{Field, Issue};
use crate::job::{Batch, HeadKind, Member};
use crate::model::modeling::Code;
use crate::model::{Architecture, Objective};
use crate::scenario::{Checkpointing, Cluster, LossKernel, Stack};
pub(super) use common::loss_kernel;

/// Whether a stack's modules are followed beneath a head for classification.
pub(in crate::step) fn classifies(stack: Stack) -> bool {
    stack == Stack::Transformers
}

/// The architecture as the member's stack builds it.
///
/// # Errors
/// An [`Issue`] where the stack has no such model, or no such loss for it.
pub(in crate::step) fn architecture<'a>(
    architecture: &'a Architecture,
    member: &Member,
    batch: Batch,
    cluster: Cluster,
) -> Result<Cow<'a, Architecture>, Issue> {
    checkpointing(member)?;
    loss(architecture, member)?;
    vocabulary_chunks::check(architecture, member, cluster)?;
    embeddings(architecture, member)?;
    expert_layers::by_transformers(architecture, member)?;
    match member.stack {
        Stack::Transformers if cluster.is_many() && cluster.layout.tensor > 1 => {
            tensor_plan::architecture(architecture, member, batch, cluster).map(Cow::Owned)
        }
        Stack::Transformers => match member.head {
            HeadKind::Language => expert_layers::architecture(architecture, member, cluster),
            HeadKind::Numbers(labels) => classified(architecture, member, labels).map(Cow::Owned),
            HeadKind::Embedding(_) => embedded(architecture, member).map(Cow::Owned),
        },
        Stack::Trl => {
            if member.software().liger_kernels {
                liger::check(architecture, member)?;
            }
            trl::architecture(architecture, member, batch)
        }
        Stack::Liger => liger::check(architecture, member).map(|()| Cow::Borrowed(architecture)),
        Stack::Litgpt => litgpt::architecture(architecture).map(Cow::Owned),
        Stack::Torchtune => torchtune::architecture(architecture, member, batch).map(Cow::Owned),
        Stack::Torchtitan => torchtitan::architecture(architecture, member, batch, cluster).map(Cow::Owned),
        Stack::Unsloth => unsloth::architecture(architecture, member, batch).map(Cow::Owned),
        Stack::Megatron => megatron::architecture(architecture, member, batch, cluster).map(Cow::Owned),
    }
}

/// Refuses Unsloth's, Megatron's and torchtitan's checkpoints where another stack is to make them.
fn checkpointing(member: &Member) -> Result<(), Issue> {
    match (member.checkpointing, member.stack) {
        (
            Checkpointing::Offloaded,
            Stack::Transformers
            | Stack::Trl
            | Stack::Liger
            | Stack::Litgpt
            | Stack::Torchtune
            | Stack::Torchtitan
            | Stack::Megatron,
        ) => {
            let message = "checkpoints in CPU memory are Unsloth's";
            Err(Issue::error(Field::Checkpointing, message)
                .with_fix("choose Unsloth, or gradient checkpointing on"))
        }
        (
            Checkpointing::Selective,
            Stack::Transformers
            | Stack::Trl
            | Stack::Liger
            | Stack::Litgpt
            | Stack::Torchtune
            | Stack::Torchtitan
            | Stack::Unsloth,
        ) => {
            let message = "to recompute attention alone is Megatron's";
            Err(Issue::error(Field::Checkpointing, message)
                .with_fix("choose Megatron-core, or gradient checkpointing on"))
        }
        (
            Checkpointing::Alternate | Checkpointing::Operations,
            Stack::Transformers
            | Stack::Trl
            | Stack::Liger
            | Stack::Litgpt
            | Stack::Torchtune
            | Stack::Unsloth
            | Stack::Megatron,
        ) => {
            let message = "selective checkpointing by layer or operation is torchtitan's";
            Err(Issue::error(Field::Checkpointing, message)
                .with_fix("choose torchtitan, or gradient checkpointing on"))
        }
        _ => Ok(()),
    }
}

/// Refuses to train the embedding beside adapters where a stack cannot or an adapter is in the way.
fn embeddings(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    if !member.adapts || !member.lora.trains_embeddings {
        return Ok(());
    }
    let problem = match member.software().no_trained_embeddings {
        Some(problem) => problem,
        None if adapters::adapts_head(member, architecture.head.linear.name) => {
            "the output head has an adapter already"
        }
        None if member.head != HeadKind::Language => "not measured where texts are classified or embedded",
        None => return Ok(()),
    };
    let fix = "switch train-embeddings off";
    Err(Issue::error(Field::TrainEmbeddings, format!("the embedding cannot be trained too: {problem}"))
        .with_fix(fix))
}

/// Refuses another loss than trl's own, which its trainers put into the place of any. Which of them make all logits is the job's affair.
fn trl_loss(member: &Member, kernel: LossKernel) -> Result<(), Issue> {
    match kernel {
        LossKernel::Standard | LossKernel::Full | LossKernel::Axolotl | LossKernel::LogSoftmax => Ok(()),
        LossKernel::Liger
        | LossKernel::Cut
        | LossKernel::TransformerEngine
        | LossKernel::MegatronFused
        | LossKernel::FloatLogits
        | LossKernel::VocabularyChunks
        | LossKernel::Chunked => {
            let message = "trl 1.16 puts its own fused head into the place of this one";
            Err(Issue::error(Field::Loss, message)
                .with_fix(member.or_transformers("choose the standard loss")))
        }
    }
}

/// Refuses a loss that the stack's code for that model cannot be given.
fn loss(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let kernel = loss_kernel(member);
    let head = architecture.head.linear.name;
    let leaves_adapter_out = match kernel {
        LossKernel::Liger | LossKernel::Cut => adapters::adapts_head(member, head),
        LossKernel::Standard
        | LossKernel::Full
        | LossKernel::Axolotl
        | LossKernel::LogSoftmax
        | LossKernel::TransformerEngine
        | LossKernel::MegatronFused
        // beside adapters they are refused before
        | LossKernel::FloatLogits
        | LossKernel::VocabularyChunks
        | LossKernel::Chunked => false,
    };
    let without = if kernel == LossKernel::Standard {
        return Ok(());
    } else if matches!(kernel, LossKernel::TransformerEngine | LossKernel::MegatronFused)
        && member.stack != Stack::Megatron
    {
        "another library than Megatron-core"
    } else if member.stack == Stack::Litgpt {
        "litgpt, whose own loss runs in chunks of 128 tokens"
    } else if member.stack == Stack::Trl {
        return trl_loss(member, kernel);
    } else if member.stack == Stack::Torchtune && matches!(kernel, LossKernel::Liger | LossKernel::Cut) {
        "torchtune, which has none of it"
    } else if member.head != HeadKind::Language {
        "numbers for whole texts, whose loss is their own"
    } else if kernel == LossKernel::Full {
        return Ok(());
    } else if architecture.family.is_some_and(|family| family.modeling.code == Code::Qwen) {
        "the code of its own that this model brings"
    } else if architecture.head.objective != Objective::CausalLm || architecture.encoder.is_some() {
        "a model with an encoder"
    } else if leaves_adapter_out {
        "an adapter on the output head, which it would leave out"
    } else {
        return Ok(());
    };
    let message = format!("the loss {:?} does not go with {without}", kernel.label());
    Err(Issue::error(Field::Loss, message).with_fix("choose the standard loss"))
}
