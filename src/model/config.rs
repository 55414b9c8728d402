//! The keys of a `config.json`: lenient about what transformers is lenient about, clear about everything else.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::error::ModelError;

/// The largest size or count that is accepted; no dimension of a model is near it, and sums of products of two stay
/// within 64 bits.
const LARGEST_SIZE: u64 = 1 << 30;

/// The most layers that are accepted; the deepest real models have some hundred.
const MOST_LAYERS: u64 = 4096;

/// The longest list that is looked into: one entry per layer, and some room.
const LONGEST_LIST: usize = 4 * MOST_LAYERS as usize;

/// What reading a config leaves behind.
#[derive(Debug, Default)]
pub(super) struct Log {
    notes: RefCell<Vec<String>>,
    /// Paths of the keys that were read, where somebody wants to know.
    read: Option<RefCell<BTreeSet<String>>>,
}

impl Log {
    /// A log that also remembers which keys were read.
    pub fn of_keys() -> Log {
        Log { read: Some(RefCell::default()), ..Log::default() }
    }

    /// What had to be assumed.
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// The paths of the keys that were read; none where the log does not remember them.
    pub fn keys(self) -> BTreeSet<String> {
        self.read.map(RefCell::into_inner).unwrap_or_default()
    }

    fn read(&self, path: &str, key: &str) {
        if let Some(read) = &self.read {
            read.borrow_mut().insert(format!("{path}{key}"));
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

/// What transformers' config classes have for absent keys of a model type.
fn defaults(model_type: &str) -> Option<&'static Map<String, Value>> {
    static DEFAULTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        serde_json::from_str(include_str!(concat!(env!("OUT_DIR"), "/defaults.json"))).unwrap_or_default()
    });
    DEFAULTS.get(model_type).and_then(Value::as_object)
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
        Config { object, path: String::new(), model_type, defaults: defaults(model_type), log }
    }

    /// The same object read with the defaults of another model type.
    pub fn like(&self, model_type: &'a str) -> Config<'a> {
        Config { model_type, defaults: defaults(model_type), ..self.clone() }
    }

    /// Tells the user of something that had to be assumed.
    pub fn note(&self, note: impl Into<String>) {
        self.log.note(note);
    }

    /// The object under that key, read as that model type. Absent, it is empty: the class defaults hold.
    pub fn nested(&self, key: &'static str, model_type: &'a str) -> Result<Config<'a>, ModelError> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let object = match self.own(key) {
            None => &*EMPTY,
            Some(Value::Object(object)) => object,
            Some(other) => return Err(self.mistyped(key, other, "an object")),
        };
        let path = format!("{}{key}.", self.path);
        Ok(Config { object, path, model_type, defaults: defaults(model_type), log: self.log })
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
        // of the parts of a model transformers writes what differs from their classes alone (`to_diff_dict`)
        if STRUCTURE.contains(&key) && self.path.is_empty() {
            self.note(format!("{key} is not in the config: {value}, the default of {}", self.model_type));
        }
        Some(value)
    }

    /// An error of one key, of which the problem says what it is.
    fn wrong(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::at(format!("{}{key}", self.path), problem)
    }

    fn mistyped(&self, key: &str, value: &Value, wanted: &str) -> ModelError {
        self.wrong(key, format!("is {} where {wanted} belongs", kind(value)))
    }

    fn missing(&self, key: &str) -> ModelError {
        if self.object.get(key).is_some_and(Value::is_null) {
            return self.wrong(key, "is null");
        }
        self.wrong(key, format!("is missing and {} has no default for it", self.model_type))
    }

    fn whole(&self, key: &'static str, value: &Value) -> Result<u64, ModelError> {
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
    pub fn optional(&self, key: &'static str) -> Result<Option<u64>, ModelError> {
        self.find(key).map(|value| self.whole(key, value)).transpose()
    }

    /// A count, 0 included.
    pub fn count(&self, key: &'static str) -> Result<u64, ModelError> {
        self.optional(key)?.ok_or_else(|| self.missing(key))
    }

    /// A size of at least 1.
    pub fn size(&self, key: &'static str) -> Result<u64, ModelError> {
        match self.count(key)? {
            0 => Err(self.wrong(key, "is 0")),
            size => Ok(size),
        }
    }

    /// A size of at least 1, or another where there is none.
    pub fn size_or(&self, key: &'static str, otherwise: u64) -> Result<u64, ModelError> {
        if self.find(key).is_some() { self.size(key) } else { Ok(otherwise) }
    }

    /// A number of layers.
    pub fn depth(&self, key: &'static str) -> Result<u64, ModelError> {
        let depth = self.size(key)?;
        if depth > MOST_LAYERS {
            return Err(self
                .wrong(key, format!("is {depth}"))
                .with_fix(format!("up to {MOST_LAYERS} layers are computed")));
        }
        Ok(depth)
    }

    /// A switch; off where the key is null or absent and the class has no default. 0 and 1 are accepted as in Python.
    pub fn flag(&self, key: &'static str) -> Result<bool, ModelError> {
        Ok(self.optional_flag(key)?.unwrap_or(false))
    }

    /// A switch, if there.
    pub fn optional_flag(&self, key: &'static str) -> Result<Option<bool>, ModelError> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) if value.as_u64().is_some_and(|n| n < 2) => Ok(Some(value.as_u64() == Some(1))),
            Some(value) => Err(self.mistyped(key, value, "true or false")),
        }
    }

    /// A number that may have a fraction.
    pub fn number(&self, key: &'static str) -> Result<Option<f64>, ModelError> {
        match self.find(key) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|number| number.is_finite()) {
                Some(number) => Ok(Some(number)),
                None => Err(self.mistyped(key, value, "a number")),
            },
        }
    }

    /// A word.
    pub fn text(&self, key: &'static str) -> Result<Option<&'a str>, ModelError> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.mistyped(key, value, "a text")),
        }
    }

    /// A list of words.
    pub fn texts(&self, key: &'static str) -> Result<Option<Vec<&'a str>>, ModelError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let words = list
            .iter()
            .map(|value| value.as_str().ok_or_else(|| self.mistyped(key, value, "a list of texts")));
        words.collect::<Result<_, _>>().map(Some)
    }

    /// A list of whole numbers.
    pub fn sizes(&self, key: &'static str) -> Result<Option<Vec<u64>>, ModelError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        list.iter().map(|value| self.whole(key, value)).collect::<Result<_, _>>().map(Some)
    }

    /// The length of a list, if there is one.
    pub fn length(&self, key: &'static str) -> Option<u64> {
        self.list(key).ok().flatten().map(|list| list.len() as u64)
    }

    /// The side of a square that may be given as a list of its two sides.
    pub fn side(&self, key: &'static str) -> Result<u64, ModelError> {
        match self.find(key) {
            Some(Value::Array(_)) => self
                .sizes(key)?
                .and_then(|sides| sides.first().copied())
                .filter(|side| *side > 0)
                .ok_or_else(|| self.missing(key)),
            _ => self.size(key),
        }
    }

    /// Both sides of what may be given as one number, or as a list of the two.
    pub fn sides(&self, key: &'static str) -> Result<[u64; 2], ModelError> {
        match self.find(key) {
            Some(Value::Array(_)) => match self.sizes(key)?.as_deref() {
                Some([first, second]) if *first > 0 && *second > 0 => Ok([*first, *second]),
                _ => Err(self.wrong(key, "is not two sizes of at least 1")),
            },
            _ => self.size(key).map(|side| [side, side]),
        }
    }

    /// A list of lists of two sizes each, if there is one.
    pub fn pairs(&self, key: &'static str) -> Result<Option<Vec<[u64; 2]>>, ModelError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let pair = |value: &Value| match value.as_array().map(Vec::as_slice) {
            Some([first, second]) => Ok([self.whole(key, first)?, self.whole(key, second)?]),
            _ => Err(self.mistyped(key, value, "a list of pairs of sizes")),
        };
        list.iter().map(pair).collect::<Result<_, _>>().map(Some)
    }

    fn list(&self, key: &'static str) -> Result<Option<&'a Vec<Value>>, ModelError> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() > LONGEST_LIST => {
                Err(self.wrong(key, format!("lists {} things", list.len())))
            }
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(self.mistyped(key, value, "a list")),
        }
    }
}

/// What a JSON value is, for people.
pub(super) fn kind(value: &Value) -> Cow<'static, str> {
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
