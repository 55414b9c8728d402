//! What to do about it: what to change, which card, what else the card is good for.

use leptos::ev::MouseEvent;
use leptos::prelude::*;

use super::batches::Batches;
use super::changes::Changes;
use super::curves::{CURVES, Curves};
use super::fit::Models;
use super::layouts::Layouts;
use super::lengths::TextLengths;
use super::need::Cards;
use super::serving::{ByBatch, Contexts, FORMATS, Formats};
use super::settings::Settings;
use super::thumb::Thumb;
use super::time::Time;
use crate::scenario::Scenario;
use crate::scenario::keys::{self, keys};
use crate::ui::asked::Listed;
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
    /// The question.
    title: &'static str,
    /// What leads to it.
    words: &'static str,
    asked: Asked,
    /// A place of its table at the desk.
    table: Option<Place>,
    /// The table that a link may say something of.
    listed: Option<Listed>,
    /// The answer.
    draw: fn() -> AnyView,
}

/// The questions in the order in which they stand.
const QUESTIONS: [Heading; 13] = [
    heading(
        ("changes-title", "What can I change?", "Changes"),
        (Asked::Always, None, Some(Listed::Changes)),
        || view! { <Changes /> }.into_any(),
    ),
    heading(
        (FORMATS, "In which format?", "Formats"),
        (Asked::OfInference, Some(Place::Serving), Some(Listed::Formats)),
        || view! { <Formats /> }.into_any(),
    ),
    heading(
        ("by-batch-title", "In which format, how many at once?", "Format × batch"),
        (Asked::OfInference, Some(Place::ByBatch(0)), Some(Listed::ByBatch)),
        || view! { <ByBatch /> }.into_any(),
    ),
    heading(
        ("contexts-title", "How many sequences of what length?", "Batch × context"),
        (Asked::OfInference, Some(Place::Contexts), Some(Listed::Contexts)),
        || view! { <Contexts /> }.into_any(),
    ),
    heading(
        ("need-title", "Which card do I need?", "Cards"),
        (Asked::Always, Some(Place::Cards(0)), Some(Listed::Cards)),
        || view! { <Cards /> }.into_any(),
    ),
    heading(
        ("fit-title", "What can I train?", "Models"),
        (Asked::Always, Some(Place::Row(0)), Some(Listed::Models)),
        || view! { <Models /> }.into_any(),
    ),
    heading(
        ("layouts-title", "How do several GPUs hold it?", "Several GPUs"),
        (Asked::OfTraining, Some(Place::Layout(0)), Some(Listed::Layouts)),
        || view! { <Layouts /> }.into_any(),
    ),
    heading(
        ("curves-title", CURVES, "Limits"),
        (Asked::Always, Some(Place::Point(0)), Some(Listed::Curve)),
        || view! { <Curves /> }.into_any(),
    ),
    heading(
        ("batches-title", "Which micro-batch, how much accumulation?", "Batch"),
        (Asked::OfTraining, Some(Place::Batch(0)), Some(Listed::Batches)),
        || view! { <Batches /> }.into_any(),
    ),
    heading(
        ("settings-title", "Which settings?", "Settings"),
        (Asked::OfTraining, Some(Place::Setting(0)), Some(Listed::Settings)),
        || view! { <Settings /> }.into_any(),
    ),
    heading((TIME, "How long?", "Time"), (Asked::Always, None, None), || view! { <Time /> }.into_any()),
    heading(
        ("texts-title", "When will it run out? Paste the lengths of your texts", "Lengths"),
        (Asked::Always, Some(Place::Texts), None),
        || view! { <TextLengths /> }.into_any(),
    ),
    heading(
        ("thumb-title", "What would rules of thumb say?", "Rules of thumb"),
        (Asked::Always, None, None),
        || view! { <Thumb /> }.into_any(),
    ),
];

/// So many are answered at once; the others where they are opened, led to, or asked about in the link.
const OPEN: usize = 3;

const fn heading(
    (id, title, words): (&'static str, &'static str, &'static str),
    (asked, table, listed): (Asked, Option<Place>, Option<Listed>),
    draw: fn() -> AnyView,
) -> Heading {
    Heading { id, title, words, asked, table, listed, draw }
}

/// The questions about what trains, or about what generates.
fn questions(trains: bool) -> impl Iterator<Item = &'static Heading> {
    QUESTIONS.iter().filter(move |question| {
        question.asked == Asked::Always || (question.asked == Asked::OfTraining) == trains
    })
}

