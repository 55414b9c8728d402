use super::*;
use crate::hardware::{Gpu, gpu};
use crate::scenario::colocated::BLOCK;
use crate::scenario::{GpuChoice, GroupSize, ModelChoice, Task};

/// What vLLM 0.21 itself found over a null device of compute capability 8.0 (data/SOURCES.md).
const RUNS: &str = include_str!("../../../data/vllm.tsv");

/// A line of it.
struct Run {
    said: &'static str,
    architecture: std::sync::Arc<Architecture>,
    ranks: u64,
    share: Share,
    length: Option<u64>,
    weights: Option<u64>,
    peak: Option<u64>,
    available: Option<u64>,
    blocks: Option<u64>,
    at_once: Option<f64>,
}

fn runs() -> Vec<Run> {
    let read = |said: &'static str| {
        let fields: Vec<_> = said.split('\t').collect();
        let number = |place: usize| fields[place].parse::<u64>().ok();
        let (tokens, sequences) = (number(2).unwrap(), number(3).unwrap());
        Run {
            said,
            architecture: ModelChoice::Catalogue(fields[0].into()).architecture().unwrap(),
            ranks: number(1).unwrap(),
            share: Share { percent: 90, bytes: Bytes::gib(72.0), tokens, sequences },
            length: number(4),
            weights: number(6),
            peak: number(7),
            available: number(8),
            blocks: number(9),
            at_once: fields[10].parse().ok(),
        }
    };
    let runs: Vec<_> = RUNS.lines().skip(1).map(read).collect();
    assert!(runs.len() > 20);
    runs
}

fn measured_on() -> Gpu {
    gpu("a100-sxm-80gb").unwrap()
}

#[test]
fn profiling_runs_lie_in_the_range() {
    let mut compared = 0;
    for run in runs() {
        let Some(peak) = run.peak else { continue };
        let rank = ranks::rank(&run.architecture, run.ranks).unwrap();
        let profiled = Profiled {
            rank: &rank,
            ranks: run.ranks,
            vocabulary: run.architecture.vocab,
            stored: Stored::Half,
            length: run.length.unwrap_or(8192),
            share: run.share,
        };
        let Between { least, most } = profiled.transient(&measured_on()).unwrap();
        let (least, most) = (least.0 as f64 * 0.998, most.0 as f64 * 1.002);
        let said = format!("{}: {} in {least:.0} to {most:.0}", run.said, peak);
        assert!((least..=most).contains(&(peak as f64)), "{said}");
        compared += 1;
    }
    assert!(compared > 25, "{compared}");
}

/// A small model with two tables of positions, one for its windows, whose matrices PyTorch's allocator gives blocks that are a twentieth
/// larger: what is left of one is not split off below a MiB.
const ROUNDED: &str = "google/gemma-3-1b-it";

/// What a rank loads, its table of sines and cosines with it.
#[test]
fn weights_of_a_rank_are_those_that_it_loads() {
    let mut compared = 0;
    for run in runs() {
        let Some(weights) = run.weights else { continue };
        let rank = ranks::rank(&run.architecture, run.ranks).unwrap();
        let counted = Stored::Half.bytes(&rank).0 + profile::positions(&rank);
        let allowed = if run.said.starts_with(ROUNDED) { weights / 20 } else { weights / 500 };
        assert!(weights.abs_diff(counted) <= allowed, "{}: {counted}", run.said);
        compared += 1;
    }
    assert!(compared > 5);
}

/// Of what vLLM had left it made as many blocks, and as many sequences ran at once.
#[test]
fn blocks_and_sequences_are_vllms_own() {
    let mut compared = 0;
    for run in runs() {
        let (Some(available), Some(blocks), Some(at_once), Some(length)) =
            (run.available, run.blocks, run.at_once, run.length)
        else {
            continue;
        };
        let rank = ranks::rank(&run.architecture, run.ranks).unwrap();
        let own = Blocks::of(&rank, Cache::AsComputed).unwrap();
        assert_eq!(own.within(available), blocks, "{}", run.said);
        let sequences = blocks as f64 / own.of_sequence(length, run.share.tokens) as f64;
        assert!((sequences - at_once).abs() < 1e-9, "{}: {sequences}", run.said);
        compared += 1;
    }
    assert!(compared > 5);
}

