//! The table beneath the chart: every part, its bytes, its share, and why it is there.

use leptos::either::Either;
use leptos::prelude::*;

use super::document::{Formula, formula_of};
use super::zoom::Zoom;
use crate::memory::Memory;
use crate::share::MOST_SCENARIOS;
use crate::ui::controls::explained;
use crate::ui::desk::Place;
use crate::ui::format::{exact, percent};
use crate::ui::part::Part;
use crate::ui::state::{Slot, State, letter};
use crate::ui::verdict::margin;
use crate::units::Bytes;

/// Parts of less than so many percent are folded into one row.
pub(super) const SMALL: f64 = 1.;

/// The parts of all scenarios side by side.
#[component]
pub fn Breakdown(
    /// Which parts are open.
    opened: Opened,
) -> impl IntoView {
    let state = State::of_page();
    let alone = Signal::derive(move || state.alone());
    let compared = Signal::derive(move || !state.alone());
    let head = move |position: usize| {
        let title = move || state.names.with(|names| names.get(position).cloned());
        let base = if position == 0 { " " } else { " against A " };
        let name = move || match alone.get() {
            true => Either::Left("Memory"),
            false => Either::Right(view! { {letter(position)} {base} <small>{title}</small> }),
        };
        view! { <th scope="col" hidden=free(state, position)>{name}</th> }
    };
    let fit = move |position: usize| {
        let slot = state.slots[position];
        let class =
            Signal::derive(move || slot.fit().map_or("none", |(_, verdict)| verdict.slug()).to_owned());
        let words = move || match slot.fit() {
            Some((fit, verdict)) => {
                let margin = margin(&fit, verdict, state.unit());
                Either::Left(view! { <span class="stamp">{verdict.label()}</span> <small>{margin}</small> })
            }
            None => Either::Right("no answer"),
        };
        view! { <td hidden=free(state, position) data-fit=class>{words}</td> }
    };
    let positions = 0..MOST_SCENARIOS;
    let sizes = opened.sizes;
    // Every part has a row in both places, of which one is shown at most: rows that came and went would leave a trace in whatever
    // they look at and seldom changes, as long as the page is open.
    let large = Part::all().map(|part| {
        let shown = Signal::derive(move || sizes.with(|(large, _)| large.contains(&part)));
        view! { <Row part=part opened=opened shown=shown /> }
    });
    let small = Part::all().map(|part| {
        let listed = move || sizes.with(|(_, small)| small.contains(&part));
        let shown = Signal::derive(move || opened.small.get() && listed());
        view! { <Row part=part opened=opened shown=shown small=true /> }
    });
    let apart = Memo::new(move |_| {
        let peak = |(position, slot): (usize, Slot)| {
            let phase = slot.answer(|_, memory, _| memory.peak().0.label())?;
            let event = slot.close_look().and_then(|detail| detail.event.clone());
            Some((letter(position), phase, event))
        };
        instants(&state.shown().enumerate().filter_map(peak).collect::<Vec<_>>()).unwrap_or_default()
    });
    view! {
        <p class="remark" hidden=move || apart.with(String::is_empty)>
            {apart}
        </p>
        <div class="table-box">
            <table class="breakdown" class:compared=compared>
                <caption class="unseen">"The parts of the memory at the peak"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Part"</th>
                        {positions.clone().map(head).collect::<Vec<_>>()}
                        <th scope="col" hidden=compared>"Share"</th>
                        <td class="bar" hidden=compared></td>
                    </tr>
                </thead>
                <tbody>
                    {large.collect::<Vec<_>>()}
                    <Small sizes=sizes open=opened.small />
                    {small.collect::<Vec<_>>()}
                </tbody>
                <tfoot>
                    <tr class="sum">
                        <th scope="row">"Needed"</th>
                        <Amounts part=None />
                        <td hidden=compared>"100\u{a0}%"</td>
                        <td class="bar" hidden=compared></td>
                    </tr>
                    <tr hidden=alone>
                        <th scope="row">"On its card"</th>
                        {positions.map(fit).collect::<Vec<_>>()}
                    </tr>
                </tfoot>
            </table>
        </div>
    }
}

/// When each scenario needs most, by its letter, phase and what happens then, where that is not one and the same moment: a part may
/// be gone at the peak of one and there at that of another.
fn instants(peaks: &[(&str, &str, Option<String>)]) -> Option<String> {
    let ((_, phase, event), others) = peaks.split_first()?;
    // of equal tensors of a layer one may be the first and the other the last
    let made =
        |event: &Option<String>| event.as_ref().map(|event| event.split(',').next().map(str::to_owned));
    if others.iter().all(|(_, other, then)| phase == other && made(event) == made(then)) {
        return None;
    }
    let told = |(letter, phase, event): &(&str, &str, Option<String>)| {
        let when = event.as_ref().map_or_else(String::new, |event| format!(", where it {event}"));
        format!("{letter} in the {phase}{when}")
    };
    let told: Vec<String> = peaks.iter().map(told).collect();
    Some(format!(
        "Each column of the table is the moment at which that scenario needs most: {}.",
        told.join("; ")
    ))
}

