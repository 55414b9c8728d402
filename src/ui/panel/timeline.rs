//! One step from its beginning to its end, and what is alive at any moment of it.

use std::sync::Arc;

use leptos::ev::{KeyboardEvent, PointerEvent, WheelEvent};
use leptos::html;
use leptos::prelude::*;

use super::chart::{USUAL_WIDTH, follow_width};
use super::document::Grounds;
use super::overlay::{Overlay, overlay};
use super::readout::{Readout, Told, sizes_over};
use crate::memory::{Category, Phase, in_order};
use crate::step::Moment;
use crate::ui::behind::Behind;
use crate::ui::browser::Later;
use crate::ui::chart::pen::HEIGHT;
use crate::ui::chart::timeline::{self, Against};
use crate::ui::controls::{Cell, Row, Table};
use crate::ui::desk::Place;
use crate::ui::detail::{Detail, Glance};
use crate::ui::looked::Looked;
use crate::ui::part::Part;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::units::Bytes;

/// How long, in milliseconds, a moment must be shown before it is asked about.
const REST: u32 = 30;
/// What the line at the top is of.
const WHOLE: &str = "on the card";
/// The same where something else has a part of the card.
const LEFT: &str = "of the card left";
/// How far Page Up and Page Down go.
const PAGE: usize = 20;

/// Of a stretch no longer than so many events nothing more is to be seen.
const FINEST: usize = 16;

/// What is drawn, and which moment of it is shown. Moments are told by the numbers of their events.
#[derive(Clone, Copy)]
struct Shown {
    /// What was chosen to be.
    looked: Looked,
    /// What is drawn.
    moments: RwSignal<Arc<Vec<Moment>>>,
    /// Whether what is drawn is of the first step: the other one until the worker has answered.
    drawn_first: RwSignal<bool>,
    /// Where the pointer is.
    hovered: RwSignal<Option<usize>>,
}

impl Shown {
    fn of(looked: Looked) -> Shown {
        Shown {
            looked,
            moments: RwSignal::new(Arc::default()),
            drawn_first: RwSignal::new(looked.first.get_untracked()),
            hovered: RwSignal::new(None),
        }
    }

    /// The chosen one, if any; otherwise it is the peak that is shown.
    fn chosen(self) -> Option<usize> {
        self.hovered.get().or(self.looked.pinned.get())
    }

    fn count(self) -> usize {
        self.moments.with(|moments| moments.len())
    }

    /// The place of what is shown among the moments.
    fn index(self) -> usize {
        let chosen = self.chosen();
        self.moments.with(|moments| match chosen {
            Some(at) => moments.partition_point(|moment| moment.at < at).min(moments.len().saturating_sub(1)),
            None => timeline::highest(moments),
        })
    }

    fn at(self, index: usize) -> Option<usize> {
        self.moments.with(|moments| Some(moments.get(index)?.at))
    }

    fn forget(self) {
        self.hovered.set(None);
        self.looked.pinned.set(None);
    }

    /// Whether the other step is still drawn.
    fn is_busy(self) -> bool {
        self.looked.first.get() != self.drawn_first.get()
    }

    /// Draws moments of a step. The numbers of events are a step's own: where the pointer was on the other step says nothing.
    fn draw(self, of_first: bool, moments: Vec<Moment>) {
        if self.drawn_first.get_untracked() != of_first {
            self.hovered.set(None);
            self.drawn_first.set(of_first);
        }
        self.moments.set(Arc::new(moments));
    }

    /// Shows the half of the drawing that is around the chosen moment.
    fn zoom_in(self) {
        let (index, count) = (self.index(), self.count());
        let events = self.at(0).zip(self.at(count.saturating_sub(1)));
        let (Some((from, to)), Some(at)) = (events, self.at(index)) else { return };
        let quarter = to.saturating_sub(from) / 4;
        if quarter * 2 < FINEST {
            return;
        }
        let start = at.saturating_sub(quarter).clamp(from, to - 2 * quarter);
        self.looked.pinned.set(Some(at));
        self.hovered.set(None);
        self.looked.zooms.update(|zooms| zooms.push((start, start + 2 * quarter + 1)));
    }

