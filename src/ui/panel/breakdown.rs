//! The table beneath the chart: every part, its bytes, its share, and why it is there.

use leptos::prelude::*;

use super::explain::Explanation;
use crate::estimate::Memory;
use crate::ui::format::{exact, percent};
use crate::ui::part::Part;
use crate::ui::state::{Slot, State, letter};
use crate::ui::summary;
use crate::ui::verdict::Fit;
use crate::units::Bytes;

/// The parts of all scenarios side by side.
#[component]
pub fn Breakdown() -> impl IntoView {
    let state = State::of_page();
    let alone = Memo::new(move |_| state.order.with(Vec::len) == 1);
    let heads = move || {
        let many = !alone.get();
        let heads = state.shown().into_iter().enumerate().map(|(position, slot)| {
            let name = if many { letter(position) } else { "Memory" };
            let title = many.then(|| view! { <small>{slot.scenario.with(summary::title)}</small> });
            view! { <th scope="col">{name} {title}</th> }
        });
        heads.collect_view()
    };
    let rows = Part::all().map(|part| view! { <Row part=part alone=alone /> }).collect_view();
    view! {
        <div class="table-box" tabindex="-1">
            <table class="breakdown" class:compared=move || !alone.get()>
                <caption class="unseen">"The parts of the memory at the peak"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Part"</th>
                        {heads}
                        <th scope="col" hidden=move || !alone.get()>"Share"</th>
                        <td class="bar" hidden=move || !alone.get()></td>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
                <tfoot>
                    <tr class="sum">
                        <th scope="row">"Needed"</th>
                        {move || cells(state, Memory::needed)}
                        <td hidden=move || !alone.get()>"100%"</td>
                        <td class="bar" hidden=move || !alone.get()></td>
                    </tr>
                    <tr class="fit" hidden=move || alone.get()>
                        <th scope="row">"On its card"</th>
                        {move || state.shown().into_iter().map(|slot| fit_cell(state, slot)).collect_view()}
                    </tr>
                </tfoot>
            </table>
        </div>
    }
    .into_any()
}

/// The amounts of every scenario, with the difference to the first.
fn cells(state: State, of: impl Fn(&Memory) -> Bytes + Copy) -> impl IntoView {
    let unit = state.unit.get();
    let amount = |slot: &Slot| slot.estimate.with(|estimate| estimate.memory.as_ref().map(of));
    let slots = state.shown();
    let first = slots.first().and_then(amount);
    let cells = slots.iter().enumerate().map(|(position, slot)| {
        let Some(bytes) = amount(slot) else {
            return view! { <td>"–"</td> }.into_any();
        };
        let delta = first.filter(|first| position > 0 && *first != bytes).map(|first| {
            let class = if bytes < first { "delta less" } else { "delta more" };
            view! { <small class=class>{unit.difference(first, bytes)}</small> }
        });
        let text = if bytes == Bytes::ZERO { "–".to_owned() } else { unit.amount(bytes) };
        view! { <td title=exact(bytes)>{text} {delta}</td> }.into_any()
    });
    cells.collect_view()
}

fn fit_cell(state: State, slot: Slot) -> impl IntoView {
    let needed = slot.estimate.with(|estimate| estimate.memory.as_ref().map(Memory::needed));
    let capacity = slot.scenario.with(|scenario| scenario.gpu().map(|gpu| gpu.memory).ok());
    let Some(fit) = needed.zip(capacity).map(|(needed, capacity)| Fit::of(needed, capacity)) else {
        return view! { <td>"no answer"</td> }.into_any();
    };
    view! {
        <td data-fit=fit.slug()>
            <span class="stamp">{fit.word()}</span>
            <small>{fit.margin(state.unit.get())}</small>
        </td>
    }
    .into_any()
}

/// One part, and the explanation that it opens.
#[component]
fn Row(
    /// Which part.
    part: Part,
    /// Whether there is one scenario only.
    alone: Memo<bool>,
) -> impl IntoView {
    let state = State::of_page();
    let open = RwSignal::new(false);
    // A part that no scenario has is not listed.
    let absent = Memo::new(move |_| {
        let has = |slot: &Slot| {
            slot.estimate
                .with(|estimate| estimate.memory.as_ref().is_some_and(|memory| part.at_peak(memory).0 > 0))
        };
        !state.shown().iter().any(has)
    });
    let share = move || {
        state.current().estimate.with(|estimate| {
            estimate.memory.as_ref().map(|memory| percent(part.at_peak(memory), memory.needed()))
        })
    };
    let length = move || {
        state.current().estimate.with(|estimate| {
            let memory = estimate.memory.as_ref();
            let largest = memory.and_then(|memory| Part::all().map(|part| part.at_peak(memory)).max());
            let share = memory.zip(largest).map(|(memory, largest)| part.at_peak(memory).percent_of(largest));
            format!("{:.2}%", share.unwrap_or(0.))
        })
    };
    let explained = format!("why-{}", part.slug());
    view! {
        <tr class=format!("part-row {}", part.class()) hidden=move || absent.get()>
            <th scope="row">
                <button
                    type="button"
                    aria-expanded=move || open.get().to_string()
                    aria-controls=explained.clone()
                    on:click=move |_| open.update(|open| *open = !*open)
                >
                    <i class="swatch"></i>
                    <span>{part.label()}</span>
                </button>
            </th>
            {move || cells(state, move |memory| part.at_peak(memory))}
            <td class="share" hidden=move || !alone.get()>{share}</td>
            <td class="bar" aria-hidden="true" hidden=move || !alone.get()>
                <i style:width=length></i>
            </td>
        </tr>
        <tr class="why" id=format!("why-{}", part.slug()) hidden=move || absent.get() || !open.get()>
            <td colspan="6">{move || open.get().then(|| view! { <Explanation part=part /> })}</td>
        </tr>
    }
    .into_any()
}
