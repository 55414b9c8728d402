//! What stands in the way of a job: of what is done with its models, whatever they are, and of generating.

use super::answers::{answers, by_trl, scores, without_adapters};
use super::by_trainer::{by_trainer_on_many, classification, evaluates};
use super::logits;
use super::optimizers::on_cpu;
use super::runs_transformers;
use super::spikes::{merges, saves};
use super::unsloth::{unsloths_answers, unsloths_preference, unsloths_rewards};
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, Job, Loss, Member, Scorer};
use crate::model::blocks::{Block, Mixer, Rotary};
use crate::model::modeling::{Code, Modeling, answers_pictures};
use crate::model::{Architecture, Objective};
use crate::scenario::software::Trainer;
use crate::scenario::{
    AttentionKernel, CacheKind, Checkpointing, Cluster, Generation, Lengths, Method, Offloading, Precision,
    Sharding, StepTime, Tuner,
};
use crate::step::forward::stacks::classifies;
use crate::units::grouped;

/// What stands in the way of a job, whatever its models are.
pub(in crate::step) fn acts(job: &Job) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if job.round.is_empty() {
        return refuse(Field::Model, "nothing is done in a round".into(), "train a model, or score with one");
    }
    for act in &job.round {
        // who reinforces comes before what its passes are
        if let Act::Train { member, loss: Loss::Reward { .. }, .. } = *act
            && let Some(member) = job.members.get(member)
            && !member.returns_last_state
        {
            by_trl(member)?;
        }
    }
    for (index, act) in job.round.iter().enumerate() {
        if let Some(member) = act.members().find(|member| *member >= job.members.len()) {
            let message =
                format!("act {index} names member {member}, of which there are {}", job.members.len());
            return refuse(Field::Model, message, "members are counted from 0");
        }
        match *act {
            Act::Train { member, batch, loss, times } => {
                trained(job, member)?;
                on_cpu(&job.members[member], times)?;
                logits::of(&job.members[member], loss)?;
                match loss {
                    Loss::Labels => {}
                    Loss::Classes => classification(job, member, batch)?,
                    Loss::Contrast { .. } => embedding(job, member, batch)?,
                    Loss::Preference { .. } if job.members[member].copies_adapters => {
                        unsloths_preference(job, member, batch)?;
                    }
                    Loss::Preference { reference, .. } | Loss::Desirability { reference, .. } => {
                        preference(&job.members, member, reference, batch)?;
                    }
                    Loss::Advantage { value, .. } => advantage(job, (member, value), batch)?,
                    Loss::Divergence { teacher, .. } => distillation(job, (member, teacher), batch)?,
                    Loss::Reward { .. } if job.members[member].returns_last_state => {
                        unsloths_rewards(job, member, batch)?;
                    }
                    Loss::Odds { .. } | Loss::Comparison | Loss::Reward { .. } => {
                        answers(&job.members[member], batch)?
                    }
                }
            }
            Act::Update { member } => trained(job, member)?,
            Act::Score { member, .. } if job.members[member].returns_last_state => {
                without_adapters(&job.members[member])?;
            }
            Act::Score { member, adapted, .. } => {
                scores(&job.members[member])?;
                if !adapted {
                    without_adapters(&job.members[member])?;
                }
            }
            Act::Evaluate { member, .. } => evaluates(job, member)?,
            Act::Save { member, .. } => saves(job, member)?,
            Act::Merge { member } => merges(job, member)?,
            Act::Wake { .. } => {}
            Act::Rollout { .. } if job.cluster.has_engine() => {
                let (field, fix) = job.cluster.without_engine();
                return refuse(field, format!("PPO {} is not modelled", job.cluster.place_in_words()), fix);
            }
            Act::Rollout { member, batch, .. } => {
                one_by_one(Field::RolloutBatch, batch)?;
                generates(&job.members[member], None)?
            }
            Act::Generate { member, .. } if job.members[member].returns_last_state => unsloths_answers()?,
            Act::Generate { member, .. } => generates(&job.members[member], Some(job.cluster))?,
        }
    }
    let compares = |act: &Act| match act {
        Act::Train { loss, .. } => *loss != Loss::Labels,
        Act::Update { .. }
        | Act::Score { .. }
        | Act::Rollout { .. }
        | Act::Evaluate { .. }
        | Act::Save { .. }
        | Act::Merge { .. }
        | Act::Wake { .. }
        | Act::Generate { .. } => false,
    };
    if (job.members.len() > 1 || job.round.iter().any(compares))
        && job.members.iter().any(|member| member.offloading == Offloading::On)
    {
        let message = "activations in the CPU's memory are not modelled of a job of several models";
        return refuse(Field::Offloading, message.into(), "keep them on the GPU");
    }
    let batches: Vec<Batch> = job.round.iter().filter_map(Act::batch).collect();
    if batches.len() > 1 && batches.iter().any(|batch| batch.lengths != Lengths::Equal) {
        let message = "lengths that vary are modelled of a job with one batch only";
        return refuse(Field::Lengths, message.into(), "choose equal lengths");
    }
    Ok(())
}

