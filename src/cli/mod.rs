//! The command: arguments to library calls, answers to text. Nothing is computed here.
//!
//! Every subcommand returns its output instead of printing it. Exit statuses: 0 all is well, 1 it does not fit
//! (`--fail-if-over`) or is off by more than allowed (`--fail-above`), 2 the input is wrong or cannot be answered.

mod check;
mod estimate;
mod fit;
mod input;
mod params;
mod table;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Fit(fit::Arguments),
    Check(check::Arguments),
}

/// What a subcommand says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Output {
    /// For standard output.
    out: String,
    /// For standard error, one message per line.
    err: String,
    /// The exit status.
    status: u8,
}

impl Output {
    /// A successful answer.
    fn of(out: String) -> Output {
        Output { out, ..Output::default() }
    }

    /// A message on standard error.
    fn say(&mut self, message: impl std::fmt::Display) {
        self.err.push_str(&format!("{message}\n"));
    }
}

/// Runs the command with these arguments, the first of which is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
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
        What::Fit(arguments) => fit::run(&arguments),
        What::Check(arguments) => check::run(&arguments),
    };
    let output = answer.unwrap_or_else(|problem: String| Output {
        err: format!("error: {problem}\n"),
        status: 2,
        ..Output::default()
    });
    // A reader that closed the pipe has read enough.
    let _ = std::io::stderr().write_all(output.err.as_bytes());
    let _ = std::io::stdout().write_all(output.out.as_bytes());
    ExitCode::from(output.status)
}
