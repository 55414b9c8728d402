//! YAML as a tree of values.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

use super::setting::scalar;

/// More values than any configuration has: aliases of aliases would make billions of them.
const MOST: usize = 100_000;

/// How deep collections may lie in each other.
const DEEPEST: usize = 64;

/// A collection that is being read.
enum Open {
    List { anchor: usize, values: Vec<Value> },
    Table { anchor: usize, members: Map<String, Value>, name: Option<String> },
}

/// The first document of a text.
///
/// # Errors
/// A sentence where it is not YAML.
pub(in crate::import) fn read(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, (Value, usize)> = HashMap::new();
    let mut count = 0_usize;
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
                let (value, size) = anchors.get(&anchor).cloned().unwrap_or((Value::Null, 1));
                count = count.saturating_add(size);
                (value, 0)
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
            anchors.insert(anchor, (value.clone(), size(&value)));
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

/// How many values a value is made of.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(values) => 1 + values.iter().map(size).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(size).sum::<usize>(),
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
    fn nothing_makes_it_grow_without_end() {
        let mut laughs = "a0: &a0 [l, l, l, l, l, l, l, l, l, l]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            laughs.push_str(&format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(", ")));
        }
        assert!(read(&laughs).is_err());
        for open in ["[", "{a: ", "- "] {
            drop(read(&open.repeat(100_000)));
        }
        assert!(read("a: b: c").is_err());
        assert_eq!(read(""), Ok(Value::Null));
    }
}