/// An issue of a member that no act runs.
pub(in crate::step) fn idle(member: usize) -> Issue {
    Issue::error(Field::Model, format!("no act runs member {member}"))
        .with_fix("leave it out, or score with it")
}

fn trained(job: &Job, member: usize) -> Result<(), Issue> {
    if job.members[member].training.is_some() {
        return Ok(());
    }
    let message = format!("member {member} is trained, but nothing says how");
    Err(Issue::error(Field::Optimizer, message).with_fix("give it a training"))
}

/// What of preferences is not modelled.
fn preference(members: &[Member], policy: usize, reference: Scorer, batch: Batch) -> Result<(), Issue> {
    answers(&members[policy], batch)?;
    match reference {
        Scorer::Member(other) => {
            let has_adapters = |member: &Member| member.method != Method::Full;
            if has_adapters(&members[policy]) || has_adapters(&members[other]) {
                let message = "a reference model beside adapters is not modelled";
                let fix = "choose full fine-tuning, or the model with its adapters off as its own reference";
                return Err(Issue::error(Field::Method, message).with_fix(fix));
            }
            answers(&members[other], batch)?;
            scores(&members[other])
        }
        Scorer::WithoutAdapters => without_adapters(&members[policy]),
        Scorer::Precomputed => Ok(()),
    }
}

/// What of embedding texts is not modelled.
fn embedding(job: &Job, member: usize, batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message, fix| Err(Issue::error(field, message).with_fix(fix));
    let member = &job.members[member];
    if !classifies(member.stack) {
        let message = "embeddings are modelled with transformers, as sentence-transformers' trainer runs it";
        return refuse(Field::Stack, message, "choose transformers");
    }
    if job.cluster.has_engine() && !job.cluster.is_many() {
        return engine(job, "embeddings", "are");
    }
    if job.cluster.is_many() && job.cluster.sharding != Sharding::Ddp {
        let message = "embeddings are followed on several GPUs under DDP alone";
        return refuse(Field::Sharding, message, "choose DDP, or one GPU");
    }
    by_trainer_on_many(job, member, (Field::Task, "training of embeddings"), "choose one GPU")?;
    if batch.mask.is_packed() {
        return refuse(Field::Mask, "each text that is embedded has a row of its own", "choose padded");
    }
    if batch.lengths != Lengths::Equal {
        let message = "lengths that vary are not modelled of the columns of an example";
        return refuse(Field::Lengths, message, "choose equal lengths");
    }
    if member.step_time() == StepTime::InBackward {
        return refuse(Field::Step, "Trainer steps after backward", "let the optimizer step after backward");
    }
    if member.offloading == Offloading::On {
        return refuse(Field::Offloading, "Trainer offloads no activations", "keep them on the GPU");
    }
    Ok(())
}

/// Answers of a batch that PPOTrainer goes through one by one, and so does the step.
const MOST_ANSWERS: u64 = 4096;

/// That there are not too many of them.
fn one_by_one(field: Field, batch: Batch) -> Result<(), Issue> {
    if batch.sequences <= MOST_ANSWERS {
        return Ok(());
    }
    let message = format!(
        "more than {} answers at a time are not followed: PPOTrainer takes them one by one",
        grouped(MOST_ANSWERS)
    );
    Err(Issue::error(field, message).with_fix("choose fewer"))
}

