//! Somebody's own run beside the prediction, where a link or the recorder's file says what it took.

use leptos::prelude::*;

use crate::check::Figure;
use crate::ui::controls::{Cell, Row, Table, columns};
use crate::ui::proof::signed;
use crate::ui::state::State;

/// What was measured, what is predicted, and the difference.
#[component]
pub fn Recorded() -> impl IntoView {
    let state = State::of_page();
    let rows = Signal::derive(move || {
        let (Some(recorded), unit) = (state.recorded(), state.unit()) else { return Vec::new() };
        let detail = state.current().close_look();
        let on_card = detail.as_ref().and_then(|detail| detail.on_card.as_ref().ok());
        let figures = state.current().answer(|_, memory, _| recorded.beside(memory, on_card));
        let row = |(name, measured, predicted): (&'static str, _, Option<_>)| Row {
            head: Cell::of(name),
            cells: vec![
                Cell::of(unit.amount(measured)),
                Cell::of(predicted.map_or("–".to_owned(), |bytes| unit.amount(bytes))),
                Cell::of(predicted.map_or("–".to_owned(), |predicted| {
                    signed(Figure { measured, predicted }.error_pct())
                })),
            ],
            ..Row::default()
        };
        figures.unwrap_or_default().into_iter().map(row).collect()
    });
    view! {
        <section class="panel" hidden=Signal::derive(move || rows.with(Vec::is_empty))>
            <h2>"Your run beside the prediction"</h2>
            <Table
                caption="What the recorded run took, and what is predicted"
                class="measured"
                columns=Signal::stored(columns(["Figure", "Measured", "Predicted", "Error"]))
                rows=rows
            />
            <p class="remark">
                "A run of this scenario was recorded. Another scenario is another run: the figures go when something is changed."
            </p>
        </section>
    }
}
