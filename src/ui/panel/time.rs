//! How long the run takes and what it costs, with the data set that this follows from.

use leptos::prelude::*;

use super::control::Control;
use super::document::Grounds;
use crate::export::pace_lines;
use crate::plan::{Verdict, pace};
use crate::scenario::keys::{Place, keys};
use crate::ui::behind::Behind;
use crate::ui::markup::capitalised;
use crate::ui::state::State;

/// The inputs that only this depends on, and what follows.
#[component]
pub fn Time() -> impl IntoView {
    let state = State::of_page();
    let told = move || {
        let said = state.current().answer(|scenario, memory, _| match pace(scenario, memory) {
            Ok(pace) => pace_lines(scenario, &pace, "enter what an hour of one GPU costs you above"),
            Err(issue) => vec![("No answer", capitalised(&issue.to_string()))],
        });
        let line = |(name, words): (&'static str, String)| {
            view! {
                <div>
                    <dt>{name}</dt>
                    " "
                    <dd>{words}</dd>
                </div>
            }
        };
        said.unwrap_or_default().into_iter().map(line).collect::<Vec<_>>()
    };
    let stops = move || {
        let verdict = state.current().fit().map(|(_, verdict)| verdict);
        matches!(verdict, Some(Verdict::Over | Verdict::WouldNotRun))
    };
    let planned = keys().filter(|key| key.place == Place::Planned);
    view! {
        <div class="planned">{planned.map(|key| view! { <Control key=key /> }).collect::<Vec<_>>()}</div>
        <p class="message warning" hidden=Signal::derive(move || !stops())>
            "It does not get through on this card: this is what it would take if it did."
        </p>
        <dl class="pace">{told}</dl>
        <p class="remark">
            "Rougher than memory: what the step computes is counted, how fast such cards do it was measured. Data that arrives late, \
             evaluation and saving come on top."
        </p>
        <Grounds of=Behind::Speed />
    }
}
