//! A memory snapshot of the visitor's over the timeline: what was measured over what is predicted.

use std::sync::Arc;

use leptos::prelude::*;

use crate::check::Figure;
use crate::plan::Outcome;
use crate::ui::controls::ChooseFile;
use crate::ui::desk::Place;
use crate::ui::detail::{Beside, Detail};
use crate::ui::format::Unit;
use crate::ui::own::snapshot::take;
use crate::ui::proof::signed;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::units::Bytes;

/// A file whose peak is off by more percent is hardly of the run that is shown.
const ANOTHER: f64 = 20.;

/// What a snapshot shows over the step, or why it shows nothing; nothing where there is no snapshot.
pub type Shown = RwSignal<Option<Result<Beside, String>>>;

/// Has the snapshot looked at beside the page, whenever it or the step comes to be another.
pub fn overlay(state: State, detail: Signal<Option<Arc<Detail>>>) -> Shown {
    let shown = Shown::new(None);
    Effect::new(move || {
        state.desk.with_value(|desk| desk.forget(Place::Snapshot));
        shown.set(None);
        let (Some(snapshot), Some(detail)) = (state.trace.get(), detail.get()) else { return };
        let question = Question::Snapshot(Box::new(detail.scenario.clone()));
        let take = move |answer: Option<Answer>| {
            let failed = "the worker beside the page could not read it: it may be too large";
            let Some(Answer::Snapshot(found)) = answer else {
                return shown.set(Some(Err(failed.to_owned())));
            };
            shown.set(Some(found));
        };
        state.desk.with_value(|desk| desk.ask_with(Place::Snapshot, question, Some(snapshot.file), take));
    });
    on_cleanup(move || state.desk.with_value(|desk| desk.forget(Place::Snapshot)));
    shown
}

/// The way to lay a snapshot over the step, and what it says.
#[component]
pub fn Overlay(
    /// The step.
    detail: Signal<Option<Arc<Detail>>>,
    /// What the snapshot shows over it.
    beside: Shown,
) -> impl IntoView {
    let state = State::of_page();
    let name = move || state.trace.with(|snapshot| snapshot.as_ref().map(|snapshot| snapshot.name.clone()));
    let is_there = Signal::derive_local(move || state.trace.with(Option::is_some));
    let told = move || {
        let name = name()?;
        Some(match beside.get() {
            None => format!("{name}: looking for the step …"),
            Some(Err(why)) => format!("{name}: {why}."),
            Some(Ok(beside)) => detail.with(|detail| {
                let detail = detail.as_ref();
                detail.map(|detail| compared(&name, &beside, detail, state.unit())).unwrap_or_default()
            }),
        })
    };
    let failed = move || beside.with(|beside| matches!(beside, Some(Err(_))));
    view! {
        <div class="overlay">
            <p class="tools-row">
                <ChooseFile label="Lay a memory snapshot over it" accept=".pickle,.pkl" take=Callback::new(move |file| take(state, file)) />
                <button
                    type="button"
                    class="tool"
                    hidden=move || !is_there.get()
                    on:click=move |_| state.trace.set(None)
                >
                    "Take it away"
                </button>
                <span class="remark">"or drop one: torch.cuda.memory._dump_snapshot() writes it, and it stays in this browser"</span>
            </p>
            <p role="status" class:message=failed class:error=failed>
                {told}
            </p>
        </div>
    }
}

/// The peaks of a snapshot beside those that are predicted.
fn compared(name: &str, beside: &Beside, detail: &Detail, unit: Unit) -> String {
    let off = |measured: Bytes, predicted: Bytes| Figure { measured, predicted }.error_pct();
    let figure = |measured: Bytes, predicted: Bytes| {
        let error = match predicted.0 as f64 / measured.0.max(1) as f64 {
            times if times >= 2. => format!("{times:.1} times as much"),
            _ => signed(off(measured, predicted)),
        };
        format!("{} measured, {} predicted ({error})", unit.amount(measured), unit.amount(predicted))
    };
    let peak = detail.memory.peak().1.bytes;
    let allocated = figure(beside.peak, peak);
    let another = if off(beside.peak, peak).abs() > ANOTHER { "this looks like another run: " } else { "" };
    // where the run fails on its card the whole step is drawn as on a larger one
    let predicted = detail.on_card.as_ref().ok().map(|on_card| match on_card.outcome {
        Outcome::Fails(_) => detail.moments.iter().map(|moment| moment.reserved).max().unwrap_or_default(),
        Outcome::Runs | Outcome::RunsExpandable => on_card.reserved,
    });
    let reserved = predicted.filter(|_| beside.reserved_peak > Bytes::ZERO);
    let reserved = reserved.map_or_else(String::new, |predicted| {
        format!("; reserved: {}", figure(beside.reserved_peak, predicted))
    });
    format!(
        "{name}: {another}allocated: {allocated}{reserved}. The dashed line is the stretch of the file that is most like this step."
    )
}
