//! What is said of one moment of the timeline: its bytes by part, which is the legend too, the largest tensors alive, and what a
//! part is made of.

use std::sync::Arc;

use leptos::prelude::*;

use super::breakdown::{SMALL, Sizes};
use super::document::{Formula, formula_of};
use super::zoom::Zoom;
use crate::explain::Line;
use crate::memory::Memory;
use crate::step::Moment;
use crate::ui::controls::explained;
use crate::ui::desk::Place;
use crate::ui::detail::{Detail, Glance};
use crate::ui::format::Unit;
use crate::ui::markup::unbroken;
use crate::ui::part::Part;
use crate::ui::state::State;
use crate::units::Bytes;

/// The number by which the part is asked for that is open at a moment, beside those of the table.
const OF_MOMENT: usize = usize::MAX;

/// What is said of a moment at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Told {
    /// The moment.
    pub moment: Moment,
    /// What the driver takes beside it.
    pub context: Bytes,
    /// What the card has for both.
    pub card: Bytes,
    /// Whether it is the peak.
    pub is_peak: bool,
}

impl Told {
    fn bytes(&self, part: Part) -> Bytes {
        match part {
            Part::Tensors(category) => self.moment.parts.get(category),
            Part::Context => self.context,
        }
    }

    /// All that is alive, and the context.
    pub fn total(&self) -> Bytes {
        self.moment.parts.total() + self.context
    }

    /// What PyTorch reserves: drawn as where there is room for all of it, which the card may not have.
    fn reserved(&self, unit: Unit) -> String {
        let reserved = unit.amount(self.moment.reserved);
        let room = self.card.saturating_sub(self.context);
        if self.moment.reserved <= room {
            return format!("PyTorch reserves {reserved}");
        }
        format!(
            "PyTorch would reserve {reserved} of a larger card, this one has room for {}",
            unit.amount(room)
        )
    }

    /// The moment in a sentence.
    pub fn spoken(&self, unit: Unit) -> String {
        let largest = Part::all().max_by_key(|part| self.bytes(*part)).unwrap_or(Part::Context);
        let peak = if self.is_peak { ", the peak" } else { "" };
        let part = format!("{} {}", largest.label(), unit.amount(self.bytes(largest)));
        format!("{} in the {}{peak}. {part}", unit.amount(self.total()), self.moment.phase.label())
    }
}

/// The parts that are there at any of these moments: those that are told by themselves, and those that are less than a hundredth of the
/// most at all of them.
pub(super) fn sizes_over(moments: &[Moment], context: Bytes) -> Sizes {
    let most = |part: Part| match part {
        Part::Tensors(category) => moments.iter().map(|moment| moment.parts.get(category)).max(),
        Part::Context => Some(context),
    };
    let whole = moments.iter().map(|moment| moment.parts.total()).max().unwrap_or_default() + context;
    let there = Part::all().filter_map(|part| Some((part, most(part).filter(|bytes| *bytes > Bytes::ZERO)?)));
    let (large, small): (Vec<_>, Vec<_>) = there.partition(|(_, most)| most.percent_of(whole) >= SMALL);
    let [mut large, small] =
        [large, small].map(|parts| parts.into_iter().map(|(part, _)| part).collect::<Vec<_>>());
    // one row folded into one saves nothing
    if let [one] = small[..] {
        large.push(one);
        return (Part::all().filter(|part| large.contains(part)).collect(), Vec::new());
    }
    (large, small)
}

