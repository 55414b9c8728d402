//! A scenario as JSON or TOML: one entry per key of [`KEYS`], by its long name.
//!
//! What is read is strict: an unknown key or a bad value is an error that says what would be right. Keys that are left
//! out take their default.

use std::fmt::Write;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::keys::{KEYS, Key, Kind};
use super::{CustomModel, ModelChoice, Scenario};

impl Serialize for Scenario {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(KEYS.len()))?;
        for key in KEYS {
            map.serialize_entry(key.name, &to_json(key, self))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Scenario {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scenario, D::Error> {
        let map = Map::<String, Value>::deserialize(deserializer)?;
        let mut scenario = Scenario::default();
        let mut problems = String::new();
        let mut note = |problem: String| {
            let separator = if problems.is_empty() { "" } else { "; " };
            // Writing to a `String` cannot fail.
            let _ = write!(problems, "{separator}{problem}");
        };
        for name in map.keys().filter(|name| Key::find(name).is_none()) {
            let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            note(format!("there is no key {name:?} (use {})", names.join(", ")));
        }
        for key in KEYS {
            if let Some(value) = map.get(key.name).or_else(|| map.get(key.link))
                && let Err(problem) = from_json(key, &mut scenario, value)
            {
                note(problem);
            }
        }
        if problems.is_empty() { Ok(scenario) } else { Err(D::Error::custom(problems)) }
    }
}

fn to_json(key: &Key, scenario: &Scenario) -> Value {
    if let (Kind::Model, ModelChoice::Custom(custom)) = (key.kind(), &scenario.model) {
        let config = serde_json::from_str(&custom.config).unwrap_or(Value::Null);
        return Value::Object(Map::from_iter([
            ("name".to_owned(), Value::String(custom.name.clone())),
            ("config".to_owned(), config),
        ]));
    }
    let text = key.write(scenario);
    match key.kind() {
        Kind::Switch => Value::Bool(text == "on"),
        Kind::Count(_) | Kind::Dropout => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Kind::Model | Kind::Choice(_) | Kind::Targets | Kind::Lengths | Kind::Gpu => Value::String(text),
    }
}

fn from_json(key: &Key, scenario: &mut Scenario, value: &Value) -> Result<(), String> {
    let text = match value {
        Value::Null => return Ok(()),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        Value::Object(map) => match (key.kind(), map.get("config")) {
            (Kind::Model, Some(config)) => {
                let name = map.get("name").and_then(Value::as_str).unwrap_or("custom model");
                let custom = CustomModel::read(name, &config.to_string())
                    .map_err(|issue| format!("model: {issue}"))?;
                scenario.model = ModelChoice::Custom(custom.into());
                return Ok(());
            }
            _ => return Err(format!("{}: this is a table (use {})", key.name, key.valid())),
        },
    };
    key.read(scenario, &text).map_err(|issue| issue.to_string())
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
            json.starts_with(r#"{"model":"meta-llama/Llama-3.1-8B","method":"lora","lora-rank":16,"#),
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
    fn problems_are_named_together() {
        let error =
            serde_json::from_str::<Scenario>(r#"{"batch":2,"method":"dora","seq-length":-1}"#).unwrap_err();
        let text = error.to_string();
        for part in [
            "no key \"batch\" (use model, ",
            "method: there is no \"dora\"",
            "seq-length: -1 is out of range",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
