//! Bringing what one has: a model by its id on the Hub, its `config.json` or its dimensions, or a whole configuration of another
//! project.
//!
//! The dialog is drawn when it is asked for the first time and stays from then on, so that nothing that was typed into it
//! is ever lost.

mod bring;
mod configuration;
mod dialog;
mod dimensions;
mod file;
mod remote;
pub mod snapshot;

use leptos::prelude::*;

use super::browser;
use super::hub;
use super::state::State;
use super::summary;
use super::way::Way;
use crate::model::catalogue;
use crate::scenario::ModelChoice;

/// Takes a `config.json`, a configuration or a memory snapshot that is dropped anywhere on the page, and text that is pasted there.
pub fn accept_drops(state: State) {
    let take = move |dropped: web_sys::File| match snapshot::is_one(&dropped.name()) {
        true => snapshot::take(state, dropped),
        false => file::take(state, dropped),
    };
    Effect::new(move || {
        browser::on_drop(take);
        browser::on_paste(move |text| match configuration::check_pasted(text.len() as u64) {
            Ok(()) => file::take_text(state, "", &text),
            Err(issue) => file::complain(state, Way::Configuration, "", issue),
        });
    });
}

/// The model of the active scenario that the catalogue does not have, as in a link: most likely an id of the Hub.
pub fn unknown(state: State) -> Option<String> {
    state.current().scenario.with(|scenario| match &scenario.model {
        ModelChoice::Catalogue(id) if catalogue::find(id).is_none() => hub::id(id),
        ModelChoice::Catalogue(_) | ModelChoice::Size(_) | ModelChoice::Custom(_) => None,
    })
}

/// The way to a model that the Hub may have; nothing where the catalogue has it.
#[component]
pub fn OfHub() -> impl IntoView {
    let state = State::of_page();
    let id = Memo::new(move |_| unknown(state));
    move || {
        id.get().map(|id| {
            let words = format!("Look for {id} on the Hub");
            view! {
                <button
                    type="button"
                    class="lever"
                    aria-haspopup="dialog"
                    on:click=move |_| state.own.show_id(&id)
                >
                    <b>{words}</b>
                    <small>"its config.json, once you say so"</small>
                </button>
            }
        })
    }
}

/// The way into the dialog, and the dialog.
#[component]
pub fn OwnModel() -> impl IntoView {
    let state = State::of_page();
    let show = move |_| match untrack(|| unknown(state)) {
        Some(id) => state.own.show_id(&id),
        None => state.own.show(None),
    };
    let dialog = move || state.own.drawn.get().then(|| dialog::draw(state));
    view! {
        <p class="model-facts">{move || state.current().scenario.with(summary::facts)}</p>
        <button
            type="button"
            class="own-button"
            aria-haspopup="dialog"
            on:click=show
        >
            "Use a config.json or Hub id"
        </button>
        <button
            type="button"
            class="own-button"
            aria-haspopup="dialog"
            on:click=move |_| state.own.show(Some(Way::Configuration))
        >
            "Read a training configuration"
        </button>
        <span class="own-hint">"or paste it anywhere"</span>
        {dialog}
    }
}
