//! Reading a `config.json`: lenient about what transformers is lenient about, clear about everything else.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::families;
use super::python_json::without_python_numbers;
use super::{Architecture, Counted};
use crate::issue::{Field, Issue};

/// The longest text that is read. Real configs have 0.5 to 100 kB; megabytes of JSON are some other file.
pub const LONGEST_CONFIG: usize = 4 << 20;

/// The largest size or count that is accepted; no dimension of a model is near it, and sums of products of two stay
/// within 64 bits.
const LARGEST_SIZE: u64 = 1 << 30;

/// The most layers that are accepted; the deepest real models have some hundred.
const MOST_LAYERS: u64 = 4096;

/// The longest list that is looked into: one entry per layer, and some room.
const LONGEST_LIST: usize = 4 * MOST_LAYERS as usize;

/// What a config was understood as.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The model.
    pub architecture: Architecture,
    /// The config reduced to the keys that decided it, minified.
    pub essence: String,
}

/// Reads the text of a `config.json`.
///
/// # Errors
/// An [`Issue`] that says what is missing, of the wrong type, or unsupported.
///
/// ```
/// let gpt2 = headroom::model::config::parse(r#"{"model_type": "gpt2"}"#).unwrap();
/// assert_eq!(gpt2.parameters(), 124_439_808);
/// ```
pub fn parse(text: &str) -> Result<Architecture, Issue> {
    let log = Log::default();
    Ok(log.noted(families::read(&object(text)?, &log)?))
}

/// The same, together with the part of the config that mattered.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_essence(text: &str) -> Result<Parsed, Issue> {
    let object = object(text)?;
    let log = Log { read: Some(RefCell::default()), ..Log::default() };
    let architecture = log.noted(families::read(&object, &log)?);
    let read = log.read.map(RefCell::into_inner).unwrap_or_default();
    let essence = Value::Object(reduced(&object, "", &read)).to_string();
    Ok(Parsed { architecture, essence })
}

/// Whether a text or file of so many bytes is read at all.
///
/// # Errors
/// An [`Issue`] where it is longer than [`LONGEST_CONFIG`].
pub fn check_length(bytes: u64) -> Result<(), Issue> {
    if bytes > LONGEST_CONFIG as u64 {
        return Err(refusal(format!("this has {} MB", bytes / 1_000_000))
            .with_fix("a config.json has some kB; this looks like a tokenizer or weights"));
    }
    Ok(())
}

fn object(text: &str) -> Result<Map<String, Value>, Issue> {
    match json(text)? {
        Value::Object(object) => Ok(object),
        other => {
            Err(refusal("a config.json is a JSON object in braces")
                .with_fix(format!("this is {}", kind(&other))))
        }
    }
}

/// An error about the model.
pub(super) fn refusal(message: impl Into<String>) -> Issue {
    Issue::error(Field::Model, message)
}

/// The JSON of a text as Python writes and reads it: a byte order mark and the words `NaN` and `Infinity` are accepted.
fn json(text: &str) -> Result<Value, Issue> {
    check_length(text.len() as u64)?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(refusal("there is no config here: the text is empty"));
    }
    serde_json::from_str(&without_python_numbers(text)).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        if error.is_eof() {
            refusal(format!("this JSON ends early, at {place}")).with_fix("copy the whole file")
        } else if error.to_string().starts_with("recursion limit") {
            refusal(format!("this JSON is nested too deeply for a config, at {place}"))
        } else {
            refusal(format!("this is not JSON: {error}"))
        }
    })
}

/// The members of an object that were read; of an object in it, the members that were read in turn.
fn reduced(object: &Map<String, Value>, path: &str, read: &BTreeSet<String>) -> Map<String, Value> {
    let keep = |(key, value): (&String, &Value)| {
        let here = format!("{path}{key}");
        let value = match value {
            Value::Object(inner) => Value::Object(reduced(inner, &format!("{here}."), read)),
            other => other.clone(),
        };
        read.contains(&here).then(|| (key.clone(), value))
    };
    object.iter().filter_map(keep).collect()
}

/// What reading a config leaves behind.
#[derive(Debug, Default)]
pub(super) struct Log {
    notes: RefCell<Vec<String>>,
    /// Paths of the keys that were read, where somebody wants to know.
    read: Option<RefCell<BTreeSet<String>>>,
}

impl Log {
    /// The architecture with what had to be assumed before what its reader noted itself.
    fn noted(&self, architecture: Architecture) -> Architecture {
        let mut notes = self.notes.borrow().clone();
        notes.extend(architecture.notes);
        Architecture { notes, counted: Counted::default(), ..architecture }
    }

    fn read(&self, path: &str, key: &str) {
        if let Some(read) = &self.read {
            remember(read, path, key);
        }
    }

