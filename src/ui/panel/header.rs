//! The top of the page: its name, undo, the unit, the theme, what can be taken along.

use leptos::prelude::*;

use super::take::Take;
use crate::ui::controls::Explained;
use crate::ui::format::Unit;
use crate::ui::state::State;
use crate::ui::sync::Address;
use crate::ui::theme::Theme;

/// The header.
#[component]
pub fn Header(
    /// What the address says.
    address: Address,
    /// The colours that were chosen.
    theme: RwSignal<Theme>,
    /// Turns them.
    turn: Callback<()>,
) -> impl IntoView {
    let state = State::of_page();
    let unit = move |unit: Unit| {
        view! {
            <button
                type="button"
                aria-pressed=Signal::derive(move || (state.unit() == unit).to_string())
                on:click=move |_| state.decimal.set(unit == Unit::Decimal)
            >
                {unit.label()}
            </button>
        }
    };
    let units = || Unit::ALL.map(|unit| view! { <p>{unit.help()} "."</p> });
    view! {
        <header class="page-header">
            <a class="skip" href="#answer" on:click=|event| skip(&event, "answer")>
                "Skip to the answer"
            </a>
            <a class="skip" href="#levers-title" on:click=|event| skip(&event, "levers-title")>
                "Skip to what to change"
            </a>
            <h1>
                <a class="brand" href=".">
                    <svg class="logo" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
                        <rect class="logo-card" x="2.75" y="2.75" width="18.5" height="18.5" rx="4.5" />
                        <path class="logo-fill" d="M6 11h12v7H6z" />
                    </svg>
                    "Headroom"
                </a>
            </h1>
            <p class="tagline">"Will this training run fit, and where does the memory go?"</p>
            <div class="tools">
                <div class="travel" role="group" aria-label="History">
                    <button
                        type="button"
                        class="tool icon"
                        aria-label="Undo the last change"
                        title="Undo (Ctrl Z)"
                        disabled=Signal::derive(move || !state.can_undo.get())
                        on:click=move |_| state.undo()
                    >
                        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
                            <path d="M6 3 2.5 6.5 6 10M3 6.5h6a4 4 0 0 1 0 8H7" />
                        </svg>
                    </button>
                    <button
                        type="button"
                        class="tool icon"
                        aria-label="Redo the last change"
                        title="Redo (Ctrl Shift Z)"
                        disabled=Signal::derive(move || !state.can_redo.get())
                        on:click=move |_| state.redo()
                    >
                        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
                            <path d="m10 3 3.5 3.5L10 10m3-3.5H7a4 4 0 0 0 0 8h2" />
                        </svg>
                    </button>
                </div>
                <div class="units" role="group" aria-label="Unit">
                    {Unit::ALL.map(unit)}
                </div>
                <Explained id="unit-help" face="?" name="Help: GiB and GB" heading="GiB and GB">
                    {units()}
                    <p>"A card that is sold as 24 GB has about 24 GiB, less what the driver keeps for itself."</p>
                </Explained>
                <button type="button" class="tool" title="Theme: system, light or dark" on:click=move |_| turn.run(())>
                    <span class="theme-icon" aria-hidden="true"></span>
                    <span class="unseen">"Theme: "</span>
                    <span class="theme-name">{Signal::derive(move || theme.get().label().to_owned())}</span>
                </button>
                <Take address=address />
            </div>
        </header>
    }
}

/// To a place on the page, past all that comes before it.
fn skip(event: &leptos::ev::MouseEvent, id: &str) {
    // The address holds the scenario: it is not to be overwritten by the name of a place.
    event.prevent_default();
    crate::ui::browser::focus(id);
}
