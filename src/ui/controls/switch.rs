//! What is on or off.

use leptos::ev::Event;
use leptos::prelude::*;

use super::Messages;
use super::name::Name;
use crate::ui::live::{on, switch, text};

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
    messages: Messages,
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
                    prop:checked=switch(move || value.get())
                    aria-describedby=messages_id.clone()
                    on:change=on(move |event: Event| set.run(event_target_checked(&event)))
                />
            </div>
            <div class="field-messages" id=messages_id inner_html=text(move || messages.get())></div>
        </div>
    }
}
