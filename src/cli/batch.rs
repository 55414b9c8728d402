//! `headroom batch`: the micro-batch that cards hold, and the accumulation that reaches an effective batch.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::plan::{BatchRow, PerSequence, batch_row, each, on_usual_cards};
use crate::scenario::Scenario;
use crate::share;
use crate::text::one_line;
use crate::units::grouped;

/// Shows the largest micro-batch that runs, on the scenario's card and on usual ones, and the gradient accumulation with which a
/// step sees so many sequences
///
/// What a run takes whatever its batch and what each sequence adds stand above the table. A safety margin (--margin-mib) and memory
/// that others use (--used-mib) are left out of what a card has.
#[derive(Args)]
pub(super) struct Arguments {
    /// Sequences that an optimizer step is to see, on all GPUs together
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    effective: u64,
    /// Print JSON; amounts in bytes, each card with its link
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
    let rows = each(&on_usual_cards(&scenario), |on_card| batch_row(on_card, arguments.effective));
    let rows: Vec<BatchRow> =
        rows.into_iter().collect::<Result<_, _>>().map_err(|issue| issue.to_string())?;
    // of the scenario's own card the reason is told
    if let Some(Err(issue)) = rows.first().map(|row| &row.reached) {
        return Err(issue.to_string());
    }
    let split = PerSequence::of(&scenario);
    Ok(Output::of(match arguments.json {
        true => to_json(&rows, split),
        false => arguments.listing.of(table(&rows), |table| to_text(&scenario, &table, split))?,
    })
    .noting(asked.notices))
}

fn to_text(scenario: &Scenario, table: &Table, split: Option<PerSequence>) -> String {
    let mut out = format!("{}, {} tokens", one_line(&scenario.model_name()), grouped(scenario.sequence));
    if let Some(split) = split {
        out.push_str(&format!(": {}", split.in_words(|bytes| bytes.to_string())));
    }
    out.push_str("\n\n");
    out + &table.text()
}

fn table(rows: &[BatchRow]) -> Table {
    let numbers = ["Largest micro-batch", "Micro-batch", "Accumulation", "Effective batch"];
    let mut columns = vec![Column::words("Card"), Column::of("Memory", &[" (bytes)"])];
    columns.extend(numbers.map(Column::words));
    columns.push(Column::words("Verdict"));
    let row = |row: &BatchRow| {
        let mut cells = vec![Cell::words(&row.name), Cell::bytes(row.memory)];
        match &row.reached {
            Ok(Some(reached)) => {
                let numbers = [reached.largest, reached.batch, reached.accumulation, reached.effective];
                cells.extend(numbers.map(Cell::count));
                cells.push(Cell::verdict(reached.verdict));
            }
            Ok(None) => cells.push(Cell::none("none")),
            Err(_) => cells.push(Cell::none("no answer")),
        }
        cells
    };
    Table::new(columns, rows.iter().map(row))
}

fn to_json(rows: &[BatchRow], split: Option<PerSequence>) -> String {
    let row = |row: &BatchRow| -> Value {
        let found = match &row.reached {
            Ok(Some(reached)) => json!({
                "largest": reached.largest,
                "micro_batch": reached.batch,
                "accumulation": reached.accumulation,
                "effective": reached.effective,
                "verdict": reached.verdict.slug(),
                "link": share::encode(std::slice::from_ref(&reached.scenario)),
            }),
            Ok(None) => Value::Null,
            Err(issue) => json!({ "issue": issue }),
        };
        json!({ "gpu": row.gpu, "memory": row.memory, "batch": found })
    };
    let value = json!({
        "schema": "headroom-batch/1",
        "fixed": split.map(|split| split.fixed),
        "per_sequence": split.map(|split| split.each),
        "per_sequence_from": split.map(|split| split.from),
        "cards": rows.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
