//! `headroom fit`: what can be trained with an amount of memory, on one GPU or several.

use clap::Args;
use serde_json::json;

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::hardware::sold_with;
use crate::model::catalogue;
use crate::plan::{
    FitCell, FitRow, HeldModel, LargestModel, Measure, Verdict, conditions, each, largest_in_words,
    largest_model, row,
};
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
/// a T4. With --gpus each GPU has as much memory, and cells say under which engine the run fits.
#[derive(Args)]
pub(super) struct Arguments {
    /// How much memory there is: 24GB as a card is sold with, 22.5GiB; the scenario's card unless given
    #[arg(long, value_name = "MEMORY", value_parser = sold_with)]
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
    listing: Listing,
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
    let listed = if arguments.all { known.len() } else { known.len().min(USUALLY_LISTED) }.max(1);
    let base = named(None);
    let scenarios: Vec<Scenario> = match known.is_empty() {
        true => vec![base.clone()],
        false => known.iter().map(|id| named(Some(id))).collect(),
    };
    let rows = each(scenarios.get(..listed).unwrap_or(&scenarios), |scenario| row(scenario, memory, measure));
    let methods: Vec<Method> = measure.methods(base.task).collect();
    let largest = match scenarios.len() {
        0 | 1 => Vec::new(),
        _ => each(&methods, |method| (*method, largest_model(&scenarios, memory, measure, *method))),
    };
    let mut output = Output::of(if arguments.json {
        to_json(&rows, &largest, &base, memory)
    } else {
        let table = table(&rows, &base, memory, measure);
        arguments.listing.of(table, |table| to_text((&rows, &largest), &base, measure, &table))?
    })
    .noting(asked.notices);
    if listed < known.len() {
        output.say(format_args!("{} more models with --all", known.len() - listed));
    }
    Ok(output)
}

fn table(rows: &[FitRow], base: &Scenario, memory: Bytes, measure: Measure) -> Table {
    let size = base.lora.tuner.own_size().filter(|_| measure == Measure::Rank);
    let what = size.map_or_else(
        || Measure::CHOICES[measure as usize].label.to_owned(),
        |(name, _)| format!("Largest {name}"),
    );
    let [first, tokens] = match measure {
        Measure::Batch => [": sequences", ": tokens of each"],
        Measure::Length => [": sequences", ": tokens"],
        Measure::Rank => [": rank", ": tokens"],
    };
    let mut number = vec![first, tokens, ": needs (bytes)", ": verdict", ": allocator"];
    let several = base.cluster.is_many() && base.task.trains();
    number.extend(several.then_some(": layout"));
    let cards = if several { format!("{} × ", grouped(base.cluster.gpus)) } else { String::new() };
    let model = format!("{what} in {cards}{memory}");
    let columns =
        measure.methods(base.task).map(|method| Column::of(base.task.method_label(method), &number));
    let row = |row: &FitRow| {
        let cells = asked(row, base, measure).into_iter().map(|cell| said(cell, base, measure));
        std::iter::once(Cell::words(&row.model)).chain(cells).collect::<Vec<_>>()
    };
    Table::new(std::iter::once(Column::words("Model").under(model)).chain(columns), rows.iter().map(row))
}

/// The cells of the methods that are asked about.
fn asked<'a>(row: &'a FitRow, base: &Scenario, measure: Measure) -> Vec<&'a FitCell> {
    let methods: Vec<Method> = measure.methods(base.task).collect();
    let cells = Method::ALL.iter().zip(&row.cells).filter(|(method, _)| methods.contains(method));
    cells.map(|(_, cell)| cell).collect()
}

