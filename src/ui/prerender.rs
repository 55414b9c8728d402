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
        let start = Start { details: vec![detail], ..Start::default() };
        view! { <App start=start desk=Desk::default() /> }.to_html()
    });
    // They would tell an app that goes on with these elements where texts begin, and a space where there is none; this one draws its
    // own, and the style sheet knows what is empty.
    html.replace("<!>", "").replace("> </", "></")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fits;
    use crate::ui::format::Unit;
    use crate::ui::markup::plain;
    use crate::ui::{summary, verdict};

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

    /// `node scripts/social.js` makes it anew; see CONTRIBUTING.md.
    #[test]
    fn the_picture_that_stands_for_the_page_is_of_the_first_answer() {
        let told = pictured().expect("an answer");
        assert!(
            include_str!("../../index.html").contains(&format!("content=\"{told}\"")),
            "index.html: {told}"
        );
        let picture = include_bytes!("../../public/social.png");
        let noted = format!("Description\0\0\0\0\0{told}");
        assert!(
            picture.windows(noted.len()).any(|part| part == noted.as_bytes()),
            "public/social.png: {told}"
        );
    }

    /// What the picture shows that stands for the page elsewhere: the first answer, in a sentence.
    fn pictured() -> Option<String> {
        let scenario = Scenario::default();
        let detail = Detail::of(&scenario)?;
        let fit = fits(&detail.memory, &scenario.gpu().ok()?);
        let verdict = Detail::verdict(Some(&detail), &scenario, &fit);
        let told = verdict::sentence(&scenario, &detail.memory, &fit, verdict, Unit::Binary);
        Some(plain(&format!("{}: {told}", summary::title(&scenario))))
    }
}
