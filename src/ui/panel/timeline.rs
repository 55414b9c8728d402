//! One step from its beginning to its end, and what is alive at any moment of it.

use std::sync::Arc;

use leptos::ev::{KeyboardEvent, PointerEvent};
use leptos::html;
use leptos::prelude::*;

use super::chart::{USUAL_WIDTH, follow_width};
use crate::explain::Line;
use crate::memory::{Phase, in_order};
use crate::step::Moment;
use crate::ui::browser::Later;
use crate::ui::chart::timeline::{self, HEIGHT};
use crate::ui::desk::Place;
use crate::ui::detail::{Detail, Glance, largest};
use crate::ui::format::Unit;
use crate::ui::part::Part;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::units::Bytes;

/// How long, in milliseconds, a moment must be shown before it is asked about.
const REST: u32 = 30;
/// How far Page Up and Page Down go.
const PAGE: usize = 20;

/// Which moment is shown.
#[derive(Clone, Copy)]
struct Shown {
    /// Where the pointer is.
    hovered: RwSignal<Option<usize>>,
    /// What was clicked, or reached with the keyboard.
    pinned: RwSignal<Option<usize>>,
}

impl Shown {
    /// The chosen one, if any; otherwise it is the peak that is shown.
    fn chosen(self) -> Option<usize> {
        self.hovered.get().or(self.pinned.get())
    }

    fn forget(self) {
        self.hovered.set(None);
        self.pinned.set(None);
    }

    fn press(self, event: &KeyboardEvent, now: usize, count: usize) {
        let last = count.saturating_sub(1);
        let to = match event.key().as_str() {
            "ArrowLeft" | "ArrowDown" => Some(now.saturating_sub(1)),
            "ArrowRight" | "ArrowUp" => Some((now + 1).min(last)),
            "PageDown" => Some(now.saturating_sub(PAGE)),
            "PageUp" => Some((now + PAGE).min(last)),
            "Home" => Some(0),
            "End" => Some(last),
            "Escape" => None,
            _ => return,
        };
        event.prevent_default();
        self.hovered.set(None);
        self.pinned.set(to);
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
    let shown = Shown { hovered: RwSignal::new(None), pinned: RwSignal::new(None) };
    let place = NodeRef::<html::Div>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    follow_width(place, width);
    let detail = Signal::derive(move || followed(state));
    Effect::new(move || {
        detail.track();
        shown.forget();
    });
    let count = move || detail.with(|detail| detail.as_ref().map_or(0, |detail| detail.moments.len()));
    let index = Signal::derive(move || {
        let peak =
            detail.with(|detail| detail.as_ref().map_or(0, |detail| timeline::highest(&detail.moments)));
        shown.chosen().unwrap_or(peak).min(count().saturating_sub(1))
    });
    let glance = glances(state, detail, shown, index);
    let drawing = move || {
        let unit = state.unit();
        state.current().answer(|_, memory, gpu| {
            detail.with(|detail| {
                let moments = detail.as_ref().map_or(&[][..], |detail| &detail.moments[..]);
                timeline::draw(moments, memory.context, gpu.memory, unit, width.get())
            })
        })
    };
    let x = Signal::derive(move || format!("{:.1}", timeline::place(index.get(), count(), width.get())));
    let at = move |event: &PointerEvent| {
        timeline::nearest(f64::from(event.offset_x()), count(), width.get_untracked())
    };
    let moved = move |event: PointerEvent| {
        let now = untrack(|| at(&event));
        match event.pointer_type().as_str() {
            // A finger that moves has chosen; one that lies still scrolls the page.
            "touch" => shown.pinned.set(Some(now)),
            _ => shown.hovered.set(Some(now)),
        }
    };
    let pressed = move |event: PointerEvent| {
        shown.hovered.set(None);
        shown.pinned.set(Some(untrack(|| at(&event))));
    };
    let told = Signal::derive(move || {
        detail.with(|detail| {
            let detail = detail.as_ref()?;
            let moment = *detail.moments.get(index.get())?;
            Some(Told { moment, context: detail.memory.context, is_peak: shown.chosen().is_none() })
        })
    });
    let spoken = Signal::derive(move || {
        let unit = state.unit();
        told.get().map(|told| told.spoken(unit)).unwrap_or_default()
    });
    let none = Signal::derive(move || count() == 0);
    view! {
        <figure class="chart timeline" aria-label="Over one step">
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
                on:keydown=move |event| untrack(|| shown.press(&event, index.get(), count()))
            >
                <svg class="crosshair" width="100%" height=HEIGHT aria-hidden="true">
                    <line x1=x x2=x y1="0" y2="220" />
                </svg>
            </div>
        </figure>
        <Readout told=told glance=glance />
        <Twin detail=detail />
    }
}

/// What is known of the shown moment: asked of the worker where it is not the peak.
fn glances(
    state: State,
    detail: Signal<Option<Arc<Detail>>>,
    shown: Shown,
    index: Signal<usize>,
) -> Signal<Option<Glance>> {
    let heard = RwSignal::new(None::<Glance>);
    let later = Later::default();
    let asked = Signal::derive(move || {
        shown.chosen()?;
        detail.with(|detail| Some(detail.as_ref()?.moments.get(index.get())?.at))
    });
    Effect::new(move || {
        later.cancel();
        let Some(at) = asked.get() else { return };
        later.run(REST, move || {
            let scenario = untrack(|| state.current().scenario.get());
            let question = Question::Glance(Box::new(scenario), at);
            let take = move |answer: Option<Answer>| heard.set(answer.and_then(Answer::glance));
            state.desk.with_value(|desk| desk.ask(Place::Glance, question, take));
        });
    });
    Signal::derive(move || match asked.get() {
        Some(at) => heard.get().filter(|glance| glance.at == at),
        None => detail.with(|detail| {
            let lines = largest(&detail.as_ref()?.lines);
            Some(Glance { at: 0, event: None, lines })
        }),
    })
}

/// What is said of a moment at once.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    moment: Moment,
    context: Bytes,
    is_peak: bool,
}

