//! YAML as it is written: names and values, tables in tables, lists of words.

use std::fmt::{Display, Write};

/// Lines of YAML, one after the other.
#[derive(Default)]
pub(super) struct Lines {
    text: String,
    indent: usize,
}

impl Lines {
    /// A name with a number, a switch, or a word that needs no quotes.
    pub fn set(&mut self, name: &str, value: impl Display) {
        let indent = "  ".repeat(self.indent);
        // writing to a `String` cannot fail
        let _ = writeln!(self.text, "{indent}{name}: {value}");
    }

    /// A name with a text, in quotes where YAML could take it for something else.
    pub fn text(&mut self, name: &str, text: &str) {
        let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
            && !["no", "yes", "on", "off", "true", "false", "null"].contains(&text);
        // JSON's strings are YAML's too
        if is_plain { self.set(name, text) } else { self.set(name, serde_json::Value::from(text)) }
    }

    /// A name with a list of words.
    pub fn list(&mut self, name: &str, words: &[&str]) {
        self.set(name, format_args!("[{}]", words.join(", ")));
    }

    /// A name with a table.
    pub fn table(&mut self, name: &str, fill: impl FnOnce(&mut Lines)) {
        let indent = "  ".repeat(self.indent);
        let _ = writeln!(self.text, "{indent}{name}:");
        self.indent += 1;
        fill(self);
        self.indent -= 1;
    }

    /// A line as it is, after an empty one: what the next lines are about.
    pub fn about(&mut self, subject: &str) {
        let _ = writeln!(self.text, "\n# {subject}");
    }

    /// All of them.
    pub fn finish(self) -> String {
        self.text
    }
}
