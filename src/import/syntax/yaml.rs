//! YAML as a tree of values.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

use super::setting::scalar;

/// More values than any configuration has: aliases of aliases would make billions of them.
const MOST: usize = 100_000;

/// More than any configuration repeats with its aliases, in bytes and values.
const MOST_COPIED: usize = 1_000_000;

/// How deep collections may lie in each other.
const DEEPEST: usize = 64;

/// A collection that is being read.
enum Open {
    List { anchor: usize, values: Vec<Value> },
    Table { anchor: usize, members: Map<String, Value>, name: Option<String> },
}

/// The first document of a text. A list that is written as `[` over several lines may end with its bracket as far left as the name before
/// it, as Python's YAML reads it, where the specification wants it further right.
///
/// # Errors
/// A sentence where it is not YAML.
pub(in crate::import) fn read(text: &str) -> Result<Value, String> {
    parsed(text).or_else(|error| parsed(&with_indented_ends(text)).map_err(|_| error))
}

/// The text with lines that begin with the end of a list or table moved to the right.
fn with_indented_ends(text: &str) -> String {
    let margin = " ".repeat(2 * DEEPEST);
    let is_end = |line: &str| line.trim_start().starts_with([']', '}']);
    let lines =
        text.lines().map(|line| if is_end(line) { format!("{margin}{line}\n") } else { format!("{line}\n") });
    lines.collect()
}

fn parsed(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, (Value, Size)> = HashMap::new();
    let (mut count, mut copied) = (0_usize, 0_usize);
    let too_much = || Err("this YAML repeats more than a configuration does".to_owned());
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| error.to_string())?;
        if open.len() > DEEPEST {
            return Err("this YAML is nested deeper than a configuration is".to_owned());
        }
        let (value, anchor) = match event {
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => continue,
            Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
            Event::SequenceStart(anchor, _) => {
                open.push(Open::List { anchor, values: Vec::new() });
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open::Table { anchor, members: Map::new(), name: None });
                continue;
            }
            Event::Scalar(word, style, anchor, _) => match style {
                ScalarStyle::Plain => (scalar(&word), anchor),
                ScalarStyle::SingleQuoted
                | ScalarStyle::DoubleQuoted
                | ScalarStyle::Literal
                | ScalarStyle::Folded => (Value::String(word.into_owned()), anchor),
            },
            Event::Alias(anchor) => {
                let known = anchors.get(&anchor);
                let Size { values, bytes } = known.map(|(_, size)| *size).unwrap_or_default();
                (count, copied) = (count.saturating_add(values), copied.saturating_add(bytes));
                if copied > MOST_COPIED {
                    return too_much();
                }
                (known.map_or(Value::Null, |(value, _)| value.clone()), 0)
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List { anchor, values }) => (Value::Array(values), anchor),
                Some(Open::Table { anchor, members, .. }) => (Value::Object(members), anchor),
                None => continue,
            },
        };
        count = count.saturating_add(1);
        if count > MOST {
            return Err("this YAML has more values than a configuration has".to_owned());
        }
        if anchor > 0 {
            let size = size(&value);
            copied = copied.saturating_add(size.bytes);
            if copied > MOST_COPIED {
                return too_much();
            }
            anchors.insert(anchor, (value.clone(), size));
        }
        match open.last_mut() {
            None => return Ok(value),
            Some(Open::List { values, .. }) => values.push(value),
            Some(Open::Table { members, name, .. }) => match name.take() {
                None => *name = Some(super::setting::text(&value)),
                Some(name) => {
                    members.insert(name, value);
                }
            },
        }
    }
    Ok(Value::Null)
}

/// What a copy of a value takes.
#[derive(Clone, Copy, Default)]
struct Size {
    /// How many values it is made of.
    values: usize,
    /// How long its texts are, and one for each value.
    bytes: usize,
}

fn size(value: &Value) -> Size {
    let one = |text: &str| Size { values: 1, bytes: 1 + text.len() };
    let sum =
        |all: Size, more: Size| Size { values: all.values + more.values, bytes: all.bytes + more.bytes };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => one(""),
        Value::String(text) => one(text),
        Value::Array(values) => values.iter().map(size).fold(one(""), sum),
        Value::Object(members) => {
            let names = members.keys().map(|name| Size { values: 0, bytes: name.len() });
            members.values().map(size).chain(names).fold(one(""), sum)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_configurations_are_written_in() {
        let text = "# c\na: 1\nb: {c: [x, 'no', no, 2e-5]}\nd:\n  - e: null\n    f: >-\n      g\n      h\ni: &i {j: 1}\nk: *i\nl:\n";
        let read = read(text).unwrap();
        assert_eq!(
            read,
            json!({"a": 1, "b": {"c": ["x", "no", false, 2e-5]}, "d": [{"e": null, "f": "g h"}], "i": {"j": 1}, "k": {"j": 1}, "l": null})
        );
    }

    #[test]
    fn the_end_of_a_list_may_be_as_far_left_as_its_name() {
        let text = "a:\n  b: [\n    'x: y',\n  ]\n  c: {\n    d: 1\n  }\ne: 2\n";
        assert_eq!(read(text), Ok(json!({"a": {"b": ["x: y"], "c": {"d": 1}}, "e": 2})));
        // what is wrong elsewhere is said of the text as it is
        let wrong = "a: [\n]\nb: c: d\n";
        assert_eq!(read(wrong), parsed(wrong));
    }

    #[test]
    fn nothing_makes_it_grow_without_end() {
        let mut laughs = "a0: &a0 [l, l, l, l, l, l, l, l, l, l]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            laughs.push_str(&format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(", ")));
        }
        assert!(read(&laughs).is_err());
        // few values, but each of them long
        let long = format!("a: &a {}\nb: [{}]\n", "z".repeat(10_000), "*a, ".repeat(1_000));
        assert!(read(&long).is_err());
        let nested: String = (0..60).map(|level| format!("&n{level} [")).collect();
        assert!(read(&format!("{nested}{}{}", "z".repeat(100_000), "]".repeat(60))).is_err());
        for open in ["[", "{a: ", "- "] {
            drop(read(&open.repeat(100_000)));
        }
        assert!(read("a: b: c").is_err());
        assert_eq!(read(""), Ok(Value::Null));
    }
}
