//! Settings of no project that is known, in the words that most projects use: `batch_size`, `--seq-length 2048`, a call of somebody's own
//! `TrainingConfig`. What they leave out stays as it was, as nobody knows whose defaults would hold.

mod fsdp_qlora;

use super::hugging_face::{IDLE, OF_ADAPTERS, REFUSED};
use super::names;
use super::reader::{Reader, Said, among};
use super::syntax::setting::Setting;
use super::trainer;
use crate::hardware::sold_with;
use crate::scenario::keys::Key;
use crate::scenario::{Method, Precision, Task, WeightFormat};

/// A key and what it is called elsewhere; its value is read as it stands.
const NUMBERS: [(&str, &[&str]); 7] = [
    (
        "batch-size",
        &[
            "per_device_train_batch_size",
            "per_device_batch_size",
            "train_micro_batch_size_per_gpu",
            "micro_batch_size",
            "train_batch_size",
            "batch_size",
            "micro_batch",
        ],
    ),
    (
        "gradient-accumulation",
        &[
            "gradient_accumulation_steps",
            "gradient_accumulation",
            "accumulation_steps",
            "grad_accum_steps",
            "grad_accum",
        ],
    ),
    (
        "seq-length",
        &[
            "max_seq_length",
            "max_seq_len",
            "max_length",
            "seq_length",
            "seq_len",
            "sequence_length",
            "sequence_len",
            "context_length",
            "block_size",
            "cutoff_len",
        ],
    ),
    ("lora-rank", &["lora_r", "lora_rank", "lora.r", "lora.rank"]),
    ("lora-dropout", &["lora_dropout", "lora.dropout"]),
    ("gpus", &["num_gpus", "n_gpus", "gpus", "num_processes", "nproc_per_node", "world_size"]),
    ("new-tokens", &["max_new_tokens", "new_tokens"]),
];

const MODEL: &[&str] = &[
    "model_name_or_path",
    "pretrained_model_name_or_path",
    "model_name",
    "model_id",
    "base_model",
    "hf_model",
    "model",
];
const OPTIMIZER: &[&str] = &["optimizer", "optim", "optimizer_type"];
const CHECKPOINTING: &[&str] =
    &["gradient_checkpointing", "activation_checkpointing", "use_gradient_checkpointing"];
const TARGETS: &[&str] = &["lora_target_modules", "target_modules", "lora.target_modules"];
const FLASH: &[&str] = &["use_flash_attention_2", "use_flash_attention", "flash_attention", "use_flash_attn"];
const KERNEL: &[&str] = &["attn_implementation", "attention_implementation"];
const PRECISION: &[&str] = &["precision", "mixed_precision", "dtype", "torch_dtype", "bf16", "fp16"];
const METHOD: &[&str] = &["method", "use_lora", "lora", "use_peft"];
const FOUR_BITS: &[&str] = &["use_qlora", "qlora", "load_in_4bit", "use_4bit"];
const EIGHT_BITS: &[&str] = &["load_in_8bit", "use_8bit"];
const MODE: &[&str] = &["mode"];
const ANSWERS: [&str; 2] = ["num_generations", "max_completion_length"];
const CACHE: &[&str] = &["no_kv_cache", "use_kv_cache", "kv_cache"];
const SIZE: &[&str] = &["model_size_gb"];
const CARD: &[&str] = &["gpu_memory_gb", "gpu_memory"];

/// How many of the settings are such words.
pub(super) fn words(settings: &[Setting]) -> usize {
    let lists = [
        MODEL,
        OPTIMIZER,
        CHECKPOINTING,
        TARGETS,
        FLASH,
        KERNEL,
        PRECISION,
        METHOD,
        FOUR_BITS,
        EIGHT_BITS,
        MODE,
        &ANSWERS,
        CACHE,
        SIZE,
        CARD,
        &["bf16", "fp16"],
    ];
    let is_usual = |name: &str| {
        NUMBERS.iter().any(|(_, names)| names.contains(&name))
            || lists.iter().any(|names| names.contains(&name))
    };
    // what is called as in Headroom's own files may be one of these with a slip in it
    let is_own = |name: &str| Key::find(name).is_some();
    settings.iter().filter(|setting| is_usual(&setting.name) && !is_own(&setting.name)).count()
}

