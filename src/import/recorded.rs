//! What `packages/record` wrote beside somebody's run: rows of one scenario, each with a figure.

use serde_json::Value;

use super::settings::taken;
use super::understood::{Format, Left, NotRead, Understood};
use crate::model::catalogue;
use crate::scenario::keys::Key;
use crate::scenario::{ModelChoice, Scenario};
use crate::text::short;

/// The most that is told of what the recorder noted.
const MOST_NOTES: usize = 16;

/// The run of the first row, and what the rows say that it took; nothing where they are no such rows.
pub(super) fn of_rows(text: &str) -> Option<Result<Understood, NotRead>> {
    let rows: Vec<Value> = serde_json::from_str(text).ok()?;
    let first = rows.first()?;
    let said = first.pointer("/reading/scenario").filter(|said| said.is_object())?;
    let scenario = match serde_json::from_value::<Scenario>(said.clone()) {
        Ok(scenario) => by_name(scenario),
        Err(error) => return Some(Err(NotRead(format!("the scenario of its first row: {error}")))),
    };
    let taken = Key::given(said.as_object()?).map(|key| taken(key, &scenario)).collect();
    let note = |note: &Value| {
        Left::new("the recorder", note.as_str().map_or_else(|| short(&note.to_string()), short))
    };
    let notes = first.get("notes").and_then(Value::as_array).into_iter().flatten();
    let mut left: Vec<Left> = notes.take(MOST_NOTES).map(note).collect();
    let (own, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.pointer("/reading/scenario") == Some(said));
    if !others.is_empty() {
        let why = "they are of other runs than the first: headroom check reads them all";
        left.push(Left::new(format!("{} more rows", others.len()), why));
    }
    Some(Ok(Understood { left, took: took(&own), ..Understood::of(Format::Recorded, scenario, taken) }))
}

/// A model of the catalogue where the run's config says the same as the catalogue's of that name.
fn by_name(mut scenario: Scenario) -> Scenario {
    if let ModelChoice::Custom(custom) = &scenario.model
        && let Some(entry) = catalogue::find(&custom.name)
        && entry.architecture().is_ok_and(|known| known == custom.architecture)
    {
        scenario.model = ModelChoice::Catalogue(entry.id.to_owned());
    }
    scenario
}

/// The figures as a link says them.
fn took(rows: &[&Value]) -> Option<String> {
    let of_readings = rows.iter().filter_map(|row| {
        let metric = row.pointer("/reading/metric")?.as_str()?;
        Some((metric, row.pointer("/reading/bytes")?.as_u64()?))
    });
    let driver =
        rows.first().and_then(|row| row.get("driver_used_by_all")?.as_u64()).map(|bytes| ("driver", bytes));
    let known = |metric: &str| ["allocated", "reserved", "driver"].contains(&metric);
    let mut figures: Vec<(&str, u64)> = Vec::new();
    for (metric, bytes) in of_readings.chain(driver) {
        if bytes > 0 && known(metric) && figures.iter().all(|(other, _)| *other != metric) {
            figures.push((metric, bytes));
        }
    }
    let figures: Vec<_> = figures.iter().map(|(metric, bytes)| format!("{metric}:{bytes}")).collect();
    (!figures.is_empty()).then(|| figures.join(","))
}
