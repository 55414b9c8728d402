//! The table beneath the chart: every part, its bytes, its share, and why it is there.

use leptos::either::Either;
use leptos::prelude::*;

use crate::explain::Line;
use crate::memory::Memory;
use crate::share::MOST_SCENARIOS;
use crate::ui::format::{Unit, exact, percent};
use crate::ui::markup::capitalised;
use crate::ui::part::Part;
use crate::ui::state::{State, letter};
use crate::ui::summary;
use crate::ui::verdict::margin;
use crate::units::Bytes;

/// The parts of all scenarios side by side.
#[component]
pub fn Breakdown() -> impl IntoView {
    let state = State::of_page();
    let alone = move || state.alone();
    let compared = move || !state.alone();
    let names = Memo::new(move |_| summary::names(&state.scenarios()));
    let head = move |position: usize| {
        let title = move || names.with(|names| names.get(position).cloned());
        let base = if position == 0 { " " } else { " against A " };
        let name = move || match alone() {
            true => Either::Left("Memory"),
            false => Either::Right(view! { {letter(position)} {base} <small>{title}</small> }),
        };
        view! { <th scope="col" hidden=move || state.is_free(position)>{name}</th> }
    };
    let fit = move |position: usize| {
        let slot = state.slots[position];
        let class = move || slot.fit().map_or("none", |(_, verdict)| verdict.slug());
        let words = move || match slot.fit() {
            Some((fit, verdict)) => {
                let margin = margin(&fit, verdict, state.unit());
                Either::Left(view! { <span class="stamp">{verdict.label()}</span> <small>{margin}</small> })
            }
            None => Either::Right("no answer"),
        };
        view! { <td hidden=move || state.is_free(position) data-fit=class>{words}</td> }
    };
    let positions = 0..MOST_SCENARIOS;
    view! {
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
                    {Part::all().map(|part| view! { <Row part=part /> }).collect::<Vec<_>>()}
                </tbody>
                <tfoot>
                    <tr class="sum">
                        <th scope="row">"Needed"</th>
                        <Amounts part=None />
                        <td hidden=compared>"100%"</td>
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
        let text = move || match amount(position) {
            None | Some(Bytes::ZERO) => "–".to_owned(),
            Some(bytes) => state.unit().amount(bytes),
        };
        let difference = move || {
            let (bytes, first) = (amount(position)?, amount(0)?);
            let class = if bytes < first { "delta less" } else { "delta more" };
            let told = move || state.unit().difference(first, bytes);
            (bytes != first).then(|| view! { " " <small class=class>{told}</small> })
        };
        view! {
            <td hidden=move || state.is_free(position) title=move || amount(position).map(exact)>
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
) -> impl IntoView {
    let state = State::of_page();
    let open = RwSignal::new(false);
    let compared = move || !state.alone();
    // A part that no scenario has is not listed.
    let absent = move || {
        state
            .shown()
            .all(|slot| slot.answer(|_, memory, _| part.at_peak(memory)).unwrap_or_default() == Bytes::ZERO)
    };
    let of_active = move |look: fn(Part, &Memory) -> String| {
        state.current().answer(|_, memory, _| look(part, memory)).unwrap_or_default()
    };
    let width =
        move || state.current().answer(|_, memory, _| length(part, memory)).unwrap_or_else(|| "0".to_owned());
    let explanation = move || {
        open.get().then(|| {
            let lines = state.current().close_look().map(|detail| detail.lines.clone()).unwrap_or_default();
            let bytes = of_active(|part, memory| exact(part.at_peak(memory)));
            explanation(part, &bytes, lines, state.unit())
        })
    };
    let id = format!("why-{}", part.slug());
    view! {
        <tr class=format!("part-row {}", part.class()) hidden=absent>
            <th scope="row">
                <button
                    type="button"
                    aria-expanded=move || open.get().to_string()
                    aria-controls=id.clone()
                    on:click=move |_| open.update(|open| *open = !*open)
                >
                    <i class="swatch"></i>
                    {part.label()}
                </button>
            </th>
            <Amounts part=Some(part) />
            <td class="share" hidden=compared>
                {move || of_active(|part, memory| percent(part.at_peak(memory), memory.needed()))}
            </td>
            <td class="bar" aria-hidden="true" hidden=compared>
                <svg>
                    <rect width=width height="100%" rx="2" />
                </svg>
            </td>
        </tr>
        <tr class="why" id=id hidden=move || absent() || !open.get()>
            <td colspan="7">{explanation}</td>
        </tr>
    }
}

/// How long the bar of a part is beside the longest.
fn length(part: Part, memory: &Memory) -> String {
    let longest = Part::all().map(|part| part.at_peak(memory)).max().unwrap_or_default();
    format!("{:.2}%", part.at_peak(memory).percent_of(longest))
}

/// Why a part is there, and its tensors with their sums.
fn explanation(part: Part, bytes: &str, lines: Vec<Line>, unit: Unit) -> impl IntoView + use<> {
    let own: Vec<Line> = lines.into_iter().filter(|line| Part::Tensors(line.category) == part).collect();
    let tensors = |line: &Line| {
        view! {
            <li>
                <b>{line.what.clone()}</b>
                <code>{line.formula.clone()}</code>
                <span title=exact(line.bytes)>{unit.amount(line.bytes)}</span>
            </li>
        }
    };
    // What holds for several lines is said once.
    let reasons = own.chunk_by(|a, b| (&a.why, &a.source) == (&b.why, &b.source)).map(|lines| {
        let Line { why, source, .. } = &lines[0];
        view! {
            <li class="reason">{capitalised(why)} ". " <i>{source.clone()}</i></li>
            {lines.iter().map(tensors).collect::<Vec<_>>()}
        }
    });
    let list = (!own.is_empty()).then(|| view! { <ul>{reasons.collect::<Vec<_>>()}</ul> });
    view! {
        <p>{part.help()} " " {bytes.to_owned()} " at the peak."</p>
        {list}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Category;
    use crate::scenario::Scenario;
    use crate::ui::detail::Detail;

    #[test]
    fn every_part_of_an_answer_is_explained_with_its_sums() {
        let scenario = Scenario::default();
        let detail = Detail::of(&scenario).expect("an answer");
        let tensors = |part: &Part| *part != Part::Context && *part != Part::Tensors(Category::Rounding);
        let memory = &detail.memory;
        for part in Part::all().filter(tensors).filter(|part| part.at_peak(memory).0 > 1 << 20) {
            let html = explanation(part, "1 byte", detail.lines.clone(), Unit::Binary).to_html();
            assert!(html.contains("<code>") && html.contains(" × "), "{part:?}: {html}");
        }
    }
}
