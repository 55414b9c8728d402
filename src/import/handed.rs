//! What a trainer is handed, and whether it makes its arguments itself.

use serde_json::Value;

use super::hugging_face::Trainer;
use super::syntax::python::{Call, Script};
use super::syntax::setting;
use crate::model::catalogue;

/// Whether a text is the name of a model, `Qwen/Qwen2.5-0.5B` or `gpt2`, and no expression.
pub(super) fn is_a_models_name(value: &Value) -> bool {
    let Some(name) = value.as_str() else { return false };
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let parts = name.split('/').filter(|part| !part.is_empty()).count();
    is_plain && parts == name.split('/').count() && (parts == 2 || catalogue::find(name).is_some())
}

/// Whether a trainer is handed a model or a loss itself, and not the name of one.
pub(super) fn is_object(value: &Value) -> bool {
    value.as_str().is_some_and(|value| !value.contains('/') || value.contains('('))
}

/// Whether a text's trainers are handed no arguments: trl's then make their own configuration (trl 1.16, trainer/sft_trainer.py
/// `if args is None: args = SFTConfig(…)`, and so the others), and transformers' `TrainingArguments` (5.17, trainer.py).
pub(super) fn makes_its_arguments(text: &str, script: &Script) -> bool {
    let mut trainers = script.calls.iter().filter_map(|call| Some((call, place(text, call)?))).peekable();
    trainers.peek().is_some() && trainers.all(|(call, place)| !has_arguments(call, place))
}

/// Where a trainer's arguments stand among the values without a name; none of another call.
fn place(text: &str, call: &Call) -> Option<usize> {
    let name = call.name();
    match Trainer::of_class(name).filter(|_| name.ends_with("Trainer")) {
        // behind the model and its reference, what rewards, or the teacher
        Some(
            Trainer::Dpo | Trainer::Kto | Trainer::Grpo | Trainer::Rloo | Trainer::Distil | Trainer::Gkd,
        ) => Some(2),
        // it has none by itself
        Some(Trainer::Ppo) => None,
        Some(_) => Some(1),
        None if ["SentenceTransformerTrainer", "CrossEncoderTrainer"].contains(&name) => Some(1),
        None if ["Trainer", "Seq2SeqTrainer"].contains(&name) => {
            // others have a class of that name
            let is_its =
                text.contains("transformers") && (call.path == name || call.path.contains("transformers"));
            (is_its && has_model(call)).then_some(1)
        }
        None => None,
    }
}

fn has_model(call: &Call) -> bool {
    !call.values.is_empty() || call.named.iter().any(|(name, _)| name.starts_with("model"))
}

fn has_arguments(call: &Call, place: usize) -> bool {
    let named = |wanted: &str| call.named.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    // what is unpacked from elsewhere stands among the values
    let is_open = |value: &Value| ["args", "config"].iter().any(|word| setting::text(value).contains(word));
    let before = usize::from(named("model").is_some());
    named("args").is_some_and(|value| *value != Value::Null)
        || call.values.len() + before > place
        || call.values.iter().any(is_open)
}
