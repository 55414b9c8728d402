//! What stands in the way of pictures, and of models that see in trl's trainers.

use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, HeadKind, Job, Loss, Member};
use crate::model::Architecture;
use crate::scenario::pictures::PictureTokens;
use crate::scenario::software::{HeadCode, ModelCode, Software, Trainer};
use crate::scenario::{AttentionKernel, Mask, Offloading};
use crate::units::grouped;

/// What stands in the way of pictures.
pub(super) fn pictures(architecture: &Architecture, (member, batch): (&Member, Batch)) -> Option<Issue> {
    let text_alone = "set pictures to 0: the step of the text alone";
    let family = &architecture.model_type;
    let Some((_, vision)) = architecture.vision() else {
        let message =
            format!("a step of {family} with pictures is not modelled: it is followed for text alone");
        return Some(Issue::error(Field::Pictures, message).with_fix(text_alone));
    };
    let refused = |what: String| Some(Issue::error(Field::Pictures, what).with_fix(text_alone));
    let software = Software::of(member.stack);
    let followed = match software.trainer {
        Trainer::Loop => software.model == ModelCode::Transformers,
        Trainer::Trl => software.model == ModelCode::Transformers && software.head == HeadCode::Trl,
        Trainer::Torchtune | Trainer::Megatron => false,
    };
    if !followed || software.liger_kernels {
        return refused(format!(
            "pictures are followed with transformers and trl, not with {}",
            member.stack.label()
        ));
    }
    if member.head != HeadKind::Language || member.training.is_none() {
        return refused("pictures are followed in fine-tuning alone".into());
    }
    if member.offloading != Offloading::Off || batch.mask.is_packed() {
        return refused(
            "pictures among packed texts, or with offloaded activations, are not modelled".into(),
        );
    }
    if batch.mask == Mask::Padded && software.trainer == Trainer::Loop {
        return refused("pictures among padded texts are followed with trl alone".into());
    }
    if matches!(member.attention, AttentionKernel::Eager | AttentionKernel::Math | AttentionKernel::FlashAttn)
    {
        let message = format!("a vision tower with {} was never compared", member.attention.label());
        return Some(Issue::error(Field::Attention, message).with_fix("choose SDPA"));
    }
    let pictures = batch.pictures;
    let tokens = PictureTokens::of(vision, pictures);
    let PictureTokens { each, all, room, .. } = tokens;
    if room > batch.length {
        let message = format!(
            "pictures of {} × {} pixels are {} tokens, {} each{}: a sequence of {} has no room for them",
            grouped(pictures.height),
            grouped(pictures.width),
            grouped(all),
            grouped(each),
            tokens.around_in_words(),
            grouped(batch.length)
        );
        let fix =
            format!("lengthen the sequence to {} or more, or take fewer or smaller pictures", grouped(room));
        return Some(Issue::error(Field::Sequence, message).with_fix(fix));
    }
    None
}

/// Refuses what trl does with a model that sees, on text alone or not, where it was not compared: its `SFTTrainer` on one GPU was.
pub(in crate::step) fn seeing(
    job: &Job,
    architecture: &Architecture,
    (index, member): (usize, &Member),
) -> Result<(), Issue> {
    if architecture.towers.is_empty() || Software::of(member.stack).trainer != Trainer::Trl {
        return Ok(());
    }
    let family = &architecture.model_type;
    let refuse = |field, what: &str, fix: &str| {
        Err(Issue::error(field, format!("{what} of {family} with trl is not modelled")).with_fix(fix))
    };
    let others = |act: &Act| match act {
        Act::Train { loss, .. } => *loss != Loss::Labels,
        Act::Update { .. }
        | Act::Evaluate { .. }
        | Act::Save { .. }
        | Act::Merge { .. }
        | Act::Wake { .. } => false,
        Act::Score { .. } | Act::Rollout { .. } | Act::Generate { .. } => true,
    };
    let own = |act: &&Act| act.members().any(|member| member == index);
    if job.round.iter().filter(own).any(others) {
        return refuse(Field::Task, "another task than fine-tuning", "fine-tune");
    }
    if job.cluster.has_engine() {
        return refuse(Field::Gpus, "a step on several GPUs or under DeepSpeed", "use one GPU");
    }
    if member.offloading != Offloading::Off {
        return refuse(Field::Offloading, "activation offloading", "keep activations on the GPU");
    }
    if job.round.iter().filter_map(Act::batch).any(|batch| batch.mask.is_packed()) {
        return refuse(Field::Mask, "a step on packed texts", "choose a padded batch");
    }
    Ok(())
}