    /// Tells the user of something that had to be assumed.
    pub fn note(&self, note: impl Into<String>) {
        let note = note.into();
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// Only a model of the user's own wants this.
fn remember(read: &RefCell<BTreeSet<String>>, path: &str, key: &str) {
    read.borrow_mut().insert(format!("{path}{key}"));
}

/// One object of a config with the defaults that transformers' config class has for absent keys.
#[derive(Clone, Debug)]
pub(super) struct Config<'a> {
    object: &'a Map<String, Value>,
    /// The outer object's path with a dot, `text_config.`, or nothing.
    path: String,
    /// The `model_type` whose defaults are taken.
    pub model_type: &'a str,
    defaults: Option<&'static Map<String, Value>>,
    log: &'a Log,
}

/// The names that configs use for one thing, the first being the usual one.
const SYNONYMS: &[&[&str]] = &[
    &["hidden_size", "n_embd", "n_embed", "d_model", "dim"],
    &["num_hidden_layers", "n_layer", "n_layers", "num_layers"],
    &["num_attention_heads", "n_head", "n_heads", "num_heads"],
    &["vocab_size", "padded_vocab_size"],
    &["max_position_embeddings", "n_positions", "max_seq_len", "seq_length"],
    &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"],
    &["num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token", "experts_per_token"],
];

/// The sizes whose absence is worth a word.
const STRUCTURE: [&str; 5] =
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];

impl<'a> Config<'a> {
    /// The outermost object of a config, read as that model type.
    pub fn new(object: &'a Map<String, Value>, model_type: &'a str, log: &'a Log) -> Config<'a> {
        Config { object, path: String::new(), model_type, defaults: families::defaults(model_type), log }
    }

    /// The same object read with the defaults of another model type.
    pub fn like(&self, model_type: &'a str) -> Config<'a> {
        Config { model_type, defaults: families::defaults(model_type), ..self.clone() }
    }

    /// Tells the user of something that had to be assumed.
    pub fn note(&self, note: impl Into<String>) {
        self.log.note(note);
    }

    /// The object under that key, read as that model type. Absent, it is empty: the class defaults hold.
    pub fn nested(&self, key: &'static str, model_type: &'a str) -> Result<Config<'a>, Issue> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let object = match self.own(key) {
            None => &*EMPTY,
            Some(Value::Object(object)) => object,
            Some(other) => return Err(self.mistyped(key, other, "an object")),
        };
        let path = format!("{}{key}.", self.path);
        Ok(Config { object, path, model_type, defaults: families::defaults(model_type), log: self.log })
    }

    /// Whether the config has that key with a value other than null, defaults aside.
    pub fn has(&self, key: &'static str) -> bool {
        self.own(key).is_some()
    }

    /// Whether the class of the config has that key; of a class without known defaults, whether the file has it.
    pub fn knows(&self, key: &'static str) -> bool {
        self.defaults.map_or_else(|| self.has(key), |defaults| defaults.contains_key(key))
    }

    /// Whether a config of a class without known defaults says nothing of that key, not even null.
    pub fn is_left_out(&self, key: &'static str) -> bool {
        self.defaults.is_none() && self.member(key).is_none()
    }

