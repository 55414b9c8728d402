//! `headroom serving`: the weights in every format, and what a card has for keys and values beside them.

use clap::Args;
use serde_json::json;

use super::input::Input;
use super::output::Output;
use super::table::aligned;
use crate::plan::{ServingRow, Share, serving};
use crate::text::one_line;
use crate::units::grouped;

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
        let card = base.gpu().map_err(|issue| issue.to_string())?.name;
        format!(
            "{} on {card}: {} × {} tokens and {} new ones\nvLLM: {} % of the card, {}; its profiling run has {} tokens and {} sequences\n\n{}",
            one_line(&base.model_name()),
            grouped(base.batch),
            grouped(base.sequence),
            grouped(base.generation.new_tokens),
            share.percent,
            share.bytes,
            grouped(share.tokens),
            grouped(share.sequences),
            to_text(&rows)
        )
    }).noting(asked.notices))
}

fn to_text(rows: &[ServingRow]) -> String {
    let header =
        ["Weights as", "Weights", "transformers' generate", "vLLM: tokens kept", "such sequences at once"];
    let row = |row: &ServingRow| {
        let [tokens, sequences] = row.room.words();
        vec![row.stored.label().to_owned(), row.weights.to_string(), row.needed.words(), tokens, sequences]
    };
    let header = header.map(str::to_owned).to_vec();
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows.iter().map(row)).collect();
    aligned(&lines)
}
