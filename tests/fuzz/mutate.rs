//! What is done to an input to make another: bytes, words, JSON values, and pieces of two.

use std::ops::Range;

use serde_json::{Map, Value, json};

use crate::random::Random;

/// Texts that parsers, numbers and markup stumble over.
const HOSTILE: &[&str] = &[
    "",
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "7",
    "1e308",
    "-1e999",
    "0.1",
    "1e-400",
    "NaN",
    "Infinity",
    "0x10",
    "1_000",
    "١٢",
    "16777216",
    "16777217",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "null",
    "true",
    "false",
    "~",
    "!!python/object",
    "<<",
    "&a",
    "*a",
    "[[[[[[[[",
    "{{{{",
    "}}}}",
    "((((((((",
    "!r9(a)",
    "%00",
    "%ff%fe",
    "%2525",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "\u{1f469}\u{200d}\u{1f4bb}",
    "\n",
    "\r\n",
    "\t",
    "\\",
    "\"",
    "'",
    "'''",
    "\"\"\"",
    "#",
    "?",
    "&",
    "=",
    ":",
    "- ",
    ": |\n",
    "---\n",
    "${HOME}",
    "$(id)",
    "`id`",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "__class__",
    "lambda: 0",
    "f'{x}'",
    "GiB",
    "MiB",
    "24GB",
    "10.00 GiB",
    "1e400 GiB",
    "99999999999.99 PiB",
    "config",
    "uniform",
    "400~300",
    "same",
    "2.",
    "4.",
];

/// Makes an input of a target out of its seeds and its words.
pub struct Mutator<'s> {
    pub random: Random,
    pub seeds: &'s [Vec<u8>],
    pub words: &'s [String],
}

/// Longer inputs are cut: what is long is tried by itself (`tests/hostile.rs`).
const LONGEST: usize = 1 << 18;

impl Mutator<'_> {
    /// A seed with one to six changes.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.random.of(self.seeds).clone();
        for _ in 0..=self.random.below(6) {
            match self.random.below(8) {
                0 | 1 => self.bytes(&mut input),
                2..=4 => self.word(&mut input),
                5 | 6 => self.structure(&mut input),
                _ => self.splice(&mut input),
            }
        }
        input.truncate(LONGEST);
        input
    }

    /// A stretch of at most so many bytes.
    fn stretch(&mut self, of: usize, most: usize) -> Range<usize> {
        let start = self.random.below(of + 1);
        start..of.min(start + self.random.below(most + 1))
    }

    fn bytes(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(input.len() + 1);
        match self.random.below(5) {
            0 => input.truncate(at),
            1 => drop(input.drain(self.stretch(input.len(), 16))),
            2 => input.insert(at, self.random.below(256) as u8),
            3 => {
                // again and again: what nests or repeats
                let piece = input[self.stretch(input.len(), 24)].to_vec();
                let times = 1 + self.random.below(40);
                input.splice(at..at, piece.repeat(times));
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.random.below(8);
                }
            }
        }
    }

    /// Puts a word in the place of another, or between two.
    fn word(&mut self, input: &mut Vec<u8>) {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let at = self.random.below(input.len() + 1);
        let start = input[..at].iter().rposition(|byte| !is_word(byte)).map_or(0, |before| before + 1);
        let end = input[at..].iter().position(|byte| !is_word(byte)).map_or(input.len(), |after| at + after);
        let place = if self.random.below(4) == 0 { at..at } else { start..end };
        let word = self.text();
        input.splice(place, word.bytes());
    }

    fn text(&mut self) -> String {
        if self.random.below(2) == 0 {
            (*self.random.of(HOSTILE)).to_owned()
        } else {
            self.random.of(self.words).clone()
        }
    }

    /// Changes the values of an input that is JSON; the lines of one that is not.
    fn structure(&mut self, input: &mut Vec<u8>) {
        let Ok(mut value) = serde_json::from_slice::<Value>(input) else { return self.lines(input) };
        let other =
            serde_json::from_slice::<Value>(self.random.of::<Vec<u8>>(self.seeds)).unwrap_or(Value::Null);
        let count = nodes(&value);
        let at = self.random.below(count);
        let new = match self.random.below(3) {
            0 => {
                node(&mut other.clone(), &mut { self.random.below(nodes(&other)) }).map(|value| value.clone())
            }
            _ => None,
        };
        let new = new.unwrap_or_else(|| self.value());
        if let Some(found) = node(&mut value, &mut { at }) {
            match found {
                Value::Object(members) if self.random.below(3) > 0 => self.member(members, new),
                Value::Array(items) if self.random.below(3) > 0 => {
                    let place = self.random.below(items.len() + 1);
                    let times = if self.random.below(8) == 0 { 1000 } else { 1 };
                    items.splice(place..place, vec![new; times]);
                }
                other => *other = new,
            }
        }
        *input = value.to_string().into_bytes();
    }

    fn member(&mut self, members: &mut Map<String, Value>, new: Value) {
        let names: Vec<String> = members.keys().cloned().collect();
        let name = if names.is_empty() { self.text() } else { self.random.of(&names).clone() };
        match self.random.below(3) {
            0 => drop(members.remove(&name)),
            1 => drop(members.insert(name, new)),
            _ => drop(members.insert(self.text(), new)),
        }
    }

    /// A value where another belongs.
    fn value(&mut self) -> Value {
        match self.random.below(9) {
            0 => Value::Null,
            1 => json!(self.random.below(2) == 0),
            2 => json!(self.random.below(4)),
            3 => json!(1u64 << self.random.below(64)),
            4 => json!(-1i64 << self.random.below(63)),
            5 => json!(0.1f64 * 10f64.powi(self.random.below(600) as i32 - 300)),
            6 => json!([]),
            7 => json!({}),
            _ => json!(self.text()),
        }
    }

    /// Moves, repeats, indents or drops a line.
    fn lines(&mut self, input: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (from, to) = (self.random.below(lines.len()), self.random.below(lines.len()));
        match self.random.below(4) {
            0 => drop(lines.remove(from)),
            1 => lines.swap(from, to),
            2 => lines[from].splice(0..0, vec![b' '; self.random.below(5)]).for_each(drop),
            _ => lines.insert(to, lines[from].clone()),
        }
        *input = lines.join(&b'\n');
    }

    /// The beginning of one and the end of another.
    fn splice(&mut self, input: &mut Vec<u8>) {
        let other = self.random.of(self.seeds);
        input.truncate(self.random.below(input.len() + 1));
        input.extend_from_slice(&other[self.random.below(other.len() + 1)..]);
    }
}

/// A value and all in it.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Object(members) => members.values().map(nodes).sum(),
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The value that so many others come before.
fn node<'v>(value: &'v mut Value, before: &mut usize) -> Option<&'v mut Value> {
    if *before == 0 {
        return Some(value);
    }
    *before -= 1;
    match value {
        Value::Object(members) => members.values_mut().find_map(|value| node(value, before)),
        Value::Array(items) => items.iter_mut().find_map(|value| node(value, before)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
