//! What stands under the verdict, and the close look that it waits for.

use std::sync::Arc;

use leptos::prelude::*;

use super::levers::Levers;
use super::views::Views;
use crate::share::MOST_SCENARIOS;
use crate::ui::browser::Later;
use crate::ui::desk::Place;
use crate::ui::detail::Detail;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;

/// How long, in milliseconds, the controls must rest before the scenario is looked at closely.
const REST: u32 = 40;

/// The parts of the answer below the verdict.
#[component]
pub fn Panels() -> impl IntoView {
    let state = State::of_page();
    for position in 0..MOST_SCENARIOS {
        look_closely(state, position);
    }
    view! {
        <p class="message warning" role="alert" hidden=Signal::derive(move || !state.troubled.get())>
            "The allocator's replay, the timeline and the tables are computed beside the page, by a Web Worker. It could not \
             be started, or it stopped: what is shown counts tensors alone. The next change tries again."
        </p>
        <Levers />
        <Views />
    }
}

/// Keeps [`Slot::detail`](crate::ui::state::Slot::detail) of a scenario on the page a moment behind it.
fn look_closely(state: State, position: usize) {
    let slot = state.slots[position];
    let place = Place::Scenario(position);
    let later = Later::default();
    let mut first = true;
    Effect::new(move || {
        let scenario = slot.scenario.get();
        // What was asked of an earlier one is of no use any more.
        later.cancel();
        state.desk.with_value(|desk| desk.forget(place));
        if state.is_free(position) || slot.estimate.with(|estimate| estimate.memory.is_none()) {
            slot.detail.set(None);
            return;
        }
        let is_known =
            |detail: &Option<Arc<Detail>>| detail.as_ref().is_some_and(|detail| detail.is_of(&scenario));
        if slot.detail.with_untracked(is_known) {
            first = false;
            return;
        }
        let look = move || {
            let question = Question::Detail(Box::new(scenario.clone()));
            state.desk.with_value(|desk| {
                desk.ask(place, question, move |answer| {
                    state.troubled.set(answer.is_none());
                    let Some(Answer::Detail(detail)) = answer else { return slot.detail.set(None) };
                    slot.detail.set(detail.map(|detail| Arc::new(Detail { scenario, ..*detail })));
                });
            });
        };
        if std::mem::take(&mut first) {
            look();
        } else {
            later.run(REST, look);
        }
    });
}
