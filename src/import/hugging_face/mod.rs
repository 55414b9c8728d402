//! Arguments of transformers, trl, peft and bitsandbytes, and of Unsloth, whose cells hand the same ones on.

mod answers;
mod arguments;
mod known;
mod weights;

use super::launch;
use super::reader::{Reader, among};
use super::trainer;
use crate::scenario::Stack;
use arguments::{arguments, attention, checkpointing};
use known::{IDLE, REFUSED};
use weights::{adapters, method, precision};

/// What of these libraries a text has: only what is there has defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// `SFTConfig`, or the whole of trl's command.
    pub trl: bool,
    /// `SFTConfig` itself, whose defaults are others than those of `TrainingArguments` under trl's trainer.
    pub sft_config: bool,
    /// `TrainingArguments`, of which `SFTConfig` is one.
    pub arguments: bool,
    /// All classes of trl's command at once: `trl sft --config`, `sft.py`.
    pub command: bool,
    /// Whose arguments they are.
    pub trainer: Trainer,
    /// A model is loaded by the text itself.
    pub loads: bool,
    /// `LoraConfig`, or another way to adapters.
    pub adapters: bool,
    /// `FastLanguageModel`.
    pub unsloth: bool,
    /// `prepare_model_for_kbit_training` is called.
    pub prepares: bool,
}

/// Which of trl's trainers a text is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trainer {
    /// Fine-tuning on texts, as transformers' own trainer does too.
    #[default]
    Sft,
    /// `DPOConfig` and `DPOTrainer`.
    Dpo,
    /// `GRPOConfig` and `GRPOTrainer`.
    Grpo,
    /// One that is not read.
    Other,
}

impl Parts {
    fn has_trls_defaults(self) -> bool {
        self.sft_config || self.command || [Trainer::Dpo, Trainer::Grpo].contains(&self.trainer)
    }
}

const TRL: &str = "SFTConfig's default in trl 1.16";
const DPO: &str = "DPOConfig's default in trl 1.16";
const GRPO: &str = "GRPOConfig's default in trl 1.16";
const ARGUMENTS: &str = "TrainingArguments' default in transformers 5.17";
const MODEL: &str = "ModelConfig's default in trl 1.16";
const LORA: &str = "LoraConfig's default in peft 0.21";

pub(super) fn read(reader: &mut Reader, parts: Parts) {
    let model = reader.take(&[
        "model_name_or_path",
        "from_pretrained.model_name",
        "from_pretrained.pretrained_model_name_or_path",
        "Trainer.model",
        "SFTTrainer.model",
        "DPOTrainer.model",
        "GRPOTrainer.model",
        "RLOOTrainer.model",
        "RewardTrainer.model",
        "KTOTrainer.model",
        "ORPOTrainer.model",
        "CPOTrainer.model",
    ]);
    if let Some(said) = &model {
        reader.model(said);
    }
    stack(reader, parts);
    method(reader, parts, model.is_some());
    precision(reader, parts);
    adapters(reader, parts);
    attention(reader, parts);
    if parts.arguments {
        arguments(reader, parts);
    }
    checkpointing(reader, parts);
    launch::of_arguments(reader);
    if let Some((true, said)) = reader.switch(&["fast_inference"]) {
        let why = "vLLM's weights and cache on the same card are not predicted";
        reader.leave(&said, why);
        reader.refuse(&["gpu_memory_utilization"], why);
    }
    if let Some(said) = reader.take(&["peft_type"]) {
        match said.text().to_ascii_uppercase().as_str() {
            "LORA" => reader.idle.push(said.said),
            _ => reader.leave(&said.said, "of peft's adapters LoRA's are predicted"),
        }
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    if let Some((true, said)) = reader.switch(&["use_cache"]) {
        reader.idle.push(said);
    }
    reader.pass(|name| among(IDLE, name) || ["gpu_memory_utilization", "fast_inference"].contains(&name));
}

fn stack(reader: &mut Reader, parts: Parts) {
    let liger = reader.switch(&["use_liger_kernel", "use_liger"]);
    if parts.unsloth {
        reader.set("stack", Stack::Unsloth.slug(), "FastLanguageModel");
    } else if let Some((true, said)) = liger {
        reader.set("stack", Stack::Liger.slug(), &said);
    } else if parts.trl {
        let (trainer, classes) = match parts.trainer {
            Trainer::Dpo => ("DPOTrainer", "DPOConfig, DPOTrainer"),
            Trainer::Grpo => ("GRPOTrainer", "GRPOConfig, GRPOTrainer"),
            Trainer::Sft | Trainer::Other => ("SFTTrainer", "SFTConfig, SFTTrainer"),
        };
        match parts.command {
            true => {
                reader.assume("stack", Stack::Trl.slug(), &format!("trl's command trains with {trainer}"))
            }
            false => reader.set("stack", Stack::Trl.slug(), classes),
        }
    } else if parts.arguments {
        reader.set("stack", Stack::Transformers.slug(), "TrainingArguments");
    }
    if parts.arguments || parts.unsloth {
        match parts.trainer {
            Trainer::Dpo => reader.assume("task", "dpo", "these are DPOTrainer's arguments"),
            Trainer::Grpo => reader.assume("task", "grpo", "these are GRPOTrainer's arguments"),
            Trainer::Sft => reader.assume("task", "sft", "no other trainer is named"),
            Trainer::Other => reader.assume("task", "sft", "the trainer that is named is not read"),
        }
        trainer::usual_loop(reader);
    }
}
