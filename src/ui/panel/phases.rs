//! How high each phase of the step goes.

use leptos::prelude::*;

use super::answer::measured;
use crate::estimate::{Iteration, Memory, Phase};
use crate::ui::chart::stack::{Bar, Layout, Segment, draw};
use crate::ui::part::Part;
use crate::ui::state::State;

/// The peaks of the phases of the active scenario.
#[component]
pub fn Phases() -> impl IntoView {
    let state = State::of_page();
    let (figure, width) = measured();
    let shown = Memo::new(move |_| {
        let slot = state.current();
        let capacity = slot.scenario.with(|scenario| scenario.gpu().ok())?.memory;
        slot.estimate.with(|estimate| {
            let memory = estimate.memory.as_ref()?;
            Some((bars(memory, capacity), remark(memory, state)))
        })
    });
    let svg = move || {
        let layout =
            Layout { width: width.get(), bar: 16, gap: 10, names: 108, amounts: 76, labelled: false };
        let shown = shown.get().map(|(bars, _)| bars).unwrap_or_default();
        draw(&shown, state.unit.get(), layout, "Bars of the memory at the peak of each phase")
    };
    view! {
        <section class="panel" hidden=move || shown.with(Option::is_none)>
            <h2>"Peak by phase"</h2>
            <figure class="chart" aria-label="Peak by phase" node_ref=figure>
                <div class="drawing" inner_html=svg></div>
            </figure>
            <p class="remark">{move || shown.get().map(|(_, remark)| remark)}</p>
        </section>
    }
    .into_any()
}

fn bars(memory: &Memory, capacity: crate::units::Bytes) -> Vec<Bar> {
    let highest = memory.steady.highest().0;
    let bar = |phase: Phase| {
        let peak = memory.steady.phase(phase);
        let tensors = peak.parts.iter().map(|(category, bytes)| (Part::Tensors(category), bytes));
        let segments = tensors
            .chain([(Part::Context, memory.context)])
            .map(|(part, bytes)| Segment { class: part.class(), label: part.label(), bytes })
            .collect();
        Bar { name: name(phase).to_owned(), segments, capacity, faded: phase != highest }
    };
    Phase::ALL.into_iter().map(bar).collect()
}

const fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "Forward",
        Phase::Backward => "Backward",
        Phase::Step => "Optimizer step",
    }
}

/// What the first iteration does otherwise than those that are drawn.
fn remark(memory: &Memory, state: State) -> String {
    let amount = |iteration: Iteration| state.unit.get().amount(iteration.highest().1.bytes + memory.context);
    let (first, later) = (memory.first.highest().1.bytes, memory.steady.highest().1.bytes);
    if first > later {
        format!(
            "Every iteration but the first, which goes higher: {} in the {}.",
            amount(memory.first),
            memory.first.highest().0.label()
        )
    } else if first < later {
        format!(
            "Every iteration but the first, which has no optimizer state before its step and stays at {}.",
            amount(memory.first)
        )
    } else {
        "Every iteration; the first goes as high.".to_owned()
    }
}
