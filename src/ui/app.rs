//! The page as a whole: what stands where, and how it starts.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use leptos::prelude::*;

use super::browser;
use super::controls::Acts;
use super::desk::Desk;
use super::detail::Detail;
use super::keyboard::Keyboard;
use super::own;
use super::panel::{Configure, Footer, Header, Panels, Sentence, Tabs, Toast, Verdict};
use super::question;
use super::search;
use super::state::State;
use super::summary;
use super::sync;
use super::theme::Theme;
use crate::issue::Issue;
use crate::share;

/// How long, in milliseconds, the app waits for the close look at the first answer, which stands on the page already, before it takes
/// over without.
const PATIENCE: u32 = 3000;
/// The same where a link is opened and nothing stands there yet.
const PATIENCE_WITH_A_LINK: u32 = 1000;

/// What the page begins with.
#[derive(Clone, Default)]
pub struct Start {
    /// What the address said.
    pub link: String,
    /// The scenarios looked at closely, in order, where that was done.
    pub details: Vec<Option<Arc<Detail>>>,
    /// Whether amounts are shown in decimal units.
    pub decimal: bool,
    /// The colours.
    pub theme: Theme,
}

/// Runs the page, or its worker where this is one.
pub fn start() {
    browser::catch_crashes();
    if !browser::is_page() {
        return browser::serve(question::answer);
    }
    let start = Start {
        link: browser::link(),
        details: Vec::new(),
        decimal: sync::stored_unit_is_decimal(),
        theme: Theme::stored(),
    };
    // The app takes over once it knows as much as it will show: what came later would move what stands there.
    let desk = Desk::default();
    let scenarios = share::decode(&start.link).scenarios;
    let patience = browser::Later::default();
    let wait = if start.link.is_empty() { PATIENCE } else { PATIENCE_WITH_A_LINK };
    let waiting = Rc::new(Cell::new(Some((start, desk.clone()))));
    let take_over = move |details: Vec<Option<Arc<Detail>>>| {
        let Some((start, desk)) = waiting.take() else { return };
        // who went back meanwhile wants to see what stands in the address now
        match browser::link() {
            link if link == start.link => mount(Start { details, ..start }, desk),
            link => mount(Start { link, ..start }, desk),
        }
    };
    let impatient = take_over.clone();
    patience.run(wait, move || impatient(Vec::new()));
    search::details(&desk, scenarios, move |details| {
        patience.cancel();
        take_over(details);
    });
}

/// Puts the app on the page.
fn mount(start: Start, desk: Desk) {
    let Some(stage) = browser::stage() else { return };
    let page = move || {
        browser::keep_steady(".answer :is(figure, section)");
        browser::measure_what_sticks();
        view! { <App start=start desk=desk /> }
    };
    leptos::mount::mount_to(stage, page).forget();
    browser::mark_root("data-state", Some("ready"));
}

/// The whole page.
#[component]
pub fn App(
    /// What it begins with.
    start: Start,
    /// Where it asks what takes longer.
    desk: Desk,
) -> impl IntoView {
    let shared = share::decode(&start.link);
    let state = State::new(shared.scenarios, desk);
    state.notices.set(shared.notices);
    state.decimal.set(start.decimal);
    for (slot, detail) in state.slots.into_iter().zip(start.details) {
        slot.detail.set(detail);
    }
    sync::open_view(state, &start.link);
    provide_context(state);
    provide_context(Acts(state.visits.into()));
    let address = sync::follow_address(state, &start.link);
    sync::remember_unit(state);
    own::accept_drops(state);
    Effect::new(move || browser::mark_root("data-embed", state.embedded.get().then_some("")));
    let theme = RwSignal::new(start.theme);
    let turn = Callback::new(move |()| {
        theme.update(|theme| *theme = theme.next());
        theme.get_untracked().apply();
    });
    view! {
        <Header address=address theme=theme turn=turn />
        <main>
            <Notices />
            {move || state.embedded.get().then(|| view! { <Whole /> })}
            <Sentence />
            <Configure />
            <div class="answer">
                <div class="head">
                    <Tabs />
                    <Verdict />
                </div>
                <Panels />
            </div>
        </main>
        <Footer />
        <Toast />
        <Keyboard turn=turn />
    }
}

/// Where the page stands in another one: what it is about, and the way to all of it.
#[component]
fn Whole() -> impl IntoView {
    let state = State::of_page();
    let title = move || state.current().scenario.with(summary::title);
    let follow = move |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        browser::open(&sync::embedding(&browser::address()).1);
    };
    view! {
        <p class="whole">
            <b>{title}</b>
            " "
            <a href="." on:click=follow>
                "Open in Headroom"
            </a>
        </p>
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
