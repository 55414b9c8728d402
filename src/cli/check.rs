//! `headroom check`: measured against predicted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::output::Output;
use super::table::aligned;
use super::text::read;
use crate::check::{
    Confusion, Errors, Format, Metric, PartRow, Report, Row, TimeErrors, TimeReport, TimeRow, Unsupported,
    Use, Verdicts, check_time, check_with, readings,
};
use crate::plan::Span;
use crate::text::one_line;
use crate::units::grouped;

/// The longest file of measurements that is read; one of a thousand rows with all their tensors has some MB.
const LONGEST: usize = 256 << 20;

/// Compares measurements with what is predicted for them; exits with 2 where none could be
#[derive(Args)]
pub(super) struct Arguments {
    /// A JSON array of measurements
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON; amounts in bytes
    #[arg(long)]
    json: bool,
    /// Compare the parts alive at the peak of each phase too
    #[arg(long)]
    parts: bool,
    /// Print the rows instead, each with the scenario that it was read as and what of it was inferred
    #[arg(long, conflicts_with_all = ["json", "parts", "fail_above"])]
    readings: bool,
    /// The file holds measured speeds: compare them with what is predicted
    #[arg(long, conflicts_with_all = ["parts", "readings", "fail_above"])]
    time: bool,
    /// Exit with 1 where any predicted figure is off by more than so many percent, up or down
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above: Option<f64>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    number
        .filter(|percent| *percent >= 0.0)
        .ok_or_else(|| "use a number of percent from 0 up, such as 5".to_owned())
}

pub(super) fn run(arguments: &Arguments, measurements: Format) -> Result<Output, String> {
    let name = arguments.file.display();
    let text = read(&arguments.file, LONGEST).map_err(|problem| format!("{name}: {problem}"))?;
    if arguments.readings {
        return readings(measurements, &text).map(Output::of).map_err(|problem| format!("{name}: {problem}"));
    }
    if arguments.time {
        let report = check_time(&text).map_err(|problem| format!("{name}: {problem}"))?;
        return Ok(Output::of(match arguments.json {
            true => serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n",
            false => of_time(&report),
        }));
    }
    let report = check_with(measurements.read, &text, arguments.parts)
        .map_err(|problem| format!("{name}: {problem}"))?;
    let mut output = Output::of(if arguments.json {
        serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n"
    } else {
        to_text(&report)
    });
    if report.rows.is_empty() {
        output.say(format_args!("error: {name}: no figure was predicted"));
        output.status = 2;
    }
    if let Some(limit) = arguments.fail_above {
        let over: Vec<&Row> = report.rows.iter().filter(|row| row.error_pct.abs() > limit).collect();
        if let Some(worst) = over.iter().max_by(|a, b| a.error_pct.abs().total_cmp(&b.error_pct.abs())) {
            output.say(format_args!(
                "above: {} of {} figures are off by more than {limit} %, the worst {} of {} by {}",
                over.len(),
                report.rows.len(),
                worst.metric.slug(),
                worst.id,
                signed(worst.error_pct)
            ));
            output.status = 1;
        }
    }
    Ok(output)
}

/// Measured and predicted speeds, and how far apart they are: of the rows that the figures of cards were derived from and of
/// those that were kept, those of compiled runs apart.
fn of_time(report: &TimeReport) -> String {
    let mut rows = vec![
        ["id", "card", "use", "measured", "predicted", "from", "to", "error"].map(str::to_owned).to_vec(),
    ];
    let purpose = |row: &TimeRow| match (row.purpose, row.compiled) {
        (Use::Derive, _) => "derived from",
        (Use::Check, false) => "kept",
        (Use::Check, true) => "kept, compiled",
    };
    let whole = |figure: f64| grouped(figure.round() as u64);
    rows.extend(report.rows.iter().map(|row| {
        let Span { least, typical, most } = row.predicted;
        let figures = [row.measured, typical, least, most].map(whole);
        let mut cells = vec![row.id.clone(), row.gpu.clone(), purpose(row).to_owned()];
        cells.extend(figures);
        cells.push(signed(row.error_pct()));
        cells
    }));
    let mut sections = vec![aligned(&rows)];
    if !report.unanswered.is_empty() {
        let lines = report.unanswered.iter().map(|(id, reason)| one_line(&format!("{id}: {reason}")) + "\n");
        sections.push(format!("Not predicted:\n{}", lines.collect::<String>()));
    }
    let mut table =
        vec![["Error of the time", "count", "median", "p90", "in range"].map(str::to_owned).to_vec()];
    let kept = |row: &&TimeRow| row.purpose == Use::Check && !row.generates;
    for (name, errors) in [
        ("derived from", TimeErrors::of(report.rows.iter().filter(|row| row.purpose == Use::Derive))),
        ("kept", TimeErrors::of(report.rows.iter().filter(kept))),
        ("of them not compiled", TimeErrors::of(report.rows.iter().filter(|row| kept(row) && !row.compiled))),
        ("of them compiled", TimeErrors::of(report.rows.iter().filter(|row| kept(row) && row.compiled))),
        (
            "kept, of generate",
            TimeErrors::of(report.rows.iter().filter(|row| row.purpose == Use::Check && row.generates)),
        ),
    ] {
        let mut row = vec![name.to_owned(), errors.count.to_string()];
        let figures = [errors.median_pct, errors.p90_pct, errors.covered_pct];
        row.extend(figures.map(|figure| format!("{figure:.1} %")));
        table.push(row);
    }
    sections.push(aligned(&table));
    sections.join("\n")
}

