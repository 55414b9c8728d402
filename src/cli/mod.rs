//! The command: arguments to library calls, answers to text. Nothing is computed here.
//!
//! Every subcommand returns its `Output` instead of printing it, or a sentence for standard error that says what is wrong and
//! what would be right: a `String`, as nothing but a terminal takes it. Exit statuses: 0 all is well, 1 it does not fit
//! (`--fail-if-over`, `--fail-unless-fits`) or is off by more than allowed (`--fail-above`), 2 the input is wrong or cannot be answered, or the
//! answer cannot be written.

mod batch;
mod check;
mod contexts;
mod estimate;
mod explain;
mod export;
mod fit;
mod import;
mod input;
mod layouts;
mod lengths;
mod levers;
mod need;
mod oom;
mod output;
mod params;
mod rules;
mod script;
mod serving;
mod settings;
mod table;
mod text;
mod time;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::check::Format;
pub use check::summary;
use output::Output;

/// Predicts the GPU memory of training a language model by executing the training step without data.
#[derive(Parser)]
#[command(name = "headroom", version, arg_required_else_help = true, max_term_width = 110)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Params(params::Arguments),
    Estimate(estimate::Arguments),
    Explain(explain::Arguments),
    Fit(fit::Arguments),
    Need(need::Arguments),
    Contexts(contexts::Arguments),
    Serving(serving::Arguments),
    Settings(settings::Arguments),
    Layouts(layouts::Arguments),
    Levers(levers::Arguments),
    Oom(oom::Arguments),
    Time(time::Arguments),
    Batch(batch::Arguments),
    Lengths(lengths::Arguments),
    Rules(rules::Arguments),
    Script(script::Arguments),
    Import(import::Arguments),
    Export(export::Arguments),
    Check(check::Arguments),
}

/// Runs the command with these arguments, the first of which is the program's name. The program says in
/// which formats measurements are read.
pub fn run(arguments: impl IntoIterator<Item = OsString>, measurements: Format) -> ExitCode {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => {
            // Help and version go to standard output with status 0, mistakes to standard error with 2.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let answer = match command.what {
        What::Params(arguments) => Ok(params::run(&arguments)),
        What::Estimate(arguments) => estimate::run(&arguments),
        What::Explain(arguments) => explain::run(&arguments),
        What::Fit(arguments) => fit::run(&arguments),
        What::Need(arguments) => need::run(&arguments),
        What::Contexts(arguments) => contexts::run(&arguments),
        What::Serving(arguments) => serving::run(&arguments),
        What::Settings(arguments) => settings::run(&arguments),
        What::Layouts(arguments) => layouts::run(&arguments),
        What::Levers(arguments) => levers::run(&arguments),
        What::Oom(arguments) => oom::run(&arguments),
        What::Batch(arguments) => batch::run(&arguments),
        What::Lengths(arguments) => lengths::run(&arguments),
        What::Rules(arguments) => rules::run(&arguments),
        What::Time(arguments) => time::run(&arguments),
        What::Script(arguments) => script::run(&arguments),
        What::Import(arguments) => import::run(&arguments),
        What::Export(arguments) => export::run(&arguments),
        What::Check(arguments) => check::run(&arguments, measurements),
    };
    let output = answer.unwrap_or_else(Output::problem);
    ExitCode::from(output.print())
}
