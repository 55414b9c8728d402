//! vLLM: the command that serves a model, its own file, and its class in Python. They become a scenario that generates, with what vLLM's
//! budget is counted from.
//!
//! Source: vLLM 0.21 engine/arg_utils.py (`EngineArgs`, `get_batch_defaults`), config/cache.py, utils/argparse_utils.py
//! (`human_readable_int`) and sampling_params.py.

mod command;
mod known;

use serde_json::{Map, Value};

use super::reader::{Reader, Said, among};
use super::settings::understood;
use super::syntax::python::Script;
use super::syntax::setting::{flatten, of_table};
use super::understood::{Format, Left, Understood};
use crate::import::hugging_face::Parts;
use crate::model::blocks::Mixer;
use crate::model::catalogue;
use crate::scenario::{Scenario, Task};
use known::{IDLE, LARGEST_PICTURES, OF_PICTURES, REFUSED, REFUSED_TABLES};

/// Names that its file and its class have, and no trainer's settings.
const ITS_OWN: [&str; 8] = [
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "served_model_name",
    "enforce_eager",
    "enable_prefix_caching",
];

/// What a trainer's file has beside them: those that start vLLM have its settings among their own.
const TRAINERS: [&str; 9] = [
    "base_model",
    "learning_rate",
    "model_name_or_path",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_seq_length",
    "output_dir",
    "load_in_4bit",
    "use_vllm",
];

/// Its class in Python, which is told other numbers where it is told nothing: `LLM`, `EngineArgs`.
const CLASS: &str = "LLM";

/// A command line that starts its server.
pub(super) fn of_command(text: &str, base: &Scenario) -> Option<Understood> {
    let served = command::of(text)?;
    let mut settings = served.settings;
    let file =
        settings.iter().position(|setting| setting.name == "config").map(|at| settings.remove(at).said());
    let mut understood = read(Reader::new(base.clone(), settings));
    understood.idle.extend(served.container);
    let file = file.map(|said| (said, "this file says more: read it first, then this command"));
    understood.left.extend(file.map(|(said, why)| Left::new(said, why)));
    let unknown = served.unknown.into_iter();
    understood.left.extend(unknown.map(|word| Left::new(word, "this word is no argument of vllm serve")));
    let others = served.others.into_iter();
    understood
        .left
        .extend(others.map(|said| Left::new(said, "another server of this text: read it by itself")));
    Some(understood)
}

/// Its own file, as `vllm serve --config` takes it: the names of its arguments, with dashes or underscores.
pub(super) fn of_file(members: &Map<String, Value>, base: &Scenario) -> Option<Understood> {
    let named = |name: &String| name.replace('-', "_");
    let has = |names: &[&str]| members.keys().any(|name| names.contains(&named(name).as_str()));
    if !has(&ITS_OWN) || has(&TRAINERS) {
        return None;
    }
    let members = members.iter().map(|(name, value)| {
        let name = if name == "model_tag" { "model".to_owned() } else { named(name) };
        (name, value.clone())
    });
    Some(read(Reader::new(base.clone(), of_table(members.collect()))))
}

/// Calls of its class in Python, where nothing trains.
pub(super) fn of_calls(text: &str, script: &Script, base: &Scenario) -> Option<Understood> {
    const CLASSES: [&str; 4] = [CLASS, "AsyncLLM", "EngineArgs", "AsyncEngineArgs"];
    let trains = |name: &str| name.ends_with("Trainer") || ["FastLanguageModel", "backward"].contains(&name);
    if !text.contains("vllm") || script.calls.iter().any(|call| trains(call.name())) {
        return None;
    }
    let is_one = |path: &str, classes: &[&str]| classes.contains(&path.strip_prefix("vllm.").unwrap_or(path));
    let engine = script.calls.iter().find(|call| is_one(&call.path, &CLASSES))?;
    let mut settings = Vec::new();
    if let Some(model @ Value::String(_)) = engine.values.first() {
        flatten(engine.name(), "model", model.clone(), &mut settings);
    }
    for (name, value) in &engine.named {
        flatten(engine.name(), name, value.clone(), &mut settings);
    }
    let drawn = script.calls.iter().filter(|call| is_one(&call.path, &["SamplingParams"]));
    for (name, value) in drawn.flat_map(|call| &call.named) {
        flatten("SamplingParams", name, value.clone(), &mut settings);
    }
    let prompts = script.calls.iter().filter(|call| call.path.ends_with(".generate"));
    let texts = |value: &Value| value.as_array().map(Vec::len).filter(|count| *count > 0);
    if let Some(count) = prompts.rev().find_map(|call| texts(call.values.first()?)) {
        flatten("generate", "prompts", Value::from(count), &mut settings);
    }
    let mut reader = Reader::new(base.clone(), settings);
    reader.add("", &["entered_by"], Value::from(engine.name()));
    for other in script.calls.iter().filter(|call| is_one(&call.path, &CLASSES)).skip(1) {
        let said =
            format!("{}({})", other.path, other.values.first().map_or("…".to_owned(), Value::to_string));
        reader.leave(&said, "another engine of this script: the first is read");
    }
    Some(read(reader))
}

