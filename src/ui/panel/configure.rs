//! The form: every input of a scenario, placed by the table of keys.

use leptos::ev::{MouseEvent, SubmitEvent};
use leptos::prelude::*;

use super::control::{Control, messages};
use crate::issue::Field;
use crate::scenario::Scenario;
use crate::scenario::keys::{Group, KEYS, Key, Place};
use crate::ui::live::{on, switch, text};
use crate::ui::presets;
use crate::ui::state::State;

/// The inputs of a group that stand at a place.
fn keys(group: Group, place: Place) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.group == group && key.place == place)
}

/// Whether an issue names an input that is folded away.
fn is_folded(field: Field) -> bool {
    Key::of(field).is_some_and(|key| key.place == Place::Folded)
}

/// All controls of the active scenario.
#[component]
pub fn Configure() -> impl IntoView {
    let state = State::of_page();
    let elsewhere = messages(state, |field| Key::of(field).is_none());
    view! {
        <form class="configure" aria-label="Scenario" on:submit=on(|event: SubmitEvent| event.prevent_default())>
            <Presets />
            <p class="remark scope">
                "Supervised fine-tuning on one GPU. Several GPUs, DPO, GRPO and inference are not estimated yet."
            </p>
            <div inner_html=text(move || elsewhere.get())></div>
            {Group::ALL.map(|group| view! { <Controls group=group place=Place::Front /> })}
            <Rest />
        </form>
    }
}

/// The controls of a group that stand at a place; nothing where there are none.
#[component]
fn Controls(group: Group, place: Place) -> impl IntoView {
    let state = State::of_page();
    let idle = move || {
        state.current().scenario.with(|scenario| !keys(group, place).any(|key| key.matters(scenario)))
    };
    let is_any = keys(group, place).next().is_some();
    is_any.then(|| {
        view! {
            <fieldset hidden=switch(idle)>
                <legend>{group.label()}</legend>
                {keys(group, place).map(|key| view! { <Control key=key /> }).collect::<Vec<_>>()}
            </fieldset>
        }
    })
}

/// The folded inputs that are not at their default.
fn changed(scenario: &Scenario) -> Vec<&'static Key> {
    let defaults = scenario.defaults();
    KEYS.iter().filter(|key| key.place == Place::Folded && key.is_changed(scenario, &defaults)).collect()
}

/// What is rarely changed, folded away; what of it is changed stays in sight.
#[component]
fn Rest() -> impl IntoView {
    let state = State::of_page();
    let count = move || match state.current().scenario.with(changed).len() {
        0 => String::new(),
        count => format!("{count} changed"),
    };
    let problems = messages(state, is_folded);
    let chip = move |key: &'static Key| {
        let (said, usual) = state.current().scenario.with(|scenario| {
            let usual = key.words(&scenario.defaults());
            (format!("{}: {}", key.label, key.words(scenario)), usual)
        });
        let reset = move |_: MouseEvent| {
            state.change(|scenario| {
                let usual = scenario.defaults();
                key.copy(scenario, &usual);
            });
        };
        view! {
            <li>
                <button
                    type="button"
                    class="chip"
                    title=format!("Set back to {usual}")
                    aria-label=format!("{said}. Set back to {usual}")
                    on:click=on(reset)
                >
                    {said.clone()}
                    <span aria-hidden="true">" ×"</span>
                </button>
            </li>
        }
    };
    let chips = move || state.current().scenario.with(changed).into_iter().map(chip).collect::<Vec<_>>();
    let none = move || state.current().scenario.with(|scenario| changed(scenario).is_empty());
    view! {
        <details class="all-settings">
            <summary>
                <span>"All settings"</span>
                " "
                <span class="changed-count">{text(count)}</span>
            </summary>
            {Group::ALL.map(|group| view! { <Controls group=group place=Place::Folded /> })}
        </details>
        <ul class="changed-settings" aria-label="Changed settings" hidden=switch(none)>
            {chips}
        </ul>
        // Where the settings are open each stands beside its control: the style sheet hides these.
        <div class="folded-messages" inner_html=text(move || problems.get())></div>
    }
}

/// Well-chosen examples, and the way back to the first.
#[component]
fn Presets() -> impl IntoView {
    let state = State::of_page();
    let button = |preset: &'static presets::Preset| {
        let open =
            move |_: MouseEvent| state.open((preset.scenario)(), &format!("Opened “{}”", preset.label));
        view! {
            <button type="button" class="chip" title=preset.help on:click=on(open)>
                {preset.label}
            </button>
        }
    };
    view! {
        <div class="presets" role="group" aria-label="Examples">
            <span aria-hidden="true">"Examples"</span>
            {presets::PRESETS.iter().map(button).collect::<Vec<_>>()}
            <button type="button" class="chip quiet" on:click=on(move |_: MouseEvent| state.reset())>
                "Reset"
            </button>
        </div>
    }
}
