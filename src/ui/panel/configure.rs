//! The form: what most people choose at its top, every other input of a scenario under "All settings", placed by the table
//! of keys.

use leptos::html;
use leptos::prelude::*;

use super::control::{Control, is_offered, issues};
use crate::issue::Field;
use crate::scenario::Scenario;
use crate::scenario::keys::{Group, Key, Place, keys};
use crate::ui::browser;
use crate::ui::controls::Messages;
use crate::ui::markup::unbroken;
use crate::ui::presets;
use crate::ui::state::State;

/// Whether most people choose this input.
fn is_on_surface(key: &Key) -> bool {
    key.place == Place::Surface
}

/// Whether an input is folded away.
fn is_folded_away(key: &Key) -> bool {
    match key.place {
        Place::Front | Place::Folded => true,
        Place::Surface | Place::Planned => false,
    }
}

/// Whether an issue names an input that is folded away.
fn is_folded(field: Field) -> bool {
    Key::of(field).is_some_and(is_folded_away)
}

/// All controls of the active scenario.
#[component]
pub fn Configure() -> impl IntoView {
    let state = State::of_page();
    let elsewhere = issues(state, |field| Key::of(field).is_none());
    let surface = Group::ALL
        .into_iter()
        .flat_map(|group| keys().filter(move |key| key.group == group && is_on_surface(key)));
    view! {
        <form
            class="configure"
            id="settings"
            aria-label="Scenario"
            on:submit=|event| event.prevent_default()
        >
            <Presets />
            <div role="presentation">
                <Messages issues=elsewhere />
            </div>
            <fieldset>
                <legend class="unseen">"What most people choose"</legend>
                {surface.map(|key| view! { <Control key=key /> }).collect::<Vec<_>>()}
            </fieldset>
            <Rest />
        </form>
    }
}

/// The folded inputs that are not at their default.
pub fn changed(scenario: &Scenario) -> Vec<&'static Key> {
    let defaults = scenario.defaults();
    keys().filter(|key| is_folded_away(key) && key.is_changed(scenario, &defaults)).collect()
}

/// `2 changed`; nothing where none is.
pub fn count_changed(scenario: &Scenario) -> String {
    match changed(scenario).len() {
        0 => String::new(),
        count => format!("{count} changed"),
    }
}

/// The rest, folded away and drawn when it is opened for the first time; what of it is changed stays in sight.
#[component]
fn Rest() -> impl IntoView {
    let state = State::of_page();
    let place = NodeRef::<html::Details>::new();
    let drawn = RwSignal::new(false);
    Effect::new(move || {
        let open = state.unfolded.get();
        if open && !drawn.get_untracked() {
            drawn.set(true);
        }
        if let Some(place) = place.get() {
            place.set_open(open);
        }
    });
    let turned = move |_| {
        let open = place.get_untracked().is_some_and(|place| place.open());
        if state.unfolded.get_untracked() != open {
            state.unfolded.set(open);
        }
    };
    let controls = move || drawn.get().then(|| Group::ALL.map(|group| view! { <Controls group=group /> }));
    let count = Signal::derive(move || state.current().scenario.with(count_changed));
    let folded = issues(state, is_folded);
    view! {
        <Changed />
        // Where the settings are open each stands beside its control: the style sheet hides these.
        <div class="folded-messages" hidden=Signal::derive(move || state.unfolded.get())>
            <Messages issues=folded />
        </div>
        <details class="all-settings" node_ref=place on:toggle=turned>
            <summary id="all-settings">
                <span>"All settings"</span>
                " "
                <span class="changed-count">{count}</span>
            </summary>
            {controls}
        </details>
    }
}

/// The folded controls of a group; nothing where there are none.
#[component]
fn Controls(group: Group) -> impl IntoView {
    let state = State::of_page();
    let keys = move || keys().filter(move |key| key.group == group && is_folded_away(key));
    let idle = Signal::derive(move || {
        state.current().scenario.with(|scenario| !keys().any(|key| is_offered(key, scenario)))
    });
    let is_any = keys().next().is_some();
    is_any.then(|| {
        view! {
            <fieldset hidden=idle>
                <legend>{group.label()}</legend>
                {group.help().map(|help| view! { <p class="remark">{help}</p> })}
                {keys().map(|key| view! { <Control key=key /> }).collect::<Vec<_>>()}
            </fieldset>
        }
    })
}

/// What is not at its default, each with the way back.
#[component]
fn Changed() -> impl IntoView {
    let state = State::of_page();
    let keys = move || {
        state.current().scenario.with(|scenario| {
            let usual = scenario.defaults();
            let said = |key: &'static Key| {
                (key.name, key.label_for(scenario), key.words(scenario), key.words(&usual))
            };
            changed(scenario).into_iter().map(said).collect::<Vec<_>>()
        })
    };
    let chip = move |(name, label, words, usual): (&'static str, &'static str, String, String)| {
        let reset = move |_| {
            state.change(|scenario| {
                let usual = scenario.defaults();
                if let Some(key) = Key::find(name) {
                    key.copy(scenario, &usual);
                }
            });
        };
        view! {
            <li>
                <button
                    type="button"
                    class="chip"
                    title=format!("Set back to {usual}")
                    aria-label=format!("{label}: {words}. Set back to {usual}")
                    on:click=reset
                >
                    {format!("{label}: {words}")}
                    <span aria-hidden="true">" ×"</span>
                </button>
            </li>
        }
    };
    view! {
        <ul
            class="changed-settings"
            aria-label="Changed settings"
            hidden=Signal::derive(move || state.current().scenario.with(|scenario| changed(scenario).is_empty()))
        >
            {move || keys().into_iter().map(chip).collect::<Vec<_>>()}
        </ul>
    }
}

/// So many examples stand there before all are asked for.
const FIRST_EXAMPLES: usize = 4;

/// Well-chosen examples, and the way back to the first.
#[component]
fn Presets() -> impl IntoView {
    let state = State::of_page();
    let all = RwSignal::new(false);
    let button = move |(index, preset): (usize, &'static presets::Preset)| {
        let open = move |_| {
            state.open((preset.scenario)(), &format!("Opened “{}”", preset.label));
            if all.get_untracked() {
                all.set(false);
                // the button that was pressed may be folded away
                request_animation_frame(|| browser::focus("more-examples"));
            }
        };
        view! {
            <button
                type="button"
                class="chip"
                hidden=Signal::derive(move || index >= FIRST_EXAMPLES && !all.get())
                on:click=open
            >
                {unbroken(preset.label)}
                {move || all.get().then(|| view! { <small>{preset.help}</small> })}
            </button>
        }
    };
    // who changes a setting has done with the examples
    Effect::new(move || {
        state.current().scenario.track();
        if all.get_untracked() {
            all.set(false);
        }
    });
    let more = presets::PRESETS.len().saturating_sub(FIRST_EXAMPLES);
    view! {
        <div class="presets" class:all=all role="group" aria-label="Examples">
            <span aria-hidden="true">"Examples"</span>
            {presets::PRESETS.iter().enumerate().map(button).collect::<Vec<_>>()}
            <button
                type="button"
                class="explain"
                id="more-examples"
                aria-expanded=Signal::derive(move || all.get().to_string())
                on:click=move |_| all.update(|all| *all = !*all)
            >
                {move || if all.get() { "Fewer".to_owned() } else { format!("{more} more") }}
            </button>
            <button type="button" class="chip quiet" on:click=move |_| state.reset()>
                "Reset"
            </button>
        </div>
    }
}
