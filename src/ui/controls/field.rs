//! The row that every control sits in: its name, the control, and what is wrong with it.

use leptos::prelude::*;

use super::help::Help;
use crate::scenario::{Issue, Severity};

/// The issues of one control.
pub type Messages = Signal<Vec<Issue>>;

/// A labelled row. `id` is that of the control; messages stand in `{id}-messages`, which the control names in its
/// `aria-describedby`.
#[component]
pub fn Field(
    /// The id of the control that the label is for.
    id: &'static str,
    /// The control's accessible name.
    label: &'static str,
    /// What can be said about it: a name (may be empty) and a sentence each.
    help: Vec<(&'static str, &'static str)>,
    /// What is wrong with its value.
    messages: Messages,
    /// Whether the control needs the whole width, with its name above it.
    #[prop(optional)]
    wide: bool,
    children: Children,
) -> impl IntoView {
    view! {
        <div class="field" class:wide=wide>
            <div class="field-name">
                <label for=id>{label}</label>
                <Help id=id title=label entries=help />
            </div>
            <div class="field-control">{children()}</div>
            <div class="field-messages" id=format!("{id}-messages")>
                {move || messages.get().into_iter().map(message).collect_view()}
            </div>
        </div>
    }
    .into_any()
}

/// One issue as a line of text.
pub fn message(issue: Issue) -> impl IntoView {
    let (class, prefix) = match issue.severity {
        Severity::Note => ("message note", "Note: "),
        Severity::Warning => ("message warning", "Warning: "),
        Severity::Error => ("message error", "Error: "),
    };
    let fix = issue.fix.map(|fix| view! { <span class="fix">" "{capitalised(&fix)}"."</span> });
    view! {
        <p class=class>
            <span class="unseen">{prefix}</span>
            {capitalised(&issue.message)}
            "."
            {fix}
        </p>
    }
    .into_any()
}

/// A sentence with a capital letter and without its full stop.
fn capitalised(text: &str) -> String {
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::capitalised;

    #[test]
    fn sentences_start_with_a_capital() {
        for (text, sentence) in [("the rank is 0", "The rank is 0"), ("é.", "É"), ("", "")] {
            assert_eq!(capitalised(text), sentence);
        }
    }
}