impl Told {
    fn bytes(&self, part: Part) -> Bytes {
        match part {
            Part::Tensors(category) => self.moment.parts.get(category),
            Part::Context => self.context,
        }
    }

    fn total(&self) -> Bytes {
        self.moment.parts.total() + self.context
    }

    fn spoken(&self, unit: Unit) -> String {
        let largest = Part::all().max_by_key(|part| self.bytes(*part)).unwrap_or(Part::Context);
        let peak = if self.is_peak { ", the peak" } else { "" };
        let part = format!("{} {}", largest.label(), unit.amount(self.bytes(largest)));
        format!("{} in the {}{peak}. {part}", unit.amount(self.total()), self.moment.phase.label())
    }
}

/// The moment in words: its bytes by part, which is the legend too, and the largest tensors alive.
#[component]
fn Readout(
    /// What is known at once.
    told: Signal<Option<Told>>,
    /// What the worker says.
    glance: Signal<Option<Glance>>,
) -> impl IntoView {
    let state = State::of_page();
    let head = move || {
        let unit = state.unit();
        told.get().map(|told| {
            let when = if told.is_peak { "At the peak, in the " } else { "In the " };
            view! {
                <b>{unit.amount(told.total())}</b>
                " "
                <span>{when} {told.moment.phase.label()}</span>
            }
        })
    };
    let event = Signal::derive(move || glance.get().and_then(|glance| glance.event).unwrap_or_default());
    // A part that is there at no moment is not in the legend.
    let present = move || {
        state.current().answer(|_, memory, _| {
            let details = followed(state);
            let moments = details.as_ref().map_or(&[][..], |detail| &detail.moments[..]);
            let is_there = |part: &Part| match *part {
                Part::Tensors(category) => {
                    moments.iter().any(|moment| moment.parts.get(category) > Bytes::ZERO)
                }
                Part::Context => memory.context > Bytes::ZERO,
            };
            Part::all().filter(is_there).collect::<Vec<_>>()
        })
    };
    let part = move |part: Part| {
        let amount = Signal::derive(move || {
            let unit = state.unit();
            let bytes = told.get().map(|told| told.bytes(part)).unwrap_or_default();
            if bytes == Bytes::ZERO { "–".to_owned() } else { unit.amount(bytes) }
        });
        view! {
            <li class=part.class()>
                <i class="swatch"></i>
                <span>{part.label()}</span>
                " "
                <b>{amount}</b>
            </li>
        }
    };
    let parts = move || present().unwrap_or_default().into_iter().map(part).collect::<Vec<_>>();
    let line = move |line: &Line| {
        let class = Part::Tensors(line.category).class();
        view! {
            <li class=class>
                <i class="swatch"></i>
                <span>{line.what.clone()}</span>
                " "
                <b>{state.unit().amount(line.bytes)}</b>
            </li>
        }
    };
    let lines = move || {
        let glance = glance.get();
        glance.map(|glance| glance.lines.iter().map(line).collect::<Vec<_>>())
    };
    view! {
        <div class="moment" id="moment" hidden=Signal::derive(move || told.with(Option::is_none))>
            <p class="moment-head">
                {head}
                " "
                <small>{event}</small>
            </p>
            <ul class="legend" aria-label="Parts at this moment">
                {parts}
            </ul>
            <div class="alive">
                <h3>"Largest tensors alive"</h3>
                <ul>{lines}</ul>
            </div>
        </div>
    }
}

