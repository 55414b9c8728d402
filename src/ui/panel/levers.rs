//! What to change: under the verdict the cheapest changes as buttons, and every change in a table.

use std::sync::Arc;

use leptos::ev::Targeted;
use leptos::prelude::*;
use leptos::web_sys::{Event, HtmlDetailsElement};

use crate::plan::{Change, Cost, Lever, Levers as Found, Use, Verdict};
use crate::scenario::Scenario;
use crate::ui::browser::Later;
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;

/// How long, in milliseconds, the controls must rest before levers are looked for.
const REST: u32 = 150;

/// How many changes are buttons.
const BUTTONS: usize = 3;

/// What was found, and for which scenario.
type Known = Arc<(Scenario, Found)>;

/// What to change so that the active scenario fits, or what its room is good for.
#[component]
pub fn Levers() -> impl IntoView {
    let state = State::of_page();
    let known = RwSignal::new(None::<Known>);
    look_for(state, known);
    let busy = move || {
        state.current().scenario.with(|scenario| {
            known.with(|known| known.as_ref().is_none_or(|known| known.0 != *scenario)).to_string()
        })
    };
    let silent = move || state.current().estimate.with(|estimate| estimate.memory.is_none());
    let title = move || known.with(|known| known.as_ref().map_or("What to change", |known| title(&known.1)));
    let buttons = move || known.get().map(|known| buttons(state, &known.1));
    let open = RwSignal::new(false);
    let toggled = move |event: Targeted<Event, HtmlDetailsElement>| open.set(event.target().open());
    let table = move || open.get().then(|| known.get().map(|known| table(state, &known.1)));
    view! {
        <section class="panel levers" aria-labelledby="levers-title" aria-busy=busy hidden=silent>
            <h2 id="levers-title">{title}</h2>
            <div class="lever-buttons">{buttons}</div>
            <details on:toggle:target=toggled>
                <summary>"Every change, with what it saves and what it costs"</summary>
                {table}
            </details>
        </section>
    }
}

/// Keeps what is known a moment behind the active scenario.
fn look_for(state: State, known: RwSignal<Option<Known>>) {
    let later = Later::default();
    Effect::new(move || {
        let scenario = state.current().scenario.get();
        later.cancel();
        state.desk.with_value(|desk| desk.forget(Place::Levers));
        if state.current().estimate.with(|estimate| estimate.memory.is_none()) {
            return;
        }
        later.run(REST, move || {
            let question = Question::Levers(Box::new(scenario.clone()));
            state.desk.with_value(|desk| {
                desk.ask(Place::Levers, question, move |answer| {
                    let found = answer.and_then(Answer::levers);
                    known.set(found.map(|found| Arc::new((scenario, *found))));
                });
            });
        });
    });
}

fn title(found: &Found) -> &'static str {
    if found.verdict == Verdict::Fits {
        "What the room is good for"
    } else if found.together.is_some() {
        "These together make it fit"
    } else if found.single.iter().any(|lever| lever.verdict == Verdict::Fits) {
        "What makes it fit"
    } else {
        "It takes a larger card or a smaller model; these save most"
    }
}

/// What is offered at once: ways to make it fit, or what the room allows, or what saves most.
fn buttons(state: State, found: &Found) -> AnyView {
    let unit = state.unit();
    if found.verdict == Verdict::Fits {
        let offered = found.uses.iter().take(BUTTONS);
        return offered.map(|usage| of_use(state, usage, unit)).collect::<Vec<_>>().into_any();
    }
    let button = |lever: &Lever| of_lever(state, lever, found, unit);
    if let Some(together) = &found.together {
        return button(together).into_any();
    }
    let fitting = found.single.iter().filter(|lever| lever.verdict == Verdict::Fits);
    let mut offered: Vec<&Lever> = fitting.take(BUTTONS).collect();
    if offered.is_empty() {
        offered = found.single.iter().collect();
        offered.sort_by_key(|lever| lever.needed);
        offered.truncate(BUTTONS);
    }
    offered.into_iter().map(button).collect::<Vec<_>>().into_any()
}

