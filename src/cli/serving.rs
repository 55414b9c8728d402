//! `headroom serving`: the weights in every format, and what a card has for keys and values beside them.

use clap::Args;
use serde_json::{Value, json};

use super::contexts;
use super::input::{Asked, Input};
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::model::catalogue;
use crate::plan::{
    Between, FormatRow, Needed, Room, SEQUENCES, ServingRow, Share, Verdict, among, by_batch, each, kernels,
    least_room, serving, told, unanswered,
};
use crate::scenario::{ModelChoice, Scenario};
use crate::text::{one_line, short};
use crate::units::{Bytes, grouped};

/// No more models than these are listed.
const MOST_MODELS: usize = 20;

/// What the tokens of the table are counted without, as on the page.
const GRAPHS: &str = "What vLLM expects of its CUDA graphs, which it takes off these tokens unless it is told otherwise, and its libraries are not counted.";

/// Shows what a model's weights take in each format, what generating needs with them, and what vLLM leaves to keys and values
///
/// Weights are counted by the layout of the format. What transformers computes from them is followed for bf16, fp16, fp32, int8 and
/// NF4; of other formats, whose kernels were not run, a range is given. vLLM's budget is that of vLLM 0.21: --vllm-percent of the card
/// (92 where nothing is said) less weights and a profiling run, in a range too, with keys and values in 16 bits or in FP8
/// (kv_cache_dtype). Several GPUs (--gpus) share the model as with --tensor-parallel-size.
///
/// With --batches, or --models, the table is one of models, formats and sequences at once instead: what transformers' generate needs.
#[derive(Args)]
pub(super) struct Arguments {
    /// Print JSON; amounts in bytes
    #[arg(long)]
    json: bool,
    /// Say what 1, 8 and 32 sequences at once need in each format that transformers' own code computes from
    #[arg(long)]
    batches: bool,
    /// The same of each model that these words mean ("llama 8b", "qwen3 <10b"); may be given several times
    #[arg(long, value_name = "WORDS", conflicts_with = "model")]
    models: Vec<String>,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read_to_generate()?;
    if arguments.batches || !arguments.models.is_empty() {
        return of_batches(arguments, asked);
    }
    let base = asked.first();
    let (rows, share) =
        serving(&base).and_then(|rows| Ok((rows, Share::of(&base)?))).map_err(|issue| issue.to_string())?;
    Ok(Output::of(if arguments.json {
        to_json(&base, share, &rows)
    } else {
        let sentences = [told(&base), among(&base), Some(least_room(&base)), kernels(&base), Some(GRAPHS.to_owned())];
        let sentences = sentences.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let card = base.gpu().map_err(|issue| issue.to_string())?.name;
        arguments.listing.of(table(&rows, base.batch), |table| format!(
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

/// The table of models, formats and sequences at once.
fn of_batches(arguments: &Arguments, asked: Asked) -> Result<Output, String> {
    let base = asked.first();
    let mut known: Vec<&str> = Vec::new();
    for words in &arguments.models {
        let found = catalogue::among(words);
        if found.is_empty() {
            return Err(format!(
                "no model is called \"{}\"; write parts of names and sizes, as in \"coder 7b\" and \"llama <10b\"",
                short(words)
            ));
        }
        let more: Vec<&str> = found.iter().map(|found| found.id).filter(|id| !known.contains(id)).collect();
        known.extend(more);
    }
    let listed = known.len().min(MOST_MODELS);
    let named = |id: &&str| {
        asked.filled(&Scenario { model: ModelChoice::Catalogue((*id).to_owned()), ..base.clone() })
    };
    let scenarios: Vec<Scenario> = match listed {
        0 => vec![base.clone()],
        _ => known.iter().take(listed).map(named).collect(),
    };
    let rows = each(&scenarios, by_batch);
    let rows: Vec<FormatRow> = rows
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|issue| issue.to_string())?
        .into_iter()
        .flatten()
        .collect();
    let card = base.gpu().map_err(|issue| issue.to_string())?.name;
    let mut output = Output::of(if arguments.json {
        let rows = rows.iter().map(|row| {
            json!({
                "model": row.model,
                "sequence": row.sequence,
                "format": row.stored.slug(),
                "label": row.stored.label(),
                "weights": row.weights,
                "cells": contexts::cells(&SEQUENCES, &row.cells),
            })
        });
        let rows = rows.collect::<Vec<_>>();
        format!("{:#}\n", json!({ "schema": "headroom-serving-batches/1", "rows": rows }))
    } else {
        let columns = [Column::words("Model"), Column::words("Weights as"), Column::of("Weights", &[" (bytes)"])];
        let row = |row: &FormatRow| {
            let model = match row.sequence == base.sequence {
                true => row.model.clone(),
                false => format!("{}: {} tokens", row.model, grouped(row.sequence)),
            };
            let own = [Cell::words(model), Cell::words(row.stored.label()), Cell::bytes(row.weights)];
            own.into_iter().chain(row.cells.iter().map(contexts::needed)).collect::<Vec<_>>()
        };
        let batches = SEQUENCES.into_iter().map(contexts::at_once);
        let table = Table::new(columns.into_iter().chain(batches), rows.iter().map(row));
        arguments.listing.of(table, |table| {
            format!(
                "transformers' generate on {card}: sequences at once, each of {} tokens and {} new ones{}\n\n{}",
                grouped(base.sequence),
                grouped(base.generation.new_tokens),
                match rows.iter().all(|row| row.sequence == base.sequence) {
                    true => "",
                    false => ", or as many as the model has positions for",
                },
                table.text()
            )
        })?
    })
    .noting(asked.notices);
    if listed < known.len() {
        output.say(format_args!("{} more models: say which in more words", known.len() - listed));
    }
    Ok(output)
}

/// The formats; whether vLLM has room for so many sequences of theirs, where there are several.
fn table(rows: &[ServingRow], asked: u64) -> Table {
    let range = [", least", ", most"];
    let columns = [
        Column::words("Weights as"),
        Column::of("Weights", &[" (bytes)"]),
        Column::of("transformers' generate", &[", least (bytes)", ", most (bytes)", ": verdict"]),
        Column::of("vLLM: tokens kept", &range),
        Column::of("such sequences at once", &[", least", ", most", ": verdict"]),
        Column::of("tokens in FP8", &range),
        Column::of("starts at its context", &["", ": --max-model-len, longest"]),
    ];
    let row = |row: &ServingRow| {
        let holds = row.holds(asked).filter(|_| asked > 1);
        let [kept, at_once] = room(&row.room, Some((asked, holds)));
        let [in_fp8, _] = room(&row.fp8, None);
        let start = match &row.start {
            None => Cell::amount("–".to_owned(), None, ["", ""].map(str::to_owned)),
            Some(start) => {
                let values = [start.slug().to_owned(), start.longest.to_string()];
                Cell::amount(start.words(), Some(start.longest as f64), values)
            }
        };
        let label = Cell::words(row.label());
        vec![label, Cell::bytes(row.weights), needed(&row.needed), kept, at_once, in_fp8, start]
    };
    Table::new(columns, rows.iter().map(row))
}

/// Tokens, and sequences at once; with the verdict on so many, where one is asked for.
fn room(room: &Room, asked: Option<(u64, Option<Verdict>)>) -> [Cell; 2] {
    let [tokens, mut sequences] = room.words();
    let (least, kept, at_once) = match room {
        Room::Tokens { tokens, sequences } => {
            let least = Some((tokens[0] as f64, sequences[0]));
            (least, tokens.map(|tokens| tokens.to_string()), sequences.map(|sequences| sequences.to_string()))
        }
        Room::Stops => {
            let none = || ["0", "0"].map(str::to_owned);
            (Some((0.0, 0.0)), none(), none())
        }
        Room::Unknown(_) => (None, Default::default(), Default::default()),
    };
    let mut values = Vec::from(at_once);
    if let Some((asked, verdict)) = asked {
        values.push(verdict.map(|verdict| verdict.slug().to_owned()).unwrap_or_default());
        if let Some(verdict) = verdict {
            sequences.push_str(&format!(" of {asked}: {}", verdict.label().to_lowercase()));
        }
    }
    [
        Cell::amount(tokens, least.map(|(tokens, _)| tokens), kept),
        Cell::amount(sequences, least.map(|(_, sequences)| sequences), values),
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
            Needed::Between(Between { least, most }, verdict) => {
                json!({ "least": least, "most": most, "verdict": verdict.slug() })
            }
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
            "vllm_holds": row.holds(base.batch).map(Verdict::slug),
            "vllm_fp8_cache": room(&row.fp8),
            "starts": row.start.map(|start| json!({
                "context": start.context,
                "at_own_context": start.slug(),
                "longest_max_model_len": start.longest,
            })),
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
        Needed::Between(Between { least, most }, verdict) => (Some(*least), Some(*most), verdict.slug()),
        Needed::AtLeast(least) => (Some(*least), None, ""),
        Needed::Unknown(_) => (None, None, ""),
    };
    let value = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0.to_string()).unwrap_or_default();
    let values = [value(least), value(most), verdict.to_owned()];
    Cell::amount(needed.words(), least.map(|bytes| bytes.0 as f64), values)
}
