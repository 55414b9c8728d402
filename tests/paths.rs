//! One layer on behalf of many must say what all of them say: the fast path against every event of the step.

#![cfg(not(target_arch = "wasm32"))]

use headroom::model::catalogue;
use headroom::scenario::{
    AttentionKernel, Checkpointing, Loop, Mask, Method, ModelChoice, Offloading, Optimizer, Precision,
    Savings, Scenario, Stack, StepTime,
};
use headroom::step::{self, Recording, Traced};

/// The highest point of a later iteration, event by event.
fn highest(recording: &Recording) -> u64 {
    let (mut bytes, events) = recording.trace();
    let mut highest = bytes.0;
    for event in events {
        match event {
            Traced::Alloc { bytes: size, .. } => bytes.0 += size.div_ceil(512) * 512,
            Traced::Free { bytes: size, .. } => bytes.0 -= size.div_ceil(512) * 512,
            Traced::Phase(_) => {}
        }
        highest = highest.max(bytes.0);
    }
    highest
}

/// Settings that change what a step keeps: every model of the catalogue is run with each.
fn variations() -> [Scenario; 18] {
    let base = Scenario {
        batch: 2,
        sequence: 256,
        method: Method::Full,
        checkpointing: Checkpointing::Off,
        precision: Precision::Bf16,
        ..Scenario::default()
    };
    let in_backward = Savings { step: StepTime::InBackward, ..base.savings };
    let offloaded = Savings { offloading: Offloading::On, ..base.savings };
    let unsloth = Scenario {
        stack: Stack::Unsloth,
        method: Method::Qlora,
        checkpointing: Checkpointing::Offloaded,
        ..base.clone()
    };
    let kept = Loop { keeps_outputs: true, grads_to_none: false, ..base.training_loop };
    [
        base.clone(),
        Scenario {
            checkpointing: Checkpointing::NonReentrant,
            precision: Precision::AmpBf16,
            optimizer: Optimizer::AdamW8bit,
            ..base.clone()
        },
        Scenario { attention: AttentionKernel::Eager, method: Method::Lora, accumulation: 4, ..base.clone() },
        Scenario {
            checkpointing: Checkpointing::Reentrant,
            attention: AttentionKernel::Eager,
            method: Method::Lora,
            training_loop: kept,
            ..base.clone()
        },
        Scenario {
            method: Method::Qlora,
            precision: Precision::AmpBf16Weights,
            dropout: Some(100),
            ..base.clone()
        },
        Scenario { savings: in_backward, optimizer: Optimizer::AdamW, ..base.clone() },
        Scenario {
            savings: in_backward,
            optimizer: Optimizer::AdamW8bit,
            checkpointing: Checkpointing::NonReentrant,
            ..base.clone()
        },
        Scenario { stack: Stack::Torchtune, method: Method::Lora, ..base.clone() },
        Scenario {
            stack: Stack::Torchtune,
            method: Method::Qlora,
            checkpointing: Checkpointing::NonReentrant,
            ..base.clone()
        },
        Scenario { savings: offloaded, checkpointing: Checkpointing::NonReentrant, ..base.clone() },
        Scenario { stack: Stack::Trl, precision: Precision::AmpBf16, ..base.clone() },
        Scenario {
            stack: Stack::Trl,
            method: Method::Qlora,
            mask: Mask::PaddingFree,
            checkpointing: Checkpointing::NonReentrant,
            accumulation: 4,
            ..base.clone()
        },
        Scenario { stack: Stack::Trl, method: Method::Lora, savings: offloaded, ..base.clone() },
        unsloth.clone(),
        Scenario { mask: Mask::PaddingFree, batch: 4, ..unsloth.clone() },
        Scenario { mask: Mask::PaddingFree, attention: AttentionKernel::FlashAttn, ..base.clone() },
        Scenario { checkpointing: Checkpointing::Reentrant, method: Method::Lora, ..unsloth.clone() },
        Scenario { checkpointing: Checkpointing::Off, accumulation: 4, ..unsloth },
    ]
}

