//! One layer on behalf of many must say what all of them say: the fast path against every event of the step.

#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeMap;

use headroom::model::catalogue;
use headroom::scenario::{AttentionKernel, Checkpointing, Method, ModelChoice, Precision, Scenario};
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

#[test]
fn one_layer_stands_for_many() {
    // the smallest model of each family
    let mut families: BTreeMap<String, (u64, &'static str)> = BTreeMap::new();
    for entry in catalogue::entries() {
        let architecture = entry.architecture().expect("every model of the catalogue is read");
        let size = architecture.parameters();
        let smallest = families.entry(architecture.model_type.clone()).or_insert((size, entry.id));
        if size < smallest.0 {
            *smallest = (size, entry.id);
        }
    }
    let base = Scenario { batch: 2, sequence: 256, ..Scenario::default() };
    let mut wrong = Vec::new();
    let mut ran = 0;
    for (family, (_, id)) in &families {
        for (checkpointing, attention, method, precision) in [
            (Checkpointing::Off, AttentionKernel::Sdpa, Method::Full, Precision::Bf16),
            (Checkpointing::NonReentrant, AttentionKernel::Sdpa, Method::Full, Precision::AmpBf16),
            (Checkpointing::Off, AttentionKernel::Eager, Method::Lora, Precision::Bf16),
            (Checkpointing::NonReentrant, AttentionKernel::Eager, Method::Lora, Precision::Bf16),
        ] {
            let model = ModelChoice::Catalogue((*id).to_owned());
            let scenario = Scenario { model, checkpointing, attention, method, precision, ..base.clone() };
            let architecture = scenario.architecture().expect("it was read before");
            let gpu = scenario.gpu().expect("the default card is known");
            let Ok(memory) = step::run(&architecture, &scenario, &gpu) else { continue };
            let recording = Recording::of(&architecture, &scenario, &gpu).expect("the fast path ran");
            let (fast, whole) = (memory.steady.highest().1.bytes.0, highest(&recording));
            ran += 1;
            if fast != whole {
                wrong
                    .push(format!("{family} {checkpointing:?} {attention:?} {method:?}: {fast} for {whole}"));
            }
        }
    }
    assert!(ran > 200, "only {ran} scenarios ran");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
