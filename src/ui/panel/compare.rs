//! Scenarios side by side: which of them the controls change, and in what they differ.

use leptos::prelude::*;

use crate::ui::format::parameters;
use crate::ui::state::{Slot, State, letter};
use crate::ui::summary;

/// The scenarios on the page and what can be done with them.
#[component]
pub fn Tabs() -> impl IntoView {
    let state = State::of_page();
    let many = Memo::new(move |_| state.order.with(Vec::len) > 1);
    let tab = move |(position, slot): (usize, Slot)| {
        view! {
            <li class:active=move || state.active.get() == position>
                <button
                    type="button"
                    class="tab"
                    aria-pressed=move || (state.active.get() == position).to_string()
                    on:click=move |_| state.active.set(position)
                >
                    <b>{letter(position)}</b>
                    <span>{move || slot.scenario.with(summary::title)}</span>
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
    let tabs = move || {
        if many.get() {
            view! { <ul>{state.shown().into_iter().enumerate().map(tab).collect_view()}</ul> }.into_any()
        } else {
            view! {
                <p class="title">
                    {move || state.current().scenario.with(summary::title)} " " <span>{move || counts(state)}</span>
                </p>
            }
            .into_any()
        }
    };
    view! {
        <div class="tabs" role="group" aria-label="Scenarios">
            {tabs}
            <button
                type="button"
                class="compare"
                disabled=move || !state.has_room()
                title="Keeps this scenario and puts a copy beside it to change"
                on:click=move |_| state.duplicate()
            >
                {move || if many.get() { "Duplicate" } else { "Compare with another" }}
            </button>
        </div>
    }
    .into_any()
}

/// How many parameters there are, and how many of them are trained.
fn counts(state: State) -> Option<String> {
    state.current().estimate.with(|estimate| {
        let counts = estimate.memory.as_ref()?.parameters;
        let trained = if counts.trainable == counts.total {
            "all trained".to_owned()
        } else {
            format!("{} of them trained", parameters(counts.trainable))
        };
        Some(format!("{} parameters, {trained}", parameters(counts.total)))
    })
}

/// The inputs in which the scenarios differ.
#[component]
pub fn Differences() -> impl IntoView {
    let state = State::of_page();
    let rows = Memo::new(move |_| summary::differences(&state.scenarios(), state.unit.get()));
    let body = move || {
        let slots = state.shown();
        if slots.len() < 2 {
            return None;
        }
        let rows = rows.get();
        let table = if rows.is_empty() {
            view! { <p class="remark">"Nothing yet: change a control, and it shows here."</p> }.into_any()
        } else {
            let heads = (0..slots.len()).map(|position| view! { <th scope="col">{letter(position)}</th> });
            let heads = heads.collect_view();
            let rows = rows.into_iter().map(|(name, values)| {
                let first = values.first().cloned().unwrap_or_default();
                let cells = values.into_iter().map(|value| {
                    let changed = value != first;
                    view! { <td class:changed=changed>{value}</td> }
                });
                view! { <tr><th scope="row">{name}</th>{cells.collect_view()}</tr> }
            });
            view! {
                <div class="table-box">
                    <table class="differences">
                        <caption class="unseen">"Inputs in which the scenarios differ"</caption>
                        <thead><tr><th scope="col">"Input"</th>{heads}</tr></thead>
                        <tbody>{rows.collect_view()}</tbody>
                    </table>
                </div>
            }
            .into_any()
        };
        Some(view! { <section class="panel"><h2>"What differs"</h2>{table}</section> })
    };
    view! { {body} }.into_any()
}
