//! Configurations of other projects: a text, pasted or in a file, and what of it is a scenario.
//!
//! Which project a text is of shows in what it says. Every setting ends in one of four places: it was applied, memory does not
//! depend on it, it was left with the reason, or, where the file says nothing, the project's own default was applied and is said
//! to be one. `docs/files.md` has the table.

mod axolotl;
mod hugging_face;
mod launch;
mod llama_factory;
pub(crate) mod names;
mod reader;
mod syntax;
mod torchtune;
mod trainer;
mod trainer_toml;
mod understood;

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::model::read::not_json;
use crate::scenario::keys::{Key, keys};
use crate::scenario::{CustomModel, ModelChoice, Scenario};
use crate::share;
use crate::text::short;
use hugging_face::{Parts, Trainer};
use reader::Reader;
use syntax::setting::{Setting, of_table};
use syntax::{python, setting, shell, yaml};

pub use understood::{Assumed, Format, Left, Taken, Understood};

/// The longest text that is read, in bytes: notebooks carry pictures.
pub const LONGEST: usize = 16 << 20;

/// Arguments that only a training has.
const ARGUMENTS: [&str; 8] = [
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "model_name_or_path",
    "learning_rate",
    "use_peft",
    "num_processes",
    "nproc_per_node",
    "num_gpus",
];

/// What is said of trl's other trainers.
const OTHER_TRAINER: &str =
    "of trl's trainers those of SFT, DPO and GRPO are read: what else is here is read as SFT's";

/// Why a text was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead(String);

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotRead {}

/// Reads a text over a scenario, whose card and whatever else the text says nothing of stay.
///
/// ```
/// use headroom::import;
/// use headroom::scenario::{Method, Scenario};
///
/// let yaml = "base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 32\nmicro_batch_size: 2\nsequence_len: 4096\nmagic: 1\n";
/// let understood = import::read(yaml, &Scenario::default())?;
/// assert_eq!(understood.format.label(), "axolotl");
/// let scenario = understood.scenario;
/// assert_eq!((scenario.method, scenario.lora.rank, scenario.batch), (Method::Lora, 32, 2));
/// assert!(understood.left.iter().any(|left| left.said == "magic: 1"));
/// # Ok::<(), import::NotRead>(())
/// ```
///
/// # Errors
/// [`NotRead`] where the text is no configuration that is known.
pub fn read(text: &str, base: &Scenario) -> Result<Understood, NotRead> {
    check_length(text.len() as u64)?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(NotRead("there is no text".to_owned()));
    }
    if is_link(text) {
        return of_link(text);
    }
    if text.starts_with('{') {
        return match serde_json::from_str(text) {
            Ok(Value::Object(members)) => of_json(text, members, base),
            Ok(_) => Err(NotRead("this JSON is no table of settings".to_owned())),
            Err(error) => of_calls(text, base).ok_or_else(|| NotRead(not_json(&error).to_string())),
        };
    }
    if let Some(found) = of_calls(text, base).or_else(|| of_command(text, base)) {
        return Ok(found);
    }
    let table = table(text);
    if let Ok(members) = &table
        && let Some(found) = of_members(text, members.clone(), base)
    {
        return found;
    }
    if let Some(link) = written_by_headroom(text) {
        return of_link(link);
    }
    Err(NotRead(match table {
        Ok(_) => "these settings are of no project that is known here: TRL, transformers, Unsloth, axolotl, LLaMA-Factory, torchtune, accelerate and DeepSpeed are".to_owned(),
        Err(why) => format!("this is no configuration that is known here: {why}"),
    }))
}

/// Whether a text or file of so many bytes is read at all.
///
/// # Errors
/// [`NotRead`] where it is longer than [`LONGEST`].
pub fn check_length(bytes: u64) -> Result<(), NotRead> {
    match bytes > LONGEST as u64 {
        true => Err(NotRead(format!("this has more than {} MB and was not read", LONGEST >> 20))),
        false => Ok(()),
    }
}

/// Whether a text is a model's `config.json`.
pub fn is_model(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    // a broken one is told apart by its beginning
    let Ok(Value::Object(members)) = serde_json::from_str(text) else { return false };
    is_config(&members)
}

fn is_config(members: &Map<String, Value>) -> bool {
    ["model_type", "architectures", "hidden_size", "n_embd", "d_model"]
        .iter()
        .any(|key| members.contains_key(*key))
        && !members.contains_key("base_model")
}