    fn zoom_out(self) {
        self.looked.zooms.update(|zooms| zooms.truncate(zooms.len().saturating_sub(1)));
    }

    fn press(self, event: &KeyboardEvent) {
        let (now, last) = (self.index(), self.count().saturating_sub(1));
        let to = match event.key().as_str() {
            "ArrowLeft" | "ArrowDown" => now.saturating_sub(1),
            "ArrowRight" | "ArrowUp" => (now + 1).min(last),
            "PageDown" => now.saturating_sub(PAGE),
            "PageUp" => (now + PAGE).min(last),
            "Home" => 0,
            "End" => last,
            "Escape" => {
                self.looked.zooms.update(Vec::clear);
                return self.forget();
            }
            "+" | "=" => return self.zoom_in(),
            "-" => return self.zoom_out(),
            _ => return,
        };
        event.prevent_default();
        self.hovered.set(None);
        self.looked.pinned.set(self.at(to));
    }
}

/// The close look at the active scenario where its step could be followed.
fn followed(state: State) -> Option<Arc<Detail>> {
    state.current().close_look().filter(|detail| !detail.moments.is_empty())
}

/// The chart, what it says of a moment, and the same as a table.
#[component]
pub fn Timeline() -> impl IntoView {
    let state = State::of_page();
    let shown = Shown::of(state.looked);
    let place = NodeRef::<html::Div>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    follow_width(place, width);
    let detail: Signal<Option<Arc<Detail>>> = Memo::new(move |_| followed(state)).into();
    Effect::new(move || {
        detail.with(|detail| {
            if detail.as_ref().is_some_and(|detail| shown.looked.at(&detail.scenario)) {
                shown.hovered.set(None);
            }
        });
    });
    follow_range(state, detail, shown);
    let count = move || shown.count();
    let index = Signal::derive(move || shown.index());
    let glance = glances(state, detail, shown);
    let beside = overlay(state, detail);
    let drawing = move || {
        let unit = state.unit();
        state.current().answer(|scenario, memory, gpu| {
            let place = if scenario.card().is_ok_and(|card| card.memory > gpu.memory) { LEFT } else { WHOLE };
            let moments = shown.moments.get();
            let against =
                Against { context: memory.context, capacity: gpu.memory, place, stays: Bytes::ZERO };
            if shown.looked.changing.get() {
                let (above, changing) = against.above_what_stays(&moments);
                return timeline::draw(&changing, &[], above, unit, width.get());
            }
            // a snapshot lies over the whole of a later step
            let whole = !shown.drawn_first.get() && shown.looked.zooms.with(Vec::is_empty);
            beside.with(|beside| {
                let line = beside.as_ref().and_then(|beside| beside.as_ref().ok()).filter(|_| whole);
                let line = line.map_or(&[][..], |beside| &beside.line);
                timeline::draw(&moments, line, against, unit, width.get())
            })
        })
    };
    let x = Signal::derive(move || format!("{:.1}", timeline::place(index.get(), count(), width.get())));
    let at = move |event: &PointerEvent| {
        untrack(|| shown.at(timeline::nearest(f64::from(event.offset_x()), count(), width.get())))
    };
    let moved = move |event: PointerEvent| {
        let now = at(&event);
        match event.pointer_type().as_str() {
            // A finger that moves has chosen; one that lies still scrolls the page.
            "touch" => shown.looked.pinned.set(now),
            _ => shown.hovered.set(now),
        }
    };
    let pressed = move |event: PointerEvent| {
        shown.hovered.set(None);
        shown.looked.pinned.set(at(&event));
    };
    let wheeled = move |event: WheelEvent| {
        if event.ctrl_key() {
            event.prevent_default();
            untrack(|| if event.delta_y() < 0. { shown.zoom_in() } else { shown.zoom_out() });
        }
    };
    let told = Signal::derive(move || {
        detail.with(|detail| {
            let detail = detail.as_ref()?;
            let moment = shown.moments.with(|moments| moments.get(index.get()).copied())?;
            let is_peak = shown.chosen().is_none() && shown.looked.zooms.with(Vec::is_empty);
            let card = detail.scenario.gpu().ok()?.memory;
            Some(Told { moment, context: detail.memory.context, card, is_peak })
        })
    });
    let spoken = Signal::derive(move || {
        let unit = state.unit();
        told.get().map(|told| told.spoken(unit)).unwrap_or_default()
    });
    let none = Signal::derive(move || count() == 0);
    let unknown = move || state.current().estimate.with(|estimate| estimate.memory.is_none());
    let step = move |of_first: bool, label: &'static str| {
        view! {
            <button
                type="button"
                aria-pressed=Signal::derive(move || (shown.looked.first.get() == of_first).to_string())
                on:click=move |_| {
                    shown.looked.show(of_first);
                }
            >
                {label}
            </button>
        }
    };
    let stays = move || {
        let context =
            detail.with(|detail| detail.as_ref().map_or(Bytes::ZERO, |detail| detail.memory.context));
        let against = Against { context, capacity: Bytes::ZERO, place: WHOLE, stays: Bytes::ZERO };
        let (above, _) = shown.moments.with(|moments| against.above_what_stays(moments));
        format!("Drawn above the {} that are there all the while.", state.unit().amount(above.stays))
    };
    let is_whole = Signal::derive(move || shown.looked.zooms.with(Vec::is_empty));
    view! {
        <section class="panel" hidden=unknown>
            <h2>"Over one step"</h2>
            <div class="tools-row">
                <div class="units" role="group" aria-label="Which step">
                    {step(true, "First step")}
                    {step(false, "Later steps")}
                </div>
                <div class="units" role="group" aria-label="Zoom">
                    <button type="button" aria-label="Zoom in" on:click=move |_| untrack(|| shown.zoom_in())>
                        "+"
                    </button>
                    <button type="button" aria-label="Zoom out" disabled=is_whole on:click=move |_| shown.zoom_out()>
                        "−"
                    </button>
                    <button
                        type="button"
                        disabled=is_whole
                        on:click=move |_| shown.looked.zooms.update(Vec::clear)
                    >
                        "Whole step"
                    </button>
                </div>
                <div class="units" role="group" aria-label="What is drawn">
                    <button
                        type="button"
                        aria-pressed=Signal::derive(move || shown.looked.changing.get().to_string())
                        on:click=move |_| shown.looked.changing.update(|changing| *changing = !*changing)
                    >
                        "Only what changes"
                    </button>
                </div>
            </div>
            <figure
                class="chart timeline"
                aria-label="Over one step"
                aria-busy=Signal::derive(move || shown.is_busy().to_string())
            >
                <div class="drawing" node_ref=place inner_html=drawing></div>
                <div
                    class="scrubber"
                    role="slider"
                    tabindex="0"
                    aria-label="Moment of the step"
                    aria-valuemin="1"
                    aria-valuemax=Signal::derive(move || count().to_string())
                    aria-valuenow=Signal::derive(move || (index.get() + 1).to_string())
                    aria-valuetext=spoken
                    aria-describedby="moment"
                    hidden=none
                    on:pointermove=moved
                    on:pointerdown=pressed
                    on:pointerleave=move |_| shown.hovered.set(None)
                    on:wheel=wheeled
                    on:keydown=move |event| untrack(|| shown.press(&event))
                >
                    <svg class="crosshair" width="100%" height=HEIGHT aria-hidden="true">
                        <line class="between" x1=x x2=x y1="0" y2="220" />
                        <line x1=x x2=x y1="0" y2="220" />
                    </svg>
                </div>
            </figure>
            <p class="remark" hidden=move || !shown.looked.changing.get()>
                {stays}
            </p>
            <Readout detail=detail told=told glance=glance />
            <Overlay detail=detail beside=beside />
            <Twin detail=detail shown=shown />
            <p class="remark">
                {move || {
                    if shown.looked.first.get() {
                        "The first training step: the optimizer makes its state at the end of it."
                    } else {
                        "One training step after the first."
                    }
                }}
                " Every allocation and free, in PyTorch’s order; the line above is what PyTorch reserves where the card has room for all of it. Point at a moment, or \
                 choose it with the arrow keys; + and − zoom, as does the wheel with Ctrl. “Export” has the step as a file for \
                 PyTorch’s memory_viz."
            </p>
            <Grounds of=Behind::Moment />
        </section>
    }
}

