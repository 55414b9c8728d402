//! One reader per shape of family: from config keys to blocks.

mod classic;
mod classifier;
mod common;
mod custom;
mod deepseek;
mod encoder;
mod fairseq;
mod gemma4;
mod hybrid;
mod latent;
mod layers;
mod llama;
mod look;
mod multimodal;
mod parts;
mod seq2seq;
mod tiled;
mod tower;
mod variant;
mod variants;

use serde_json::{Map, Value};

use super::architecture::Architecture;
use super::config::{Config, Log};
use super::error::ModelError;

/// Builds the architecture that a config describes.
///
/// # Errors
/// A [`ModelError`] where the family is unknown or a key is missing.
pub(super) fn read(object: &Map<String, Value>, log: &Log) -> Result<Architecture, ModelError> {
    let outer = Config::new(object, "", log);
    let model_type = outer.text("model_type")?.unwrap_or("");
    if outer.has("quantization_config") {
        log.note(quantised_note(&outer));
    }
    let config = Config::new(object, model_type, log);
    let readers = [
        classic::read,
        variants::read,
        fairseq::read,
        custom::read,
        encoder::read,
        seq2seq::read,
        hybrid::read,
        deepseek::read,
        multimodal::read,
    ];
    readers.into_iter().find_map(|reader| reader(&config)).unwrap_or_else(|| unknown(&config))
}

/// What is said of a config of quantised weights: how they are quantised, and that they are not followed.
fn quantised_note(outer: &Config<'_>) -> String {
    let own = outer.nested("quantization_config", "").ok();
    let method = own.as_ref().and_then(|own| own.text("quant_method").ok()?).unwrap_or_default();
    let name = match method.to_lowercase().as_str() {
        "gptq" => "GPTQ",
        "awq" => "AWQ",
        "hqq" => "HQQ",
        "torchao" => "torchao",
        "fp8" => "FP8",
        "mxfp4" => "MXFP4",
        "aqlm" => "AQLM",
        "compressed-tensors" => "compressed-tensors",
        "bitsandbytes" => "bitsandbytes",
        _ => {
            return "the config describes a quantised checkpoint; it is counted as its unquantised weights"
                .to_owned();
        }
    };
    let count = |key| own.as_ref().and_then(|own| own.count(key).ok());
    let bits = count("bits");
    let text = |key| own.as_ref().and_then(|own| own.text(key).ok()?);
    let version = text("version").or_else(|| text("format")).unwrap_or("gemm");
    let format = match (name, bits) {
        ("GPTQ", Some(4)) => Some("gptq-4"),
        ("GPTQ", Some(8)) => Some("gptq-8"),
        ("AWQ", Some(4)) if version.eq_ignore_ascii_case("gemm") => Some("awq-4"),
        _ => None,
    };
    if let (Some(format), Some(bits)) = (format, bits) {
        let says = own.as_ref().is_some_and(|own| own.has("group_size"));
        let group = match count("group_size") {
            Some(size) => size.to_string(),
            // -1
            None if says => "column".to_owned(),
            None => "128".to_owned(),
        };
        return format!(
            "the config describes a quantised checkpoint ({name}, {bits} bits): it is followed with --method qlora --weight-format {format} \
             --group-size {group} (Weight format and Group size on the page), else counted as its unquantised weights"
        );
    }
    let bits = bits.map_or_else(String::new, |bits| format!(", {bits} bits"));
    let instead = match name {
        "MXFP4" => {
            "so it is trained, and so transformers generates from it without the package kernels; with that it stays as it is published, which \
             headroom serving counts"
        }
        "bitsandbytes" => "the method says how they are loaded",
        "torchao" => {
            "of torchao's formats training over int8 weight-only ones is followed, which the format of quantised weights names"
        }
        _ => "training over such weights is not followed: 16-bit ones, which stand for them, take more",
    };
    format!(
        "the config describes a quantised checkpoint ({name}{bits}); it is counted as its unquantised weights: {instead}"
    )
}

/// Language models that transformers has and this project has not.
fn is_elsewhere(model_type: &str) -> bool {
    include_str!("../../../data/elsewhere.txt").lines().any(|known| known == model_type)
}

/// Parts of keys that a plain llama has not: they say what would be counted wrongly.
const MORE_THAN_LLAMA: [&str; 12] = [
    "expert",
    "moe",
    "lora_rank",
    "mamba",
    "ssm",
    "state_size",
    "conv",
    "encoder",
    "vision",
    "audio",
    "qk_norm",
    "qk_layernorm",
];

/// A config of an unknown family: its parameters are counted as a llama's if it has llama's keys and no others that matter.
fn unknown(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let name = match config.model_type {
        "" => "a config without model_type".to_owned(),
        name => format!("the model type {:?}", name.chars().take(60).collect::<String>()),
    };
    if is_elsewhere(config.model_type) {
        return Err(ModelError::new(format!(
            "{name} is not known: its layers are not those of any family here"
        )));
    }
    let wanted =
        ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];
    let missing: Vec<&str> = wanted.into_iter().filter(|key| !config.has(key)).collect();
    if !missing.is_empty() {
        return Err(ModelError::new(format!(
            "{name} is not known, and for a llama it lacks {}",
            missing.join(", ")
        ))
        .with_fix("give the config.json of a language model"));
    }
    if let Some(key) = config.key_with(&MORE_THAN_LLAMA) {
        return Err(ModelError::new(format!(
            "{name} is not known, and {key} says that it is no plain llama"
        )));
    }
    config.note(format!("{name} is not known: its parameters are counted as a llama's of these dimensions"));
    llama::read(config, &variant::LLAMA)
}
