//! What share of its data sheet a card reaches in training, from measured runs: `data/measurements/time.json`, whose rows of use
//! "derive" these figures rest on: fitted for A100, H100 and B200, set by hand from two rows each for the others (`tests/time.rs` holds them to it).

use crate::hardware::{Gpu, Vendor};

/// What a card was measured to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Speed {
    /// The card; empty where it is the middle of several.
    pub card: &'static str,
    /// The share of its TFLOP/s in matrix products.
    pub products: f64,
    /// The same in fused attention kernels.
    pub attention: f64,
    /// The share of its GB/s at which operations write; they read as well.
    pub memory: f64,
    /// Between which multiples of what follows from these the measured times lie.
    pub range: (f64, f64),
    /// How many measured rows it rests on.
    pub rows: usize,
    /// Whose they are.
    pub sources: &'static str,
}

/// Seconds in which a program starts an operation: below that a GPU waits for Python. Of runs of 256 tokens.
pub(super) const LAUNCH: f64 = 23.8e-6;

/// The share of its GB/s at which a card reads weights that few tokens are multiplied by: Qwen2.5-32B by vLLM on an A100 (QwenLM/
/// Qwen2.5@a912d23 docs/source/benchmark/speed_benchmark.rst), 22.13 tokens per second of 64.0 GB each, where nothing waits for
/// Python.
pub(super) const READS: f64 = 0.69;

pub(super) const SPEEDS: [Speed; 6] = [
    Speed {
        card: "a100-sxm-80gb",
        products: 0.76,
        attention: 0.33,
        memory: 0.40,
        range: (0.71, 1.25),
        rows: 52,
        sources: "llm-foundry, Qwen",
    },
    Speed {
        card: "h100-sxm-80gb",
        products: 0.58,
        attention: 0.43,
        memory: 0.40,
        range: (0.75, 1.83),
        rows: 21,
        sources: "llm-foundry, prime-rl",
    },
    Speed {
        card: "rtx-a6000",
        products: 0.45,
        attention: 0.56,
        memory: 0.40,
        range: FEW,
        rows: 2,
        sources: "prime-rl",
    },
    Speed {
        card: "rtx-4090",
        products: 0.78,
        attention: 0.50,
        memory: 1.00,
        range: FEW,
        rows: 2,
        sources: "fsdp_qlora",
    },
    Speed {
        card: "rtx-3090",
        products: 0.84,
        attention: 0.50,
        memory: 1.00,
        range: FEW,
        rows: 2,
        sources: "fsdp_qlora",
    },
    Speed {
        card: "b200",
        products: 0.46,
        attention: 0.30,
        memory: 0.40,
        range: FEW,
        rows: 8,
        sources: "SimuMax",
    },
];

/// The range where too few rows were measured to tell.
const FEW: (f64, f64) = (0.6, 1.4);

/// What a card reaches of which nothing near was measured: the medians of the cards above, and the range in which measured times lie
/// when each of those cards is predicted from the others (`tests/time.rs` derives both).
pub(super) const OTHERS: Speed = Speed {
    card: "",
    products: 0.67,
    attention: 0.465,
    memory: 0.40,
    range: (0.5, 2.1),
    rows: 87,
    sources: "llm-foundry, Qwen, prime-rl, fsdp_qlora, SimuMax",
};

/// How far the data sheets of two cards may be apart for one to stand for the other.
const FACTOR: f64 = 2.0;

/// How near to a card that is what its figures rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// The card itself.
    Card,
    /// One of its compute capability, whose data sheet is within a factor of two.
    Generation,
    /// Cards of other generations: the rougher answer.
    Others,
}

/// What is known of a card: of itself, of one of its generation whose figures are nearest, or of NVIDIA's others.
pub(super) fn speed_of(gpu: &Gpu) -> Option<(&'static Speed, Near)> {
    if let Some(own) = SPEEDS.iter().find(|speed| *gpu.slug == *speed.card) {
        return Some((own, Near::Card));
    }
    let near = SPEEDS.iter().filter_map(|speed| Some((distance(gpu, speed)?, speed)));
    let near = near.min_by(|(one, _), (other, _)| one.total_cmp(other));
    match near {
        Some((_, speed)) => Some((speed, Near::Generation)),
        None => (gpu.vendor == Vendor::Nvidia).then_some((&OTHERS, Near::Others)),
    }
}

/// How far a card is from one that was measured, where it is near enough.
fn distance(gpu: &Gpu, speed: &Speed) -> Option<f64> {
    let other = crate::hardware::gpu(speed.card).ok()?;
    if gpu.capability.is_none() || gpu.capability != other.capability {
        return None;
    }
    let apart = |one: Option<f64>, other: Option<f64>| Some((one? / other?).ln().abs());
    let [flops, bytes] = [apart(gpu.tflops, other.tflops)?, apart(gpu.bandwidth, other.bandwidth)?];
    (flops.max(bytes) <= FACTOR.ln()).then_some(flops + bytes)
}