/// Whether there is no scenario at a position.
fn free(state: State, position: usize) -> Signal<bool> {
    Signal::derive(move || state.is_free(position))
}

/// Which rows are open: what was opened stays so when it moves to the small parts and back.
#[derive(Clone, Copy)]
pub struct Opened {
    /// By the order of [`Part::all`].
    parts: StoredValue<Vec<RwSignal<bool>>>,
    /// Which parts have a row of their own, and which are folded.
    sizes: Memo<Sizes>,
    /// Whether the small parts are listed.
    small: RwSignal<bool>,
}

impl Opened {
    /// None is open.
    pub fn none(state: State) -> Opened {
        let parts = Part::all().map(|_| RwSignal::new(false)).collect();
        let sizes = Memo::new(move |_| sizes(state));
        Opened { parts: StoredValue::new(parts), sizes, small: RwSignal::new(false) }
    }

    fn of(self, part: Part) -> RwSignal<bool> {
        self.parts.with_value(|parts| parts[part.place()])
    }

    /// Opens the row of a part, or closes it; among the small ones, which are listed then. Whether it is open now.
    pub fn turn(self, part: Part) -> bool {
        let is_small = self.sizes.with_untracked(|(_, small)| small.contains(&part));
        let is_hidden = is_small && !self.small.get_untracked();
        let open = self.of(part);
        open.update(|open| *open = is_hidden || !*open);
        if is_hidden {
            self.small.set(true);
        }
        open.get_untracked()
    }
}

/// Where the explanation of a part is, and where among the small parts.
pub fn explanations(part: Part) -> [String; 2] {
    ["", "-small"].map(|end| format!("why-{}{end}", part.slug()))
}

/// The parts that have a row of their own, and those that are folded into one: less than a hundredth of every scenario.
pub(super) type Sizes = (Vec<Part>, Vec<Part>);

/// Which parts are told by themselves, and which together.
pub(super) fn sizes(state: State) -> Sizes {
    let shares = |part: Part| {
        let share = |memory: &Memory| (part.at_peak(memory), memory.needed());
        state.shown().filter_map(|slot| slot.answer(|_, memory, _| share(memory))).collect::<Vec<_>>()
    };
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for part in Part::all() {
        let shares = shares(part);
        if shares.iter().any(|(bytes, whole)| bytes.percent_of(*whole) >= SMALL) {
            large.push(part);
        } else if shares.iter().any(|(bytes, _)| *bytes > Bytes::ZERO) {
            small.push(part);
        }
    }
    // one row folded into one saves nothing
    if let [one] = small[..] {
        small.clear();
        large = Part::all().filter(|part| *part == one || large.contains(part)).collect();
    }
    (large, small)
}

/// The small parts together, and the way to each.
#[component]
fn Small(
    /// Which they are.
    sizes: Memo<Sizes>,
    /// Whether they are listed.
    open: RwSignal<bool>,
) -> impl IntoView {
    let state = State::of_page();
    let none = Signal::derive(move || sizes.with(|(_, small)| small.is_empty()));
    let sum = move |memory: &Memory| -> Bytes {
        sizes.with(|(_, small)| small.iter().map(|part| part.at_peak(memory)).sum())
    };
    let label = Signal::derive(move || format!("{} small parts", sizes.with(|(_, small)| small.len())));
    let cell = move |position: usize| {
        let text = Signal::derive(move || {
            let bytes = state.slots[position].answer(|_, memory, _| sum(memory));
            bytes.map(|bytes| state.unit().amount(bytes)).unwrap_or_default()
        });
        view! { <td hidden=free(state, position)>{text}</td> }
    };
    let share = Signal::derive(move || {
        state.current().answer(|_, memory, _| percent(sum(memory), memory.needed())).unwrap_or_default()
    });
    let compared = Signal::derive(move || !state.alone());
    view! {
        <tr class="part-row small" hidden=none on:click=move |_| open.update(|open| *open = !*open)>
            <th scope="row">
                <button type="button" aria-expanded=Signal::derive(move || open.get().to_string())>
                    <i class="swatch"></i>
                    {label}
                </button>
            </th>
            {(0..MOST_SCENARIOS).map(cell).collect::<Vec<_>>()}
            <td class="share" hidden=compared>
                {share}
            </td>
            <td class="bar" hidden=compared></td>
        </tr>
    }
}

/// A part at the peak, or all of them.
fn bytes_of(part: Option<Part>, memory: &Memory) -> Bytes {
    part.map_or_else(|| memory.needed(), |part| part.at_peak(memory))
}

