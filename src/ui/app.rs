//! The page as a whole: what stands where.

use leptos::prelude::*;

use super::browser;
use super::controls::Toast;
use super::own;
use super::panel::{Answer, Configure, Footer, Header, Tabs, Verdict};
use super::state::State;
use super::sync;
use crate::issue::Issue;
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
    let state = State::new(shared.scenarios);
    state.notices.set(shared.notices);
    provide_context(state);
    let address = sync::follow_address(state);
    sync::remember_unit(state);
    own::accept_drops(state);
    view! {
        <Header address=address />
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
        <Toast />
    }
}

/// What was wrong with the link that the page was opened with.
#[component]
fn Notices() -> impl IntoView {
    let state = State::of_page();
    let none = move || state.notices.with(Vec::is_empty);
    let line = |notice: Issue| view! { <p>{notice.to_string()} "."</p> };
    view! {
        <div class="notices" role="alert">
            <div class="notice" hidden=none>
                <div>
                    <h2>"Part of this link could not be read"</h2>
                    {move || state.notices.get().into_iter().map(line).collect::<Vec<_>>()}
                </div>
                <button type="button" on:click=move |_| state.notices.set(Vec::new())>
                    "Dismiss"
                </button>
            </div>
        </div>
    }
}
