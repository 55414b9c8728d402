//! The views under the answer: their tabs, and the one that is shown. The others are not there and do nothing.

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

use super::accuracy::Accuracy;
use super::answer::Fit;
use super::compare::Compare;
use super::plan::Plan;
use super::timeline::Timeline;
use crate::ui::browser;
use crate::ui::state::State;
use crate::ui::view::View;

/// The tabs and the view.
#[component]
pub fn Views() -> impl IntoView {
    let state = State::of_page();
    let shown = Memo::new(move |_| state.view.get());
    let press = move |event: KeyboardEvent| {
        let now = View::ALL.iter().position(|view| *view == shown.get_untracked()).unwrap_or_default();
        let last = View::ALL.len() - 1;
        let to = match event.key().as_str() {
            "ArrowLeft" => now.checked_sub(1).unwrap_or(last),
            "ArrowRight" if now < last => now + 1,
            "ArrowRight" | "Home" => 0,
            "End" => last,
            _ => return,
        };
        event.prevent_default();
        show(state, View::ALL[to]);
        browser::focus(&tab_id(View::ALL[to]));
    };
    let tab = move |view: View| {
        let is_shown = move || shown.get() == view;
        view! {
            <button
                type="button"
                role="tab"
                id=tab_id(view)
                aria-selected=Signal::derive(move || is_shown().to_string())
                aria-controls=VIEW
                tabindex=Signal::derive(move || if is_shown() { "0" } else { "-1" }.to_owned())
                on:click=move |_| show(state, view)
            >
                {view.label()}
            </button>
        }
    };
    let view = move || match shown.get() {
        View::Fit => view! { <Fit /> }.into_any(),
        View::Timeline => view! { <Timeline /> }.into_any(),
        View::Plan => view! { <Plan /> }.into_any(),
        View::Compare => view! { <Compare /> }.into_any(),
        View::Accuracy => view! { <Accuracy /> }.into_any(),
    };
    view! {
        <div class="views" id=TABS role="tablist" aria-label="Views" on:keydown=press>
            {View::ALL.iter().copied().map(tab).collect::<Vec<_>>()}
        </div>
        <div
            class="view"
            id=VIEW
            role="tabpanel"
            aria-labelledby=Signal::derive(move || tab_id(shown.get()))
        >
            {view}
        </div>
    }
}

/// The ids of the tabs and of what they show.
const TABS: &str = "views";
const VIEW: &str = "view";

/// Shows a view, and goes to it where it would begin out of sight.
pub fn show(state: State, view: View) {
    state.view.set(view);
    request_animation_frame(|| browser::bring_up(TABS, VIEW));
}

/// The id of a view's tab.
fn tab_id(view: View) -> String {
    format!("view-{}", view.slug())
}
