//! Writes the step of a scenario as a file that PyTorch's memory_viz opens.
//!   cargo run --example memory_viz -- 'm=meta-llama/Llama-3.1-8B&method=qlora' step.pickle

use std::error::Error;

use headroom::step::Recording;
use headroom::{allocator::Settings, export, share};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (link, path) = arguments.next().zip(arguments.next()).ok_or("give a link and the name of a file")?;
    let scenario = share::decode(&link).scenarios.swap_remove(0);
    let recording = Recording::of(&*scenario.architecture()?, &scenario, &scenario.gpu()?)?;
    std::fs::write(path, export::memory_viz(&recording.snapshot(Settings::default())))?;
    Ok(())
}
