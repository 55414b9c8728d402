//! What holds of whatever is chosen.

use std::collections::BTreeMap;

use headroom::memory::Category;
use headroom::plan::Answer;
use headroom::scenario::keys::keys;
use headroom::scenario::{Scenario, Sharding, Stack, Task};
use headroom::{estimate, share};

use crate::drawn::growth::may_need_less;
use crate::drawn::{Draw, answers, first_seed};
/// Whatever is chosen, under every key: a figure or an error, a link that opens the same scenario, and an answer in which all
/// of the above holds.
#[test]
fn any_scenario_is_answered() {
    let mut draw = Draw::new(first_seed().wrapping_add(2026));
    let (mut wrong, mut ran) = (Vec::new(), 0);
    // checkpoints, merging and losses of one library, among the keys drawn, are refused beside much else
    for _ in 0..4000 {
        let scenario = draw.scenario();
        let link = share::encode(std::slice::from_ref(&scenario));
        assert_eq!(share::decode(&link).scenarios, std::slice::from_ref(&scenario), "{link}");
        if let Some(differences) = answers(&scenario) {
            ran += 1;
            wrong.extend(differences);
        }
    }
    assert!(ran > 100, "only {ran} had a figure");
    assert!(wrong.is_empty(), "{} of {ran}: {}", wrong.len(), wrong.join("\n"));
}

/// Whatever is chosen, of every task, library and engine: what holds of every answer, the scenario in each of its forms is read
/// back, and more sequences or tokens never need less but for what is known.
#[test]
fn whatever_runs_holds() {
    let mut ran = BTreeMap::new();
    let mut wrong = Vec::new();
    for seed in 0..2600 {
        let mut draw = Draw::new(first_seed().wrapping_add(seed));
        let scenario = draw.likely();
        is_read_back(&scenario);
        let Some(found) = answers(&scenario) else { continue };
        wrong.extend(found);
        for name in [scenario.task.slug(), scenario.stack.slug(), scenario.cluster.sharding.slug()] {
            *ran.entry(name).or_insert(0) += 1;
        }
        let more = 1 + draw.below(300) as u64;
        let larger = [
            Scenario { batch: scenario.batch + 1 + more % 3, ..scenario.clone() },
            Scenario { sequence: scenario.sequence + more, ..scenario.clone() },
        ];
        let needed = |scenario: &Scenario| Some(estimate(scenario).memory?.needed().0 as f64);
        for larger in larger {
            let (Some(before), Some(after)) = (needed(&scenario), needed(&larger)) else { continue };
            if after < before * (1.0 - may_need_less(&scenario, &larger) / 100.0) {
                let [small, large] = [scenario.clone(), larger].map(|scenario| share::encode(&[scenario]));
                wrong.push(format!("{after} is less than {before}: {large}, {small}"));
            }
        }
    }
    let slugs = Task::ALL.iter().map(|task| task.slug());
    let slugs = slugs.chain(Stack::ALL.iter().map(|stack| stack.slug()));
    for slug in slugs.chain(Sharding::ALL.iter().map(|sharding| sharding.slug())) {
        assert!(ran.contains_key(slug), "nothing of {slug} ran: {ran:?}");
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}

/// The figure that is shown counts blocks, which may be larger than what lies in them: a run with more tokens finds others to reuse.
/// That is all by which it falls (gpt2 from 3 to 4 sequences by 0.3 %, measured: `data/measurements/growth.json`).
#[test]
fn what_is_shown_falls_by_blocks_alone() {
    let shown = |scenario: &Scenario| {
        let answer = Answer::of(scenario.clone());
        let (_, peak) = answer.estimate.memory.filter(|_| answer.on_card.is_some())?.peak();
        Some((peak.bytes.0 as f64, peak.parts.get(Category::Rounding).0 as f64))
    };
    let gpt2 = |batch: u64| {
        let link = format!("v=1&m=openai-community/gpt2&method=full&p=fp16&s=128&gc=reentrant&b={batch}");
        shown(&share::decode(&link).scenarios[0]).expect("an answer").0
    };
    assert!(gpt2(4) < gpt2(3) && gpt2(3) < gpt2(2), "it falls");
    let mut compared = 0;
    let mut wrong = Vec::new();
    for seed in 0..300 {
        let mut draw = Draw::new(first_seed().wrapping_add(seed));
        let scenario = draw.likely();
        let more = 1 + draw.below(300) as u64;
        let larger = [
            Scenario { batch: scenario.batch + 1 + more % 3, ..scenario.clone() },
            Scenario { sequence: scenario.sequence + more, ..scenario.clone() },
        ];
        let Some((before, blocks)) = shown(&scenario) else { continue };
        for larger in larger {
            let Some((after, _)) = shown(&larger) else { continue };
            let least = (before - blocks) * (1.0 - may_need_less(&scenario, &larger) / 100.0);
            compared += 1;
            if after < least {
                let [small, large] = [scenario.clone(), larger].map(|scenario| share::encode(&[scenario]));
                wrong.push(format!("{after} is less than {least}: {large}, {small}"));
            }
        }
    }
    assert!(compared > 80, "{compared}");
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}

/// A link, JSON and TOML of it open the same scenario.
fn is_read_back(scenario: &Scenario) {
    let link = share::encode(std::slice::from_ref(scenario));
    assert_eq!(share::decode(&link).scenarios, std::slice::from_ref(scenario), "{link}");
    let json = serde_json::to_string(scenario).expect("a scenario is JSON");
    assert_eq!(serde_json::from_str::<Scenario>(&json).expect("it is one"), *scenario, "{json}");
    let toml: String = keys().map(|key| format!("{} = {:?}\n", key.name, key.write(scenario))).collect();
    assert_eq!(toml::from_str::<Scenario>(&toml).expect("it is TOML"), *scenario, "{toml}");
}

/// llama4's layers take turns with and without positions: beside adapters in 16 bits no period of them stands for others.
#[test]
fn layers_that_take_turns_are_run_one_by_one_beside_adapters() {
    for link in [
        "m=meta-llama/Llama-4-Scout-17B-16E-Instruct&method=lora&t=attention",
        "m=meta-llama/Llama-4-Scout-17B-16E-Instruct&method=lora&t=attention&gc=off",
    ] {
        let scenario = share::decode(link).scenarios.remove(0);
        assert_eq!(answers(&scenario), Some(Vec::new()), "{link}");
    }
}
