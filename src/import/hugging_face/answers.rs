//! What trl's trainers on answers say beyond the others: pairs, answers with their rewards.

use super::super::launch;
use super::super::reader::{Reader, Said, among, could_be_a_model};
use crate::scenario::colocated::{TRL_SHARE, UNSLOTH_SHARE};
use crate::scenario::{Rollouts, Stack, Task};
use crate::text::short;

/// What memory does not depend on: numbers for each answer, and how it was generated elsewhere.
const IDLE: &[&str] = &[
    "beta",
    "loss_type",
    "loss_weights",
    "sync_ref_model",
    "label_smoothing",
    "num_generations*",
    "reward_weights",
    "reward_processing_classes",
    "reward_clip_range",
    "scale_rewards",
    "epsilon*",
    "delta",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "mask_truncated_completions",
    "importance_sampling_level",
    "log_completions",
    "num_completions_to_print",
    "vllm_*",
    "ref_model_*",
    "use_transformers_paged",
    "desirable_weight",
    "undesirable_weight",
    "simpo_gamma",
    "padding_value",
    "generate_during_eval",
    "is_encoder_decoder",
    "center_rewards_coefficient",
    "normalize_advantages",
];

/// `DPOConfig` and `KTOConfig`.
pub(super) fn pairs(reader: &mut Reader, why: &str) {
    prompt(reader);
    match reader.switch(&["precompute_ref_log_probs"]) {
        Some((on, said)) => reader.set("reference", if on { "precomputed" } else { "scored" }, &said),
        None => reader.assume("reference", "scored", why),
    }
    reader.pass(|name| among(IDLE, name));
    reader.assume("mask", "padded", why);
}

/// `ORPOConfig` and `CPOConfig`, whose cross entropy beside the comparison goes with `cpo_alpha`: without it is SimPO, whatever
/// compares.
pub(super) fn without_reference(reader: &mut Reader, why: &str) {
    prompt(reader);
    if let Some(said) = reader.take(&["cpo_alpha"]) {
        match said.number() {
            Some(0.0) => reader.set("task", Task::Simpo.slug(), &said.said),
            Some(_) => reader.idle.push(said.said),
            None => reader.keep("task", &said.said, "this is no number"),
        }
    }
    reader.pass(|name| among(IDLE, name) || name == "max_completion_length");
    reader.assume("mask", "padded", why);
}

/// `RewardConfig`.
pub(super) fn better(reader: &mut Reader, why: &str) {
    // one number for each text
    reader.pass(|name| among(IDLE, name) || name == "num_labels");
    reader.assume("mask", "padded", why);
}

/// `GRPOConfig` and `RLOOConfig`, which differ in whether there is a reference where nothing is said.
pub(super) fn answers(reader: &mut Reader, (why, reference, default): (&str, &str, &str)) {
    prompt(reader);
    answer_length(reader, "max_completion_length", 512);
    let by_unsloth = reader.scenario.stack == Stack::Unsloth && reader.scenario.task == Task::Grpo;
    if by_unsloth {
        groups(reader);
    }
    match reader.take(&["beta"]) {
        Some(said) => match said.number() {
            Some(beta) => reader.set("reference", if beta > 0.0 { "scored" } else { "none" }, &said.said),
            None => reader.keep("reference", &said.said, "this is no number"),
        },
        None if by_unsloth => unsloths_reference(reader),
        None => reader.assume("reference", reference, default),
    }
    generation(reader);
    rewards(reader);
    if by_unsloth && let Some((true, said)) = reader.switch(&["vllm_importance_sampling_correction"]) {
        reader.leave(
            &said,
            "the model then scores its answers once more: an act that is not followed under Unsloth",
        );
    }
    if let Some(said) = reader.take(&["num_iterations"]) {
        // what vLLM has generated is scored before it is learned from in any case, and so is all of RLOO
        let itself = reader.scenario.answers.rollouts == Rollouts::Transformers;
        let itself = itself && reader.scenario.task == Task::Grpo;
        match said.number() {
            Some(times) if times > 1.0 && (itself || by_unsloth) => reader.leave(
                &said.said,
                "trl then scores the answers once more before they are learned from: an act that is not in the round here, of no graph and \
                 so of no peak",
            ),
            Some(_) => reader.idle.push(said.said),
            None => reader.leave(&said.said, "this is no number"),
        }
    }
    for name in ["steps_per_generation", "generation_batch_size"] {
        reader.refuse(&[name], "as many answers are generated at a time as an optimizer step takes");
    }
    reader.pass(|name| among(IDLE, name));
    reader.assume("mask", "padded", why);
}

/// Answers that a prompt has where nothing is said (unsloth/models/rl.py).
const GENERATIONS: u64 = 8;

