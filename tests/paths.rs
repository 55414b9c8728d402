//! One layer on behalf of many must say what all of them say: the fast path against every event of the step.

#![cfg(not(target_arch = "wasm32"))]

use headroom::model::catalogue;
use headroom::scenario::{
    AttentionKernel, Checkpointing, Loop, Method, ModelChoice, Optimizer, Precision, Scenario,
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
fn variations() -> [Scenario; 5] {
    let base = Scenario {
        batch: 2,
        sequence: 256,
        method: Method::Full,
        checkpointing: Checkpointing::Off,
        precision: Precision::Bf16,
        ..Scenario::default()
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
        Scenario { method: Method::Qlora, precision: Precision::AmpBf16Weights, dropout: Some(100), ..base },
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
