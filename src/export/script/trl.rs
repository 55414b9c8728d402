//! trl's trainers: fine-tuning, preferences, reward models, GRPO and RLOO.

use super::pictures;
use super::python::{Call, boolean, string};
use super::run::Run;
use crate::export::answers::{self, Value};
use crate::export::projected::trainers_name;
use crate::export::rate::learning_rate;
use crate::issue::{Field, Issue};
use crate::scenario::{LossKernel, Mask, Method, Offloading, Precision, Reference, Scenario, Task};

/// The inputs that it says beside those that every file says.
pub(super) const SAID: &[&str] = &[
    "task",
    "prompt-length",
    "reference",
    "rollouts",
    "vllm-percent",
    "vllm-sleep",
    "adapter",
    "lora-dropout",
    "train-embeddings",
    "double-quant",
    "attention",
    "dropout",
    "activation-offloading",
    "liger-layers",
    "optimizer-step",
    "loss",
];

/// A trainer of trl, and data of the Hub that it can be tried on.
struct Trainer {
    /// Where trl has it.
    module: &'static str,
    /// Its name, to which `Trainer` and `Config` are added.
    name: &'static str,
    data: &'static str,
    /// The columns that are asked for.
    columns: &'static str,
}

impl Trainer {
    /// What trains for a task.
    fn of(task: Task) -> Result<Trainer, Issue> {
        let refuse = |message| {
            Err(Issue::error(Field::Task, message).with_fix("choose fine-tuning, a preference or GRPO"))
        };
        let (module, name) = match task {
            Task::Sft => ("trl", "SFT"),
            Task::Dpo => ("trl", "DPO"),
            Task::Kto => ("trl", "KTO"),
            Task::Orpo => ("trl.experimental.orpo", "ORPO"),
            Task::Cpo | Task::Simpo => ("trl.experimental.cpo", "CPO"),
            Task::Reward => ("trl", "Reward"),
            Task::Grpo => ("trl", "GRPO"),
            Task::Rloo => ("trl", "RLOO"),
            Task::Classify | Task::Embed => return refuse("trl has no trainer for this task"),
            Task::Ppo => {
                return refuse("no file is written for PPO, whose trainer trl 1.13 and later no longer have");
            }
            Task::Distil => {
                return refuse("no file is written for distillation");
            }
            Task::Generate => return refuse("no file is written for a model that generates"),
        };
        let (data, columns) = match task {
            Task::Kto => ("trl-lib/kto-mix-14k", "with columns \"prompt\", \"completion\" and \"label\""),
            Task::Dpo | Task::Orpo | Task::Cpo | Task::Simpo | Task::Reward => {
                ("trl-lib/ultrafeedback_binarized", "with columns \"chosen\" and \"rejected\"")
            }
            Task::Grpo | Task::Rloo => ("trl-lib/tldr", "with a column \"prompt\""),
            Task::Sft | Task::Classify | Task::Embed | Task::Ppo | Task::Distil | Task::Generate => {
                ("stanfordnlp/imdb", "with a column \"text\" or conversations")
            }
        };
        Ok(Trainer { module, name, data, columns })
    }
}

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let Trainer { module, name, mut data, mut columns } = Trainer::of(scenario.task)?;
    if run.looks() {
        [data, columns] = pictures::data(scenario.task);
    }
    // a processor has a template of its own
    let talks = has_conversations(scenario.task) && !run.looks();
    let (trainer, config) = (format!("{name}Trainer"), format!("{name}Config"));
    refuse(scenario)?;
    let vllm = scenario.task.is_online() && !scenario.generates_itself();
    let trl = match (vllm, scenario.savings.loss) {
        (true, _) => "trl[vllm]==1.16.*",
        // what was measured of the versions that make all logits
        (false, LossKernel::Full) if scenario.task == Task::Sft => "trl==1.6.*",
        (false, LossKernel::Full) => "trl==1.9.*",
        (false, _) => "trl==1.16.*",
    };
    let mut packages = run.packages(&["torch==2.11.*", "transformers==5.17.*", trl, "datasets"]);
    packages.extend(run.looks().then_some(pictures::PACKAGES).into_iter().flatten());
    if scenario.runs_liger_layers() {
        packages.push("liger-kernel==0.8.*");
    }
    let adapters = match scenario.method {
        Method::Full => String::new(),
        Method::Lora | Method::Qlora => format!("    peft_config={},\n", run.lora().written(1)),
    };
    let named = trainers_name(scenario)?;
    let own = match named {
        Some(_) => String::new(),
        None => {
            let (class, settings) = run.optimizer()?;
            let rate = ("lr", "LEARNING_RATE".to_owned());
            let settings: Vec<String> = std::iter::once(rate)
                .chain(settings)
                .map(|(name, value)| format!("{}: {value}", string(name)))
                .collect();
            format!("    optimizer_cls_and_kwargs=({class}, {{{}}}),\n", settings.join(", "))
        }
    };
    if run.scenario.cluster.is_zero() {
        packages.push("deepspeed==0.19.*");
    }
    let call = arguments(run, (&config, named.as_deref()), run.checkpointing());
    let (before, args) = if run.says_arguments_first() {
        (format!("args = {}\n", call.written(0)), "args".to_owned())
    } else {
        (String::new(), call.written(1))
    };
    let rows = |split: &str| match run.looks() {
        true => run.talks(split),
        false => format!("load_dataset(DATA, split={})", string(split)),
    };
    let parts = [
        run.header(&packages),
        if vllm && scenario.reserve.vllm == 0 { SERVER } else { "" }.to_owned(),
        "\n".to_owned(),
        run.environment(&[]),
        imports(run, named.is_none()),
        format!("from {module} import {config}, {trainer}\n"),
        format!(
            "\nMODEL = {}\nDATA = {}  # of the Hub, {columns}\nLEARNING_RATE = {:e}\n",
            run.model(),
            string(data),
            learning_rate(scenario)
        ),
        if run.looks() { run.pictures() } else { String::new() },
        run.its_gpu(),
        run.kernels(),
        match (scenario.task.is_online(), run.looks()) {
            (true, _) => REWARD.to_owned(),
            (false, true) => format!("{}\n", run.joins()),
            (false, false) => "\n".to_owned(),
        },
        run.metrics(true),
        run.config().0,
        format!("{before}{}model = {}\n", run.loading(), run.loaded()?.written(0)),
        run.freezes(),
        if talks { TOKENIZER } else { "" }.to_owned(),
        if run.looks() { run.processor() } else { String::new() },
        format!("trainer = {trainer}(\n    model=model,\n    args={args},\n"),
        if talks { "    processing_class=tokenizer,\n" } else { "" }.to_owned(),
        if run.looks() { "    processing_class=processor,\n" } else { "" }.to_owned(),
        if scenario.task.is_online() { "    reward_funcs=reward,\n" } else { "" }.to_owned(),
        format!("    train_dataset={},\n", rows("train")),
        run.evaluated(&rows("test")),
        adapters,
        own,
        format!(")\n{}", run.saves_the_model()),
    ];
    Ok(parts.concat())
}

