//! What a guide measured, beside what its run is predicted to take. The guides' sums are tests of `src/rules.rs`.

#![cfg(not(target_arch = "wasm32"))]

use headroom::estimate;
use headroom::memory::{Phase, Stage};
use headroom::scenario::{AttentionKernel, CustomModel, GpuChoice, Method, ModelChoice, Precision, Scenario};
use serde_json::json;

/// A Gear Head model runs forward and backward: "Model parameters: 34,083,904", batch 2 of 512, checkpointed, "Peak memory: 0.63 GB".
///
/// The guide does not state the dimensions. Of what its repository (thINKblots/gearhead, `gearhead_model.py` and
/// `small_config_rocm.yaml`) takes by default, one set has that many parameters: a GPT-2 of 6 layers of 384 with 3,072 in between, 512
/// positions and 32,000 tokens; beside it 10,000 embeddings of codes, which the test does not look up, and a head of 64. A model of
/// these dimensions with the same operations, written anew, has 686,091,776 bytes allocated on the null device: 0.639 GiB.
#[test]
fn a_gear_head_step_takes_what_its_guide_measured() {
    const MEASURED: f64 = 686_091_776.0;
    const UNUSED: u64 = 10_000 * 384 + (384 + 1) * 64;
    let config = json!({
        "model_type": "gpt2", "n_embd": 384, "n_layer": 6, "n_head": 6, "n_inner": 3072, "vocab_size": 32_000, "n_positions": 512,
        "activation_function": "gelu",
    });
    let model = CustomModel::read("gearhead", &config.to_string()).expect("it is a gpt2");
    let mut scenario = Scenario {
        model: ModelChoice::Custom(model.into()),
        gpu: GpuChoice::Catalogue("a100-sxm-80gb".into()),
        ..Scenario::default()
    };
    scenario.change(|scenario| scenario.method = Method::Full);
    (scenario.precision, scenario.attention) = (Precision::Fp32, AttentionKernel::Eager);
    (scenario.batch, scenario.sequence) = (2, 512);
    let parameters = scenario.architecture().expect("it has one").parameters();
    assert_eq!(parameters + UNUSED, 34_083_904);

    let memory = estimate(&scenario).memory.expect("it has an answer");
    let step = memory.first.phase(Phase { act: 0, stage: Stage::Backward }).bytes.0;
    // its loss copies all logits but each last row, where transformers pads the labels
    let copied = 2 * 511 * 32_000 * 4;
    let predicted = (step + copied + UNUSED * 4) as f64;
    assert!((predicted / MEASURED - 1.0).abs() < 0.01, "{predicted}");
    assert!((predicted / f64::from(1 << 30) - 0.63).abs() < 0.015, "{predicted}");
}
