use super::cache::Blocks;
use super::*;
use crate::hardware::gpu;
use crate::model::catalogue;

/// What vLLM 0.21 itself found over a null device of compute capability 8.0 (data/SOURCES.md).
const RUNS: &str = include_str!("../../data/vllm.tsv");

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
            architecture: catalogue::architecture(fields[0]).unwrap(),
            ranks: number(1).unwrap(),
            share: Share {
                percent: 90,
                bytes: Bytes::gib(72.0),
                tokens,
                sequences,
                own_tokens: None,
                returns_processed: fields[11] == "processed",
            },
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
    let (mut compared, mut missed) = (0, Vec::new());
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
        if !(least..=most).contains(&(peak as f64)) {
            missed.push(said);
        }
        compared += 1;
    }
    assert!(compared > 35 && missed.is_empty(), "{compared}: {missed:#?}");
}

/// Matrices of a MiB to 10 are laid into pieces of 20, and PyTorch's allocator does not split off what is left of one below a MiB: what
/// that comes to at most, of models with many small matrices, as towers have.
const ROUNDED: u64 = 200 << 20;

/// What a rank loads, its table of sines and cosines with it.
#[test]
fn weights_of_a_rank_are_those_that_it_loads() {
    let (mut compared, mut missed) = (0, Vec::new());
    for run in runs() {
        let Some(weights) = run.weights else { continue };
        let rank = ranks::rank(&run.architecture, run.ranks).unwrap();
        let counted = Stored::Half.bytes(&rank).0 + profile::positions(&rank);
        let allowed = (weights / 500).max(ROUNDED);
        if weights.abs_diff(counted) > allowed {
            missed.push(format!("{}: {counted}", run.said));
        }
        compared += 1;
    }
    assert!(compared > 5 && missed.is_empty(), "{missed:#?}");
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
    let llama = catalogue::architecture("meta-llama/Llama-3.2-1B").unwrap();
    let refusal = |ranks| ranks::rank(&llama, ranks).unwrap_err();
    assert_eq!(refusal(3), "it does not divide 32 heads among 3 GPUs");
    // 8 heads of keys and values: two GPUs have the same one
    let of_16 = ranks::rank(&llama, 16).unwrap();
    let heads = of_16.blocks[0].mixer.attention().map(|attention| (attention.heads, attention.kv_heads));
    assert_eq!(heads, Some((2, 1)));
    let whole = ranks::rank(&llama, 1).unwrap();
    assert_eq!(whole.parameters(), llama.parameters());
}

/// A model whose layers all have windows keeps as many tokens of long sequences as of those that are a window and a batch long.
#[test]
fn windows_bound_what_a_sequence_takes() {
    let mistral = catalogue::architecture("mistralai/Mistral-7B-v0.1").unwrap();
    let blocks = Blocks::of(&mistral, Cache::AsComputed).unwrap();
    // 4,095 tokens of the window and 2,048 of a batch in blocks of 16, and one
    assert_eq!([4096, 6143, 1 << 20].map(|length| blocks.of_sequence(length, 2048)), [257, 385, 385]);
    let gemma = catalogue::architecture("google/gemma-2-9b").unwrap();
    let blocks = Blocks::of(&gemma, Cache::AsComputed).unwrap();
    assert_eq!(blocks.of_sequence(8192, 2048), 512 + 385);
}