/// Whether some of the settings have names that transformers and trl give none of theirs.
pub(super) fn is_foreign(settings: &[Setting]) -> bool {
    const FOREIGN: &[&str] = &[
        "batch_size",
        "micro_batch_size",
        "train_batch_size",
        "micro_batch",
        "grad_accum",
        "grad_accum_steps",
        "accumulation_steps",
        "seq_len",
        "seq_length",
        "sequence_length",
        "context_length",
        "max_seq_len",
        "model",
        "model_name",
        "model_id",
        "optimizer",
        "precision",
        "mixed_precision",
        "lora_rank",
        "mode",
    ];
    settings.iter().any(|setting| FOREIGN.contains(&setting.name.as_str()))
}

/// Takes the first of these names that is given; the others say the same in other words, or something else.
fn first(reader: &mut Reader, names: &[&str]) -> Option<Said> {
    let mut found: Option<Said> = None;
    for name in names {
        let Some(said) = reader.take(&[name]) else { continue };
        match &found {
            None => found = Some(said),
            Some(first) if first.value == said.value => reader.idle.push(said.said),
            Some(first) => {
                let why = format!("{} says what is taken for it", first.said);
                reader.leave(&said.said, &why);
            }
        }
    }
    found
}

pub(super) fn read(reader: &mut Reader) {
    if let Some(said) = reader.take(MODEL) {
        reader.model(&said);
    }
    // memory calculators, which know of no adapters where none are named
    let mut trains = !reader.given(SIZE).is_empty();
    size(reader);
    let mut writes = None;
    // everybody has a `mode` of something: these words are calculators'
    let modes = reader.named(MODE);
    let is_calculators = modes.iter().all(|said| ["training", "inference"].contains(&said.text().as_str()));
    match reader.take(if is_calculators { MODE } else { &[] }) {
        Some(said) if said.text() == "inference" => writes = Some(said.said),
        Some(said) => {
            trains = true;
            match reader.scenario.task.trains() {
                true => reader.idle.push(said.said),
                false => reader.brings(Task::Sft, &said.said),
            }
        }
        None => {}
    }
    fsdp_qlora::read(reader);
    method(reader);
    let is_open = !reader.has_taken("method") && (trains || !reader.scenario.method.has_adapters());
    let adapted = reader.named(&OF_ADAPTERS).into_iter().next();
    if let Some(said) = adapted.filter(|_| is_open && writes.is_none()) {
        reader.set("method", Method::Lora.slug(), &said.said);
    }
    if let Some(said) = &writes {
        reader.brings(Task::Generate, said);
    } else if let Some(said) = reader.named(&ANSWERS).first() {
        reader.brings(Task::Grpo, &said.said);
    }
    for (key, names) in NUMBERS {
        if let Some(said) = first(reader, names) {
            reader.set(key, &said.text(), &said.said);
        }
    }
    if let Some(said) = reader.take(TARGETS) {
        reader.targets(&said);
    }
    precision(reader);
    if writes.is_some() {
        let usual = reader.scenario.defaults();
        let why = "weights are loaded as they were published where nothing else is said";
        reader.assume("method", usual.method.slug(), why);
        reader.assume("precision", usual.precision.slug(), why);
    }
    if let Some(said) = reader.take(OPTIMIZER) {
        let name = said.text().to_ascii_lowercase();
        let slug = names::optimizer(&name).map_or(name.as_str(), |optimizer| optimizer.slug());
        reader.set("optimizer", slug, &said.said);
    }
    reader.switches("gradient-checkpointing", CHECKPOINTING);
    // axolotl's alone, whose file may have been read before
    reader.quietly("fused-adapters", "off");
    if trains {
        trainer::usual_loop(reader);
        reader.quietly("mask", "none");
        let why = "the calculator counts the training of all weights where nothing else is said";
        reader.assume("method", Method::Full.slug(), why);
        reader.assume("gradient-checkpointing", "off", "the calculator has none where nothing is said");
    }
    if let Some(said) = reader.take(KERNEL) {
        trainer::attention(reader, &said);
    }
    match reader.switch(FLASH) {
        Some((true, said)) => reader.set("attention", "flash-attention-2", &said),
        Some((false, said)) => reader.idle.push(said),
        None => {}
    }
    if let Some(said) = reader.take(&["max_grad_norm"]) {
        trainer::clips(reader, &said);
    }
    if let Some(said) = reader.take(CARD) {
        let amount = said.text();
        let unit = if said.number().is_some() { "GB" } else { "" };
        match sold_with(&format!("{amount}{unit}")) {
            Ok(bytes) => reader.set("gpu", &format!("{}MiB", bytes.0 >> 20), &said.said),
            Err(_) => reader.keep("gpu", &said.said, "this is no amount of memory"),
        }
    }
    answers(reader);
    cache(reader);
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    let idle = ["epochs", "num_epochs", "lr", "steps", "device", "verbose"];
    reader.pass(|name| among(IDLE, name) || among(&idle, name));
}

