//! What is fed: everything that reads what somebody else wrote. A target takes any bytes and holds what must hold of them.

use std::hint::black_box;
use std::time::Duration;

use headroom::check::{check, check_time};
use headroom::model::read::{parse, parse_with_essence};
use headroom::oom::Message;
use headroom::scenario::Scenario;
use headroom::trace::Trace;
use headroom::units::Bytes;
use headroom::{estimate, foreign, import, oom, share};
use serde_json::Value;

/// A reader of what somebody else wrote.
pub struct Target {
    /// Its name, and that of its folder in `corpus/`.
    pub name: &'static str,
    /// Of a thousand inputs how many it is given: what reads fast is given more.
    pub share: usize,
    /// What is fed.
    pub body: fn(&[u8]),
    /// How long one input may take, without optimisation and on a busy machine; a page takes a small part of it.
    pub at_once: Duration,
    /// Where its seeds lie, from the root of the repository: files and folders.
    pub seeds: &'static [&'static str],
}

/// What reads, and what executes a step.
const AT_ONCE: Duration = Duration::from_secs(1);
/// What looks for changes: dozens of steps, each replayed; on the page in a worker, and piece by piece.
const AFTER_A_SEARCH: Duration = Duration::from_secs(20);

pub const LINKS: Target =
    Target { name: "links", share: 300, body: links, at_once: AT_ONCE, seeds: &["tests/fixtures/links"] };
pub const CONFIGS: Target =
    Target { name: "configs", share: 250, body: configs, at_once: AT_ONCE, seeds: &["data/models"] };
pub const IMPORTS: Target = Target {
    name: "imports",
    share: 250,
    body: imports,
    at_once: AT_ONCE,
    seeds: &["tests/fixtures/configurations", "tests/fixtures/scripts"],
};
pub const MEASUREMENTS: Target = Target {
    name: "measurements",
    share: 50,
    body: measurements,
    at_once: AT_ONCE,
    seeds: &["tests/fixtures/measurements"],
};
pub const MESSAGES: Target = Target {
    name: "messages",
    share: 39,
    body: messages,
    at_once: AT_ONCE,
    seeds: &["tests/fixtures/oom.json"],
};
pub const SNAPSHOTS: Target =
    Target { name: "snapshots", share: 100, body: snapshots, at_once: AT_ONCE, seeds: &[] };
pub const SCENARIOS: Target = Target {
    name: "scenarios",
    share: 10,
    body: scenarios,
    at_once: AT_ONCE,
    seeds: &["tests/fixtures/links"],
};
pub const SEARCHES: Target = Target {
    name: "searches",
    share: 1,
    body: searches,
    at_once: AFTER_A_SEARCH,
    seeds: &["tests/fixtures/oom.json", "tests/fixtures/links"],
};

/// All of them; the shares are of a thousand.
pub const ALL: [&Target; 8] =
    [&LINKS, &CONFIGS, &IMPORTS, &MEASUREMENTS, &MESSAGES, &SNAPSHOTS, &SCENARIOS, &SEARCHES];

/// One of so many inputs, by what is in it: what takes long is asked of a few.
fn one_in(many: usize, input: &[u8]) -> bool {
    input.iter().fold(7usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))) % many == 0
}

/// A link written of what was read opens the same, without a word.
fn survives_a_link(scenarios: &[Scenario]) {
    let link = share::encode(scenarios);
    let again = share::decode(&link);
    assert_eq!(again.scenarios, scenarios, "{link}");
    assert_eq!(again.notices, [], "{link}");
}

fn links(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let shared = share::decode(&text);
    assert!((1..=share::MOST_SCENARIOS).contains(&shared.scenarios.len()));
    assert!(
        shared.notices.iter().all(|notice| notice.to_string().chars().count() < 1000),
        "{:?}",
        shared.notices
    );
    survives_a_link(&shared.scenarios);
    black_box((share::names(&text, "model"), share::said(&text, "view")));
    if one_in(200, input) {
        shared.scenarios.iter().for_each(answered);
    }
}