/// Where the answers come from that no GPU of the training generates.
const SERVER: &str = "# Its answers come from a server on other GPUs: trl vllm-serve --model MODEL\n";

/// What an answer is worth: of one's own, and so an example.
const REWARD: &str = "

def reward(completions, **columns):
    \"\"\"One number for each answer: put your own here. This one asks for 200 characters.\"\"\"
    return [-abs(200.0 - len(str(completion))) for completion in completions]


";

/// A base model has no template for conversations, without which trl stops.
const TOKENIZER: &str = "\
tokenizer = AutoTokenizer.from_pretrained(MODEL)
if tokenizer.chat_template is None:
    tokenizer.chat_template = \"{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\\n{% endfor %}\"
";

/// Whether the data that it is tried on are conversations.
fn has_conversations(task: Task) -> bool {
    task.is_of_preferences() || task == Task::Reward
}

/// What these trainers have no argument for.
fn refuse(scenario: &Scenario) -> Result<(), Issue> {
    if scenario.savings.loss == LossKernel::Axolotl {
        let issue = Issue::error(Field::Loss, "these kernels over all logits are axolotl's own");
        return Err(issue.with_fix("choose axolotl's file, or the standard loss"));
    }
    if scenario.savings.loss == LossKernel::LogSoftmax {
        let issue = Issue::error(Field::Loss, "these log-probabilities are of LLaMA-Factory's own trainer");
        return Err(issue.with_fix("choose LLaMA-Factory's file, or the standard loss"));
    }
    if scenario.task != Task::Sft && scenario.mask != Mask::Padded {
        let issue = Issue::error(Field::Mask, "the trainer for this task pads its texts");
        return Err(issue.with_fix("choose a padded batch"));
    }
    let has_offloading = matches!(scenario.task, Task::Sft | Task::Dpo | Task::Kto | Task::Reward);
    if scenario.savings.offloading == Offloading::On && !has_offloading {
        let issue = Issue::error(Field::Offloading, "trl's trainer for this task has no argument for it");
        return Err(issue.with_fix("keep activations on the GPU"));
    }
    let prepares =
        matches!(scenario.task, Task::Orpo | Task::Cpo | Task::Simpo) && scenario.method == Method::Qlora;
    if prepares && scenario.cluster.is_zero() && scenario.precision == Precision::Bf16 {
        let message = "under DeepSpeed's bf16 engine this trainer prepares 4-bit weights as for bf16 mixed";
        return Err(Issue::error(Field::Precision, message).with_fix("choose bf16 mixed"));
    }
    if scenario.task.is_online() && scenario.answers_in_a_step() < 2 {
        let issue = Issue::error(Field::Batch, "a step has one answer, and answers are compared");
        return Err(issue.with_fix("choose two answers, or accumulate two"));
    }
    Ok(())
}

