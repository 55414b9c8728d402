//! Fails where a run does not fit its card, and says the cheapest change that makes it fit: a gate for a training repository's
//! own continuous integration. A share link of the page says what runs.
//!
//! `cargo run --release --example gate 'https://…/#v=1&m=meta-llama/Llama-3.1-8B&method=qlora&gpu=rtx-3060-12gb'`

use std::process::ExitCode;

use headroom::plan::{Verdict, levers};
use headroom::share;

fn main() -> ExitCode {
    let link = std::env::args().nth(1).unwrap_or_default();
    let shared = share::decode(&link);
    // what could not be read stands for something else, which nobody asked about
    let misread: Vec<_> =
        shared.notices.iter().chain(&share::unknown(&link)).map(ToString::to_string).collect();
    if !link.contains('=') || !misread.is_empty() {
        eprintln!(
            "no answer: {}",
            if misread.is_empty() { "give a share link".to_owned() } else { misread.join("; ") }
        );
        return ExitCode::from(2);
    }
    let scenario = shared.scenarios.into_iter().next().unwrap_or_default();
    let found = match levers(&scenario) {
        Ok(found) => found,
        Err(issue) => {
            eprintln!("no answer: {issue}");
            return ExitCode::from(2);
        }
    };
    println!("needs {}: {}", found.needed, found.verdict.label().to_lowercase());
    if found.verdict == Verdict::Fits {
        return ExitCode::SUCCESS;
    }
    let fitting = found.single.iter().chain(&found.together).find(|lever| lever.verdict == Verdict::Fits);
    if let Some(lever) = fitting {
        let changes: Vec<_> =
            lever.changes.iter().map(|change| format!("{}: {}", change.label, change.to)).collect();
        println!("{} makes it fit: needs {}, costs {}", changes.join(", "), lever.needed, lever.cost.label());
    }
    ExitCode::FAILURE
}
