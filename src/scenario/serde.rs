//! A scenario as JSON or TOML: one entry per key of [`keys`], by its long name.
//!
//! What is read is strict: an unknown key or a bad value is an error that says what would be right. Keys that are left
//! out take their default, the rank beside an optimizer that projects gradients 128. In a format that only machines read, a scenario is that JSON as a text.

use std::fmt::{self, Write};

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::keys::{Key, ValueKind, keys};
use super::{CustomModel, Field, Issue, ModelChoice, Scenario};
use crate::text::short;

impl Serialize for Scenario {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_str(&serde_json::to_string(self).map_err(S::Error::custom)?);
        }
        let mut map = serializer.serialize_map(None)?;
        for key in keys() {
            map.serialize_entry(key.name, &to_json(key, self))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Scenario {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scenario, D::Error> {
        if !deserializer.is_human_readable() {
            return serde_json::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom);
        }
        let Members(members) = Members::deserialize(deserializer)?;
        let mut scenario = Scenario::default();
        let mut problems = String::new();
        let mut note = |problem: &dyn fmt::Display| {
            let separator = if problems.is_empty() { "" } else { "; " };
            // Writing to a `String` cannot fail.
            let _ = write!(problems, "{separator}{problem}");
        };
        let unknown = members.iter().filter(|(name, _)| Key::find(name).is_none());
        let unknown: Vec<_> = unknown.map(|(name, _)| format!("{:?}", short(name))).collect();
        if !unknown.is_empty() {
            let names: Vec<_> = keys().map(|key| key.name).collect();
            let what = if unknown.len() == 1 { "is no key" } else { "are no keys" };
            note(&format_args!("there {what} {} (use {})", unknown.join(", "), names.join(", ")));
        }
        for key in keys() {
            let given: Vec<_> =
                members.iter().filter(|(name, _)| name == key.name || name == key.link).collect();
            match given[..] {
                [] => {}
                [(_, value)] => {
                    if let Err(problem) = from_json(key, &mut scenario, value) {
                        note(&problem);
                    }
                }
                [(one, _), (other, _), ..] if one == other => {
                    note(&format_args!("{one} is given twice (leave one out)"));
                }
                [(one, _), (other, _), ..] => {
                    note(&format_args!("{one} and {other} are the same key (leave one out)"));
                }
            }
        }
        let says_rank = members.iter().any(|(name, value)| {
            !value.is_null() && Key::find(name).is_some_and(|key| key.field == Field::LoraRank)
        });
        if !says_rank {
            scenario.lora.rank = scenario.rank_left_out(&Scenario::default());
        }
        if problems.is_empty() { Ok(scenario) } else { Err(D::Error::custom(problems)) }
    }
}

/// The members of an object as they stand there, those that are given twice included.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

fn to_json(key: &Key, scenario: &Scenario) -> Value {
    if let (ValueKind::Model, ModelChoice::Custom(custom)) = (key.kind(), &scenario.model) {
        let config = serde_json::from_str(&custom.config).unwrap_or(Value::Null);
        return Value::Object(Map::from_iter([
            ("name".to_owned(), Value::String(custom.name.clone())),
            ("config".to_owned(), config),
        ]));
    }
    let text = key.write(scenario);
    match key.kind() {
        ValueKind::Switch => Value::Bool(text == "on"),
        ValueKind::Count(_) | ValueKind::Dropout => {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        ValueKind::Model
        | ValueKind::Teacher
        | ValueKind::Choice(_)
        | ValueKind::Targets
        | ValueKind::Lengths
        | ValueKind::Gpu => Value::String(text),
    }
}

fn from_json(key: &Key, scenario: &mut Scenario, value: &Value) -> Result<(), Issue> {
    let no_such = |what: &str| {
        Issue::error(key.field, format!("{}: this is a {what}", key.name))
            .with_fix(format!("use {}", key.valid()))
    };
    let text = match value {
        Value::Null => return Ok(()),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let names = items.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
            match (key.kind(), names) {
                (ValueKind::Targets, Some(names)) => names.join(","),
                _ => return Err(no_such("list")),
            }
        }
        Value::Object(map) => match (key.kind(), map.get("config")) {
            (ValueKind::Model, Some(config)) => {
                let name = map.get("name").and_then(Value::as_str).unwrap_or("custom model");
                let custom = CustomModel::read(name, &config.to_string())
                    .map_err(|issue| Issue { message: format!("model: {}", issue.message), ..issue })?;
                scenario.model = ModelChoice::Custom(custom.into());
                return Ok(());
            }
            _ => return Err(no_such("table")),
        },
    };
    key.read(scenario, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{GpuChoice, Method};
    use crate::units::Bytes;

    #[test]
    fn json_round_trips() {
        let scenario = Scenario {
            method: Method::Lora,
            batch: 3,
            dropout: Some(1_000),
            gpu: GpuChoice::Custom(Bytes(24_000_000_000)),
            ..Scenario::default()
        };
        let json = serde_json::to_string(&scenario).unwrap();
        assert!(
            json.starts_with(
                r#"{"task":"sft","model":"meta-llama/Llama-3.1-8B","method":"lora","adapter":"lora","lora-rank":16,"#
            ),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
    }

    #[test]
    fn what_is_left_out_is_the_default() {
        assert_eq!(serde_json::from_str::<Scenario>("{}").unwrap(), Scenario::default());
        let short: Scenario = serde_json::from_str(r#"{"b":2,"lora-targets":["q_proj","v_proj"]}"#).unwrap();
        assert_eq!((short.batch, short.lora.modules.to_string().as_str()), (2, "q_proj,v_proj"));
    }

    #[test]
    fn a_rank_that_is_left_out_is_the_optimizers() {
        let rank = |json: &str| serde_json::from_str::<Scenario>(json).unwrap().lora.rank;
        assert_eq!(rank(r#"{"method":"full","optimizer":"galore-adamw"}"#), 128);
        assert_eq!(rank(r#"{"method":"full","optimizer":"galore-adamw","r":null}"#), 128);
        assert_eq!(rank(r#"{"method":"full","optimizer":"galore-adamw","r":16}"#), 16);
        assert_eq!(rank(r#"{"method":"lora","optimizer":"galore-adamw"}"#), 16);
    }

    #[test]
    fn problems_are_named_together() {
        let error =
            serde_json::from_str::<Scenario>(r#"{"batch":2,"method":"dora","seq-length":-1}"#).unwrap_err();
        let text = error.to_string();
        for part in [
            "no key \"batch\" (use task, model, ",
            "method: there is no \"dora\"",
            "seq-length: -1 is out of range",
        ] {
            assert!(text.contains(part), "{text}");
        }
        for (json, message) in [
            (r#"{"b":2,"batch-size":4}"#, "b and batch-size are the same key (leave one out)"),
            (r#"{"b":2,"b":2}"#, "b is given twice (leave one out)"),
            (r#"{"lora-targets":[1,2]}"#, "lora-targets: this is a list (use "),
            (
                r#"{"seq-length":[1024]}"#,
                "seq-length: this is a list (use a whole number from 1 to 16,777,216)",
            ),
            ("[]", "a table of keys"),
        ] {
            let text = serde_json::from_str::<Scenario>(json).unwrap_err().to_string();
            assert!(text.contains(message), "{text}");
        }
    }
}
