//! Measured speeds against predicted ones: `data/measurements/time.json`, and `data/speeds.tsv`, which a test writes of it and the page
//! shows.

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
    /// The project at its commit, and the file: `pytorch/torchtune@bd2a0fc README.md`.
    #[serde(default)]
    source: String,
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
    /// The project at its commit that published it, and the file.
    pub source: String,
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
        TimeErrors::among(rows.map(|row| (row.error_pct(), row.is_covered())))
    }

    /// Those of errors in percent, each with whether the speed lies in the range.
    fn among(rows: impl Iterator<Item = (f64, bool)>) -> TimeErrors {
        let (mut errors, mut covered) = (Vec::new(), 0usize);
        for (error, is_covered) in rows {
            errors.push(error.abs());
            covered += usize::from(is_covered);
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
        source: row.source.clone(),
        gpu: gpu.slug.to_string(),
        near: pace.near,
        purpose: row.purpose,
        compiled: row.compiled,
        generates: scenario.task == Task::Generate,
        measured: row.tokens_per_second,
        predicted: pace.tokens_per_second().times(1.0 / pace.gpus as f64),
    })
}

/// The columns of the file of speeds, in order.
const COLUMNS: [&str; 10] = [
    "run",
    "source",
    "card",
    "use",
    "compiled",
    "generates",
    "tokens per second",
    "predicted",
    "at least",
    "at most",
];

/// A measured speed as the page shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// The row's name.
    pub id: String,
    /// Where it was published, as an address.
    pub source: String,
    /// The card.
    pub gpu: String,
    /// Whether it was kept for checking: what cards reach was not derived from it.
    pub kept: bool,
    /// Whether the run was compiled.
    pub compiled: bool,
    /// Whether it generates, rather than trains.
    pub generates: bool,
    /// Tokens per second of one GPU, measured.
    pub measured: f64,
    /// The same, predicted.
    pub predicted: Span,
}

impl Speed {
    /// How far the predicted time is from the measured one, in percent.
    pub fn error_pct(&self) -> f64 {
        (self.measured / self.predicted.typical - 1.0) * 100.0
    }

    /// Whether the measured speed lies in the predicted range.
    pub fn is_covered(&self) -> bool {
        (self.predicted.least..=self.predicted.most).contains(&self.measured)
    }

    /// How far off those of training are that were kept for checking.
    pub fn errors(speeds: &[Speed]) -> TimeErrors {
        let kept = speeds.iter().filter(|speed| speed.kept && !speed.generates);
        TimeErrors::among(kept.map(|speed| (speed.error_pct(), speed.is_covered())))
    }

    fn read(line: &str) -> Option<Speed> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, source, gpu, purpose, compiled, generates, measured, typical, least, most] = fields[..]
        else {
            return None;
        };
        let number = |text: &str| text.parse::<f64>().ok();
        Some(Speed {
            id: id.to_owned(),
            source: address(source),
            gpu: gpu.to_owned(),
            kept: purpose == "check",
            compiled: compiled == "compiled",
            generates: generates == "generates",
            measured: number(measured)?,
            predicted: Span { typical: number(typical)?, least: number(least)?, most: number(most)? },
        })
    }
}

/// `https://github.com/pytorch/torchtune/tree/bd2a0fc/README.md` of `pytorch/torchtune@bd2a0fc README.md`.
fn address(source: &str) -> String {
    let mut words = source.split(' ');
    let project = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default().trim_end_matches([',', ';', ':']);
    match project.split_once('@') {
        Some((project, commit)) => format!("https://github.com/{project}/tree/{commit}/{path}"),
        None => String::new(),
    }
}

/// All speeds with a prediction, as a file with a line for each below the names of its columns.
pub fn write_speeds(report: &TimeReport) -> String {
    let line = |row: &TimeRow| {
        let purpose = match row.purpose {
            Use::Derive => "derive",
            Use::Check => "check",
        };
        let compiled = if row.compiled { "compiled" } else { "" };
        let generates = if row.generates { "generates" } else { "" };
        let Span { typical, least, most } = row.predicted;
        let speeds = [row.measured, typical, least, most].map(|speed| format!("{speed:.2}"));
        let texts = [&row.id, &row.source, &row.gpu, purpose, compiled, generates]
            .map(|text| text.replace('\t', " "));
        [texts.as_slice(), &speeds].concat().join("\t")
    };
    [COLUMNS.join("\t")].into_iter().chain(report.rows.iter().map(line)).map(|line| line + "\n").collect()
}

/// The speeds of such a file. What is no line of it is left out.
pub fn read_speeds(text: &str) -> Vec<Speed> {
    text.lines().skip(1).filter_map(Speed::read).collect()
}
