//! Share links: every link that was ever given out still opens the same scenarios, and any scenario survives a link.

#![cfg(not(target_arch = "wasm32"))]

use std::fs;
use std::path::Path;

use headroom::scenario::keys::{Key, ValueKind, keys};
use headroom::scenario::{
    AttentionKernel, Checkpointing, CustomModel, GpuChoice, Lora, LoraTargets, Method, ModelChoice,
    Optimizer, Precision, Scenario, Task, Tuner, modules,
};
use headroom::share::{MOST_SCENARIOS, decode, encode, names, said};
use proptest::prelude::*;
use proptest::sample::select;

/// The longest that a link without a model of the user's own may be: it must survive chats and trackers.
const ORDINARY_LINK: usize = 300;

/// What a frozen link opens. A key that is younger than the link is not in the file and has its default.
#[derive(serde::Deserialize)]
struct Frozen {
    scenarios: Vec<Scenario>,
    notices: usize,
}

/// What other pages put behind an address takes nothing away from an old link.
#[test]
fn a_fragment_without_keys_leaves_the_query() {
    for link in [
        "?v=1&b=4&method=full#main",
        "?v=1&b=4&method=full#",
        "#v=1&b=4&method=full",
        "?x=1#v=1&b=4&method=full",
        "?v=1&b=4&method=full#_=_",
    ] {
        let shared = decode(link);
        assert_eq!((shared.scenarios[0].batch, shared.scenarios[0].method), (4, Method::Full), "{link}");
    }
}

#[test]
fn a_link_that_was_typed_has_the_defaults_of_its_task() {
    for task in Task::ALL {
        let typed = decode(&format!("task={}", task.slug())).scenarios.remove(0);
        assert!(typed.task == *task && headroom::estimate(&typed).memory.is_some(), "{task}");
        // what it says counts, and one that was written is as it was
        let said = decode(&format!("task={}&st=transformers&b=3", task.slug())).scenarios.remove(0);
        assert_eq!((said.stack, said.batch), (headroom::scenario::Stack::Transformers, 3), "{task}");
        let written = decode(&format!("v=1&task={}", task.slug())).scenarios.remove(0);
        assert_eq!(written, Scenario { task: *task, ..Scenario::default() });
    }
}

/// Each `NAME.link` in `fixtures/links` is frozen for ever, with what it opens in `NAME.json`: the scenarios, written
/// out in full, and how many notices the reader sees.
#[test]
fn frozen_links_open_the_same_scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/links");
    let mut links: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "link"))
        .collect();
    links.sort();
    assert!(links.len() >= 10, "fixtures are missing: {links:?}");
    for path in links {
        let shared = decode(fs::read_to_string(&path).unwrap().trim_end());
        let json = path.with_extension("json");
        if !json.exists() {
            let opened =
                serde_json::json!({ "scenarios": shared.scenarios, "notices": shared.notices.len() });
            fs::write(&json, format!("{opened:#}\n")).unwrap();
            panic!(
                "{} is new: read what was written to it, and keep it for ever if it is right",
                json.display()
            );
        }
        let frozen: Frozen = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(shared.scenarios, frozen.scenarios, "{}", path.display());
        assert_eq!(shared.notices.len(), frozen.notices, "{}: {:?}", path.display(), shared.notices);
        let said = fs::read_to_string(&path).unwrap();
        let behind_hash = format!("https://example.org/#{}", said.trim_end().trim_start_matches('?'));
        assert_eq!(decode(&behind_hash), shared, "{behind_hash}");
        let again = decode(&encode(&shared.scenarios));
        assert_eq!(again.scenarios, shared.scenarios, "{}", path.display());
        assert_eq!(again.notices, [], "{}", path.display());
    }
}

/// Whoever gives a scenario a new field is asked here whether a key writes it: what none does, a link loses.
#[test]
fn every_field_of_a_scenario_is_known_here() {
    let Scenario {
        task: _,
        answers: _,
        embedding: _,
        policy: _,
        teacher: _,
        evaluation: _,
        spikes: _,
        model: _,
        method: _,
        lora: _,
        quantization: _,
        experts: _,
        precision: _,
        float8: _,
        qat: _,
        compile: _,
        optimizer: _,
        batch: _,
        sequence: _,
        lengths: _,
        accumulation: _,
        checkpointing: _,
        attention: _,
        mask: _,
        dropout: _,
        training_loop: _,
        stack: _,
        savings: _,
        generation: _,
        serving: _,
        pictures: _,
        allocator: _,
        gpu: _,
        cluster: _,
        reserve: _,
        data: _,
    } = Scenario::default();
}

