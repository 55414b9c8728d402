//! What stands in the way of pictures, and of models that see in trl's trainers.

use super::balance::{generates_answers, learns_as_trl};
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, HeadKind, Job, Loss, Member, Scorer};
use crate::model::Architecture;
use crate::model::blocks::FeedForward;
use crate::model::modeling::answers_pictures;
use crate::model::vision::VisionCode;
use crate::scenario::pictures::PictureTokens;
use crate::scenario::software::{HeadCode, ModelCode, Trainer};
use crate::scenario::{
    AttentionKernel, Checkpointing, CpuOffload, Mask, Method, Offloading, Precision, Sharding,
};
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
    let software = member.software();
    let followed = match software.trainer {
        Trainer::Loop => software.model == ModelCode::Transformers,
        Trainer::Trl => software.model == ModelCode::Transformers && software.head == HeadCode::Trl,
        Trainer::Torchtune | Trainer::Torchtitan | Trainer::Megatron => false,
    };
    if !followed || software.liger_kernels {
        return refused(format!(
            "pictures are followed with transformers and trl, not with {}",
            member.stack.label()
        ));
    }
    // beside one that is trained under trl a member without training scores: `seeing` says where that was not compared
    let trains = member.training.is_some() || software.trainer == Trainer::Trl;
    if member.head != HeadKind::Language || !trains {
        return refused("pictures are followed in training alone".into());
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
    if vision.crossed.is_some() && software.trainer == Trainer::Trl {
        return refused(format!("pictures of {family} are followed in a loop of one's own, not with trl"));
    }
    if vision.crossed.is_some() && member.checkpointing.is_reentrant() {
        let message = format!(
            "{family} with pictures stops under reentrant checkpoints: each of them goes backward through the tower, whose graph is gone after the \
             first (\"Trying to backward through the graph a second time\")"
        );
        return Some(
            Issue::error(Field::Checkpointing, message).with_fix("choose non-reentrant checkpoints"),
        );
    }
    if vision.pixels() != Dtype::F32 {
        let given = vision.pixels();
        if software.trainer == Trainer::Trl {
            return refused(format!(
                "pictures of {family} are followed in a loop of one's own, not with trl"
            ));
        }
        let casts = !matches!(member.precision, Precision::Fp32 | Precision::Fp16);
        if !casts {
            let message = format!(
                "{family}'s processor makes pictures of {}, which a tower in {} is not given without autocast (\"expected mat1 and mat2 to have the same \
                 dtype\")",
                given.name(),
                member.precision.label()
            );
            return Some(Issue::error(Field::Precision, message).with_fix("choose bf16, pure or mixed"));
        }
    }
    let pictures = batch.pictures;
    if pictures.frames > 1 && vision.video.is_some() && software.trainer == Trainer::Trl {
        let message =
            "trl's collator takes pictures alone, no videos (DataCollatorForVisionLanguageModeling)";
        let fix = "choose a loop of one's own, or set video frames to 1";
        return Some(Issue::error(Field::Frames, message).with_fix(fix));
    }
    let tokens = PictureTokens::of(vision, pictures);
    let PictureTokens { each, all, room, .. } = tokens;
    if room > batch.length {
        let message = format!(
            "{} of {} × {} pixels are {} tokens, {} each{}: a sequence of {} has no room for them",
            pictures.named(vision),
            grouped(pictures.height),
            grouped(pictures.width),
            grouped(all),
            grouped(each),
            tokens.around_in_words(),
            grouped(batch.length)
        );
        let fix = format!(
            "lengthen the sequence to {} or more, or take fewer or smaller {}",
            grouped(room),
            pictures.named(vision)
        );
        return Some(Issue::error(Field::Sequence, message).with_fix(fix));
    }
    None
}

