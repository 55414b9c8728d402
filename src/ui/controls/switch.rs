//! What is on or off.

use leptos::ev::Event;
use leptos::prelude::*;

use super::messages::Messages;
use super::name::Name;
use crate::issue::Issue;

/// A labelled switch.
#[component]
pub fn Switch(
    /// The control's id.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// A sentence on it.
    #[prop(into)]
    help: String,
    /// Whether it is on.
    value: Signal<bool>,
    /// Switches it.
    set: Callback<bool>,
    /// What is wrong with it.
    messages: Signal<Vec<Issue>>,
) -> impl IntoView {
    let messages_id = format!("{id}-messages");
    view! {
        <div class="field">
            <Name id=id label=label help=help />
            <div class="field-control">
                <input
                    type="checkbox"
                    id=id
                    role="switch"
                    class="switch"
                    prop:checked=Signal::derive(move || value.get())
                    aria-describedby=messages_id.clone()
                    on:change=move |event: Event| set.run(event_target_checked(&event))
                />
            </div>
            <div class="field-messages" id=messages_id>
                <Messages issues=messages />
            </div>
        </div>
    }
}