    /// The first key that is on or above 0 and whose name has one of these parts.
    pub fn key_with(&self, parts: &[&str]) -> Option<&'a str> {
        let is_on = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::Bool(true) | Value::String(_) | Value::Array(_) | Value::Object(_) => true,
        };
        let named = |key: &str| parts.iter().any(|part| key.contains(part));
        let (key, _) = self.object.iter().find(|(key, value)| named(key) && is_on(value))?;
        self.log.read(&self.path, key);
        Some(key)
    }

    /// The value in the config itself; null counts as absent here.
    fn own(&self, key: &'static str) -> Option<&'a Value> {
        self.member(key).filter(|value| !value.is_null())
    }

    fn member(&self, key: &str) -> Option<&'a Value> {
        let value = self.object.get(key)?;
        self.log.read(&self.path, key);
        Some(value)
    }

    /// The value of a key under any of its names, or the class default. A null in the config is a null.
    fn find(&self, key: &'static str) -> Option<&'a Value> {
        let names = SYNONYMS.iter().find(|names| names.contains(&key)).copied();
        let names =
            || std::iter::once(key).chain(names.into_iter().flatten().copied().filter(|name| *name != key));
        if let Some(value) = names().find_map(|name| self.member(name)) {
            return Some(value).filter(|value| !value.is_null());
        }
        let value = names().find_map(|name| self.defaults?.get(name))?;
        if STRUCTURE.contains(&key) && !self.path.starts_with("vision") {
            self.note(format!(
                "{}{key} is not in the config: {value}, the default of {}",
                self.path, self.model_type
            ));
        }
        Some(value)
    }

    fn mistyped(&self, key: &str, value: &Value, wanted: &str) -> Issue {
        refusal(format!("{}{key} is {} where {wanted} belongs", self.path, kind(value)))
    }

    fn missing(&self, key: &str) -> Issue {
        if self.object.get(key).is_some_and(Value::is_null) {
            return refusal(format!("{}{key} is null", self.path));
        }
        refusal(format!("{}{key} is missing and {} has no default for it", self.path, self.model_type))
    }

    fn whole(&self, key: &'static str, value: &Value) -> Result<u64, Issue> {
        let number = value.as_u64().or_else(|| {
            // 4096.0 and 1e4 are whole too.
            value
                .as_f64()
                .filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n <= LARGEST_SIZE as f64)
                .map(|n| n as u64)
        });
        match number {
            Some(n) if n <= LARGEST_SIZE => Ok(n),
            _ => Err(self.mistyped(key, value, "a whole number of a sensible size")),
        }
    }

    /// A size or count, 0 included; none where it is null or has no default.
    pub fn optional(&self, key: &'static str) -> Result<Option<u64>, Issue> {
        self.find(key).map(|value| self.whole(key, value)).transpose()
    }

    /// A count, 0 included.
    pub fn count(&self, key: &'static str) -> Result<u64, Issue> {
        self.optional(key)?.ok_or_else(|| self.missing(key))
    }

    /// A size of at least 1.
    pub fn size(&self, key: &'static str) -> Result<u64, Issue> {
        match self.count(key)? {
            0 => Err(refusal(format!("{}{key} is 0", self.path))),
            size => Ok(size),
        }
    }

    /// A size of at least 1, or another where there is none.
    pub fn size_or(&self, key: &'static str, otherwise: u64) -> Result<u64, Issue> {
        if self.find(key).is_some() { self.size(key) } else { Ok(otherwise) }
    }

    /// A number of layers.
    pub fn depth(&self, key: &'static str) -> Result<u64, Issue> {
        let depth = self.size(key)?;
        if depth > MOST_LAYERS {
            return Err(refusal(format!("{}{key} is {depth}", self.path))
                .with_fix(format!("up to {MOST_LAYERS} layers are computed")));
        }
        Ok(depth)
    }

    /// A switch; off where the key is null or absent and the class has no default. 0 and 1 are accepted as in Python.
    pub fn flag(&self, key: &'static str) -> Result<bool, Issue> {
        Ok(self.optional_flag(key)?.unwrap_or(false))
    }

    /// A switch, if there.
    pub fn optional_flag(&self, key: &'static str) -> Result<Option<bool>, Issue> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) if value.as_u64().is_some_and(|n| n < 2) => Ok(Some(value.as_u64() == Some(1))),
            Some(value) => Err(self.mistyped(key, value, "true or false")),
        }
    }

    /// A number that may have a fraction.
    pub fn number(&self, key: &'static str) -> Result<Option<f64>, Issue> {
        match self.find(key) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|number| number.is_finite()) {
                Some(number) => Ok(Some(number)),
                None => Err(self.mistyped(key, value, "a number")),
            },
        }
    }

    /// A word.
    pub fn text(&self, key: &'static str) -> Result<Option<&'a str>, Issue> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.mistyped(key, value, "a text")),
        }
    }

    /// A list of words.
    pub fn texts(&self, key: &'static str) -> Result<Option<Vec<&'a str>>, Issue> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let words = list
            .iter()
            .map(|value| value.as_str().ok_or_else(|| self.mistyped(key, value, "a list of texts")));
        words.collect::<Result<_, _>>().map(Some)
    }

    /// A list of whole numbers.
    pub fn sizes(&self, key: &'static str) -> Result<Option<Vec<u64>>, Issue> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        list.iter().map(|value| self.whole(key, value)).collect::<Result<_, _>>().map(Some)
    }

    /// The length of a list, if there is one.
    pub fn length(&self, key: &'static str) -> Option<u64> {
        self.list(key).ok().flatten().map(|list| list.len() as u64)
    }

    /// The side of a square that may be given as a list of its two sides.
    pub fn side(&self, key: &'static str) -> Result<u64, Issue> {
        match self.find(key) {
            Some(Value::Array(_)) => self
                .sizes(key)?
                .and_then(|sides| sides.first().copied())
                .filter(|side| *side > 0)
                .ok_or_else(|| self.missing(key)),
            _ => self.size(key),
        }
    }

    fn list(&self, key: &'static str) -> Result<Option<&'a Vec<Value>>, Issue> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() > LONGEST_LIST => {
                Err(refusal(format!("{}{key} lists {} things", self.path, list.len())))
            }
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(self.mistyped(key, value, "a list")),
        }
    }
}

/// What a JSON value is, for people.
fn kind(value: &Value) -> Cow<'static, str> {
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => flag.to_string().into(),
        Value::Number(number) => number.to_string().into(),
        Value::String(text) if text.chars().count() <= 40 => format!("the text {text:?}").into(),
        Value::String(_) => "a long text".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}
