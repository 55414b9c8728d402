//! What an answer costs: `cargo bench`. The budgets stand in ARCHITECTURE.md.

use headroom::allocator::Settings;
use headroom::estimate;
use headroom::scenario::{
    AttentionKernel, Checkpointing, Cluster, Layout, Method, ModelChoice, Optimizer, Precision, Scenario,
    Sharding, Split, Stack,
};
use headroom::step::Recording;

fn main() {
    divan::main();
}

fn scenario(model: &str, method: Method) -> Scenario {
    Scenario {
        model: ModelChoice::Catalogue(model.into()),
        method,
        precision: if method == Method::Full { Precision::Bf16 } else { Precision::AmpBf16Weights },
        optimizer: Optimizer::AdamWFused,
        checkpointing: Checkpointing::Off,
        ..Scenario::default()
    }
}

const LLAMA_8B: &str = "meta-llama/Meta-Llama-3-8B";
const LLAMA_405B: &str = "meta-llama/Llama-3.1-405B";

#[divan::bench(args = Method::ALL)]
fn one_estimate_of_llama_3_8b(bencher: divan::Bencher, method: &Method) {
    let scenario = scenario(LLAMA_8B, *method);
    bencher.bench(|| estimate(divan::black_box(&scenario)));
}

/// Those that transformers trains with.
const SHARDINGS: [Sharding; 5] =
    [Sharding::Ddp, Sharding::Fsdp2, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3];

#[divan::bench(args = SHARDINGS)]
fn one_estimate_of_llama_3_8b_on_8_gpus(bencher: divan::Bencher, sharding: &Sharding) {
    let cluster = Cluster { gpus: 8, sharding: *sharding, ..Cluster::ONE };
    let scenario = Scenario { cluster, ..scenario(LLAMA_8B, Method::Full) };
    bencher.bench(|| estimate(divan::black_box(&scenario)));
}

#[divan::bench]
fn one_estimate_of_the_first_answer(bencher: divan::Bencher) {
    let scenario = Scenario::default();
    bencher.bench(|| estimate(divan::black_box(&scenario)));
}

/// Llama-3.1-405B on 512 GPUs: 8 to a layer and 16 to its 126 layers, of which the first and the last stage have 7 and the others 8,
/// and so 4 copies.
fn llama_3_1_405b_on_512_ranks() -> Scenario {
    let split = Split { counts_embedding: true, counts_loss: true, ..Split::EVEN };
    let layout = Layout { tensor: 8, pipeline: 16, split, ..Layout::WHOLE };
    let cluster = Cluster { gpus: 512, sharding: Sharding::Distributed, layout, ..Cluster::ONE };
    let base = scenario(LLAMA_405B, Method::Full);
    Scenario {
        cluster,
        stack: Stack::Megatron,
        precision: Precision::AmpBf16Weights,
        optimizer: Optimizer::AdamW,
        attention: AttentionKernel::Eager,
        accumulation: 64,
        ..base
    }
}

#[divan::bench]
fn one_estimate_of_llama_3_1_405b_on_512_ranks(bencher: divan::Bencher) {
    let scenario = llama_3_1_405b_on_512_ranks();
    bencher.bench(|| estimate(divan::black_box(&scenario)));
}

#[divan::bench]
fn replay_of_the_worst_of_512_ranks(bencher: divan::Bencher) {
    let scenario = llama_3_1_405b_on_512_ranks();
    let (architecture, gpu) = (scenario.architecture().expect("a model"), scenario.gpu().expect("a card"));
    bencher.bench(|| {
        let recording = Recording::of(&architecture, divan::black_box(&scenario), &gpu);
        recording.map(|recording| recording.allocate(Settings::default()))
    });
}

#[divan::bench(args = [LLAMA_8B, LLAMA_405B])]
fn full_replay(bencher: divan::Bencher, model: &str) {
    let scenario = scenario(model, Method::Full);
    let (architecture, gpu) = match (scenario.architecture(), scenario.gpu()) {
        (Ok(architecture), Ok(gpu)) => (architecture, gpu),
        (architecture, gpu) => panic!("{:?} {:?}", architecture.err(), gpu.err()),
    };
    bencher.bench(|| {
        let recording = Recording::of(&architecture, divan::black_box(&scenario), &gpu);
        recording.map(|recording| recording.allocate(Settings::default()))
    });
}
