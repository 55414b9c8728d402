//! What to do about it: what to change, which card, what else the card is good for.

use leptos::prelude::*;

use super::batches::Batches;
use super::curves::Curves;
use super::fit::Models;
use super::layouts::Layouts;
use super::lengths::TextLengths;
use super::levers::Changes;
use super::need::Cards;
use super::serving::Inference;
use super::settings::Settings;
use super::thumb::Thumb;
use super::time::Time;
use crate::ui::browser;
use crate::ui::state::State;

/// When a question is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Always,
    OfTraining,
    OfInference,
}

/// The questions in the order in which they stand: the heading of each, and what leads to it.
const QUESTIONS: [(&str, &str, Asked); 12] = [
    ("changes-title", "Changes", Asked::Always),
    ("serving-title", "Formats", Asked::OfInference),
    ("contexts-title", "Batch × context", Asked::OfInference),
    ("curves-title", "Limits", Asked::Always),
    ("batches-title", "Batch", Asked::OfTraining),
    ("settings-title", "Settings", Asked::OfTraining),
    ("layouts-title", "Several GPUs", Asked::OfTraining),
    ("time-title", "Time", Asked::Always),
    ("texts-title", "Lengths", Asked::Always),
    ("need-title", "Cards", Asked::Always),
    ("fit-title", "Models", Asked::Always),
    ("thumb-title", "Rules of thumb", Asked::Always),
];

/// The questions that a plan answers.
#[component]
pub fn Plan() -> impl IntoView {
    view! {
        <div class="plan-head">
            <Contents />
            <Work />
        </div>
        <div class="panels plan">
            <Changes />
            <Inference />
            <Curves />
            <Batches />
            <Settings />
            <Layouts />
            <Time />
            <TextLengths />
            <Cards />
            <Models />
            <Thumb />
        </div>
    }
}

/// The way to each question.
#[component]
fn Contents() -> impl IntoView {
    let state = State::of_page();
    let trains = Memo::new(move |_| state.current().scenario.with(|scenario| scenario.task.trains()));
    // what stands above grows while it is worked out: until the reader moves, the heading stays where it was gone to
    let gone_to = StoredValue::new(None::<&'static str>);
    browser::watch_page(move || {
        if let Some(heading) = gone_to.get_value() {
            browser::go_to(heading);
        }
    });
    for moved in ["wheel", "touchmove", "keydown", "pointerdown"] {
        let listener = window_event_listener_untyped(moved, move |_| gone_to.set_value(None));
        on_cleanup(move || listener.remove());
    }
    let go = move |heading: &'static str| {
        gone_to.set_value(Some(heading));
        browser::go_to(heading);
    };
    let lead = move |(heading, words, asked): (&'static str, &'static str, Asked)| {
        let shown = asked == Asked::Always || (asked == Asked::OfTraining) == trains.get();
        shown.then(|| {
            view! {
                <button type="button" class="explain" on:click=move |_| go(heading)>
                    {words}
                </button>
            }
        })
    };
    view! {
        <nav class="contents" aria-label="Questions">
            {move || QUESTIONS.into_iter().map(lead).collect::<Vec<_>>()}
        </nav>
    }
}

/// What the worker has still to do, and how it is stopped.
#[component]
fn Work() -> impl IntoView {
    let state = State::of_page();
    let left = Memo::new(move |_| state.desk.with_value(|desk| desk.left()));
    let stopped = RwSignal::new(false);
    Effect::new(move || {
        if left.get() > 0 {
            stopped.set(false);
        }
    });
    let stop = move |_| {
        state.desk.with_value(|desk| desk.stop());
        stopped.set(true);
    };
    let told = move || match (left.get(), stopped.get()) {
        (0, false) => ().into_any(),
        (0, true) => view! {
            "Stopped: the tables have what was found so far. "
            <button type="button" class="explain" on:click=move |_| state.again.update(|again| *again += 1)>
                "Go on"
            </button>
        }
        .into_any(),
        (_, _) => view! {
            {move || format!("{} more to work out. ", left.get())}
            <button type="button" class="explain" on:click=stop>
                "Stop"
            </button>
        }
        .into_any(),
    };
    view! { <p class="remark work">{told}</p> }
}
