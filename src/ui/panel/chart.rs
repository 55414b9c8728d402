//! A figure that is as wide as its place: what is drawn, and the watching of the width.

use leptos::html;
use leptos::prelude::*;

use crate::ui::browser;

/// What the width is taken for until it is measured.
pub const USUAL_WIDTH: u32 = 720;

/// Keeps a signal at the width of an element in CSS pixels.
pub fn follow_width(place: NodeRef<html::Div>, width: RwSignal<u32>) {
    Effect::new(move || {
        if let Some(element) = place.get() {
            browser::watch_width(&element, move |now| {
                let now = now as u32;
                if now > 0 && width.get_untracked() != now {
                    width.set(now);
                }
            });
        }
    });
}

/// A drawing with a name.
#[component]
pub fn Chart(
    /// What the figure is called.
    label: &'static str,
    /// Draws it for a width in CSS pixels.
    draw: impl Fn(u32) -> String + Send + 'static,
) -> impl IntoView {
    let place = NodeRef::<html::Div>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    follow_width(place, width);
    view! {
        <figure class="chart" aria-label=label>
            <div class="drawing" node_ref=place inner_html=move || draw(width.get())></div>
        </figure>
    }
}