/// The chart as a table: how each phase begins, its highest point, how it ends.
#[component]
fn Twin(
    /// The step.
    detail: Signal<Option<Arc<Detail>>>,
) -> impl IntoView {
    let state = State::of_page();
    let open = RwSignal::new(false);
    let rows = move || {
        let unit = state.unit();
        detail.with(|detail| {
            let Some(detail) = detail else { return Vec::new() };
            let row = |(when, moment): (String, Moment)| {
                let total = moment.parts.total() + detail.memory.context;
                let parts = moment
                    .parts
                    .iter()
                    .map(|(category, bytes)| format!("{} {}", category.label(), unit.amount(bytes)));
                view! {
                    <tr>
                        <th scope="row">{when}</th>
                        <td>{unit.amount(total)}</td>
                        <td class="listed">{parts.collect::<Vec<_>>().join(", ")}</td>
                    </tr>
                }
            };
            stations(&detail.moments).into_iter().map(row).collect::<Vec<_>>()
        })
    };
    let table = move || {
        open.get().then(|| {
            view! {
                <div class="table-box">
                    <table>
                        <caption class="unseen">"Memory over one step"</caption>
                        <thead>
                            <tr>
                                <th scope="col">"Moment"</th>
                                <th scope="col">"Memory"</th>
                                <th scope="col">"Parts"</th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
            }
        })
    };
    view! {
        <details class="twin" on:toggle=move |_| open.set(true)>
            <summary>"As a table"</summary>
            {table}
        </details>
    }
}

/// The moments that a table lists: the first, the highest and the last of every phase.
fn stations(moments: &[Moment]) -> Vec<(String, Moment)> {
    let of_phase = |phase: Phase| {
        let own: Vec<_> = moments.iter().copied().filter(|moment| moment.phase == phase).collect();
        let highest = own.get(timeline::highest(&own)).copied();
        let ends = [("begins", own.first().copied()), ("is highest", highest), ("ends", own.last().copied())];
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
        let stations = stations(&detail.moments);
        assert_eq!(stations.len(), 9);
        let highest = stations.iter().map(|(_, moment)| moment.parts.total()).max();
        assert_eq!(highest, Some(detail.memory.steady.highest().1.bytes));
        assert!(stations[0].0.starts_with("The forward pass begins"));
    }

    #[test]
    fn a_moment_is_said_in_a_sentence() {
        let detail = Detail::of(&Scenario::default()).expect("an answer");
        let moment = detail.moments[timeline::highest(&detail.moments)];
        let told = Told { moment, context: Bytes::mib(481), is_peak: true };
        let said = told.spoken(Unit::Binary);
        assert!(said.contains("pass, the peak. Weights 7."), "{said}");
    }
}
