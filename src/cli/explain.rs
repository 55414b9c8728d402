//! `headroom explain`: every tensor at the peak, with its sum, its reason and the source of that.

use std::fmt::Write;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use super::table::aligned;
use crate::explain::{Line, explain};
use crate::export::{Answer, whose};
use crate::memory::{Category, Memory};
use crate::plan::Replayed;
use crate::text::one_line;
use crate::units::{Bytes, grouped};

/// Shows why each part of the memory is there: the tensors at the peak, the sum behind each, and the source of it
#[derive(Args)]
pub(super) struct Arguments {
    /// Only this part
    #[arg(long, value_name = "PART", value_parser = PossibleValuesParser::new(Category::ALL.map(Category::slug)))]
    part: Option<String>,
    /// Print JSON; amounts in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    let answer = Answer::of(scenario);
    let memory = answer.estimate.memory.as_ref().ok_or_else(|| answer.refusal().to_string())?;
    let scenario = &answer.scenario;
    let run = || Replayed::of(&*scenario.architecture()?, scenario, &scenario.gpu()?, memory);
    let Replayed { recording, on_card, memory, peak } = run().map_err(|issue| issue.to_string())?;
    let mut lines = explain(&recording.tensors_at(peak, on_card.settings), scenario);
    if let Some(part) = &arguments.part {
        lines.retain(|line| line.category.slug() == part);
    }
    Ok(Output::of(match arguments.json {
        true => to_json(&memory, &lines),
        false => {
            let whose = whose(scenario, &memory).map_or_else(String::new, |whose| format!(", {whose}"));
            to_text(&one_line(&scenario.model_name()), &whose, &memory, &lines)
        }
    })
    .noting(asked.notices))
}

fn exact(bytes: Bytes) -> String {
    format!("{} bytes", grouped(bytes.0))
}

fn to_text(model: &str, whose: &str, memory: &Memory, lines: &[Line]) -> String {
    let (phase, peak) = memory.peak();
    let mut out =
        format!("{model}: {} allocated at the peak, in the {}{whose}\n", exact(peak.bytes), phase.label());
    for part in lines.chunk_by(|a, b| a.category == b.category) {
        let category = part[0].category;
        // Writing to a `String` cannot fail.
        let _ = writeln!(out, "\n{}: {}", category.label(), exact(peak.parts.get(category)));
        // What holds for several lines is said once.
        for same in part.chunk_by(|a, b| (&a.why, &a.source) == (&b.why, &b.source)) {
            let row = |line: &Line| vec![format!("  {}", line.what), line.formula.clone(), exact(line.bytes)];
            let rows: Vec<_> = same.iter().map(row).collect();
            let _ = writeln!(out, "{}    {}. {}", aligned(&rows), same[0].why, same[0].source);
        }
    }
    out
}

fn to_json(memory: &Memory, lines: &[Line]) -> String {
    let line = |line: &Line| -> Value {
        json!({
            "part": line.category.slug(),
            "what": line.what,
            "formula": line.formula,
            "bytes": line.bytes,
            "why": line.why,
            "source": line.source,
        })
    };
    let (phase, peak) = memory.peak();
    let value = json!({
        "schema": "headroom-explain/1",
        "phase": phase.slug(),
        "bytes": peak.bytes,
        "tensors": lines.iter().map(line).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
