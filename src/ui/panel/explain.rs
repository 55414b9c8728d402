//! Why a part is there.

use leptos::prelude::*;

use crate::ui::part::Part;

/// The explanation of one part of the active scenario.
#[component]
pub fn Explanation(
    /// Which part.
    part: Part,
) -> impl IntoView {
    view! { <p>{part.help()}</p> }.into_any()
}
