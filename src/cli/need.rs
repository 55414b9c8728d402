//! `headroom need`: which card a run needs.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::levers::fewest_in_words;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::export;
use crate::hardware::{Host, Machine, gpus};
use crate::issue::{Field, Issue};
use crate::plan::{
    Answer, Layout, MOST_TOGETHER, NeedCell, NeedRow, Offer, Span, Verdict, cheapest_first, cheapest_run,
    fewest_gpus, need_of_each, on_one, usual_cards,
};
use crate::scenario::{Method, Scenario};
use crate::share;
use crate::text::one_line;
use crate::units::grouped;

/// Shows which card a run needs: for each card and method what is needed and whether it gets through, and what a machine with
/// the card costs to rent
///
/// Cards on which nothing fits are left out, as are laptops, cards before Volta and those that are not NVIDIA's unless all are
/// asked for. Methods other than the scenario's own have the precision and optimizer that the training library is usually run
/// with, and so has what the flags leave open. Prices are those on demand of one region on the day that is named.
#[derive(Args)]
pub(super) struct Arguments {
    /// List every card of the catalogue, those on which nothing fits too
    #[arg(long)]
    all: bool,
    /// List the machines that can be rented with the cards that hold it, with what the data set (--dataset-tokens, --epochs) takes and costs there, in place of the cards
    #[arg(long, conflicts_with = "json")]
    machines: bool,
    /// Print JSON; amounts in bytes, each cell with its link
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let base = asked.filled(&asked.first());
    let mut cards = usual_cards();
    if arguments.all {
        cards = gpus().collect();
        cards.sort_by_key(|card| card.memory);
    }
    let mut rows = need_of_each(&base, &cards);
    let problems = problems(&rows, &base);
    let answered = |row: &NeedRow| row.cells.iter().any(|cell| matches!(cell, NeedCell::Needs { .. }));
    if let (false, Some((problem, _))) = (rows.iter().any(answered), problems.first()) {
        return Err(problem.clone());
    }
    let cards_in_all = rows.len();
    if !arguments.all {
        rows.retain(|row| row.fewest().is_some());
        // those that hold it alone come first
        rows.sort_by_key(NeedRow::fewest);
    }
    let fewest = fewest_gpus(&base);
    let mut output = Output::of(match arguments.json {
        true => to_json(&rows, &fewest),
        false if arguments.machines => arguments.listing.of(rented(&rows), |table| table.text())?,
        false => arguments.listing.of(table(&rows, &base), |table| {
            format!(
                "{}\nOn its own card: {}\n",
                to_text(&rows, &base, &table),
                fewest_in_words(&base, &fewest)
            )
        })?,
    })
    .noting(asked.notices);
    for (problem, cards) in problems {
        match cards.len() {
            all if all == cards_in_all => output.say(format_args!("no answer: {problem}")),
            _ => output.say(format_args!("no answer on {}: {problem}", cards.join(", "))),
        }
    }
    Ok(output)
}

/// Why cells have no answer, each with the cards on which it is so.
fn problems(rows: &[NeedRow], base: &Scenario) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        for cell in &row.cells {
            let NeedCell::Unknown(issue) = cell else { continue };
            let is_brought = issue.field == Field::Precision && !base.precision.is_float16();
            let why =
                if is_brought { "; float16 stands for bfloat16, which the card does not have" } else { "" };
            let issue = format!("{issue}{why}");
            let at = found.iter().position(|(known, _)| *known == issue);
            let at = at.unwrap_or_else(|| {
                found.push((issue, Vec::new()));
                found.len() - 1
            });
            if let Some((_, cards)) = found.get_mut(at).filter(|(_, cards)| !cards.contains(&row.name)) {
                cards.push(row.name.clone());
            }
        }
    }
    found
}

