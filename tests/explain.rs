//! Every tensor at the peak is explained: a sum that comes to its bytes, a reason of its own, a source.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use headroom::allocator::Settings;
use headroom::explain::{Level, Line, explain, zoom};
use headroom::memory::Category;
use headroom::model::catalogue;
use headroom::share;
use headroom::step::Recording;

#[track_caller]
fn lines(link: &str) -> Vec<Line> {
    let shared = share::decode(link);
    assert!(shared.notices.is_empty(), "{:?}", shared.notices);
    let scenario = &shared.scenarios[0];
    let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
    let recording = Recording::of(&architecture, scenario, &gpu).unwrap();
    explain(&recording.tensors_at_peak(Settings::default()), scenario)
}

/// The bytes that a sum says, each tensor rounded up to the 512 that the allocator hands out; none for what is summed up.
fn value(formula: &str) -> Option<u64> {
    let (sum, _) = formula.rsplit_once(" (")?;
    let digits = |text: &str| -> Option<u64> {
        let text: String = text.chars().filter(|c| c.is_ascii_digit() || *c == ' ').collect();
        text.split_whitespace().next().map(|number| number.parse().unwrap())
    };
    let factors: Vec<&str> = sum.split(" × ").collect();
    let product = |factors: &[&str]| -> Option<u64> {
        factors.iter().try_fold(1u64, |product, factor| {
            let (factor, divisor) = factor.split_once(" ÷ ").unwrap_or((factor, "1"));
            Some(product * digits(factor)? / digits(divisor)?)
        })
    };
    product(&factors)
}

/// Scenarios with pictures, whose patches are no tokens of the text.
const PICTURES: [&str; 3] = [
    "m=google/gemma-4-26B-A4B&img=2&imh=448&imw=448&s=700&method=lora&p=bf16&gc=on&b=2",
    "m=mistralai/Ministral-3-3B-Instruct-2512&img=1&imh=448&imw=448&s=777&method=lora&p=bf16&gc=off",
    "m=meta-llama/Llama-3.2-11B-Vision&img=2&s=300&method=lora&p=bf16&gc=on&b=2",
];

/// Scenarios of several families, methods and attention implementations.
const LINKS: [&str; 18] = [
    "m=openai-community/gpt2&method=full&attn=eager&gc=off&p=amp-bf16&s=1024",
    "m=openai-community/gpt2&method=full&attn=eager&gc=off&p=fp32&s=1024&b=3",
    "m=meta-llama/Llama-3.1-8B",
    "m=meta-llama/Llama-3.1-8B&method=full&gc=off&s=512&b=2",
    "m=meta-llama/Llama-3.1-8B&method=qlora&gc=off&attn=eager&s=256&b=2",
    "m=mistralai/Mixtral-8x7B-v0.1&method=lora&gc=off",
    "m=mistralai/Mixtral-8x7B-v0.1&method=lora&r=8",
    "m=google-bert/bert-base-uncased&method=full&gc=off&attn=eager&s=512&b=4",
    "m=google-bert/bert-base-uncased&method=full&gc=off&s=512&b=64",
    "m=meta-llama/Llama-3.2-1B&method=lora&st=torchtune&p=bf16&gc=off",
    "m=meta-llama/Llama-3.2-1B&method=qlora&st=torchtune&p=bf16",
    "m=meta-llama/Llama-3.2-1B&method=full&p=bf16&gc=off&offload=on&s=4096",
    "m=meta-llama/Llama-3.2-1B&method=qlora&st=unsloth&gc=offloaded",
    "m=meta-llama/Llama-3.2-1B&method=lora&st=unsloth&gc=off",
    "m=meta-llama/Llama-3.2-1B&method=full&st=trl&b=4",
    "m=meta-llama/Llama-3.2-1B&method=qlora&st=trl&mask=padding-free&b=4",
    "m=meta-llama/Llama-3.2-1B&method=lora&mask=packed&gc=off&b=2",
    "m=meta-llama/Llama-3.2-1B&method=lora&mask=padding-free&attn=flash-attention-2&b=4&gc=off",
];

