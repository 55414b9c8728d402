//! Prints the events of the last iteration of a measured case, one a line, for `tools/compare_trace.py`, or of the whole run
//! where the word `whole` follows.
//!
//! `cargo run --example trace -- '{"case": {"config": {…}, "batch": 2, "seq": 1024}, "device": {"cc": "8.0"}}'`

use headroom::step::{Recording, Traced};
use headroom::units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::env::args().nth(1).ok_or("give a measured row as JSON")?;
    let row = serde_json::from_str(&text)?;
    let scenario = headroom::check::scenario(&row)?;
    let run = || Recording::of(&*scenario.architecture()?, &scenario, &scenario.gpu()?);
    let recording: Result<_, headroom::issue::Issue> = run();
    let recording = recording?;
    let whole = std::env::args().nth(2).is_some_and(|word| word == "whole");
    let (mut bytes, events) = if whole { (Bytes::ZERO, recording.whole_trace()) } else { recording.trace() };
    let rounded = |bytes: u64| bytes.div_ceil(512) * 512;
    println!("BASE {}", bytes.0);
    for event in events {
        match event {
            Traced::Phase(phase) => println!("MARK {} {}", phase.slug(), bytes.0),
            Traced::EmptyCache => println!("EMPTY {}", bytes.0),
            Traced::Alloc { id, bytes: size, module, operation } => {
                bytes.0 += rounded(size);
                println!("A {id} {size} {} {module} {operation}", bytes.0);
            }
            Traced::Free { id, bytes: size } => {
                bytes.0 -= rounded(size);
                println!("F {id} {} {}", rounded(size), bytes.0);
            }
        }
    }
    Ok(())
}