fn read(reader: Reader) -> Understood {
    understood(Format::Vllm, reader, Parts::default())
}

/// Reads what vLLM is told.
pub(super) fn settings(reader: &mut Reader) {
    let by_class = reader.take(&["entered_by"]).is_some_and(|said| said.text() == CLASS);
    reader.brings(
        Task::Generate,
        "vLLM: what it leaves to keys and values is answered by headroom serving, and by the table of formats in the view Plan",
    );
    reader.quietly("stack", "transformers");
    reader.quietly("mask", "none");
    let format = reader.take(&["model"]).and_then(|said| model(reader, &said));
    precision(reader);
    quantization(reader, format);
    card(reader);
    let length = length(reader);
    batches(reader, by_class, length);
    cache(reader);
    not_followed(reader);
    reader.pass(|name| among(IDLE, name));
}

/// How repositories' names end that hold a model's weights in fewer bits, and the key's value of that format where it has one.
const FORMATS: [(&str, Option<&str>); 13] = [
    ("-awq-int4", Some("awq-4")),
    ("-awq", Some("awq-4")),
    ("-gptq-int4", Some("gptq-4")),
    ("-gptq-int8", Some("gptq-8")),
    ("-gptq", Some("gptq-4")),
    ("-fp8-dynamic", None),
    ("-fp8-kv", None),
    ("-fp8", None),
    ("-nvfp4", None),
    ("-fp4", None),
    ("-gguf", None),
    ("-quantized.w4a16", None),
    ("-quantized.w8a8", None),
];

