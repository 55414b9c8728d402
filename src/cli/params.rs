//! `headroom params`: exact parameter counts.

use std::path::PathBuf;

use clap::Args;

use super::Output;
use crate::model::config;

/// Counts the parameters of models: for each config.json a line with the total, a tab, and the path
#[derive(Args)]
pub(super) struct Arguments {
    /// config.json files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let mut output = Output::default();
    for path in &arguments.files {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        match text.and_then(|text| config::parse(&text).map_err(|issue| issue.to_string())) {
            Ok(architecture) => {
                output.out.push_str(&format!("{}\t{}\n", architecture.parameters(), path.display()));
            }
            Err(problem) => {
                output.say(format_args!("{}: {}", path.display(), problem.replace('\n', " ")));
                output.status = 2;
            }
        }
    }
    output
}
