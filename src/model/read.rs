//! Reading a model: from the text of its `config.json` to its [`Architecture`].

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::architecture::{Architecture, Counted};
use super::config::{Log, kind};
use super::error::ModelError;
use super::families;
use super::python_json::without_python_numbers;

/// The longest text that is read. Real configs have 0.5 to 100 kB; megabytes of JSON are some other file.
pub const LONGEST_CONFIG: usize = 4 << 20;

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
/// A [`ModelError`] that says what is missing, of the wrong type, or unsupported.
///
/// ```
/// let gpt2 = headroom::model::read::parse(r#"{"model_type": "gpt2"}"#).unwrap();
/// assert_eq!(gpt2.parameters(), 124_439_808);
/// ```
pub fn parse(text: &str) -> Result<Architecture, ModelError> {
    let log = Log::default();
    let architecture = families::read(&object(text)?, &log)?;
    Ok(noted(architecture, log.notes()))
}

/// Reads the text of a `config.json`, and says which part of it mattered.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_essence(text: &str) -> Result<Parsed, ModelError> {
    let object = object(text)?;
    let log = Log::of_keys();
    let architecture = noted(families::read(&object, &log)?, log.notes());
    let essence = Value::Object(reduced(&object, "", &log.keys())).to_string();
    Ok(Parsed { architecture, essence })
}

/// The architecture with what had to be assumed before what its reader noted itself.
fn noted(architecture: Architecture, mut notes: Vec<String>) -> Architecture {
    notes.extend(architecture.notes);
    Architecture { notes, counted: Counted::default(), ..architecture }
}

/// Whether a text or file of so many bytes is read at all.
///
/// # Errors
/// A [`ModelError`] where it is longer than [`LONGEST_CONFIG`].
pub fn check_length(bytes: u64) -> Result<(), ModelError> {
    if bytes > LONGEST_CONFIG as u64 {
        return Err(ModelError::new(format!("this has {} MB", bytes / 1_000_000))
            .with_fix("a config.json has some kB; this looks like a tokenizer or weights"));
    }
    Ok(())
}

fn object(text: &str) -> Result<Map<String, Value>, ModelError> {
    match json(text)? {
        Value::Object(object) => Ok(object),
        other => Err(ModelError::new("a config.json is a JSON object in braces")
            .with_fix(format!("this is {}", kind(&other)))),
    }
}

/// The JSON of a text as Python writes and reads it: a byte order mark and the words `NaN` and `Infinity` are accepted.
fn json(text: &str) -> Result<Value, ModelError> {
    check_length(text.len() as u64)?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(ModelError::new("there is no config here: the text is empty"));
    }
    serde_json::from_str(&without_python_numbers(text)).map_err(|error| not_json(&error))
}

/// What is wrong with a text that should be JSON, whoever reads it.
pub(crate) fn not_json(error: &serde_json::Error) -> ModelError {
    let place = format!("line {}, column {}", error.line(), error.column());
    if error.is_eof() {
        ModelError::new(format!("this JSON ends early, at {place}")).with_fix("copy the whole file")
    } else if error.to_string().starts_with("recursion limit") {
        ModelError::new(format!("this JSON is nested too deeply for a config, at {place}"))
    } else {
        ModelError::new(format!("this is not JSON: {error}"))
    }
}

/// An object without the members that no reader asked for; objects inside it likewise.
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
