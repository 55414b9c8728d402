//! Whatever a config says, its step is answered at any size, and can be followed event by event or is said to be too long.
#![cfg(not(target_arch = "wasm32"))]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use headroom::accuracy::Doubt;
use headroom::estimate;
use headroom::explain::explain;
use headroom::model::read::parse;
use headroom::plan::{Answer, OnCard, Outcome};
use headroom::scenario::{
    AttentionKernel, Checkpointing, CustomModel, Evaluates, Evaluation, LARGEST, Lengths, LoraTargets,
    LossKernel, Method, ModelChoice, Optimizer, PolicyBatches, Precision, Scenario, Stack, Task,
};
use headroom::share;
use headroom::step::Recording;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

/// The names under which configs keep their depth.
const DEPTHS: [&str; 5] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"];

/// Every config of the catalogue's folder with three layers, that following its step takes no time.
static CONFIGS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let folder = format!("{}/data/models", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path| {
        let text = std::fs::read_to_string(path).unwrap().replace("Infinity", "1");
        let mut config = serde_json::from_str(&text).unwrap();
        shallow(&mut config);
        config
    };
    paths.iter().map(read).collect()
});

/// Leaves three layers of a config: its depth, and lists that have an entry for each.
fn shallow(config: &mut Value) {
    let Value::Object(config) = config else { return };
    for (key, value) in config.iter_mut() {
        match value {
            Value::Number(_) if DEPTHS.contains(&key.as_str()) => *value = json!(3),
            Value::Array(list) if list.len() > 3 => list.truncate(3),
            Value::Object(_) => shallow(value),
            _ => {}
        }
    }
}

/// The `n`-th number of a config, counted round.
fn number(value: &mut Value, n: usize) -> Option<&mut Value> {
    fn numbers<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
        match value {
            Value::Number(_) => found.push(value),
            Value::Object(object) => object.values_mut().for_each(|value| numbers(value, found)),
            Value::Array(list) => list.iter_mut().for_each(|value| numbers(value, found)),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    numbers(value, &mut found);
    let count = found.len().max(1);
    found.into_iter().nth(n % count)
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), Just(2), 1u64..5000, Just(LARGEST), 1..=LARGEST]
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let targets: Vec<_> = LoraTargets::ALL.iter().copied().filter(|it| *it != LoraTargets::Named).collect();
    (
        (select(Method::ALL), select(Optimizer::ALL), select(Precision::ALL), select(AttentionKernel::ALL)),
        (select(Checkpointing::ALL), select(Stack::ALL), select(LossKernel::ALL), select(targets)),
        (sizes(), sizes(), sizes(), sizes()),
        (any::<[bool; 6]>(), prop_oneof![Just(Lengths::Equal), Just(Lengths::Uniform)]),
        (select(&[Task::Sft, Task::Ppo]), select(Evaluates::ALL), sizes(), sizes(), sizes()),
    )
        .prop_map(|((method, optimizer, precision, attention), how, sizes, (flags, lengths), others)| {
            let (task, keeps, first, second, third) = others;
            let (checkpointing, stack, loss, targets) = how;
            let (batch, sequence, accumulation, rank) = sizes;
            let mut scenario = Scenario {
                task,
                policy: PolicyBatches { rollout: first, parts: second, epochs: third },
                evaluation: Evaluation { keeps, batch: first, accumulation: second, batches: third },
                method,
                optimizer,
                precision,
                attention,
                checkpointing,
                stack,
                batch,
                sequence,
                accumulation,
                lengths,
                ..Scenario::default()
            };
            if task == Task::Ppo {
                scenario.stack = Stack::Trl;
            }
            scenario.savings.loss = loss;
            scenario.lora.rank = rank;
            scenario.lora.targets = targets;
            let lora = &mut scenario.lora;
            [lora.dropout, lora.fp32_adapters, lora.trains_embeddings, lora.fused, ..] = flags;
            let training = &mut scenario.training_loop;
            [.., training.keeps_outputs, training.clips, training.fills_cache] = flags;
            scenario
        })
}

