//! Python as it is written: strings, values, calls.

use serde_json::Value;

/// The widest line.
const WIDTH: usize = 110;

/// A string literal. JSON's are Python's too.
pub(super) fn string(text: &str) -> String {
    Value::from(text).to_string()
}

/// A list of string literals.
pub(super) fn strings<'s>(texts: impl IntoIterator<Item = &'s str>) -> String {
    format!("[{}]", texts.into_iter().map(string).collect::<Vec<_>>().join(", "))
}

/// `True` or `False`.
pub(super) fn boolean(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// A value of a configuration, in a block that is indented by so many levels: what is short in one line.
pub(super) fn literal(value: &Value, level: usize) -> String {
    let Value::Object(entries) = value else {
        return match value {
            Value::Bool(value) => boolean(*value).to_owned(),
            other => other.to_string(),
        };
    };
    let entries: Vec<String> = entries
        .iter()
        .map(|(name, value)| format!("{}: {}", string(name), literal(value, level + 1)))
        .collect();
    let line = format!("{{{}}}", entries.join(", "));
    if line.len() + 4 * level <= WIDTH / 2 {
        return line;
    }
    let (own, inner) = ("    ".repeat(level), "    ".repeat(level + 1));
    let lines: String = entries.iter().map(|entry| format!("{inner}{entry},\n")).collect();
    format!("{{\n{lines}{own}}}")
}

/// A call with its arguments, in one line where they have room, else with a line for each.
pub(super) struct Call {
    name: String,
    arguments: Vec<String>,
}

impl Call {
    /// A call without arguments.
    pub fn new(name: impl Into<String>) -> Call {
        Call { name: name.into(), arguments: Vec::new() }
    }

    /// The same with an argument that is given by its place.
    pub fn with(mut self, value: impl Into<String>) -> Call {
        self.arguments.push(value.into());
        self
    }

    /// The same with an argument that is given by its name.
    pub fn keyword(self, name: &str, value: impl std::fmt::Display) -> Call {
        self.with(format!("{name}={value}"))
    }

    /// The same with an argument where there is a value for it.
    pub fn keyword_if(self, name: &str, value: Option<impl std::fmt::Display>) -> Call {
        match value {
            Some(value) => self.keyword(name, value),
            None => self,
        }
    }

    /// As it is written behind so many characters, in a block that is indented by so many levels.
    pub fn written(&self, level: usize) -> String {
        let line = format!("{}({})", self.name, self.arguments.join(", "));
        if line.len() + 4 * level + 20 <= WIDTH && !line.contains('\n') {
            return line;
        }
        let (own, inner) = ("    ".repeat(level), "    ".repeat(level + 1));
        let arguments: String =
            self.arguments.iter().map(|argument| format!("{inner}{argument},\n")).collect();
        format!("{}(\n{arguments}{own})", self.name)
    }
}
