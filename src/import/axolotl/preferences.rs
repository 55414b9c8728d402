//! `rl:` of axolotl's files: its trainers of preferences are trl's (core/builders/rl.py), of the version that it pins, 1.9.

use super::super::reader::{Reader, among};
use crate::scenario::{LossKernel, Method, Stack, Task};

/// What of these trainers memory does not depend on.
const IDLE: &[&str] = &[
    "rl_beta",
    "orpo_alpha",
    "simpo_gamma",
    "dpo_loss_type",
    "dpo_loss_weights",
    "dpo_label_smoothing",
    "kto_desirable_weight",
    "kto_undesirable_weight",
    "trl.beta",
];

/// What transformers' modules are given under another trainer, and what trl's has in its place.
const KERNELS: &[&str] = &[
    "plugins",
    "liger_rope",
    "liger_rms_norm",
    "liger_glu_activation",
    "liger_swiglu",
    "liger_layer_norm",
    "liger_fused_linear_cross_entropy",
    "cut_cross_entropy",
];

/// The task, and the trainer with it where it learns from preferences; whether it does.
pub(super) fn task(reader: &mut Reader) -> bool {
    let Some(said) = reader.take(&["rl"]) else {
        reader.quietly("task", Task::Sft.slug());
        return false;
    };
    let task = match said.text().as_str() {
        // other sums of the same numbers
        "dpo" | "ipo" => Task::Dpo,
        "kto" => Task::Kto,
        "orpo" => Task::Orpo,
        "simpo" => {
            let alpha = reader.take(&["cpo_alpha"]);
            match &alpha {
                Some(alpha) if alpha.number() == Some(0.0) => Task::Simpo,
                // the better answers' cross entropy is beside it, as CPOConfig's default has it
                Some(_) | None => Task::Cpo,
            }
        }
        "grpo" => Task::Grpo,
        _ => {
            let why = "of what axolotl learns beside texts dpo, ipo, kto, orpo, simpo and grpo are read: what follows is of fine-tuning on texts";
            reader.replace("task", Task::Sft.slug(), &said.said, why);
            return false;
        }
    };
    reader.set("task", task.slug(), &said.said);
    // its name tells the version, which goes with the loss
    reader.quietly("loss", LossKernel::Axolotl.slug());
    reader.assume(
        "stack",
        Stack::Trl.slug(),
        "axolotl learns from preferences with trl's trainers (core/builders/rl.py)",
    );
    let why = "axolotl 0.19 has trl 1.9, which makes all logits, and kernels of its own over them (loaders/patch_manager.py)";
    reader.assume("loss", LossKernel::Axolotl.slug(), why);
    if task == Task::Grpo {
        let why = "all logits of GRPO, which trl 1.9 makes under axolotl, are not modelled: there is no answer with this loss (trl 1.16's own is \
                   the standard one)";
        reader.leave(&said.said, why);
    }
    true
}

/// What is said of answers that are generated and learned from: `trl:` has `GRPOConfig`'s arguments.
pub(super) fn answers(reader: &mut Reader) {
    let prompt = reader.scenario.answers.prompt;
    reader.assume(
        "prompt-length",
        &prompt.to_string(),
        "the file does not say how long prompts are: as it was",
    );
    reader.assume("mask", "padded", "trl pads prompts and answers");
    if let Some(said) = reader.take(&["trl.max_completion_length"]) {
        match said.number().filter(|tokens| (1.0..=1e9).contains(tokens)) {
            Some(tokens) => {
                let why = format!("{}, behind a prompt of {prompt} tokens", said.said);
                reader.set("seq-length", &prompt.saturating_add(tokens as u64).to_string(), &why);
            }
            None => reader.keep("seq-length", &said.said, "this is no number of tokens"),
        }
    }
    match reader.take(&["trl.beta"]) {
        Some(said) => match said.number() {
            Some(beta) => reader.set("reference", if beta > 0.0 { "scored" } else { "none" }, &said.said),
            None => reader.keep("reference", &said.said, "this is no number"),
        },
        None => reader.assume("reference", "none", "beta is 0 by default, as in trl 1.16"),
    }
    reader.pass(|name| name == "trl.num_generations");
}

/// What else is said of such a trainer, once the rest of the file is known.
pub(super) fn settings(reader: &mut Reader) {
    let prompt = reader.scenario.answers.prompt.to_string();
    reader.assume("mask", "padded", "trl's trainers of preferences pad their rows");
    reader.pass(|name| ["pad_to_sequence_len", "eval_sample_packing", "pad_to_multiple_of"].contains(&name));
    reader.assume("prompt-length", &prompt, "the file does not say how long prompts are: as it was");
    let task = reader.scenario.task;
    let adapted = reader.scenario.method.has_adapters();
    if task.has_reference() {
        reference(reader, task);
    }
    if !adapted && matches!(task, Task::Kto | Task::Cpo | Task::Simpo) {
        let why = "axolotl loads a second model that the trainer is not given (train.py `setup_reference_model`): its weights come on top";
        reader.leave("rl with all weights trained", why);
    }
    if task.is_of_odds() && reader.scenario.method == Method::Qlora {
        let why = "axolotl hands trl a model that has its adapters: the float32 norms that trl's trainer makes of a quantised model itself, and \
                   which are predicted, are not there";
        reader.leave("rl with quantised weights", why);
    }
    for (names, why) in [
        (KERNELS, "kernels of others in the model under trl's trainers of preferences are not predicted"),
        (&["dpo_use_liger_kernel"], "Liger's fused loss of pairs is not predicted"),
        (&["sample_packing", "batch_flattening"], "axolotl refuses to pack texts with rl"),
        (&["dpo_use_weighting"], "weights of pairs are not predicted"),
    ] {
        reader.refuse(names, why);
    }
    // trl falls back to padding and says so
    reader.pass(|name| among(IDLE, name) || name == "dpo_padding_free");
}

/// What the model is held against. Of precomputed log-probabilities axolotl tells trl's trainer of pairs alone (core/trainers/dpo).
fn reference(reader: &mut Reader, task: Task) {
    let adapted = reader.scenario.method.has_adapters();
    match reader.switch(&["precompute_ref_log_probs"]) {
        Some((true, said)) if task == Task::Dpo && adapted => reader.set("reference", "precomputed", &said),
        Some((true, said)) => {
            let why = if task == Task::Dpo {
                "axolotl loads the reference model all the same"
            } else {
                "axolotl tells trl's trainer of pairs alone"
            };
            reader.leave(&said, why);
            reader.quietly("reference", "scored");
        }
        Some((false, said)) => reader.set("reference", "scored", &said),
        None => reader.assume("reference", "scored", "precompute_ref_log_probs is off by default"),
    }
    if let Some((true, said)) = reader.switch(&["rl_adapter_ref_model"])
        && adapted
    {
        reader.leave(&said, "a reference model beside adapters is not predicted");
    }
}
