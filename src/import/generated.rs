//! Scripts that load a model and write with it: transformers' `generate`, without a trainer or a loop.

use serde_json::Value;

use super::reader::{Reader, among};
use super::syntax::python::Script;
use super::syntax::setting::{Setting, flatten};

/// What of a call's arguments memory does not depend on, or no more than the answer says.
const IDLE: &[&str] = &[
    "input_ids",
    "attention_mask",
    "inputs",
    "streamer",
    "tokenizer",
    "pad_token_id",
    "eos_token_id",
    "bos_token_id",
    "min_new_tokens",
    "min_length",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "early_stopping",
    "length_penalty",
    "stopping_criteria",
    "logits_processor",
    "stop_strings",
    "return_dict_in_generate",
    "max_time",
];

/// Adds what a call of `generate` says, where a script trains nothing; whether it does.
pub(super) fn takes(script: &Script, settings: &mut Vec<Setting>) -> bool {
    let trains = |name: &str| name.ends_with("Trainer") || ["backward", "fit"].contains(&name);
    if script.calls.iter().any(|call| trains(call.name())) {
        return false;
    }
    let is_one = |path: &str| path.ends_with(".generate");
    let Some(call) = script.calls.iter().rev().find(|call| is_one(&call.path)) else { return false };
    // what is handed over as one object is what its class was given
    let config = script.calls.iter().filter(|call| call.path == "GenerationConfig");
    for (name, value) in config.chain([call]).flat_map(|call| &call.named) {
        if name != "generation_config" {
            flatten("generate", name, value.clone(), settings);
        }
    }
    let prompts = script.calls.iter().filter(|call| ["tokenizer", "processor"].contains(&call.path.as_str()));
    let texts = |value: &Value| value.as_array().map(Vec::len).filter(|count| *count > 0);
    if let Some(count) = prompts.rev().find_map(|call| texts(call.values.first()?)) {
        flatten("tokenizer", "prompts", Value::from(count), settings);
    }
    true
}

/// Reads what it says.
pub(super) fn read(reader: &mut Reader) {
    let length = reader.scenario.sequence.to_string();
    reader.assume("seq-length", &length, "how long a prompt is does not stand in the script: as it was");
    match reader.take(&["prompts"]) {
        Some(said) => reader.set("batch-size", &said.text(), &format!("{} prompts", said.text())),
        None => {
            reader.assume("batch-size", "1", "how many prompts run at a time does not stand in the script")
        }
    }
    match reader.take(&["max_new_tokens"]) {
        Some(said) => reader.set("new-tokens", &said.text(), &said.said),
        None => {
            let tokens = reader.scenario.generation.new_tokens.to_string();
            reader.assume("new-tokens", &tokens, "max_new_tokens is not given: as it was");
        }
    }
    reader.refuse(&["max_length"], "of how many tokens are written max_new_tokens is read");
    let off = reader.switch(&["use_cache"]).filter(|(on, _)| !on);
    match (off, reader.take(&["cache_implementation"])) {
        (Some((_, said)), cache) => {
            reader.idle.extend(cache.map(|cache| cache.said));
            reader.set("kv-cache", "off", &said);
        }
        (None, Some(cache)) => match cache.text().as_str() {
            word @ ("dynamic" | "static") => reader.set("kv-cache", word, &cache.said),
            _ => {
                reader.keep("kv-cache", &cache.said, "of caches the dynamic and the static one are modelled")
            }
        },
        (None, None) => reader.assume("kv-cache", "dynamic", "transformers' default"),
    }
    reader.refuse(
        &["cache_config", "past_key_values"],
        "of caches the dynamic and the static one are modelled",
    );
    match reader.switch(&["do_sample"]) {
        Some((true, said)) => reader.set("sampling", "sampled", &said),
        Some((false, said)) => reader.set("sampling", "greedy", &said),
        None => reader.assume(
            "sampling",
            "greedy",
            "do_sample is off by default, unless the model's generation_config.json switches it on",
        ),
    }
    for name in ["num_beams", "num_return_sequences", "num_beam_groups"] {
        if let Some(said) = reader.take(&[name]) {
            match said.number() {
                Some(1.0) => reader.idle.push(said.said),
                _ => reader.leave(
                    &said.said,
                    "several sequences of a prompt are not modelled: each has a cache of its own, as a prompt more has",
                ),
            }
        }
    }
    let kept = ["output_scores", "output_logits", "output_attentions", "output_hidden_states"];
    reader.refuse(&kept, "what is kept of every token beside the cache is not modelled");
    reader.refuse(&["assistant_model", "prompt_lookup_num_tokens"], "assisted generation is not modelled");
    reader.pass(|name| among(IDLE, name));
}
