//! The table beneath the chart: every part, its bytes, its share, and why it is there.

use std::fmt::Write;

use leptos::ev::MouseEvent;
use leptos::prelude::*;

use crate::explain::Line;
use crate::memory::Memory;
use crate::share::MOST_SCENARIOS;
use crate::ui::format::{Unit, exact, percent};
use crate::ui::live::{on, state as aria, switch, text};
use crate::ui::markup::{Escaped, capitalised};
use crate::ui::part::Part;
use crate::ui::state::{State, letter};
use crate::ui::summary;
use crate::ui::verdict::margin;
use crate::units::{Bytes, fixed};

/// The parts of all scenarios side by side.
#[component]
pub fn Breakdown() -> impl IntoView {
    let state = State::of_page();
    let alone = move || state.alone();
    let names = Memo::new(move |_| summary::names(&state.scenarios()));
    let head = move |position: usize| {
        let title = move || {
            if alone() {
                return "Memory".to_owned();
            }
            let name = names.with(|names| names.get(position).cloned().unwrap_or_default());
            let base = if position == 0 { "" } else { " against A" };
            format!("{}{base} <small>{}</small>", letter(position), Escaped(&name))
        };
        view! { <th scope="col" hidden=switch(move || position >= state.count.get()) inner_html=text(title)></th> }
    };
    let fit = move |position: usize| {
        let slot = state.slots[position];
        let class = move || slot.fit().map_or("none", |(_, verdict)| verdict.slug()).to_owned();
        let html = move || match slot.fit() {
            Some((fit, verdict)) => format!(
                "<span class=\"stamp\">{}</span><small>{}</small>",
                verdict.label(),
                margin(&fit, verdict, state.unit())
            ),
            None => "no answer".to_owned(),
        };
        view! {
            <td hidden=switch(move || position >= state.count.get()) data-fit=text(class) inner_html=text(html)></td>
        }
    };
    let positions = 0..MOST_SCENARIOS;
    view! {
        <div class="table-box">
            <table class="breakdown" class:compared=switch(move || !alone())>
                <caption class="unseen">"The parts of the memory at the peak"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Part"</th>
                        {positions.clone().map(head).collect::<Vec<_>>()}
                        <th scope="col" hidden=switch(move || !alone())>"Share"</th>
                        <td class="bar" hidden=switch(move || !alone())></td>
                    </tr>
                </thead>
                <tbody>
                    {Part::all().map(|part| view! { <Row part=part /> }).collect::<Vec<_>>()}
                </tbody>
                <tfoot>
                    <tr class="sum">
                        <th scope="row">"Needed"</th>
                        {cells(state, None)}
                        <td hidden=switch(move || !alone())>"100%"</td>
                        <td class="bar" hidden=switch(move || !alone())></td>
                    </tr>
                    <tr hidden=switch(alone)>
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

/// The amounts of every scenario.
fn cells(state: State, part: Option<Part>) -> impl IntoView {
    let amount = move |position: usize| state.slots[position].answer(|_, memory, _| bytes_of(part, memory));
    let cell = move |position: usize| {
        let html = move || {
            let first = if position == 0 { None } else { amount(0) };
            amount(position).map_or_else(|| "–".to_owned(), |bytes| amount_html(bytes, first, state.unit()))
        };
        let title = move || amount(position).map(exact).unwrap_or_default();
        view! {
            <td
                hidden=switch(move || position >= state.count.get())
                title=text(title)
                inner_html=text(html)
            ></td>
        }
    };
    (0..MOST_SCENARIOS).map(cell).collect::<Vec<_>>()
}

/// An amount, and beneath it the difference to the first.
fn amount_html(bytes: Bytes, first: Option<Bytes>, unit: Unit) -> String {
    let mut html = if bytes == Bytes::ZERO { "–".to_owned() } else { unit.amount(bytes) };
    if let Some(first) = first.filter(|first| *first != bytes) {
        let class = if bytes < first { "less" } else { "more" };
        // Writing to a string cannot fail.
        let _ = write!(html, " <small class=\"delta {class}\">{}</small>", unit.difference(first, bytes));
    }
    html
}

/// One part, and the explanation that it opens.
#[component]
fn Row(
    /// Which part.
    part: Part,
) -> impl IntoView {
    let state = State::of_page();
    let open = RwSignal::new(false);
    // A part that no scenario has is not listed.
    let absent = move || {
        state
            .shown()
            .all(|slot| slot.answer(|_, memory, _| part.at_peak(memory)).unwrap_or_default() == Bytes::ZERO)
    };
    let of_active = move |look: fn(Part, &Memory) -> String| {
        state.current().answer(|_, memory, _| look(part, memory)).unwrap_or_default()
    };
    let explanation = move || {
        if !open.get() {
            return String::new();
        }
        let detail = state.current().detail.get();
        let lines = detail.map(|detail| detail.lines()).unwrap_or_default();
        let bytes = of_active(|part, memory| exact(part.at_peak(memory)));
        explanation(part, &bytes, &lines, state.unit())
    };
    let id = format!("why-{}", part.slug());
    view! {
        <tr class=format!("part-row {}", part.class()) hidden=switch(absent)>
            <th scope="row">
                <button
                    type="button"
                    aria-expanded=aria(move || open.get())
                    aria-controls=id.clone()
                    on:click=on(move |_: MouseEvent| open.update(|open| *open = !*open))
                >
                    <i class="swatch"></i>
                    {part.label()}
                </button>
            </th>
            {cells(state, Some(part))}
            <td class="share" hidden=switch(move || !state.alone())>
                {text(move || of_active(|part, memory| percent(part.at_peak(memory), memory.needed())))}
            </td>
            <td class="bar" aria-hidden="true" hidden=switch(move || !state.alone())>
                <i style:width=text(move || of_active(length))></i>
            </td>
        </tr>
        <tr class="why" id=id hidden=switch(move || absent() || !open.get())>
            <td colspan="7" inner_html=text(explanation)></td>
        </tr>
    }
}

/// How long the bar of a part is beside the longest.
fn length(part: Part, memory: &Memory) -> String {
    let longest = Part::all().map(|part| part.at_peak(memory)).max().unwrap_or_default();
    format!("{}%", fixed(part.at_peak(memory).percent_of(longest), 2))
}

/// Why a part is there, and its tensors with their sums.
fn explanation(part: Part, bytes: &str, lines: &[Line], unit: Unit) -> String {
    let mut html = format!("<p>{} {bytes} at the peak.</p>", Escaped(part.help()));
    let mut own = lines.iter().filter(|line| Part::Tensors(line.category) == part).peekable();
    if own.peek().is_none() {
        return html;
    }
    html.push_str("<ul>");
    let mut reason = ("", "");
    for line in own {
        // What holds for several lines is said once. Writing to a string cannot fail.
        if reason != (line.why, line.source) {
            reason = (line.why, line.source);
            let why = capitalised(line.why);
            let _ =
                write!(html, "<li class=\"reason\">{}. <i>{}</i></li>", Escaped(&why), Escaped(line.source));
        }
        let _ = write!(
            html,
            "<li><b>{}</b><code>{}</code><span title=\"{}\">{}</span></li>",
            Escaped(&line.what),
            Escaped(&line.formula),
            exact(line.bytes),
            unit.amount(line.bytes),
        );
    }
    html.push_str("</ul>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Category;
    use crate::scenario::Scenario;
    use crate::ui::detail::Detail;

    #[test]
    fn a_difference_is_told_where_there_is_one() {
        let (small, large) = (Bytes(1 << 30), Bytes(3 << 30));
        assert_eq!(amount_html(large, None, Unit::Binary), "3.00 GiB");
        assert_eq!(amount_html(large, Some(large), Unit::Binary), "3.00 GiB");
        assert_eq!(
            amount_html(small, Some(large), Unit::Binary),
            "1.00 GiB <small class=\"delta less\">−2.00 GiB</small>"
        );
        assert!(amount_html(Bytes(0), Some(small), Unit::Binary).starts_with("– <small"));
    }

    #[test]
    fn every_part_of_an_answer_is_explained_with_its_sums() {
        let scenario = Scenario::default();
        let detail = Detail::of(&scenario).expect("an answer");
        let tensors = |part: &Part| *part != Part::Context && *part != Part::Tensors(Category::Rounding);
        let memory = &detail.memory;
        for part in Part::all().filter(tensors).filter(|part| part.at_peak(memory).0 > 1 << 20) {
            let html = explanation(part, "1 byte", &detail.lines(), Unit::Binary);
            assert!(html.contains("<code>") && html.contains(" × "), "{part:?}: {html}");
        }
    }
}