/// The moment in words: its bytes by part, each of which opens, and the largest tensors alive.
#[component]
pub(super) fn Readout(
    /// The step.
    detail: Signal<Option<Arc<Detail>>>,
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
                <span>
                    {when} {told.moment.phase.label()} " · " {told.reserved(unit)}
                </span>
            }
        })
    };
    let event = Signal::derive(move || {
        let event = glance.get().and_then(|glance| glance.event).unwrap_or_default();
        unbroken(&event)
    });
    let sizes = Memo::new(move |_| {
        let of = |memory: &Memory| {
            detail.with(|detail| {
                let moments = detail.as_ref().map_or(&[][..], |detail| &detail.moments[..]);
                sizes_over(moments, memory.context)
            })
        };
        state.current().answer(|_, memory, _| of(memory)).unwrap_or_default()
    });
    let listed = RwSignal::new(false);
    // what was opened stays open at the next moment
    let chosen = RwSignal::new(None::<Part>);
    let part = move |part: Part| {
        let amount = Signal::derive(move || {
            let unit = state.unit();
            let bytes = told.get().map(|told| told.bytes(part)).unwrap_or_default();
            if bytes == Bytes::ZERO { "–".to_owned() } else { unit.amount(bytes) }
        });
        let is_away = Signal::derive(move || sizes.with(|(_, small)| small.contains(&part)) && !listed.get());
        view! {
            <li class=part.class() hidden=is_away>
                <button
                    type="button"
                    aria-expanded=Signal::derive(move || (chosen.get() == Some(part)).to_string())
                    on:click=move |_| chosen.update(|chosen| *chosen = Some(part).filter(|part| *chosen != Some(*part)))
                >
                    <i class="swatch"></i>
                    <span>{part.label()}</span>
                    " "
                    <b>{amount}</b>
                </button>
            </li>
        }
    };
    let parts = move || {
        let (large, small) = sizes.get();
        let count = small.len();
        let together = Signal::derive(move || {
            let sum = |told: Told| sizes.with(|(_, small)| small.iter().map(|part| told.bytes(*part)).sum());
            state.unit().amount(told.get().map(sum).unwrap_or_default())
        });
        let fold = (count > 0).then(|| {
            view! {
                <li class="small">
                    <button
                        type="button"
                        aria-expanded=Signal::derive(move || listed.get().to_string())
                        on:click=move |_| listed.update(|listed| *listed = !*listed)
                    >
                        <i class="swatch"></i>
                        <span>{format!("{count} small parts")}</span>
                        " "
                        <b>{together}</b>
                    </button>
                </li>
            }
        });
        let large: Vec<_> = large.into_iter().map(part).collect();
        let small: Vec<_> = small.into_iter().map(part).collect();
        view! { {large} {fold} {small} }
    };
    let line = move |line: &Line| {
        let class = Part::Tensors(line.category).class();
        view! {
            <li class=class>
                <i class="swatch"></i>
                <span title=line.what.clone()>{line.what.clone()}</span>
                " "
                <b>{state.unit().amount(line.bytes)}</b>
            </li>
        }
    };
    let lines = move || {
        let glance = glance.get();
        glance.map(|glance| glance.lines.iter().map(line).collect::<Vec<_>>())
    };
    let at = Signal::derive(move || told.with(|told| told.as_ref().map(|told| told.moment.at)));
    let inside = move || {
        chosen.get().map(|part| {
            let zoom = part.category().map(|category| {
                view! { <Zoom detail=detail at=at category=category place=Place::Zoom(OF_MOMENT) /> }
            });
            view! {
                <div class=format!("of-moment {}", part.class())>
                    <h3>{part.label()} " at this moment"</h3>
                    <p>{explained("of-moment", part.help())}</p>
                    {zoom}
                    <p class="tools-row">
                        <Formula at=formula_of(part) />
                    </p>
                </div>
            }
        })
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
                <h3>"Largest tensors alive, by the operation that made them"</h3>
                <ul>{lines}</ul>
            </div>
            {inside}
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Category;
    use crate::scenario::Scenario;
    use crate::ui::chart::timeline;

    #[test]
    fn small_parts_are_told_together() {
        let detail = Detail::of(&Scenario::default()).expect("an answer");
        let (large, small) = sizes_over(&detail.moments, detail.memory.context);
        assert!(large.len() > 3 && small.len() > 1, "{large:?} {small:?}");
        assert!(small.contains(&Part::Tensors(Category::Buffers)), "{small:?}");
        assert_eq!(sizes_over(&[], Bytes::mib(481)), (vec![Part::Context], Vec::new()));
    }

    #[test]
    fn a_moment_is_said_in_a_sentence() {
        let detail = Detail::of(&Scenario::default()).expect("an answer");
        let moment = detail.moments[timeline::highest(&detail.moments)];
        let told = Told { moment, context: Bytes::mib(481), card: Bytes::gib(24.), is_peak: true };
        let said = told.spoken(Unit::Binary);
        assert!(said.contains("pass, the peak. Weights 7."), "{said}");
        // what the card has room for is reserved, what it has not would be
        let reserved = Unit::Binary.amount(moment.reserved);
        assert_eq!(told.reserved(Unit::Binary), format!("PyTorch reserves {reserved}"));
        let small = Told { card: moment.reserved, ..told };
        let room = Unit::Binary.amount(moment.reserved.saturating_sub(small.context));
        let words =
            format!("PyTorch would reserve {reserved} of a larger card, this one has room for {room}");
        assert_eq!(small.reserved(Unit::Binary), words);
    }
}
