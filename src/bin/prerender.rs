//! Writes the first answer into a built page: `prerender dist/index.html`.

use std::process::ExitCode;
use std::{env, fs, io};

/// Where the answer goes.
const PLACE: &str = "Loading …";

fn main() -> ExitCode {
    let Some(path) = env::args().nth(1) else {
        eprintln!("give the page: prerender dist/index.html");
        return ExitCode::from(2);
    };
    match write(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(path: &str) -> io::Result<()> {
    let page = fs::read_to_string(path)?;
    let (before, after) =
        page.split_once(PLACE).ok_or_else(|| io::Error::other(format!("{PLACE} is not in it")))?;
    fs::write(path, [before, &headroom::ui::first_answer(), after].concat())
}