#[test]
fn every_sum_comes_to_its_bytes() {
    for link in LINKS.into_iter().chain(PICTURES) {
        for line in lines(link) {
            // what blocks have beyond their tensors has no sum
            if line.what.ends_with("smaller tensors") || line.category == Category::Rounding {
                continue;
            }
            let value = value(&line.formula).unwrap_or_else(|| panic!("{link}: {}", line.formula));
            // the first factor may be the count of tensors, each of which is rounded up by itself
            let count =
                line.formula.split(" × ").next().and_then(|count| count.replace(',', "").parse().ok());
            let count = if line.formula.matches(" × ").count() > 1 { count.unwrap_or(1) } else { 1 };
            let exact = line.bytes.0 - value;
            assert!(
                line.bytes.0 >= value && (exact < 512 * count || line.bytes.0 == value.div_ceil(512) * 512),
                "{link}: {} is {value}, not {} ({})",
                line.formula,
                line.bytes.0,
                line.what
            );
        }
    }
}

/// What a tensor is, and its dimensions, are said where it is made. Elements without dimensions are states of a scan and
/// scratch space, which have no row for each token.
#[test]
fn every_large_tensor_is_explained_by_what_made_it() {
    let mut counted = 0;
    for (link, lines) in LINKS.iter().map(|link| (*link, lines(link))).chain(of_the_catalogue()) {
        for line in &lines {
            assert!(!line.why.is_empty() && !line.source.is_empty(), "{link}: {line:?}");
            let part: u64 =
                lines.iter().filter(|other| other.category == line.category).map(|other| other.bytes.0).sum();
            let is_large = line.bytes.0 * 20 > part && line.bytes.0 > 1 << 24;
            let has_rows = match line.category {
                Category::Activations | Category::Logits => !line.what.contains("mixer"),
                category => {
                    matches!(category, Category::Weights | Category::Adapters | Category::Gradients)
                }
            };
            counted += usize::from(is_large && has_rows);
            assert!(!is_large || !has_rows || !line.formula.contains(" elements"), "{link}: {line:?}");
        }
    }
    assert!(counted > 500, "only {counted} lines were looked at");
}

/// Models of every kind, in turns with what is kept most, operation by operation, and with what is kept least.
fn of_the_catalogue() -> impl Iterator<Item = (&'static str, Vec<Line>)> {
    let settings =
        ["&method=full&gc=off&attn=eager", "&method=qlora&gc=on", "&method=full&gc=off&p=amp-bf16"];
    catalogue::entries().iter().zip(settings.into_iter().cycle()).step_by(4).filter_map(
        |(entry, settings)| {
            let shared = share::decode(&format!("m={}&s=256&b=2{settings}", entry.id));
            let scenario = shared.scenarios.first()?;
            let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
            let recording = Recording::of(&architecture, scenario, &gpu).ok()?;
            Some((entry.id, explain(&recording.tensors_at_peak(Settings::default()), scenario)))
        },
    )
}

/// The line of that category whose name is that.
#[track_caller]
fn find<'l>(lines: &'l [Line], category: Category, what: &str) -> &'l Line {
    let found = lines.iter().find(|line| line.category == category && line.what == what);
    found.unwrap_or_else(|| panic!("{what}: {:#?}", lines.iter().map(|line| &line.what).collect::<Vec<_>>()))
}