/// Keeps what is drawn in step with what is wanted: all of a later step is known with the close look, anything else is
/// asked of the worker.
fn follow_range(state: State, detail: Signal<Option<Arc<Detail>>>, shown: Shown) {
    Effect::new(move || {
        state.desk.with_value(|desk| desk.forget(Place::Stretch));
        let (of_first, zoom) =
            (shown.looked.first.get(), shown.looked.zooms.with(|zooms| zooms.last().copied()));
        let Some(detail) = detail.get() else { return shown.moments.set(Arc::default()) };
        if !of_first && zoom.is_none() {
            return shown.draw(false, detail.moments.clone());
        }
        let question = Question::Stretch(Box::new(detail.scenario.clone()), of_first, zoom);
        let take = move |answer: Option<Answer>| {
            let Some(Answer::Stretch(moments)) = answer else { return };
            shown.draw(of_first, moments);
        };
        state.desk.with_value(|desk| desk.ask(Place::Stretch, question, take));
    });
    on_cleanup(move || {
        state.desk.with_value(|desk| {
            desk.forget(Place::Stretch);
            desk.forget(Place::Glance);
        });
    });
}

/// What is known of the shown moment: asked of the worker where it is not the peak.
fn glances(state: State, detail: Signal<Option<Arc<Detail>>>, shown: Shown) -> Signal<Option<Glance>> {
    let heard = RwSignal::new(None::<Glance>);
    let later = StoredValue::new_local(Later::default());
    let asked = Signal::derive(move || {
        let is_known =
            shown.chosen().is_none() && !shown.looked.first.get() && shown.looked.zooms.with(Vec::is_empty);
        if is_known { None } else { shown.at(shown.index()) }
    });
    Effect::new(move || {
        later.with_value(Later::cancel);
        let Some(at) = asked.get() else { return };
        let ask = move || {
            let scenario = untrack(|| state.current().scenario.get());
            let question = Question::Glance(Box::new(scenario), at);
            let take = move |answer: Option<Answer>| {
                let Some(Answer::Glance(glance)) = answer else { return };
                heard.set(glance);
            };
            state.desk.with_value(|desk| desk.ask(Place::Glance, question, take));
        };
        later.with_value(|later| later.run(REST, ask));
    });
    on_cleanup(move || later.with_value(Later::cancel));
    Signal::derive(move || match asked.get() {
        Some(at) => heard.get().filter(|glance| glance.at == at),
        None => detail.with(|detail| {
            let lines = detail.as_ref()?.lines.clone();
            Some(Glance { at: 0, event: None, lines })
        }),
    })
}

