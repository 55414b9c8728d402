//! The files that `headroom script` writes: what was run took what is shown, and whatever is asked for is written or refused.

#![cfg(not(target_arch = "wasm32"))]

use headroom::export::script;
use headroom::model::catalogue;
use headroom::plan::Answer;
use headroom::scenario::{CustomModel, Method, ModelChoice, Scenario, Stack};
use headroom::share;
use serde_json::Value;

/// `tests/fixtures/measurements/scripts.json`: what files took that `tools/run_script.py` ran, as `data/SOURCES.md` says.
const RAN: &str = include_str!("fixtures/measurements/scripts.json");

/// How far the allocated peak may be off.
const ALLOCATED: f64 = 0.005;

/// Files as they were run, by what their links end in.
const FILES: [(&str, &str); 3] = [
    ("transformers", include_str!("fixtures/scripts/transformers.py")),
    ("trl", include_str!("fixtures/scripts/trl.py")),
    ("unsloth", include_str!("fixtures/scripts/unsloth.py")),
];

fn linked(link: &str) -> Scenario {
    let shared = share::decode(link);
    assert!(shared.notices.is_empty(), "{link}: {:?}", shared.notices);
    shared.scenarios.into_iter().next().expect("a link holds a scenario")
}

#[test]
fn a_file_that_runs_takes_what_is_shown() {
    let rows: Vec<Value> = serde_json::from_str(RAN).expect("the rows are JSON");
    assert!(rows.len() >= 12, "{} rows", rows.len());
    for row in rows {
        let link = row["link"].as_str().expect("a row has a link");
        let scenario = linked(link);
        script(&scenario).unwrap_or_else(|issue| panic!("{link}: {issue}"));
        let memory = Answer::of(scenario).estimate.memory.unwrap_or_else(|| panic!("{link}: no answer"));
        let measured = row["allocated"].as_f64().expect("a row has a figure");
        let off = memory.peak().1.bytes.0 as f64 / measured - 1.0;
        assert!(off.abs() <= ALLOCATED, "{link}: {:.3} %", off * 100.0);
    }
}

/// A line of a file changes with a word of its own here: what was run is what is written.
#[test]
fn files_are_the_ones_that_were_run() {
    for (name, file) in FILES {
        let link = file.lines().find_map(|line| line.split('\'').nth(1)).expect("a file says its link");
        let written = script(&linked(link)).unwrap_or_else(|issue| panic!("{name}: {issue}"));
        assert_eq!(written, file, "{name}");
    }
}

#[test]
fn a_file_is_written_or_refused_for_every_model_library_and_method() {
    let (mut written, mut refused) = (0, 0);
    for entry in catalogue::entries() {
        for (stack, method) in
            Stack::ALL.iter().flat_map(|stack| Method::ALL.iter().map(move |method| (*stack, *method)))
        {
            let mut scenario =
                Scenario { model: ModelChoice::Catalogue(entry.id.into()), ..Scenario::default() };
            scenario.change(|scenario| scenario.stack = stack);
            scenario.change(|scenario| scenario.method = method);
            match script(&scenario) {
                Ok(text) => {
                    written += 1;
                    let link = share::encode(std::slice::from_ref(&scenario));
                    assert!(text.contains(&format!("headroom estimate '{link}'")), "{text}");
                    let count = |wanted: char| text.chars().filter(|c| *c == wanted).count();
                    for (open, close) in [('(', ')'), ('[', ']'), ('{', '}')] {
                        assert_eq!(count(open), count(close), "{text}");
                    }
                }
                Err(issue) => {
                    refused += 1;
                    assert!(issue.fix.is_some(), "{issue}");
                }
            }
        }
    }
    assert!(written > refused && refused > 0, "{written} written, {refused} refused");
}

#[test]
fn a_name_stays_a_name() {
    let config = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 256}"#;
    for stack in [Stack::Transformers, Stack::Trl, Stack::Unsloth] {
        let name = "m\"\nimport os; os.abort()  # \\";
        let model = ModelChoice::Custom(CustomModel::read(name, config).expect("it is a config").into());
        let text = script(&Scenario { model, stack, ..Scenario::default() }).expect("it can be written");
        assert!(!text.lines().any(|line| line.starts_with("import os; ")), "{text}");
        assert!(text.contains(r#"MODEL = "m\"\nimport os; os.abort()  # \\""#), "{text}");
    }
}
