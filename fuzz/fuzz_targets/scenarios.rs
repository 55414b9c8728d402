#![no_main]

#[allow(dead_code)]
#[path = "../../tests/fuzz/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| (targets::SCENARIOS.body)(input));
