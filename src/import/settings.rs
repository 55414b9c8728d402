//! Settings, by whose project's they are.

use serde_json::{Map, Value};

use super::hugging_face::{Parts, Trainer};
use super::reader::Reader;
use super::saving::Saving;
use super::syntax::setting::{self, Setting, of_table};
use super::understood::{Format, NotRead, Taken, Understood};
use super::{
    axolotl, deepspeed, hugging_face, launch, llama_factory, megatron, others, recipes, shipped, torchtitan,
    torchtune, trainer, trainer_toml, usual, vllm,
};
use crate::estimate::estimate;
use crate::scenario::keys::Key;
use crate::scenario::{Scenario, Tuner};
use crate::text::short;

/// Arguments that transformers and trl alone call so.
pub(super) const ARGUMENTS: [&str; 3] = ["per_device_train_batch_size", "model_name_or_path", "use_peft"];

/// Arguments that are theirs where nothing speaks for somebody else.
pub(super) const LIKELY_ARGUMENTS: [&str; 4] =
    ["gradient_accumulation_steps", "num_train_epochs", "fsdp", "optim"];

/// The dimensions of a GPT-2-like trainer's model.
pub(super) const DIMENSIONS: [&str; 2] = ["model_embd", "model_layer"];

/// What is said of trl's other trainers.
pub(super) const OTHER_TRAINER: &str = "of trl's trainers those of SFT, DPO, KTO, ORPO, CPO, Reward, GRPO, RLOO, PPO, distillation and GKD are read: what else is here is read as SFT's";

pub(super) fn taken(key: &'static Key, scenario: &Scenario) -> Taken {
    let said = format!("{} = {}", key.name, short(&key.write(scenario)));
    Taken { key: key.name, label: key.label_for(scenario), value: key.words(scenario), said }
}

/// Reads settings, by whose project's they are; nothing where that is not known.
pub(super) fn of_members(
    text: &str,
    members: Map<String, Value>,
    base: &Scenario,
) -> Option<Result<Understood, NotRead>> {
    if let Some(why) = others::file(&members) {
        return Some(Err(why));
    }
    let has = |name: &str| members.contains_key(name);
    let any = |names: &[&str]| names.iter().any(|name| has(name));
    if members.keys().all(|name| Key::find(name).is_some()) {
        let scenario: Result<Scenario, String> = match text.starts_with('{') {
            true => serde_json::from_str(text).map_err(|error| error.to_string()),
            false => {
                serde_json::from_value(Value::Object(members.clone())).map_err(|error| error.to_string())
            }
        };
        return Some(scenario.map_err(NotRead).map(|said| {
            let mut scenario = base.clone();
            Key::given(&members).for_each(|key| key.copy(&mut scenario, &said));
            let taken = Key::given(&members).map(|key| taken(key, &scenario)).collect();
            Understood::of(Format::Headroom, scenario, taken)
        }));
    }
    if let Some(found) = vllm::of_file(&members, base) {
        return Some(Ok(found));
    }
    let arguments = megatron::as_arguments(of_table(members.clone()));
    if megatron::are_arguments(&arguments) {
        let reader = Reader::new(base.clone(), arguments);
        return Some(Ok(understood(Format::Megatron, reader, Parts::default())));
    }
    let is_torchtune = members.values().any(|value| value.get("_component_").is_some());
    if let Some(why) = recipes::file(&members).filter(|_| is_torchtune) {
        return Some(Err(why));
    }
    let format = if torchtitan::is_file(&members) {
        Format::Torchtitan
    } else if any(&["zero_optimization", "train_micro_batch_size_per_gpu"]) {
        Format::DeepSpeed
    } else if any(&["distributed_type", "compute_environment"]) {
        Format::Accelerate
    } else if has("base_model") {
        Format::Axolotl
    } else if is_torchtune {
        Format::Torchtune
    } else if any(&megatron::ITS_OWN) {
        Format::LlamaFactory
    } else if any(&DIMENSIONS) || has("corpus_path") {
        Format::TrainerToml
    } else if any(&ARGUMENTS)
        || has("peft_type")
        || any(&LIKELY_ARGUMENTS) && !usual::is_foreign(&of_table(members.clone()))
    {
        Format::Trl
    } else {
        Format::Usual
    };
    let is_adapter = has("peft_type");
    let tuner = members.get("peft_type").and_then(Value::as_str).and_then(Tuner::of_type);
    let mut settings = of_table(members);
    if format == Format::Usual && usual::words(&settings) == 0 {
        return None;
    }
    if [Format::Torchtune, Format::Torchtitan].contains(&format)
        || format.is_of_a_trainer() && !counts_gpus(&settings)
    {
        for (name, value) in launched_in_head(text) {
            setting::flatten("", name, Value::from(value), &mut settings);
        }
    }
    if let Some((variable, value)) = set_in_head(text) {
        setting::flatten("", variable, Value::from(value), &mut settings);
    }
    let parts = if is_adapter {
        for setting in &mut settings {
            setting.of = tuner.map_or("LoraConfig", Tuner::class).to_owned();
            if setting.name == "base_model_name_or_path" {
                "model_name_or_path".clone_into(&mut setting.name);
            }
        }
        Parts { adapters: true, tuner, ..Parts::default() }
    } else {
        let mut parts = of_trl(&settings, true);
        if let Some(trainer) = trainer_in_comments(text).filter(|_| parts.is_shared) {
            (parts.trainer, parts.is_shared) = (trainer, false);
        }
        parts
    };
    let mut reader = Reader::new(base.clone(), settings);
    if format == Format::Trl && parts.trainer == Trainer::Other {
        reader.leave("the trainer", OTHER_TRAINER);
    }
    let understood = understood(format, reader, parts);
    (format != Format::Usual || !understood.taken.is_empty()).then_some(Ok(understood))
}

