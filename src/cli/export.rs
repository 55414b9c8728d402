//! `headroom export`: the scenario as a configuration of another project.

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::input::Input;
use super::output::Output;
use crate::export::{Configuration, Written, configuration};

/// Prints a configuration of another project that runs a scenario
#[derive(Args)]
pub(super) struct Arguments {
    /// Which project's
    #[arg(value_name = "FORMAT", value_parser = PossibleValuesParser::new(Configuration::CHOICES.map(|choice| choice.slug)))]
    format: String,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    let which = Configuration::ALL.into_iter().find(|which| which.choice().slug == arguments.format);
    // clap has refused any other name
    let which = which.unwrap_or(Configuration::Python);
    let written = configuration(&scenario, which).map_err(|issue| issue.to_string())?;
    let mut output = Output::of(written.text).noting(asked.notices);
    for clause in &written.differs {
        output.say(format_args!("note: otherwise than in the scenario: {clause}"));
    }
    if !written.absent.is_empty() {
        output.say(format_args!("note: {}: {}", Written::ABSENT.to_lowercase(), written.absent.join("; ")));
    }
    if !written.differs.is_empty() {
        output.say(format_args!("note: what the file runs needs {}", written.needed));
    }
    Ok(output)
}
