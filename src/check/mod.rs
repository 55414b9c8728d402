//! Measured against predicted: reads files of measurements, predicts every row that can be expressed, and sums up.
//!
//! A row has a `case`, as the harness of null-device.json writes it, or a `reading`: a scenario and one figure. A row that
//! cannot be expressed is listed with the reason; none is dropped.

mod error;
mod fields;
mod measurement;
mod megatron;
mod parts;
mod peers;
mod proof;
mod ranks;
mod reading;
mod summary;
mod time;
mod trainer;
mod truth;
mod verdicts;
mod weights;

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;

use crate::accuracy::band;
use crate::estimate::estimate;
use crate::hardware::Gpu;
use crate::memory::Memory;
use crate::plan::Replayed;
use crate::scenario::{GpuChoice, Scenario};
use crate::share;
use crate::step::Milestone;
use crate::units::Bytes;

pub use error::CheckError;
use measurement::error_pct;
pub use measurement::{Case, Format, Measured, Metric, Row};
pub use parts::PartRow;
pub use peers::{Answer, Calculator, Compared, Group, Others};
pub use proof::{Figure, MISS_PERCENT, Run, nearest, read_runs, write_runs};
pub use summary::{Errors, Summary};
pub use time::{Speed, TimeErrors, TimeReport, TimeRow, Use, check_time, read_speeds, write_speeds};
pub use verdicts::{Confusion, Verdicts};

/// A row that cannot be expressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unsupported {
    /// The measurement's name.
    pub id: String,
    /// Why not.
    pub reason: String,
}

/// What a file of measurements says about the predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Every figure that was predicted.
    pub rows: Vec<Row>,
    /// Every figure that was not.
    pub unsupported: Vec<Unsupported>,
    /// Errors by metric.
    pub summary: Summary,
    /// The verdicts on cards around what was measured, over the rows whose allocated and reserved peaks are those of a run
    /// without a limit; and on its own card for a run that is known to have had no other.
    pub verdicts: Confusion,
    /// Measured and predicted by part of the peak, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartRow>,
}

/// Reads a JSON array of measurements and predicts its rows.
///
/// # Errors
/// Where the text is no such array.
///
/// ```
/// let rows = r#"[{"id": "mine", "reading": {
///     "scenario": {"model": "gpt2", "method": "full", "precision": "bf16", "batch-size": 4, "seq-length": 1024},
///     "metric": "allocated", "bytes": 3000000000}}]"#;
/// let report = headroom::check::check(rows, false).unwrap();
/// assert_eq!((report.rows.len(), report.unsupported.len()), (1, 0));
/// assert_eq!(headroom::check::check("{}", false).unwrap_err().to_string(), "this is not an array of measurements");
/// ```
pub fn check(text: &str, with_parts: bool) -> Result<Report, CheckError> {
    check_with(read, text, with_parts)
}

/// [`check`] for rows that the caller reads: those of further formats itself, the others by [`read`].
///
/// # Errors
/// As [`check`].
pub fn check_with(
    read: fn(&Value) -> Result<Case, CheckError>,
    text: &str,
    with_parts: bool,
) -> Result<Report, CheckError> {
    check_each(read, text, with_parts, |_, _, _, _| {})
}

/// What the rows of a JSON array of measurements come to, as [`check`] says it, and each that can be predicted with what ran;
/// `file` is what the array is called.
///
/// # Errors
/// Where the text is no such array.
pub fn check_runs(file: &str, text: &str) -> Result<(Report, Vec<Run>), CheckError> {
    let mut runs = Vec::new();
    let report = check_each(read, text, false, |id, row, case, checked| {
        runs.push(Run::of(file, id, row, case, &checked.rows, checked.verdicts));
    })?;
    Ok((report, runs))
}

/// [`check_with`], which hands on every row that is predicted: its name, the row, what it was read as, and what was found.
fn check_each(
    read: fn(&Value) -> Result<Case, CheckError>,
    text: &str,
    with_parts: bool,
    mut each: impl FnMut(&str, &Value, &Case, &Checked),
) -> Result<Report, CheckError> {
    let rows = rows(text)?;
    let mut report = Report {
        rows: Vec::new(),
        unsupported: Vec::new(),
        summary: Summary::default(),
        verdicts: Confusion::default(),
        parts: Vec::new(),
    };
    let mut seen = HashSet::new();
    for (index, row) in rows.iter().enumerate() {
        let id = name(row, index);
        let other = other(read, &rows[index + 1..], &id);
        let checked = read(row).and_then(|case| {
            let mut checked = check_case(row, &case, other, &id, with_parts)?;
            if !is_first(&case, &mut seen) {
                checked.verdicts = Confusion::default();
            }
            each(&id, row, &case, &checked);
            Ok(checked)
        });
        match checked {
            Ok(checked) => {
                report.rows.extend(checked.rows);
                report.verdicts.add(&checked.verdicts);
                report.parts.extend(checked.parts);
            }
            Err(error) => report.unsupported.push(Unsupported { id, reason: error.to_string() }),
        }
    }
    report.summary = Summary::of(&report.rows, report.unsupported.len());
    Ok(report)
}

/// Whether a row has the verdict of its run: of several figures of a run on a card, a row each, the first has.
fn is_first(case: &Case, seen: &mut HashSet<String>) -> bool {
    !case.bounded || seen.insert(share::encode(std::slice::from_ref(&case.scenario)))
}

