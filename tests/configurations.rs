//! Configurations of other projects that were written: read back they are the same scenario, or say what is not.

#![cfg(not(target_arch = "wasm32"))]

#[path = "configurations/examples.rs"]
mod examples;
#[path = "configurations/served.rs"]
mod served;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use headroom::estimate;
use headroom::export::{Configuration, configuration};
use headroom::import;
use headroom::scenario::keys::{Key, keys};
use headroom::scenario::{
    Allocator, AttentionKernel, Checkpointing, Field, LoraTargets, LossKernel, Mask, Method, ModelChoice,
    Offloading, Optimizer, Precision, Scenario, Sharding, Stack, WrappedBy,
};
use headroom::share;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

const MODELS: [&str; 5] = [
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.2-1B",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-0.6B",
    "mistralai/Mistral-7B-v0.1",
];

/// Scenarios with the settings that files have lines for, and others among them.
fn scenarios() -> impl Strategy<Value = Scenario> {
    (
        (select(MODELS.to_vec()), select(Method::ALL), select(Stack::ALL)),
        (1u64..=64, select(LoraTargets::ALL), any::<(bool, bool, bool)>()),
        (
            select(Precision::ALL),
            select(Optimizer::ALL),
            select(Checkpointing::ALL),
            select(AttentionKernel::ALL),
        ),
        (1u64..=16, 1u64..=4096, 1u64..=16, select(Mask::ALL)),
        (any::<(bool, bool, bool, bool)>(), select(vec![1u64, 2, 8]), select(Sharding::ALL)),
        any::<(bool, bool, bool, bool)>(),
    )
        .prop_map(|(what, lora, how, sizes, rest, at_default)| {
            let mut scenario = Scenario::default();
            scenario.change(|scenario| scenario.stack = what.2);
            scenario.change(|scenario| scenario.method = what.1);
            scenario.change(|scenario| scenario.cluster.gpus = rest.1);
            scenario.model = ModelChoice::Catalogue(what.0.to_owned());
            scenario.lora.rank = lora.0;
            if lora.1 != LoraTargets::Named {
                scenario.lora.targets = lora.1;
            }
            (scenario.lora.dropout, scenario.lora.trains_embeddings) = (lora.2.0, lora.2.1 && lora.2.2);
            (scenario.batch, scenario.sequence, scenario.accumulation) = (sizes.0, sizes.1, sizes.2);
            scenario.mask = sizes.3;
            let (clips, double, expandable, offloads) = rest.0;
            scenario.training_loop.clips = clips;
            scenario.quantization.double_quant = double;
            scenario.allocator = if expandable { Allocator::Expandable } else { Allocator::Native };
            // half of the scenarios keep what hardly goes with the rest
            if !at_default.0 {
                scenario.precision = how.0;
            }
            if !at_default.1 {
                scenario.optimizer = how.1;
            }
            if !at_default.2 {
                (scenario.checkpointing, scenario.attention) = (how.2, how.3);
            }
            if !at_default.3 {
                scenario.savings.offloading = if offloads { Offloading::On } else { Offloading::Off };
                scenario.cluster.sharding = rest.2;
            }
            scenario
        })
}

/// The lines without what is said to people in them.
fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// Reads a written file over another scenario, of which only what the file leaves open is that of the scenario.
fn read_back(scenario: &Scenario, which: Configuration, text: &str, other: &Scenario) -> Scenario {
    let launcher = launcher_of(which);
    let mut base = if launcher { scenario.clone() } else { other.clone() };
    let shared = ["model", "gpu", "gpus", "dropout"];
    for key in keys().filter(|key| shared.contains(&key.name)) {
        key.copy(&mut base, scenario);
    }
    base.cluster.deepspeed = scenario.cluster.deepspeed;
    if !launcher {
        base.cluster = scenario.cluster;
        // what is launched beside it says who wraps the model
        if which == Configuration::LlamaFactory && scenario.cluster.sharding == Sharding::Fsdp2 {
            base.cluster.wrapped_by = WrappedBy::Accelerate;
        }
        base.allocator = scenario.allocator;
    }
    // the command in its first lines sets the variable that axolotl sets otherwise
    let text = if which == Configuration::Axolotl { text.to_owned() } else { without_comments(text) };
    let understood = import::read(&text, &base).expect("what was written is read");
    assert_eq!(understood.left, [], "{text}");
    let mut read = understood.scenario;
    if launcher {
        read.precision = scenario.precision;
    } else if scenario.gathers_saved() && read.saves() {
        // that whole weights are gathered is said beside how they are divided
        read.spikes.saving = scenario.spikes.saving;
    }
    read
}