/// The model of that name; the format that its name says, where its weights are in one.
fn model(reader: &mut Reader, said: &Said) -> Option<(Option<&'static str>, String)> {
    let name = said.text();
    if catalogue::find(&name).is_some() {
        reader.model(said);
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let found = FORMATS.into_iter().find(|(end, _)| lower.ends_with(end));
    let Some((end, format)) = found else {
        reader.model(said);
        return None;
    };
    let base = name.get(..name.len() - end.len()).unwrap_or(&name);
    reader.model(&Said { value: Value::from(base), said: said.said.clone() });
    Some((format, said.said.clone()))
}

/// `dtype`: what is computed in.
fn precision(reader: &mut Reader) {
    let own = if reader.scenario.has_bfloat16() { "bf16" } else { "fp16" };
    let Some(said) = reader.take(&["dtype"]) else {
        let why = "vLLM's dtype is the model's own, in 16 bits: bfloat16 where the card has it";
        return reader.assume("precision", own, why);
    };
    let word = said.text();
    match word.rsplit('.').next().unwrap_or_default() {
        "auto" => reader.set("precision", own, &said.said),
        "bfloat16" => reader.set("precision", "bf16", &said.said),
        "half" | "float16" => reader.set("precision", "fp16", &said.said),
        "float" | "float32" => reader.set("precision", "fp32", &said.said),
        _ => reader.keep(
            "precision",
            &said.said,
            "vLLM's are auto, half, float16, bfloat16, float and float32",
        ),
    }
}

/// `quantization`, or what the name of the model says.
fn quantization(reader: &mut Reader, named: Option<(Option<&'static str>, String)>) {
    const NO_KEY: &str = "a scenario has no such weights: headroom serving has a row for each format, what vLLM leaves beside them among it";
    let said = reader.take(&["quantization"]).filter(|said| said.text() != "None");
    let format = match said.as_ref().map(Said::text).as_deref() {
        Some("bitsandbytes") => Some(Some("nf4")),
        Some("awq" | "awq_marlin") => Some(Some("awq-4")),
        Some("gptq" | "gptq_marlin") => match &named {
            // of how many bits they are the checkpoint says
            Some((Some("gptq-8"), _)) => Some(Some("gptq-8")),
            _ => Some(Some("gptq-4")),
        },
        Some(_) => Some(None),
        None => None,
    };
    let found = match (format, said, named) {
        (Some(format), Some(said), _) => Some((format, said.said)),
        (_, _, named) => named,
    };
    match found {
        Some((Some(format), said)) => {
            reader.set("method", "qlora", &said);
            reader.set("weight-format", format, &said);
        }
        Some((None, said)) => {
            reader.assume(
                "method",
                "full",
                "weights in 16 bits: the format that is asked for is not followed",
            );
            reader.misread(&said, NO_KEY);
        }
        None => reader.assume("method", "full", "no quantization is asked for"),
    }
}

/// Its share of the card, and among how many the model is divided.
fn card(reader: &mut Reader) {
    match reader.take(&["gpu_memory_utilization"]) {
        None => reader.assume("vllm-percent", "92", "vLLM 0.21's default of gpu_memory_utilization"),
        Some(said) => match said.number() {
            Some(share) if share > 0.0 && share < 0.01 => {
                reader.keep("vllm-percent", &said.said, "shares of less than a hundredth are not followed");
            }
            Some(share) if share > 0.0 && share <= 1.0 => {
                let percent = (share * 100.0 + 1e-6).floor();
                let is_whole = (share * 100.0 - percent).abs() < 1e-3;
                let words = if is_whole { said.said } else { format!("{}, in whole hundredths", said.said) };
                reader.set("vllm-percent", &percent.to_string(), &words);
            }
            _ => reader.keep("vllm-percent", &said.said, "vLLM takes a share of more than 0 and at most 1"),
        },
    }
    reader.or_assume("gpus", &["tensor_parallel_size"], "1", "vLLM's default of tensor_parallel_size");
    reader.divides(
        &["pipeline_parallel_size"],
        "a pipeline gives every GPU other layers, which is not followed: answered for tensor_parallel_size alone",
    );
    reader.divides(
        &["decode_context_parallel_size", "prefill_context_parallel_size"],
        "GPUs that share a sequence's keys and values are not followed",
    );
    let copies = ["data_parallel_size", "data_parallel_size_local"];
    for said in reader.take_each(&copies) {
        match said.number() {
            Some(1.0) => reader.idle.push(said.said),
            _ => reader.leave(&said.said, "each copy has GPUs of its own: answered for one of them"),
        }
    }
    reader.pass(|name| name.starts_with("data_parallel_"));
    if let Some((on, said)) = reader.switch(&["enable_expert_parallel"]) {
        let is_many = reader.scenario.cluster.is_many();
        match on && is_many {
            true => reader.misread(
                &said,
                "whole experts on each GPU are not followed: every GPU has a part of all of them",
            ),
            false => reader.idle.push(said),
        }
    }
}

/// A whole number as vLLM's command reads it: `32k` is 32,000 and `32K` 32,768.
fn whole(said: &Said) -> Option<u64> {
    if let Some(number) = said.number() {
        return (number >= 0.0 && number.fract() == 0.0).then_some(number as u64);
    }
    let text = said.text();
    let (digits, letter) = text.trim().split_at_checked(text.trim().len().checked_sub(1)?)?;
    let number: f64 = digits.parse().ok()?;
    let power = "kmgt".find(letter.to_ascii_lowercase().as_str())? as i32 + 1;
    let is_binary = letter.chars().all(|c| c.is_ascii_uppercase());
    let unit = if is_binary { 1024_f64.powi(power) } else { 1000_f64.powi(power) };
    (number >= 0.0 && (!is_binary || number.fract() == 0.0)).then_some((number * unit) as u64)
}

/// `max_model_len` and `max_tokens`: how long a sequence may be, and how much of it is new. Returned is the whole length.
fn length(reader: &mut Reader) -> u64 {
    let context = reader.scenario.architecture().ok().and_then(|architecture| architecture.max_positions);
    let asked = reader.take(&["max_model_len"]);
    let is_auto = |said: &Said| said.text() == "auto" || said.number() == Some(-1.0);
    let (given, unread) = match asked {
        Some(said) if is_auto(&said) => {
            reader.leave(
                &said.said,
                "the longest that has room: headroom serving says how long it is, in its last column",
            );
            (None, false)
        }
        Some(said) => match whole(&said).filter(|length| *length > 0) {
            Some(length) => (Some((length, said.said)), false),
            None => {
                reader.keep("seq-length", &said.said, "this is no number of tokens");
                (None, true)
            }
        },
        None => (None, false),
    };
    let written = reader.take(&["max_tokens"]);
    if let Some(said) = &written {
        reader.set("new-tokens", &said.text(), &said.said);
    }
    let mut new = reader.scenario.generation.new_tokens;
    let length = given.as_ref().map(|(length, _)| *length).or(context.filter(|_| !unread));
    let Some(length) = length else {
        if !unread {
            let sequence = reader.scenario.sequence.to_string();
            reader.assume(
                "seq-length",
                &sequence,
                "max_model_len is not given, and the model's context is not known: as it was",
            );
        }
        return reader.scenario.sequence.saturating_add(new);
    };
    if new >= length {
        new = (length / 2).max(1);
        let why = "half of a sequence: more have no room in max_model_len";
        match &written {
            Some(said) => reader.replace("new-tokens", &new.to_string(), &said.said, why),
            None => reader.assume("new-tokens", &new.to_string(), why),
        }
    } else if written.is_none() {
        reader.assume(
            "new-tokens",
            &new.to_string(),
            "how many tokens are written a request says: as it was",
        );
    }
    let prompt = length.saturating_sub(new).max(1).to_string();
    match given {
        Some((_, said)) => reader.set("seq-length", &prompt, &format!("{said}, less the new ones")),
        None => reader.assume(
            "seq-length",
            &prompt,
            "vLLM's default of max_model_len, the model's own context, less the new ones",
        ),
    }
    length
}

/// `max_num_seqs` and `max_num_batched_tokens`, and how many sequences run at once.
fn batches(reader: &mut Reader, by_class: bool, length: u64) {
    const SEQUENCES: &str = "vllm-max-num-seqs";
    const TOKENS: &str = "vllm-max-num-batched-tokens";
    let sequences = reader.take(&["max_num_seqs"]);
    match &sequences {
        Some(said) => match whole(said).filter(|number| *number > 0) {
            Some(number) => reader.set(SEQUENCES, &number.to_string(), &said.said),
            None => reader.keep(SEQUENCES, &said.said, "this is no number of sequences"),
        },
        None => reader.quietly(SEQUENCES, "0"),
    }
    let at_once = reader.scenario.serving.sequences;
    match (reader.take(&["prompts"]), at_once) {
        (Some(said), most) => {
            let prompts = said.number().unwrap_or(1.0) as u64;
            let together = if most == 0 { prompts } else { prompts.min(most) };
            reader.set("batch-size", &together.to_string(), &format!("{prompts} prompts"));
        }
        (None, 0) => {
            let batch = reader.scenario.batch.to_string();
            reader.assume("batch-size", &batch, "how many ask at a time is not said: as it was");
        }
        (None, most) => reader.assume(
            "batch-size",
            &most.to_string(),
            "as many sequences at once as max_num_seqs lets run",
        ),
    }
    let chunked = reader.switch(&["enable_chunked_prefill"]);
    let tokens = reader.take(&["max_num_batched_tokens"]);
    reader.quietly(TOKENS, "0");
    let own = crate::plan::Share::of(&reader.scenario).ok();
    match tokens {
        Some(said) => match whole(&said).filter(|number| *number > 0) {
            Some(number) => reader.set(TOKENS, &number.to_string(), &said.said),
            None => reader.keep(TOKENS, &said.said, "this is no number of tokens"),
        },
        None => {
            let Some(own_tokens) = own.and_then(|own| own.own_tokens) else { return };
            let sequences = own.map_or(1, |own| own.sequences);
            // 16,384 on large cards where the server has 8,192, else 8,192 where it has 2,048
            let of_class = if own_tokens > 2048 { 16_384 } else { 8_192 };
            let most = if by_class { of_class } else { own_tokens };
            match &chunked {
                Some((false, said)) => {
                    let tokens = most.max(length).min(sequences.saturating_mul(length));
                    let said = format!("{said}: a whole prompt at a time");
                    reader.set(TOKENS, &tokens.to_string(), &said);
                    return;
                }
                _ if by_class => {
                    let tokens = most.min(sequences.saturating_mul(length));
                    reader.assume(
                        TOKENS,
                        &tokens.to_string(),
                        "the default of vLLM's class LLM on such a card, where vllm serve has fewer",
                    );
                }
                _ => {}
            }
        }
    }
    reader.idle.extend(chunked.map(|(_, said)| said));
}

/// `kv_cache_dtype` and `block_size`.
fn cache(reader: &mut Reader) {
    match reader.take(&["kv_cache_dtype"]) {
        None => reader.quietly("vllm-kv-cache-dtype", "auto"),
        Some(said) => match said.text().as_str() {
            "auto" | "bfloat16" | "float16" => reader.set("vllm-kv-cache-dtype", "auto", &said.said),
            "fp8" | "fp8_e4m3" | "fp8_e5m2" => reader.set("vllm-kv-cache-dtype", "fp8", &said.said),
            _ => reader.keep(
                "vllm-kv-cache-dtype",
                &said.said,
                "keys and values are followed in 16 bits and in FP8",
            ),
        },
    }
    if let Some(said) = reader.take(&["block_size"]) {
        match said.number() {
            Some(16.0) => reader.idle.push(said.said),
            _ => reader.leave(&said.said, "blocks are counted of 16 tokens, vLLM's default"),
        }
    }
    let has_states = reader.scenario.architecture().is_ok_and(|architecture| {
        let is_state =
            |mixer: &Mixer| matches!(mixer, Mixer::StateSpace(_) | Mixer::DeltaNet(_) | Mixer::ShortConv(_));
        architecture.blocks.iter().any(|block| is_state(&block.mixer))
    });
    if let Some((on, said)) = reader.switch(&["enable_prefix_caching"]) {
        match on && has_states {
            true => reader.leave(&said, "prefixes of models with recurrent states are not followed"),
            false => reader.idle.push(said),
        }
    }
}

/// What takes memory and is not followed.
fn not_followed(reader: &mut Reader) {
    let has_tower = reader.scenario.architecture().is_ok_and(|architecture| !architecture.towers.is_empty());
    match has_tower {
        true => {
            for name in reader.names(|name| among(OF_PICTURES, name)) {
                reader.refuse(&[&name], LARGEST_PICTURES);
            }
        }
        false => reader.pass(|name| among(OF_PICTURES, name)),
    }
    if let Some(said) = reader.take(&["logprobs_mode"]) {
        match said.text().starts_with("raw_") {
            true => reader.idle.push(said.said),
            false => reader.leave(&said.said, "log-probabilities are counted as raw ones"),
        }
    }
    if let Some(said) = reader.take(&["moe_backend"]) {
        match ["auto", "triton", "marlin"].contains(&said.text().as_str()) {
            true => reader.idle.push(said.said),
            false => reader.leave(&said.said, "experts are counted in Triton's or Marlin's kernels"),
        }
    }
    for said in reader.take_each(&["n", "best_of"]) {
        match said.number() {
            Some(1.0) => reader.idle.push(said.said),
            _ => reader.leave(
                &said.said,
                "each answer of a prompt is a sequence of its own: count them among the prompts",
            ),
        }
    }
    // what these are told as usual
    for (name, usual) in [
        ("runner", ["auto", "generate"]),
        ("task", ["auto", "generate"]),
        ("convert", ["auto", "none"]),
        ("model_impl", ["auto", "vllm"]),
        ("performance_mode", ["balanced", "balanced"]),
        ("attention_backend", ["FLASH_ATTN", "FLASH_ATTN"]),
    ] {
        let is_usual = reader.named(&[name]).last().is_some_and(|said| usual.contains(&said.text().as_str()));
        if is_usual && let Some(said) = reader.take(&[name]) {
            reader.idle.push(said.said);
        }
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    for (start, why) in REFUSED_TABLES {
        for name in reader.names(|name| name.starts_with(start)) {
            reader.refuse(&[&name], why);
        }
    }
    // variables of the environment choose cards, kernels and how it logs
    reader.pass(|name| name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
}
