//! `headroom serving`: the weights in every format, and what a card has for keys and values beside them.

use clap::Args;
use serde_json::json;

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::plan::{Between, Needed, Room, ServingRow, Share, on_one, serving};
use crate::text::one_line;
use crate::units::{Bytes, grouped};

/// Shows what a model's weights take in each format, what generating needs with them, and what vLLM leaves to keys and values
///
/// Weights are counted by the layout of the format. What transformers computes from them is followed for bf16, fp16, fp32, int8 and
/// NF4; of other formats, whose kernels were not run, a range is given. vLLM's budget is that of vLLM 0.21: --vllm-percent of the card
/// (92 where nothing is said) less weights and a profiling run, in a range too.
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
    let asked = arguments.input.read()?;
    let base = asked.first();
    let (rows, share) =
        serving(&base).and_then(|rows| Ok((rows, Share::of(&base)?))).map_err(|issue| issue.to_string())?;
    Ok(Output::of(if arguments.json {
        format!("{:#}\n", json!({ "schema": "headroom-serving/1", "rows": rows }))
    } else {
        let one = on_one(&base).map_or_else(String::new, |words| format!("{words}\n"));
        let card = base.gpu().map_err(|issue| issue.to_string())?.name;
        arguments.listing.of(table(&rows), |table| format!(
            "{one}{} on {card}: {} × {} tokens and {} new ones\nvLLM: {} % of the card, {}; its profiling run has {} tokens and {} sequences\n\n{}",
            one_line(&base.model_name()),
            grouped(base.batch),
            grouped(base.sequence),
            grouped(base.generation.new_tokens),
            share.percent,
            share.bytes,
            grouped(share.tokens),
            grouped(share.sequences),
            table.text()
        ))?
    }).noting(asked.notices))
}

fn table(rows: &[ServingRow]) -> Table {
    let range = [", least", ", most"];
    let columns = [
        Column::words("Weights as"),
        Column::of("Weights", &[" (bytes)"]),
        Column::of("transformers' generate", &[", least (bytes)", ", most (bytes)", ": verdict"]),
        Column::of("vLLM: tokens kept", &range),
        Column::of("such sequences at once", &range),
    ];
    let row = |row: &ServingRow| {
        let [tokens, sequences] = row.room.words();
        let (least, kept) = match &row.room {
            Room::Tokens { tokens, sequences } => (
                Some((tokens[0] as f64, sequences[0])),
                [tokens.map(|tokens| tokens.to_string()), sequences.map(|sequences| sequences.to_string())],
            ),
            Room::Stops => (Some((0.0, 0.0)), [["0", "0"], ["0", "0"]].map(|both| both.map(str::to_owned))),
            Room::Unknown(_) => (None, Default::default()),
        };
        let [kept, at_once] = kept;
        vec![
            Cell::words(row.stored.label()),
            Cell::bytes(row.weights),
            needed(&row.needed),
            Cell::amount(tokens, least.map(|(tokens, _)| tokens), kept),
            Cell::amount(sequences, least.map(|(_, sequences)| sequences), at_once),
        ]
    };
    Table::new(columns, rows.iter().map(row))
}

/// What generating needs, at least and at most.
fn needed(needed: &Needed) -> Cell {
    let (least, most, verdict) = match needed {
        Needed::Followed(_, needed, verdict) => (Some(*needed), Some(*needed), verdict.slug()),
        Needed::Between(Between { least, most }) => (Some(*least), Some(*most), ""),
        Needed::AtLeast(least) => (Some(*least), None, ""),
        Needed::Unknown(_) => (None, None, ""),
    };
    let value = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0.to_string()).unwrap_or_default();
    let values = [value(least), value(most), verdict.to_owned()];
    Cell::amount(needed.words(), least.map(|bytes| bytes.0 as f64), values)
}