fn configs(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    black_box(import::is_model(&text));
    match parse_with_essence(&text) {
        Ok(parsed) => {
            let model = &parsed.architecture;
            assert!(model.active_parameters() <= model.parameters());
            assert!(model.text_parameters() <= model.parameters());
            assert_eq!(parse(&parsed.essence).as_ref(), Ok(model), "{}", parsed.essence);
        }
        Err(issue) => is_sentence(&issue.to_string()),
    }
}

fn imports(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match import::read(&text, &Scenario::default()) {
        Ok(understood) => survives_a_link(&[understood.scenario]),
        Err(why) => is_sentence(&why.to_string()),
    }
}

fn measurements(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    black_box(check_time(&text).is_ok());
    let Ok(Value::Array(rows)) = serde_json::from_str(&text) else { return };
    for row in rows {
        // what is beyond the sizes that have an answer need not go into a link
        if let Some(scenario) =
            headroom::check::scenario(&row).ok().filter(|it| estimate(it).memory.is_some())
        {
            survives_a_link(&[scenario]);
        }
    }
    if one_in(40, input) {
        black_box(check(&text, true).is_ok());
    }
}

fn messages(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Err(why) = text.parse::<Message>() {
        is_sentence(&why.to_string());
    }
}

/// What is seen and fast to replay.
fn small() -> Scenario {
    share::decode("m=openai-community/gpt2&method=full&s=128").scenarios.remove(0)
}

/// What would help against a message, and what a scenario could change.
fn searches(input: &[u8]) {
    if !one_in(40, input) {
        return;
    }
    let text = String::from_utf8_lossy(input);
    // steps are replayed to find the tensor
    let decoded = oom::decode(&text, &small());
    assert_eq!(decoded.is_ok(), text.parse::<Message>().is_ok());
    drop(black_box(format!("{decoded:?}")));
    if let Some(decoded) = decoded.ok().filter(|_| one_in(400, input)) {
        drop(black_box(oom::remedies(&decoded)));
    }
    if let Ok(scenario) = serde_json::from_str::<Scenario>(&text) {
        let written = serde_json::to_string(&scenario).expect("a scenario is JSON");
        black_box(foreign::levers(&written).is_ok());
    }
}

fn snapshots(input: &[u8]) {
    match Trace::read(input) {
        Ok(trace) => {
            assert_eq!(trace.allocated.len(), trace.reserved.len());
            assert!(trace.allocated.iter().all(|bytes| *bytes <= trace.peak()));
            let step = [Bytes(1), Bytes(1 << 30), Bytes(1 << 20)];
            assert!(trace.most_like(&step).end <= trace.allocated.len());
            black_box(trace.most_like(&[]));
        }
        Err(why) => is_sentence(&why.to_string()),
    }
}

fn scenarios(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    black_box(foreign::open_link(&text));
    let json = serde_json::from_str::<Scenario>(&text).ok();
    let toml = toml::from_str::<Scenario>(&text).ok();
    for scenario in [json, toml].into_iter().flatten() {
        let written = serde_json::to_string(&scenario).expect("a scenario is JSON");
        assert_eq!(
            serde_json::from_str::<Scenario>(&written).expect("it is read back"),
            scenario,
            "{written}"
        );
        survives_a_link(std::slice::from_ref(&scenario));
        answered(&scenario);
        if one_in(50, input) {
            let answer = foreign::estimate(&written).expect("it was read before");
            assert!(serde_json::from_str::<Value>(&answer).is_ok());
        }
    }
}

/// A figure or an error, and the figure's parts sum to it.
fn answered(scenario: &Scenario) {
    let answer = estimate(scenario);
    assert_eq!(answer.memory.is_none(), answer.errors().next().is_some(), "{:?}", answer.issues);
    for (phase, peak) in answer.memory.iter().flat_map(|memory| &memory.steady.phases) {
        assert_eq!(peak.parts.total(), peak.bytes, "{phase:?}");
    }
}

/// What is said of bad input can be read.
fn is_sentence(message: &str) {
    assert!(!message.is_empty() && message.chars().count() < 1000, "{message}");
}
