//! Unsloth's `FastLanguageModel` under trl's `SFTTrainer`, as its notebooks have it.

use super::python::{Call, boolean, strings};
use super::run::Run;
use super::trl;
use crate::import::names::optim;
use crate::issue::{Field, Issue};
use crate::scenario::{Checkpointing, Compile, LoraTargets, Mask, Method, Modules, Task};

/// The inputs that it says beside those that every file says.
pub(super) const SAID: &[&str] = &["compile"];

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let no = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if scenario.task != Task::Sft {
        let message = "files for Unsloth are written for fine-tuning alone";
        return no(Field::Task, message, "choose trl");
    }
    if scenario.mask == Mask::Ones {
        return no(Field::Mask, "Unsloth's files leave the mask to the data collator", "choose no mask");
    }
    let Some(optimizer) = optim(scenario.optimizer) else {
        return no(
            Field::Optimizer,
            "transformers has no name for this optimizer",
            "choose AdamW or 8-bit AdamW",
        );
    };
    let checkpointing = match scenario.checkpointing {
        Checkpointing::Off => "False",
        Checkpointing::NonReentrant
        | Checkpointing::Reentrant
        | Checkpointing::Alternate
        | Checkpointing::Operations
        | Checkpointing::Selective => "True",
        Checkpointing::Offloaded => "\"unsloth\"",
    };
    let load = Call::new("FastLanguageModel.from_pretrained")
        .with("MODEL")
        .keyword("max_seq_length", scenario.sequence)
        .keyword("dtype", run.compute())
        .keyword("load_in_4bit", boolean(scenario.method == Method::Qlora));
    let adapters = Call::new("FastLanguageModel.get_peft_model")
        .with("model")
        .keyword("r", scenario.lora.rank)
        .keyword("lora_alpha", scenario.lora.rank.saturating_mul(2))
        .keyword("lora_dropout", 0)
        .keyword("bias", "\"none\"")
        .keyword("target_modules", targets(run))
        .keyword("use_gradient_checkpointing", checkpointing);
    let parts = [
        run.header(&["unsloth==2026.10.9", "datasets"]),
        "\n".to_owned(),
        run.environment(match scenario.compile {
            Compile::Off => &[("UNSLOTH_COMPILE_DISABLE", "1")],
            // what it does by itself
            Compile::Layers | Compile::Model => &[],
        }),
        // first, because it changes the libraries behind it
        "from unsloth import FastLanguageModel\nimport torch\nfrom datasets import load_dataset\nfrom trl import SFTConfig, SFTTrainer\n"
            .to_owned(),
        format!("\nMODEL = {}\nDATA = \"stanfordnlp/imdb\"  # of the Hub, with a column \"text\" or conversations\n", run.model()),
        "LEARNING_RATE = 2e-4\n\n".to_owned(),
        format!("model, tokenizer = {}\nmodel = {}\n", load.written(0), adapters.written(0)),
        format!(
            "trainer = SFTTrainer(\n    model=model,\n    processing_class=tokenizer,\n    args={},\n",
            trl::arguments(run, ("SFTConfig", Some(optimizer)), None).written(1)
        ),
        "    train_dataset=load_dataset(DATA, split=\"train\"),\n)\ntrainer.train()\ntrainer.save_model()\n".to_owned(),
    ];
    Ok(parts.concat())
}

/// Unsloth takes names only.
fn targets(run: &Run<'_>) -> String {
    match run.scenario.lora.targets {
        LoraTargets::AllLinear | LoraTargets::AllLinearAndHead => {
            let head = Modules::NONE.with("lm_head").unwrap_or_default();
            let all = Modules::of(&run.architecture);
            let whole = run.scenario.lora.targets == LoraTargets::AllLinearAndHead;
            strings(if whole { all } else { all.beside(head) }.iter())
        }
        LoraTargets::Qv => strings(["q_proj", "v_proj"]),
        LoraTargets::Attention | LoraTargets::Mlp | LoraTargets::Named => run.targets().unwrap_or_default(),
    }
}
