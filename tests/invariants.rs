//! What holds of every answer, whatever is chosen: every task, library and engine of many GPUs by turns, a few of all other keys
//! drawn beside them.

#![cfg(not(target_arch = "wasm32"))]

mod drawn;

use std::collections::BTreeMap;

use drawn::{Draw, answers};
use headroom::estimate;
use headroom::scenario::keys::KEYS;
use headroom::scenario::{Scenario, Sharding, Stack, Task};
use headroom::share;

fn link(scenario: &Scenario) -> String {
    share::encode(std::slice::from_ref(scenario))
}

/// The scenario in each of its forms, read back.
fn written_and_read(scenario: &Scenario) {
    let link = link(scenario);
    assert_eq!(share::decode(&link).scenarios, std::slice::from_ref(scenario), "{link}");
    let json = serde_json::to_string(scenario).expect("a scenario is JSON");
    assert_eq!(serde_json::from_str::<Scenario>(&json).expect("it is one"), *scenario, "{json}");
    let lines = KEYS.iter().map(|key| format!("{} = {:?}\n", key.name, key.write(scenario)));
    let toml: String = lines.collect();
    assert_eq!(toml::from_str::<Scenario>(&toml).expect("it is TOML"), *scenario, "{toml}");
}

#[test]
fn explore() {
    let count: u64 = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let from: u64 = std::env::var("FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut ran: BTreeMap<String, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut less = Vec::new();
    for seed in from..from + count {
        let mut draw = Draw::new(seed);
        let scenario = draw.likely();
        written_and_read(&scenario);
        let Some(found) = answers(&scenario) else {
            let issue = estimate(&scenario).errors().next().map(|issue| issue.message.clone());
            *reasons.entry(issue.unwrap_or_default().chars().take(60).collect()).or_default() += 1;
            continue;
        };
        wrong.extend(found);
        for name in [scenario.task.slug(), scenario.stack.slug(), scenario.cluster.sharding.slug()] {
            *ran.entry(name.to_owned()).or_default() += 1;
        }
        let needs = |scenario: &Scenario| estimate(scenario).memory.map(|memory| memory.needed().0);
        let before = needs(&scenario);
        let more = 1 + draw.below(300) as u64;
        for larger in [
            Scenario { batch: scenario.batch + 1 + more % 3, ..scenario.clone() },
            Scenario { sequence: scenario.sequence + more, ..scenario.clone() },
        ] {
            if let (Some(before), Some(after)) = (before, needs(&larger))
                && after < before
            {
                let percent = (1.0 - after as f64 / before as f64) * 100.0;
                less.push((
                    percent,
                    format!("{percent:.3} % {} -> b={} s={}", link(&scenario), larger.batch, larger.sequence),
                ));
            }
        }
    }
    less.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("{ran:#?}\n{reasons:#?}");
    for (_, line) in &less {
        println!("LESS {line}");
    }
    println!("WRONG {}", wrong.join("\nWRONG "));
    let _ = (Sharding::ALL, Stack::ALL, Task::ALL);
}