fn is_link(text: &str) -> bool {
    let one_word = !text.contains(char::is_whitespace);
    one_word
        && (text.contains("#m=") || text.contains("?m=") || text.starts_with("m=") || text.starts_with("#m="))
}

fn of_link(text: &str) -> Result<Understood, NotRead> {
    let shared = share::decode(text);
    let Some(scenario) = shared.scenarios.into_iter().next() else {
        return Err(NotRead("this link holds no scenario".to_owned()));
    };
    let taken = keys().filter(|key| share::names(text, key.name)).map(|key| taken(key, &scenario));
    let left =
        shared.notices.iter().map(|notice| Left { said: "the link".to_owned(), why: notice.to_string() });
    Ok(Understood {
        format: Format::Headroom,
        taken: taken.collect(),
        assumed: Vec::new(),
        idle: Vec::new(),
        left: left.collect(),
        scenario,
    })
}

fn taken(key: &'static Key, scenario: &Scenario) -> Taken {
    let said = format!("{} = {}", key.name, short(&key.write(scenario)));
    Taken { key: key.name, label: key.label, value: key.words(scenario), said }
}

/// The link of a file that Headroom wrote for a loop of its own, which has no arguments to be read.
fn written_by_headroom(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("headroom estimate '")?;
    rest.split('\'').next().filter(|link| link.contains('='))
}

/// The settings of a YAML or TOML text.
fn table(text: &str) -> Result<Map<String, Value>, String> {
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .unwrap_or_default();
    let name = first.split(['=', ':']).next().unwrap_or_default().trim();
    let is_toml = first.starts_with('[')
        || (first.len() > name.len() && first[name.len()..].trim_start().starts_with('='));
    let value = if is_toml {
        toml::from_str(text).map_err(|error| not_toml(text, &error))?
    } else {
        yaml::read(text)?
    };
    match value {
        Value::Object(members) if !members.is_empty() => Ok(members),
        _ => Err("it is no table of settings".to_owned()),
    }
}

/// What is wrong with a TOML file, without the line itself, which may be as long as the file.
fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let before = text.bytes().take(error.span().map_or(0, |span| span.start));
    let line = 1 + before.filter(|byte| *byte == b'\n').count();
    format!("TOML, line {line}: {}", short(error.message()))
}

fn of_json(text: &str, members: Map<String, Value>, base: &Scenario) -> Result<Understood, NotRead> {
    if let Some(Value::Array(cells)) = members.get("cells") {
        let code =
            cells.iter().filter(|cell| cell["cell_type"] == "code").map(|cell| match &cell["source"] {
                Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect::<String>(),
                other => other.as_str().unwrap_or_default().to_owned(),
            });
        let code = code.collect::<Vec<_>>().join("\n");
        return of_calls(&code, base).or_else(|| of_command(&code, base)).ok_or_else(|| {
            NotRead("no cell of this notebook loads or trains a model in a way that is known here".to_owned())
        });
    }
    if is_config(&members) {
        let model = CustomModel::read("", text).map_err(|issue| NotRead(issue.to_string()))?;
        let mut scenario = base.clone();
        scenario.change(|scenario| scenario.model = ModelChoice::Custom(model.into()));
        let taken = Key::find("model").map(|key| Taken {
            key: key.name,
            label: key.label,
            value: key.words(&scenario),
            said: "config.json".to_owned(),
        });
        return Ok(Understood {
            format: Format::Model,
            scenario,
            taken: taken.into_iter().collect(),
            assumed: Vec::new(),
            idle: Vec::new(),
            left: Vec::new(),
        });
    }
    of_members(text, members, base)
        .unwrap_or_else(|| Err(NotRead("this JSON is of no project that is known here".to_owned())))
}