fn table(rows: &[NeedRow], base: &Scenario) -> Table {
    let methods = base.task.methods();
    let of_method = |method: &Method| {
        let endings = [" needs (bytes)", ": verdict", ": GPUs", ": together ($/h)"];
        Column::of(base.task.method_label(*method), &endings)
    };
    let columns = [Column::words("Card"), Column::of("Memory", &[" (bytes)"])].into_iter();
    let rented = Column::of("Rented from", &[" ($/h)", "", ": cards"]);
    let row = |row: &NeedRow| {
        let mut cells = vec![Cell::words(&row.name), Cell::bytes(row.memory)];
        let own = Method::ALL.iter().zip(&row.cells).filter(|(method, _)| methods.contains(method));
        cells.extend(own.map(|(_, cell)| needs(cell)));
        cells.push(row.machine.as_ref().map_or_else(|| Cell::none("–"), price));
        cells
    };
    Table::new(columns.chain(methods.iter().map(of_method)).chain([rented]), rows.iter().map(row))
}

/// Every machine with as many of the cards as hold the run by its own method, and what the data set takes and costs on all of them: what
/// costs least first, then those whose time is not known.
fn rented(rows: &[NeedRow]) -> Table {
    let columns = [
        Column::words("Machine"),
        Column::words("Card"),
        Column::words("Cards"),
        Column::of("Price", &[" ($/h)"]),
        Column::of("The data takes", &[" (h)", ": at least", ": at most"]),
        Column::of("And costs", &[" ($)", ": at least", ": at most"]),
        Column::words("Dated"),
    ];
    let roughly = |span: Option<Span>, words: &dyn Fn(Span) -> String| match span {
        Some(span) => {
            let values = [span.typical, span.least, span.most].map(|figure| format!("{figure:.2}"));
            Cell::amount(words(span), span.typical, values)
        }
        None => Cell::none("not known"),
    };
    let line = |(card, offer): &(&str, Offer)| {
        let machine = offer.machine;
        let hour = offer.per_hour();
        let short = offer.ram_in_words().map(|words| format!(" ({words})"));
        let name = offer.name() + &short.unwrap_or_default();
        vec![
            Cell::words(name),
            Cell::words(*card),
            Cell::words(offer.cards_in_words()),
            Cell::amount(format!("{hour:.2} $/h"), hour, [format!("{hour:.3}")]),
            roughly(offer.hours, &|hours| export::duration(hours.times(3_600.0))),
            roughly(offer.dollars(), &export::dollars),
            Cell::words(&machine.dated),
        ]
    };
    Table::new(columns, cheapest_first(rows).iter().map(line))
}

/// What is needed on each card of as many as hold it, sorted by the need of one.
fn needs(cell: &NeedCell) -> Cell {
    let NeedCell::Needs { needed, verdict, .. } = cell else { return Cell::none(&in_words(cell)) };
    let several = cell.several();
    let values = [
        several.map_or(*needed, |several| several.layout.needed).0.to_string(),
        several.map_or(*verdict, |several| several.layout.verdict).slug().to_owned(),
        several.map_or(1, |several| several.layout.gpus).to_string(),
        several.and_then(|several| several.per_hour).map(|price| format!("{price:.2}")).unwrap_or_default(),
    ];
    Cell::amount(in_words(cell), needed.0 as f64, values)
}

fn to_text(rows: &[NeedRow], base: &Scenario, table: &Table) -> String {
    let one = on_one(base).map_or_else(String::new, |words| format!("{words}\n"));
    let mut out = format!(
        "{}, micro-batch {} × {} tokens\n{one}\n",
        one_line(&base.model_name()),
        grouped(base.batch),
        grouped(base.sequence),
    );
    if rows.is_empty() {
        out.push_str("It fits no card that is listed here.\n");
        return out;
    }
    out.push_str(&table.text());
    let is_too_many =
        |cell: &NeedCell| matches!(cell, NeedCell::Needs { verdict: Verdict::Over, several: None, .. });
    if base.task.trains() && rows.iter().flat_map(|row| &row.cells).any(is_too_many) {
        out.push_str(&format!(
            "\n\"needs\" alone: not even {MOST_TOGETHER} of these cards hold it together, or Headroom knows no way to split this run over several GPUs.\n"
        ));
    }
    if let Some((card, offer)) = cheapest_run(rows) {
        out.push_str(&format!("\n{}\n", export::cheapest_run(base, card, &offer)));
    }
    let dates = rows.iter().filter_map(|row| Some(row.machine.as_ref()?.dated.as_str()));
    if let (Some(first), Some(last)) = (dates.clone().min(), dates.max()) {
        out.push_str(&format!(
            "\nPrices on demand between {first} and {last}, of the cheapest machine; --machines lists all that have these cards.\n"
        ));
    }
    out
}

