//! Each measured run as a point: predicted against measured.

use std::sync::Arc;

use leptos::ev::PointerEvent;
use leptos::html;
use leptos::prelude::*;

use super::Chosen;
use crate::check::{Figure, Run};
use crate::ui::chart::scatter::{Axes, draw};
use crate::ui::format::Unit;
use crate::ui::panel::chart::{USUAL_WIDTH, follow_width};
use crate::ui::proof::signed;
use crate::ui::state::State;
use crate::units::grouped;

/// How close, in CSS pixels, a pointer must come to a point.
const REACH: f64 = 12.;

/// Predicted against measured; the point under the pointer says what it is.
#[component]
pub(super) fn Points(
    /// What is looked at.
    chosen: Memo<Chosen>,
    /// All runs.
    runs: StoredValue<Arc<Vec<Run>>>,
) -> impl IntoView {
    let state = State::of_page();
    let place = NodeRef::<html::Div>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    follow_width(place, width);
    let drawing = move || {
        chosen.with(|chosen| {
            let figures: Vec<Figure> = chosen.iter().map(|(_, figure)| *figure).collect();
            let name = format!(
                "Predicted against measured, {} figures; the table below has them",
                grouped(figures.len() as u64)
            );
            draw(&figures, state.unit(), width.get(), &name)
        })
    };
    let pointed = RwSignal::new(None::<usize>);
    let point = move |event: &PointerEvent| {
        let at = (f64::from(event.offset_x()), f64::from(event.offset_y()));
        let found = chosen.with_untracked(|chosen| closest(chosen, width.get_untracked(), at));
        if pointed.get_untracked() != found {
            pointed.set(found);
        }
    };
    let told = move || {
        let index = pointed.get().filter(|index| *index < chosen.with(Vec::len));
        let told = index.and_then(|index| {
            let (run, figure) = chosen.with(|chosen| chosen[index]);
            runs.with_value(|runs| runs.get(run).map(|run| told(run, figure, state.unit())))
        });
        told.unwrap_or_else(|| {
            "Each point is a run; on the line, prediction and measurement agree.".to_owned()
        })
    };
    view! {
        <div>
            <h3>"Predicted against measured"</h3>
            <figure class="chart timeline" aria-label="Predicted against measured">
                <div
                    class="drawing scatter"
                    node_ref=place
                    inner_html=drawing
                    on:pointermove=move |event| point(&event)
                    on:pointerdown=move |event| point(&event)
                ></div>
            </figure>
            <p class="remark pointed">{told}</p>
        </div>
    }
}

/// A run in a few words, and how far off it was.
fn told(run: &Run, figure: Figure, unit: Unit) -> String {
    format!(
        "{}: measured {}, predicted {}, {}",
        run.id,
        unit.amount(figure.measured),
        unit.amount(figure.predicted),
        signed(figure.error_pct())
    )
}

/// Which figure a point of the drawing is closest to, if it is close to any.
fn closest(figures: &[(usize, Figure)], width: u32, (x, y): (f64, f64)) -> Option<usize> {
    let axes = Axes::of(figures.iter().map(|(_, figure)| figure));
    let off = |(_, figure): &(usize, Figure)| {
        let (left, top) = axes.place(*figure, width);
        (left - x).hypot(top - y)
    };
    let distances = figures.iter().map(off).enumerate();
    let (index, distance) = distances.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (distance <= REACH).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn a_point_is_found_where_it_is() {
        let figure = |measured, predicted| Figure { measured: Bytes(measured), predicted: Bytes(predicted) };
        let figures = [(7, figure(1 << 30, 1 << 30)), (3, figure(1 << 34, 1 << 33))];
        let (x, y) = Axes::of(figures.iter().map(|(_, figure)| figure)).place(figures[1].1, 500);
        assert_eq!(closest(&figures, 500, (x + 2., y)), Some(1));
        assert_eq!(closest(&figures, 500, (x + 100., y)), None);
        assert_eq!(closest(&[], 500, (0., 0.)), None);
    }
}