/// Reads settings, by whose project's they are; nothing where that is not known.
fn of_members(
    text: &str,
    members: Map<String, Value>,
    base: &Scenario,
) -> Option<Result<Understood, NotRead>> {
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
            let given: Vec<&Key> = keys().filter(|key| has(key.name) || has(key.link)).collect();
            let mut scenario = base.clone();
            given.iter().for_each(|key| key.copy(&mut scenario, &said));
            Understood {
                format: Format::Headroom,
                taken: given.into_iter().map(|key| taken(key, &scenario)).collect(),
                assumed: Vec::new(),
                idle: Vec::new(),
                left: Vec::new(),
                scenario,
            }
        }));
    }
    let is_torchtune = members.values().any(|value| value.get("_component_").is_some());
    let format = if any(&["zero_optimization", "train_micro_batch_size_per_gpu"]) {
        Format::DeepSpeed
    } else if any(&["distributed_type", "compute_environment"]) {
        Format::Accelerate
    } else if has("base_model") {
        Format::Axolotl
    } else if is_torchtune {
        Format::Torchtune
    } else if any(&["finetuning_type", "cutoff_len", "lora_target", "stage", "template"]) {
        Format::LlamaFactory
    } else if any(&["model_embd", "model_layer", "corpus_path"]) {
        Format::TrainerToml
    } else if any(&ARGUMENTS[..5]) || has("peft_type") {
        Format::Trl
    } else {
        return None;
    };
    let is_adapter = has("peft_type");
    let mut settings = of_table(members);
    let parts = if is_adapter {
        for setting in &mut settings {
            setting.of = "LoraConfig".to_owned();
            if setting.name == "base_model_name_or_path" {
                "model_name_or_path".clone_into(&mut setting.name);
            }
        }
        Parts { adapters: true, ..Parts::default() }
    } else {
        of_trl(&settings, true)
    };
    let mut reader = Reader::new(base.clone(), settings);
    if format == Format::Trl && parts.trainer == Trainer::Other {
        reader.leave("the trainer", OTHER_TRAINER);
    }
    Some(Ok(understood(format, reader, parts)))
}

/// What of the classes of trl's command the settings are for: all of them, or transformers' arguments alone.
fn of_trl(settings: &[Setting], is_trl: bool) -> Parts {
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
        || settings.iter().any(|setting| ["use_peft", "packing"].contains(&setting.name.as_str()))
        || trainer != Trainer::Sft;
    Parts { arguments: true, trl: is_trl, command: is_trl, trainer, ..Parts::default() }
}

/// Whose arguments these are, by those that SFT has not.
fn trainer_of_arguments(settings: &[Setting]) -> Trainer {
    let has = |names: &[&str]| settings.iter().any(|setting| names.contains(&setting.name.as_str()));
    if has(&["num_generations", "max_completion_length", "reward_funcs"]) {
        Trainer::Grpo
    } else if has(&["desirable_weight", "cpo_alpha"]) {
        Trainer::Other
    } else if has(&["beta", "max_prompt_length", "precompute_ref_log_probs", "ref_model_name_or_path"]) {
        Trainer::Dpo
    } else {
        Trainer::Sft
    }
}

/// Which trainer a command names: `trl dpo`, `examples/scripts/dpo.py`, `-m trl.scripts.dpo`.
fn trainer_of_command(command: &shell::CommandLine) -> Option<(Trainer, String)> {
    let words = &command.words;
    let named = match words.first().map(String::as_str) {
        Some("trl") => words.get(1).cloned(),
        _ => words.iter().find(|word| word.ends_with(".py")).cloned(),
    };
    let module = command.settings.iter().find(|setting| ["m", "module"].contains(&setting.name.as_str()));
    let named = named.or_else(|| module.map(|setting| setting::text(&setting.value)))?;
    let script = named.trim_end_matches(".py").rsplit(['/', '.']).next().unwrap_or_default();
    let words: Vec<String> =
        script.split(|c: char| !c.is_alphanumeric()).map(str::to_ascii_lowercase).collect();
    let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    let others = ["online", "kto", "orpo", "cpo", "ppo", "rloo", "reward", "nash", "xpo", "gkd", "prm"];
    let known = [(Trainer::Grpo, "grpo"), (Trainer::Dpo, "dpo"), (Trainer::Sft, "sft")];
    let trainer = match known.iter().find(|(_, word)| has(&[word])) {
        _ if has(&others) => Trainer::Other,
        Some((trainer, _)) => *trainer,
        None => return None,
    };
    Some((trainer, named))
}

fn understood(format: Format, mut reader: Reader, parts: Parts) -> Understood {
    match format {
        Format::Python | Format::Unsloth | Format::Trl => hugging_face::read(&mut reader, parts),
        Format::Axolotl => axolotl::read(&mut reader),
        Format::LlamaFactory => llama_factory::read(&mut reader),
        Format::Torchtune => torchtune::read(&mut reader),
        Format::Accelerate => launch::accelerate(&mut reader),
        Format::DeepSpeed => launch::deepspeed(&mut reader),
        Format::TrainerToml => trainer_toml::read(&mut reader),
        Format::Headroom | Format::Model => {}
    }
    reader.finish();
    let Reader { scenario, taken, mut assumed, idle, left, .. } = reader;
    // what makes no difference need not be told
    assumed.retain(|assumed| Key::find(assumed.key).is_none_or(|key| key.matters(&scenario)));
    Understood { format, scenario, taken, assumed, idle, left }
}

