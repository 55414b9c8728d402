//! Prints what a run needs for every sequence length and micro-batch size of a list, as CSV: a sweep to plot or to search.
//!
//! `cargo run --release --example sweep [LINK] >sweep.csv`, a share link of the page in quotes; the usual scenario without one.

use headroom::plan::Answer;
use headroom::scenario::Scenario;
use headroom::share;

fn main() {
    let link = std::env::args().nth(1).unwrap_or_default();
    let shared = share::decode(&link);
    shared.notices.iter().for_each(|notice| eprintln!("note: {notice}"));
    let base = shared.scenarios.into_iter().next().unwrap_or_default();
    println!("sequence,batch,needed_bytes,verdict");
    for sequence in [512, 1024, 2048, 4096, 8192] {
        for batch in [1, 2, 4, 8] {
            let answer = Answer::of(Scenario { sequence, batch, ..base.clone() });
            match (answer.fit(), answer.verdict()) {
                (Some(fit), Some(verdict)) => {
                    println!("{sequence},{batch},{},{}", fit.needed.0, verdict.slug());
                }
                _ => println!("{sequence},{batch},,\"{}\"", answer.refusal()),
            }
        }
    }
}
