//! `headroom oom`: what an out-of-memory message means.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;

use super::input::Input;
use super::levers::{lines, lower};
use super::output::Output;
use super::table::{Cell, Column, Table, aligned};
use super::text::{is_standard_input, read_given};
use crate::oom::{Decoded, Likely, Message, Offer, Suspect, decode, of_another, remedies};
use crate::plan::{Change, Lever};
use crate::scenario::Scenario;
use crate::share;

/// The longest text that is read.
const LONGEST: usize = 16 << 20;
/// So many changes are printed.
const REMEDIES: usize = 5;

/// Decodes an out-of-memory message: which tensor it was, where the memory was, which change removes it
#[derive(Args)]
pub(super) struct Arguments {
    /// The message, a log that has it, or the output of memory_summary() or nvidia-smi; standard input if not given, or -.
    /// Without it a log is the argument without a name, too: headroom oom error.log
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    text: Option<PathBuf>,
    /// Print JSON; amounts in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    if let Some(why) = of_another_library(arguments) {
        return Err(why.to_owned());
    }
    let log = if arguments.text.is_none() { log(&arguments.input) } else { None };
    if log.is_none() && is_standard_input(arguments.text.as_deref()) && arguments.input.is_standard_input() {
        return Err("standard input is the scenario here: give the message as a file, --text FILE".to_owned());
    }
    let input = if log.is_some() { arguments.input.without_source() } else { arguments.input.clone() };
    let asked = input.read().map_err(|error| match arguments.text {
        None => format!(
            "{error}\nThe argument without a name is the scenario, or a log with an error that is known here; any text is given as --text FILE"
        ),
        Some(_) => error,
    })?;
    let scenario = asked.first();
    let text = match log {
        Some(log) => log,
        None => read_given(arguments.text.as_deref(), LONGEST)?,
    };
    let decoded = decode(&text, &scenario).map_err(|error| match of_another(&text) {
        Some(why) => why.to_owned(),
        None => error.to_string(),
    })?;
    // a scenario without an answer has no changes that help either; what the message says stands
    let remedies = remedies(&decoded).unwrap_or_default();
    Ok(Output::of(match arguments.json {
        true => to_json(&decoded, &remedies),
        false => to_text(&decoded, &remedies),
    })
    .noting(asked.notices))
}

/// What files are called that a run's output was written to.
const LOGS: [&str; 4] = ["log", "txt", "out", "err"];

/// What is said of the file that stands where a scenario does, where it is another library's error.
fn of_another_library(arguments: &Arguments) -> Option<&'static str> {
    let path = arguments.input.file().filter(|_| arguments.text.is_none())?;
    let text = read_given(Some(path), LONGEST).ok()?;
    of_another(&text).filter(|_| text.parse::<Message>().is_err() && arguments.input.read().is_err())
}

/// The text of the file that stands where a scenario does, where it is a log: a message is found in it, and it is called one or can be read
/// as no scenario.
fn log(input: &Input) -> Option<String> {
    let path = input.file()?;
    let text = read_given(Some(path), LONGEST).ok()?;
    let is_called_one = path.extension().is_some_and(|extension| LOGS.iter().any(|log| extension == *log));
    let is_one = text.parse::<Message>().is_ok() && (is_called_one || input.read().is_err());
    is_one.then_some(text)
}

