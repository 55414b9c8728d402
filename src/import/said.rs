//! A setting that is being looked at.

use serde_json::Value;

use super::syntax::setting;

/// A setting that is being looked at.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// Its value.
    pub value: Value,
    /// The setting as a person would say it.
    pub said: String,
}

impl Said {
    /// Its value as text.
    pub fn text(&self) -> String {
        setting::text(&self.value)
    }

    /// Whether it is on; none where it is neither on nor off.
    pub fn switch(&self) -> Option<bool> {
        match &self.value {
            Value::Bool(on) => Some(*on),
            Value::Number(number) => number.as_f64().map(|number| number != 0.0),
            Value::String(word) => match setting::scalar(word) {
                Value::Bool(on) => Some(on),
                Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    None
                }
            },
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// A number, also where it stands in quotes.
    pub fn number(&self) -> Option<f64> {
        match &self.value {
            Value::Number(number) => number.as_f64(),
            Value::String(word) => word.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// A list of words; a single word is a list of one, and commas part them.
    pub fn words(&self) -> Vec<String> {
        match &self.value {
            Value::Array(values) => values.iter().map(setting::text).collect(),
            other => {
                let text = setting::text(other);
                let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
                list.split(',').map(|word| word.trim().trim_matches(['\'', '"']).to_owned()).collect()
            }
        }
    }
}
