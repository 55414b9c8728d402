//! The page as a whole: what stands where.

use leptos::prelude::*;

use super::browser;
use super::controls::Toasts;
use super::depth::Shown;
use super::format::Unit;
use super::panel::{Answer, Configure, Footer, Header, Tabs, Verdict};
use super::state::State;
use super::sync;
use crate::share;

/// Puts the app on the page.
pub fn mount() {
    browser::catch_crashes();
    let Some(stage) = browser::stage() else { return };
    leptos::mount::mount_to(stage, App).forget();
    browser::mark_root("data-state", Some("ready"));
}

#[component]
fn App() -> impl IntoView {
    let shared = share::decode(&browser::query());
    let unit = browser::stored(sync::UNIT).and_then(|label| Unit::from_label(&label)).unwrap_or_default();
    let state = State::new(shared.scenarios, unit);
    state.notices.set(shared.notices);
    provide_context(state);
    Shown::provide(state);
    sync::follow(state);
    view! {
        <Header />
        <main>
            <Notices />
            <Configure />
            <div class="answer">
                <div class="head">
                    <Tabs />
                    <Verdict />
                </div>
                <Answer />
            </div>
        </main>
        <Footer />
        <Toasts />
    }
}

/// What was wrong with the link that the page was opened with.
#[component]
fn Notices() -> impl IntoView {
    let state = State::of_page();
    let body = move || {
        let notices = state.notices.get();
        (!notices.is_empty()).then(|| {
            view! {
                <div class="notice">
                    <div>
                        <h2>"Part of this link could not be read"</h2>
                        {notices.into_iter().map(|notice| view! { <p>{notice.to_string()}"."</p> }).collect_view()}
                    </div>
                    <button type="button" class="quiet" on:click=move |_| state.notices.set(Vec::new())>
                        "Dismiss"
                    </button>
                </div>
            }
        })
    };
    view! { <div class="notices" role="alert">{body}</div> }.into_any()
}
