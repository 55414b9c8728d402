//! Scripts that many people run as they are, known by their names: what they do where a command says nothing.

use serde_json::{Value, json};

use super::hugging_face::{Parts, Trainer};
use super::syntax::setting::{Setting, text};
use crate::scenario::Tuner;

/// transformers' example of a model with something else in the place of its head (5.17, examples/pytorch).
struct Example {
    script: &'static str,
    /// The longest text in tokens, where it has a default.
    length: Option<u64>,
    /// What is not followed of it.
    left: Option<&'static str>,
}

/// Why a model with another head is read as one that classifies texts.
pub(super) const FOR_EACH_TOKEN: &str = "numbers for each token, or for each of several texts, are not followed: it is read as a model that \
                                         classifies whole texts (ForSequenceClassification), which has no logits of a vocabulary either";

const EXAMPLES: [Example; 6] = [
    Example { script: "run_glue.py", length: Some(128), left: None },
    Example { script: "run_classification.py", length: Some(128), left: None },
    Example { script: "run_xnli.py", length: Some(128), left: None },
    Example { script: "run_qa.py", length: Some(384), left: Some(FOR_EACH_TOKEN) },
    Example { script: "run_ner.py", length: None, left: Some(FOR_EACH_TOKEN) },
    Example { script: "run_swag.py", length: None, left: Some(FOR_EACH_TOKEN) },
];

/// What is known of a script, as its command is read.
#[derive(Default)]
pub(super) struct Known {
    pub parts: Option<Parts>,
    /// What makes no difference.
    pub idle: Vec<String>,
    /// What is not followed, and why.
    pub left: Option<(String, &'static str)>,
    /// Why a key is what is taken for it, where the script says otherwise than its calls do.
    pub why: Option<(&'static str, &'static str)>,
}

/// What is known of the script of a command, whose settings are made those that are read here.
pub(super) fn known(script: &str, settings: &mut Vec<Setting>, parts: Parts) -> Known {
    let name = script.rsplit('/').next().unwrap_or(script);
    if let Some(example) = EXAMPLES.iter().find(|example| example.script == name) {
        if let Some(length) = example.length {
            let names = ["max_seq_length", "max_length"];
            add(settings, example.script, &names, json!(length));
        }
        return Known {
            parts: Some(Parts { trainer: Trainer::Classify, trl: false, command: false, ..parts }),
            left: example.left.map(|why| (name.to_owned(), why)),
            ..Known::default()
        };
    }
    match name == QLORA && has(settings, &["bits", "source_max_len", "lora_modules", "quant_type"]) {
        true => qlora(settings, parts),
        false => Known::default(),
    }
}

fn has(settings: &[Setting], names: &[&str]) -> bool {
    settings.iter().any(|setting| names.contains(&setting.name.as_str()))
}

/// Adds what a script does where none of these names is given.
fn add(settings: &mut Vec<Setting>, script: &str, names: &[&str], value: Value) {
    if let (false, Some(name)) = (has(settings, names), names.first()) {
        settings.push(Setting { of: script.to_owned(), name: (*name).to_owned(), value });
    }
}

/// The script of the paper on QLoRA (artidoro/qlora, `get_accelerate_model` and its arguments' defaults).
const QLORA: &str = "qlora.py";

fn qlora(settings: &mut Vec<Setting>, parts: Parts) -> Known {
    let taken = |settings: &mut Vec<Setting>, name: &str| {
        settings.extract_if(.., |setting| setting.name == name).last().map(|setting| setting.value)
    };
    let is_on = |settings: &[Setting], name: &str| {
        settings.iter().any(|setting| setting.name == name && setting.value == Value::Bool(true))
    };
    let bits = taken(settings, "bits").map_or_else(|| "4".to_owned(), |bits| text(&bits));
    let is_full = is_on(settings, "full_finetune");
    let computes = match (is_on(settings, "fp16"), is_on(settings, "bf16")) {
        (true, _) => "float16",
        (false, true) => "bfloat16",
        (false, false) => "float32",
    };
    let loads = if computes == "bfloat16" { "bfloat16" } else { "float32" };
    // all linear layers get adapters whatever is asked for, and none where all weights are trained
    let of_adapters = ["lora_modules", "lora_r", "lora_dropout"];
    let unread = if is_full { &of_adapters[..] } else { &of_adapters[..1] };
    let idle = settings.extract_if(.., |setting| unread.contains(&setting.name.as_str()));
    let idle: Vec<String> = idle.map(|setting| setting.said()).collect();
    if taken(settings, "full_finetune").is_some() && is_full {
        add(settings, QLORA, &["use_lora"], json!(false));
    }
    let lengths = [("source_max_len", 1024), ("target_max_len", 256)]
        .map(|(name, default)| taken(settings, name).and_then(|value| value.as_u64()).unwrap_or(default));
    for (own, name, default) in [
        ("double_quant", "bnb_4bit_use_double_quant", json!(true)),
        ("quant_type", "bnb_4bit_quant_type", json!("nf4")),
    ] {
        let value = taken(settings, own).unwrap_or(default);
        if bits == "4" {
            add(settings, QLORA, &[name], value);
        }
    }
    let mut defaults = vec![
        ("max_length", json!(lengths[0].saturating_add(lengths[1]))),
        ("dtype", json!(loads)),
        ("optim", json!("paged_adamw_32bit")),
        ("per_device_train_batch_size", json!(1)),
        ("gradient_accumulation_steps", json!(16)),
        ("gradient_checkpointing", json!(true)),
    ];
    match bits.as_str() {
        "4" => {
            defaults.push(("load_in_4bit", json!(true)));
            defaults.push(("bnb_4bit_compute_dtype", json!(computes)));
        }
        "8" => defaults.push(("load_in_8bit", json!(true))),
        _ => {}
    }
    let is_bfloat16 = computes == "bfloat16";
    if !is_full {
        defaults.push(("lora_r", json!(64)));
        defaults.push(("lora_target_modules", json!("all-linear")));
        if is_bfloat16 {
            defaults.push(("autocast_adapter_dtype", json!(false)));
        }
    }
    for (name, value) in defaults {
        add(settings, QLORA, &[name], value);
    }
    let tuner = (!is_full).then_some(Tuner::Lora);
    let prepares = !is_full && !is_bfloat16;
    let parts =
        Parts { loads: true, adapters: !is_full, prepares, tuner, trl: false, command: false, ..parts };
    let why = "qlora.py makes adapters, embedding and head bfloat16 again where it is given --bf16";
    Known { parts: Some(parts), idle, left: None, why: is_bfloat16.then_some(("kbit-prepare", why)) }
}