/// A model that is known by the gigabytes of its weights in 16 bits, as calculators ask for them.
fn size(reader: &mut Reader) {
    /// Bytes of a parameter: a billion of them are so many GB.
    const EACH: f64 = 2.0;
    let Some(said) = reader.take(SIZE) else { return };
    if reader.has_taken("model") {
        return reader.leave(&said.said, "the model is named, and its weights are counted");
    }
    let Some(gigabytes) = said.number().filter(|number| number.is_finite() && *number > 0.0) else {
        return reader.keep("model", &said.said, "this is no number of gigabytes");
    };
    let billions = gigabytes / EACH;
    let model = format!("{billions}b");
    if Key::find("model").is_some_and(|key| key.read(&mut reader.scenario.clone(), &model).is_ok()) {
        reader.set("model", &model, &format!("{}, of 2 bytes for each parameter", said.said));
    } else {
        let why = format!(
            "weights of 2 bytes are {billions} billion parameters, and no model is known by that size: name it (--model) or bring its \
             config.json"
        );
        reader.keep("model", &said.said, &why);
    }
}

/// Answers that are generated and learnt from, as GRPO does; its batch counts answers, however many are of one prompt.
fn answers(reader: &mut Reader) {
    let [number, length] = ANSWERS.map(|name| reader.take(&[name]));
    reader.idle.extend(number.map(|said| said.said));
    let Some(said) = length else { return };
    let prompt = reader.scenario.answers.prompt;
    match said.number().filter(|tokens| (1.0..=1e9).contains(tokens)) {
        Some(tokens) => {
            let why = format!("{}, behind a prompt of {prompt} tokens", said.said);
            reader.set("seq-length", &prompt.saturating_add(tokens as u64).to_string(), &why);
        }
        None => reader.keep("seq-length", &said.said, "this is no number of tokens"),
    }
}

/// Whether keys and values of earlier tokens are kept.
fn cache(reader: &mut Reader) {
    match reader.switch(&["no_kv_cache"]) {
        Some((off, said)) => reader.set("kv-cache", if off { "off" } else { "dynamic" }, &said),
        None => {
            let Some(said) = reader.take(&["use_kv_cache", "kv_cache"]) else { return };
            let word = said.text();
            let kept = match said.switch() {
                Some(true) => "dynamic",
                Some(false) => "off",
                None => &word,
            };
            reader.set("kv-cache", kept, &said.said);
        }
    }
}

/// Which weights are trained, by switches of many names.
fn method(reader: &mut Reader) {
    if let Some(said) = reader.take(&["method"]) {
        reader.set("method", &said.text().to_ascii_lowercase(), &said.said);
    }
    let four_bits = reader.switch(FOUR_BITS);
    let eight_bits = reader.switch(EIGHT_BITS).filter(|(on, _)| *on);
    let adapters = reader.switch(&["use_lora", "lora", "use_peft"]);
    let (found, other) = match (four_bits, adapters) {
        (Some((true, said)), other) => (Some((Method::Qlora, said)), other),
        (other, Some((true, said))) => (Some((Method::Lora, said)), other),
        (other, Some((false, said))) => (Some((Method::Full, said)), other),
        (Some((false, said)), None) => (None, Some((false, said))),
        (None, None) => (None, None),
    };
    if let Some((method, said)) = &found {
        reader.set("method", method.slug(), said);
    }
    match (found, other) {
        (Some((Method::Qlora, first)), Some((false, said))) => {
            reader.leave(&said, &format!("{first} says that there are adapters"));
        }
        (_, other) => reader.idle.extend(other.map(|(_, said)| said)),
    }
    if let Some((_, said)) =
        eight_bits.filter(|_| reader.scenario.method != Method::Qlora || !reader.has_taken("method"))
    {
        reader.set("method", Method::Qlora.slug(), &said);
        reader.set("weight-format", WeightFormat::Int8.slug(), &said);
    }
}

