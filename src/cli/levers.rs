//! `headroom levers`: what to change.

use clap::Args;

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Row, Table};
use crate::export;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::plan::{Change, Layout, Lever, Levers, Use, Verdict, beyond_in_words, instead, levers, repairs};
use crate::scenario::keys::Key;
use crate::scenario::{Field, Scenario};
use crate::units::{Bytes, grouped};

/// Shows what to change so that a run fits: what each change saves and what it costs, from a run of the changed scenario
#[derive(Args)]
pub(super) struct Arguments {
    /// Print JSON; amounts in bytes, each change with the link of the changed scenario
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    let found = levers(&scenario).map_err(|issue| refused(&scenario, &issue))?;
    Ok(Output::of(if arguments.json {
        format!("{:#}\n", export::levers_json(&found))
    } else {
        let gpu = scenario.gpu().map_err(|issue| issue.to_string())?;
        let listing = &arguments.listing;
        let table = if listing.is_csv() { every(&scenario, &found) } else { table(&found) };
        listing.of(table, |table| to_text((&scenario, &gpu), &found, &table))?
    })
    .noting(asked.notices))
}

/// Why there is no answer, and what has one instead.
fn refused(scenario: &Scenario, issue: &Issue) -> String {
    let found = repairs(scenario);
    let mut out = issue.to_string();
    if !found.is_empty() {
        out.push_str(&format!("\n{}:", instead(&found)));
    }
    for repair in &found {
        let changes =
            repair.changes.iter().map(|change| format!("{}: {} → {}", change.label, change.from, change.to));
        let changes = changes.collect::<Vec<_>>().join(", ");
        let each = if repair.scenario.cluster.is_many() { " on each GPU" } else { "" };
        out.push_str(&format!("\n  {changes}: needs {}{each}", repair.needed));
    }
    out
}

/// The columns of a lever, behind the change itself.
fn columns() -> [Column; 5] {
    [
        Column::words("Costs"),
        Column::of("Time per token", &[" (% more)"]),
        Column::of("Saves", &[" (bytes)"]),
        Column::of("Needs", &[" (bytes)", ": RAM (bytes)"]),
        Column::words("Verdict"),
    ]
}

fn cells(found: &Levers, lever: &Lever) -> [Cell; 5] {
    [cost(lever), time(lever), saves(found, lever), needed(lever), Cell::verdict(lever.verdict)]
}

/// Single changes, those that are enough together, what the room is good for and the fewest GPUs, each called so.
fn every(scenario: &Scenario, found: &Levers) -> Table {
    let lever = |kind: &'static str, lever: &Lever| {
        lines(&lever.changes, [Cell::words(kind)].into_iter().chain(cells(found, lever)).collect())
    };
    let unpaid = |kind: String, needed: Bytes, verdict: Verdict, changes: &[Change]| {
        let nothing = || Cell::none("");
        let cells = vec![
            Cell::words(kind),
            nothing(),
            nothing(),
            nothing(),
            Cell::bytes(needed),
            Cell::verdict(verdict),
        ];
        lines(changes, cells)
    };
    let mut rows: Vec<Row> = found.single.iter().map(|single| lever("single", single)).collect();
    rows.extend(found.together.iter().map(|together| lever("together", together)));
    rows.extend(found.uses.iter().map(|usage| {
        unpaid(format!("room: {}", usage.gain.label()), usage.needed, usage.verdict, &usage.changes)
    }));
    rows.extend(
        found.more_gpus(scenario).map(|(layout, changes)| {
            unpaid("fewest GPUs".to_owned(), layout.needed, layout.verdict, &changes)
        }),
    );
    rows.extend(found.offloaded.iter().map(|offloaded| lever("fewest GPUs, offloaded", offloaded)));
    rows.extend(
        found
            .larger
            .iter()
            .map(|card| unpaid("larger card".to_owned(), card.needed, card.verdict, &card.changes)),
    );
    Table::new(["Change", "Kind"].map(Column::words).into_iter().chain(columns()), rows)
}

/// Every single change.
fn table(found: &Levers) -> Table {
    let row = |lever: &Lever| lines(&lever.changes, cells(found, lever).into());
    Table::new([Column::words("Change")].into_iter().chain(columns()), found.single.iter().map(row))
}

/// By how much is paid, and not by its first letter.
fn cost(lever: &Lever) -> Cell {
    Cell::words(lever.cost.label()).by(f64::from(lever.cost as u8))
}

fn time(lever: &Lever) -> Cell {
    let percent = lever.slower.map(|percent| percent.to_string()).unwrap_or_default();
    Cell::amount(lever.slower_in_words(), lever.slower, [percent])
}

fn saves(found: &Levers, lever: &Lever) -> Cell {
    let saved = i128::from(found.needed.0) - i128::from(lever.needed.0);
    Cell::amount(saved_in_words(found.needed, lever.needed), saved as f64, [saved.to_string()])
}

fn needed(lever: &Lever) -> Cell {
    let text = lever.needed_in_words(|bytes| bytes.to_string());
    Cell::amount(text, lever.needed.0 as f64, [lever.needed, lever.on_host].map(|bytes| bytes.0.to_string()))
}

