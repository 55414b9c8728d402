//! What trl's trainers that learn from a teacher say beyond the others: `DistillationConfig`, and `GKDConfig` of its experimental ones.

use super::super::reader::{Reader, Said, among};
use super::answers::{answer_length, generation, prompt};
use super::arguments::length_of_sequences;
use super::{Parts, Trainer};
use crate::scenario::{Divergence, Precision, Rollouts, TeacherWeights};

/// Settings of a teacher that a script loads itself, beside what its configuration says of one.
pub(in crate::import) const LOADED: &str = "teacher.loaded";
pub(in crate::import) const LOADED_DTYPE: &str = "teacher.dtype";
pub(in crate::import) const LOADED_IN_4_BITS: &str = "teacher.load_in_4bit";

/// What memory does not depend on: which divergence it is, and how answers are drawn.
const IDLE: &[&str] = &[
    "beta",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "generation_kwargs*",
    "chat_template_kwargs*",
    "teacher_model_revision",
    "teacher_model_init_kwargs.trust_remote_code",
    "teacher_model_init_kwargs.attn_implementation",
    "teacher_model_init_kwargs.device_map*",
    "teacher_model_init_kwargs.low_cpu_mem_usage",
    "shuffle_dataset",
    "log_completions*",
    "log_unique_prompts",
    "num_completions_to_print",
    "max_tool_calling_iterations",
    "ds3_gather_for_generation",
    "vllm_*",
    "cache_implementation",
    "ref_model",
];

/// `DistillationConfig` and `GKDConfig`.
pub(super) fn distillation(reader: &mut Reader, parts: Parts, why: &str) {
    let is_gkd = parts.trainer == Trainer::Gkd;
    if is_gkd {
        prompt(reader);
        length_of_sequences(reader, parts, why);
    } else {
        prompt(reader);
        answer_length(reader, "max_completion_length", 512);
    }
    teacher(reader, parts);
    if is_gkd {
        mixed(reader);
    } else {
        reader.pass(|name| name == "lmbda");
        generation(reader);
    }
    if is_gkd {
        of_all_logits(reader);
        if let Some((false, said)) = reader.switch(&["disable_dropout"]) {
            reader.leave(&said, "dropout is predicted as GKDTrainer has it by default, switched off");
        }
    } else if let Some((true, said)) = reader.switch(&["disable_dropout"]) {
        reader.leave(&said, "dropout is predicted as DistillationTrainer has it by default, which is on where the model has one");
    }
    let tail = ["loss_top_k", "loss_add_tail", "loss_mode", "reverse_kl_top_1_mode"];
    for said in reader.take_each(&tail) {
        let why = "a loss over the teacher's likeliest tokens alone is not modelled: predicted over the whole vocabulary, a tile at a time";
        match said.number() == Some(0.0) {
            true => reader.idle.push(said.said),
            false => reader.leave(&said.said, why),
        }
    }
    reader.refuse(
        &["use_teacher_server", "teacher_model_server_url"],
        "a teacher on a server is not followed: it is counted on this card",
    );
    reader.pass(|name| among(IDLE, name) || is_gkd && name == "disable_dropout");
    reader.assume("mask", "padded", why);
}

/// By which divergence GKD's loss, which makes all logits of student and teacher, holds one against the other: 0.5 by default.
fn of_all_logits(reader: &mut Reader) {
    let beta = reader.take(&["beta"]);
    let divergence = match beta.as_ref().and_then(Said::number) {
        Some(0.0) => Divergence::GkdForward,
        Some(1.0) => Divergence::GkdReverse,
        _ => Divergence::Gkd,
    };
    match beta {
        Some(said) => reader.set("divergence", divergence.slug(), &said.said),
        None => {
            reader.assume("divergence", divergence.slug(), "GKDTrainer's beta is 0.5 by default in trl 1.16")
        }
    }
}