fn to_text(decoded: &Decoded, remedies: &[Lever]) -> String {
    let Decoded { scenario, card, account, suspects, likely, guesses, findings, offers, verdict, .. } =
        decoded;
    let mut out = String::new();
    if let Some(headline) = decoded.headline(|bytes| bytes.to_string()) {
        out.push_str(&format!("{headline}\n"));
    }
    if !account.is_empty() {
        out.push_str("\nWhere the card's memory was\n\n");
        let rows: Vec<_> = account
            .iter()
            .map(|(holder, bytes)| vec![holder.label().to_owned(), bytes.to_string()])
            .collect();
        out.push_str(&aligned(&rows));
    }
    for (index, Suspect { line, phase, allocated, agrees, place }) in suspects.iter().enumerate() {
        let header = match (index, agrees) {
            (0, Some(true)) => "The tensor",
            (0, None) => "Of that size in this scenario, so it could be",
            (0, Some(false)) => "Tensors of that size in this scenario",
            (_, _) => "or",
        };
        out.push_str(&format!(
            "\n{header}\n\n  {}: {}\n  in the {phase}, with {allocated} allocated before it{}\n  {}\n  {}\n",
            line.what,
            line.formula,
            place.map_or_else(String::new, |place| format!("; the traceback stands {place}")),
            line.why,
            line.source
        ));
    }
    if !likely.is_empty() {
        out.push_str(
            "\nWas it this run? In each a tensor of that size is asked for when the card may be as full\n\n",
        );
        let row = |Likely { changes, suspect, .. }: &Likely| {
            lines(changes, [&suspect.line.what, &suspect.phase].map(Cell::words).into())
        };
        let columns = ["Change", "Tensor", "Phase"].map(Column::words);
        out.push_str(&Table::new(columns, likely.iter().map(row)).text());
        out.push('\n');
        likely.iter().for_each(|run| out.push_str(&format!("  {}\n", command(&run.scenario))));
    }
    if !guesses.is_empty() {
        out.push_str("\nWhat may have that size\n\n");
        for guess in guesses {
            let words = guess.in_words(|bytes| bytes.to_string());
            out.push_str(&format!("  {}: {words}\n    {}\n", guess.kind, command(&guess.scenario)));
        }
    }
    if !findings.is_empty() {
        out.push('\n');
    }
    for finding in findings {
        out.push_str(&format!("- {finding}\n"));
    }
    if !offers.is_empty() {
        out.push_str("\nChange the scenario\n\n");
        let row = |Offer { changes, why, .. }: &Offer| lines(changes, vec![Cell::words(why.clone())]);
        out.push_str(&Table::new(["Change", "Why"].map(Column::words), offers.iter().map(row)).text());
        out.push('\n');
        offers.iter().for_each(|offer| out.push_str(&format!("  {}\n", command(&offer.scenario))));
    }
    // what becomes of a scenario that is another run says nothing of the message
    if let Some(verdict) = verdict.filter(|_| !decoded.is_of_another_run()) {
        let gpu = scenario.gpu().map_or_else(|_| "the card".to_owned(), |gpu| gpu.name.to_string());
        let name = scenario.model_name();
        out.push_str(&format!("\nHeadroom's verdict on {name} as described, on {gpu}: {}\n", lower(verdict)));
    }
    if !remedies.is_empty() {
        let of = if decoded.is_of_the_run() { "" } else { " the scenario as described" };
        out.push_str(&format!("\nWhat helps{of}\n\n"));
        let row = |lever: &Lever| {
            let needed = lever.needed_in_words(|bytes| bytes.to_string());
            let cells = [lever.cost.label().to_owned(), needed, lower(lever.verdict)].map(Cell::words);
            // that the card is another one is said once, above
            let changes: Vec<Change> =
                lever.changes.iter().filter(|change| !card.contains(change)).cloned().collect();
            (!changes.is_empty()).then(|| lines(&changes, cells.into()))
        };
        let columns = ["Change", "Costs", "Needs", "Verdict"].map(Column::words);
        out.push_str(&Table::new(columns, remedies.iter().take(REMEDIES).filter_map(row)).text());
    }
    // where nothing was asked for, the first part begins it
    out.trim_start().to_owned()
}

/// The command that goes on with a run.
fn command(scenario: &Scenario) -> String {
    format!("headroom estimate '{}'", share::encode(std::slice::from_ref(scenario)))
}

fn to_json(decoded: &Decoded, remedies: &[Lever]) -> String {
    let remedy = |lever: &Lever| {
        json!({
            "changes": lever.changes,
            "cost": lever.cost,
            "needed": lever.needed,
            "verdict": lever.verdict.slug(),
            "link": share::encode(std::slice::from_ref(&lever.scenario)),
        })
    };
    let Decoded { message, scenario, account, suspects, likely, guesses, findings, offers, verdict, .. } =
        decoded;
    let value = json!({
        "schema": "headroom-oom/1",
        "message": message,
        "link": share::encode(std::slice::from_ref(scenario)),
        "account": account.iter().map(|(holder, bytes)| json!({"holder": holder, "bytes": bytes})).collect::<Vec<_>>(),
        "suspects": suspects,
        "likely": likely.iter().map(|run| json!({
            "changes": run.changes,
            "suspect": run.suspect,
            "link": share::encode(std::slice::from_ref(&run.scenario)),
        })).collect::<Vec<_>>(),
        "guesses": guesses,
        "findings": findings.iter().map(|finding| json!({"kind": finding, "words": finding.to_string()})).collect::<Vec<_>>(),
        "offers": offers.iter().map(|offer| json!({
            "changes": offer.changes,
            "why": offer.why,
            "link": share::encode(std::slice::from_ref(&offer.scenario)),
        })).collect::<Vec<_>>(),
        "verdict": verdict.map(|verdict| verdict.slug()),
        "remedies": remedies.iter().map(remedy).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
