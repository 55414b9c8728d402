//! The verdict: the first thing one reads.

use leptos::prelude::*;

use crate::ui::browser::Later;
use crate::ui::live::{follow, text};
use crate::ui::state::State;
use crate::ui::verdict;

/// How long the figures must rest before they are read aloud.
const REST: u32 = 700;

/// The verdict on the active scenario.
///
/// The region is a status for those who look for it, but it is not read at every step of a slider: a quiet copy of it
/// is read once the figures rest.
#[component]
pub fn Verdict() -> impl IntoView {
    let state = State::of_page();
    let class = move || state.current().fit().map_or("none", |(_, verdict)| verdict.slug()).to_owned();
    let html = move || {
        let slot = state.current();
        let unit = state.unit();
        let detail = slot.close_look();
        let answer = slot
            .answer(|scenario, memory, gpu| verdict::html(scenario, memory, gpu, detail.as_deref(), unit));
        answer.unwrap_or_else(|| slot.estimate.with(verdict::excuse))
    };
    let spoken = RwSignal::new(String::new());
    let later = Later::default();
    let mut first = true;
    follow(move || {
        let unit = state.unit();
        let slot = state.current();
        let told = slot.fit();
        let answer = told.and_then(|(fit, verdict)| {
            slot.answer(|scenario, memory, _| verdict::sentence(scenario, memory, &fit, verdict, unit))
        });
        if !std::mem::take(&mut first) {
            let sentence = answer.unwrap_or_else(|| "There is no answer for this scenario.".to_owned());
            later.run(REST, move || spoken.set(sentence));
        }
    });
    view! {
        <section
            class="verdict"
            role="status"
            aria-live="off"
            aria-label="Verdict"
            aria-busy=move || (state.current().is_awaited() && !state.troubled.get()).to_string()
            data-fit=text(class)
            inner_html=text(html)
        ></section>
        <div class="unseen" aria-live="polite">
            {text(move || spoken.get())}
        </div>
    }
}