#[test]
fn defaults_are_left_out() {
    assert_eq!(encode(&[Scenario::default()]), "v=1");
    assert_eq!(encode(&[]), "v=1");
    let two =
        [Scenario::default(), Scenario { method: Method::Full, ..Scenario::default() }, Scenario::default()];
    assert_eq!(encode(&two), "v=1&2.method=full&3=same");
}

#[test]
fn a_damaged_link_says_what_was_taken_instead() {
    let shared = decode("?v=7&b=0&s=abc&method=lorra&gpu=&utm_source=chat&p&2.b=-3");
    let notices: Vec<_> = shared.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        notices,
        [
            "the link is of version \"7\", this page reads version 1: what it knows was taken",
            "method=lorra in the link cannot be used: Method is LoRA (use full, lora or qlora)",
            "p= in the link cannot be used: Precision is bf16 mixed (bf16 weights) (use fp32, bf16, fp16, amp-bf16, amp-bf16-weights, amp-fp16 or amp-fp16-weights)",
            "b=0 in the link cannot be used: Micro-batch size is 1 (use a whole number from 1 to 16,777,216)",
            "s=abc in the link cannot be used: Sequence length is 2,048 (use a whole number from 1 to 16,777,216)",
            "gpu= in the link cannot be used: GPU is GeForce RTX 4090 (use a card such as rtx-4090 or an amount such as 24GB)",
            "2.b=-3 in the link cannot be used: Micro-batch size is 1 (use a whole number from 1 to 16,777,216)",
        ]
    );
    assert_eq!(shared.scenarios.len(), 2);
}

#[test]
fn a_share_of_the_card_is_read_as_percent() {
    for text in ["30", "30%25", "0.3"] {
        assert_eq!(decode(&format!("task=grpo&vllm={text}")).scenarios[0].reserve.vllm, 30, "{text}");
    }
    let notices = decode("task=grpo&vllm=0.305").notices;
    assert!(notices[0].to_string().ends_with("(use a whole number from 0 to 100, or a share such as 0.4)"));
}

#[test]
fn what_is_wrong_is_quoted_in_short() {
    let digits = "9".repeat(20_000);
    for (link, message) in [
        (format!("m={digits}b"), "m=999"),
        (format!("b={digits}"), "b=999"),
        (format!("s=x{digits}"), "s=x999"),
        (format!("method=x{digits}"), "method=x999"),
        ("m=1e300b".to_owned(), "m=1e300b in the link cannot be used: Model is meta-llama/Llama-3.1-8B"),
    ] {
        let notices: Vec<_> = decode(&link).notices.iter().map(ToString::to_string).collect();
        assert!(notices.len() == 1 && notices[0].starts_with(message), "{notices:?}");
        assert!(notices[0].chars().count() < 400, "{notices:?}");
    }
}

#[test]
fn a_huge_link_is_refused() {
    let shared = decode(&format!("b=4&m={}", "a".repeat(1 << 20)));
    assert_eq!(shared.scenarios, [Scenario::default()]);
    assert_eq!(shared.notices.len(), 1);
    let of_length = |length: usize| format!("b=4&x={}", "a".repeat(length - "b=4&x=".len()));
    assert_eq!(decode(&of_length(1 << 15)).scenarios[0].batch, 4);
    let [refused] = &decode(&of_length((1 << 15) + 1)).notices[..] else { panic!("one notice") };
    let message = "the link has 32,769 characters; it was not read (a link has at most 32,768)";
    assert_eq!(refused.to_string(), message);
    let bomb = decode("m=x(layer_types:!(!r9999999(!r9999999(a))))");
    assert_eq!(bomb.scenarios, [Scenario::default()]);
    assert_eq!(bomb.notices.len(), 1, "{:?}", bomb.notices);
}

/// Which settings a link states itself, and what it says beside its scenarios.
#[test]
fn a_link_is_asked_what_it_says() {
    for link in ["https://example.org/#v=1&b=4&2.s=8", "?batch-size=4&2.seq-length=8"] {
        assert!(names(link, "batch-size"), "{link}");
        for other in ["seq-length", "optimizer", "b", "v"] {
            assert!(!names(link, other), "{link} {other}");
        }
    }
    let link = "#v=1&b=4&view=plan&selected=B&view=fit%20it";
    assert_eq!(said(link, "view").as_deref(), Some("fit it"));
    assert_eq!(said(link, "selected").as_deref(), Some("B"));
    assert_eq!(said(link, "embed"), None);
}