/// A micro-batch has as many answers as a prompt, where those of a step are no whole number of such groups (unsloth/models/rl.py).
fn groups(reader: &mut Reader) {
    // how long a text may be that its model is given, and vLLM's
    reader.pass(|name| name == "max_seq_length");
    let said = reader.take(&["num_generations"]);
    let each = match said.as_ref().map(Said::number) {
        Some(Some(each)) if (1.0..=1e6).contains(&each) => each as u64,
        Some(_) => {
            return reader.keep(
                "batch-size",
                &said.map_or_else(String::new, |said| said.said),
                "this is no number",
            );
        }
        None => GENERATIONS,
    };
    let step = reader.scenario.batch.saturating_mul(reader.scenario.accumulation);
    let said = said.map_or_else(|| format!("num_generations is {GENERATIONS} by default"), |said| said.said);
    match step.is_multiple_of(each) {
        true => reader.idle.push(said),
        false => reader.set(
            "batch-size",
            &each.to_string(),
            &format!("{said}: Unsloth takes as many answers at a time"),
        ),
    }
}

/// Unsloth has `beta` at 0.001 where nothing is said of it and a loss is named that is neither DAPO's nor Dr. GRPO's (unsloth/models/rl.py).
fn unsloths_reference(reader: &mut Reader) {
    let named = reader.take(&["loss_type"]);
    let is_far = |said: &Said| !["dapo", "dr_grpo"].contains(&said.text().to_lowercase().as_str());
    match named {
        Some(said) if is_far(&said) => {
            reader.assume("reference", "scored", &format!("{}: beta is 0.001 then under Unsloth", said.said));
        }
        Some(said) => {
            reader.assume("reference", "none", "beta is 0 by default");
            reader.idle.push(said.said);
        }
        None => reader.assume("reference", "none", "beta is 0 by default"),
    }
}

/// Whether vLLM gives back its keys and values while Unsloth trains.
const STANDBY: &[&str] = &["unsloth_vllm_standby", launch::STANDBY];

/// vLLM as `from_pretrained(fast_inference=True)` starts it, whose weights are the model's.
fn fast(reader: &mut Reader, said: &str) {
    match reader.take(&["gpu_memory_utilization"]) {
        Some(share) => percent(reader, &share),
        None => {
            let why = format!("{said}: gpu_memory_utilization is 0.5 by default");
            reader.assume("vllm-percent", &UNSLOTH_SHARE.to_string(), &why);
        }
    }
    let standby = reader.take(STANDBY);
    match standby {
        Some(said) if ["1", "true", "True"].contains(&said.text().as_str()) => {
            reader.set("vllm-sleep", "on", &said.said);
        }
        Some(said) => reader.set("vllm-sleep", "off", &said.said),
        None => reader.assume("vllm-sleep", "off", "UNSLOTH_VLLM_STANDBY is off by default"),
    }
}

/// A share of the card.
fn percent(reader: &mut Reader, share: &Said) {
    match share.number().filter(|part| (0.0..=1.0).contains(part)) {
        Some(part) => reader.set("vllm-percent", &format!("{:.0}", part * 100.0), &share.said),
        None => reader.keep("vllm-percent", &share.said, "this is no share of a card"),
    }
}

/// What is said of a model that rewards.
pub(in crate::import) const REWARDS: &str =
    "this model rewards the answers on the same card: its memory is not counted";

/// Who rewards the answers: functions, or models that trl loads beside the one that is trained (trainer/grpo_trainer.py).
fn rewards(reader: &mut Reader) {
    reader.refuse(&["reward_model_name_or_path", "reward_model_path"], REWARDS);
    let Some(said) = reader.take(&["reward_funcs"]) else { return };
    let words = said.words();
    let models: Vec<&str> = words.iter().map(|word| word.trim()).filter(|word| is_a_model(word)).collect();
    match models.is_empty() {
        true => reader.idle.push(said.said),
        false => reader.leave(&format!("reward_funcs: {}", short(&models.join(", "))), REWARDS),
    }
}

/// Whether what rewards is a model, by its name on the Hub or as it is loaded, and no function.
fn is_a_model(word: &str) -> bool {
    could_be_a_model(word) && word.contains('/') || word.contains(".from_pretrained(")
}

/// `PPOConfig`.
pub(super) fn policy(reader: &mut Reader, why: &str) {
    prompt(reader);
    answer_length(reader, "response_length", 53);
    reader.or_assume("rollout-batch", &["local_rollout_forward_batch_size"], "64", why);
    reader.or_assume("mini-batches", &["num_mini_batches"], "1", why);
    reader.or_assume("ppo-epochs", &["num_ppo_epochs"], "4", why);
    reader.assume("reference", "scored", "PPOTrainer always has one");
    reader.pass(|name| among(IDLE, name) || among(POLICY_IDLE, name));
    reader.assume("mask", "padded", why);
}

/// What of `PPOConfig` and `PPOTrainer` memory does not depend on.
const POLICY_IDLE: &[&str] = &[
    "reward_*",
    "kl_coef",
    "kl_estimator",
    "cliprange*",
    "vf_coef",
    "gamma",
    "lam",
    "whiten_rewards",
    "total_episodes",
    "stop_token*",
    "missing_eos_penalty",
    "model_adapter_name",
    "num_sample_generations",
    "value_model",
    "ref_model",
    "num_labels",
    "max_grad_norm",
];

