//! Where the memory goes: the charts and what belongs to them.

use std::sync::Arc;

use leptos::prelude::*;

use super::breakdown::Breakdown;
use super::chart::Chart;
use super::compare::Differences;
use super::fit::Table;
use super::levers::Levers;
use crate::memory::{Iteration, Memory, Phase, Stage};
use crate::share::MOST_SCENARIOS;
use crate::ui::browser::Later;
use crate::ui::chart::stack::{Bar, Layout, draw};
use crate::ui::chart::timeline;
use crate::ui::desk::Place;
use crate::ui::detail::Detail;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::state::{State, letter};
use crate::ui::summary;
use crate::units::Bytes;

/// How long, in milliseconds, the controls must rest before the scenario is looked at closely.
const REST: u32 = 40;

/// The parts of the answer below the verdict.
#[component]
pub fn Panels() -> impl IntoView {
    let state = State::of_page();
    for position in 0..MOST_SCENARIOS {
        look_closely(state, position);
    }
    let silent = move || state.shown().all(|slot| slot.estimate.with(|estimate| estimate.memory.is_none()));
    let unknown = move || state.current().estimate.with(|estimate| estimate.memory.is_none());
    view! {
        <p class="message warning" role="alert" hidden=move || !state.troubled.get()>
            "The allocator's replay, the timeline and the table of models are computed beside the page, by a Web Worker. \
             It could not be started, or it stopped: what is shown counts tensors alone. The next change tries again."
        </p>
        <Levers />
        <div class="panels">
            <div class="column">
                <section class="panel peak" hidden=silent>
                    <h2>"Memory at the peak"</h2>
                    <Chart label="Memory at the peak" draw=move |width| peak(state, width) />
                    <Breakdown />
                </section>
                <section class="panel" hidden=unknown>
                    <h2>"Over one step"</h2>
                    <Chart label="Over one step" draw=move |width| step(state, width) />
                    <p class="remark">
                        "Every allocation and every free of an iteration that is not the first, in PyTorch's order."
                    </p>
                </section>
            </div>
            <div class="column">
                <Differences />
                <section class="panel" hidden=unknown>
                    <h2>"Peak by phase"</h2>
                    <Chart label="Peak by phase" draw=move |width| phases(state, width) />
                    <p class="remark">{move || first_iteration(state)}</p>
                </section>
                <Table />
            </div>
        </div>
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
                    let detail = answer.and_then(Answer::detail);
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

/// All scenarios on one axis.
fn peak(state: State, width: u32) -> String {
    let unit = state.unit();
    let alone = state.alone();
    let active = state.active.get();
    let mut name = String::from("Stacked bars of memory");
    let mut bars = Vec::new();
    for (position, slot) in state.shown().enumerate() {
        slot.answer(|scenario, memory, gpu| {
            name.push_str(&format!(". {}: {}", summary::title(scenario), unit.amount(memory.needed())));
            bars.push(Bar {
                name: if alone { String::new() } else { letter(position).to_owned() },
                segments: Bar::segments(&memory.peak().1.parts, memory.context),
                capacity: gpu.memory,
                faded: !alone && position != active,
            });
        });
    }
    let layout = if alone {
        Layout { width, bar: 48, gap: 10, names: 0, amounts: 0, labelled: true }
    } else {
        Layout { width, bar: 28, gap: 10, names: 24, amounts: 80, labelled: false }
    };
    draw(&bars, unit, layout, &name)
}

/// The active scenario from the beginning of a step to its end.
fn step(state: State, width: u32) -> String {
    let unit = state.unit();
    let slot = state.current();
    let detail = slot.close_look();
    let drawn = slot.answer(|_, memory, gpu| {
        let moments = detail.as_ref().map_or(&[][..], |detail| &detail.moments[..]);
        timeline::draw(moments, memory.context, gpu.memory, unit, width)
    });
    drawn.unwrap_or_default()
}

/// The peaks of the phases of the active scenario.
fn phases(state: State, width: u32) -> String {
    let unit = state.unit();
    let layout = Layout { width, bar: 16, gap: 10, names: 108, amounts: 76, labelled: false };
    let drawn = state.current().answer(|_, memory, gpu| {
        let highest = memory.steady.highest().0;
        let bars = memory.steady.phases.iter().map(|(phase, peak)| Bar {
            name: phase_name(*phase).to_owned(),
            segments: Bar::segments(&peak.parts, memory.context),
            capacity: gpu.memory,
            faded: *phase != highest,
        });
        draw(&bars.collect::<Vec<_>>(), unit, layout, "Bars of the memory at the peak of each phase")
    });
    drawn.unwrap_or_default()
}

/// What stands before the bar of a phase.
const fn phase_name(phase: Phase) -> &'static str {
    match phase.stage {
        Stage::Forward => "Forward",
        Stage::Backward => "Backward",
        Stage::Step => "Optimizer step",
        Stage::Score => "Scoring",
    }
}

/// What the first iteration does otherwise than those that are drawn.
fn first_iteration(state: State) -> String {
    let unit = state.unit();
    state.current().answer(|_, memory, _| remark(memory, unit)).unwrap_or_default()
}

fn remark(memory: &Memory, unit: Unit) -> String {
    let needed = |iteration: &Iteration| -> Bytes { iteration.highest().1.bytes + memory.context };
    let (first, later) = (needed(&memory.first), needed(&memory.steady));
    if first > later {
        let phase = memory.first.highest().0.label();
        format!("Every iteration but the first, which goes higher: {} in the {phase}.", unit.amount(first))
    } else if first < later {
        format!(
            "Every iteration but the first, which has no optimizer state before its step and stays at {}.",
            unit.amount(first)
        )
    } else {
        "Every iteration; the first goes as high.".to_owned()
    }
}
