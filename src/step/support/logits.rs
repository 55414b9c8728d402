//! What stands in the way of all logits of trl's trainers, which versions up to 1.6 made of fine-tuning and up to 1.14 of preferences.

use crate::issue::{Field, Issue};
use crate::job::{Likelihood, Loss, Member, Scorer};
use crate::model::Architecture;
use crate::scenario::{LossKernel, Method, Offloading, Precision, Tuner};

/// Refuses all logits of trl's trainers that were not compared with them: of those of preferences, versions up to 1.14 made them, and
/// LLaMA-Factory's own trainer of pairs does.
pub(super) fn of(member: &Member, loss: Loss) -> Result<(), Issue> {
    let float16 = member.precision == Precision::AmpFp16 && member.method == Method::Full;
    if member.loss == LossKernel::LogSoftmax && float16 && matches!(loss, Loss::Preference { .. }) {
        let message = "the float16 reference of LLaMA-Factory's full fine-tuning was not compared";
        return Err(Issue::error(Field::Precision, message).with_fix("choose bf16 mixed over fp32 weights"));
    }
    let is_known = match member.loss {
        LossKernel::LogSoftmax => matches!(
            loss,
            Loss::Preference { reference: Scorer::Member(_) | Scorer::WithoutAdapters, .. }
                | Loss::Odds { likelihood: Likelihood::Text | Likelihood::Nothing, .. }
        ),
        LossKernel::Axolotl => {
            matches!(loss, Loss::Preference { .. } | Loss::Desirability { .. } | Loss::Odds { .. })
        }
        LossKernel::Full => !member.has_all_logits_of_trl(),
        LossKernel::FloatLogits | LossKernel::VocabularyChunks => matches!(loss, Loss::Labels),
        LossKernel::Standard
        | LossKernel::Liger
        | LossKernel::Cut
        | LossKernel::TransformerEngine
        | LossKernel::MegatronFused
        | LossKernel::Chunked => true,
    };
    if is_known {
        return Ok(());
    }
    if member.loss.is_of_prime_rl() {
        let message = "prime-rl's heads are modelled of steps on texts and their labels";
        return Err(Issue::error(Field::Loss, message).with_fix("choose the standard loss"));
    }
    if member.loss == LossKernel::Axolotl {
        let message = "axolotl's kernels over all logits are modelled of DPO, KTO, ORPO, CPO and SimPO";
        return Err(Issue::error(Field::Loss, message).with_fix("choose the standard loss"));
    }
    if member.loss == LossKernel::LogSoftmax {
        let message = "LLaMA-Factory's log-probabilities are modelled of its trainer of pairs: DPO, whose reference is asked in every step, ORPO and SimPO";
        return Err(Issue::error(Field::Loss, message).with_fix("choose the standard loss"));
    }
    match loss {
        Loss::Labels => earlier(member),
        Loss::Preference { .. } | Loss::Desirability { .. } | Loss::Odds { .. } => Ok(()),
        Loss::Classes
        | Loss::Contrast { .. }
        | Loss::Comparison
        | Loss::Reward { .. }
        | Loss::Advantage { .. }
        | Loss::Divergence { .. } => {
            let message = "all logits are modelled of trl's SFT, as it made them up to 1.6, and of its DPO, KTO, ORPO, CPO and SimPO, up to 1.14";
            Err(Issue::error(Field::Loss, message).with_fix("choose the standard loss"))
        }
    }
}

/// Refuses what of fine-tuning by trl up to 1.6 was not compared.
fn earlier(member: &Member) -> Result<(), Issue> {
    let refuse = |field, what: &str, fix: &str| {
        Err(Issue::error(field, format!("{what} with trl up to 1.6 is not modelled")).with_fix(fix))
    };
    if member.offloading != Offloading::Off {
        return refuse(Field::Offloading, "activation offloading", "keep activations on the GPU");
    }
    if member.adapts && member.lora.tuner != Tuner::Lora {
        return refuse(Field::Adapter, member.lora.tuner.label(), "choose LoRA, or the standard loss");
    }
    Ok(())
}

/// Refuses models that see, of which trl up to 1.6 was not compared.
pub(in crate::step) fn of_model(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    if member.has_all_logits_of_trl() && !architecture.towers.is_empty() {
        let message = format!("all logits of {} with trl are not modelled", architecture.model_type);
        return Err(Issue::error(Field::Loss, message).with_fix("choose the standard loss"));
    }
    Ok(())
}
