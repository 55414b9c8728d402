//! The message that goes away by itself, with its undo.

use leptos::ev::{FocusEvent, MouseEvent, PointerEvent};
use leptos::prelude::*;

use crate::ui::browser::Later;
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
    Effect::new(move || {
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
                hidden=Signal::derive(silent)
                on:pointerenter=move |_: PointerEvent| held.set(true)
                on:pointerleave=move |_: PointerEvent| held.set(false)
                on:focusin=move |_: FocusEvent| held.set(true)
                on:focusout=move |_: FocusEvent| held.set(false)
            >
                <span>{Signal::derive(move || state.toast.get())}</span>
                <button
                    type="button"
                    hidden=Signal::derive(move || !state.undoable.get())
                    on:click=move |_: MouseEvent| {
                        held.set(false);
                        state.undo();
                    }
                >
                    "Undo"
                </button>
            </div>
        </div>
    }
}
