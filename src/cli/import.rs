//! `headroom import`: configurations of other projects, and what was understood of them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::{Value, json};

use super::output::Output;
use super::text::read_given;
use crate::export;
use crate::import::{self, Format, Left, Understood};
use crate::scenario::Scenario;
use crate::share;

/// Reads configurations of TRL, transformers, Unsloth, axolotl, LLaMA-Factory, torchtune, torchtitan, Megatron-LM, accelerate, DeepSpeed
/// and vLLM, and says what was understood
#[derive(Args)]
pub(super) struct Arguments {
    /// The files, each over what those before it said; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    files: Vec<PathBuf>,
    /// The scenario that they are read over: its card, and whatever they say nothing of; a share link or its query string
    #[arg(long, value_name = "LINK")]
    over: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the scenario alone, as a file that every other subcommand reads
    #[arg(long, conflicts_with = "json")]
    scenario: bool,
}

/// The files one after the other over a scenario, with what was understood of each.
pub(super) fn files(
    files: &[PathBuf],
    base: Scenario,
) -> Result<(Scenario, Vec<(String, Understood)>), String> {
    let mut scenario = base;
    let mut all = Vec::new();
    for path in files {
        let (name, understood) = one(path, &scenario)?;
        scenario = understood.scenario.clone();
        all.push((name, understood));
    }
    Ok((scenario, all))
}

fn one(path: &Path, base: &Scenario) -> Result<(String, Understood), String> {
    let name = if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
    let text = read_given(Some(path), import::LONGEST)?;
    let understood = import::read(&text, base).map_err(|error| format!("{name}: {error}"))?;
    Ok((name, understood))
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let base = match &arguments.over {
        None => Scenario::default(),
        Some(link) => share::decode(link).scenarios.into_iter().next().unwrap_or_default(),
    };
    let (scenario, all) = files(&arguments.files, base)?;
    let link = share::encode(std::slice::from_ref(&scenario));
    if arguments.scenario {
        return Ok(Output::of(format!("{:#}\n", json!(scenario))));
    }
    if arguments.json {
        let read: Vec<Value> = all.iter().map(|(name, understood)| to_json(name, understood)).collect();
        return Ok(Output::of(format!(
            "{:#}\n",
            json!({ "read": read, "link": link, "scenario": scenario })
        )));
    }
    let mut out = String::new();
    for (name, understood) in &all {
        out.push_str(&to_text(name, understood));
    }
    // what serves is answered by another subcommand
    let serves = all.last().is_some_and(|(_, understood)| understood.format == Format::Vllm);
    let subcommand = if serves { "serving" } else { "estimate" };
    out.push_str(&format!("link  headroom {subcommand} '{link}'\n"));
    Ok(Output::of(out))
}

/// What was not followed, for standard error.
pub(super) fn notices(all: &[(String, Understood)]) -> impl Iterator<Item = String> {
    all.iter().flat_map(|(name, understood)| understood.left.iter().map(move |left| told(name, left)))
}

/// What is not followed of the file of that name, and why.
pub(super) fn told(name: &str, left: &Left) -> String {
    format!("{name}: {}: {}", left.said, left.why)
}

fn to_json(name: &str, understood: &Understood) -> Value {
    let mut read = export::understood_json(understood);
    read["file"] = name.into();
    read
}

fn to_text(name: &str, understood: &Understood) -> String {
    let Understood { format, taken, assumed, idle, left, took, scenario: _ } = understood;
    let mut out = format!("{name}: {}\n", format.label());
    let mut section = |title: &str, rows: Vec<[&str; 3]>| {
        if rows.is_empty() {
            return;
        }
        out.push_str(&format!("\n{title}\n"));
        let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (wide(0), wide(1));
        for [label, value, said] in rows {
            out.push_str(format!("  {label:first$}  {value:second$}  {said}").trim_end());
            out.push('\n');
        }
    };
    section("applied", taken.iter().map(|one| [one.label, &one.value, &one.said]).collect());
    section("assumed", assumed.iter().map(|one| [one.label, &one.value, &one.why]).collect());
    let kept = understood.kept();
    section("kept from before", kept.iter().map(|(label, value)| [*label, value.as_str(), ""]).collect());
    section("not understood", left.iter().map(|one| [one.said.as_str(), &one.why, ""]).collect());
    let took = took.as_deref().unwrap_or_default().split(',').filter_map(measured);
    section("measured, in bytes", took.collect());
    if !idle.is_empty() {
        out.push_str(&format!("\nwithout effect on memory\n  {}\n", idle.join(", ")));
    }
    out.push('\n');
    out
}

/// What a run took, of one kind; nothing where a link says something else in its place.
fn measured(said: &str) -> Option<[&str; 3]> {
    let (kind, bytes) = said.split_once(':')?;
    let is_figure = ["allocated", "reserved", "driver"].contains(&kind) && bytes.parse::<u64>().is_ok();
    is_figure.then_some([kind, bytes, ""])
}
