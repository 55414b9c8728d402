//! The command: arguments to library calls, answers to text. Nothing is computed here.
//!
//! Every subcommand returns its output instead of printing it. Exit statuses: 0 all is well, 1 it does not fit
//! (`--fail-if-over`) or is off by more than allowed (`--fail-above`), 2 the input is wrong or cannot be answered, or the
//! answer cannot be written.

mod check;
mod estimate;
mod fit;
mod input;
mod levers;
mod need;
mod oom;
mod params;
mod script;
mod table;

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::check::Format;
use crate::text::one_line;

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
    Need(need::Arguments),
    Levers(levers::Arguments),
    Oom(oom::Arguments),
    Script(script::Arguments),
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

    /// A message on standard error, on one line.
    fn say(&mut self, message: impl std::fmt::Display) {
        self.err.push_str(&one_line(&message.to_string()));
        self.err.push('\n');
    }

    /// Prints it, and says with what status the command ends. A reader that closed the pipe has read enough; any other
    /// failure to write is one of the command.
    fn print(&self) -> u8 {
        let mut errors = std::io::stderr();
        // where standard error cannot be written nothing can be said
        let _ = errors.write_all(shown(&self.err).as_bytes());
        let mut out = std::io::stdout();
        match out.write_all(shown(&self.out).as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                let _ = writeln!(errors, "error: standard output: {error}");
                self.status.max(2)
            }
            Ok(()) | Err(_) => self.status,
        }
    }
}

/// The text without what a terminal would follow: names come from links and files of others'.
fn shown(text: &str) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    text.replace(steers, "\u{fffd}")
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
        What::Fit(arguments) => fit::run(&arguments),
        What::Need(arguments) => need::run(&arguments),
        What::Levers(arguments) => levers::run(&arguments),
        What::Oom(arguments) => oom::run(&arguments),
        What::Script(arguments) => script::run(&arguments),
        What::Check(arguments) => check::run(&arguments, measurements),
    };
    let output = answer.unwrap_or_else(|problem: String| Output {
        err: format!("error: {problem}\n"),
        status: 2,
        ..Output::default()
    });
    ExitCode::from(output.print())
}
