//! A line of text that means something.

use leptos::prelude::*;

use super::field::{Field, Messages};
use crate::scenario::{Field as Place, Issue};

/// A labelled box for a line of text. What it cannot read leaves the last good value and says so.
#[component]
pub fn TextBox(
    /// The id of the box.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// One sentence on it.
    help: &'static str,
    /// The value as text.
    value: Signal<String>,
    /// Takes a new text, or says what would be right.
    set: Callback<String, Result<(), String>>,
    /// What is wrong with the value.
    messages: Messages,
) -> impl IntoView {
    let typed = RwSignal::new(None::<String>);
    let complaint = RwSignal::new(None::<String>);
    let write = move |event: leptos::ev::Event| {
        let text = event_target_value(&event);
        complaint.set(set.run(text.clone()).err());
        typed.set(Some(text));
    };
    let problems = Signal::derive(move || {
        let complaint = complaint.get().map(|text| Issue::error(Place::Link, text));
        complaint.into_iter().chain(messages.get()).collect::<Vec<_>>()
    });
    view! {
        <Field id=id label=label help=vec![("", help)] messages=problems wide=true>
            <input
                type="text"
                id=id
                autocomplete="off"
                spellcheck="false"
                prop:value=move || typed.get().unwrap_or_else(|| value.get())
                aria-invalid=move || complaint.with(Option::is_some).to_string()
                aria-describedby=format!("{id}-messages")
                on:focus=move |_| typed.set(Some(value.get_untracked()))
                on:blur=move |_| typed.set(None)
                on:input=write
            />
        </Field>
    }
    .into_any()
}
