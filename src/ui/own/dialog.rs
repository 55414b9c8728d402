//! The dialog as a whole.

use leptos::html;
use leptos::prelude::*;

use super::{configuration, dimensions, file, remote};
use crate::ui::browser;
use crate::ui::state::State;
use crate::ui::way::Way;

/// The dialog, closed.
pub fn draw(state: State) -> AnyView {
    let own = state.own;
    let dialog = NodeRef::<html::Dialog>::new();
    Effect::new(move || {
        let Some(dialog) = dialog.get() else { return };
        if !own.open.get() {
            dialog.close();
        } else if dialog.show_modal().is_ok() {
            // A click beside it closes it, too, in browsers that know this.
            drop(dialog.set_attribute("closedby", "any"));
            browser::focus(untrack(|| own.way()).first_control());
        }
    });
    let turn = move |way: Way| {
        view! {
            <button
                type="button"
                aria-pressed=move || own.shows(way).to_string()
                on:click=move |_| own.turn(way)
            >
                {way.label()}
            </button>
        }
    };
    let part = move |way: Way| move || !own.shows(way);
    view! {
        <dialog
            node_ref=dialog
            class="own-dialog"
            aria-labelledby="own-title"
            on:close=move |_| own.open.set(false)
        >
            <div class="own-head">
                <h2 id="own-title">"Bring your own model or configuration"</h2>
                <button
                    type="button"
                    class="remove"
                    aria-label="Close"
                    on:click=move |_| own.open.set(false)
                >
                    "×"
                </button>
            </div>
            <div class="units" role="group" aria-label="How to bring it">
                {Way::ALL.map(turn)}
            </div>
            <div hidden=part(Way::Hub)>{remote::draw(state)}</div>
            <div hidden=part(Way::File)>{file::draw(state)}</div>
            <div hidden=part(Way::Dimensions)>{dimensions::draw(state)}</div>
            <div hidden=part(Way::Configuration)>{configuration::draw(state)}</div>
        </dialog>
    }
    .into_any()
}
