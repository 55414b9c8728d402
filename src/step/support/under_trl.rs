//! Which of trl's trainers were compared with weights in 8 bits, and with other adapters than LoRA.

use crate::issue::{Field, Issue};
use crate::job::{Act, Job, Loss, Member};
use crate::model::Architecture;
use crate::scenario::software::Trainer;
use crate::scenario::{Method, Tuner, WeightFormat};

/// Refuses the others.
pub(in crate::step) fn under_trl(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
) -> Result<(), Issue> {
    if member.software().trainer != Trainer::Trl || !member.adapts {
        return Ok(());
    }
    let losses = || {
        job.round.iter().filter_map(|act| match act {
            Act::Train { loss, .. } => Some(*loss),
            _ => None,
        })
    };
    let is_taught = |loss: Loss| matches!(loss, Loss::Divergence { .. } | Loss::Advantage { .. });
    let is_8_bit = member.method == Method::Qlora && member.quantization.format == WeightFormat::Int8;
    if is_8_bit && losses().any(|loss| is_taught(loss) || matches!(loss, Loss::Odds { .. })) {
        let message = "weights in 8 bits are followed of trl's SFT, DPO, KTO, GRPO, RLOO and reward models";
        return Err(Issue::error(Field::WeightFormat, message).with_fix("choose NF4"));
    }
    if is_8_bit && !architecture.towers.is_empty() {
        let message = "models that see with weights in 8 bits under trl were not compared";
        return Err(Issue::error(Field::WeightFormat, message).with_fix("choose NF4"));
    }
    if !matches!(member.lora.tuner, Tuner::Lora | Tuner::Dora) && losses().any(is_taught) {
        let message = format!("{} was not compared in this trainer of trl's", member.lora.tuner.label());
        return Err(Issue::error(Field::Adapter, message).with_fix("choose LoRA"));
    }
    Ok(())
}
