//! trl's `SFTTrainer`, `DPOTrainer` and `KTOTrainer`.

use super::python::{Call, boolean, string};
use super::run::Run;
use crate::import::names::optim;
use crate::issue::{Field, Issue};
use crate::scenario::{Mask, Method, Offloading, Precision, Reference, Scenario, Task};

/// The inputs that it says beside those that every file says.
pub(super) const SAID: &[&str] = &[
    "task",
    "prompt-length",
    "reference",
    "adapter",
    "lora-dropout",
    "train-embeddings",
    "double-quant",
    "attention",
    "dropout",
    "activation-offloading",
];

/// What trains for a task: the trainer, its configuration, and data of the Hub that it can be tried on.
fn trainer(task: Task) -> Result<[&'static str; 3], Issue> {
    let refuse = |message| Err(Issue::error(Field::Task, message).with_fix("choose fine-tuning, DPO or KTO"));
    match task {
        Task::Sft => Ok([
            "SFTTrainer",
            "SFTConfig",
            "\"stanfordnlp/imdb\"  # of the Hub, with a column \"text\" or conversations",
        ]),
        Task::Dpo => Ok([
            "DPOTrainer",
            "DPOConfig",
            "\"trl-lib/ultrafeedback_binarized\"  # of the Hub, with columns \"chosen\" and \"rejected\"",
        ]),
        Task::Kto => Ok([
            "KTOTrainer",
            "KTOConfig",
            "\"trl-lib/kto-mix-14k\"  # of the Hub, with columns \"prompt\", \"completion\" and \"label\"",
        ]),
        Task::Classify => refuse("no file is written for classification, whose labels are those of its data"),
        Task::Reward => refuse("no file is written for reward models, which are of another class"),
        Task::Orpo | Task::Cpo | Task::Simpo => {
            refuse("no file is written for ORPO, CPO and SimPO, whose trainers are trl's experimental ones")
        }
        Task::Distil => refuse("no file is written for distillation, whose answers a server generates"),
        Task::Grpo | Task::Rloo => {
            refuse("no file is written for GRPO and RLOO, whose rewards are code of one's own")
        }
        Task::Generate => refuse("no file is written for a model that generates"),
    }
}

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let [trainer, config, data] = trainer(scenario.task)?;
    let mut packages = vec!["torch==2.11.*", "transformers==5.17.*", "trl==1.16.*", "datasets"];
    if scenario.method != Method::Full {
        packages.push("peft==0.21.*");
    }
    if scenario.method == Method::Qlora || scenario.optimizer.is_of_bitsandbytes() {
        packages.push("bitsandbytes==0.50.*");
    }
    let adapters = match scenario.method {
        Method::Full => String::new(),
        Method::Lora | Method::Qlora => format!("    peft_config={},\n", run.lora().written(1)),
    };
    let named = optim(scenario.optimizer);
    let own = match named {
        Some(_) => String::new(),
        None => {
            let (class, settings) = run.optimizer()?;
            let rate = [("lr", "LEARNING_RATE")];
            let settings: Vec<String> = rate
                .iter()
                .chain(settings)
                .map(|(name, value)| format!("{}: {value}", string(name)))
                .collect();
            format!("    optimizer_cls_and_kwargs=({class}, {{{}}}),\n", settings.join(", "))
        }
    };
    if run.scenario.cluster.is_zero() {
        packages.push("deepspeed==0.19.*");
    }
    let parts = [
        run.header(&packages),
        "\n".to_owned(),
        run.environment(&[]),
        imports(scenario, named.is_none()),
        format!("from trl import {config}, {trainer}\n"),
        format!(
            "\nMODEL = {}\nDATA = {data}\nLEARNING_RATE = {}\n",
            run.model(),
            if scenario.method == Method::Full { "2e-5" } else { "2e-4" }
        ),
        if run.asks_for_its_gpu() {
            "GPU = int(os.environ[\"LOCAL_RANK\"])\n".to_owned()
        } else {
            String::new()
        },
        run.kernels(),
        "\n".to_owned(),
        run.config().0,
        format!("model = {}\n", run.loaded()?.written(0)),
        format!(
            "trainer = {trainer}(\n    model=model,\n    args={},\n",
            arguments(run, (config, named), run.checkpointing()).written(1)
        ),
        "    train_dataset=load_dataset(DATA, split=\"train\"),\n".to_owned(),
        adapters,
        own,
        ")\ntrainer.train()\ntrainer.save_model()\n".to_owned(),
    ];
    Ok(parts.concat())
}

