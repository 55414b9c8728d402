//! Why a part is there.

use leptos::prelude::*;

use crate::ui::format::exact;
use crate::ui::part::Part;
use crate::ui::state::State;

/// The explanation of one part of the active scenario.
#[component]
pub fn Explanation(
    /// Which part.
    part: Part,
) -> impl IntoView {
    let state = State::of_page();
    let bytes = move || {
        state.current().estimate.with(|estimate| {
            estimate.memory.as_ref().map(|memory| format!("{} at the peak.", exact(part.at_peak(memory))))
        })
    };
    view! {
        <p>{part.help()}</p>
        <p>{bytes}</p>
    }
    .into_any()
}
