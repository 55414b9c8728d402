//! Every value of every choice, in a run that has an answer: what is only drawn may always be refused.

use headroom::scenario::Scenario;
use headroom::scenario::keys::{Key, ValueKind, keys};
use headroom::share;

use crate::drawn::{MEGATRON, answers};

/// Runs of every kind, the smallest first: those of every link that was frozen, of which each feature has one, and Megatron's ranks.
fn runs() -> Vec<Scenario> {
    let folder = format!("{}/tests/fixtures/links", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(folder)
        .expect("the links lie there")
        .map(|entry| entry.expect("it is read").path());
    let links = files.filter(|path| path.extension().is_some_and(|ending| ending == "link"));
    let texts = links.map(|path| std::fs::read_to_string(path).expect("a link is text"));
    let texts = texts.chain(MEGATRON.map(str::to_owned));
    let mut runs: Vec<Scenario> = texts.flat_map(|text| share::decode(text.trim()).scenarios).collect();
    let work = |run: &Scenario| {
        let parameters = run.architecture().map_or(u64::MAX, |architecture| architecture.parameters());
        parameters.saturating_mul(run.batch.saturating_mul(run.sequence))
    };
    runs.sort_by_key(work);
    runs
}

fn values(key: &Key) -> Vec<&'static str> {
    match key.kind() {
        ValueKind::Choice(choices) => choices.iter().map(|choice| choice.slug).collect(),
        ValueKind::Switch => vec!["on", "off"],
        ValueKind::Model
        | ValueKind::Teacher
        | ValueKind::Targets
        | ValueKind::Count(_)
        | ValueKind::Lengths
        | ValueKind::Dropout
        | ValueKind::Gpu => Vec::new(),
    }
}

#[test]
fn every_value_of_every_choice_runs() {
    let runs = runs();
    let (mut without, mut wrong) = (Vec::new(), Vec::new());
    for key in keys() {
        for value in values(key) {
            let of_run = |run: &Scenario| {
                let mut scenario = run.clone();
                scenario.change(|scenario| key.read(scenario, value).expect("it is one of the key's values"));
                let is_so = key.matters(&scenario) && key.write(&scenario) == value;
                is_so.then(|| answers(&scenario)).flatten()
            };
            match runs.iter().find_map(of_run) {
                Some(found) => wrong.extend(found),
                None => without.push(format!("{}={value}", key.name)),
            }
        }
    }
    assert!(without.is_empty(), "no run has these and an answer: {without:?}");
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}
