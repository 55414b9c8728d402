//! What `from_pretrained` and `from_config` load: a model, what stands beside one, or something that is not known here.

use super::hugging_face::{Parts, Trainer};
use super::syntax::python::Call;
use super::syntax::setting;
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
    if is_classifier && parts.trainer == Trainer::Sft && !parts.trl {
        parts.trainer = Trainer::Classify;
    }
}
