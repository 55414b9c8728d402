//! A choice among a few.

use leptos::prelude::*;

use super::field::{Field, Messages};

/// One thing that can be chosen.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Its value in the page.
    pub slug: &'static str,
    /// Its name.
    pub label: &'static str,
    /// One sentence on it.
    pub help: &'static str,
}

/// A labelled list of choices, the value being the position in it.
#[component]
pub fn Select(
    /// The control's id.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// What can be chosen.
    choices: Vec<Choice>,
    /// The position of what is chosen.
    value: Signal<usize>,
    /// Chooses another.
    set: Callback<usize>,
    /// What is wrong with the choice.
    messages: Messages,
) -> impl IntoView {
    let help = choices.iter().map(|choice| (choice.label, choice.help)).collect();
    let slugs: Vec<&'static str> = choices.iter().map(|choice| choice.slug).collect();
    let sentences: Vec<&'static str> = choices.iter().map(|choice| choice.help).collect();
    let options = choices
        .into_iter()
        .map(|choice| view! { <option value=choice.slug>{choice.label}</option> })
        .collect_view();
    let chosen = {
        let slugs = slugs.clone();
        move || slugs.get(value.get()).copied().unwrap_or_default()
    };
    let choose = move |event: leptos::ev::Event| {
        let slug = event_target_value(&event);
        if let Some(index) = slugs.iter().position(|known| *known == slug) {
            set.run(index);
        }
    };
    view! {
        <Field id=id label=label help=help messages=messages>
            <select
                id=id
                prop:value=chosen
                title=move || sentences.get(value.get()).copied().unwrap_or_default()
                aria-describedby=format!("{id}-messages")
                on:change=choose
            >
                {options}
            </select>
        </Field>
    }
    .into_any()
}
