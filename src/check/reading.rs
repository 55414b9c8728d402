//! A reading: a scenario, with the keys of a scenario file, and one figure that was measured of it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::CheckError;
use super::measurement::{Case, Format, Measured, Metric};
use crate::scenario::Scenario;
use crate::step::Milestone;
use crate::units::Bytes;

/// What ran and what was measured. Who wrote it may have noted more, such as what was inferred.
#[derive(Deserialize)]
struct Read {
    scenario: Scenario,
    metric: Metric,
    bytes: u64,
    /// When the figure was read: in the end, unless it says otherwise.
    #[serde(default)]
    until: Until,
    /// Whether the run had the memory of the scenario's card and no more.
    #[serde(default)]
    bounded: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Until {
    #[default]
    End,
    FirstIteration,
}

/// Who writes rows that say nothing beside their reading (packages/record).
const RECORDER: &str = "headroom_record.py";

pub(super) fn read(reading: &Value) -> Result<Case, CheckError> {
    let wrong = |error| CheckError::from(format!("its reading cannot be read: {error}"));
    if let Some(reason) = reading.get("not-predicted").and_then(Value::as_str) {
        return Err(reason.into());
    }
    let Read { scenario, metric, bytes, until, bounded } = Read::deserialize(reading).map_err(wrong)?;
    let milestone = match until {
        Until::End => Milestone::End,
        Until::FirstIteration => Milestone::FirstIteration,
    };
    Ok(Case { scenario, bounded, measured: vec![Measured { metric, milestone, bytes: Bytes(bytes) }] })
}

/// The row with what is not stated left out and its reading beside the rest: the one that its words come to, or its own where nothing
/// else says what ran, as a recorded run has it.
pub(super) fn beside(row: Value, format: Format) -> Value {
    let Value::Object(mut row) = row else { return row };
    let own = row.remove("reading").filter(|_| row.get("source").is_some_and(|source| source == RECORDER));
    row.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    let stated = Value::Object(row.clone());
    let read = match &own {
        Some(own) => read(own).map(|case| write(&case, None)),
        None => (format.read)(&stated).map(|case| write(&case, Some(&(format.inferred)(&stated)))),
    };
    let reading = read.unwrap_or_else(|error| json!({ "not-predicted": error.to_string() }));
    row.insert("reading".to_owned(), reading);
    Value::Object(row)
}

fn write(case: &Case, inferred: Option<&BTreeMap<&'static str, String>>) -> Value {
    let mut reading = json!({ "scenario": said(&case.scenario) });
    if let Some(inferred) = inferred {
        reading["inferred"] = json!(inferred);
    }
    if let Some(figure) = case.measured.first() {
        reading["metric"] = json!(figure.metric);
        reading["bytes"] = json!(figure.bytes.0);
        if figure.milestone == Milestone::FirstIteration {
            reading["until"] = json!("first-iteration");
        }
    }
    if case.bounded {
        reading["bounded"] = json!(true);
    }
    reading
}

/// The scenario as a file of one: what is left out has its default there.
fn said(scenario: &Scenario) -> Value {
    let (all, defaults) = (json!(scenario), json!(Scenario::default()));
    let said = all.as_object().into_iter().flatten().filter(|(key, value)| defaults.get(key) != Some(value));
    said.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reading_is_a_scenario_and_a_figure() {
        let case = read(&json!({
            "scenario": {"model": "gpt2", "batch-size": 2}, "metric": "reserved", "bytes": 7, "until": "first-iteration",
            "bounded": true, "inferred": {"gpu": "somewhere"}
        }))
        .unwrap();
        assert_eq!((case.scenario.batch, case.bounded), (2, true));
        let wanted =
            Measured { metric: Metric::Reserved, milestone: Milestone::FirstIteration, bytes: Bytes(7) };
        assert_eq!(case.measured, [wanted]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (reading, reason) in [
            (json!({"not-predicted": "a percentile, not a peak"}), "a percentile, not a peak"),
            (
                json!({"metric": "reserved", "bytes": 7}),
                "its reading cannot be read: missing field `scenario`",
            ),
            (
                json!({"scenario": {"batch": 2}, "metric": "reserved", "bytes": 7}),
                "its reading cannot be read: there is no key \"batch\"",
            ),
            (
                json!({"scenario": {}, "metric": "median", "bytes": 7}),
                "its reading cannot be read: unknown variant `median`",
            ),
        ] {
            let error = read(&reading).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
