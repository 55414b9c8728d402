//! What stands in the way of balanced experts in trl's trainers, and which of these trainers were compared with them and with models
//! that see.

use crate::issue::{Field, Issue};
use crate::job::{Act, Job, Loss, Member};
use crate::model::Architecture;
use crate::step::forward::stacks::trl::balance::balanced;

/// Refuses what balances experts where it was not compared: a config that asks for the routers' logits has every pass keep them, which
/// trl's fine-tuning does as its own setting says and its other trainers as the config does.
pub(in crate::step) fn balance(
    job: &Job,
    architecture: &Architecture,
    (index, member): (usize, &Member),
) -> Result<(), Issue> {
    let Some(moe) = balanced(architecture, member) else { return Ok(()) };
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let own = || job.round.iter().filter(|act| act.members().any(|member| member == index));
    if !own().all(|act| learns_as_trl(act) || generates_answers(act)) {
        let message =
            "a mixture of experts whose routers are part of trl's loss was not compared in this task";
        return refuse(Field::Task, message, "fine-tune, or choose a model without experts");
    }
    if own().any(generates_answers) {
        let message = "answers that a mixture of experts generates while it trains are not modelled";
        return refuse(Field::Rollouts, message, "have vLLM generate the answers");
    }
    if own().all(Act::is_of_fine_tuning) {
        return Ok(());
    }
    let distils = |act: &Act| matches!(act, Act::Train { loss: Loss::Divergence { .. }, .. });
    if job.cluster.has_engine() && own().any(distils) {
        let here = job.cluster.place_in_words();
        let message = format!("a mixture of experts that learns from a teacher {here} was not compared");
        let (field, fix) = job.cluster.without_engine();
        return refuse(field, &message, fix);
    }
    if member.loss.replaces_fused_head() {
        let message = "mixtures of experts that learn from answers with all logits are not modelled";
        return refuse(Field::Loss, message, "choose the standard loss");
    }
    if moe.returns_routers {
        let message = "a mixture of experts whose config has it return its routers' logits (output_router_logits) was compared in trl's \
                       fine-tuning alone";
        return refuse(
            Field::Model,
            message,
            "set output_router_logits to false in the model's config.json, or fine-tune",
        );
    }
    Ok(())
}

/// Whether a model that is trained writes answers.
pub(super) fn generates_answers(act: &Act) -> bool {
    matches!(act, Act::Rollout { .. } | Act::Generate { .. })
}

/// Whether it is what trl's trainers do that were compared with experts that are balanced, and with models that see.
pub(super) fn learns_as_trl(act: &Act) -> bool {
    match act {
        Act::Train { loss, .. } => match loss {
            Loss::Labels
            | Loss::Preference { .. }
            | Loss::Desirability { .. }
            | Loss::Odds { .. }
            | Loss::Comparison
            | Loss::Reward { .. }
            | Loss::Divergence { .. } => true,
            Loss::Classes | Loss::Contrast { .. } | Loss::Advantage { .. } => false,
        },
        Act::Update { .. }
        | Act::Score { .. }
        | Act::Evaluate { .. }
        | Act::Save { .. }
        | Act::Merge { .. }
        | Act::Wake { .. } => true,
        Act::Rollout { .. } | Act::Generate { .. } => false,
    }
}