/// Whether a file says only how the work is shared.
fn launcher_of(which: Configuration) -> bool {
    matches!(which, Configuration::Accelerate | Configuration::DeepSpeed)
}

/// The names that a project's own classes know, and how it is called there (`tools/argument_names.py`).
fn known_by(which: Configuration) -> &'static HashSet<String> {
    static KNOWN: LazyLock<HashMap<String, HashSet<String>>> = LazyLock::new(|| {
        let all: Value = serde_json::from_str(include_str!("fixtures/arguments.json")).expect("a fixture");
        let names = |(project, said): (&String, &Value)| {
            let names = said["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
            // trl's parser sets these variables itself (trl 1.16, scripts/utils.py `parse_args_and_config`)
            let env = (project == "trl").then_some("env");
            (project.clone(), names.chain(env).map(str::to_owned).collect())
        };
        all.as_object().into_iter().flatten().map(names).collect()
    });
    &KNOWN[which.choice().slug]
}

/// The names in a file, those within a table with the table's before them.
fn names_in(which: Configuration, text: &str) -> Vec<String> {
    if which == Configuration::DeepSpeed {
        let file: Value = serde_json::from_str(text).expect("JSON");
        let within = |(name, value): (&String, &Value)| {
            let members =
                value.as_object().into_iter().flatten().map(|(member, _)| format!("{name}.{member}"));
            [name.clone()].into_iter().chain(members).collect::<Vec<_>>()
        };
        return file.as_object().into_iter().flatten().flat_map(within).collect();
    }
    if [Configuration::Megatron, Configuration::Vllm].contains(&which) {
        let options = text.lines().filter_map(|line| line.strip_prefix("    --"));
        let name = |line: &str| line.split(' ').next().unwrap_or_default().replace('-', "_");
        return options.map(name).collect();
    }
    if which == Configuration::Torchtitan {
        let file: toml::Table = without_comments(text).parse().expect("TOML");
        let within = |(table, members): (String, toml::Value)| {
            let members = members.as_table().expect("a table").keys().map(|name| format!("{table}.{name}"));
            members.collect::<Vec<_>>()
        };
        return file.into_iter().flat_map(within).collect();
    }
    let mut table = String::new();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', '-']));
    let names = lines.filter_map(|line| {
        let (name, _) = line.split_once(':')?;
        let member = name.trim_start();
        match name.len() - member.len() {
            0 => {
                table = member.to_owned();
                Some(member.to_owned())
            }
            2 => Some(format!("{table}.{member}")),
            _ => None,
        }
    });
    names.collect()
}

/// The tables of a file of torchtune that are the arguments of another project's class.
fn classes_of_others<'a>(text: &'a str) -> HashSet<&'a str> {
    let lines: Vec<&str> = text.lines().collect();
    let table = |pair: &[&'a str]| {
        let class = pair[1].strip_prefix("  _component_: ")?;
        (!class.starts_with("torchtune.")).then(|| pair[0].trim_end_matches(':'))
    };
    lines.windows(2).filter_map(table).collect()
}

