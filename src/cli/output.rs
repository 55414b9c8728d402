//! What a subcommand says, and where it goes.

use std::io::{ErrorKind, Write};

use crate::text::one_line;

/// What a subcommand says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    /// For standard output.
    pub out: String,
    /// For standard error, one message per line.
    pub err: String,
    /// The exit status.
    pub status: u8,
}

impl Output {
    /// A successful answer.
    pub fn of(out: String) -> Output {
        Output { out, ..Output::default() }
    }

    /// The same with what could not be followed of what was asked.
    pub fn noting(mut self, notices: Vec<String>) -> Output {
        for notice in notices {
            self.say(format_args!("note: {notice}"));
        }
        self
    }

    /// Nothing but what is wrong.
    pub fn problem(problem: String) -> Output {
        Output { err: format!("error: {problem}\n"), status: 2, ..Output::default() }
    }

    /// A message on standard error, on one line.
    pub fn say(&mut self, message: impl std::fmt::Display) {
        self.err.push_str(&one_line(&message.to_string()));
        self.err.push('\n');
    }

    /// Prints it, and says with what status the command ends. A reader that closed the pipe has read enough; any other
    /// failure to write is one of the command.
    pub fn print(&self) -> u8 {
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
