//! A figure that is as wide as its place: what is drawn, and the watching of the width.

use leptos::html;
use leptos::prelude::*;

use crate::ui::browser;
use crate::ui::live::{follow, text};

/// What the width is taken for until it is measured.
const USUAL_WIDTH: usize = 720;

/// A drawing with a name.
#[component]
pub fn Chart(
    /// What the figure is called.
    label: &'static str,
    /// Draws it for a width in CSS pixels.
    draw: Box<dyn Fn(u32) -> String + Send>,
) -> impl IntoView {
    let place = NodeRef::<html::Div>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    follow(move || {
        if let Some(element) = place.get() {
            browser::watch_width(&element, move |now| {
                let now = now as usize;
                if now > 0 && width.get_untracked() != now {
                    width.set(now);
                }
            });
        }
    });
    view! {
        <figure class="chart" aria-label=label>
            <div
                class="drawing"
                node_ref=place
                inner_html=text(move || draw(u32::try_from(width.get()).unwrap_or(u32::MAX)))
            ></div>
        </figure>
    }
}
