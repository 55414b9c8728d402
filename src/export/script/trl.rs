//! trl's trainers: fine-tuning, preferences, reward models, GRPO and RLOO, distillation.

use super::pictures;
use super::python::{Call, boolean, string};
use super::run::Run;
use super::taught;
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
    "teacher",
    "teacher-weights",
    "divergence",
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
    fn of(scenario: &Scenario) -> Result<Trainer, Issue> {
        let task = scenario.task;
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
            Task::Classify | Task::Embed | Task::Ppo => {
                return refuse("trl 1.16 has no trainer for this task");
            }
            Task::Distil if scenario.learns_by_gkd() => ("trl.experimental.gkd", "GKD"),
            Task::Distil => ("trl", "Distillation"),
            Task::Generate => return refuse("no file is written for a model that generates"),
        };
        let (data, columns) = match task {
            Task::Kto => ("trl-lib/kto-mix-14k", "with columns \"prompt\", \"completion\" and \"label\""),
            Task::Dpo | Task::Orpo | Task::Cpo | Task::Simpo | Task::Reward => {
                ("trl-lib/ultrafeedback_binarized", "with columns \"chosen\" and \"rejected\"")
            }
            Task::Distil if scenario.learns_by_gkd() => {
                ("trl-lib/chatbot_arena_completions", "with a column \"messages\"")
            }
            Task::Grpo | Task::Rloo | Task::Distil => ("trl-lib/tldr", "with a column \"prompt\""),
            Task::Sft | Task::Classify | Task::Embed | Task::Ppo | Task::Generate => {
                ("stanfordnlp/imdb", "with a column \"text\" or conversations")
            }
        };
        Ok(Trainer { module, name, data, columns })
    }
}

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let Trainer { module, name, mut data, mut columns } = Trainer::of(scenario)?;
    if run.looks() {
        [data, columns] = pictures::data(scenario.task);
    }
    // a processor has a template of its own
    let talks = has_conversations(scenario) && !run.looks();
    let (trainer, config) = (format!("{name}Trainer"), format!("{name}Config"));
    refuse(scenario)?;
    let trl = match (scenario.asks_a_generator(), scenario.savings.loss) {
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
        None => own_optimizer(run)?,
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
        if scenario.asks_a_server() { SERVER } else { "" }.to_owned(),
        "\n".to_owned(),
        run.environment(&[]),
        imports(run, named.is_none()),
        format!("from {module} import {config}, {trainer}\n"),
        format!(
            "\nMODEL = {}\n{}DATA = {}  # of the Hub, {columns}\nLEARNING_RATE = {:e}\n",
            run.model(),
            run.teachers_name()?,
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
        run.teacher(),
        if talks { TOKENIZER } else { "" }.to_owned(),
        if scenario.learns_by_gkd() { PADDING } else { "" }.to_owned(),
        if run.looks() { run.processor() } else { String::new() },
        format!("trainer = {trainer}(\n    model=model,\n"),
        if scenario.task.has_teacher() { "    teacher_model=teacher,\n" } else { "" }.to_owned(),
        format!("    args={args},\n"),
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

/// An optimizer that the `Trainer` has no name for. Trainers of SFT and reward models make it themselves; the others are given it, which is
/// before they have made adapters or divided anything.
fn own_optimizer(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let (class, settings) = run.optimizer()?;
    if matches!(scenario.task, Task::Sft | Task::Reward) {
        let rate = ("lr", "LEARNING_RATE".to_owned());
        let settings: Vec<String> = std::iter::once(rate)
            .chain(settings)
            .map(|(name, value)| format!("{}: {value}", string(name)))
            .collect();
        return Ok(format!("    optimizer_cls_and_kwargs=({class}, {{{}}}),\n", settings.join(", ")));
    }
    if scenario.method != Method::Full || scenario.cluster.is_many() {
        let message = "trl's trainer for this task makes adapters and divides weights itself, and makes only optimizers that transformers has a name for";
        return Err(Issue::error(Field::Optimizer, message).with_fix("choose AdamW, 8-bit AdamW or SGD"));
    }
    let made = Call::new(class).with("model.parameters()").keyword("lr", "LEARNING_RATE");
    let made = settings.into_iter().fold(made, |call, (name, value)| call.keyword(name, value));
    Ok(format!("    optimizers=({}, None),\n", made.written(1)))
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

/// GKDTrainer's collator stops at a tokenizer that has no token to pad with.
const PADDING: &str = "tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token\n";

/// Whether the data that it is tried on are conversations.
fn has_conversations(scenario: &Scenario) -> bool {
    scenario.task.is_of_preferences() || scenario.task == Task::Reward || scenario.learns_by_gkd()
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
    let quantised = scenario.method == Method::Qlora || run.has_teacher_in_4_bits();
    let quantization = quantised.then_some("BitsAndBytesConfig");
    let tokenizer = (has_conversations(scenario) && !run.looks()).then_some("AutoTokenizer");
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
        Task::Grpo | Task::Rloo => with_values(answers::generation(scenario), call),
        Task::Distil if scenario.learns_by_gkd() => taught::gkd(scenario, call),
        Task::Distil => with_values(answers::completions(scenario), call),
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

/// A call with such arguments, in Python.
fn with_values(values: Vec<(&'static str, Value)>, call: Call) -> Call {
    values.into_iter().fold(call, |call, (name, value)| match value {
        Value::Number(number) => call.keyword(name, number),
        Value::Switch(on) => call.keyword(name, boolean(on)),
        Value::Word(word) => call.keyword(name, string(word)),
    })
}