/// The first comments of a file, without their mark.
fn comments_in_head(text: &str) -> impl Iterator<Item = &str> {
    let head = text.lines().map(str::trim).take_while(|line| line.is_empty() || line.starts_with('#'));
    head.filter_map(|line| line.strip_prefix('#'))
}

/// The trainer of trl that the comments of a file name, as alignment-handbook's recipes do: `# ORPOTrainer arguments`.
fn trainer_in_comments(text: &str) -> Option<Trainer> {
    let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix('#'));
    let mut words = comments.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
    words.find_map(Trainer::of_class)
}

/// Whether settings say on how many GPUs a run is.
fn counts_gpus(settings: &[Setting]) -> bool {
    const NAMES: [&str; 5] =
        ["num_processes", "nproc_per_node", "num_gpus", "dp_shard_size", "dp_replicate_size"];
    settings.iter().any(|setting| NAMES.contains(&setting.name.as_str()))
}

/// On how many GPUs a launcher starts, where a command in the first comments of a file says so, as in torchtune's recipes and in those that
/// Headroom writes.
fn launched_in_head(text: &str) -> Vec<(&'static str, &str)> {
    const LAUNCHERS: [&str; 4] = ["tune", "accelerate", "torchrun", "deepspeed"];
    let is_launch = |line: &&str| line.split_whitespace().any(|word| LAUNCHERS.contains(&word));
    let commands = comments_in_head(text).map(|line| line.trim_start_matches('#').trim()).filter(is_launch);
    let mut said = commands.map(|command| {
        let options = [
            ("nproc_per_node", "--nproc_per_node"),
            ("nproc_per_node", "--nproc-per-node"),
            ("num_processes", "--num_processes"),
            ("num_gpus", "--num_gpus"),
            ("nnodes", "--nnodes"),
        ];
        let given = options.into_iter().filter_map(move |(name, option)| {
            let (_, rest) = command.split_once(option)?;
            let value = rest.trim_start_matches(['=', ' ']).split_whitespace().next()?;
            value.parse::<u64>().is_ok().then_some((name, value))
        });
        given.collect::<Vec<_>>()
    });
    said.find(|said| !said.is_empty()).unwrap_or_default()
}

/// The allocator's variable and its value, where a command in the first comments of a file sets it, as in those that Headroom writes.
fn set_in_head(text: &str) -> Option<(&'static str, &str)> {
    comments_in_head(text).find_map(|line| {
        let (variable, value) = line.split_whitespace().next()?.split_once('=')?;
        let known = launch::ALLOCATOR.into_iter().find(|name| *name == variable)?;
        Some((known, value))
    })
}

/// The version of trl, major and minor, that a line of the text installs: `!pip install trl==1.5.0` of a notebook, or a comment.
pub(super) fn version_of_trl(text: &str) -> Option<(u32, u32)> {
    let installs = |line: &&str| line.contains("install");
    text.lines().filter(installs).find_map(|line| {
        let (_, version) = line.split_once("trl==")?;
        let mut numbers = version.split('.').map(|part| {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..end].parse().ok()
        });
        Some((numbers.next()??, numbers.next()??))
    })
}

/// What of the classes of trl's command the settings are for: all of them, or transformers' arguments alone.
pub(super) fn of_trl(settings: &[Setting], is_trl: bool) -> Parts {
    let own = [
        "max_length",
        "max_seq_length",
        "packing",
        "use_peft",
        "lora_r",
        "dataset_name",
        "dataset_text_field",
        "completion_only_loss",
        "padding_free",
        "attn_implementation",
        "load_in_4bit",
    ];
    let trainer = trainer_of_arguments(settings);
    let is_trl = is_trl && settings.iter().any(|setting| own.contains(&setting.name.as_str()))
        || settings
            .iter()
            .any(|setting| ["use_peft", "use_peft_lora", "packing"].contains(&setting.name.as_str()))
        || trainer != Trainer::Sft;
    // what DPOConfig alone has
    let its_own = ["precompute_ref_log_probs", "ref_model_name_or_path"];
    let is_shared =
        trainer == Trainer::Dpo && !settings.iter().any(|setting| its_own.contains(&setting.name.as_str()));
    Parts { arguments: true, trl: is_trl, command: is_trl, trainer, is_shared, ..Parts::default() }
}