#[test]
fn what_is_said_is_true_of_the_tensor() {
    let gpt2 = lines("m=openai-community/gpt2&method=full&attn=eager&gc=off&p=amp-bf16&s=1024");
    for (what, formula, why) in [
        (
            "self_attn: softmax",
            "12 × 1,024 tokens × 1,024 keys × 12 heads × 4 bytes (float32)",
            "attention probabilities",
        ),
        (
            "self_attn: dropout",
            "12 × 1,024 tokens × 1,024 keys × 12 heads × 2 bytes (bfloat16)",
            "after dropout",
        ),
        (
            "self_attn: dropout mask",
            "12 × 1,024 tokens × 1,024 keys × 12 heads × 1 byte (bool)",
            "which elements dropout kept",
        ),
        ("mlp: add", "12 × 1,024 tokens × 3,072 × 4 bytes (float32)", "the activation function"),
        ("add", "24 × 1,024 tokens × 768 × 4 bytes (float32)", "residual path"),
    ] {
        let line = find(&gpt2, Category::Activations, what);
        assert_eq!(line.formula, formula, "{what}");
        assert!(line.why.contains(why), "{line:?}");
    }
    let rest = gpt2
        .iter()
        .find(|line| line.category == Category::Activations && line.what.ends_with("smaller tensors"));
    assert!(rest.unwrap().why.starts_with("smaller ones"), "{rest:?}");
    let hidden = find(&gpt2, Category::Logits, "lm_head: cast");
    assert!(
        hidden.why.starts_with("the layer's input") && hidden.formula.contains("1,024 tokens × 768"),
        "{hidden:?}"
    );
    let loss = gpt2
        .iter()
        .find(|line| line.category == Category::Logits && line.formula.contains("1 × 4 bytes"))
        .unwrap();
    assert!(loss.why.starts_with("the loss itself"), "{loss:?}");

    let llama = lines("m=meta-llama/Llama-3.1-8B");
    let rotary = find(&llama, Category::Activations, "rotary_emb: mul");
    assert!(
        rotary.why.starts_with("cosines or sines") && rotary.formula.contains("2,048 positions × 128"),
        "{rotary:?}"
    );
    let range = find(&llama, Category::Activations, "range");
    assert!(range.why.starts_with("indices"), "{range:?}");
    let adapters: Vec<_> = llama
        .iter()
        .filter(|line| line.what == "mlp.down_proj" && line.category == Category::Adapters)
        .collect();
    let formulas: Vec<_> = adapters.iter().map(|line| line.formula.as_str()).collect();
    assert_eq!(
        formulas,
        ["32 × rank 16 × 14,336 × 4 bytes (float32)", "32 × 4,096 × rank 16 × 4 bytes (float32)"]
    );
    let mixtral = lines("m=mistralai/Mixtral-8x7B-v0.1&method=lora&gc=off");
    let experts: Vec<_> = mixtral
        .iter()
        .filter(|line| line.category == Category::Adapters && line.what == "mlp.experts")
        .map(|line| line.formula.as_str())
        .collect();
    assert_eq!(
        experts,
        [
            "32 × 28,672 × rank 16 × 16 × 4 bytes (float32)",
            "32 × rank 16 × 8 × 14,336 × 4 bytes (float32)",
            "32 × rank 16 × 16 × 4,096 × 4 bytes (float32)",
            "32 × 4,096 × rank 16 × 8 × 4 bytes (float32)",
        ]
    );
    let whole = lines("m=meta-llama/Llama-3.1-8B&method=lora&train-embeddings=on");
    let copy = find(&whole, Category::Adapters, "embed_tokens");
    assert!(copy.why.contains("modules_to_save") && copy.formula.starts_with("128,256 × 4,096 "), "{copy:?}");
    let packed = find(&llama, Category::Weights, "mlp.down_proj: 4-bit weight");
    assert_eq!(packed.formula, "32 × 4,096 × 14,336 ÷ 2 × 1 byte (uint8)");
    let scales = find(&llama, Category::QuantState, "mlp.down_proj: scales (8-bit)");
    assert_eq!(scales.formula, "32 × 4,096 × 14,336 ÷ 64 × 1 byte (uint8)");
}