fn to_text((scenario, gpu): (&Scenario, &Gpu), found: &Levers, table: &Table) -> String {
    let stops = scenario.stop().map_or_else(String::new, |issue| format!("It would stop: {issue}\n"));
    let mut out = format!(
        "{} needs {} of {} on {}{}: {}\n{stops}\n",
        scenario.model_name(),
        found.needed,
        gpu.memory,
        if scenario.cluster.is_many() {
            format!("each of {} × ", grouped(scenario.cluster.gpus))
        } else {
            String::new()
        },
        gpu.name,
        lower(found.verdict),
    );
    match table.is_empty() {
        false => out.push_str(&table.text()),
        true => out.push_str("No change saves anything worth naming.\n"),
    }
    if let Some((lever, host)) = found.single.iter().find_map(|lever| Some((lever, lever.short_of_ram()?))) {
        let card = lever.scenario.gpu().map(|gpu| gpu.name.to_string()).unwrap_or_default();
        out.push_str(&format!(
            "\nOf known machines with {} × {card}, {} has most RAM: {}.\n",
            grouped(host.gpus),
            host.name,
            host.ram
        ));
    }
    if let Some(lever) = &found.together {
        let single = found.single.iter().any(Lever::holds);
        let why =
            if single { "Cheaper than one change that is enough" } else { "No single change is enough" };
        out.push_str(&format!("\n{why}: together these are.\n\n"));
        let cells = vec![cost(lever), time(lever), needed(lever), Cell::verdict(lever.verdict)];
        let columns = ["Change", "Costs", "Time per token", "Needs", "Verdict"].map(Column::words);
        out.push_str(&Table::new(columns, [lines(&lever.changes, cells)]).text());
    }
    if !found.uses.is_empty() {
        out.push_str("\nWhat the room is good for:\n\n");
        let row = |usage: &Use| {
            let cells = vec![
                Cell::words(usage.gain.label()),
                Cell::bytes(usage.needed),
                Cell::verdict(usage.verdict),
            ];
            lines(&usage.changes, cells)
        };
        let columns = ["Change", "Wins", "Needs", "Verdict"].map(Column::words);
        out.push_str(&Table::new(columns, found.uses.iter().map(row)).text());
        for usage in &found.uses {
            let of = usage.changes.first().map(|change| format!("{} {}", change.label, change.to));
            if let Some((of, limit)) = of.zip(usage.limit.as_ref()) {
                out.push_str(&format!("{of}: {limit}\n"));
            }
        }
    }
    if !found.can_fit() {
        let beyond = beyond_in_words(scenario);
        out.push_str(&format!("\nNone of these makes it fit: take {beyond}.\n"));
    }
    out.push_str(&format!("\n{}\n", fewest_in_words(scenario, &found.fewest)));
    if let Some(card) = &found.larger {
        let name = card.scenario.gpu().map(|gpu| gpu.name.to_string()).unwrap_or_default();
        out.push_str(&format!(
            "The larger card that costs least to rent: {name}, {}: {} needed\n",
            card.price_in_words(),
            card.needed
        ));
    }
    if let Some(lever) = &found.offloaded {
        let gpus = grouped(lever.scenario.cluster.gpus);
        out.push_str(&format!(
            "With weights and optimizer in the CPU's memory {gpus} do: {}\n",
            lever.needed_in_words(|bytes| bytes.to_string())
        ));
    }
    out
}

/// What a change saves, or takes more.
fn saved_in_words(before: Bytes, after: Bytes) -> String {
    match after > before {
        true => format!("takes {} more", after.saturating_sub(before)),
        false => before.saturating_sub(after).to_string(),
    }
}

/// How many GPUs it takes, and what changes with their number beside the engine.
pub(super) fn fewest_in_words(scenario: &Scenario, fewest: &Result<Option<Layout>, Issue>) -> String {
    match fewest {
        Err(issue) => format!("Fewest GPUs that hold it: not known: {issue}"),
        Ok(None) => {
            "Fewest GPUs that hold it: not even 1,024 do with this micro-batch and engines of this library"
                .to_owned()
        }
        Ok(Some(Layout { gpus: 1, needed, .. })) => format!("Fewest GPUs that hold it: 1, {needed}"),
        Ok(Some(layout)) => {
            let (gpus, engine) = (grouped(layout.gpus), layout.name());
            let per_node = grouped(scenario.cluster.per_node);
            // the number and the engine's name say these
            let said = [Field::Gpus, Field::Sharding, Field::TensorParallel].map(Key::of);
            let is_said = |change: &Change| {
                said.iter().flatten().any(|key| key.label_for(&layout.scenario) == change.label)
            };
            let beside: Vec<String> = Change::between(scenario, &layout.scenario, "gpus")
                .iter()
                .filter(|change| !is_said(change))
                .map(|change| format!(", {}: {}", change.label, change.to))
                .collect();
            format!(
                "Fewest GPUs that hold it, of one machine or machines of {per_node}: {gpus} under {engine}{}, {} on each (headroom layouts tries other libraries, batches and checkpointing too)",
                beside.concat(),
                layout.needed
            )
        }
    }
}

/// A line for the first change, with the figures, and one for each that comes with it.
pub(super) fn lines(changes: &[Change], figures: Vec<Cell>) -> Row {
    let words = |change: &Change| format!("{}: {} → {}", change.label, change.from, change.to);
    let mut lines = changes.iter().map(words);
    let mut cells = vec![Cell::words(lines.next().unwrap_or_default())];
    cells.extend(figures);
    Row { cells, below: lines.map(|line| format!("  with {line}")).collect() }
}

/// The verdict in the middle of a line.
pub(super) fn lower(verdict: Verdict) -> String {
    verdict.label().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_more_saves_nothing() {
        assert_eq!(saved_in_words(Bytes::gib(4.0), Bytes::gib(3.0)), "1.00 GiB");
        assert_eq!(saved_in_words(Bytes::gib(3.0), Bytes::gib(4.0)), "takes 1.00 GiB more");
    }
}
