//! One reader per shape of family: from config keys to blocks.

mod classic;
mod deepseek;
mod encoder;
mod gemma4;
mod hybrid;
mod latent;
mod llama;
mod multimodal;
mod parts;
mod plan;
mod seq2seq;
mod tower;
mod variant;
mod variants;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Architecture;
use super::config::{Config, Log, refusal};
use crate::scenario::Issue;

/// What transformers' config classes have for absent keys, by `model_type`.
static DEFAULTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!(concat!(env!("OUT_DIR"), "/defaults.json"))).unwrap_or_default()
});

/// The class defaults of a model type.
pub(super) fn defaults(model_type: &str) -> Option<&'static Map<String, Value>> {
    DEFAULTS.get(model_type).and_then(Value::as_object)
}

/// Builds the architecture that a config describes.
///
/// # Errors
/// An [`Issue`] where the family is unknown or a key is missing.
pub(super) fn read(object: &Map<String, Value>, log: &Log) -> Result<Architecture, Issue> {
    let outer = Config::new(object, "", log);
    let model_type = outer.text("model_type")?.unwrap_or("");
    if outer.has("quantization_config") {
        log.note("the config describes a quantised checkpoint; it is counted as its unquantised weights");
    }
    let config = Config::new(object, model_type, log);
    let readers = [
        classic::read,
        encoder::read,
        seq2seq::read,
        hybrid::read,
        deepseek::read,
        multimodal::read,
        llama::known,
    ];
    readers.into_iter().find_map(|reader| reader(&config)).unwrap_or_else(|| unknown(&config))
}

/// A config of an unknown family: llama's, if it has llama's keys.
fn unknown(config: &Config<'_>) -> Result<Architecture, Issue> {
    let wanted =
        ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];
    let missing: Vec<&str> = wanted.into_iter().filter(|key| !config.has(key)).collect();
    let name = match config.model_type {
        "" => "a config without model_type".to_owned(),
        name => format!("the model type {name:?}"),
    };
    if !missing.is_empty() {
        return Err(refusal(format!(
            "{name} is not known, and it is not llama's either: {} missing",
            missing.join(", ")
        ))
        .with_fix("give the config.json of a language model that transformers knows"));
    }
    config.note(format!("{name} is not known: counted as a llama of these dimensions"));
    llama::read(config, &variant::LLAMA)
}
