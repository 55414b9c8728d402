//! `headroom fit`: what can be trained with an amount of memory.

use clap::Args;
use serde_json::json;

use super::input::Input;
use super::output::Output;
use super::table::aligned;
use crate::model::catalogue;
use crate::plan::{FitCell, FitRow, Measure, conditions, row};
use crate::scenario::{Allocator, Method, ModelChoice, Scenario, Stack};
use crate::share::{self, page};
use crate::text::{one_line, short};
use crate::units::{Bytes, grouped};

/// How many models are listed unless all are asked for.
const USUALLY_LISTED: usize = 40;

/// Shows what can be trained with an amount of memory: for each model and method the largest micro-batch, the longest sequence or the
/// largest rank
///
/// Settings are the scenario's: sequences of 2,048 tokens with gradient checkpointing unless flags say otherwise, and never
/// longer than the model's positions. Methods other than the scenario's own, and what the flags leave open, have the
/// precision and optimizer that the training library is usually run with on the card: fp16 on one without bfloat16, such as
/// a T4.
#[derive(Args)]
pub(super) struct Arguments {
    /// How much memory there is: 24GB, 22.5GiB; the scenario's card unless given
    #[arg(long, value_name = "MEMORY")]
    memory: Option<Bytes>,
    /// Only models that these words mean: parts of their names, bounds of their size ("llama <10b")
    #[arg(long, value_name = "WORDS", conflicts_with = "model")]
    models: Option<String>,
    /// Say the longest sequence, one at a time, in place of the largest micro-batch
    #[arg(long, conflicts_with = "largest_rank")]
    longest: bool,
    /// Say the largest rank of adapters, in a micro-batch of 1, in place of the largest micro-batch
    #[arg(long)]
    largest_rank: bool,
    /// List every model of the catalogue, not only the most popular
    #[arg(long)]
    all: bool,
    /// Print JSON; amounts in bytes, each cell that fits with its link
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let mut asked = arguments.input.read()?;
    let mut base = asked.first();
    // what a page's link says of its table, where no flag says otherwise
    if let Some(library) =
        asked.of_page(page::LIBRARY, Stack::from_slug).filter(|_| !arguments.input.flags("stack"))
    {
        base.change(|scenario| scenario.stack = library);
    }
    let words =
        asked.of_page(page::WORDS, |words| Some(words.to_owned())).filter(|words| !words.trim().is_empty());
    let words = arguments.models.clone().or_else(|| words.filter(|_| !arguments.input.flags("model")));
    let gib =
        |text: &str| text.parse::<f64>().ok().filter(|gib| gib.is_finite() && *gib > 0.0).map(Bytes::gib);
    let budget = asked.of_page(page::MEMORY, gib).filter(|_| !arguments.input.flags("gpu"));
    let measure = asked.of_page(page::CELLS, Measure::from_slug).unwrap_or_default();
    let named = |model: Option<&str>| {
        let model = model.map(|id| ModelChoice::Catalogue(id.to_owned()));
        asked.filled(&Scenario { model: model.unwrap_or_else(|| base.model.clone()), ..base.clone() })
    };
    let memory = match arguments.memory.or(budget) {
        Some(memory) => memory,
        None => base.gpu().map_err(|issue| issue.to_string())?.memory,
    };
    let measure = match (arguments.longest, arguments.largest_rank) {
        (true, _) => Measure::Length,
        (_, true) => Measure::Rank,
        (false, false) => measure,
    };
    let known: Vec<&str> = match &words {
        Some(words) => catalogue::among(words).into_iter().map(|found| found.id).collect(),
        None if asked.names_model() => Vec::new(),
        None => catalogue::entries().iter().map(|entry| entry.id).collect(),
    };
    if let Some(words) = words.as_ref().filter(|_| known.is_empty()) {
        return Err(format!(
            "no model is called \"{}\"; write parts of names and sizes, as in \"coder 7b\" and \"llama <10b\"",
            short(words)
        ));
    }
    let listed = if arguments.all { known.len() } else { known.len().min(USUALLY_LISTED) };
    let rows = if known.is_empty() {
        vec![row(&named(None), memory, measure)]
    } else {
        known.iter().take(listed).map(|id| row(&named(Some(id)), memory, measure)).collect()
    };
    let mut output = Output::of(if arguments.json {
        to_json(&rows, memory)
    } else {
        to_text(&rows, &named(None), memory, measure)
    })
    .noting(asked.notices);
    if listed < known.len() {
        output.say(format_args!("{} more models with --all", known.len() - listed));
    }
    Ok(output)
}