fn imports(scenario: &Scenario, own_optimizer: bool) -> String {
    let mut lines = vec!["import torch", "from datasets import load_dataset"];
    if own_optimizer && scenario.optimizer.is_of_bitsandbytes() {
        lines.insert(0, "import bitsandbytes");
    }
    if scenario.method != Method::Full {
        lines.push("from peft import LoraConfig");
    }
    lines.push(match (scenario.dropout, scenario.method) {
        (None, Method::Full | Method::Lora) => "from transformers import AutoModelForCausalLM",
        (None, Method::Qlora) => "from transformers import AutoModelForCausalLM, BitsAndBytesConfig",
        (Some(_), Method::Full | Method::Lora) => "from transformers import AutoConfig, AutoModelForCausalLM",
        (Some(_), Method::Qlora) => {
            "from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig"
        }
    });
    lines.join("\n") + "\n"
}

/// The trainer's configuration of that name, with that name of an optimizer; checkpointing is the model's own affair where there are no arguments of it.
pub(super) fn arguments(
    run: &Run<'_>,
    (config, optimizer): (&'static str, Option<&str>),
    checkpointing: Option<String>,
) -> Call {
    let scenario = run.scenario;
    let (bf16, fp16) = match scenario.precision {
        // it switches DeepSpeed's bf16 engine on, which is what is followed
        _ if scenario.cluster.is_zero() => ("True", "False"),
        Precision::AmpBf16 | Precision::AmpBf16Weights => ("True", "False"),
        Precision::AmpFp16 => ("False", "True"),
        Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => ("False", "False"),
    };
    let offloading = (scenario.savings.offloading == Offloading::On).then_some("True");
    // rows cut from the texts one after the other are all as long; several texts in a row are packed
    let (packing, strategy) = match (scenario.task, scenario.mask) {
        (
            Task::Classify
            | Task::Dpo
            | Task::Kto
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Reward
            | Task::Grpo
            | Task::Rloo
            | Task::Distil
            | Task::Generate,
            _,
        )
        | (Task::Sft, Mask::Padded) => (None, None),
        (Task::Sft, Mask::None | Mask::Ones) => (Some("True"), Some("\"wrapped\"")),
        (Task::Sft, Mask::Packed | Mask::PaddingFree) => (Some("True"), None),
    };
    let precomputed = scenario.task.has_reference() && scenario.answers.reference == Reference::Precomputed;
    let call = Call::new(config)
        .keyword("output_dir", "\"out\"")
        .keyword("learning_rate", "LEARNING_RATE")
        .keyword("per_device_train_batch_size", scenario.batch)
        .keyword("gradient_accumulation_steps", scenario.accumulation)
        .keyword("max_length", scenario.sequence)
        .keyword_if("precompute_ref_log_probs", precomputed.then_some("True"))
        .keyword_if("packing", packing)
        .keyword_if("packing_strategy", strategy)
        .keyword("bf16", bf16)
        .keyword("fp16", fp16)
        .keyword("gradient_checkpointing", boolean(checkpointing.is_some()))
        .keyword_if("gradient_checkpointing_kwargs", checkpointing)
        .keyword_if("activation_offloading", offloading)
        .keyword_if("optim", optimizer.map(string))
        .keyword("max_grad_norm", if scenario.training_loop.clips { "1.0" } else { "0.0" });
    run.engine_arguments(call)
}
