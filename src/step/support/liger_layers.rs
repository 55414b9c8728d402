//! Which of trl's trainers run Liger's kernels of the layers, and which of these runs were compared.

use crate::issue::{Field, Issue};
use crate::job::{Act, Job, Loss, Member};
use crate::model::Architecture;
use crate::scenario::{Mask, Tuner};

/// Refuses what was not compared with Liger's kernels under trl, or what trl does not do. Its trainers with a fused head keep the `forward` that
/// has it (`fused_linear_cross_entropy` is switched off: trl 1.16, trainer/sft_trainer.py, dpo_trainer.py, kto_trainer.py, grpo_trainer.py
/// and rloo_trainer.py); under the others Liger's own `forward` takes its place.
pub(in crate::step) fn liger_layers(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
) -> Result<(), Issue> {
    let software = member.software();
    if !software.is_trl_with_liger() {
        return Ok(());
    }
    let refuse =
        |message: &str| Err(Issue::error(Field::LigerLayers, message).with_fix("switch liger-layers off"));
    if member.loss.replaces_fused_head() {
        return refuse(
            "Liger's kernels under versions of trl that make all logits are not modelled: those ran Liger's own loss in the place of trl's",
        );
    }
    for act in &job.round {
        match act {
            Act::Train {
                loss: Loss::Labels | Loss::Preference { .. } | Loss::Desirability { .. } | Loss::Reward { .. },
                ..
            }
            | Act::Score { .. }
            | Act::Save { .. }
            | Act::Merge { .. }
            | Act::Wake { .. }
            | Act::Update { .. } => {}
            // refused with what generates
            Act::Generate { .. } | Act::Rollout { .. } => {}
            Act::Train { .. } => {
                return refuse(
                    "Liger's kernels of layers are followed of trl's SFT, DPO, KTO, GRPO and RLOO",
                );
            }
            Act::Evaluate { .. } => {
                return refuse("an evaluation with Liger's kernels under trl was not compared");
            }
        }
    }
    if !architecture.towers.is_empty() {
        return refuse("models that see with Liger's kernels under trl were not compared");
    }
    if job.round.iter().filter_map(Act::batch).any(|batch| batch.mask == Mask::PaddingFree) {
        return refuse("texts without padding were not compared with Liger's kernels under trl");
    }
    if member.adapts && member.lora.tuner != Tuner::Lora {
        return refuse("other adapters than LoRA were not compared with Liger's kernels under trl");
    }
    Ok(())
}
