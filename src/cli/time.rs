//! `headroom time`: how long a run takes and what it costs.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use crate::estimate::estimate;
use crate::export;
use crate::issue::Issue;
use crate::plan::{Pace, pace};
use crate::scenario::Scenario;
use crate::share;
use crate::text::one_line;

/// Shows how long a step takes, and how long and at what price a data set trains
///
/// Rougher than memory, and so a range: what the step computes is counted as it runs, and what the card reaches of its data
/// sheet is taken from measured runs, which are named. Where none is near there is no answer. Of `--task generate` it is one call,
/// its first new token and each further one.
#[derive(Args)]
pub(super) struct Arguments {
    /// Print JSON: seconds, tokens per second, hours and dollars, each as least, typical and most
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let answers: Vec<(Scenario, Result<Pace, Issue>)> = asked
        .scenarios
        .into_iter()
        .map(|scenario| {
            let answer = of(&scenario);
            (scenario, answer)
        })
        .collect();
    let mut output = Output::of(match arguments.json {
        true => to_json(&answers),
        false => answers
            .iter()
            .filter_map(|(scenario, pace)| Some(to_text(scenario, pace.as_ref().ok()?)))
            .collect::<Vec<_>>()
            .join("\n"),
    })
    .noting(asked.notices);
    for (scenario, answer) in &answers {
        if answer.is_ok() && export::Answer::of_tensors(scenario.clone()).runs() == Some(false) {
            output.say(format_args!("note: {} does not run on this card as it is", scenario.model_name()));
        }
        if let Err(issue) = answer {
            output.say(format_args!("no answer: {}: {issue}", scenario.model_name()));
            output.status = 2;
        }
    }
    Ok(output)
}

fn of(scenario: &Scenario) -> Result<Pace, Issue> {
    let estimate = estimate(scenario);
    match &estimate.memory {
        Some(memory) => pace(scenario, memory),
        None => Err(export::Answer::of_tensors(scenario.clone()).refusal()),
    }
}

fn to_text(scenario: &Scenario, pace: &Pace) -> String {
    let ask = "say what an hour of one GPU costs you (--gpu-hour-cents 250 for $2.50)";
    let lines = export::pace_lines(scenario, pace, ask);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, words)| format!("{name:width$}  {}\n", one_line(words))).collect()
}

fn to_json(answers: &[(Scenario, Result<Pace, Issue>)]) -> String {
    let one = |(scenario, answer): &(Scenario, Result<Pace, Issue>)| -> Value {
        let mut value = match answer {
            Ok(pace) => export::pace_json(scenario, pace),
            Err(issue) => json!({ "issue": issue }),
        };
        value["link"] = json!(share::encode(std::slice::from_ref(scenario)));
        value
    };
    let value =
        json!({ "schema": "headroom-time/1", "answers": answers.iter().map(one).collect::<Vec<_>>() });
    format!("{value:#}\n")
}
