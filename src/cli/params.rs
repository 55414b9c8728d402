//! `headroom params`: exact parameter counts.

use std::path::Path;
use std::sync::Arc;

use clap::Args;

use super::output::Output;
use super::text::read;
use crate::model::Architecture;
use crate::model::read::{LONGEST_CONFIG, parse};
use crate::scenario::Scenario;
use crate::scenario::keys::Key;
use crate::text::one_line;

/// Counts the parameters of models: for each a line with the total, a tab, and what it was called
#[derive(Args)]
pub(super) struct Arguments {
    /// config.json files, Hub ids of the catalogue, or sizes such as 7b
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let mut output = Output::default();
    for model in &arguments.models {
        match architecture(model) {
            Ok(architecture) => {
                output.out.push_str(&format!("{}\t{}\n", architecture.parameters(), one_line(model)));
                for note in &architecture.notes {
                    output.say(format_args!("note: {model}: {note}"));
                }
            }
            Err(problem) => {
                output.say(format_args!("{model}: {problem}"));
                output.status = 2;
            }
        }
    }
    output
}

/// What is a file is read; anything else is a model as `--model` takes it.
fn architecture(model: &str) -> Result<Arc<Architecture>, String> {
    let path = Path::new(model);
    if path.exists() || path.extension().is_some_and(|extension| extension == "json") {
        let text = read(path, LONGEST_CONFIG)?;
        return parse(&text).map(Arc::new).map_err(|issue| issue.to_string());
    }
    let mut scenario = Scenario::default();
    let named = Key::find("model").map_or(Ok(()), |key| key.read(&mut scenario, model));
    named.and_then(|()| scenario.architecture()).map_err(|issue| issue.to_string())
}
