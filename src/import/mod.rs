//! Configurations of other projects: a text, pasted or in a file, and what of it is a scenario.
//!
//! Which project a text is of shows in what it says. Every setting ends in one of four places: it was applied, memory does not
//! depend on it, it was left with the reason, or, where the file says nothing, the project's own default was applied and is said
//! to be one. `docs/files.md` has the table.

mod axolotl;
mod calls;
mod command;
mod compiled;
mod deepspeed;
mod evaluation;
mod examples;
mod float8;
mod generated;
mod handed;
mod hugging_face;
mod imported;
mod launch;
mod link;
mod llama_factory;
mod loaded;
mod low_rank;
mod megatron;
mod named_adapters;
pub(crate) mod names;
mod others;
mod own_loop;
mod qat;
mod reader;
mod recipes;
mod recorded;
mod said;
mod saving;
mod sentence_transformers;
mod settings;
mod shipped;
mod started;
mod syntax;
mod torchtitan;
mod torchtune;
mod tower;
mod trainer;
mod trainer_toml;
mod understood;
mod unfollowed;
mod usual;
mod visible;
mod vllm;

use serde_json::{Map, Value};

use crate::model::read::not_json;
use crate::scenario::keys::Key;
use crate::scenario::{CustomModel, ModelChoice, Scenario};
use crate::text::short;
use calls::of_calls;
use command::{of_command, of_megatron};
use link::{is_link, of_link, written_by_headroom};
use recorded::of_rows;
use settings::of_members;
use syntax::yaml;

pub(crate) use reader::could_be_a_model;
pub use understood::{Assumed, Format, Left, NotRead, Taken, Understood};

/// The longest text that is read, in bytes: notebooks carry pictures.
pub const LONGEST: usize = 16 << 20;

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
    if text.contains('\0') {
        return Err(NotRead("this is no text, but a picture, an archive or weights".to_owned()));
    }
    if is_link(text) {
        return of_link(text);
    }
    if text.starts_with('[')
        && let Some(found) = of_rows(text)
    {
        return found;
    }
    if text.starts_with('{') {
        return match serde_json::from_str(text) {
            Ok(Value::Object(members)) => of_json(text, members, base),
            Ok(_) => Err(NotRead("this JSON is no table of settings".to_owned())),
            Err(error) => of_calls(text, base).ok_or_else(|| NotRead(not_json(&error).to_string())),
        };
    }
    if let Some(why) = others::command(text).or_else(|| recipes::command(text)) {
        return Err(why);
    }
    if let Some(found) = vllm::of_command(text, base)
        .or_else(|| of_megatron(text, base))
        .or_else(|| of_calls(text, base))
        .or_else(|| of_command(text, base))
    {
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
        Ok(_) => "these settings are of no project that is known here: TRL, transformers, Unsloth, axolotl, LLaMA-Factory, torchtune, torchtitan, Megatron-LM, accelerate, DeepSpeed and vLLM are".to_owned(),
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

/// The settings of a YAML or TOML text.
fn table(text: &str) -> Result<Map<String, Value>, String> {
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .unwrap_or_default();
    if first.starts_with('<') {
        return Err("it is a page or another text in angle brackets, not the settings themselves".to_owned());
    }
    let name = first.split(['=', ':']).next().unwrap_or_default().trim();
    let is_toml = first.starts_with('[')
        || (first.len() > name.len() && first[name.len()..].trim_start().starts_with('='));
    let value = if is_toml {
        let settings: Map<String, Value> = toml::from_str(text).map_err(|error| not_toml(text, &error))?;
        match others::file(&settings).is_some() || torchtitan::is_file(&settings) {
            true => Value::Object(settings),
            false => without_headings(settings),
        }
    } else {
        yaml::read(text)?
    };
    match value {
        Value::Object(members) if !members.is_empty() => Ok(members),
        _ => Err("it is no table of settings".to_owned()),
    }
}

/// A TOML file's settings without the tables that they stand in, where there is nothing else in it and no name is in two of them.
fn without_headings(settings: Map<String, Value>) -> Value {
    let tables: Option<Vec<&Map<String, Value>>> = settings.values().map(Value::as_object).collect();
    let all: Map<String, Value> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.iter().map(|(name, value)| (name.clone(), value.clone())))
        .collect();
    match tables.map(|tables| tables.iter().map(|table| table.len()).sum::<usize>()) {
        Some(count) if count == all.len() => Value::Object(all),
        _ => Value::Object(settings),
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
        return of_calls(&code, base)
            .or_else(|| vllm::of_command(&code, base))
            .or_else(|| of_command(&code, base))
            .ok_or_else(|| {
                NotRead(
                    "no cell of this notebook loads or trains a model in a way that is known here".to_owned(),
                )
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
        return Ok(Understood::of(Format::Model, scenario, taken.into_iter().collect()));
    }
    of_members(text, members, base)
        .unwrap_or_else(|| Err(NotRead("this JSON is of no project that is known here".to_owned())))
}
