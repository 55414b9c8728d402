//! The top of the page: its name, the unit, the theme, the link.

use leptos::prelude::*;

use crate::ui::browser;
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
    theme: Theme,
) -> impl IntoView {
    let state = State::of_page();
    let theme = RwSignal::new(theme);
    let turn = move |_| {
        theme.update(|theme| *theme = theme.next());
        theme.get_untracked().apply();
    };
    let copy = move |_| {
        address.flush();
        browser::copy(&browser::address(), move |copied| {
            state.tell(if copied {
                "Link copied: it opens exactly what you see"
            } else {
                "The browser did not allow copying; the address bar holds the link"
            });
        });
    };
    let unit = move |unit: Unit| {
        view! {
            <button
                type="button"
                title=unit.help()
                aria-pressed=move || (state.unit() == unit).to_string()
                on:click=move |_| state.decimal.set(unit == Unit::Decimal)
            >
                {unit.label()}
            </button>
        }
    };
    view! {
        <header class="page-header">
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
                <div class="units" role="group" aria-label="Unit">
                    {Unit::ALL.map(unit)}
                </div>
                <button type="button" class="tool" title="Light, dark, or as the system" on:click=turn>
                    <span class="theme-icon" aria-hidden="true"></span>
                    <span class="unseen">"Theme: "</span>
                    <span class="theme-name">{move || theme.get().label()}</span>
                </button>
                <button type="button" class="tool strong" aria-label="Copy link" on:click=copy>
                    <span class="roomy">"Copy link"</span>
                    <span class="tight">"Link"</span>
                </button>
            </div>
        </header>
    }
}
