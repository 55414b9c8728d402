//! Arguments of transformers, trl, peft and bitsandbytes, and of Unsloth, whose cells hand the same ones on.

mod answers;
mod arguments;
mod distillation;
mod known;
mod precision;
mod trainers;
mod virtual_tokens;
mod weights;

use super::compiled;
use super::evaluation::evaluation;
use super::generated;
use super::launch;
use super::own_loop;
use super::reader::{Reader, Said, among};
use super::tower;
use super::trainer;
use crate::scenario::{LossKernel, Stack, Task, Tuner};
pub(super) use answers::REWARDS;
pub(super) use arguments::OF_ONE_LENGTH;
use arguments::{arguments, attention, checkpointing};
pub(super) use distillation::{LOADED, LOADED_DTYPE, LOADED_IN_4_BITS};
pub(super) use known::{IDLE, REFUSED};
use precision::precision;
use trainers::TRL;
pub(super) use trainers::Trainer;
pub(super) use weights::OF_ADAPTERS;
use weights::{IN_EXAMPLES, adapters, method};

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
    /// trl's own command, whose words are known.
    pub by_trl: bool,
    /// Whose arguments they are.
    pub trainer: Trainer,
    /// Whether they are arguments of other trainers of trl's too, and nothing says of which.
    pub is_shared: bool,
    /// A model is loaded by the text itself.
    pub loads: bool,
    /// `LoraConfig`, or another way to adapters.
    pub adapters: bool,
    /// Whose settings they are, where it is a class of peft's.
    pub tuner: Option<Tuner>,
    /// `FastLanguageModel`.
    pub unsloth: bool,
    /// `prepare_model_for_kbit_training` is called.
    pub prepares: bool,
    /// The text calls `generate`, and nothing in it trains.
    pub generates: bool,
    /// The text makes the optimizer itself.
    pub makes_its_optimizer: bool,
    /// The version of trl that the text installs, major and minor.
    pub trl_version: Option<(u32, u32)>,
}

impl Parts {
    /// Whether the text installs a version of trl whose heads were not all fused.
    fn is_before_fused(self) -> bool {
        self.trl_version.is_some_and(|version| version < FUSED)
    }

    /// Whether trl's trainer has the head and the loss, whatever is asked of Liger: its earlier versions gave them up to fine-tuning's.
    fn keeps_trls_head(self) -> bool {
        self.trl && !(self.is_before_fused() && matches!(self.trainer, Trainer::Sft | Trainer::Other))
    }

    fn has_trls_defaults(self) -> bool {
        self.sft_config
            || self.command
            || self
                .trainer
                .is_for()
                .is_some_and(|(task, _)| !matches!(task, Task::Sft | Task::Classify | Task::Embed))
    }
}

const MODEL: &str = "ModelConfig's default in trl 1.16";
const LORA: &str = "LoraConfig's default in peft 0.21";
const EXAMPLE: &str = "the default of PEFT's examples/sft/train.py";

