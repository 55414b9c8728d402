//! `stage: dpo` of LLaMA-Factory's files: its own trainer of pairs (train/dpo/trainer.py).

use super::super::evaluation::{OF_OTHER_TASKS, is_off};
use super::super::reader::Reader;
use crate::scenario::{LossKernel, Stack, Task};

/// What of that trainer memory does not depend on.
const IDLE: &[&str] = &[
    "pref_beta",
    "pref_ftx",
    "dpo_label_smoothing",
    "simpo_gamma",
    "ref_model_adapters",
    "ref_model_quantization_bit",
];

/// The task that a stage is, and the trainer with it; whether it is one of preferences.
pub(super) fn task(reader: &mut Reader) -> bool {
    let stage = reader.take(&["stage"]);
    let is_of_pairs = match &stage {
        Some(said) if said.text() == "dpo" => true,
        Some(said) if ["sft", "pt"].contains(&said.text().as_str()) => {
            reader.idle.push(said.said.clone());
            false
        }
        Some(said) => {
            let why =
                "of LLaMA-Factory's stages sft, pt and dpo are read: what follows is of fine-tuning on texts";
            reader.leave(&said.said, why);
            false
        }
        None => false,
    };
    let Some(stage) = stage.filter(|_| is_of_pairs) else {
        reader.quietly("task", Task::Sft.slug());
        return false;
    };
    let loss = reader.take(&["pref_loss"]);
    let task = match loss.as_ref().map(|said| said.text()).as_deref() {
        None | Some("sigmoid" | "hinge" | "ipo" | "kto_pair") => Some(Task::Dpo),
        Some("orpo") => Some(Task::Orpo),
        Some("simpo") => Some(Task::Simpo),
        Some(_) => None,
    };
    let said = match &loss {
        Some(loss) => format!("{}, {}", stage.said, loss.said),
        None => stage.said,
    };
    match task {
        Some(task) => reader.set("task", task.slug(), &said),
        None => {
            reader.quietly("task", Task::Dpo.slug());
            reader.leave(&said, "this loss of pairs is not known here: DPO's is taken");
        }
    }
    // its name tells the project, which goes with the loss
    reader.quietly("loss", LossKernel::LogSoftmax.slug());
    reader.assume("stack", Stack::Trl.slug(), "LLaMA-Factory's trainer of pairs stands on trl's");
    let why = "LLaMA-Factory's trainer of pairs makes log-probabilities of the whole vocabulary in float32 (train/trainer_utils.py)";
    reader.assume("loss", LossKernel::LogSoftmax.slug(), why);
    true
}

/// What else is said of such a trainer.
pub(super) fn settings(reader: &mut Reader) {
    let prompt = reader.scenario.answers.prompt.to_string();
    reader.assume("prompt-length", &prompt, "the file does not say how long prompts are: as it was");
    if reader.scenario.task.has_reference() {
        reader.assume("reference", "scored", "LLaMA-Factory asks the reference in every step");
    }
    if let Some(said) = reader.take(&["eval_strategy", "evaluation_strategy"]) {
        if is_off(&said) {
            reader.idle.push(said.said);
        } else {
            reader.leave(&said.said, OF_OTHER_TASKS);
        }
    }
    reader.refuse(&["ref_model"], "a reference model of its own is not predicted");
    reader.refuse(&["pref_bco_weight", "ld_alpha"], "this part of the loss is not predicted");
    for name in ["use_unsloth", "enable_liger_kernel"] {
        reader.refuse(&[name], "this is not predicted under its trainer of pairs");
    }
    reader.pass(|name| IDLE.contains(&name));
}
