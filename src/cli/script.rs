//! `headroom script`: the file that runs a scenario.

use clap::Args;

use super::input::Input;
use super::output::Output;
use crate::export;

/// Prints the Python file that runs a scenario with the training library chosen: train.py
#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    Ok(Output::of(export::script(&scenario).map_err(|issue| issue.to_string())?).noting(asked.notices))
}