#[test]
fn what_cannot_be_divided_is_said() {
    let llama = ModelChoice::Catalogue("meta-llama/Llama-3.2-1B".into()).architecture().unwrap();
    let refusal = |ranks| ranks::rank(&llama, ranks).unwrap_err();
    assert_eq!(refusal(3), "it does not divide 32 heads among 3 GPUs");
    // 8 heads of keys and values: two GPUs have the same one
    let of_16 = ranks::rank(&llama, 16).unwrap();
    let heads = of_16.blocks[0].mixer.attention().map(|attention| (attention.heads, attention.kv_heads));
    assert_eq!(heads, Some((2, 1)));
    let whole = ranks::rank(&llama, 1).unwrap();
    assert_eq!(whole.parameters(), llama.parameters());
}

/// Qwen3-30B-A3B's experts are 768 columns wide: on 2 GPUs 384 each, three blocks of 128, on 4 GPUs 192.
#[test]
fn scales_that_a_part_would_cut_are_refused() {
    let room = |gpus: u64, stored: Stored| {
        let mut scenario = scenario("Qwen/Qwen3-30B-A3B", Bytes::gib(80.0));
        scenario.cluster.gpus = gpus;
        serving(&scenario).unwrap().into_iter().find(|row| row.stored == stored).unwrap().room
    };
    for stored in [Stored::Fp8, Stored::Gptq, Stored::Awq] {
        assert!(matches!(room(2, stored), Room::Tokens { .. }), "{stored:?}");
        let refused = room(4, stored);
        assert!(matches!(&refused, Room::Unknown(why) if why.contains("192 columns")), "{refused:?}");
    }
    assert!(matches!(room(4, Stored::Half), Room::Tokens { .. }));
}

/// As many tokens on each of them: what one GPU has no weights of is room for keys and values.
#[test]
fn more_gpus_keep_more_tokens() {
    let kept = |gpus: u64| {
        let mut scenario = scenario("Qwen/Qwen3-8B", Bytes::gib(24.0));
        scenario.cluster.gpus = gpus;
        let rows = serving(&scenario).unwrap();
        let half = rows.iter().find(|row| row.stored == Stored::Half).unwrap();
        match &half.room {
            Room::Tokens { tokens: [least, _], .. } => *least,
            other => panic!("{other:?}"),
        }
    };
    let [one, two, four] = [1, 2, 4].map(kept);
    assert!(one * 4 < two && two * 2 < four, "{one} {two} {four}");
}

fn scenario(model: &str, card: Bytes) -> Scenario {
    Scenario {
        task: Task::Generate,
        model: ModelChoice::Catalogue(model.into()),
        method: Method::Full,
        precision: Precision::Bf16,
        sequence: 2048,
        gpu: GpuChoice::Custom(card),
        ..Scenario::default()
    }
}

fn rows(model: &str, card: Bytes) -> Vec<ServingRow> {
    serving(&scenario(model, card)).unwrap()
}

/// Qwen3-8B on 24 GiB: vLLM made 2,828 blocks in one measured run.
#[test]
fn what_is_left_are_blocks() {
    let rows = rows("Qwen/Qwen3-8B", Bytes::gib(24.0));
    let half = rows.iter().find(|row| row.stored == Stored::Half).unwrap();
    let Room::Tokens { tokens: [least, most], .. } = half.room else { panic!("{:?}", half.room) };
    let measured = 2_828 * BLOCK;
    assert!(least <= measured && measured <= most + most / 1000, "{least} {measured} {most}");
}