fn models() -> impl Strategy<Value = ModelChoice> {
    prop_oneof![
        "[A-Za-z][A-Za-z0-9._/+ &%=()~!-]{0,30}[A-Za-z0-9]".prop_map(ModelChoice::Catalogue),
        (1u32..10_000_000).prop_map(|millions| ModelChoice::Size(f64::from(millions) / 1000.0)),
    ]
}

/// Texts for the values of a key of that kind, in words that it reads; nothing of a model, whose name may hold what a text escapes.
fn texts(kind: ValueKind) -> Option<BoxedStrategy<String>> {
    let texts = match kind {
        ValueKind::Model => return None,
        ValueKind::Teacher => {
            prop_oneof![Just("same".to_owned()), "[A-Z][a-z]{0,8}/[A-Za-z0-9.-]{1,12}"].boxed()
        }
        ValueKind::Choice(choices) => select(choices).prop_map(|choice| choice.slug.to_owned()).boxed(),
        ValueKind::Targets => {
            let groups = LoraTargets::ALL.iter().filter(|group| **group != LoraTargets::Named);
            let groups: Vec<_> = groups.map(|group| group.slug().to_owned()).collect();
            let names = proptest::collection::vec(select(modules::NAMES.to_vec()), 0..9);
            prop_oneof![select(groups), names.prop_map(|names| names.join(","))].boxed()
        }
        ValueKind::Count(count) => {
            let (least, most) = (count.least(), count.most());
            prop_oneof![least..=most.min(64), least..=most].prop_map(|number| number.to_string()).boxed()
        }
        ValueKind::Switch => select(vec!["on", "off"]).prop_map(str::to_owned).boxed(),
        ValueKind::Lengths => {
            let spread = any::<(u64, u64)>().prop_map(|(mean, deviation)| format!("{mean}~{deviation}"));
            prop_oneof![Just("equal".to_owned()), Just("uniform".to_owned()), spread].boxed()
        }
        ValueKind::Dropout => {
            let probability = (0u16..=10_000).prop_map(|p| (f64::from(p) / 10_000.0).to_string());
            prop_oneof![Just("config".to_owned()), probability].boxed()
        }
        ValueKind::Gpu => prop_oneof![
            // no card's name begins so: "l4-" is read as the L4
            "z[a-z0-9-]{0,20}",
            (1u64..1 << 50).prop_map(|bytes| format!("{bytes}B")),
            (1u64..1000).prop_map(|gb| format!("{gb}GB")),
        ]
        .boxed(),
    };
    Some(texts)
}

/// Scenarios of any values of all keys.
fn scenarios() -> impl Strategy<Value = Scenario> {
    let said = keys().filter_map(|key| Some(texts(key.kind())?.prop_map(move |text| (key.name, text))));
    (models(), said.collect::<Vec<_>>()).prop_map(|(model, said)| {
        let mut scenario = Scenario { model, ..Scenario::default() };
        for (name, text) in said {
            let key = Key::find(name).expect("it is a key");
            key.read(&mut scenario, &text).expect("it is a value of the key");
        }
        scenario
    })
}

