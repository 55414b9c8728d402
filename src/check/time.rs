//! Measured speeds against predicted ones: `data/measurements/time.json`.

use serde::{Deserialize, Serialize};

use crate::estimate::estimate;
use crate::plan::{Near, Span, pace};
use crate::scenario::Task;
use crate::share;

/// What a measured row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// What cards reach is derived from it.
    Derive,
    /// It is kept for checking.
    Check,
}

/// A measured speed.
#[derive(Deserialize)]
struct Measured {
    id: String,
    /// The scenario, as a share link has it.
    link: String,
    /// Tokens per second of one GPU.
    tokens_per_second: f64,
    #[serde(rename = "use")]
    purpose: Use,
    /// Whether the run was compiled (`torch.compile`), which no scenario is.
    #[serde(default)]
    compiled: bool,
}

/// A measured speed and the predicted one.
#[derive(Clone, Debug, Serialize)]
pub struct TimeRow {
    /// The row's name.
    pub id: String,
    /// The card.
    pub gpu: String,
    /// What the prediction rests on.
    #[serde(skip)]
    pub near: Near,
    /// What it is for.
    #[serde(rename = "use")]
    pub purpose: Use,
    /// Whether the run was compiled.
    pub compiled: bool,
    /// Whether it generates, rather than trains.
    pub generates: bool,
    /// Tokens per second, measured.
    pub measured: f64,
    /// The same, predicted.
    pub predicted: Span,
}

impl TimeRow {
    /// How far the predicted time is from the measured one, in percent.
    pub fn error_pct(&self) -> f64 {
        (self.measured / self.predicted.typical - 1.0) * 100.0
    }

    /// Whether the measured speed lies in the predicted range.
    pub fn is_covered(&self) -> bool {
        (self.predicted.least..=self.predicted.most).contains(&self.measured)
    }
}

/// Rows with a prediction, and those without one with the reason.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TimeReport {
    /// Rows with a prediction.
    pub rows: Vec<TimeRow>,
    /// Names of those without one, each with the reason.
    pub unanswered: Vec<(String, String)>,
}

/// How far off some rows are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeErrors {
    /// How many rows.
    pub count: usize,
    /// The median of the absolute errors of the time, in percent.
    pub median_pct: f64,
    /// Nine of ten are off by at most that.
    pub p90_pct: f64,
    /// The share of rows whose speed lies in the predicted range, in percent.
    pub covered_pct: f64,
}

impl TimeErrors {
    /// Those of some rows.
    pub fn of<'r>(rows: impl Iterator<Item = &'r TimeRow>) -> TimeErrors {
        let (mut errors, mut covered) = (Vec::new(), 0usize);
        for row in rows {
            errors.push(row.error_pct().abs());
            covered += usize::from(row.is_covered());
        }
        errors.sort_by(f64::total_cmp);
        let count = errors.len();
        let at = |share: f64| {
            let index = (share * count.saturating_sub(1) as f64).round() as usize;
            errors.get(index).copied().unwrap_or_default()
        };
        let covered_pct = 100.0 * covered as f64 / count.max(1) as f64;
        TimeErrors { count, median_pct: at(0.5), p90_pct: at(0.9), covered_pct }
    }
}

/// Holds measured speeds against predicted ones.
///
/// # Errors
/// What is wrong with the text: it is no array of rows.
pub fn check_time(text: &str) -> Result<TimeReport, String> {
    let measured: Vec<Measured> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut report = TimeReport::default();
    for row in measured {
        match predicted(&row) {
            Ok(row) => report.rows.push(row),
            Err(reason) => report.unanswered.push((row.id, reason)),
        }
    }
    Ok(report)
}

fn predicted(row: &Measured) -> Result<TimeRow, String> {
    let decoded = share::decode(&row.link);
    if let Some(notice) = decoded.notices.first() {
        return Err(notice.to_string());
    }
    if let Some(notice) = share::unknown(&row.link).first() {
        return Err(notice.to_string());
    }
    let scenario = decoded.scenarios.first().ok_or("the link has no scenario")?;
    let estimate = estimate(scenario);
    let memory = estimate
        .memory
        .as_ref()
        .ok_or_else(|| estimate.errors().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let pace = pace(scenario, memory).map_err(|issue| issue.to_string())?;
    let gpu = scenario.gpu().map_err(|issue| issue.to_string())?;
    Ok(TimeRow {
        id: row.id.clone(),
        gpu: gpu.slug.to_string(),
        near: pace.near,
        purpose: row.purpose,
        compiled: row.compiled,
        generates: scenario.task == Task::Generate,
        measured: row.tokens_per_second,
        predicted: pace.tokens_per_second().times(1.0 / pace.gpus as f64),
    })
}
