//! Where the memory goes: the chart of the peak and what belongs to it.

use leptos::html;
use leptos::prelude::*;

use super::breakdown::Breakdown;
use super::compare::Differences;
use super::fit::Table;
use super::phases::Phases;
use super::timeline::Timeline;
use crate::ui::browser;
use crate::ui::chart::stack::{Bar, Layout, Segment, draw};
use crate::ui::part::Part;
use crate::ui::state::{State, letter};
use crate::ui::summary;

/// What the width is taken for until it is measured.
const USUAL_WIDTH: u32 = 720;

/// The parts of the answer below the verdict.
#[component]
pub fn Answer() -> impl IntoView {
    let state = State::of_page();
    let silent = Memo::new(move |_| {
        !state.shown().iter().any(|slot| slot.estimate.with(|estimate| estimate.memory.is_some()))
    });
    view! {
        <div class="panels">
            <section class="panel peak" hidden=move || silent.get()>
                <h2>"Memory at the peak"</h2>
                <PeakChart />
                <Breakdown />
            </section>
            <div class="side">
                <Differences />
                <Phases />
                <Timeline />
                <Table />
            </div>
        </div>
    }
    .into_any()
}

/// The chart of all scenarios on one axis.
#[component]
fn PeakChart() -> impl IntoView {
    let state = State::of_page();
    let (figure, width) = measured();
    let bars = Memo::new(move |_| {
        let slots = state.shown();
        let alone = slots.len() == 1;
        let active = state.active.get();
        let bars = slots.iter().enumerate().filter_map(|(position, slot)| {
            let capacity = slot.scenario.with(|scenario| scenario.gpu().ok())?.memory;
            let segments = slot.estimate.with(|estimate| estimate.memory.as_ref().map(segments))?;
            let name = if alone { String::new() } else { letter(position).to_owned() };
            Some(Bar { name, segments, capacity, faded: !alone && position != active })
        });
        bars.collect::<Vec<_>>()
    });
    let svg = move || {
        let alone = state.order.with(Vec::len) == 1;
        let layout = Layout {
            width: width.get(),
            bar: if alone { 48 } else { 28 },
            gap: 10,
            names: if alone { 0 } else { 24 },
            amounts: if alone { 0 } else { 80 },
            labelled: alone,
        };
        bars.with(|bars| draw(bars, state.unit.get(), layout, &described(state)))
    };
    view! {
        <figure class="chart" aria-label="Memory at the peak" node_ref=figure>
            <div class="drawing" inner_html=svg></div>
        </figure>
    }
    .into_any()
}

/// A figure and its width, as it changes.
pub fn measured() -> (NodeRef<html::Figure>, RwSignal<u32>) {
    let figure = NodeRef::<html::Figure>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    Effect::new(move |_| {
        if let Some(element) = figure.get() {
            browser::watch_width(&element, move |now| {
                let now = now.floor() as u32;
                if now > 0 && width.get_untracked() != now {
                    width.set(now);
                }
            });
        }
    });
    (figure, width)
}

/// The stretches of one answer.
fn segments(memory: &crate::estimate::Memory) -> Vec<Segment> {
    Part::all()
        .map(|part| Segment { class: part.class(), label: part.label(), bytes: part.at_peak(memory) })
        .filter(|segment| segment.bytes.0 > 0)
        .collect()
}

/// The chart in a sentence, for those who do not see it; the table beneath has the figures.
fn described(state: State) -> String {
    let unit = state.unit.get();
    let bars = state.shown().into_iter().map(|slot| {
        let title = slot.scenario.with(summary::title);
        let needed = slot.estimate.with(|estimate| estimate.memory.as_ref().map(|memory| memory.needed()));
        let amount = needed.map_or_else(|| "no answer".to_owned(), |needed| unit.amount(needed));
        format!("{title}: {amount}")
    });
    format!("Stacked bars of memory. {}", bars.collect::<Vec<_>>().join("; "))
}