/// Every name in a file is one that the project knows; of tables those whose names are known.
fn has_known_names(which: Configuration, text: &str) -> Result<(), TestCaseError> {
    let known = known_by(which);
    let others = classes_of_others(text);
    for name in names_in(which, text) {
        let is_open = name.split_once('.').is_some_and(|(table, _)| {
            others.contains(table) || !known.iter().any(|name| name.starts_with(&format!("{table}.")))
        });
        prop_assert!(is_open || known.contains(&name), "{which:?} knows no {name}\n{text}");
    }
    Ok(())
}

#[track_caller]
fn check(scenario: &Scenario, other: &Scenario) -> Result<usize, TestCaseError> {
    let mut written = 0;
    for which in Configuration::ALL.into_iter().filter(|which| *which != Configuration::Python) {
        let file = match configuration(scenario, which) {
            Ok(file) => file,
            Err(issue) => {
                prop_assert!(!issue.message.is_empty());
                continue;
            }
        };
        written += 1;
        has_known_names(which, &file.text)?;
        let read = read_back(scenario, which, &file.text, other);
        let memory = estimate(&read).memory;
        // nothing is the same as no answer
        prop_assert!(launcher_of(which) || memory.is_some(), "{which:?}\n{}", file.text);
        // other words for the same run
        let same = |key: &Key| {
            let mut changed = read.clone();
            key.copy(&mut changed, scenario);
            estimate(&changed).memory == memory
        };
        let said =
            |key: &Key| file.differs.iter().any(|clause| clause.starts_with(&format!("{}:", key.label)));
        for key in keys().filter(|key| key.matters(&read) && !key.is_same(&read, scenario)) {
            prop_assert!(
                same(key) || said(key),
                "{which:?}: {} is {} and not {}\n{}",
                key.name,
                key.write(&read),
                key.write(scenario),
                file.text
            );
        }
        // the scenario that the file names is the one that it runs
        if let Some((_, rest)) = file.text.split_once("headroom estimate '") {
            let link = rest.split('\'').next().unwrap_or_default();
            let named = share::decode(link).scenarios.into_iter().next().expect("a link");
            prop_assert_eq!(estimate(&named).memory, estimate(&read).memory, "{:?}\n{}", which, file.text);
        }
    }
    Ok(written)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_was_written_is_the_same_scenario(scenario in scenarios(), other in scenarios()) {
        check(&scenario, &other)?;
    }
}

/// How many pictures texts have is the data's, as it is how long they are: the file says that it says nothing of it.
#[test]
fn a_file_for_trl_leaves_pictures_to_the_data() {
    let link =
        "st=trl&m=Qwen/Qwen2.5-VL-3B-Instruct&method=lora&img=2&imh=448&imw=896&s=2048&p=bf16&mask=padded";
    let scenario = share::decode(link).scenarios.remove(0);
    let written = configuration(&scenario, Configuration::Trl).expect("it can be written");
    for line in ["packing: false", "HuggingFaceH4/llava-instruct-mix-vsft"] {
        assert!(written.text.contains(line), "{}", written.text);
    }
    assert_eq!(written.differs, Vec::<String>::new());
    assert!(written.absent.iter().any(|absent| absent == "Pictures: 2"), "{:?}", written.absent);
    let read = import::read(&written.text, &scenario).expect("it is read");
    assert_eq!((&read.scenario, read.left.len()), (&scenario, 0));
    let pairs = share::decode(&format!("{link}&task=dpo&prompt=1280")).scenarios.remove(0);
    let written = configuration(&pairs, Configuration::Trl).expect("it can be written");
    assert!(written.text.contains("HuggingFaceH4/rlaif-v_formatted"), "{}", written.text);
    let read = import::read(&written.text, &pairs).expect("it is read");
    assert_eq!((&read.scenario, read.left.len()), (&pairs, 0));
    let frozen = Scenario {
        pictures: headroom::scenario::Pictures {
            tower: headroom::scenario::VisionTower::Frozen,
            ..scenario.pictures
        },
        ..scenario
    };
    let refused = configuration(&frozen, Configuration::Trl).expect_err("trl's command has no word for it");
    assert_eq!(refused.field, Field::VisionTower, "{refused}");
}