/// The chart as a table: how each phase begins, its highest point, how it ends.
#[component]
fn Twin(
    /// The step.
    detail: Signal<Option<Arc<Detail>>>,
    /// What is drawn of it.
    shown: Shown,
) -> impl IntoView {
    let state = State::of_page();
    let open = RwSignal::new(false);
    let context =
        move || detail.with(|detail| detail.as_ref().map_or(Bytes::ZERO, |detail| detail.memory.context));
    // the driver's part is the same at all moments, and in the sums
    let parts = Memo::new(move |_| {
        let (large, small) = shown.moments.with(|moments| sizes_over(moments, Bytes::ZERO));
        let categories = |parts: Vec<Part>| parts.into_iter().filter_map(Part::category).collect::<Vec<_>>();
        (categories(large), categories(small))
    });
    let rows = Signal::derive(move || {
        let unit = state.unit();
        let context = context();
        let row = |(when, moment): (String, Moment)| {
            let sums = [moment.parts.total(), moment.reserved].map(|bytes| bytes + context);
            let amounts = parts.with(|(large, small)| {
                let of = |category: &Category| moment.parts.get(*category);
                let others = (!small.is_empty()).then(|| small.iter().map(of).sum::<Bytes>());
                sums.into_iter().chain(large.iter().map(of)).chain(others).collect::<Vec<_>>()
            });
            let cell = |bytes: Bytes| match bytes {
                Bytes::ZERO => Cell::of("–"),
                some => Cell::of(unit.amount(some)),
            };
            Row { head: Cell::of(when), cells: amounts.into_iter().map(cell).collect(), ..Row::default() }
        };
        let is_whole = shown.looked.zooms.with(Vec::is_empty);
        shown.moments.with(|moments| stations(moments, is_whole).into_iter().map(row).collect::<Vec<_>>())
    });
    let names = Signal::derive(move || {
        parts.with(|(large, small)| {
            let first = ["Moment", "Memory, driver included", "Reserved, driver included"];
            let others = (!small.is_empty()).then_some("Others");
            let all = first.into_iter().chain(large.iter().map(|category| category.label())).chain(others);
            all.map(str::to_owned).collect::<Vec<_>>()
        })
    });
    view! {
        <details class="twin" on:toggle=move |_| open.set(true)>
            <summary>"As a table"</summary>
            {move || open.get().then(|| view! { <Table caption="Memory over one step" class="stations" columns=names rows=rows /> })}
        </details>
    }
}

