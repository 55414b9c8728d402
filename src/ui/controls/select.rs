//! A choice among a few.

use leptos::ev::Event;
use leptos::prelude::*;

use super::Messages;
use super::name::Name;
use crate::scenario::Choice;
use crate::ui::live::{on, text};

/// A labelled list of choices, the value being the position in it.
#[component]
pub fn Select(
    /// The control's id.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// A sentence on it.
    #[prop(into)]
    help: String,
    /// What can be chosen.
    choices: &'static [Choice],
    /// The position of what is chosen.
    value: Signal<usize>,
    /// Chooses another.
    set: Callback<usize>,
    /// What is wrong with the choice.
    messages: Messages,
) -> impl IntoView {
    let first = value.get_untracked();
    let option = |(index, choice): (usize, &Choice)| {
        view! { <option value=choice.slug selected=index == first>{choice.label}</option> }
    };
    let options: Vec<_> = choices.iter().enumerate().map(option).collect();
    let chosen = move || choices.get(value.get()).map_or("", |choice| choice.slug).to_owned();
    let choose = move |event: Event| {
        let slug = event_target_value(&event);
        if let Some(index) = choices.iter().position(|choice| choice.slug == slug) {
            set.run(index);
        }
    };
    let messages_id = format!("{id}-messages");
    view! {
        <div class="field">
            <Name id=id label=label help=help choices=choices.to_vec() />
            <select id=id prop:value=text(chosen) aria-describedby=messages_id.clone() on:change=on(choose)>
                {options}
            </select>
            <div class="field-messages" id=messages_id inner_html=text(move || messages.get())></div>
        </div>
    }
}