/// Refuses what trl does with a model that sees where it was not compared: its `SFTTrainer` was, with pictures on several GPUs too, and
/// what learns from answers on text alone, and with pictures on one GPU. On text alone the trainers hand on nothing but ids and a mask, whether they are given a tokenizer or a
/// processor (trl 1.16: `_is_vision_dataset`, `images is not None`).
pub(in crate::step) fn seeing(
    job: &Job,
    architecture: &Architecture,
    (index, member): (usize, &Member),
) -> Result<(), Issue> {
    if architecture.towers.is_empty() || member.software().trainer != Trainer::Trl {
        return Ok(());
    }
    let family = &architecture.model_type;
    let refuse = |field, what: &str, fix: &str| {
        Err(Issue::error(field, format!("{what} of {family} with trl is not modelled")).with_fix(fix))
    };
    let own = || job.round.iter().filter(|act| act.members().any(|member| member == index));
    if !own().all(|act| learns_as_trl(act) || generates_answers(act)) {
        return refuse(Field::Task, "this task", "fine-tune, or choose a model that reads alone");
    }
    let looks = |act: &Act| act.batch().is_some_and(|batch| batch.pictures.count > 0);
    if own().any(|act| generates_answers(act) && !looks(act)) {
        return refuse(
            Field::Rollouts,
            "generating answers while training",
            "have vLLM generate the answers",
        );
    }
    if member.loss.replaces_fused_head() && !own().all(Act::is_of_fine_tuning) {
        return refuse(Field::Loss, "learning from answers with all logits", "choose the standard loss");
    }
    for act in own().filter(|act| looks(act) && !act.is_of_fine_tuning()) {
        preferring(job, architecture, act)?;
    }
    if job.cluster.has_engine() {
        engine(job, architecture, member)?;
    }
    if member.offloading != Offloading::Off {
        return refuse(Field::Offloading, "activation offloading", "keep activations on the GPU");
    }
    if job.round.iter().filter_map(Act::batch).any(|batch| batch.mask.is_packed()) {
        return refuse(Field::Mask, "a step on packed texts", "choose a padded batch");
    }
    Ok(())
}

/// Refuses what trl does with pictures beside fine-tuning where it was not compared, or stops: `DPOTrainer` and `KTOTrainer` were, with a reference that
/// scores, and `GRPOTrainer` and `RLOOTrainer`.
fn preferring(job: &Job, architecture: &Architecture, act: &Act) -> Result<(), Issue> {
    let family = &architecture.model_type;
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let another = "set pictures to 0, or choose fine-tuning, DPO, KTO, GRPO or RLOO";
    let reference = match act {
        Act::Train {
            loss: Loss::Preference { reference, .. } | Loss::Desirability { reference, .. },
            ..
        } => Some(*reference),
        // what is generated is scored, by whoever does
        Act::Train { loss: Loss::Reward { .. }, .. } | Act::Score { .. } | Act::Generate { .. } => None,
        Act::Train { loss: Loss::Odds { .. } | Loss::Comparison, .. } => {
            let message = "trl's trainers for this task take no pictures: their collators read text alone";
            return refuse(Field::Pictures, message.into(), another);
        }
        _ => {
            let message = format!("this task on texts with pictures of {family} with trl is not modelled");
            return refuse(Field::Pictures, message, another);
        }
    };
    if reference == Some(Scorer::Precomputed) {
        let message = "trl stops at precompute_ref_log_probs=True with pictures (\"not supported for vision datasets\")";
        return refuse(Field::Reference, message.into(), "have the reference score every batch");
    }
    let prompt = match *act {
        Act::Train {
            loss:
                Loss::Preference { prompt, .. } | Loss::Desirability { prompt, .. } | Loss::Reward { prompt, .. },
            ..
        }
        | Act::Score { prompt, .. } => Some(prompt),
        _ => None,
    };
    if let (Some(prompt), Some((_, vision)), Some(batch)) = (prompt, architecture.vision(), act.batch()) {
        let room = PictureTokens::of(vision, batch.pictures).room;
        if prompt < room {
            let message = format!(
                "a prompt of {} tokens has no room for its {}, which are {}",
                grouped(prompt),
                batch.pictures.named(vision),
                grouped(room)
            );
            let fix = format!(
                "lengthen the prompt to {} or more, or take fewer or smaller {}",
                grouped(room),
                batch.pictures.named(vision)
            );
            return refuse(Field::Prompt, message, &fix);
        }
    }
    if job.cluster.has_engine() {
        let (field, fix) = job.cluster.without_engine();
        let place = job.cluster.place_in_words();
        let message =
            format!("learning from answers to texts with pictures of {family} {place} is not modelled");
        return refuse(field, message, fix);
    }
    let has_experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    if has_experts || !answers_pictures(family) {
        let experts = if has_experts { ", which has experts," } else { "" };
        let message =
            format!("learning from answers to texts with pictures of {family}{experts} was never compared");
        return refuse(Field::Pictures, message, another);
    }
    Ok(())
}

