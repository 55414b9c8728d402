//! `headroom serving`: the weights in every format, and what a card has for keys and values beside them.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::plan::{
    Between, Needed, Room, ServingRow, Share, among, kernels, least_room, serving, unanswered,
};
use crate::scenario::Scenario;
use crate::text::one_line;
use crate::units::{Bytes, grouped};

/// Shows what a model's weights take in each format, what generating needs with them, and what vLLM leaves to keys and values
///
/// Weights are counted by the layout of the format. What transformers computes from them is followed for bf16, fp16, fp32, int8 and
/// NF4; of other formats, whose kernels were not run, a range is given. vLLM's budget is that of vLLM 0.21: --vllm-percent of the card
/// (92 where nothing is said) less weights and a profiling run, in a range too, with keys and values in 16 bits or in FP8
/// (kv_cache_dtype). Several GPUs (--gpus) share the model as with --tensor-parallel-size.
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
        to_json(&base, share, &rows)
    } else {
        let sentences = [among(&base), Some(least_room(&base)), kernels(&base)];
        let sentences = sentences.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let card = base.gpu().map_err(|issue| issue.to_string())?.name;
        arguments.listing.of(table(&rows), |table| format!(
            "{} on {card}: {} × {} tokens and {} new ones\nvLLM: {} % of the card, {}; its profiling run has {} tokens and {} sequences\n{sentences}\n\n{}{}",
            one_line(&base.model_name()),
            grouped(base.batch),
            grouped(base.sequence),
            grouped(base.generation.new_tokens),
            share.percent,
            share.bytes,
            grouped(share.tokens),
            grouped(share.sequences),
            table.text(),
            reasons(&rows)
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
        Column::of("tokens in FP8", &range),
    ];
    let row = |row: &ServingRow| {
        let [kept, at_once] = room(&row.room);
        let [in_fp8, _] = room(&row.fp8);
        vec![Cell::words(row.label()), Cell::bytes(row.weights), needed(&row.needed), kept, at_once, in_fp8]
    };
    Table::new(columns, rows.iter().map(row))
}

/// Tokens, and sequences at once.
fn room(room: &Room) -> [Cell; 2] {
    let [tokens, sequences] = room.words();
    let (least, [kept, at_once]) = match room {
        Room::Tokens { tokens, sequences } => (
            Some((tokens[0] as f64, sequences[0])),
            [tokens.map(|tokens| tokens.to_string()), sequences.map(|sequences| sequences.to_string())],
        ),
        Room::Stops => (Some((0.0, 0.0)), [["0", "0"], ["0", "0"]].map(|both| both.map(str::to_owned))),
        Room::Unknown(_) => (None, Default::default()),
    };
    [
        Cell::amount(tokens, least.map(|(tokens, _)| tokens), kept),
        Cell::amount(sequences, least.map(|(_, sequences)| sequences), at_once),
    ]
}

/// Why vLLM has no answer, below the table.
fn reasons(rows: &[ServingRow]) -> String {
    let line = |(reason, formats): (&str, Vec<String>)| {
        let of =
            if formats.len() == rows.len() { String::new() } else { format!(" of {}", formats.join(", ")) };
        format!("vLLM has no answer{of}: {reason}\n")
    };
    let lines: String = unanswered(rows).into_iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// `headroom-serving/2`, as docs/serving.md has it.
fn to_json(base: &Scenario, share: Share, rows: &[ServingRow]) -> String {
    let room = |room: &Room| match room {
        Room::Tokens { tokens, sequences } => json!({ "tokens": tokens, "sequences": sequences }),
        Room::Stops => json!({ "tokens": [0, 0], "sequences": [0, 0] }),
        Room::Unknown(reason) => json!({ "reason": reason }),
    };
    let generate = |needed: &Needed| -> Value {
        match needed {
            Needed::Followed(_, needed, verdict) => {
                json!({ "least": needed, "most": needed, "verdict": verdict.slug() })
            }
            Needed::Between(Between { least, most }) => json!({ "least": least, "most": most }),
            Needed::AtLeast(least) => json!({ "least": least }),
            Needed::Unknown(issue) => json!({ "issue": issue }),
        }
    };
    let row = |row: &ServingRow| {
        json!({
            "format": row.stored.slug(),
            "label": row.label(),
            "weights": row.weights,
            "generate": generate(&row.needed),
            "vllm": room(&row.room),
            "vllm_fp8_cache": room(&row.fp8),
        })
    };
    let value = json!({
        "schema": "headroom-serving/2",
        "vllm": { "percent": share.percent, "bytes": share.bytes, "tokens": share.tokens, "sequences": share.sequences, "gpus": base.cluster.gpus },
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
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
