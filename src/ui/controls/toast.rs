//! The message that goes away by itself, with its undo.

use leptos::ev::{FocusEvent, MouseEvent, PointerEvent};
use leptos::prelude::*;

use crate::ui::browser::Later;
use crate::ui::live::{follow, on, switch, text};
use crate::ui::state::State;

/// How long a message stays: long enough to reach its button with a keyboard.
const STAYS: u32 = 8_000;

/// The place where messages appear.
#[component]
pub fn Toast() -> impl IntoView {
    let state = State::of_page();
    let timer = Later::default();
    // A pointer or the focus on it holds it.
    let held = RwSignal::new(false);
    let silent = move || state.toast.with(String::is_empty);
    follow(move || {
        if silent() || held.get() {
            timer.cancel();
        } else {
            timer.run(STAYS, move || state.hush());
        }
    });
    view! {
        <div class="toasts" aria-live="polite">
            <div
                class="toast"
                hidden=switch(silent)
                on:pointerenter=on(move |_: PointerEvent| held.set(true))
                on:pointerleave=on(move |_: PointerEvent| held.set(false))
                on:focusin=on(move |_: FocusEvent| held.set(true))
                on:focusout=on(move |_: FocusEvent| held.set(false))
            >
                <span>{text(move || state.toast.get())}</span>
                <button
                    type="button"
                    hidden=switch(move || !state.undoable.get())
                    on:click=on(move |_: MouseEvent| {
                        held.set(false);
                        state.undo();
                    })
                >
                    "Undo"
                </button>
            </div>
        </div>
    }
}
