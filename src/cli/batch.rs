//! `headroom batch`: the micro-batch that cards hold, and the accumulation that reaches an effective batch.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use super::table::aligned;
use crate::plan::{BatchRow, batch_row, fixed_and_per_sequence, on_usual_cards};
use crate::scenario::Scenario;
use crate::share;
use crate::text::one_line;
use crate::units::{Bytes, grouped};

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
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    let split = fixed_and_per_sequence(&scenario);
    let mut rows = Vec::new();
    for on_card in on_usual_cards(&scenario) {
        rows.push(batch_row(&on_card, arguments.effective).map_err(|issue| issue.to_string())?);
    }
    // of the scenario's own card the reason is told
    if let Some(Err(issue)) = rows.first().map(|row| &row.reached) {
        return Err(issue.to_string());
    }
    Ok(Output::of(match arguments.json {
        true => to_json(&rows, split),
        false => to_text(&scenario, &rows, split),
    })
    .noting(asked.notices))
}

fn to_text(scenario: &Scenario, rows: &[BatchRow], split: Option<(Bytes, Bytes)>) -> String {
    let mut out = format!("{}, {} tokens", one_line(&scenario.model_name()), grouped(scenario.sequence));
    if let Some((fixed, each)) = split {
        out.push_str(&format!(": {fixed} whatever the batch, and about {each} for each sequence"));
    }
    out.push_str("\n\n");
    let header = [
        "Card",
        "Memory",
        "Largest micro-batch",
        "Micro-batch",
        "Accumulation",
        "Effective batch",
        "Verdict",
    ];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for row in rows {
        let mut line = vec![row.name.clone(), row.memory.to_string()];
        match &row.reached {
            Ok(Some(reached)) => {
                let numbers = [reached.largest, reached.batch, reached.accumulation, reached.effective];
                line.extend(numbers.map(grouped));
                line.push(reached.verdict.label().to_lowercase());
            }
            Ok(None) => line.push("none".to_owned()),
            Err(_) => line.push("no answer".to_owned()),
        }
        lines.push(line);
    }
    out + &aligned(&lines)
}

fn to_json(rows: &[BatchRow], split: Option<(Bytes, Bytes)>) -> String {
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
        "fixed": split.map(|(fixed, _)| fixed),
        "per_sequence": split.map(|(_, each)| each),
        "cards": rows.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