/// What is said of a cell, with its marks. What is missing is sorted below what fits, the more the farther.
fn said(cell: &FitCell, base: &Scenario, measure: Measure) -> Cell {
    match cell {
        FitCell::Fits { batch, verdict, needed, scenario } => {
            let (rank, tokens) = (scenario.lora.rank, scenario.sequence);
            let (found, text) = match measure {
                Measure::Length => (tokens, grouped(tokens)),
                Measure::Rank => (rank, grouped(rank)),
                Measure::Batch if tokens == base.sequence => (*batch, batch.to_string()),
                Measure::Batch => (*batch, format!("{batch} × {}", grouped(tokens))),
            };
            let marks = [(cell.is_close(), " c"), (is_expandable(cell), " e")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            let layout = cell.layout();
            let under = layout.as_ref().map_or_else(String::new, |layout| format!(" {layout}"));
            let first = if measure == Measure::Rank { rank } else { *batch };
            let values = [
                first.to_string(),
                tokens.to_string(),
                needed.0.to_string(),
                verdict.slug().to_owned(),
                scenario.allocator.slug().to_owned(),
            ];
            Cell::amount(
                format!("{text}{under}{marks}"),
                found as f64,
                values.into_iter().chain(layout).collect::<Vec<_>>(),
            )
        }
        FitCell::TooLarge { needed } => {
            let [none, verdict] = ["", Verdict::Over.slug()].map(str::to_owned);
            let values = [none.clone(), none, needed.0.to_string(), verdict];
            Cell::amount(format!("needs {needed}"), -(needed.0 as f64), values)
        }
        FitCell::Unknown(_) => Cell::none("no answer"),
    }
}

fn is_expandable(cell: &FitCell) -> bool {
    matches!(cell, FitCell::Fits { scenario, .. } if scenario.allocator == Allocator::Expandable)
}

/// Why there is no answer, once where it holds for several models.
fn problems(rows: &[FitRow], base: &Scenario, measure: Measure) -> String {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        for cell in asked(row, base, measure) {
            let FitCell::Unknown(issue) = cell else { continue };
            let issue = issue.to_string();
            match found.iter_mut().find(|(known, _)| *known == issue) {
                Some((_, models)) if models.contains(&row.model.as_str()) => {}
                Some((_, models)) => models.push(&row.model),
                None => found.push((issue, vec![&row.model])),
            }
        }
    }
    let line =
        |(issue, models): &(String, Vec<&str>)| one_line(&format!("{}: {issue}", models.join(", "))) + "\n";
    found.iter().map(line).collect()
}

fn to_text(
    (rows, largest): (&[FitRow], &[(Method, LargestModel)]),
    base: &Scenario,
    measure: Measure,
    table: &Table,
) -> String {
    let cells = || rows.iter().flat_map(|row| asked(row, base, measure));
    let problems = problems(rows, base, measure);
    let close = match cells().any(FitCell::is_close) {
        true => {
            "c: close: nothing fits beyond doubt, and this with less to spare than the estimate may be off by\n"
        }
        false => "",
    };
    let mark = if cells().any(is_expandable) { "e: with --allocator expandable\n" } else { "" };
    let separator = if problems.is_empty() { "" } else { "\n" };
    let largest = match largest {
        [] => String::new(),
        largest => largest_in_words(largest, base.task) + "\n",
    };
    format!("{}\n{largest}{}\n{close}{mark}{separator}{problems}", table.text(), conditions(base, measure))
}

fn to_json(rows: &[FitRow], largest: &[(Method, LargestModel)], base: &Scenario, memory: Bytes) -> String {
    let rank = |scenario: &Scenario| {
        let has_rank = scenario.method.has_adapters() && scenario.lora.tuner.has_rank();
        has_rank.then_some(scenario.lora.rank)
    };
    let cell = |(method, cell): (&Method, &FitCell)| {
        let value = match cell {
            FitCell::Fits { batch, verdict, needed, scenario } => {
                json!({ "batch": batch, "needed": needed, "sequence": scenario.sequence, "rank": rank(scenario), "verdict": verdict.slug(), "layout": cell.layout(), "link": share::encode(std::slice::from_ref(scenario)) })
            }
            FitCell::TooLarge { needed } => json!({ "needed": needed }),
            FitCell::Unknown(issue) => json!({ "issue": issue }),
        };
        (method.slug().to_owned(), value)
    };
    let largest = largest.iter().map(|(method, largest)| {
        let found = |held: &Option<HeldModel>| held.as_ref().map(|held| held.model.clone());
        (method.slug().to_owned(), json!({ "fits": found(&largest.sure), "close": found(&largest.close) }))
    });
    let rows = rows.iter().map(|row| {
        let cells = Method::ALL.iter().zip(&row.cells).map(cell);
        json!({ "model": row.model, "methods": serde_json::Map::from_iter(cells) })
    });
    format!(
        "{:#}\n",
        json!({ "schema": "headroom-fit/1", "memory": memory, "gpus": if base.task.trains() { base.cluster.gpus } else { 1 }, "largest": serde_json::Map::from_iter(largest), "rows": rows.collect::<Vec<_>>() })
    )
}
