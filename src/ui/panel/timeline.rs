//! The memory over one iteration.

use leptos::prelude::*;

use super::answer::measured;
use crate::ui::chart::timeline::draw;
use crate::ui::depth::Shown;
use crate::ui::state::State;

/// One iteration of the active scenario, event by event.
#[component]
pub fn Timeline() -> impl IntoView {
    let state = State::of_page();
    let shown = Shown::of_page();
    let (figure, width) = measured();
    let svg = move || {
        shown.get().map(|depth| {
            let name = "Areas of memory by part over one iteration: forward, backward, optimizer step";
            draw(&depth.timeline, depth.context, depth.capacity, state.unit.get(), width.get(), name)
        })
    };
    view! {
        <section class="panel">
            <h2>"Over one step"</h2>
            <figure class="chart timeline" aria-label="Over one step" node_ref=figure>
                <div class="drawing" inner_html=move || svg().unwrap_or_default()></div>
            </figure>
            <p class="remark">
                "Every allocation and every free of an iteration that is not the first, in PyTorch's order."
            </p>
        </section>
    }
    .into_any()
}
