//! Why a part is there: its tensors at the peak, each with its sum and reason.

use leptos::prelude::*;

use crate::explain::Line;
use crate::ui::depth::Shown;
use crate::ui::format::{Unit, exact};
use crate::ui::part::Part;
use crate::ui::state::State;

/// The explanation of one part of the active scenario.
#[component]
pub fn Explanation(
    /// Which part.
    part: Part,
) -> impl IntoView {
    let state = State::of_page();
    let shown = Shown::of_page();
    let lines = move || match part {
        Part::Context => None,
        Part::Tensors(category) => shown.read(|depth| {
            let lines = depth.lines.iter().filter(|line| line.category == category);
            lines.map(|line| row(line, state.unit.get())).collect_view()
        }),
    };
    view! {
        <p>{part.help()}</p>
        <dl class="tensors">{lines}</dl>
    }
    .into_any()
}

fn row(line: &Line, unit: Unit) -> impl IntoView + use<> {
    view! {
        <div title=line.source>
            <dt>
                <b>{line.what.clone()}</b>
                <span title=exact(line.bytes)>{unit.amount(line.bytes)}</span>
            </dt>
            <dd>
                <span class="sum-of">{line.formula.clone()}</span>
                <span class="reason">{line.why}</span>
            </dd>
        </div>
    }
}
