//! `headroom contexts`: batches × lengths that a card generates for.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::issue::Issue;
use crate::plan::{BATCHES, ContextCell, ContextRow, Verdict, contexts};
use crate::text::one_line;
use crate::units::grouped;

/// Shows what generating needs by the number of sequences in parallel and their length
///
/// A length is that of a sequence when its last token is there: the prompt and the new tokens (--new-tokens). Lengths end where the
/// model's positions do. Figures are those of tensors; `headroom estimate` replays one of them on the card's allocator.
#[derive(Args)]
pub(super) struct Arguments {
    /// Print JSON; amounts in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read_to_generate()?;
    let base = asked.first();
    let rows = contexts(&base).map_err(|issue| issue.to_string())?;
    let cells = || rows.iter().flat_map(|row| &row.cells);
    if let (true, Some(Err(issue))) = (cells().all(Result::is_err), cells().next()) {
        return Err(issue.to_string());
    }
    Ok(Output::of(if arguments.json {
        to_json(&rows)
    } else {
        let of = one_line(&base.model_name());
        let new = grouped(base.generation.new_tokens);
        let weights = base.task.method_label(base.method).to_lowercase();
        arguments.listing.of(table(&rows), |table| {
            format!(
                "{of}, weights {weights}, {new} new tokens after a prompt; sequences in parallel by tokens of each\n\n{}",
                table.text()
            )
        })?
    })
    .noting(asked.notices))
}

fn table(rows: &[ContextRow]) -> Table {
    let batches = BATCHES.into_iter().map(at_once);
    let row = |row: &ContextRow| {
        std::iter::once(Cell::count(row.context)).chain(row.cells.iter().map(needed)).collect::<Vec<_>>()
    };
    Table::new(std::iter::once(Column::words("Tokens")).chain(batches), rows.iter().map(row))
}

/// The column of so many sequences at once.
pub(super) fn at_once(batch: u64) -> Column {
    let endings: &[&str] = match batch {
        1 => &[" sequence (bytes)", " sequence: verdict"],
        _ => &[" sequences (bytes)", " sequences: verdict"],
    };
    Column::of(&grouped(batch), endings)
}

/// What so many need.
pub(super) fn needed(cell: &Result<ContextCell, Issue>) -> Cell {
    match cell {
        Ok(ContextCell { needed, verdict, .. }) => {
            let text = match verdict {
                Verdict::Fits => needed.to_string(),
                other => format!("{needed} {}", other.slug()),
            };
            Cell::amount(text, needed.0 as f64, [needed.0.to_string(), verdict.slug().to_owned()])
        }
        Err(_) => Cell::none("no answer"),
    }
}

/// What each number of sequences needs.
pub(super) fn cells(batches: &[u64], cells: &[Result<ContextCell, Issue>]) -> Vec<Value> {
    let cell = |(batch, cell): (&u64, &Result<ContextCell, Issue>)| match cell {
        Ok(cell) => json!({ "batch": batch, "needed": cell.needed, "verdict": cell.verdict.slug() }),
        Err(issue) => json!({ "batch": batch, "issue": issue }),
    };
    batches.iter().zip(cells).map(cell).collect()
}

fn to_json(rows: &[ContextRow]) -> String {
    let rows = rows.iter().map(|row| json!({ "tokens": row.context, "cells": cells(&BATCHES, &row.cells) }));
    format!("{:#}\n", json!({ "schema": "headroom-contexts/1", "rows": rows.collect::<Vec<_>>() }))
}