/// Keys and values of a byte each: twice as many tokens, to a block.
#[test]
fn fp8_holds_twice_as_many() {
    let mut compared = 0;
    for row in rows("Qwen/Qwen3-8B", Bytes::gib(24.0)) {
        let (Room::Tokens { tokens, .. }, Room::Tokens { tokens: more, .. }) = (&row.room, &row.fp8) else {
            continue;
        };
        for (own, more) in tokens.iter().zip(more) {
            assert!((2 * own..=2 * own + BLOCK).contains(more), "{row:?}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// GPTQ's and AWQ's groups are those that are chosen.
#[test]
fn groups_are_the_scenarios() {
    let mut scenario =
        Scenario { model: ModelChoice::Catalogue("Qwen/Qwen3-8B".into()), ..Scenario::default() };
    let weights = |scenario: &Scenario| {
        let rows = serving(scenario).unwrap();
        let row = rows.into_iter().find(|row| row.stored == Stored::Gptq).unwrap();
        (row.label(), row.weights)
    };
    let plain = weights(&scenario);
    scenario.quantization.group = GroupSize::Of32;
    let finer = weights(&scenario);
    assert_eq!((&*plain.0, &*finer.0), ("GPTQ (4 bits, 128)", "GPTQ (4 bits, 32)"));
    // 6.95 billion weights of linear layers, a scale and a zero of 2.5 bytes for each group
    assert_eq!(
        (finer.1.0 - plain.1.0) / 1_000_000,
        (6_945_767_424_u64 / 32 - 6_945_767_424 / 128) * 5 / 2 / 1_000_000
    );
}

#[test]
fn what_was_not_followed_is_said() {
    let small = rows("Qwen/Qwen3-8B", Bytes::gib(8.0));
    assert!(small.iter().filter(|row| row.room == Room::Stops).count() > 2, "{small:?}");
    // recurrent states, a model that sees, an indexer, chunks
    let models = [
        "ai21labs/Jamba-v0.1",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "deepseek-ai/DeepSeek-V3.2",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
    ];
    for model in models {
        let rows = rows(model, Bytes::gib(80.0));
        for row in &rows {
            assert!([&row.room, &row.fp8].iter().all(|room| matches!(room, Room::Unknown(_))), "{model}");
        }
        assert_eq!(unanswered(&rows).iter().map(|(_, formats)| formats.len()).sum::<usize>(), rows.len());
        assert!(rows.iter().all(|row| row.weights > Bytes::ZERO));
    }
}

/// Triton's and Marlin's kernels for experts were followed, bitsandbytes' were not.
#[test]
fn mixtures_have_an_answer_but_under_bitsandbytes() {
    for row in rows("Qwen/Qwen3-30B-A3B", Bytes::gib(80.0)) {
        let is_known = matches!(row.room, Room::Tokens { .. });
        let followed = matches!(
            row.stored,
            Stored::Half | Stored::Fp8 | Stored::Gptq | Stored::Awq | Stored::Nvfp4 | Stored::Mxfp4
        );
        assert_eq!(is_known, followed, "{row:?}");
    }
}

/// A model whose layers all have windows keeps as many tokens of long sequences as of those that are a window and a batch long.
#[test]
fn windows_bound_what_a_sequence_takes() {
    let mistral = ModelChoice::Catalogue("mistralai/Mistral-7B-v0.1".into()).architecture().unwrap();
    let blocks = Blocks::of(&mistral, Cache::AsComputed).unwrap();
    // 4,095 tokens of the window and 2,048 of a batch in blocks of 16, and one
    assert_eq!([4096, 6143, 1 << 20].map(|length| blocks.of_sequence(length, 2048)), [257, 385, 385]);
    let gemma = ModelChoice::Catalogue("google/gemma-2-9b".into()).architecture().unwrap();
    let blocks = Blocks::of(&gemma, Cache::AsComputed).unwrap();
    assert_eq!(blocks.of_sequence(8192, 2048), 512 + 385);
}