proptest! {
    #[test]
    fn any_scenarios_survive_a_link(scenarios in proptest::collection::vec(scenarios(), 1..=MOST_SCENARIOS)) {
        let link = encode(&scenarios);
        let shared = decode(&link);
        prop_assert_eq!(&shared.scenarios, &scenarios, "{}", link);
        prop_assert_eq!(shared.notices, vec![]);
    }

    #[test]
    fn any_scenario_survives_json(scenario in scenarios()) {
        let json = serde_json::to_string(&scenario).unwrap();
        prop_assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
    }

    #[test]
    fn values_that_differ_read_differently(one in scenarios(), other in scenarios()) {
        // "qv" names other layers where (IA)³ adapts them, so its words are told by the tuner too.
        let words_rest_on_the_tuner = (one.lora.tuner == Tuner::Ia3) != (other.lora.tuner == Tuner::Ia3);
        // One library, in another version for a task or a loss.
        let words_rest_on_more = one.stack == other.stack && one.library() != other.library();
        let keys = keys().filter(|key| key.name != "model" && !(key.name == "lora-targets" && words_rest_on_the_tuner));
        let keys = keys.filter(|key| !(key.name == "stack" && words_rest_on_more));
        // Nothing is left to share where all GPUs divide one copy.
        let shares_nothing = |key: &Key| [&one, &other].into_iter().any(|scenario| key.words(scenario).starts_with("none"));
        let keys = keys.filter(|key| !(key.name == "shard" && shares_nothing(key)));
        // What generates has weights that are quantised or not, whatever would be trained of them.
        let trains_nothing = [&one, &other].into_iter().any(|scenario| !scenario.task.trains());
        let keys = keys.filter(|key| !(key.name == "method" && trains_nothing));
        for key in keys.filter(|key| key.matters(&one) && key.matters(&other)) {
            let same = key.words(&one) == key.words(&other);
            prop_assert_eq!(same, key.is_same(&one, &other), "{}: {}", key.name, key.words(&one));
        }
    }

    #[test]
    fn a_setting_can_be_set_back(scenario in scenarios()) {
        let mut reset = scenario.clone();
        // What is set back may change the default of another, and that whether a third makes a difference.
        for _ in 0..4 {
            for key in reset.changed() {
                let defaults = reset.defaults();
                key.copy(&mut reset, &defaults);
            }
        }
        prop_assert_eq!(reset.changed().len(), 0);
    }

    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}") {
        let shared = decode(&text);
        prop_assert!(!shared.scenarios.is_empty());
    }

    #[test]
    fn any_damage_is_answered(scenario in scenarios(), at in any::<prop::sample::Index>(), junk in "[ -~]{0,4}") {
        let mut link = encode(&[scenario.clone(), scenario]);
        let at = at.index(link.len());
        link.replace_range(at..at + 1, &junk);
        let shared = decode(&link);
        prop_assert!((1..=MOST_SCENARIOS).contains(&shared.scenarios.len()));
        prop_assert_eq!(decode(&encode(&shared.scenarios)).scenarios, shared.scenarios);
    }
}

#[test]
fn ordinary_links_are_short() {
    let ordinary = Scenario {
        model: ModelChoice::Catalogue("mistralai/Mistral-Small-3.1-24B-Instruct-2503".into()),
        method: Method::Lora,
        lora: Lora { rank: 64, dropout: true, ..Scenario::default().lora },
        precision: Precision::AmpBf16,
        optimizer: Optimizer::PagedAdamW8bit,
        batch: 16,
        sequence: 8192,
        accumulation: 8,
        checkpointing: Checkpointing::Reentrant,
        attention: AttentionKernel::Flash,
        gpu: GpuChoice::Catalogue("rtx-pro-6000-blackwell".into()),
        ..Scenario::default()
    };
    let link = encode(std::slice::from_ref(&ordinary));
    assert!(link.len() < ORDINARY_LINK, "{} {link}", link.len());
    let compared = [
        ordinary.clone(),
        Scenario { method: Method::Qlora, ..ordinary.clone() },
        Scenario { batch: 8, ..ordinary },
    ];
    let link = encode(&compared);
    assert!(link.len() < ORDINARY_LINK, "{} {link}", link.len());
}

/// The longest link that every browser, chat and server passes on whole.
const LONGEST_LINK: usize = 2_000;

#[test]
fn a_model_of_ones_own_travels_in_the_link() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/models");
    let mut lengths = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_string_lossy();
        let Ok(model) = CustomModel::read(&name, &fs::read_to_string(&path).unwrap()) else { continue };
        let scenario = Scenario { model: ModelChoice::Custom(model.into()), ..Scenario::default() };
        let link = encode(std::slice::from_ref(&scenario));
        let shared = decode(&link);
        assert_eq!(shared.notices, [], "{link}");
        assert_eq!(shared.scenarios, [scenario], "{link}");
        lengths.push((link.len(), name.into_owned()));
    }
    lengths.sort();
    let (longest, median) = (lengths.last().unwrap(), &lengths[lengths.len() / 2]);
    assert!(longest.0 < LONGEST_LINK && median.0 < ORDINARY_LINK * 2, "{longest:?} {median:?}");
}

/// Comparisons and exports tell cards apart by their names.
#[test]
fn cards_have_names_of_their_own() {
    let mut names: Vec<_> = headroom::hardware::gpus().map(|gpu| gpu.name.to_string()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