fn to_text(rows: &[FitRow], base: &Scenario, memory: Bytes, measure: Measure) -> String {
    let what = Measure::CHOICES[measure as usize].label;
    let mut header = vec![format!("{what} in {} ({memory})", memory.in_decimal_unit())];
    let methods: Vec<Method> = measure.methods(base.task).collect();
    header.extend(methods.iter().map(|method| base.task.method_label(*method).to_owned()));
    let mut lines = vec![header];
    let mut problems = String::new();
    let (mut marked, mut close) = (false, false);
    for row in rows {
        let mut line = vec![row.model.clone()];
        let cells = Method::ALL.iter().zip(&row.cells).filter(|(method, _)| methods.contains(method));
        let cells: Vec<&FitCell> = cells.map(|(_, cell)| cell).collect();
        for cell in &cells {
            line.push(match cell {
                FitCell::Fits { batch, scenario, .. } => {
                    let expandable = scenario.allocator == Allocator::Expandable;
                    marked |= expandable;
                    let is_close = cell.is_close();
                    close |= is_close;
                    let number = match measure {
                        Measure::Length => grouped(scenario.sequence),
                        Measure::Rank => grouped(scenario.lora.rank),
                        Measure::Batch if scenario.sequence == base.sequence => batch.to_string(),
                        Measure::Batch => format!("{batch} × {}", grouped(scenario.sequence)),
                    };
                    let marks = [(is_close, " c"), (expandable, " e")];
                    let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
                    format!("{number}{marks}")
                }
                FitCell::TooLarge { needed } => format!("needs {needed}"),
                FitCell::Unknown(_) => "no answer".to_owned(),
            });
        }
        if let Some(FitCell::Unknown(issue)) = cells.iter().find(|cell| matches!(cell, FitCell::Unknown(_))) {
            problems.push_str(&one_line(&format!("{}: {issue}", row.model)));
            problems.push('\n');
        }
        lines.push(line);
    }
    let close = if close { "c: close, less to spare than the estimate may be off by\n" } else { "" };
    let mark = if marked { "e: with --allocator expandable\n" } else { "" };
    let separator = if problems.is_empty() { "" } else { "\n" };
    format!("{}\n{}\n{close}{mark}{separator}{problems}", aligned(&lines), conditions(base, measure))
}

fn to_json(rows: &[FitRow], memory: Bytes) -> String {
    let rank = |scenario: &Scenario| {
        let has_rank = scenario.method.has_adapters() && scenario.lora.tuner.has_rank();
        has_rank.then_some(scenario.lora.rank)
    };
    let cell = |(method, cell): (&Method, &FitCell)| {
        let value = match cell {
            FitCell::Fits { batch, verdict, scenario } => {
                json!({ "batch": batch, "sequence": scenario.sequence, "rank": rank(scenario), "verdict": verdict.slug(), "link": share::encode(std::slice::from_ref(scenario)) })
            }
            FitCell::TooLarge { needed } => json!({ "needed": needed }),
            FitCell::Unknown(issue) => json!({ "issue": issue }),
        };
        (method.slug().to_owned(), value)
    };
    let rows = rows.iter().map(|row| {
        let cells = Method::ALL.iter().zip(&row.cells).map(cell);
        json!({ "model": row.model, "methods": serde_json::Map::from_iter(cells) })
    });
    format!(
        "{:#}\n",
        json!({ "schema": "headroom-fit/1", "memory": memory, "rows": rows.collect::<Vec<_>>() })
    )
}