/// Whose arguments these are, by those that SFT has not.
fn trainer_of_arguments(settings: &[Setting]) -> Trainer {
    let has = |names: &[&str]| settings.iter().any(|setting| names.contains(&setting.name.as_str()));
    let has_teacher = settings.iter().any(|setting| setting.name.starts_with("teacher_model_"));
    if has(&["lmbda", "seq_kd"]) && !has(&["max_completion_length", "loss_top_k"]) {
        Trainer::Gkd
    } else if has_teacher {
        Trainer::Distil
    } else if has(&["normalize_advantages", "reward_clip_range"]) {
        Trainer::Rloo
    } else if has(&["cpo_alpha", "simpo_gamma"]) {
        Trainer::Cpo
    } else if has(&["num_generations", "max_completion_length", "reward_funcs"]) {
        Trainer::Grpo
    } else if has(&["desirable_weight", "undesirable_weight"]) {
        Trainer::Kto
    } else if has(&["center_rewards_coefficient"]) {
        Trainer::Reward
    } else if has(&["beta", "max_prompt_length", "precompute_ref_log_probs", "ref_model_name_or_path"]) {
        Trainer::Dpo
    } else {
        Trainer::Sft
    }
}

pub(super) fn understood(format: Format, mut reader: Reader, parts: Parts) -> Understood {
    // DeepSpeed's file, where it lies among the arguments itself
    reader.open("deepspeed");
    let saving = if format.is_of_a_trainer() {
        shipped::add(&mut reader);
        Saving::taken(&mut reader)
    } else {
        Saving::default()
    };
    match format {
        Format::Python | Format::Unsloth | Format::Trl => hugging_face::read(&mut reader, parts),
        Format::Axolotl => axolotl::read(&mut reader),
        Format::LlamaFactory => llama_factory::read(&mut reader),
        Format::Torchtune => torchtune::read(&mut reader),
        Format::Torchtitan => torchtitan::read(&mut reader),
        Format::Megatron => megatron::read(&mut reader),
        Format::Accelerate => launch::accelerate(&mut reader),
        Format::DeepSpeed => deepspeed::read(&mut reader),
        Format::Vllm => vllm::settings(&mut reader),
        Format::TrainerToml => trainer_toml::read(&mut reader, parts.command),
        Format::Usual => usual::read(&mut reader),
        Format::Headroom | Format::Recorded | Format::Model => {}
    }
    launch::allocator(&mut reader);
    trainer::number_of_gpus(&mut reader);
    model_as_it_was(&mut reader, format);
    saving.follow(&mut reader);
    reader.finish();
    without_ligers_layers(&mut reader);
    let Reader { scenario, taken, mut assumed, idle, left, .. } = reader;
    // what makes no difference need not be told
    assumed.retain(|assumed| Key::find(assumed.key).is_none_or(|key| key.matters(&scenario)));
    Understood { format, scenario, taken, assumed, idle, left, took: None }
}

/// Liger's kernels of layers, where they alone stand in the way of an answer: the rest is answered without them.
fn without_ligers_layers(reader: &mut Reader) {
    let mut without = reader.scenario.clone();
    without.savings.liger_layers = false;
    let answers = |scenario: &Scenario| estimate(scenario).memory.is_some();
    if !reader.scenario.runs_liger_layers() || answers(&reader.scenario) || !answers(&without) {
        return;
    }
    reader.scenario = without;
    if let Some(at) = reader.taken.iter().position(|taken| taken.key == "liger-layers") {
        let said = reader.taken.remove(at).said;
        reader.leave(&said, "Liger's kernels were not compared in this run: it is answered without them");
    }
}

/// Says which model a text is answered for that names none, where such texts do.
fn model_as_it_was(reader: &mut Reader, format: Format) {
    let names_one = match format {
        Format::Python
        | Format::Unsloth
        | Format::Trl
        | Format::Axolotl
        | Format::LlamaFactory
        | Format::Vllm => true,
        Format::Headroom
        | Format::Recorded
        | Format::Model
        | Format::Torchtune
        | Format::Torchtitan
        | Format::Megatron
        | Format::Accelerate
        | Format::DeepSpeed
        | Format::TrainerToml
        | Format::Usual => false,
    };
    let is_left = reader.left.iter().any(|left| left.key == Some("model"));
    if let Some(key) = Key::find("model").filter(|_| names_one && !is_left) {
        let own = key.write(&reader.scenario);
        reader.assume("model", &own, "the text names none that is read: as it was");
    }
}