fn of_lever(state: State, lever: &Lever, found: &Found, unit: Unit) -> impl IntoView + use<> {
    let effect = format!(
        "{} · {} · {}",
        unit.difference(found.needed, lever.needed),
        costs(lever.cost),
        lever.verdict.label().to_lowercase(),
    );
    button(state, &lever.changes, effect, &lever.scenario)
}

fn of_use(state: State, usage: &Use, unit: Unit) -> impl IntoView + use<> {
    let effect = format!("{} · needs {}", usage.gain.label(), unit.amount(usage.needed));
    button(state, &usage.changes, effect, &usage.scenario)
}

/// A button that makes the changes, which can be undone.
fn button(state: State, changes: &[Change], effect: String, scenario: &Scenario) -> impl IntoView + use<> {
    let lines: Vec<_> = changes.iter().map(in_words).collect();
    let told = lines.first().cloned().unwrap_or_default();
    let scenario = scenario.clone();
    let line = |words: String| view! { <span>{words}</span> };
    view! {
        <button type="button" class="lever" on:click=move |_| state.open(scenario.clone(), &told)>
            <b>{lines.into_iter().map(line).collect::<Vec<_>>()}</b>
            <small>{effect}</small>
        </button>
    }
}

/// The change as what it leads to: `Loss kernel: Liger fused`.
fn in_words(change: &Change) -> String {
    format!("{}: {}", change.label, change.to)
}

const fn costs(cost: Cost) -> &'static str {
    match cost {
        Cost::Nothing => "costs nothing",
        Cost::Software => "another library",
        Cost::Time => "costs time",
        Cost::Precision => "costs precision",
        Cost::Training => "another training",
    }
}

/// Every change that saves something.
fn table(state: State, found: &Found) -> impl IntoView + use<> {
    let unit = state.unit();
    let row = |lever: &Lever| {
        let scenario = (*lever.scenario).clone();
        let words: Vec<_> = lever.changes.iter().map(in_words).collect();
        let told = words.first().cloned().unwrap_or_default();
        let name = words.join(", ");
        view! {
            <tr data-fit=lever.verdict.slug()>
                <th scope="row">
                    <button type="button" class="change" on:click=move |_| state.open(scenario.clone(), &told)>
                        {name}
                    </button>
                </th>
                <td>{lever.cost.label()}</td>
                <td class="amount">{unit.difference(found.needed, lever.needed)}</td>
                <td class="amount">{unit.amount(lever.needed)}</td>
                <td>{lever.verdict.label()}</td>
            </tr>
        }
    };
    let head = |name: &'static str| view! { <th scope="col">{name}</th> };
    view! {
        <div class="table-box">
            <table class="lever-table">
                <caption class="unseen">"Changes that save memory"</caption>
                <thead>
                    <tr>{["Change", "Costs", "Saves", "Needs", "Verdict"].map(head).collect_view()}</tr>
                </thead>
                <tbody>{found.single.iter().map(row).collect::<Vec<_>>()}</tbody>
            </table>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::levers;
    use crate::scenario::GpuChoice;
    use crate::ui::desk::Desk;

    #[track_caller]
    fn shown(card: &str) -> (&'static str, String) {
        let scenario = Scenario { gpu: GpuChoice::Catalogue(card.into()), ..Scenario::default() };
        let found = levers(&scenario).expect("an answer");
        let html = Owner::new().with(|| {
            let state = State::new(vec![scenario], Desk::default());
            view! { {buttons(state, &found)} {table(state, &found)} }.to_html()
        });
        (title(&found), html)
    }

    #[test]
    fn the_cheapest_way_is_offered_first() {
        let (title, html) = shown("rtx-3060-12gb");
        assert_eq!(title, "What makes it fit");
        let first = html.find("Loss kernel: Liger fused").expect("it is offered");
        assert!(html.find("costs nothing").is_some_and(|cost| cost > first && cost < first + 200), "{html}");
        assert_eq!(html.matches("class=\"lever\"").count(), BUTTONS);
    }

    #[test]
    fn room_is_offered_where_there_is_some() {
        let (title, html) = shown("rtx-4090");
        assert_eq!(title, "What the room is good for");
        assert!(html.contains("more at once") && html.contains("Micro-batch size: "), "{html}");
    }
}
