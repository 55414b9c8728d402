//! What a file says: names with values.

use serde_json::{Map, Value};

use crate::text::short;

/// How deep values may lie in each other. Deeper ones are kept whole, as one value.
const DEEPEST: usize = 16;

/// How long the names of tables that lie in each other may be together: each member's name begins with them.
const LONGEST_NAME: usize = 500;

/// A name with its value.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::import) struct Setting {
    /// The class or function of a Python call; empty elsewhere.
    pub of: String,
    /// The name, with those of the tables that it lies in before it: `zero_optimization.stage`.
    pub name: String,
    /// The value; a Python expression that is no literal is its text.
    pub value: Value,
}

impl Setting {
    /// The setting as a person would say it: `SFTConfig(bf16=True)`, `micro_batch_size: 2`.
    pub fn said(&self) -> String {
        let (of, name, value) = (short(&self.of), short(&self.name), short(&text(&self.value)));
        if of.is_empty() {
            format!("{name}: {value}")
        } else if name.is_empty() {
            format!("{of}({value})")
        } else {
            format!("{of}({name}={value})")
        }
    }
}

/// A value as text.
pub(in crate::import) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// Adds a value's settings: one for each of a table's members, however deep.
pub(in crate::import) fn flatten(of: &str, name: &str, value: Value, into: &mut Vec<Setting>) {
    add(of, name, value, DEEPEST, into);
}

fn add(of: &str, name: &str, value: Value, depth: usize, into: &mut Vec<Setting>) {
    match value {
        Value::Object(members) if !members.is_empty() && depth > 0 && name.len() <= LONGEST_NAME => {
            for (member, value) in members {
                let name = if name.is_empty() { member } else { format!("{name}.{member}") };
                add(of, &name, value, depth - 1, into);
            }
        }
        value => into.push(Setting { of: of.to_owned(), name: name.to_owned(), value }),
    }
}

/// The settings of a table.
pub(in crate::import) fn of_table(members: Map<String, Value>) -> Vec<Setting> {
    let mut settings = Vec::new();
    flatten("", "", Value::Object(members), &mut settings);
    settings
}

/// What a word that stands without quotes means in YAML and on command lines: yes and no, nothing, a number, or itself.
pub(in crate::import) fn scalar(word: &str) -> Value {
    match word {
        "" | "~" | "null" | "Null" | "NULL" | "None" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "on" | "On" => Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "off" | "Off" => Value::Bool(false),
        word => number(word).unwrap_or_else(|| Value::String(word.to_owned())),
    }
}

/// A number as YAML, Python and JSON write it.
pub(in crate::import) fn number(word: &str) -> Option<Value> {
    if !word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return None;
    }
    let digits = word.replace('_', "");
    match digits.parse::<u64>() {
        Ok(whole) => Some(Value::from(whole)),
        Err(_) => digits.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A table's long name would stand before each of its members.
    #[test]
    fn long_names_are_not_repeated() {
        let members: Map<String, Value> = (0..100).map(|index| (index.to_string(), json!(1))).collect();
        let table = Map::from_iter([("n".repeat(10_000), json!(members))]);
        let settings = of_table(table);
        assert_eq!(settings.len(), 1);
        assert!(settings[0].said().len() < 200);
    }
}