/// What is drawn of a step: as few moments as are asked for, two more for a phase's last stretch, in the order of the events,
/// every phase and the highest moment among them.
#[test]
fn a_timeline_has_few_moments_and_the_highest() {
    for link in [LINKS[2], LINKS[11]] {
        let scenario = share::decode(link).scenarios.remove(0);
        let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
        let recording = Recording::of(&architecture, &scenario, &gpu).unwrap();
        let settings = Settings::default();
        let highest = recording.heights(settings).into_iter().map(|(_, bytes)| bytes).max();
        let phases = |points: usize| {
            let moments = recording.timeline(recording.shown(), points, settings);
            let mut phases: Vec<_> = moments.iter().map(|moment| moment.phase).collect();
            phases.dedup();
            assert!(moments.len() <= points + 2 * phases.len(), "{link}: {} of {points}", moments.len());
            assert!(moments.is_sorted_by(|one, other| one.at < other.at), "{link}");
            assert_eq!(moments.iter().map(|moment| moment.parts.total()).max(), highest, "{link}");
            phases
        };
        assert!(phases(10).len() > 2 && phases(10) == phases(400), "{link}");
    }
}

#[track_caller]
fn opened(link: &str, part: Category) -> Vec<Level> {
    let scenario = &share::decode(link).scenarios[0];
    let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
    let recording = Recording::of(&architecture, scenario, &gpu).unwrap();
    let at = recording.replay(Settings::default()).highest;
    zoom(&recording.tensors_by_layer(at, Settings::default()), part, scenario)
}

/// The level of that name.
#[track_caller]
fn level<'l>(levels: &'l [Level], name: &str) -> &'l Level {
    let found = levels.iter().find(|level| level.line.what == name);
    found.unwrap_or_else(|| {
        panic!("{name}: {:?}", levels.iter().map(|level| &level.line.what).collect::<Vec<_>>())
    })
}

#[test]
fn a_part_opens_into_modules_layers_and_tensors() {
    let link = "m=meta-llama/Llama-3.1-8B";
    let weights = opened(link, Category::Weights);
    // one tensor in each of all layers is one line
    let down = level(&weights, "mlp.down_proj: 4-bit weight, layers 0 to 31");
    assert_eq!(
        (down.line.formula.as_str(), down.inside.len()),
        ("32 × 4,096 × 14,336 ÷ 2 × 1 byte (uint8)", 0)
    );
    assert_eq!(level(&weights, "lm_head").line.formula, "128,256 × 4,096 × 4 bytes (float32)");
    let adapters = opened(link, Category::Adapters);
    let down = level(&adapters, "mlp.down_proj, layers 0 to 31");
    let [first, second] = &down.inside[..] else { panic!("{down:?}") };
    assert_eq!((down.times, first.line.formula.as_str()), (32, "rank 16 × 14,336 × 4 bytes (float32)"));
    assert_eq!(down.line.bytes.0, 32 * (first.line.bytes.0 + second.line.bytes.0));
    assert_eq!(down.line.source, "peft, tuners/lora/layer.py");
}

#[test]
fn what_is_recomputed_is_in_one_layer() {
    let scenario = &share::decode("m=meta-llama/Llama-3.2-1B&method=lora&p=bf16").scenarios[0];
    let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
    let recording = Recording::of(&architecture, scenario, &gpu).unwrap();
    let settings = Settings::default();
    let layers: BTreeSet<String> = recording
        .timeline(recording.shown(), 200, settings)
        .into_iter()
        .flat_map(|moment| {
            let tensors = recording.tensors_by_layer(moment.at, settings);
            zoom(&tensors, Category::Activations, scenario)
        })
        .filter_map(|level| {
            let (_, layer) = level.line.what.split_once(", layer ")?;
            Some(layer.to_owned())
        })
        .collect();
    assert!(layers.len() > 8 && layers.iter().all(|layer| layer.parse::<u32>().is_ok()), "{layers:?}");
}
