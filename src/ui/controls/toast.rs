//! The message that goes away by itself, with its undo.

use leptos::prelude::*;

use crate::ui::browser::Later;
use crate::ui::state::State;

/// How long a message stays: long enough to reach its button with a keyboard.
const STAYS: u32 = 8_000;

/// The place where messages appear.
#[component]
pub fn Toasts() -> impl IntoView {
    let state = State::of_page();
    let timer = StoredValue::new_local(Later::default());
    let held = RwSignal::new(false);
    Effect::new(move |_| {
        let shown = state.toast.with(|toast| toast.as_ref().map(|toast| toast.number));
        timer.with_value(|timer| match shown {
            // A pointer or the focus on it holds it.
            Some(_) if !held.get() => timer.run(STAYS, move || state.toast.set(None)),
            _ => timer.cancel(),
        });
    });
    let body = move || {
        state.toast.get().map(|toast| {
            let undo = toast.undo.is_some().then(|| {
                view! {
                    <button type="button" on:click=move |_| state.undo()>
                        "Undo"
                    </button>
                }
            });
            view! {
                <div
                    class="toast"
                    on:pointerenter=move |_| held.set(true)
                    on:pointerleave=move |_| held.set(false)
                    on:focusin=move |_| held.set(true)
                    on:focusout=move |_| held.set(false)
                >
                    <span>{toast.text}</span>
                    {undo}
                </div>
            }
        })
    };
    view! {
        <div class="toasts" aria-live="polite">
            {body}
        </div>
    }
    .into_any()
}