/// What the same run reserved, for a row that has another figure of it: that of the next row, where that has its name with
/// `-reserved` behind.
fn other(read: fn(&Value) -> Result<Case, CheckError>, rest: &[Value], id: &str) -> Option<Measured> {
    let next = rest.first()?;
    let is_same = next.get("id")?.as_str()?.strip_suffix("-reserved") == Some(id);
    is_same.then(|| read(next).ok()?.measured.first().copied())?
}

/// What a row is called.
fn name(row: &Value, index: usize) -> String {
    row.get("id").and_then(Value::as_str).map_or_else(|| format!("row {}", index + 1), str::to_owned)
}

fn rows(text: &str) -> Result<Vec<Value>, CheckError> {
    match serde_json::from_str(text).map_err(|error| format!("this is not JSON: {error}"))? {
        Value::Array(rows) => Ok(rows),
        _ => Err("this is not an array of measurements".into()),
    }
}

/// The rows of a JSON array of measurements, one a line, each with its `reading`: the scenario that ran, the figure, and
/// what was inferred; or why it is not predicted. Of a row with several figures the first.
///
/// # Errors
/// Where the text is no such array.
pub fn readings(format: Format, text: &str) -> Result<String, CheckError> {
    let lines = rows(text)?.into_iter().map(|row| reading::beside(row, format).to_string());
    Ok(format!("[\n{}\n]\n", lines.collect::<Vec<_>>().join(",\n")))
}

/// The scenario of one measured row.
///
/// # Errors
/// Where the row cannot be expressed.
pub fn scenario(row: &Value) -> Result<Scenario, CheckError> {
    Ok(read(row)?.scenario)
}

/// Reads a row.
///
/// # Errors
/// Where the row cannot be expressed.
pub fn read(row: &Value) -> Result<Case, CheckError> {
    match (row.get("case"), row.get("reading")) {
        (Some(_), _) => truth::read(row),
        (None, Some(reading)) => reading::read(reading),
        (None, None) => Err("neither a case nor a reading says what ran".into()),
    }
}

/// What is found out about one row.
#[derive(Default)]
struct Checked {
    rows: Vec<Row>,
    verdicts: Confusion,
    parts: Vec<PartRow>,
}

fn check_case(
    row: &Value,
    case: &Case,
    other: Option<Measured>,
    id: &str,
    with_parts: bool,
) -> Result<Checked, CheckError> {
    let mut checked = Checked::default();
    let scenario = &case.scenario;
    let tensors = predict(scenario)?;
    let (architecture, gpu) = (scenario.architecture()?, scenario.gpu()?);
    // what a row says of the device's memory decided where things were
    let knows_memory = case.bounded || matches!(scenario.gpu, GpuChoice::Custom(_));
    let gpu = if knows_memory { gpu } else { Gpu { memory: UNLIMITED, ..gpu } };
    let percent = band(&architecture, scenario).percent;
    let Replayed { recording, on_card, memory, .. } = Replayed::of(&architecture, scenario, &gpu, &tensors)?;
    for Measured { metric, milestone, bytes: measured } in &case.measured {
        let counters = || recording.allocate_until(*milestone, on_card.settings);
        let predicted = match (metric, milestone) {
            (Metric::Allocated, Milestone::End) => memory.peak().1.bytes,
            (Metric::Allocated, Milestone::FirstIteration) => memory.first.highest().1.bytes,
            (
                Metric::Allocated,
                Milestone::Loaded | Milestone::Forward | Milestone::Backward | Milestone::Step,
            ) => counters().allocated,
            (Metric::Reserved, _) => counters().reserved_peak,
            (Metric::Driver, _) => counters().reserved_peak + memory.context,
        };
        let error_pct = error_pct(*measured, predicted);
        checked.rows.push(Row {
            id: id.to_owned(),
            metric: *metric,
            measured: *measured,
            predicted,
            error_pct,
        });
    }
    let of = |metric| {
        let mut found = case.measured.iter().chain(&other);
        found.find(|found| found.metric == metric && found.milestone == Milestone::End)
    };
    if case.bounded {
        checked.verdicts.count_own(&recording, scenario.allocator, &gpu, percent);
    } else if let (Some(allocated), Some(reserved)) = (of(Metric::Allocated), of(Metric::Reserved)) {
        let peaks = [allocated.bytes, reserved.bytes];
        checked.verdicts.count(&recording, scenario.allocator, &gpu, percent, peaks);
    }
    if with_parts {
        checked.parts = parts::compare(id, row, &tensors);
    }
    Ok(checked)
}

/// A card on which nothing runs out of memory, as that of the null device.
const UNLIMITED: Bytes = Bytes(1 << 60);

fn predict(scenario: &Scenario) -> Result<Memory, CheckError> {
    let answer = estimate(scenario);
    let problems = || answer.errors().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    answer.memory.clone().ok_or_else(|| problems().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dropped() {
        let report = check(r#"[{"id":"a"},{"case":{}},1]"#, false).unwrap();
        let ids: Vec<_> = report.unsupported.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["a", "row 2", "row 3"]);
        assert_eq!(report.summary.unsupported, 3);
        assert_eq!(report.unsupported[0].reason, "neither a case nor a reading says what ran");
    }
}