/// What of a policy beside a value model is not modelled.
fn advantage(job: &Job, (policy, value): (usize, usize), batch: Batch) -> Result<(), Issue> {
    one_by_one(Field::Batch, batch)?;
    let refuse = |field, message: &str, fix| Err(Issue::error(field, message).with_fix(fix));
    let policy = &job.members[policy];
    answers(policy, batch)?;
    trained(job, value)?;
    if policy.precision.is_float16() {
        return refuse(Field::Precision, "PPO in float16 is not modelled", "choose bf16 or fp32");
    }
    if policy.step_time() == StepTime::InBackward {
        let message = "one optimizer steps policy and value model after backward";
        return refuse(Field::Step, message, "let the optimizer step after backward");
    }
    if policy.checkpointing == Checkpointing::Reentrant {
        let message = "PPOTrainer switches checkpointing off while it generates, and on again as the kind that is not reentrant";
        return refuse(Field::Checkpointing, message, "choose on");
    }
    if policy.adapts {
        without_adapters(policy)?;
    }
    Ok(())
}

/// What of learning from a teacher is not modelled.
fn distillation(job: &Job, (student, teacher): (usize, usize), batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message: &str, fix| Err(Issue::error(field, message).with_fix(fix));
    for member in [&job.members[student], &job.members[teacher]] {
        answers(member, batch)?;
        if member.precision.is_float16() {
            return refuse(
                Field::Precision,
                "distillation in float16 is not modelled",
                "choose bf16 or fp32",
            );
        }
    }
    if job.cluster.has_engine() {
        return engine(job, "distillation", "is");
    }
    if batch.pictures.count > 0 {
        return refuse(Field::Pictures, "distillation with pictures is not modelled", "leave them out");
    }
    if job.members[student].lora.trains_embeddings && job.members[student].adapts {
        let message = "trained embeddings beside a teacher are not modelled";
        return refuse(Field::TrainEmbeddings, message, "switch train-embeddings off");
    }
    Ok(())
}

/// Refuses a teacher whose vocabulary is another than its student's.
pub(in crate::step) fn vocabularies(job: &Job, architectures: &[&Architecture]) -> Result<(), Issue> {
    for act in &job.round {
        let Act::Train { member, loss: Loss::Divergence { teacher, divergence, .. }, .. } = *act else {
            continue;
        };
        let own = [member, teacher].map(|member| architectures[member].vocab);
        let [student, taught] = own;
        if student != taught {
            let message = format!(
                "the teacher's vocabulary has {} entries and the student's {}: trl's {} compares them entry by entry \
                 and refuses it",
                grouped(taught),
                grouped(student),
                if divergence.makes_all_logits() { "GKDTrainer" } else { "DistillationTrainer" }
            );
            let fix = "choose a teacher of the student's family, with as large a vocabulary";
            return Err(Issue::error(Field::Teacher, message).with_fix(fix));
        }
    }
    Ok(())
}

/// Refuses what was compared with no engine.
pub(super) fn engine(job: &Job, what: &str, are: &str) -> Result<(), Issue> {
    let (field, fix) = job.cluster.without_engine();
    let message = format!("{what} {} {are} not modelled", job.cluster.place_in_words());
    Err(Issue::error(field, message).with_fix(fix))
}

/// What of a model that generates is not modelled, whatever it is.
fn generates(member: &Member, cluster: Option<Cluster>) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let trains = member.training.is_some();
    if let Some(cluster) = cluster.filter(Cluster::has_engine) {
        let fix = match (trains, cluster.is_many()) {
            (true, _) => "choose one GPU, or have vLLM generate the answers",
            (false, true) => {
                "choose one GPU, or have vLLM divide the model among them: the table of formats, which is the page's Plan and the command \
                 headroom serving, says what is left"
            }
            (false, false) => cluster.without_engine().1,
        };
        let message = format!("generation {} is not modelled", cluster.place_in_words());
        return refuse(cluster.without_engine().0, message, fix);
    }
    if member.attention == AttentionKernel::FlashAttn {
        let message = "generation with the package flash-attn is not modelled";
        return refuse(Field::Attention, message.into(), "choose SDPA");
    }
    if member.adapts && (member.lora.trains_embeddings || member.lora.tuner != Tuner::Lora) {
        let message = "generation beside another tuner than LoRA, or beside embeddings that are trained whole, was not measured";
        return refuse(Field::Rollouts, message.into(), "have vLLM generate the answers");
    }
    // Liger patches the modules that generate too, and no such run was measured
    let software = member.software();
    // one that is trained besides is what trl's trainers generate with
    let trainer = if trains { Trainer::Trl } else { Trainer::Loop };
    if software.is_trl_with_liger() {
        let message = "answers that a model with Liger's kernels generates while it trains were not compared";
        let fix = "switch liger-layers off, or have vLLM generate the answers";
        return refuse(Field::LigerLayers, message.into(), fix);
    }
    if !runs_transformers(member) || software.trainer != trainer || software.liger_kernels {
        let message = format!("generation is modelled with transformers, not with {}", member.stack.label());
        return refuse(Field::Stack, message, "choose transformers");
    }
    match member.precision {
        Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => Ok(()),
        // accelerate's, which was measured
        Precision::AmpBf16 | Precision::AmpBf16Weights | Precision::AmpFp16 if trains => Ok(()),
        Precision::AmpBf16 | Precision::AmpBf16Weights | Precision::AmpFp16 | Precision::AmpFp16Weights => {
            refuse(
                Field::Precision,
                "generation is modelled without autocast".into(),
                "choose bf16, fp16 or fp32",
            )
        }
    }
}

