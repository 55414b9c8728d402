//! By how much more sequences or tokens may need less. PyTorch itself takes less in a pair of runs of each cause:
//! `data/measurements/growth.json`, of which `tests/accuracy/` predicts both signs.

use headroom::model::blocks::Block;
use headroom::scenario::{LossKernel, Mask, Offloading, Precision, Scenario, Stack};

/// More is never less, but for what is named here, each with its cause: by how many percent less `larger` may need, which is
/// `scenario` with more sequences or tokens.
pub fn may_need_less(scenario: &Scenario, larger: &Scenario) -> f64 {
    // padding-free, the sequences of a micro-batch are one row
    let row = |scenario: &Scenario| match scenario.mask {
        Mask::PaddingFree => scenario.batch * scenario.sequence,
        _ => scenario.sequence,
    };
    let (before, after) = (row(scenario), row(larger));
    let (stack, savings) = (scenario.stack, scenario.savings);
    let architecture = scenario.architecture().expect("it is in the catalogue");
    // A row no longer than the window has no mask, and SDPA takes grouped heads as they are, which in float32 the math kernel
    // alone does; beyond it the mask stands, heads are repeated, and a kernel runs that keeps no probabilities.
    let is_crossed = |block: &Block| {
        block.mixer.attention().is_some_and(|attention| {
            attention.kv_heads < attention.heads
                && attention.window.is_some_and(|window| (before..after).contains(&window))
        })
    };
    if scenario.precision == Precision::Fp32 && architecture.blocks.iter().any(is_crossed) {
        return 100.0;
    }
    let cut = before != after;
    [
        // The head and the loss run over pieces of a row: 128 tokens each (litgpt), or an eighth of it (torchtune, the chunked
        // loss). A shorter last piece is a smaller copy.
        (
            cut && (matches!(stack, Stack::Litgpt | Stack::Torchtune) || savings.loss == LossKernel::Chunked),
            15.0,
        ),
        // Unsloth's pieces have a power of two of rows, and its checkpoints of more than 2 MB wait in the CPU's memory.
        (stack == Stack::Unsloth, 5.0),
        // The rows of a piece of Liger's fused loss are a power of two.
        (stack == Stack::Liger || savings.loss == LossKernel::Liger, 1.0),
        // Saved tensors of less than 1,024 bytes stay on the GPU; with more tokens they are larger and leave it.
        (savings.offloading == Offloading::On, 0.1),
    ]
    .into_iter()
    .filter_map(|(holds, percent)| holds.then_some(percent))
    .sum()
}
