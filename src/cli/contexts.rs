//! `headroom contexts`: batches × lengths that a card generates for.

use clap::Args;
use serde_json::json;

use super::input::Input;
use super::output::Output;
use super::table::aligned;
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
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
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
        format!(
            "{of}, {new} new tokens after a prompt; sequences in parallel by tokens of each\n\n{}",
            to_text(&rows)
        )
    })
    .noting(asked.notices))
}

fn to_text(rows: &[ContextRow]) -> String {
    let mut header = vec!["Tokens".to_owned()];
    header.extend(BATCHES.iter().map(|batch| grouped(*batch)));
    let row = |row: &ContextRow| {
        let cells = row.cells.iter().map(|cell| match cell {
            Ok(ContextCell { needed, verdict: Verdict::Fits, .. }) => needed.to_string(),
            Ok(ContextCell { needed, verdict, .. }) => format!("{needed} {}", verdict.slug()),
            Err(_) => "no answer".to_owned(),
        });
        std::iter::once(grouped(row.context)).chain(cells).collect()
    };
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows.iter().map(row)).collect();
    aligned(&lines)
}

fn to_json(rows: &[ContextRow]) -> String {
    let rows = rows.iter().map(|row| {
        let cells = BATCHES.iter().zip(&row.cells).map(|(batch, cell)| match cell {
            Ok(cell) => json!({ "batch": batch, "needed": cell.needed, "verdict": cell.verdict.slug() }),
            Err(issue) => json!({ "batch": batch, "issue": issue }),
        });
        json!({ "tokens": row.context, "cells": cells.collect::<Vec<_>>() })
    });
    format!("{:#}\n", json!({ "schema": "headroom-contexts/1", "rows": rows.collect::<Vec<_>>() }))
}
