//! Scenarios side by side: which of them the controls change, and in what they differ.

use std::fmt::Write;

use leptos::ev::MouseEvent;
use leptos::prelude::*;

use crate::memory::Parameters;
use crate::scenario::Scenario;
use crate::share::MOST_SCENARIOS;
use crate::ui::format::parameters;
use crate::ui::live::{on, state as aria, switch, text};
use crate::ui::markup::Escaped;
use crate::ui::state::{State, letter};
use crate::ui::summary;
use crate::units::shortest;

/// The scenarios on the page and what can be done with them.
#[component]
pub fn Tabs() -> impl IntoView {
    let state = State::of_page();
    let names = Memo::new(move |_| summary::names(&state.scenarios()));
    let tab = move |position: usize| {
        let active = move || state.active.get() == position;
        let name = move || names.with(|names| names.get(position).cloned().unwrap_or_default());
        view! {
            <li hidden=switch(move || position >= state.count.get()) class:active=switch(active)>
                <button
                    type="button"
                    class="tab"
                    aria-pressed=aria(active)
                    on:click=on(move |_: MouseEvent| state.active.set(position))
                >
                    <b>{letter(position)}</b>
                    <span title=text(name)>{text(name)}</span>
                </button>
                <button
                    type="button"
                    class="remove"
                    aria-label=format!("Remove {}", letter(position))
                    on:click=on(move |_: MouseEvent| state.remove(position))
                >
                    "×"
                </button>
            </li>
        }
    };
    let counts = move || {
        let slot = state.current();
        slot.answer(|_, memory, _| counts(&memory.parameters)).unwrap_or_default()
    };
    let act = move || if state.alone() { "Compare" } else { "Add a copy" }.to_owned();
    let is_full = move || state.count.get() >= MOST_SCENARIOS;
    let why = move || {
        if is_full() {
            format!("{MOST_SCENARIOS} scenarios at most: remove one first")
        } else {
            "Keeps this scenario and puts a copy beside it to change".to_owned()
        }
    };
    view! {
        <div class="tabs" role="group" aria-label="Scenarios">
            <p class="title" hidden=switch(move || !state.alone())>
                {text(move || state.current().scenario.with(summary::title))}
                " · "
                <span>{text(counts)}</span>
            </p>
            <ul hidden=switch(move || state.alone())>
                {(0..MOST_SCENARIOS).map(tab).collect::<Vec<_>>()}
            </ul>
            <button
                type="button"
                class="compare"
                disabled=switch(is_full)
                title=text(why)
                on:click=on(move |_: MouseEvent| state.duplicate())
            >
                {text(act)}
            </button>
        </div>
    }
}

/// How many parameters there are, and how many of them are trained.
fn counts(counts: &Parameters) -> String {
    let total = parameters(counts.total);
    if counts.trainable == counts.total {
        format!("{total} parameters, all trained")
    } else {
        let share = shortest(counts.trainable as f64 / counts.total as f64 * 100., 2);
        format!("{total} parameters, {} trained ({share}%)", parameters(counts.trainable))
    }
}

/// The inputs in which the scenarios differ.
#[component]
pub fn Differences() -> impl IntoView {
    let state = State::of_page();
    let html = move || if state.alone() { String::new() } else { differences(&state.scenarios()) };
    view! {
        <section class="panel" hidden=switch(move || state.alone())>
            <h2>"What differs"</h2>
            <div class="table-box" inner_html=text(html)></div>
        </section>
    }
}

fn differences(scenarios: &[Scenario]) -> String {
    let rows = summary::differences(scenarios);
    if rows.is_empty() {
        return "<p class=\"remark\">Nothing yet: change a control, and it shows here.</p>".to_owned();
    }
    let mut html = String::from(
        "<table class=\"differences\"><caption class=\"unseen\">Inputs in which the scenarios differ</caption>\
         <thead><tr><th scope=\"col\">Input</th>",
    );
    for position in 0..scenarios.len() {
        // Writing to a string cannot fail.
        let _ = write!(html, "<th scope=\"col\">{}</th>", letter(position));
    }
    html.push_str("</tr></thead><tbody>");
    for (name, values) in rows {
        let _ = write!(html, "<tr><th scope=\"row\">{name}</th>");
        for value in &values {
            let class = if values.first() == Some(value) { "" } else { " class=\"changed\"" };
            let _ = write!(html, "<td{class}>{}</td>", Escaped(value));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_stands_out() {
        let first = Scenario::default();
        assert!(differences(&[first.clone(), first.clone()]).contains("Nothing yet"));
        let second = Scenario { batch: 4, ..first.clone() };
        let html = differences(&[first, second]);
        assert!(
            html.contains("<th scope=\"row\">Micro-batch size</th><td>1</td><td class=\"changed\">4</td>"),
            "{html}"
        );
    }

    #[test]
    fn trained_parameters_are_told_from_frozen_ones() {
        let some = Parameters { total: 8_030_261_248, trainable: 41_943_040 };
        assert_eq!(counts(&some), "8.03B parameters, 41.9M trained (0.52%)");
        let all = Parameters { total: 124_439_808, trainable: 124_439_808 };
        assert_eq!(counts(&all), "124M parameters, all trained");
    }
}
