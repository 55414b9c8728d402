//! Scenarios side by side: which of them the controls change, and in what they differ.

use leptos::either::Either;
use leptos::prelude::*;

use crate::memory::Parameters;
use crate::scenario::Scenario;
use crate::share::MOST_SCENARIOS;
use crate::ui::format::parameters;
use crate::ui::state::{State, letter};
use crate::ui::summary;
use crate::units::shortest;

/// The scenarios on the page and what can be done with them.
#[component]
pub fn Tabs() -> impl IntoView {
    let state = State::of_page();
    let tab = move |position: usize| {
        let active = Signal::derive(move || state.active.get() == position);
        let name = Signal::derive(move || {
            state.names.with(|names| names.get(position).cloned().unwrap_or_default())
        });
        view! {
            <li hidden=Signal::derive(move || state.is_free(position)) class:active=active>
                <button
                    type="button"
                    class="tab"
                    aria-pressed=Signal::derive(move || active.get().to_string())
                    on:click=move |_| state.active.set(position)
                >
                    <b>{letter(position)}</b>
                    <span title=name>{name}</span>
                </button>
                <button
                    type="button"
                    class="remove"
                    hidden=position == 0
                    title="Compare the others with this one"
                    aria-label=format!("Swap {} and A", letter(position))
                    on:click=move |_| state.swap(position)
                >
                    "⇄"
                </button>
                <button
                    type="button"
                    class="remove"
                    aria-label=format!("Remove {}", letter(position))
                    on:click=move |_| state.remove(position)
                >
                    "×"
                </button>
            </li>
        }
    };
    let counts = Signal::derive(move || {
        state.current().answer(|_, memory, _| counts(&memory.parameters)).unwrap_or_default()
    });
    let is_full = Signal::derive(move || !state.is_free(MOST_SCENARIOS - 1));
    let why = Signal::derive(move || {
        if is_full.get() {
            format!("{MOST_SCENARIOS} scenarios at most: remove one first")
        } else {
            "Keeps this scenario and puts a copy beside it to change".to_owned()
        }
    });
    view! {
        <div class="tabs" role="group" aria-label="Scenarios">
            <p class="title" hidden=Signal::derive(move || !state.alone())>
                {counts}
            </p>
            <ul hidden=Signal::derive(move || state.alone())>{(0..MOST_SCENARIOS).map(tab).collect::<Vec<_>>()}</ul>
            <button
                type="button"
                class="compare"
                disabled=is_full
                title=why
                on:click=move |_| state.duplicate()
            >
                {move || if state.alone() { "Compare" } else { "Add a copy" }}
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
    let table = move || (!state.alone()).then(|| differences(&state.scenarios()));
    view! {
        <section class="panel" hidden=Signal::derive(move || state.alone())>
            <h2>"What differs"</h2>
            <div class="table-box">{table}</div>
        </section>
    }
}

fn differences(scenarios: &[Scenario]) -> impl IntoView + use<> {
    let rows = summary::differences(scenarios);
    if rows.is_empty() {
        return Either::Left(view! {
            <p class="remark">"Nothing yet: change a control, and it shows here."</p>
        });
    }
    let head = |position| view! { <th scope="col">{letter(position)}</th> };
    let row = |(name, values): (_, Vec<String>)| {
        let first = values.first().cloned();
        let cell = |value: String| {
            let changed = first.as_ref() != Some(&value);
            view! { <td class=changed.then_some("changed")>{value}</td> }
        };
        view! {
            <tr>
                <th scope="row">{name}</th>
                {values.into_iter().map(cell).collect::<Vec<_>>()}
            </tr>
        }
    };
    Either::Right(view! {
        <table class="differences">
            <caption class="unseen">"Inputs in which the scenarios differ"</caption>
            <thead>
                <tr>
                    <th scope="col">"Input"</th>
                    {(0..scenarios.len()).map(head).collect::<Vec<_>>()}
                </tr>
            </thead>
            <tbody>{rows.into_iter().map(row).collect::<Vec<_>>()}</tbody>
        </table>
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_stands_out() {
        let first = Scenario::default();
        let same = differences(&[first.clone(), first.clone()]).to_html();
        assert!(same.contains("Nothing yet"), "{same}");
        let second = Scenario { batch: 4, ..first.clone() };
        let html = differences(&[first, second]).to_html();
        assert!(html.contains("Micro-batch size") && html.contains("class=\"changed\">4<"), "{html}");
    }

    #[test]
    fn trained_parameters_are_told_from_frozen_ones() {
        let some = Parameters { total: 8_030_261_248, trainable: 41_943_040 };
        assert_eq!(counts(&some), "8.03B parameters, 41.9M trained (0.52%)");
        let all = Parameters { total: 124_439_808, trainable: 124_439_808 };
        assert_eq!(counts(&all), "124M parameters, all trained");
    }
}
