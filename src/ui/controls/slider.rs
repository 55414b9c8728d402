//! A number: a slider for its usual values and a box for any other, in one control.

use leptos::ev::{Event, FocusEvent, KeyboardEvent};
use leptos::prelude::*;

use super::messages::Messages;
use super::name::Name;
use super::text::Draft;
use crate::issue::Issue;
use crate::ui::format::number;
use crate::ui::scale::{Scale, boxed};

/// A labelled number with slider and box.
///
/// What stands in the box is never overwritten while it has the focus; what it cannot read leaves the last good value
/// and says so.
#[component]
pub fn Slider(
    /// The id of the box.
    id: &'static str,
    /// The accessible name of both.
    label: &'static str,
    /// A sentence on it.
    #[prop(into)]
    help: String,
    /// The values it can take.
    scale: &'static Scale,
    /// The value.
    value: Signal<f64>,
    /// Changes it.
    set: Callback<f64>,
    /// What is wrong with the value.
    messages: Signal<Vec<Issue>>,
    /// What stands behind the box: `GiB`.
    unit: &'static str,
    /// What 0 stands for, where it stands for something: an empty box then says it.
    #[prop(optional, into)]
    automatic: Signal<Option<String>>,
    /// Takes a text that is no number and yet is understood, `2x4`; says whether it did.
    #[prop(optional)]
    otherwise: Option<Callback<String, bool>>,
) -> impl IntoView {
    let draft = Draft::new();
    let last = scale.stops.len().saturating_sub(1);
    let is_automatic = move || value.get() == 0. && automatic.with(Option::is_some);
    let shown = move || if is_automatic() { String::new() } else { boxed(value.get()) };
    let read = move |text: &str| match text.trim().is_empty() && untrack(|| automatic.with(Option::is_some)) {
        true => Ok(0.),
        false => scale.read(text),
    };
    let take = move |new: f64| {
        draft.settle();
        set.run(new);
    };
    let slide = move |event: Event| {
        if let Ok(index) = event_target_value(&event).parse::<usize>() {
            take(scale.at(index));
        }
    };
    let write = move |event: Event| {
        let text = event_target_value(&event);
        let found = read(&text);
        let is_taken = found.is_err() && otherwise.is_some_and(|otherwise| otherwise.run(text.clone()));
        if is_taken {
            return draft.wrote(text, untrack(shown), Ok(()));
        }
        if let Some(new) = found.clone().ok().or_else(|| read(&draft.before()).ok()) {
            set.run(new);
        }
        draft.wrote(text, untrack(shown), found.map(drop));
    };
    let press = move |event: KeyboardEvent| {
        let now = value.get_untracked();
        match event.key().as_str() {
            "ArrowUp" => take(scale.step(now, true)),
            "ArrowDown" => take(scale.step(now, false)),
            // what cannot be read stands there still, with what is wrong with it
            "Enter" if draft.is_wrong(|| untrack(shown)) => return event.prevent_default(),
            "Enter" => draft.settle(),
            _ => return,
        }
        event.prevent_default();
        draft.begin(untrack(shown));
    };
    let nearest = move || scale.nearest(value.get());
    let spoken = move || {
        Signal::derive(move || {
            automatic.get().filter(|_| is_automatic()).unwrap_or_else(|| scale.spoken(value.get()))
        })
    };
    let messages_id = format!("{id}-messages");
    view! {
        <div class="field">
            <Name id=id label=label help=help />
            <div class="field-control">
                <input
                    type="range"
                    aria-label=label
                    value=untrack(nearest).to_string()
                    min="0"
                    max=last.to_string()
                    step="1"
                    prop:value=Signal::derive(move || nearest().to_string())
                    aria-valuetext=spoken()
                    on:input=slide
                />
                <input
                    type="text"
                    id=id
                    class="number"
                    class:automatic=Signal::derive(move || automatic.with(Option::is_some))
                    placeholder=Signal::derive(move || automatic.get().unwrap_or_default())
                    role="spinbutton"
                    inputmode=if scale.whole { "numeric" } else { "decimal" }
                    autocomplete="off"
                    spellcheck="false"
                    value=untrack(shown)
                    prop:value=Signal::derive(move || draft.shown(shown))
                    aria-valuenow=Signal::derive(move || number(value.get()))
                    aria-valuetext=spoken()
                    aria-valuemin=number(scale.least)
                    aria-valuemax=number(scale.most)
                    aria-invalid=move || draft.is_wrong(shown).to_string()
                    aria-describedby=messages_id.clone()
                    on:focus=move |_: FocusEvent| draft.begin(untrack(shown))
                    on:blur=move |_: FocusEvent| draft.end(untrack(shown))
                    on:input=write
                    on:keydown=press
                />
                <span class="unit" aria-hidden="true">{unit}</span>
            </div>
            <div
                class="field-messages"
                id=messages_id
            >
                <Messages issues=Signal::derive(move || draft.messages(shown, messages)) />
            </div>
        </div>
    }
}
