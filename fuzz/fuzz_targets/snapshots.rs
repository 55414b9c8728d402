#![no_main]

#[expect(dead_code, reason = "one of the targets is run here")]
#[path = "../../tests/fuzz/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| (targets::SNAPSHOTS.body)(input));
