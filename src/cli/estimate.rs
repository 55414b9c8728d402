//! `headroom estimate`: what a training run needs.

use clap::Args;

use super::input::Input;
use super::output::Output;
use crate::export::{self, Answer};
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::plan::{Margin, Outcome, Replayed, Verdict, within};
use crate::units::Bytes;

/// Estimates what a training run needs; exits with 2 where there is no answer
#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Exit with 1 where more than that is needed: 24GB, 22.5GiB
    #[arg(long, value_name = "MEMORY")]
    fail_if_over: Option<Bytes>,
    /// Exit with 1 where it does not run on the card as it is
    #[arg(long, conflicts_with = "fail_if_over")]
    fail_unless_fits: bool,
    #[command(flatten)]
    format: Format,
}

/// How to print.
#[derive(Args)]
#[group(multiple = false)]
struct Format {
    /// Print JSON: an object, or an array of them where a link holds several scenarios; amounts in bytes
    #[arg(long)]
    json: bool,
    /// Print a Markdown table
    #[arg(long)]
    markdown: bool,
    /// Print comma-separated values; amounts in bytes
    #[arg(long)]
    csv: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let answers: Vec<Answer> = asked.scenarios.into_iter().map(Answer::of).collect();
    let unanswered = answers.iter().all(|answer| answer.estimate.memory.is_none());
    let mut output = Output::of(match &arguments.format {
        Format { json: true, .. } => json(&answers),
        Format { markdown: true, .. } => export::markdown(&answers, ""),
        Format { csv: true, .. } => export::csv(&answers),
        // Standard error says why.
        Format { .. } if unanswered => String::new(),
        Format { .. } => export::text(&answers),
    })
    .noting(asked.notices);
    if !asked.misread.is_empty() && (arguments.fail_unless_fits || arguments.fail_if_over.is_some()) {
        let told: Vec<_> = asked.misread.iter().map(|misread| misread.told.as_str()).collect();
        output.say(format_args!("error: the limit was not checked: {}", told.join("; ")));
        output.status = 2;
    }
    for answer in &answers {
        let Answer { scenario, estimate, .. } = answer;
        let Some(memory) = &estimate.memory else {
            let errors = estimate.errors().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            output.say(format_args!("error: {}: {errors}", scenario.model_name()));
            output.status = 2;
            continue;
        };
        if arguments.fail_unless_fits && answer.runs() != Some(true) {
            let verdict = answer.verdict().map_or("not known", Verdict::label).to_lowercase();
            let gpu = scenario.gpu().map_err(|issue| issue.to_string())?;
            output.say(format_args!("{verdict}: {} on {}", scenario.model_name(), gpu.name));
            output.status = output.status.max(1);
        }
        let Some(limit) = arguments.fail_if_over else { continue };
        let name = scenario.model_name();
        let needed = memory.needed();
        if let Margin::Overshoot(over) = within(needed, limit).margin {
            let vllm = match scenario.vllm_beside() {
                None => String::new(),
                Some(share) => format!(" with vLLM's {}", share.bytes()),
            };
            output.say(format_args!("over: {name} needs {needed}{vllm}, {over} more than {limit}"));
            output.status = output.status.max(1);
            continue;
        }
        let run = || {
            let gpu = Gpu { memory: limit, ..scenario.gpu()? };
            Replayed::of(&*scenario.architecture()?, scenario, &gpu, memory)
        };
        let on_card = run().map_err(|issue: Issue| issue.to_string())?.on_card;
        let holes = match on_card.outcome {
            Outcome::Runs => continue,
            Outcome::RunsExpandable if on_card.close => {
                "; with --allocator expandable it is close, and may run"
            }
            Outcome::RunsExpandable => "; it runs with --allocator expandable",
            Outcome::Fails(_) => "",
        };
        output.say(format_args!(
            "over: {name} needs {needed}, and with the holes between its tensors more than {limit}{holes}"
        ));
        output.status = output.status.max(1);
    }
    Ok(output)
}

fn json(answers: &[Answer]) -> String {
    let values: Vec<_> = answers.iter().map(export::json).collect();
    let value = match <[_; 1]>::try_from(values) {
        Ok([one]) => one,
        Err(several) => several.into(),
    };
    format!("{value:#}\n")
}