pub(super) fn read(reader: &mut Reader, parts: Parts) {
    let mut named = vec![
        "model_name_or_path",
        "from_pretrained.model_name",
        "from_pretrained.pretrained_model_name_or_path",
        "Trainer.model",
        "sft_model_path",
    ];
    named.extend(Trainer::models());
    let model = reader.take(&named);
    if let Some(said) = &model {
        reader.model(said);
    }
    contradictions(reader, parts);
    stack(reader, parts);
    let frozen = method(reader, parts, model.is_some());
    precision(reader, parts);
    adapters(reader, parts, frozen);
    tower::read(reader);
    attention(reader, parts);
    if parts.arguments {
        arguments(reader, parts);
    } else if parts.unsloth
        && let Some(said) = reader.take(&["max_seq_length"])
    {
        // FastLanguageModel.from_pretrained's, where no trainer's arguments say another
        reader.set("seq-length", &said.text(), &said.said);
    }
    if parts.makes_its_optimizer {
        trainer::optimizer_class(reader);
        reader.pass(|name| name.starts_with("optimizer."));
    }
    if parts.generates {
        generated::read(reader);
    }
    checkpointing(reader, parts);
    launch::of_arguments(reader);
    own_loop::engine(reader);
    own_loop::numbers(reader);
    if let Some((true, said)) = reader.switch(&["fast_inference"]) {
        let why = "vLLM's weights and cache on the same card are not predicted";
        reader.leave(&said, why);
        reader.refuse(&["gpu_memory_utilization"], why);
    }
    if let Some(said) = reader.take(&["peft_type"]) {
        match Tuner::of_type(&said.text()) {
            Some(_) => reader.idle.push(said.said),
            None => reader.keep("adapter", &said.said, "this tuner of peft is not predicted"),
        }
    }
    if parts.arguments {
        evaluation(reader);
    }
    if parts.unsloth {
        compiled::by_unsloth(reader);
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    if let Some((true, said)) = reader.switch(&["use_cache"]) {
        reader.idle.push(said);
    }
    reader.pass(|name| among(IDLE, name) || ["gpu_memory_utilization", "fast_inference"].contains(&name));
}

/// What the libraries stop at, where a text asks for two things of which one alone can be.
fn contradictions(reader: &mut Reader, parts: Parts) {
    let of_precision = ["bf16", "fp16"];
    // transformers 5.17, training_args.py
    let both = "TrainingArguments stops: at most one of bf16 and fp16 can be on; answered with bfloat16";
    let of_weights = ["load_in_4bit", "load_in_8bit"];
    // utils/quantization_config.py
    let quantised =
        "BitsAndBytesConfig stops: one of load_in_4bit and load_in_8bit can be on; answered with 8 bits";
    let mut pairs = vec![(of_precision, both)];
    if !parts.unsloth {
        pairs.push((of_weights, quantised));
    }
    for (names, why) in pairs {
        let on = names.map(|name| reader.named(&[name]).into_iter().find(|said| said.switch() == Some(true)));
        if let [Some(first), Some(second)] = on {
            reader.misread(&format!("{}, {}", first.said, second.said), why);
        }
    }
    // trainer.py
    let shards = [&["fsdp"][..], &["deepspeed", "zero_optimization.stage"][..]];
    let on = shards.map(|names| {
        let is_on = |said: &Said| said.switch() != Some(false) && !said.text().is_empty();
        reader.named(names).into_iter().find(is_on)
    });
    if let [Some(first), Some(second)] = on {
        let why = "Trainer stops: --fsdp together with --deepspeed is not possible; answered with DeepSpeed";
        reader.misread(&format!("{}, {}", first.said, second.said), why);
    }
}

fn stack(reader: &mut Reader, parts: Parts) {
    let keeps = parts.keeps_trls_head() && !parts.unsloth;
    let liger = if keeps { None } else { reader.switch(LIGER) };
    if parts.unsloth {
        reader.set("stack", Stack::Unsloth.slug(), "FastLanguageModel");
        reader.assume("allocator", "expandable", "Unsloth switches them on where they are supported");
        match liger {
            Some((true, said)) => {
                reader.leave(&said, "Liger's kernels beside Unsloth's own are not predicted")
            }
            Some((false, said)) => reader.idle.push(said),
            None => {}
        }
    } else if let Some((true, said)) = liger {
        reader.set("stack", Stack::Liger.slug(), &said);
    } else if parts.trl {
        let own = parts.trainer.is_for().or_else(|| Trainer::Sft.is_for());
        let [trainer, classes, _] = own.map_or([""; 3], |(_, names)| names);
        match parts.command {
            true => {
                reader.assume("stack", Stack::Trl.slug(), &format!("trl's command trains with {trainer}"))
            }
            false => reader.set("stack", Stack::Trl.slug(), classes),
        }
        ligers_kernels(reader, parts);
    } else if parts.arguments {
        let class = match parts.trainer {
            Trainer::Embed => "SentenceTransformerTrainer",
            Trainer::Rerank => "CrossEncoderTrainer",
            _ => "TrainingArguments",
        };
        reader.set("stack", Stack::Transformers.slug(), class);
    }
    if parts.generates {
        reader.set("task", Task::Generate.slug(), "generate()");
    }
    if parts.arguments || parts.unsloth {
        match parts.trainer.is_for() {
            Some((Task::Sft, _)) => reader.assume("task", "sft", "no other trainer is named"),
            Some((task @ (Task::Classify | Task::Embed), [class, ..])) => {
                reader.set("task", task.slug(), class)
            }
            Some((task, _)) if parts.is_shared => reader.assume("task", task.slug(), SHARED),
            Some((task, [name, ..])) => {
                reader.assume("task", task.slug(), &format!("these are {name}'s arguments"));
            }
            None => reader.assume("task", "sft", "the trainer that is named is not read"),
        }
        trainer::usual_loop(reader);
    } else if let Some((task, [class, ..])) = parts.trainer.is_for().filter(|_| parts.trl) {
        // the arguments stand elsewhere, and what is trained for is the class's all the same
        let is_its = task == reader.scenario.task || (task, reader.scenario.task) == (Task::Cpo, Task::Simpo);
        if !is_its {
            reader.brings(task, class);
        }
    }
    if let Some(version) = parts.trl_version
        && reader.scenario.stack == Stack::Trl
    {
        earlier_trl(reader, version);
    }
}

/// What is said where arguments are DPO's and those of trl's other trainers on pairs as well (`DPOConfig`, `ORPOConfig`, `CPOConfig`,
/// `KTOConfig`, `BCOConfig`).
const SHARED: &str = "beta and max_prompt_length are arguments of DPOTrainer, and of trl's ORPO, CPO, KTO and BCO too: DPO is taken; ORPO \
                      and CPO have no second model (--task orpo, --task cpo)";

/// The switch of Liger's kernels.
const LIGER: &[&str] = &["use_liger_kernel", "use_liger"];

/// Liger's kernels under trl's trainers: trl 1.16 gives a model those of its layers alone, and keeps the head that it has fused itself
/// (trainer/sft_trainer.py, dpo_trainer.py, kto_trainer.py, grpo_trainer.py, rloo_trainer.py). Before its heads were fused Liger's own
/// loss ran in the place of trl's.
fn ligers_kernels(reader: &mut Reader, parts: Parts) {
    match reader.switch(LIGER) {
        Some((true, said)) if parts.is_before_fused() => {
            reader.leave(&said, "Liger's fused loss, which trl had before 1.15, is not predicted");
        }
        Some((true, said)) => {
            reader.set("liger-layers", "on", &said);
            let cross_entropy = "liger_kernel_config.fused_linear_cross_entropy";
            reader.refuse(
                &[cross_entropy],
                "trl 1.16 stops at this: the model's forward has its own fused head",
            );
        }
        Some((false, said)) => reader.idle.push(said),
        None => {}
    }
}

/// The first version of trl whose head is fused, in all of its trainers (docs/versions.md).
pub(super) const FUSED: (u32, u32) = (1, 15);

/// All logits, where the version that is installed makes them: of fine-tuning by default up to 1.6.
fn earlier_trl(reader: &mut Reader, version: (u32, u32)) {
    let without = match reader.scenario.task {
        Task::Sft => (1, 7),
        task if task.is_of_preferences() => FUSED,
        _ => return,
    };
    if version < without {
        let (major, minor) = version;
        reader.set("loss", LossKernel::Full.slug(), &format!("trl=={major}.{minor}"));
    }
}
