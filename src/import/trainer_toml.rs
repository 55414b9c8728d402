//! The TOML files of a GPT-2-like trainer whose memory guide reads them: `model_embd`, `model_layer` and their like.

use super::reader::{Reader, among};
use crate::model::dimensions::{Decoder, Dimensions};
use crate::scenario::{CustomModel, ModelChoice};

const IDLE: &[&str] = &[
    "corpus_path",
    "sources",
    "model_name",
    "model_path",
    "model_seed",
    "epochs",
    "learning_rate",
    "resume",
    "device",
    "max_length",
    "temperature",
    "beam_size",
    "max_context_length",
    "weight_decay",
    "log_interval",
    "seed",
    "tokenizer*",
];

/// gpt2's vocabulary, which the guide's parameter counts contain: 30.12M for 6 layers of 384.
const VOCABULARY: u64 = 50_257;

pub(super) fn read(reader: &mut Reader) {
    let mut said = Vec::new();
    let mut number = |reader: &mut Reader, name: &str, default: u64| match reader.take(&[name]) {
        Some(setting) => {
            said.push(setting.said.clone());
            let value = setting.number().filter(|value| (1.0..=1e9).contains(value) && value.fract() == 0.0);
            if value.is_none() {
                reader.leave(&setting.said, "this is no size of a model");
            }
            value.map_or(default, |value| value as u64)
        }
        None => default,
    };
    let dimensions = Dimensions {
        decoder: Decoder::Gpt2,
        hidden: number(reader, "model_embd", 768),
        layers: number(reader, "model_layer", 12),
        heads: number(reader, "model_head", 12),
        kv_heads: 0,
        intermediate: 0,
        vocab: VOCABULARY,
        positions: number(reader, "model_positions", 1024),
        tied: true,
    };
    let dimensions = Dimensions {
        kv_heads: dimensions.heads,
        intermediate: dimensions.hidden.saturating_mul(4),
        ..dimensions
    };
    let all = said.join(", ");
    match CustomModel::read("GPT-2-like", &dimensions.config()) {
        Ok(model) => {
            reader.scenario.model = ModelChoice::Custom(model.into());
            let written = crate::scenario::keys::Key::find("model")
                .map(|key| key.write(&reader.scenario))
                .unwrap_or_default();
            reader.set("model", &written, if all.is_empty() { "the trainer's default model" } else { &all });
        }
        Err(issue) => reader.leave(&all, &issue.message),
    }
    reader.or_assume("batch-size", &["batch_size"], "12", "the trainer's default");
    reader.or_assume("seq-length", &["seq_len"], "1024", "the trainer's default");
    reader.assume("method", "full", "the trainer trains all weights");
    reader.assume("stack", "transformers", "a GPT-2 as transformers has it");
    match reader.switch(&["mixed_precision"]) {
        Some((true, said)) => reader.set("precision", "amp-fp16", &said),
        Some((false, said)) => reader.set("precision", "fp32", &said),
        None => reader.assume("precision", "amp-fp16", "the trainer's mixed precision"),
    }
    reader.assume("optimizer", "adamw", "the trainer's AdamW");
    reader.assume("gradient-checkpointing", "off", "the trainer has none");
    reader.pass(|name| among(IDLE, name));
}