/// What stands in the way of generating with a family's code.
pub(in crate::step) fn generation(
    architecture: &Architecture,
    modeling: Modeling,
    (member, how): (&Member, Generation),
) -> Result<(), Issue> {
    let family = &architecture.model_type;
    let alone = member.training.is_none();
    // of what a model that sees generates while it trains, trl's on texts with pictures were compared
    let answers_of_seen = member.software().trainer == Trainer::Trl && answers_pictures(family);
    let followed = match modeling.code {
        Code::Llama | Code::StableLm | Code::Gpt2 | Code::GptNeox | Code::Phi => true,
        // whose answers while they train were not
        Code::Gemma4 | Code::Falcon | Code::Opt | Code::GptBigCode => alone,
        Code::GptNeo
        | Code::GptJ
        | Code::Bloom
        | Code::Mpt
        | Code::DeepseekSparse
        | Code::OpenAiGpt
        | Code::BioGpt
        | Code::Deberta
        | Code::Bart
        | Code::ModernBert
        | Code::Bert
        | Code::Qwen => false,
    };
    let attends = |block: &Block| match &block.mixer {
        // llama4's chunks are no windows
        Mixer::Attention(attention) => match attention.rotary {
            Rotary::Complex => attention.window.is_none(),
            Rotary::Alibi => false,
            Rotary::None
            | Rotary::Full
            | Rotary::Partial { .. }
            | Rotary::Interleaved { .. }
            | Rotary::Float32
            | Rotary::Halves => true,
        },
        Mixer::Latent(_) | Mixer::None => true,
        Mixer::DeltaNet(_) | Mixer::ShortConv(_) => alone,
        Mixer::Cross(_) | Mixer::StateSpace(_) | Mixer::Module(_) => false,
    };
    if !followed
        || architecture.head.objective != Objective::CausalLm
        || architecture.encoder.is_some()
        || !(architecture.towers.is_empty() || alone && architecture.vision().is_some() || answers_of_seen)
        || !architecture.blocks.iter().all(attends)
    {
        let message =
            format!("generating with {family} is not modelled: its code was not compared with a cache");
        return Err(Issue::error(Field::Model, message).with_fix("choose another model"));
    }
    let windows = architecture.blocks.iter().filter_map(|block| block.mixer.attention()?.window).next();
    if how.cache == CacheKind::Static && windows.is_some() {
        let message = format!("a static cache of {family}, whose layers see a window only, is not modelled");
        return Err(Issue::error(Field::KvCache, message).with_fix("choose the dynamic cache"));
    }
    let keeps = |block: &Block| matches!(block.mixer, Mixer::DeltaNet(_) | Mixer::ShortConv(_));
    let keeps_states = architecture.blocks.iter().any(keeps);
    if how.cache == CacheKind::Static && keeps_states {
        let message = format!("a static cache of {family}, whose layers keep states, was not compared");
        return Err(Issue::error(Field::KvCache, message).with_fix("choose the dynamic cache"));
    }
    if how.new_tokens == 0 {
        return Err(Issue::error(Field::NewTokens, "no token is generated").with_fix("ask for one at least"));
    }
    if member.method == Method::Qlora && member.precision == Precision::Fp32 {
        let message = "quantised weights that are computed in float32 are not modelled for generation";
        return Err(Issue::error(Field::Precision, message).with_fix("choose bf16 or fp16"));
    }
    Ok(())
}
