//! Links to the documents, which lie beside the page as pages of their own, and to the measured runs.

use leptos::prelude::*;

use crate::ui::behind::Behind;
use crate::ui::browser;
use crate::ui::part::Part;
use crate::ui::state::State;
use crate::ui::view::View;

/// What leads to a formula, the same everywhere.
const FORMULA: &str = "Its formula, source and known error";

/// The heading of the measured speeds in the view Accuracy.
pub const SPEEDS: &str = "speeds-title";

/// A link to a document: `formulas.html`, or a heading of it, `formulas.html#weights`.
#[component]
pub fn Document(#[prop(into)] at: String, text: &'static str) -> impl IntoView {
    view! {
        <a class="explain" href=format!("docs/{at}") target="_blank">
            {text}
        </a>
    }
}

/// The way from a figure to its formula.
#[component]
pub fn Formula(#[prop(into)] at: String) -> impl IntoView {
    view! { <Document at=at text=FORMULA /> }
}

/// The way from an answer to its formula, and to the measured run that is most like the scenario.
#[component]
pub fn Grounds(
    /// What was answered.
    of: Behind,
) -> impl IntoView {
    let state = State::of_page();
    let is_speed = of == Behind::Speed;
    let show = move |_| {
        state.sought.set(is_speed.then_some(SPEEDS));
        state.view.set(View::Accuracy);
        browser::scroll_to_top();
    };
    view! {
        <p class="tools-row grounds">
            <Formula at=of.at() />
            <button type="button" class="explain" on:click=show>
                {if is_speed { "Measured speeds" } else { "Measured runs like this" }}
            </button>
        </p>
    }
}

/// Where a part's formula, source and known error are: below the heading that has its name.
pub fn formula_of(part: Part) -> String {
    format!("formulas.html#{}", part.label().to_lowercase().replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_formula() {
        let formulas = include_str!("../../../docs/formulas.md");
        for part in Part::all() {
            let heading = format!("\n## {}\n", part.label());
            assert!(formulas.contains(&heading), "{}", part.label());
        }
    }
}