/// What transformers' `generate` is given, and the value with which it takes nothing but the logits: else the vocabulary is cut
/// or sorted for every token.
const CUTS: &[(&str, Option<f64>)] = &[
    ("temperature", Some(1.0)),
    ("top_p", Some(1.0)),
    ("top_k", Some(0.0)),
    ("min_p", None),
    ("repetition_penalty", Some(1.0)),
    ("cache_implementation", None),
    ("generation_kwargs", None),
];

/// transformers generates in the process that trains.
fn itself(reader: &mut Reader, off: Option<String>) {
    let batched = ["use_transformers_continuous_batching", "use_transformers_paged"];
    if let Some((true, said)) = reader.switch(&batched) {
        reader.leave(
            &said,
            "its pages of keys and values are not followed: as if a server elsewhere generated",
        );
        reader.quietly("rollouts", "server");
        return reader.quietly("vllm-percent", "0");
    }
    match off {
        Some(said) => reader.set("rollouts", "transformers", &said),
        None => reader.assume("rollouts", "transformers", "use_vllm is off by default in trl 1.16"),
    }
    for (name, usual) in CUTS {
        let Some(said) = reader.take(&[name]) else { continue };
        if usual.is_some() && said.number() == *usual {
            reader.idle.push(said.said);
        } else {
            reader.leave(
                &said.said,
                "answers are followed as drawn from the whole vocabulary, with a cache that grows",
            );
        }
    }
}

/// Who generates the answers: a server, vLLM on the same card, or transformers in the process.
pub(super) fn generation(reader: &mut Reader) {
    let mode = reader.take(&["vllm_mode"]);
    // of a scenario that is read over
    reader.quietly("rollouts", "server");
    let share = reader.take(&["vllm_gpu_memory_utilization"]);
    if reader.scenario.stack == Stack::Unsloth
        && let Some((true, said)) = reader.switch(&["fast_inference"])
    {
        // the trainer is told of it by itself
        reader.pass(|name| name == "use_vllm");
        return fast(reader, &said);
    }
    match (reader.switch(&["use_vllm"]), mode) {
        (Some((true, said)), Some(mode)) if mode.text() == "server" => {
            reader.set("vllm-percent", "0", &format!("{said}, {}", mode.said));
        }
        (Some((true, said)), mode) => {
            colocated(reader, (said, mode), share);
            for said in reader.take_each(&["vllm_tensor_parallel_size"]) {
                match said.number() {
                    Some(1.0) => reader.idle.push(said.said),
                    _ => reader.leave(&said.said, "a model that vLLM divides among GPUs is not followed beside the training: all of it is counted"),
                }
            }
            for said in reader.take_each(&["vllm_max_model_length"]) {
                match said.number() {
                    Some(length) if length == reader.scenario.sequence as f64 => reader.idle.push(said.said),
                    _ => reader.leave(
                        &said.said,
                        "vLLM is taken to be asked for sequences as long as the scenario's",
                    ),
                }
            }
            match reader.switch(&["vllm_enable_sleep_mode"]) {
                Some((on, said)) => reader.set("vllm-sleep", if on { "on" } else { "off" }, &said),
                None => reader.assume("vllm-sleep", "off", "vllm_enable_sleep_mode is off by default"),
            }
        }
        (off, _) => {
            let off = off.map(|(_, said)| said);
            itself(reader, off);
        }
    }
}

/// vLLM's share of the card.
fn colocated(reader: &mut Reader, (said, mode): (String, Option<Said>), share: Option<Said>) {
    match share {
        Some(share) => percent(reader, &share),
        None => {
            let why = mode.map_or(said, |mode| mode.said);
            reader.assume(
                "vllm-percent",
                &TRL_SHARE.to_string(),
                &format!("{why}: vLLM's share of the card is 0.3 by default"),
            );
        }
    }
}

/// How long a prompt and its answer are together.
pub(super) fn answer_length(reader: &mut Reader, name: &str, default: u64) {
    let prompt = reader.scenario.answers.prompt;
    let written = |answer: u64| prompt.saturating_add(answer).to_string();
    let Some(said) = reader.take(&[name]) else {
        let why = format!("answers of {default} tokens are the default");
        return reader.assume("seq-length", &written(default), &why);
    };
    match said.number().filter(|tokens| (1.0..=1e9).contains(tokens)) {
        Some(tokens) => {
            let why = format!("{}, behind a prompt of {prompt} tokens", said.said);
            reader.set("seq-length", &written(tokens as u64), &why);
        }
        None => reader.keep("seq-length", &said.said, "this is no number of tokens"),
    }
}

/// How long the prompt is, where an older version says it.
pub(super) fn prompt(reader: &mut Reader) {
    match reader.take(&["max_prompt_length"]) {
        Some(said) => reader.set("prompt-length", &said.text(), &said.said),
        None => {
            let length = reader.scenario.answers.prompt.to_string();
            reader.assume("prompt-length", &length, "trl 1.16 has no argument for it: as it was");
        }
    }
}
