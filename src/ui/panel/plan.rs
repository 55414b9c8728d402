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
use crate::ui::browser::{self, Later};
use crate::ui::desk::Place;
use crate::ui::state::State;

/// When a question is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Always,
    OfTraining,
    OfInference,
}

/// A question of the plan.
#[derive(Clone, Copy)]
struct Heading {
    /// The heading it stands under.
    id: &'static str,
    /// What leads to it.
    words: &'static str,
    asked: Asked,
    /// A place of its table at the desk.
    table: Option<Place>,
}

/// The questions in the order in which they stand.
const QUESTIONS: [Heading; 13] = [
    heading("changes-title", "Changes", Asked::Always, None),
    heading("serving-title", "Formats", Asked::OfInference, Some(Place::Serving)),
    heading("by-batch-title", "Format × batch", Asked::OfInference, Some(Place::ByBatch(0))),
    heading("contexts-title", "Batch × context", Asked::OfInference, Some(Place::Contexts)),
    heading("need-title", "Cards", Asked::Always, Some(Place::Cards(0))),
    heading("fit-title", "Models", Asked::Always, Some(Place::Row(0))),
    heading("layouts-title", "Several GPUs", Asked::OfTraining, Some(Place::Layout(0))),
    heading("curves-title", "Limits", Asked::Always, Some(Place::Point(0))),
    heading("batches-title", "Batch", Asked::OfTraining, Some(Place::Batch(0))),
    heading("settings-title", "Settings", Asked::OfTraining, Some(Place::Setting(0))),
    heading("time-title", "Time", Asked::Always, None),
    heading("texts-title", "Lengths", Asked::Always, Some(Place::Texts)),
    heading("thumb-title", "Rules of thumb", Asked::Always, None),
];

const fn heading(id: &'static str, words: &'static str, asked: Asked, table: Option<Place>) -> Heading {
    Heading { id, words, asked, table }
}

/// How long, in milliseconds, scrolling must rest before what is looked at is worked out first.
const REST: u32 = 100;

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
            <Cards />
            <Models />
            <Layouts />
            <Curves />
            <Batches />
            <Settings />
            <Time />
            <TextLengths />
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
    // the table that is looked at is worked out before the others
    let look_at = move |table| state.desk.with_value(|desk| desk.look_at(table));
    let later = StoredValue::new_local(Later::default());
    let scrolled = window_event_listener_untyped("scroll", move |_| {
        later.with_value(|later| {
            later.run(REST, move || {
                // what stands above an empty table may not begin below the middle
                if gone_to.get_value().is_some() {
                    return;
                }
                let seen = QUESTIONS.iter().rfind(|question| browser::begins_above_the_middle(question.id));
                look_at(seen.and_then(|question| question.table));
            });
        });
    });
    on_cleanup(move || {
        scrolled.remove();
        later.with_value(Later::cancel);
        look_at(None);
    });
    let go = move |question: Heading| {
        gone_to.set_value(Some(question.id));
        look_at(question.table);
        browser::go_to(question.id);
    };
    let lead = move |question: Heading| {
        let Heading { words, asked, .. } = question;
        let shown = asked == Asked::Always || (asked == Asked::OfTraining) == trains.get();
        shown.then(|| {
            view! {
                <button type="button" class="explain" on:click=move |_| go(question)>
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

/// What the workers have still to do, and how it is stopped.
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