#[test]
fn one_layer_stands_for_many() {
    let mut wrong = Vec::new();
    let mut ran = 0;
    for entry in catalogue::entries() {
        for (number, variation) in variations().into_iter().enumerate() {
            let scenario = Scenario { model: ModelChoice::Catalogue(entry.id.to_owned()), ..variation };
            let architecture = scenario.architecture().expect("every model of the catalogue is read");
            let gpu = scenario.gpu().expect("the default card is known");
            let Ok(memory) = step::run(&architecture, &scenario, &gpu) else { continue };
            let recording = Recording::of(&architecture, &scenario, &gpu).expect("the fast path ran");
            for peak in memory.first.phases.iter().chain(&memory.steady.phases) {
                assert_eq!(peak.parts.total(), peak.bytes, "{} in variation {number}", entry.id);
            }
            let (fast, whole) = (memory.steady.highest().1.bytes.0, highest(&recording));
            ran += 1;
            if fast != whole {
                wrong.push(format!("{} in variation {number}: {fast} for {whole}", entry.id));
            }
        }
    }
    assert!(ran > 1000, "only {ran} scenarios ran");
    assert!(wrong.is_empty(), "{} of {ran}: {}", wrong.len(), wrong.join("\n"));
}

/// Loops over chunks and tokens run once on behalf of many, and are recorded in bundles where they are long.
#[test]
fn one_run_of_a_loop_stands_for_many() {
    let base = Scenario { batch: 2, ..Scenario::default() };
    let mut wrong = Vec::new();
    let mut ran = 0;
    for (id, sequences) in [
        ("Qwen/Qwen3.5-9B", [640, 12_900]),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", [1000, 16_384]),
        ("nvidia/Nemotron-H-56B-Base-8K", [3, 1000]),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", [1, 4096]),
        ("state-spaces/mamba-130m-hf", [1, 5]),
        ("state-spaces/mamba-130m-hf", [100, 2000]),
        ("tiiuae/falcon-mamba-7b", [4, 1000]),
        ("ai21labs/Jamba-v0.1", [3, 700]),
    ] {
        for sequence in sequences {
            for (checkpointing, method, precision) in [
                (Checkpointing::Off, Method::Full, Precision::Bf16),
                (Checkpointing::Off, Method::Lora, Precision::AmpBf16),
                (Checkpointing::NonReentrant, Method::Full, Precision::AmpBf16),
                (Checkpointing::NonReentrant, Method::Qlora, Precision::Bf16),
            ] {
                let model = ModelChoice::Catalogue(id.to_owned());
                let scenario = Scenario { model, checkpointing, method, precision, sequence, ..base.clone() };
                let architecture = scenario.architecture().expect("it is in the catalogue");
                let gpu = scenario.gpu().expect("the default card is known");
                // 4-bit weights of the first kind of state spaces are refused
                let Ok(memory) = step::run(&architecture, &scenario, &gpu) else { continue };
                ran += 1;
                let recording = Recording::of(&architecture, &scenario, &gpu).expect("it runs");
                let (fast, whole) = (memory.steady.highest().1.bytes.0, highest(&recording));
                if fast != whole {
                    wrong.push(format!(
                        "{id} {sequence} {checkpointing:?} {method:?} {precision:?}: {fast} for {whole}"
                    ));
                }
            }
        }
    }
    assert_eq!(ran, 56, "scenarios that ran");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A sequence as long as any that is computed must not be run token by token.
#[test]
fn the_longest_sequence_is_answered_at_once() {
    let sequence = 1 << 24;
    for id in ["state-spaces/mamba-2.8b-hf", "ai21labs/Jamba-v0.1", "Qwen/Qwen3.5-397B-A17B"] {
        let scenario =
            Scenario { model: ModelChoice::Catalogue(id.to_owned()), sequence, ..Scenario::default() };
        let start = std::time::Instant::now();
        assert!(headroom::estimate(&Scenario { method: Method::Lora, ..scenario }).memory.is_some(), "{id}");
        assert!(start.elapsed() < std::time::Duration::from_secs(1), "{id} {:?}", start.elapsed());
    }
}