/// The known machine with most RAM, where a scenario keeps more in the CPU's memory than that has.
fn lacking_ram(scenario: &Scenario) -> Option<&'static Host> {
    Answer::of_tensors(scenario.clone()).short_of_ram()
}

fn in_words(cell: &NeedCell) -> String {
    match cell {
        NeedCell::Needs { needed, verdict: Verdict::Fits, scenario, .. } => {
            let slow = if scenario.emulates_bfloat16() { ", emulates bf16" } else { "" };
            let short = match lacking_ram(scenario) {
                Some(host) => format!(", but known machines have {} of RAM at most", host.ram),
                None => String::new(),
            };
            format!("fits: {needed}{slow}{short}")
        }
        NeedCell::Needs { needed, verdict: Verdict::Close, .. } => format!("close: {needed}"),
        NeedCell::Needs { needed, verdict: Verdict::Tight, .. } => format!("tight: {needed}"),
        NeedCell::Needs { needed, verdict: Verdict::Over, several, .. } => match several {
            Some(several) => {
                let price =
                    several.per_hour.map_or_else(String::new, |price| format!(", {price:.2} $/h together"));
                format!("{} × {}{price}", grouped(several.layout.gpus), several.layout.needed)
            }
            None => format!("needs {needed}"),
        },
        NeedCell::Needs { needed, verdict: Verdict::NotFollowed, .. } => format!("not followed: {needed}"),
        NeedCell::Needs { verdict: Verdict::WouldNotRun, .. } => "would not run".to_owned(),
        NeedCell::Unknown(_) => "no answer".to_owned(),
    }
}

fn price(machine: &Machine) -> Cell {
    let count = if machine.gpus == 1 { String::new() } else { format!(" ({} cards)", machine.gpus) };
    let (dollars, name) =
        (format!("{:.2}", machine.per_hour), format!("{} {}", machine.provider, machine.name));
    let text = format!("{dollars} $/h {name}{count}");
    Cell::amount(text, machine.per_hour, [dollars, name, machine.gpus.to_string()])
}

/// A machine with what its cards take for the data set: hours and dollars, null where no measured run is near.
fn offer_json(offer: &Offer) -> Value {
    let mut value = json!(offer.machine);
    value["machines"] = offer.machines.into();
    value["cards_used"] = offer.cards.into();
    value["hours"] = json!(offer.hours);
    value["dollars"] = json!(offer.dollars());
    value["host_bytes"] = json!(offer.host.least());
    value["too_little_ram"] = offer.short_of_ram().is_some().into();
    value
}

fn to_json(rows: &[NeedRow], fewest: &Result<Option<Layout>, Issue>) -> String {
    let cell = |(method, cell): (&Method, &NeedCell)| {
        let value = match cell {
            NeedCell::Needs { needed, verdict, scenario, several } => json!({
                "needed": needed,
                "verdict": verdict.slug(),
                "link": share::encode(std::slice::from_ref(scenario)),
                "several": several.as_ref().map(|several| json!({
                    "gpus": several.layout.gpus,
                    "needed": several.layout.needed,
                    "per_hour": several.per_hour,
                    "link": share::encode(std::slice::from_ref(&several.layout.scenario)),
                })),
            }),
            NeedCell::Unknown(issue) => json!({ "issue": issue }),
        };
        (method.slug().to_owned(), value)
    };
    let rows = rows.iter().map(|row| {
        let cells = Method::ALL.iter().zip(&row.cells).map(cell);
        json!({
            "gpu": row.gpu,
            "memory": row.memory,
            "machine": row.machine,
            "machines": row.offers().iter().map(offer_json).collect::<Vec<_>>(),
            "methods": serde_json::Map::from_iter(cells),
        })
    });
    let value = json!({
        "schema": "headroom-need/1",
        "cards": rows.collect::<Vec<_>>(),
        "fewest_gpus": export::fewest_gpus_json(fewest),
    });
    format!("{value:#}\n")
}
