//! Everything that reads what somebody else wrote, fed what nobody would write: no input may panic, overflow, take long or
//! break what holds of every input. The same inputs every time; `HEADROOM_FUZZ` is how many in all, `HEADROOM_FUZZ_SEED`
//! draws others (CONTRIBUTING.md, "Fuzzing").
#![cfg(not(target_arch = "wasm32"))]

mod mutate;
#[path = "../drawn/random.rs"]
mod random;
mod targets;

use std::fs;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use headroom::scenario::keys::{ValueKind, keys};
use mutate::Mutator;
use random::Random;
use serde_json::Value;
use targets::Target;

/// How many inputs all targets are given together where nobody says otherwise: some seconds in an ordinary run of the tests.
const INPUTS: usize = 20_000;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder, or the file itself, in order.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(folder) = fs::read_dir(path) else { return vec![path.to_owned()] };
    let mut files: Vec<_> =
        folder.map(|entry| entry.expect("a file").path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Inputs that once were a crash, and others that mutation does not find by itself.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = root().join("tests/fuzz/corpus").join(target.name);
    let files = if folder.exists() { files(&folder) } else { Vec::new() };
    files.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

/// What mutation starts from.
fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = corpus(target);
    for path in target.seeds.iter().flat_map(|path| files(&root().join(path))) {
        let text = fs::read_to_string(&path).expect("seeds are text");
        seeds.extend(inputs_of(target, text).into_iter().map(String::into_bytes));
    }
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    seeds
}

/// The inputs of a fixture: each row of a table, the scenarios that a frozen link opens, else the text itself.
fn inputs_of(target: &Target, text: String) -> Vec<String> {
    let value = serde_json::from_str::<Value>(&text).unwrap_or_default();
    match (value["scenarios"].as_array(), value.as_array()) {
        (Some(_), _) if target.name == targets::LINKS.name => Vec::new(),
        (Some(scenarios), _) => scenarios.iter().map(Value::to_string).collect(),
        (None, Some(rows)) => {
            let input =
                |row: &Value| row["message"].as_str().map_or_else(|| format!("[{row}]"), str::to_owned);
            rows.iter().map(input).collect()
        }
        (None, None) => vec![text],
    }
}

/// The words of scenarios: names, links and values of every key.
fn words() -> Vec<String> {
    let slugs = |kind| match kind {
        ValueKind::Choice(choices) => choices.iter().map(|choice| choice.slug.to_owned()).collect(),
        ValueKind::Model
        | ValueKind::Teacher
        | ValueKind::Targets
        | ValueKind::Count(_)
        | ValueKind::Switch
        | ValueKind::Lengths
        | ValueKind::Dropout
        | ValueKind::Gpu => Vec::new(),
    };
    let words =
        keys().flat_map(|key| [vec![key.name.to_owned(), key.link.to_owned()], slugs(key.kind())].concat());
    words.collect()
}

/// A number of the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?} and not a number")))
}

/// What is wrong with the answer to an input; what took long is tried again, as others use the machine too.
fn wrong_with(target: &Target, input: &[u8]) -> Option<String> {
    for _ in 0..3 {
        let start = Instant::now();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.body)(input))) {
            let said =
                panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            return Some(said.unwrap_or("it panicked").to_owned());
        }
        if start.elapsed() < target.at_once {
            return None;
        }
    }
    Some(format!("it takes more than {:?}", target.at_once))
}

#[track_caller]
fn fuzz(target: &Target) {
    let many = variable("HEADROOM_FUZZ");
    let (seeds, words) = (seeds(target), words());
    let random = Random::new(variable("HEADROOM_FUZZ_SEED").unwrap_or(2026) ^ target.share as u64);
    let mut mutator = Mutator { random, seeds: &seeds, words: &words };
    let inputs = many.map_or(INPUTS, |many| many as usize) * target.share / 1000;
    let mutated = (0..inputs).map(|_| mutator.input());
    let mut wrong = Vec::new();
    let kept = root().join("target/fuzz");
    for input in seeds.iter().cloned().chain(mutated) {
        if let Some(problem) = wrong_with(target, &input) {
            fs::create_dir_all(&kept).expect("target/ is there");
            let path = kept.join(format!("{}-{}", target.name, wrong.len()));
            fs::write(&path, &input).expect("target/ can be written");
            wrong.push(format!("{}: {problem}", path.display()));
            if wrong.len() == 20 {
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "inputs to keep in tests/fuzz/corpus/{}:\n{}", target.name, wrong.join("\n"));
}

#[test]
fn links() {
    fuzz(&targets::LINKS);
}

#[test]
fn configs() {
    fuzz(&targets::CONFIGS);
}

#[test]
fn imports() {
    fuzz(&targets::IMPORTS);
}

#[test]
fn measurements() {
    fuzz(&targets::MEASUREMENTS);
}

#[test]
fn messages() {
    fuzz(&targets::MESSAGES);
}

#[test]
fn snapshots() {
    fuzz(&targets::SNAPSHOTS);
}

#[test]
fn scenarios() {
    fuzz(&targets::SCENARIOS);
}

#[test]
fn searches() {
    fuzz(&targets::SEARCHES);
}

/// An overflow is a panic here, or the inputs above would prove less than they say.
#[test]
fn overflow_is_noticed() {
    assert!(catch_unwind(|| black_box(u64::MAX) + black_box(1)).is_err());
}

/// Every corpus has a target, and the shares are of a thousand.
#[test]
fn corpora_and_targets_agree() {
    let all = targets::ALL;
    assert_eq!(all.iter().map(|target| target.share).sum::<usize>(), 1000);
    // each has a corpus, and an executable for libFuzzer
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("there is one");
    for target in all {
        assert!(!corpus(target).is_empty(), "{} has no corpus", target.name);
        let executable = format!("path = \"fuzz_targets/{}.rs\"", target.name);
        assert!(
            manifest.contains(&executable)
                && root().join("fuzz/fuzz_targets").join(target.name).with_extension("rs").is_file()
        );
    }
    for folder in fs::read_dir(root().join("tests/fuzz/corpus")).expect("there are corpora") {
        let name = folder.expect("a folder").file_name();
        assert!(all.iter().any(|target| name == target.name), "{name:?} is fed to nothing");
    }
}
