//! A question mark that opens what can be said about a control.

use leptos::prelude::*;

/// A button and the popover that it opens. The browser does the rest: Escape and a click elsewhere close it.
#[component]
pub fn Help(
    /// The id of the control that is explained.
    id: &'static str,
    /// The heading.
    title: &'static str,
    /// What is said: a name (may be empty) and a sentence each.
    entries: Vec<(&'static str, &'static str)>,
) -> impl IntoView {
    let target = format!("{id}-help");
    let heading = format!("{id}-help-title");
    let body = entries
        .into_iter()
        .map(|(name, sentence)| {
            let name = (!name.is_empty()).then(|| view! { <dt>{name}</dt> });
            view! { {name} <dd>{sentence}</dd> }
        })
        .collect_view();
    view! {
        <button
            class="help-button"
            type="button"
            aria-label="Help"
            aria-describedby=heading.clone()
            popovertarget=target.clone()
        >
            "?"
        </button>
        <div class="help" id=target popover="auto" role="note">
            <h3 id=heading>{title}</h3>
            <dl>{body}</dl>
        </div>
    }
    .into_any()
}
