//! The name of a control, and a question mark that opens what can be said about it.

use leptos::prelude::*;

use super::term::explained;
use crate::scenario::Choice;

/// A button and the explanation that it opens, which is drawn when it is asked for. The browser opens and closes it; Escape
/// and a click elsewhere do, too.
#[component]
pub fn Explained(
    /// The id of what is opened.
    #[prop(into)]
    id: String,
    /// What the button says.
    face: &'static str,
    /// What the button is called.
    #[prop(into)]
    name: String,
    /// The heading of the explanation.
    #[prop(into)]
    heading: String,
    /// The explanation.
    children: ChildrenFn,
) -> impl IntoView {
    let drawn = RwSignal::new(false);
    let title = format!("{id}-title");
    let titled = title.clone();
    let body = move || drawn.get().then(|| children());
    let class = if face == "?" { "help-button" } else { "explain" };
    view! {
        <button
            class=class
            type="button"
            aria-label=name
            popovertarget=id.clone()
            on:click=move |_| drawn.set(true)
        >
            {face}
        </button>
        <div class="help" id=id popover="auto" role="note" aria-labelledby=titled tabindex="0">
            <b id=title>{heading}</b>
            {body}
        </div>
    }
}

/// The label of a control with its help.
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
    choices: &'static [Choice],
) -> impl IntoView {
    let choice = |choice: &Choice| {
        view! {
            <dt>{choice.label}</dt>
            <dd>{choice.help}</dd>
        }
    };
    view! {
        <div class="field-name">
            <label for=id>{label}</label>
            <Explained id=format!("{id}-help") face="?" name=format!("Help: {label}") heading=label>
                <p>{explained(id, &help)}</p>
                <dl>{choices.iter().map(choice).collect::<Vec<_>>()}</dl>
            </Explained>
        </div>
    }
}
