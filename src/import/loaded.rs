//! What `from_pretrained` and `from_config` load: a model, what stands beside one, or something that is not known here.

use serde_json::Value;

use super::hugging_face::{LOADED, LOADED_DTYPE, LOADED_IN_4_BITS, Parts, Trainer};
use super::syntax::python::{Call, Script};
use super::syntax::setting::{self, Setting};
use crate::text::short;

/// The class that a method is called of.
pub(super) fn class_of(path: &str) -> &str {
    path.rsplit('.').nth(1).unwrap_or_default()
}

/// The model that a call loads.
pub(super) fn model_of(call: &Call) -> Option<String> {
    let names = ["model_name", "pretrained_model_name_or_path"];
    let named = call.named.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value);
    call.values.first().or(named).map(setting::text)
}

/// A call that loads, as a person would say it.
pub(super) fn said_of(call: &Call) -> String {
    format!("{}({})", short(&call.path), short(&model_of(call).unwrap_or_default()))
}

/// Whether `from_pretrained` is a model's: `AutoModel…`, `Qwen2_5_VLForConditionalGeneration`, `GPT2LMHeadModel`.
pub(super) fn loads_a_model(path: &str) -> bool {
    let class = class_of(path);
    let is_for_something = class
        .match_indices("For")
        .any(|(at, word)| at > 0 && class[at + word.len()..].starts_with(char::is_uppercase));
    !class.starts_with("Peft") && !is_beside(class) && (class.contains("Model") || is_for_something)
}

/// Whether a class is of what is loaded beside a model and takes nothing of the card.
fn is_beside(class: &str) -> bool {
    let ends = ["Tokenizer", "TokenizerFast", "Processor", "ProcessorFast", "FeatureExtractor", "Config"];
    // a name that was given to one of these
    let words = ["tokenizer", "processor", "config"];
    ends.iter().any(|end| class.ends_with(end)) || words.contains(&class)
}

/// Whether a class makes a model's input of texts and pictures: `AutoProcessor`.
pub(super) fn is_processor(path: &str) -> bool {
    class_of(path).trim_end_matches("Fast").ends_with("Processor")
}

/// Why a call of `from_pretrained` that loads no model is not followed; none where nothing of it is in memory.
pub(super) fn not_followed(path: &str) -> Option<&'static str> {
    let class = class_of(path);
    if is_beside(class) {
        None
    } else if class.starts_with("Peft") {
        Some(
            "adapters that were trained before are not read of a script: their rank and layers are those that it names itself",
        )
    } else {
        Some("no model of transformers is known by this class")
    }
}

/// Notes what a class of models says of what it is for.
pub(super) fn notes(path: &str, parts: &mut Parts) {
    parts.loads = true;
    let is_classifier = class_of(path).contains("ForSequenceClassification");
    if (is_classifier || has_another_head(path)) && parts.trainer == Trainer::Sft && !parts.trl {
        parts.trainer = Trainer::Classify;
    }
}

/// Whether a class of models has another head than one that writes or classifies whole texts.
pub(super) fn has_another_head(path: &str) -> bool {
    let heads = ["ForQuestionAnswering", "ForTokenClassification", "ForMultipleChoice"];
    heads.iter().any(|head| class_of(path).ends_with(head))
}

/// The call that loads what a trainer is given as its teacher: `teacher = …from_pretrained(…)`, `…Trainer(teacher_model=teacher)`.
pub(super) fn teacher_of(script: &Script) -> Option<&Call> {
    let trainers = script.calls.iter().filter(|call| call.name().ends_with("Trainer"));
    let said = trainers.flat_map(|call| &call.named).find(|(name, _)| name == "teacher_model")?.1.as_str()?;
    let loads = |text: &str| {
        text.split_once('(')
            .is_some_and(|(path, _)| path.ends_with(".from_pretrained") && loads_a_model(path))
    };
    // in the order of the text, a name for each call
    let given = script.given.iter().filter_map(|(_, value)| value.as_str()).filter(|text| loads(text));
    let given: Vec<&str> = given.collect();
    let is_load = |call: &&Call| call.name() == "from_pretrained" && loads_a_model(&call.path);
    let calls: Vec<&Call> = script.calls.iter().filter(is_load).collect();
    let place = given.iter().position(|text| *text == said)?;
    calls.get(place).copied().filter(|_| given.len() == calls.len())
}

/// Adds what a call says that loads a teacher.
pub(super) fn teacher(call: &Call, settings: &mut Vec<Setting>) {
    let Some(model) = model_of(call) else { return };
    setting::flatten("from_pretrained", "teacher_model", Value::from(model), settings);
    setting::flatten("from_pretrained", LOADED, Value::Bool(true), settings);
    for (name, value) in &call.named {
        match name.as_str() {
            "dtype" | "torch_dtype" => setting::flatten("", LOADED_DTYPE, value.clone(), settings),
            "load_in_4bit" => setting::flatten("", LOADED_IN_4_BITS, value.clone(), settings),
            "quantization_config" => {
                let is_4_bits = setting::text(value).contains("load_in_4bit=True");
                let name = if is_4_bits { LOADED_IN_4_BITS } else { "teacher.quantization_config" };
                let value = if is_4_bits { Value::Bool(true) } else { value.clone() };
                setting::flatten("", name, value, settings);
            }
            _ => {}
        }
    }
}

/// Whether a teacher has a quantisation that no other model of the script is loaded with.
pub(super) fn alone_quantised(teacher: &Call, script: &Script) -> bool {
    let is_quantised = |call: &Call| call.named.iter().any(|(name, _)| name == "quantization_config");
    let mut others = script.calls.iter().filter(|call| !std::ptr::eq(*call, teacher));
    is_quantised(teacher) && !others.any(is_quantised)
}