/// What is computed in, and what the weights are: autocast has switches (`bf16`, `mixed_precision`), the weights a type. Where nothing is said of
/// autocast, the type is that of everything.
fn precision(reader: &mut Reader) {
    let computes = autocast(reader);
    let weights = first(reader, &["dtype", "torch_dtype", "precision"]);
    let word = weights.as_ref().map(|said| said.text().to_ascii_lowercase());
    let word = word.as_deref().map(|word| word.trim_start_matches("torch."));
    if let (Some(format), Some(said)) = (word.and_then(quantised), &weights) {
        // what is computed in stays as it was where nothing else is said of it
        reader.set("method", Method::Qlora.slug(), &said.said);
        reader.set("weight-format", format.slug(), &said.said);
    }
    let word = word.filter(|word| quantised(word).is_none());
    let now = reader.scenario.precision;
    let are_16_bits = match word {
        Some("bf16" | "bfloat16" | "fp16" | "float16" | "half") => true,
        Some("fp32" | "float32" | "float") => false,
        _ => now == Precision::AmpBf16Weights,
    };
    let slug = match (&computes, word) {
        (Some((Computes::Bfloat16, _)), _) if are_16_bits => Precision::AmpBf16Weights.slug(),
        (Some((Computes::Bfloat16, _)), _) | (None, Some("mixed" | "amp")) => Precision::AmpBf16.slug(),
        (Some((Computes::Float16, _)), _) => Precision::AmpFp16.slug(),
        (_, Some("bf16" | "bfloat16")) => Precision::Bf16.slug(),
        (_, Some("fp16" | "float16" | "half")) => Precision::Fp16.slug(),
        (_, Some("fp32" | "float32" | "float")) | (Some((Computes::AsWeights, _)), None) => {
            Precision::Fp32.slug()
        }
        (_, Some(word)) => word,
        (None, None) => return,
    };
    let said: Vec<String> =
        computes.map(|(_, said)| said).into_iter().chain(weights.map(|said| said.said)).collect();
    reader.set("precision", slug, &said.join(", "));
}

/// Weights that are quantised, which calculators count among the precisions.
fn quantised(word: &str) -> Option<WeightFormat> {
    match word {
        "int8" | "8bit" | "8-bit" => Some(WeightFormat::Int8),
        "int4" | "4bit" | "4-bit" | "nf4" => Some(WeightFormat::Nf4),
        _ => None,
    }
}

/// What autocast computes in.
enum Computes {
    Bfloat16,
    Float16,
    /// There is none.
    AsWeights,
}

/// What is said of autocast, if anything is.
fn autocast(reader: &mut Reader) -> Option<(Computes, String)> {
    let mut on = None;
    for (name, computes) in [("bf16", Computes::Bfloat16), ("fp16", Computes::Float16)] {
        match (reader.switch(&[name]), &on) {
            (Some((true, said)), None) => on = Some((computes, said)),
            (Some((true, said)), Some((_, first))) => {
                reader.leave(&said, &format!("{first} says what is computed in"))
            }
            (Some((false, said)), _) => reader.idle.push(said),
            (None, _) => {}
        }
    }
    let said = match (reader.take(&["mixed_precision"]), on) {
        (Some(said), None) => said,
        (other, on) => {
            reader.idle.extend(other.map(|said| said.said));
            return on;
        }
    };
    match said.text().to_ascii_lowercase().as_str() {
        "true" if reader.scenario.has_bfloat16() => Some((Computes::Bfloat16, said.said)),
        "true" => Some((Computes::Float16, said.said)),
        "bf16" | "bfloat16" => Some((Computes::Bfloat16, said.said)),
        "fp16" | "float16" => Some((Computes::Float16, said.said)),
        "no" | "none" | "false" => Some((Computes::AsWeights, said.said)),
        _ => {
            reader.keep("precision", &said.said, "of mixed precisions bf16 and fp16 are known");
            None
        }
    }
}

#[cfg(test)]
mod tests;