/// The classes of Python that are known, each with what it is a part of.
fn of_calls(text: &str, base: &Scenario) -> Option<Understood> {
    if !text.contains('(') {
        return None;
    }
    let holds =
        |condition: &str| names::holds_with_bfloat16(condition).map(|holds| holds == base.has_bfloat16());
    let script = python::read(text, &holds);
    let mut settings = Vec::new();
    let mut parts = Parts::default();
    let mut others = Vec::new();
    let mut later = Vec::new();
    let mut has_trained = false;
    for call in &script.calls {
        let name = call.name();
        has_trained |= name == "train" && call.path.contains("trainer");
        if name == "from_pretrained" && class_of(&call.path).contains("AutoPeft") {
            later.push((said_of(call), "adapters that were trained before are no model to train"));
            continue;
        }
        if name == "from_pretrained" && loads_a_model(&call.path) && (parts.loads || has_trained) {
            later
                .push((said_of(call), "the model that is loaded first is taken for the one that is trained"));
            continue;
        }
        match (name, trainer_of_class(name)) {
            ("TrainingArguments" | "Seq2SeqTrainingArguments" | "UnslothTrainingArguments", _) => {
                parts.arguments = true;
            }
            ("Trainer" | "Seq2SeqTrainer", _) => {}
            (_, Some(trainer)) if name.ends_with("Trainer") => {
                parts.trl = true;
                parts.trainer = trainer;
            }
            (_, Some(trainer)) => {
                (parts.trl, parts.arguments, parts.trainer) = (true, true, trainer);
                parts.sft_config |= trainer == Trainer::Sft;
                if trainer == Trainer::Other {
                    others.push(name.to_owned());
                }
            }
            ("LoraConfig" | "get_peft_model", None) => parts.adapters = true,
            ("BitsAndBytesConfig", None) => {}
            ("from_pretrained", None) if loads_a_model(&call.path) => parts.loads = true,
            ("from_config", None) if loads_a_model(&call.path) => {
                later.push((said_of(call), "a model of one's own making: bring its config.json"));
                continue;
            }
            ("prepare_model_for_kbit_training", None) => parts.prepares = true,
            ("gradient_checkpointing_enable", None) => {
                setting::flatten(name, "gradient_checkpointing", Value::Bool(true), &mut settings);
            }
            (_, None) if is_optimizer(&call.path) => {
                later.push((call.path.clone(), "loops of one's own are not read"));
                continue;
            }
            (_, None) => continue,
        }
        parts.unsloth |= call.path.starts_with("FastLanguageModel.") || call.path.starts_with("FastModel.");
        if let ("from_pretrained", Some(model @ Value::String(_))) = (name, call.values.first()) {
            setting::flatten(name, "model_name_or_path", model.clone(), &mut settings);
        }
        for (argument, value) in &call.named {
            // a model that is handed over as an object is the one that was loaded
            let is_object = name.ends_with("Trainer")
                && argument == "model"
                && value.as_str().is_some_and(|value| !value.contains('/') || value.contains('('));
            if !is_object && argument != "quantization_config" {
                setting::flatten(name, argument, value.clone(), &mut settings);
            }
        }
    }
    if parts == Parts::default() && settings.is_empty() {
        return None;
    }
    changed_afterwards(&script, &mut settings);
    for (place, value) in &script.given {
        for variable in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
            if place.contains(variable) {
                setting::flatten("", variable, value.clone(), &mut settings);
            }
        }
    }
    let format = if parts.unsloth { Format::Unsloth } else { Format::Python };
    let mut reader = Reader::new(base.clone(), settings);
    for other in others {
        reader.leave(&other, OTHER_TRAINER);
    }
    for (said, why) in later {
        reader.leave(&said, why);
    }
    Some(understood(format, reader, parts))
}

/// Arguments that are changed after their class was made: `args.bf16 = True`.
fn changed_afterwards(script: &python::Script, settings: &mut Vec<Setting>) {
    let mut objects: HashMap<&str, &str> = HashMap::new();
    for (place, value) in &script.given {
        let class = value.as_str().and_then(|value| value.split_once('(')).map(|(path, _)| path);
        let class = class.map(|path| path.rsplit('.').next().unwrap_or_default());
        if let Some(class) = class.filter(|class| has_arguments(class)) {
            objects.insert(place, class);
        } else if let Some((object, argument)) = place.split_once('.')
            && let Some(class) = objects.get(object)
        {
            setting::flatten(class, argument, value.clone(), settings);
        }
    }
}