/// Which teacher, and how its weights lie on the card.
fn teacher(reader: &mut Reader, parts: Parts) {
    let is_gkd = parts.trainer == Trainer::Gkd;
    match reader.take(&["teacher_model_name_or_path", "teacher_model"]) {
        Some(said) => reader.teacher(&said),
        None if is_gkd => {
            reader.assume("teacher", "same", "no teacher that is known is named: the student's own model")
        }
        None => {
            reader.leave(
                "teacher_model",
                "which model the teacher is does not stand here in a way that is read",
            );
            reader.assume("teacher", "same", "no teacher that is known is named");
        }
    }
    let is_loaded = reader.take(&[LOADED]).is_some();
    let init = |name: &str| format!("teacher_model_init_kwargs.{name}");
    let four = [init("load_in_4bit"), init("quantization_config.load_in_4bit")];
    let four = reader.switch(&[LOADED_IN_4_BITS, &four[0], &four[1]]);
    let dtype = reader.take(&[LOADED_DTYPE, &init("dtype"), &init("torch_dtype")]);
    let others = [init("load_in_8bit"), init("quantization_config.load_in_8bit")];
    reader
        .refuse(&[&others[0], &others[1]], "of a teacher's weights those in 4, 16 and 32 bits are predicted");
    if let Some((true, said)) = four {
        reader.idle.extend(dtype.map(|dtype| dtype.said));
        return reader.set("teacher-weights", TeacherWeights::Nf4.slug(), &said);
    }
    let Some(said) = dtype else {
        let is_16_bits = matches!(reader.scenario.precision, Precision::AmpBf16Weights | Precision::Bf16);
        let (weights, why) = match (is_loaded, parts.command, is_gkd) {
            (true, ..) => (
                TeacherWeights::Bf16,
                "transformers 5 loads weights as they were published: taken for bfloat16",
            ),
            (_, true, _) if is_16_bits => {
                (TeacherWeights::Bf16, "trl's command loads the teacher in the student's dtype")
            }
            (_, true, _) => (TeacherWeights::Fp32, "trl's command loads in float32 where nothing is said"),
            (_, _, true) => {
                (TeacherWeights::Bf16, "GKDTrainer loads a teacher as it was published: taken for bfloat16")
            }
            (false, false, false) => {
                (TeacherWeights::Fp32, "DistillationTrainer loads a teacher in float32 where nothing is said")
            }
        };
        return reader.assume("teacher-weights", weights.slug(), why);
    };
    match said.text().trim_start_matches("torch.") {
        "float32" => reader.set("teacher-weights", TeacherWeights::Fp32.slug(), &said.said),
        "bfloat16" => reader.set("teacher-weights", TeacherWeights::Bf16.slug(), &said.said),
        "auto" => {
            let why = format!("{}, as it was published: taken for bfloat16", said.said);
            reader.set("teacher-weights", TeacherWeights::Bf16.slug(), &why);
        }
        "float16" => {
            let why = format!("{}, which is as large as bfloat16", said.said);
            reader.set("teacher-weights", TeacherWeights::Bf16.slug(), &why);
        }
        _ => reader.misread(&said.said, "of a teacher's weights those in 4, 16 and 32 bits are predicted"),
    }
}

/// How GKD's answers come: with a chance of `lmbda` the student generates those of a micro-batch, with `seq_kd` the teacher does where it
/// does not.
fn mixed(reader: &mut Reader) {
    const AT_ONCE: &str = "GKDTrainer draws by chance whether it generates the answers of a micro-batch: predicted as a step that begins with \
                           a micro-batch of which it does";
    const TEACHERS: &str = "the teacher's generation is not followed";
    reader.quietly("rollouts", Rollouts::Server.slug());
    let share = reader.take(&["lmbda"]);
    let by_teacher = reader.switch(&["seq_kd"]);
    reader.pass(|name| name == "max_new_tokens");
    let teachers = by_teacher.as_ref().is_some_and(|(on, _)| *on);
    let always = share.as_ref().is_some_and(|said| said.number().is_some_and(|share| share >= 1.0));
    let never = |said: &Said| said.number() == Some(0.0);
    match share {
        Some(said) if never(&said) && teachers => reader.leave(&said.said, TEACHERS),
        Some(said) if never(&said) => reader.idle.push(said.said),
        Some(said) => {
            reader.set("rollouts", Rollouts::Transformers.slug(), &said.said);
            if !always {
                reader.leave(&said.said, AT_ONCE);
            }
        }
        None => {
            reader.assume("rollouts", Rollouts::Transformers.slug(), "lmbda is 0.5 by default in trl 1.16");
            reader.leave("lmbda", AT_ONCE);
        }
    }
    match by_teacher {
        Some((true, said)) if !always => reader.leave(&said, TEACHERS),
        Some((_, said)) => reader.idle.push(said),
        None => {}
    }
}