/// The amounts of every scenario, each with its difference to the first.
#[component]
fn Amounts(
    /// Which part; all of them together where none is given.
    part: Option<Part>,
) -> impl IntoView {
    let state = State::of_page();
    let amount = move |position: usize| state.slots[position].answer(|_, memory, _| bytes_of(part, memory));
    let cell = move |position: usize| {
        let text = Signal::derive(move || match amount(position) {
            None | Some(Bytes::ZERO) => "–".to_owned(),
            Some(bytes) => state.unit().amount(bytes),
        });
        let exactly = Signal::derive(move || amount(position).map(exact).unwrap_or_default());
        let difference = move || {
            let (bytes, first) = (amount(position)?, amount(0)?);
            let class = if bytes < first { "delta less" } else { "delta more" };
            let told = state.unit().difference(first, bytes);
            (bytes != first).then(|| view! { " " <small class=class>{told}</small> })
        };
        view! {
            <td hidden=free(state, position) title=exactly>
                {text}
                {difference}
            </td>
        }
    };
    (0..MOST_SCENARIOS).map(cell).collect::<Vec<_>>()
}

/// One part, and the explanation that it opens.
#[component]
fn Row(
    /// Which part.
    part: Part,
    /// Which parts are open.
    opened: Opened,
    /// Whether it is shown.
    shown: Signal<bool>,
    /// Whether it is the row among the small parts.
    #[prop(optional)]
    small: bool,
) -> impl IntoView {
    let state = State::of_page();
    let open = opened.of(part);
    let compared = Signal::derive(move || !state.alone());
    let of_active = move |look: fn(Part, &Memory) -> String| {
        state.current().answer(|_, memory, _| look(part, memory)).unwrap_or_default()
    };
    let width = Signal::derive(move || {
        state.current().answer(|_, memory, _| length(part, memory)).unwrap_or_else(|| "0".to_owned())
    });
    let [as_large, as_small] = explanations(part);
    let id = if small { as_small } else { as_large };
    let about = id.clone();
    let explanation = move || {
        (open.get() && shown.get()).then(|| {
            let bytes = Signal::derive(move || of_active(|part, memory| exact(part.at_peak(memory))));
            let detail = Signal::derive(move || state.current().close_look());
            let inside = part.category().map(|category| {
                view! { <Zoom detail=detail at=Signal::stored(None) category=category place=Place::Zoom(part.place()) /> }
            });
            view! {
                <p>{explained(&about, part.help())} " " {bytes} " at the peak."</p>
                {inside}
                <p class="tools-row">
                    <Formula at=formula_of(part) />
                </p>
            }
        })
    };
    view! {
        <tr
            class=format!("part-row {}", part.class())
            hidden=Signal::derive(move || !shown.get())
            on:click=move |_| open.update(|open| *open = !*open)
        >
            <th scope="row">
                <button
                    type="button"
                    aria-expanded=Signal::derive(move || open.get().to_string())
                    aria-controls=id.clone()
                >
                    <i class="swatch"></i>
                    {part.label()}
                </button>
            </th>
            <Amounts part=Some(part) />
            <td class="share" hidden=compared>
                {Signal::derive(move || of_active(|part, memory| percent(part.at_peak(memory), memory.needed())))}
            </td>
            <td class="bar" aria-hidden="true" hidden=compared>
                <svg>
                    <rect width=width height="100%" rx="2" />
                </svg>
            </td>
        </tr>
        <tr class="why" id=id hidden=Signal::derive(move || !(open.get() && shown.get()))>
            <td colspan="7">{explanation}</td>
        </tr>
    }
}

/// How long the bar of a part is beside the longest.
fn length(part: Part, memory: &Memory) -> String {
    let longest = Part::all().map(|part| part.at_peak(memory)).max().unwrap_or_default();
    format!("{:.2}%", part.at_peak(memory).percent_of(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;
    use crate::ui::detail::Detail;

    /// FSDP2 needs most where a layer is gathered for its backward, ZeRO-3 at the loss.
    #[test]
    fn what_peaks_at_different_moments_says_so() {
        let link = "m=Qwen/Qwen3-8B&method=full&p=amp-bf16&gpu=h100-sxm-80gb&gpus=8";
        let peak = |letter: &'static str, shard: &str| {
            let scenario = share::decode(&format!("{link}&shard={shard}")).scenarios.remove(0);
            let detail = Detail::of(&scenario).expect("an answer");
            (letter, detail.memory.peak().0.label(), detail.event)
        };
        let [fsdp2, zero3] = [peak("A", "fsdp2"), peak("B", "zero3")];
        assert_eq!(instants(&[fsdp2.clone(), peak("B", "fsdp2")]), None);
        assert_eq!(instants(std::slice::from_ref(&fsdp2)), None);
        let told = instants(&[fsdp2, zero3]).expect("they differ");
        assert!(told.contains(": A in the ") && told.contains("; B in the "), "{told}");
        assert!(told.matches(", where it makes ").count() == 2, "{told}");
    }
}