/// Whether a class is one of arguments.
fn has_arguments(class: &str) -> bool {
    class.ends_with("TrainingArguments")
        || ["LoraConfig", "BitsAndBytesConfig"].contains(&class)
        || (class.ends_with("Config") && trainer_of_class(class).is_some())
}

/// The class that a method is called of.
fn class_of(path: &str) -> &str {
    path.rsplit('.').nth(1).unwrap_or_default()
}

/// A call that loads, as a person would say it.
fn said_of(call: &python::Call) -> String {
    let names = ["model_name", "pretrained_model_name_or_path"];
    let named = call.named.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value);
    let model = call.values.first().or(named).map(setting::text).unwrap_or_default();
    format!("{}({})", short(&call.path), short(&model))
}

/// Whether `from_pretrained` is a model's.
fn loads_a_model(path: &str) -> bool {
    let class = class_of(path);
    class.contains("Model") && !class.starts_with("Peft")
        || class.contains("ForCausalLM")
        || class.contains("LMHead")
}

/// The trainer of trl that a class is of: `DPOConfig`, `DPOTrainer`.
fn trainer_of_class(class: &str) -> Option<Trainer> {
    let name = class.strip_suffix("Config").or_else(|| class.strip_suffix("Trainer"))?;
    match name {
        "SFT" | "Unsloth" => Some(Trainer::Sft),
        "DPO" => Some(Trainer::Dpo),
        "GRPO" => Some(Trainer::Grpo),
        "ORPO" | "KTO" | "CPO" | "PPO" | "Reward" | "RLOO" | "OnlineDPO" | "GKD" | "PRM" | "NashMD"
        | "XPO" | "BCO" => Some(Trainer::Other),
        _ => None,
    }
}

/// Whether a class is an optimizer that a loop of one's own makes.
fn is_optimizer(path: &str) -> bool {
    ["torch.optim.", "optim.", "bnb.optim.", "bitsandbytes.optim."]
        .iter()
        .any(|start| path.strip_prefix(start).is_some_and(|class| class.starts_with(char::is_uppercase)))
}

/// A command line that starts a training.
fn of_command(text: &str, base: &Scenario) -> Option<Understood> {
    const LAUNCHERS: [&str; 9] = [
        "accelerate",
        "trl",
        "python",
        "python3",
        "torchrun",
        "deepspeed",
        "tune",
        "axolotl",
        "llamafactory-cli",
    ];
    let command = shell::read(text)?;
    let first = command.words.first()?;
    let launcher = LAUNCHERS.iter().find(|launcher| first == *launcher)?;
    let script = command.words.join(" ").to_ascii_lowercase();
    let trainer = trainer_of_command(&command);
    let (format, parts) = match *launcher {
        "tune" => (Format::Torchtune, Parts::default()),
        "axolotl" => (Format::Axolotl, Parts::default()),
        "llamafactory-cli" => (Format::LlamaFactory, Parts::default()),
        _ => {
            let is_trl = script.contains("sft") || script.starts_with("trl");
            let parts = of_trl(&command.settings, is_trl);
            let is_trl = parts.trl || is_trl || trainer.is_some();
            let trainer = trainer.as_ref().map_or(parts.trainer, |(trainer, _)| *trainer);
            (Format::Trl, Parts { trl: is_trl, command: is_trl, trainer, ..parts })
        }
    };
    let files =
        command.words.iter().filter(|word| [".yaml", ".yml", ".json"].iter().any(|end| word.ends_with(end)));
    let files: Vec<String> = files.cloned().collect();
    // without the file that it names, a command says little: what it leaves out is in there
    let named = command.settings.iter().find(|setting| setting.name == "config").map(Setting::said);
    let is_training = |setting: &Setting| ARGUMENTS.contains(&setting.name.as_str());
    if files.is_empty() && named.is_none() && !command.settings.iter().any(is_training) {
        return None;
    }
    if let Some(file) = files.first().cloned().or(named) {
        let mut reader = Reader::new(base.clone(), command.settings);
        launch::of_arguments(&mut reader);
        reader.leave(&file, "this file says what is trained: read it first, then this command");
        return Some(understood(Format::Accelerate, reader, parts));
    }
    let mut reader = Reader::new(base.clone(), command.settings);
    if parts.trainer == Trainer::Other {
        let said = trainer.map_or_else(|| "the trainer".to_owned(), |(_, said)| said);
        reader.leave(&said, OTHER_TRAINER);
    }
    Some(understood(format, reader, parts))
}
