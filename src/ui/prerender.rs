//! The page as it begins, written as HTML: the first answer is there before any code is.

use std::sync::Arc;

use leptos::prelude::*;

use super::app::{App, Start};
use super::desk::Desk;
use super::detail::Detail;
use crate::scenario::Scenario;

/// What stands in `<div id="app">` until the app takes over, which then draws the same.
pub fn first_answer() -> String {
    let html = Owner::new().with(|| {
        let detail = Detail::of(&Scenario::default()).map(Arc::new);
        let start = Start { detail, ..Start::default() };
        view! { <App start=start desk=Desk::default() /> }.to_html()
    });
    // They would tell an app that goes on with these elements where texts begin; this one draws its own.
    html.replace("<!>", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_is_complete() {
        let html = first_answer();
        for part in [
            "to spare",
            "PyTorch reserves",
            "part-weights",
            "Llama-3.1-8B",
            "GeForce RTX 4090",
            "Peak by phase",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn the_first_answer_keeps_the_policy_of_the_page() {
        let html = first_answer();
        for forbidden in ["<script", "<style", " style=", " onclick=", "<!"] {
            assert!(!html.contains(forbidden), "{forbidden} is in {html}");
        }
    }
}
