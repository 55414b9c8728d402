//! `headroom need`: which card a run needs.

use clap::Args;
use serde_json::json;

use super::input::Input;
use super::levers::fewest_in_words;
use super::output::Output;
use super::table::aligned;
use crate::export;
use crate::hardware::{Machine, gpus};
use crate::issue::Issue;
use crate::plan::{Layout, NeedCell, NeedRow, Verdict, fewest_gpus, need, on_one, usual_cards};
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
    /// Print JSON; amounts in bytes, each cell with its link
    #[arg(long)]
    json: bool,
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
    let mut rows: Vec<NeedRow> = cards.into_iter().map(|card| need(&base, card)).collect();
    let problem = rows.iter().flat_map(|row| &row.cells).find_map(|cell| match cell {
        NeedCell::Unknown(issue) => Some(issue.to_string()),
        NeedCell::Needs { .. } => None,
    });
    let answered = |row: &NeedRow| row.cells.iter().any(|cell| matches!(cell, NeedCell::Needs { .. }));
    if let (false, Some(problem)) = (rows.iter().any(answered), &problem) {
        return Err(problem.clone());
    }
    if !arguments.all {
        rows.retain(|row| row.fewest().is_some());
        // those that hold it alone come first
        rows.sort_by_key(NeedRow::fewest);
    }
    let fewest = fewest_gpus(&base);
    let mut output = Output::of(match arguments.json {
        true => to_json(&rows, &fewest),
        false => format!("{}\nOn its own card: {}\n", to_text(&rows, &base), fewest_in_words(&fewest)),
    })
    .noting(asked.notices);
    if let Some(problem) = problem {
        output.say(format_args!("no answer: {problem}"));
    }
    Ok(output)
}

fn to_text(rows: &[NeedRow], base: &Scenario) -> String {
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
    let mut header = vec!["Card".to_owned(), "Memory".to_owned()];
    let methods = base.task.methods();
    header.extend(methods.iter().map(|method| base.task.method_label(*method).to_owned()));
    header.push("Rented from".to_owned());
    let mut lines = vec![header];
    for row in rows {
        let mut line = vec![row.name.clone(), row.memory.to_string()];
        let cells = Method::ALL.iter().zip(&row.cells).filter(|(method, _)| methods.contains(method));
        line.extend(cells.map(|(_, cell)| in_words(cell)));
        line.push(row.machine.as_ref().map_or_else(|| "–".to_owned(), price));
        lines.push(line);
    }
    out.push_str(&aligned(&lines));
    let dates = rows.iter().filter_map(|row| Some(row.machine.as_ref()?.dated.as_str()));
    if let (Some(first), Some(last)) = (dates.clone().min(), dates.max()) {
        out.push_str(&format!("\nPrices on demand between {first} and {last}.\n"));
    }
    out
}

fn in_words(cell: &NeedCell) -> String {
    match cell {
        NeedCell::Needs { needed, verdict: Verdict::Fits, .. } => format!("fits: {needed}"),
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

fn price(machine: &Machine) -> String {
    let count = if machine.gpus == 1 { String::new() } else { format!(" ({} cards)", machine.gpus) };
    format!("{:.2} $/h {} {}{count}", machine.per_hour, machine.provider, machine.name)
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
