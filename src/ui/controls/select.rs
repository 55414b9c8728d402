//! A choice among a few.

use leptos::ev::Event;
use leptos::prelude::*;

use super::messages::Messages;
use super::name::Name;
use crate::issue::Issue;
use crate::scenario::Choice;

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
    messages: Signal<Vec<Issue>>,
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
            <Name id=id label=label help=help choices=choices />
            <select id=id prop:value=Signal::derive(chosen) aria-describedby=messages_id.clone() on:change=choose>
                {options}
            </select>
            <div class="field-messages" id=messages_id>
                <Messages issues=messages />
            </div>
        </div>
    }
}