/// The moments that a table lists: the first, the highest and the last of every phase, of a stretch of the step those within it.
fn stations(moments: &[Moment], is_whole: bool) -> Vec<(String, Moment)> {
    let is_end = |moment: Option<Moment>, end: Option<&Moment>| {
        !is_whole && moment.map(|moment| moment.at) == end.map(|moment| moment.at)
    };
    let of_phase = |phase: Phase| {
        let own: Vec<_> = moments.iter().copied().filter(|moment| moment.phase == phase).collect();
        let highest = own.get(timeline::highest(&own)).copied();
        let (first, last) = (own.first().copied(), own.last().copied());
        let begins = if is_end(first, moments.first()) { "where the stretch begins" } else { "begins" };
        let ends = if is_end(last, moments.last()) { "where the stretch ends" } else { "ends" };
        let tops = if is_whole { "is highest" } else { "is highest in it" };
        let ends = [(begins, first), (tops, highest), (ends, last)];
        let name = phase.label();
        ends.into_iter().filter_map(move |(when, moment)| Some((format!("The {name} {when}"), moment?)))
    };
    in_order(moments.iter().map(|moment| moment.phase)).into_iter().flat_map(of_phase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn the_table_says_what_the_chart_shows() {
        let detail = Detail::of(&Scenario::default()).expect("an answer");
        let part = stations(&detail.moments[5..20], false);
        let names: Vec<&str> = part.iter().map(|(name, _)| name.as_str()).collect();
        let within = ["where the stretch begins", "is highest in it", "where the stretch ends"];
        assert_eq!(names, within.map(|end| format!("The forward pass {end}")));
        let stations = stations(&detail.moments, true);
        assert_eq!(stations.len(), 9);
        let highest = stations.iter().map(|(_, moment)| moment.parts.total()).max();
        assert_eq!(highest, Some(detail.memory.steady.highest().1.bytes));
        assert!(stations[0].0.starts_with("The forward pass begins"));
    }
}
