//! Where optimizers are followed that reach into the model: those that project gradients, and those that step in backward by
//! themselves.

use crate::issue::{Field, Issue};
use crate::job::{HeadKind, Member, Training};
use crate::model::Architecture;
use crate::model::blocks::FeedForward;
use crate::scenario::software::Software;
use crate::scenario::{LoraTargets, Optimizer, Precision, StepTime};
use crate::step::forward::Model;

/// What stands in the way of such an optimizer.
pub(super) fn optimizer(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let Some(training) = member.training else { return Ok(()) };
    let optimizer = training.optimizer;
    if !optimizer.projects() && !optimizer.steps_in_backward() {
        return Ok(());
    }
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let name = optimizer.label();
    if member.adapts {
        let message = format!("{name} is modelled where all weights are trained, not beside adapters");
        return refuse(Field::Optimizer, message, "choose full fine-tuning, or AdamW");
    }
    if optimizer.projects() && member.lora.targets == LoraTargets::Qv {
        let message = format!("{name} has no default layers: transformers wants their names");
        return refuse(Field::LoraTargets, message, "choose all linear layers, or name some");
    }
    let software = Software::of(member.stack);
    if !software.runs_transformers() || !matches!(member.head, HeadKind::Language) {
        let message = format!(
            "{name} is modelled as transformers makes it, for language models in its own stack or trl's"
        );
        return refuse(Field::Optimizer, message, "choose AdamW, or transformers");
    }
    let has_experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    if architecture.encoder.is_some() || !architecture.towers.is_empty() || has_experts {
        let message = format!(
            "{name} was not compared on {}: it has experts, an encoder or a tower",
            architecture.model_type
        );
        return refuse(Field::Optimizer, message, "choose AdamW");
    }
    if member.precision == Precision::AmpFp16 && optimizer.steps_in_backward() {
        let message = format!("{name} steps before a gradient scaler has seen the gradients");
        return refuse(Field::Precision, message, "train in bfloat16");
    }
    layerwise_adafactor(member, training)?;
    low_rank_gradients(training)
}

/// transformers asks for a learning rate of one's own of `galore_adafactor` alone (trainer_optimizer.py `_get_galore_optimizer`).
fn layerwise_adafactor(member: &Member, training: Training) -> Result<(), Issue> {
    let is_layerwise =
        training.optimizer == Optimizer::GaLoreAdafactor && training.step == StepTime::InBackward;
    if !is_layerwise || !member.is_by_trainer() {
        return Ok(());
    }
    let message = "transformers stops at galore_adafactor_layerwise (\"Cannot combine manual `lr` and `relative_step=True` options\")";
    Err(Issue::error(Field::Step, message).with_fix("let the optimizer step after backward"))
}

/// A model of which the targets name no layer that an optimizer could project.
pub(super) fn projected(model: &Model<'_>) -> Result<(), Issue> {
    if !model.member.projects() || model.projects {
        return Ok(());
    }
    let message = format!(
        "transformers finds no layer of {} to project (\"No target modules found\"): only nn.Linear is, which Conv1D is not",
        model.architecture.model_type
    );
    Err(Issue::error(Field::LoraTargets, message).with_fix("name other layers, or choose AdamW"))
}

/// What PyTorch stops at after galore-torch's 8-bit step.
fn low_rank_gradients(training: Training) -> Result<(), Issue> {
    if training.optimizer != Optimizer::GaLoreAdamW8bit || training.grads_to_none {
        return Ok(());
    }
    let message = "GaLore's 8-bit step leaves projected gradients, to which PyTorch adds no whole ones";
    Err(Issue::error(Field::SetToNone, message).with_fix("let zero_grad free the gradients"))
}
