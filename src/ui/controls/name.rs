//! The name of a control, and a question mark that opens what can be said about it.

use std::fmt::Write;

use leptos::prelude::*;

use crate::scenario::Choice;
use crate::ui::markup::Escaped;

/// The label of a control with its help. The browser opens and closes the popover; Escape and a click elsewhere do, too.
#[component]
pub fn Name(
    /// The id of the control.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// A sentence on it.
    help: String,
    /// What can be chosen, if anything.
    #[prop(optional)]
    choices: Vec<Choice>,
) -> impl IntoView {
    let mut list = format!("<dd>{}</dd>", Escaped(&help));
    for choice in choices {
        // Writing to a string cannot fail.
        let _ = write!(list, "<dt>{}</dt><dd>{}</dd>", Escaped(choice.label), Escaped(choice.help));
    }
    let target = format!("{id}-help");
    let heading = format!("{id}-help-title");
    view! {
        <div class="field-name">
            <label for=id>{label}</label>
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
                <h3 id=heading>{label}</h3>
                <dl inner_html=list></dl>
            </div>
        </div>
    }
}
