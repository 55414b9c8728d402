//! The command.

use std::process::ExitCode;

#[path = "../../tools/published/mod.rs"]
mod published;

fn main() -> ExitCode {
    headroom::cli::run(std::env::args_os(), published::FORMAT)
}
