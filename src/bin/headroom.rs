//! The command.

use std::process::ExitCode;

fn main() -> ExitCode {
    headroom::cli::run(std::env::args_os())
}