/// Answers a scenario under every optimizer, and follows its step.
fn answers(scenario: &Scenario) {
    for optimizer in Optimizer::ALL {
        let answer = estimate(&Scenario { optimizer: *optimizer, ..scenario.clone() });
        assert_eq!(answer.memory.is_none(), answer.errors().next().is_some(), "{:?}", answer.issues);
    }
    let (Ok(architecture), Ok(gpu)) = (scenario.architecture(), scenario.gpu()) else { return };
    let Ok(recording) = Recording::of(&architecture, scenario, &gpu) else { return };
    let on_card = OnCard::of(&recording, scenario.allocator, &gpu, Doubt::either_way(1.0));
    for line in explain(&recording.tensors_at_peak(on_card.settings), scenario) {
        assert!(!line.what.is_empty() && !line.formula.is_empty() && !line.why.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_a_model_is_answered(
        pick in any::<Index>(),
        changes in proptest::collection::vec((any::<usize>(), prop_oneof![0u64..70, sizes(), Just(1 << 30)]), 0..3),
        scenario in scenarios(),
    ) {
        let mut config = pick.get(&CONFIGS).clone();
        for (n, new) in changes {
            if let Some(number) = number(&mut config, n) {
                *number = json!(new);
            }
        }
        // a depth that was changed is one for the tests below
        shallow(&mut config);
        let config = config.to_string();
        let Ok(architecture) = parse(&config) else { return Ok(()) };
        let model = CustomModel { name: "own".to_owned(), config, architecture: Arc::new(architecture) };
        answers(&Scenario { model: ModelChoice::Custom(Arc::new(model)), ..scenario });
    }
}

/// A link that once ended the page: the sum over rows of nothing.
#[test]
fn heads_of_nothing_are_refused_in_a_link() {
    let link = "m=X(model_type:llama,hidden_size:32,num_hidden_layers:2,num_attention_heads:64,intermediate_size:128,\
                vocab_size:256)&method=lora&r=16777216&o=adafactor-torch";
    let shared = share::decode(link);
    let notices: Vec<_> = shared.notices.iter().map(ToString::to_string).collect();
    assert!(notices.iter().any(|notice| notice.contains("64 attention heads do not fit")), "{notices:?}");
    answers(&shared.scenarios[0]);
}

/// Links that once took the page seconds and gigabytes.
#[test]
fn deep_models_and_varying_lengths_are_bounded() {
    for (link, followed) in [
        (
            "m=Deep(model_type:llama,hidden_size:64,num_hidden_layers:4096,num_attention_heads:4,\
          intermediate_size:128,vocab_size:256)&method=lora&len=uniform",
            false,
        ),
        (
            "m=Deep(model_type:llama,hidden_size:64,num_hidden_layers:4096,num_attention_heads:4,\
          intermediate_size:128,vocab_size:256)&method=qlora&a=eager",
            false,
        ),
        (
            "m=Deep(model_type:t5,d_model:64,num_layers:4096,num_decoder_layers:4096,num_heads:4,d_ff:128,\
          vocab_size:256)&method=lora",
            false,
        ),
        ("m=openai-community/gpt2&len=uniform&acc=16777216", true),
        ("m=meta-llama/Llama-3.1-405B&len=uniform&acc=3", true),
    ] {
        let start = Instant::now();
        let shared = share::decode(link);
        let scenario = &shared.scenarios[0];
        let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
        let recording = Recording::of(&architecture, scenario, &gpu);
        match recording {
            Ok(recording) => assert!(followed && recording.trace().1.len() > 100, "{link}"),
            Err(issue) => {
                let text = issue.to_string();
                assert!(!followed && text.contains("too many to be followed"), "{link}: {text}");
                assert!(estimate(scenario).memory.is_some(), "{link}");
            }
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{link}: {:?}", start.elapsed());
    }
}

/// The batch is there before the first forward pass begins, and after the model is loaded.
#[test]
fn a_batch_beyond_the_card_is_no_failure_of_loading() {
    let answer = Answer::of(Scenario { batch: 1_000_000, ..Scenario::default() });
    let huge = answer.on_card.map(|on_card| on_card.outcome);
    assert!(matches!(huge, Some(Outcome::Fails(failure)) if failure.phase.is_some()), "{huge:?}");
}