/// Refuses what an engine does with pictures where it was not compared, or stops.
fn engine(job: &Job, architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let family = &architecture.model_type;
    let cluster = job.cluster;
    let refuse = |field, what: String, fix: &str| {
        Err(Issue::error(field, format!("{what} with trl is not modelled")).with_fix(fix))
    };
    let reads_text = job.round.iter().filter_map(Act::batch).any(|batch| batch.pictures.count == 0);
    let tunes = job.round.iter().filter(|act| act.batch().is_some()).all(Act::is_of_fine_tuning);
    if reads_text && !tunes {
        let what = format!("learning from answers with {family} {}", cluster.place_in_words());
        return refuse(Field::Task, what, &format!("fine-tune, or {}", cluster.without_engine().1));
    }
    if reads_text {
        // its tower lies idle, as in a loop of one's own
        return Ok(());
    }
    match cluster.sharding {
        Sharding::Ddp | Sharding::Zero1 | Sharding::Zero2 => {}
        Sharding::Fsdp2 => by_accelerate(architecture, member)?,
        Sharding::Zero3 | Sharding::Distributed => {
            let what = format!("a step with pictures of {family} under {}", cluster.sharding.label());
            return refuse(Field::Sharding, what, "choose DDP, FSDP2 or ZeRO-2");
        }
    }
    if cluster.cpu != CpuOffload::Off {
        let what = format!("a step with pictures of {family} beside what is kept in the CPU's memory");
        return refuse(Field::CpuOffload, what, "keep all on the GPUs");
    }
    if member.checkpointing == Checkpointing::Reentrant {
        let what = format!("a step of {family} on several GPUs under reentrant checkpoints");
        return refuse(Field::Checkpointing, what, "choose checkpointing with use_reentrant=False");
    }
    Ok(())
}

/// The same of accelerate's FSDP2, which makes units of the layers that a model and what it is made of name (`_no_split_modules`).
fn by_accelerate(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let family = &architecture.model_type;
    let not_compared = |field, what: String, fix: &str| {
        let message = format!("{what} under FSDP2 as accelerate wraps it is not modelled");
        Err(Issue::error(field, message).with_fix(fix))
    };
    match architecture.vision().map(|(_, vision)| vision.code) {
        Some(VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3)
        | Some(VisionCode::InternVl | VisionCode::Mistral3 | VisionCode::Pixtral | VisionCode::Mllama)
        | Some(VisionCode::Gemma3)
        // their layers are not found
        | Some(VisionCode::Llava | VisionCode::LlavaNext) => {}
        Some(VisionCode::Gemma4 | VisionCode::Llama4) | None => {
            return not_compared(Field::Sharding, format!("a step with pictures of {family}"), "choose DDP");
        }
    }
    if architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_))) {
        return not_compared(
            Field::Model,
            format!("a step with pictures of {family}, which has experts,"),
            "choose DDP",
        );
    }
    if member.method == Method::Qlora {
        // measured: 5 % more than is followed of a model whose head is not tied, in a phase that is not the step's
        let what = format!("a step with pictures of {family} beside 4-bit weights");
        return not_compared(Field::Method, what, "choose LoRA, or DDP");
    }
    match member.precision {
        Precision::AmpBf16 | Precision::AmpBf16Weights => Ok(()),
        other => {
            let what = format!("a step with pictures of {family} in {}", other.label());
            not_compared(Field::Precision, what, "choose bf16 mixed")
        }
    }
}