/// Whether its reader has it answered, or not; nothing where nobody turned it.
fn turned(state: State, question: &Heading) -> Option<bool> {
    state.asked.turned.with(|turned| turned.iter().find(|(id, _)| *id == question.id).map(|(_, open)| *open))
}

/// Whether a question is answered.
fn is_open(state: State, question: &Heading) -> bool {
    turned(state, question).unwrap_or_else(|| {
        let trains = state.current().scenario.with(|scenario| scenario.task.trains());
        questions(trains).take(OPEN).any(|first| first.id == question.id)
            || question.listed.is_some_and(|table| state.asked.is_about(table))
            || question.id == TIME && state.current().scenario.with(says_how_much)
    })
}

/// What is asked about the data set.
const TIME: &str = "time-title";

/// Whether a scenario says what only its time and price depend on.
fn says_how_much(scenario: &Scenario) -> bool {
    let usual = scenario.defaults();
    keys().any(|key| key.place == keys::Place::Planned && key.is_changed(scenario, &usual))
}

/// Has it answered, or not.
fn turn(state: State, question: &Heading, open: bool) {
    state.asked.turn(question.id, open);
}

/// How long, in milliseconds, scrolling must rest before what is looked at is worked out first.
const REST: u32 = 100;

/// The questions that a plan answers.
#[component]
pub fn Plan() -> impl IntoView {
    let state = State::of_page();
    let trains = Memo::new(move |_| state.current().scenario.with(|scenario| scenario.task.trains()));
    view! {
        <div class="plan-head" id="contents">
            <Contents />
            <Work />
        </div>
        <div class="panels plan">
            {move || questions(trains.get()).map(|question| view! { <Question question=question /> }).collect::<Vec<_>>()}
        </div>
    }
}

/// A question, and its answer where it is opened: what is folded away is not worked out.
#[component]
fn Question(question: &'static Heading) -> impl IntoView {
    let state = State::of_page();
    // what a link or a setting opened stays open when that is taken back
    let open = Memo::new(move |before: Option<&bool>| {
        turned(state, question).unwrap_or_else(|| before == Some(&true) || is_open(state, question))
    });
    let press = move |event: MouseEvent| {
        event.prevent_default();
        turn(state, question, !open.get_untracked());
    };
    view! {
        <section class="panel" aria-labelledby=question.id>
            <details prop:open=open>
                <summary on:click=press>
                    <h2 id=question.id>{question.title}</h2>
                </summary>
                {move || open.get().then(question.draw)}
            </details>
        </section>
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
        // who is elsewhere by now stays there
        match gone_to.get_value() {
            Some(heading) if browser::is_focused(heading) => browser::go_to(heading),
            _ => gone_to.set_value(None),
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
                let is_seen = |question: &&Heading| {
                    untrack(|| is_open(state, question)) && browser::begins_above_the_middle(question.id)
                };
                let seen = QUESTIONS.iter().rfind(is_seen);
                look_at(seen.and_then(|question| question.table));
            });
        });
    });
    on_cleanup(move || {
        scrolled.remove();
        later.with_value(Later::cancel);
        look_at(None);
    });
    let go = move |question: &'static Heading| {
        turn(state, question, true);
        gone_to.set_value(Some(question.id));
        look_at(question.table);
        browser::go_to(question.id);
    };
    let lead = move |question: &'static Heading| {
        view! {
            <button type="button" class="explain" on:click=move |_| go(question)>
                {question.words}
            </button>
        }
    };
    view! {
        <nav class="contents" aria-label="Questions">
            {move || questions(trains.get()).map(lead).collect::<Vec<_>>()}
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
            "Stopped"
            <span class="roomy">": the tables have what was found so far"</span>
            ". "
            <button type="button" class="explain" on:click=move |_| state.again.update(|again| *again += 1)>
                "Go on"
            </button>
        }
        .into_any(),
        (_, _) => view! {
            {move || format!("{} more", left.get())}
            <span class="roomy">" to work out"</span>
            ". "
            <button type="button" class="explain" on:click=stop>
                "Stop"
            </button>
        }
        .into_any(),
    };
    view! { <p class="remark work">{told}</p> }
}
