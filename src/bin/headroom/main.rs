//! The command.

use std::process::ExitCode;

mod published;

fn main() -> ExitCode {
    headroom::cli::run(std::env::args_os(), published::FORMAT)
}
