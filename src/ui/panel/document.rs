//! Links to the documents, which lie beside the page as pages of their own.

use leptos::prelude::*;

use crate::ui::part::Part;

/// A link to a document: `formulas.html`, or a heading of it, `formulas.html#weights`.
#[component]
pub fn Document(#[prop(into)] at: String, text: &'static str) -> impl IntoView {
    view! {
        <a class="explain" href=format!("docs/{at}") target="_blank">
            {text}
        </a>
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