fn imports(run: &Run<'_>, own_optimizer: bool) -> String {
    let scenario = run.scenario;
    let mut lines = vec!["import torch", "from datasets import load_dataset"];
    if scenario.cluster.is_fsdp2() && scenario.cluster.replicas > 1 {
        lines.insert(1, "from accelerate import ParallelismConfig");
    }
    if own_optimizer && scenario.optimizer.is_of_bitsandbytes() {
        lines.insert(0, "import bitsandbytes");
    }
    if scenario.method != Method::Full {
        lines.push("from peft import LoraConfig");
    }
    let config = scenario.dropout.map(|_| "AutoConfig");
    let quantization = (scenario.method == Method::Qlora).then_some("BitsAndBytesConfig");
    let tokenizer = (has_conversations(scenario.task) && !run.looks()).then_some("AutoTokenizer");
    let processor = run.looks().then_some("AutoProcessor");
    let names = [config, Some(run.class()), tokenizer, processor, quantization];
    let names: Vec<&str> = names.into_iter().flatten().collect();
    format!("{}\nfrom transformers import {}\n", lines.join("\n"), names.join(", "))
}

/// The trainer's configuration of that name, with that name of an optimizer; checkpointing is the model's own affair where there are no arguments of it.
pub(super) fn arguments(
    run: &Run<'_>,
    (config, optimizer): (&str, Option<&str>),
    checkpointing: Option<String>,
) -> Call {
    let scenario = run.scenario;
    let [bf16, fp16] = run.sixteen_bits();
    let offloading = (scenario.savings.offloading == Offloading::On).then_some("True");
    // rows cut from the texts one after the other are all as long; several texts in a row are packed
    let (packing, strategy) = match (scenario.task, scenario.mask) {
        (
            Task::Classify
            | Task::Embed
            | Task::Dpo
            | Task::Kto
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Reward
            | Task::Grpo
            | Task::Rloo
            | Task::Ppo
            | Task::Distil
            | Task::Generate,
            _,
        )
        | (Task::Sft, Mask::Padded) => (None, None),
        // trl packs no texts with pictures
        (Task::Sft, _) if run.looks() => (None, None),
        (Task::Sft, Mask::None | Mask::Ones) => (Some("True"), Some("\"wrapped\"")),
        (Task::Sft, Mask::Packed | Mask::PaddingFree) => (Some("True"), None),
    };
    let precomputed = scenario.task.has_reference() && scenario.answers.reference == Reference::Precomputed;
    let call = Call::new(config)
        .keyword("output_dir", "\"out\"")
        .keyword("learning_rate", "LEARNING_RATE")
        .keyword("per_device_train_batch_size", scenario.batch)
        .keyword("gradient_accumulation_steps", scenario.accumulation);
    let call = match scenario.task {
        Task::Grpo | Task::Rloo => generation(scenario, call),
        Task::Simpo => call
            .keyword("max_length", scenario.sequence)
            .keyword("loss_type", "\"simpo\"")
            .keyword("cpo_alpha", "0.0"),
        Task::Sft
        | Task::Classify
        | Task::Embed
        | Task::Dpo
        | Task::Kto
        | Task::Orpo
        | Task::Cpo
        | Task::Reward
        | Task::Ppo
        | Task::Distil
        | Task::Generate => call.keyword("max_length", scenario.sequence),
    };
    let precomputed = precomputed && !scenario.task.is_online();
    let call = call
        .keyword_if("precompute_ref_log_probs", precomputed.then_some("True"))
        .keyword_if("packing", packing)
        .keyword_if("packing_strategy", strategy)
        .keyword("bf16", boolean(bf16))
        .keyword("fp16", boolean(fp16))
        .keyword("gradient_checkpointing", boolean(checkpointing.is_some()))
        .keyword_if("gradient_checkpointing_kwargs", checkpointing)
        .keyword_if("activation_offloading", offloading)
        .keyword_if("use_liger_kernel", scenario.runs_liger_layers().then(|| boolean(true)))
        .keyword_if("optim", optimizer.map(string));
    let call = run
        .projection()
        .into_iter()
        .fold(call, |call, (name, value)| call.keyword(name, value))
        .keyword("max_grad_norm", if scenario.training_loop.clips { "1.0" } else { "0.0" });
    run.evaluation_arguments(run.saving_arguments(run.engine_arguments(call)))
}

/// How answers come about, in Python.
fn generation(scenario: &Scenario, call: Call) -> Call {
    answers::generation(scenario).into_iter().fold(call, |call, (name, value)| match value {
        Value::Number(number) => call.keyword(name, number),
        Value::Switch(on) => call.keyword(name, boolean(on)),
        Value::Word(word) => call.keyword(name, string(word)),
    })
}