fn to_text(report: &Report) -> String {
    let mut rows = vec![["id", "metric", "measured", "predicted", "error"].map(str::to_owned).to_vec()];
    rows.extend(report.rows.iter().map(|row| {
        vec![
            row.id.clone(),
            row.metric.slug().to_owned(),
            grouped(row.measured.0),
            grouped(row.predicted.0),
            signed(row.error_pct),
        ]
    }));
    let mut sections = vec![aligned(&rows)];
    if !report.parts.is_empty() {
        sections.push(parts(&report.parts));
    }
    if !report.unsupported.is_empty() {
        let line = |row: &Unsupported| one_line(&format!("{}: {}", row.id, row.reason)) + "\n";
        let lines = report.unsupported.iter().map(line);
        sections.push(format!("Not predicted:\n{}", lines.collect::<String>()));
    }
    sections.push(summary(report));
    sections.join("\n")
}

/// How far off the figures of a report are, and how often its verdicts were right, as the command prints it below the rows.
pub fn summary(report: &Report) -> String {
    let metrics = Metric::ALL.map(|metric| (metric.slug().to_owned(), report.summary.get(metric)));
    let all = ("all".to_owned(), report.summary.all);
    let mut sections = vec![errors("Absolute error", metrics.into_iter().chain([all]))];
    if report.verdicts.total() > 0 {
        sections.push(verdicts(&report.verdicts));
    }
    sections.push(format!("{} figures were not predicted\n", report.summary.unsupported));
    sections.join("\n")
}

/// The verdicts on cards of 0.90 to 1.10 times what each run takes.
fn verdicts(confusion: &Confusion) -> String {
    let mut rows = vec![
        ["Verdicts on cards of 90 to 110 %", "fits", "close", "tight", "does not fit"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (name, verdicts) in [
        ("the run gets through", confusion.runs),
        ("not known", confusion.between),
        ("the run fails", confusion.fails),
    ] {
        let Verdicts { fits, close, tight, over } = verdicts;
        let mut row = vec![name.to_owned()];
        row.extend([fits, close, tight, over].map(|count| count.to_string()));
        rows.push(row);
    }
    aligned(&rows)
}

fn parts(parts: &[PartRow]) -> String {
    let mut rows =
        vec![["id", "phase", "part", "measured", "predicted", "error"].map(str::to_owned).to_vec()];
    let mut by_part: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for part in parts {
        by_part.entry((part.part, part.phase)).or_default().push(part.error_pct);
        rows.push(vec![
            part.id.clone(),
            part.phase.to_owned(),
            part.part.to_owned(),
            grouped(part.measured.0),
            grouped(part.predicted.0),
            signed(part.error_pct),
        ]);
    }
    let summary =
        by_part.into_iter().map(|((part, phase), errors)| (format!("{part}, {phase}"), Errors::of(errors)));
    format!("{}\n{}", aligned(&rows), errors("Absolute error by part", summary))
}

/// `+0.12 %`; what rounds to nothing has no sign.
fn signed(percent: f64) -> String {
    let text = format!("{percent:+.2} %");
    if matches!(text.as_str(), "+0.00 %" | "-0.00 %") { "0.00 %".to_owned() } else { text }
}

/// A line per name that has rows.
fn errors(title: &str, lines: impl Iterator<Item = (String, Errors)>) -> String {
    let mut rows = vec![[title, "count", "median", "mean", "p95", "worst"].map(str::to_owned).to_vec()];
    for (name, errors) in lines.filter(|(_, errors)| errors.count > 0) {
        let figures = [errors.median_pct, errors.mean_pct, errors.p95_pct, errors.worst_pct];
        let mut row = vec![name, errors.count.to_string()];
        row.extend(figures.map(|figure| format!("{figure:.2} %")));
        rows.push(row);
    }
    aligned(&rows)
}
