//! What to change: the cheapest changes as buttons under the verdict.

use std::sync::Arc;

use leptos::either::Either;
use leptos::prelude::*;

use crate::hardware::rent;
use crate::plan::{
    Change, Cost, Lever, Levers as Found, Repair, Use, Verdict, beyond_in_words, instead, repairs,
};
use crate::scenario::Scenario;
use crate::scenario::kernels::without_kernels;
use crate::scenario::keys::Key;
use crate::ui::browser::{self, Later};
use crate::ui::format::Unit;
use crate::ui::markup::{capitalised, unbroken};
use crate::ui::own::{self, OfHub};
use crate::ui::search;
use crate::ui::state::{Known, State};
use crate::ui::view::View;
use crate::units::Bytes;

/// How long, in milliseconds, the controls must rest before levers are looked for.
const REST: u32 = 150;

/// What is said where nobody could try them.
pub(super) const UNTRIED: &str =
    "The changes could not be tried: the worker beside the page did not answer. The next change tries again.";

/// The menu of what can be taken along, and where in it the files that run begin.
pub const MENU: &str = "take";
pub const FILES: &str = "take-files";

/// How many changes are buttons.
const BUTTONS: usize = 3;

/// What to change so that the active scenario fits, or what its room is good for.
#[component]
pub fn Levers() -> impl IntoView {
    let state = State::of_page();
    look_for(state);
    let unanswered = Memo::new(move |_| state.current().estimate.with(|estimate| estimate.memory.is_none()));
    let fits = Memo::new(move |_| fits(state));
    // what does not run on its card, though its tensors fit, has no use for the room and no file
    let stranded = Memo::new(move |_| match fits.get() {
        true => state.current().scenario.with(without_kernels),
        false => None,
    });
    let is_behind =
        move || if fits.get() { is_behind(state, state.uses) } else { is_behind(state, state.levers) };
    let busy = Signal::derive(move || (!unanswered.get() && !state.untried.get() && is_behind()).to_string());
    let repaired = Memo::new(move |_| match unanswered.get() {
        true => state.current().scenario.with(repairs),
        false => Vec::new(),
    });
    let of_hub = Memo::new(move |_| own::unknown(state).is_some());
    // of a card that is not followed nobody can say what else there is room for
    let is_unfollowed = Memo::new(move |_| is_unfollowed(state));
    let silent = move || match unanswered.get() {
        true => repaired.with(Vec::is_empty) && !of_hub.get(),
        false => is_unfollowed.get() && stranded.with(Option::is_none),
    };
    // another task has other inputs: what is known of the one before is no help
    let task = Memo::new(move |_| state.current().scenario.with(|scenario| scenario.task));
    // what would make an earlier scenario fit that did fit is no help
    let changes = move || state.levers.get().filter(|known| !known.1.verdict.holds());
    let title = move || match (unanswered.get(), fits.get()) {
        (true, _) if of_hub.get() => "A model that is not in the catalogue".to_owned(),
        (true, _) => repaired.with(|found| instead(found)).to_owned(),
        (false, true) if stranded.get().is_some() => "It does not run on this card".to_owned(),
        (false, true) => "What the room is good for".to_owned(),
        (false, false) => {
            changes().map_or_else(|| "What to change".to_owned(), |known| title(&known.0, &known.1))
        }
    };
    let buttons = move || match (unanswered.get(), fits.get()) {
        (true, _) => Some(repaired.with(|found| of_repairs(state, found))),
        (false, true) if stranded.get().is_some() => stranded.get().map(|issue| {
            let words = format!("{}.", capitalised(&issue.to_string()));
            view! { <p class="remark">{words}</p> }.into_any()
        }),
        (false, true) => {
            state.uses.get().filter(|known| known.0.task == task.get()).map(|known| of_uses(state, &known.1))
        }
        (false, false) => changes()
            .filter(|known| known.0.task == task.get())
            .map(|known| buttons(state, &known.0, &known.1)),
    };
    let buttons = move || {
        buttons().unwrap_or_else(|| {
            let words = if state.untried.get() { UNTRIED } else { "Trying the changes, a run for each …" };
            view! { <p class="remark">{words}</p> }.into_any()
        })
    };
    let libraries = move || {
        changes().filter(|_| !unanswered.get() && !fits.get()).and_then(|known| of_libraries(state, &known.1))
    };
    view! {
        <section class="panel levers" aria-labelledby="levers-title" aria-busy=busy hidden=silent>
            <h2 id="levers-title" tabindex="-1">{title}</h2>
            <div class="lever-buttons">
                <OfHub />
                {buttons}
            </div>
            {libraries}
            <button
                type="button"
                class="explain"
                hidden=move || unanswered.get()
                on:click=move |_| state.view.set(View::Plan)
            >
                "Every change, with what it saves and what it costs"
            </button>
            <button
                type="button"
                class="explain"
                hidden=move || unanswered.get() || stranded.get().is_some() || !state.current().scenario.with(|scenario| scenario.task.trains())
                popovertarget=MENU
                on:click=|_| request_animation_frame(|| browser::focus(FILES))
            >
                {move || if fits.get() { "Get a file that runs" } else { "Get a file of it, which does not fit" }}
            </button>
        </section>
    }
}

/// Whether it is on a card of which the tensors alone are known.
fn is_unfollowed(state: State) -> bool {
    state.current().fit().is_some_and(|(_, verdict)| verdict == Verdict::NotFollowed)
}

/// Whether the active scenario gets through: only then has it room to use.
pub(super) fn fits(state: State) -> bool {
    state.current().fit().is_some_and(|(_, verdict)| verdict.holds())
}

/// Whether what is known is about an earlier scenario.
pub(super) fn is_behind<T: Send + Sync + 'static>(state: State, known: RwSignal<Known<T>>) -> bool {
    state
        .current()
        .scenario
        .with(|scenario| known.with(|known| known.as_ref().is_none_or(|known| known.0 != *scenario)))
}

/// Keeps what is known a moment behind the active scenario.
fn look_for(state: State) {
    let later = Later::default();
    Effect::new(move || {
        let scenario = state.current().scenario.get();
        later.cancel();
        state.desk.with_value(search::forget);
        state.untried.set(false);
        if state.current().estimate.with(|estimate| estimate.memory.is_none()) {
            return;
        }
        later.run(REST, move || {
            let (changed, used) = (scenario.clone(), scenario.clone());
            let take_changes = move |found: Option<Found>| {
                state.untried.update(|untried| *untried |= found.is_none());
                state.levers.set(found.map(|found| Arc::new((changed, found))));
            };
            let take_uses = move |found: Option<Vec<Use>>| {
                state.untried.update(|untried| *untried |= found.is_none());
                state.uses.set(found.map(|found| Arc::new((used, found))));
            };
            state.desk.with_value(|desk| {
                search::changes(desk, scenario.clone(), take_changes);
                if state.current().fit().is_some_and(|(_, verdict)| verdict.holds()) {
                    search::uses(desk, &scenario, take_uses);
                } else {
                    state.uses.set(None);
                }
            });
        });
    });
}

fn title(scenario: &Scenario, found: &Found) -> String {
    if found.together.is_some() && in_the_cpus_memory(found).is_none() {
        "These together make it fit".to_owned()
    } else if found.single.iter().any(Lever::holds) {
        "What makes it fit".to_owned()
    } else if goes_beyond(scenario, found) {
        "What holds it".to_owned()
    } else {
        format!("It takes {}; these save most", beyond_in_words(scenario))
    }
}

/// Whether there is a card, or so many of them, that holds it.
fn goes_beyond(scenario: &Scenario, found: &Found) -> bool {
    found.larger.is_some() || found.offloaded.is_some() || found.more_gpus(scenario).is_some()
}

/// What the room allows.
fn of_uses(state: State, uses: &[Use]) -> AnyView {
    let unit = state.unit();
    if uses.is_empty() {
        return view! { <p class="remark">"Nothing larger or faster fits beyond doubt."</p> }.into_any();
    }
    uses.iter().take(BUTTONS).map(|usage| of_use(state, usage, unit)).collect::<Vec<_>>().into_any()
}

/// What is offered at once where it does not fit: ways to make it fit, or what saves most.
fn buttons(state: State, scenario: &Scenario, found: &Found) -> AnyView {
    let unit = state.unit();
    let button = |lever: &Lever| of_lever(state, lever, found, unit);
    let gpus = of_more(state, scenario, found, unit);
    if let Some(together) = &found.together {
        return (button(together), in_the_cpus_memory(found).map(button), gpus).into_any();
    }
    let single = cheapest(&found.single).into_iter().map(button).collect::<Vec<_>>();
    // what fits comes first
    match takes_several(found) {
        true => {
            let rest = (gpus.is_some() && !single.is_empty())
                .then(|| view! { <h3 class="several">"What saves most as it is, and is not enough"</h3> });
            (gpus, rest, single).into_any()
        }
        false => (single, gpus).into_any(),
    }
}

/// Whether nothing makes it fit on as many GPUs as it has.
fn takes_several(found: &Found) -> bool {
    found.together.is_none() && !found.single.iter().any(Lever::holds)
}

/// The single change with which it fits if the CPU's memory holds the rest.
fn in_the_cpus_memory(found: &Found) -> Option<&Lever> {
    found.single.iter().find(|lever| lever.holds() && lever.on_host > Bytes::ZERO)
}

/// The cheapest changes with which it fits, one setting before several at once; where there are none, those that save most.
fn cheapest(single: &[Lever]) -> Vec<&Lever> {
    // what costs nothing is worth a try where it leaves a doubt, too
    let is_free = |lever: &Lever| lever.cost == Cost::Nothing && lever.verdict == Verdict::Close;
    let any_holds = single.iter().any(Lever::holds);
    let mut offered: Vec<&Lever> =
        single.iter().filter(|lever| !any_holds || lever.holds() || is_free(lever)).collect();
    match any_holds {
        true => offered.sort_by_key(|lever| (!lever.holds(), is_of_library(lever), lever.cost)),
        false => offered.sort_by_key(|lever| (!is_free(lever), lever.needed)),
    }
    offered.truncate(BUTTONS);
    offered
}

/// The other libraries with which it fits, as each is usually run, in one line: what somebody runs it by is often none of their questions.
fn of_libraries(state: State, found: &Found) -> Option<impl IntoView + use<>> {
    // several changes together stand in the place of single ones
    let offered = if found.together.is_some() { Vec::new() } else { cheapest(&found.single) };
    let is_left = |lever: &&Lever| is_of_library(lever) && lever.holds() && !offered.contains(lever);
    let mut libraries: Vec<&Lever> = found.single.iter().filter(is_left).collect();
    libraries.sort_by_key(|lever| lever.needed);
    let unit = state.unit();
    let button = |(place, lever): (usize, &Lever)| {
        let told = lever.changes.first().map(|change| change.to.clone()).unwrap_or_default();
        let words = format!("{told}, {}", unit.amount(lever.needed));
        let scenario = lever.scenario.clone();
        let take = move |_| take(state, &scenario, &told);
        let between = if place > 0 { " · " } else { "" };
        view! {
            {between}
            <button type="button" class="explain" on:click=take>
                {words}
            </button>
        }
    };
    (!libraries.is_empty()).then(|| {
        view! {
            <p class="remark libraries">
                "It fits as it is run by " {libraries.into_iter().enumerate().map(button).collect::<Vec<_>>()}
            </p>
        }
    })
}

/// Whether it is another library, with what comes with it.
fn is_of_library(lever: &Lever) -> bool {
    Key::find("stack").is_some_and(|key| lever.changes.iter().any(|change| change.label == key.label))
}

/// What would run where the scenario does not.
fn of_repairs(state: State, found: &[Repair]) -> AnyView {
    let unit = state.unit();
    let button = |repair: &Repair| {
        let each = if repair.scenario.cluster.is_many() { " on each" } else { "" };
        let mut effect = format!("needs {}{each}", unit.amount(repair.needed));
        if !repair.fits() {
            effect.push_str(" · does not fit");
        }
        change_button(state, &repair.changes, effect, &repair.scenario)
    };
    found.iter().take(BUTTONS).map(button).collect::<Vec<_>>().into_any()
}

/// What costs money, a larger card or several GPUs: behind one line, but where nothing else makes it fit.
fn of_more(state: State, scenario: &Scenario, found: &Found, unit: Unit) -> Option<impl IntoView + use<>> {
    let larger = found.larger.as_ref().map(|card| {
        let verdict = card.verdict.label().to_lowercase();
        let effect = format!("{} · {verdict} · from {}", unit.amount(card.needed), card.price_in_words());
        change_button(state, &card.changes, effect, &card.scenario)
    });
    let fewest = found.more_gpus(scenario).map(|(layout, changes)| {
        let mut effect =
            format!("{} on each · {}", unit.amount(layout.needed), layout.verdict.label().to_lowercase());
        let slug = scenario.gpu().map(|gpu| gpu.slug.to_string()).unwrap_or_default();
        if let Some(per_hour) = rent(&slug, layout.gpus, layout.scenario.cluster.per_node) {
            effect.push_str(&format!(" · from ${per_hour:.2} an hour together"));
        }
        change_button(state, &changes, effect, &layout.scenario)
    });
    let offloaded = found.offloaded.as_ref().map(|lever| of_lever(state, lever, found, unit));
    let any = larger.is_some() || fewest.is_some() || offloaded.is_some();
    any.then(|| match takes_several(found) {
        true => Either::Left((larger, fewest, offloaded)),
        false => Either::Right(view! {
            <details class="several">
                <summary>{if scenario.cluster.is_many() { "Or on more GPUs, or with the CPU’s memory" } else { "Or on a larger card, or several" }}</summary>
                <div class="lever-buttons">{larger} {fewest} {offloaded}</div>
            </details>
        }),
    })
}

fn of_lever(state: State, lever: &Lever, found: &Found, unit: Unit) -> impl IntoView + use<> {
    let mut effect = format!(
        "{} · {} · {}",
        saved(state, lever, found, unit),
        costs(lever.cost),
        lever.verdict.label().to_lowercase(),
    );
    if let Some(ram) = lever.ram_in_words(|bytes| unit.amount(bytes)) {
        effect.push_str(&format!(" · needs {ram}"));
        if let Some(host) = lever.short_of_ram() {
            effect.push_str(&format!(", known machines have {} at most", unit.amount(host.ram)));
        }
    }
    change_button(state, &lever.changes, effect, &lever.scenario)
}

/// What a change saves, or where that is nothing what it leaves the training of the card: vLLM beside it takes less.
pub(super) fn saved(state: State, lever: &Lever, found: &Found, unit: Unit) -> String {
    let of_card = |scenario: &Scenario| scenario.gpu().map(|gpu| gpu.memory).unwrap_or_default();
    let more = of_card(&lever.scenario).saturating_sub(state.current().scenario.with_untracked(of_card));
    match lever.needed == found.needed && more > Bytes::ZERO {
        true => format!("{} more of the card", unit.amount(more)),
        false => unit.difference(found.needed, lever.needed),
    }
}

fn of_use(state: State, usage: &Use, unit: Unit) -> impl IntoView + use<> {
    let effect = format!("{} · needs {}", usage.gain.label(), unit.amount(usage.needed));
    change_button(state, &usage.changes, effect, &usage.scenario)
}

/// A button that makes the changes, which can be undone.
pub(super) fn change_button(
    state: State,
    changes: &[Change],
    effect: String,
    scenario: &Scenario,
) -> impl IntoView + use<> {
    let lines: Vec<_> = changes.iter().map(in_words).collect();
    let told = lines.first().cloned().unwrap_or_default();
    let scenario = scenario.clone();
    let line = |words: String| view! { <span>{unbroken(&words)}</span> };
    let take = move |_| take(state, &scenario, &told);
    view! {
        <button type="button" class="lever" on:click=take>
            <b>{lines.into_iter().map(line).collect::<Vec<_>>()}</b>
            <small>{effect}</small>
        </button>
    }
}

/// Opens a changed scenario. The button goes with the one that it changed: whoever uses the keyboard goes on at what to change next.
fn take(state: State, scenario: &Scenario, told: &str) {
    state.open(scenario.clone(), told);
    request_animation_frame(|| browser::focus("levers-title"));
}

/// The change as what it leads to: `Loss kernel: Liger fused`.
pub(super) fn in_words(change: &Change) -> String {
    format!("{}: {}", change.label, change.to)
}

fn costs(cost: Cost) -> &'static str {
    match cost {
        Cost::Nothing => "costs nothing",
        Cost::Rounding => "costs a little precision",
        Cost::Software => "another library",
        Cost::Time => "costs time",
        Cost::Precision => "costs precision",
        Cost::Training => "may cost quality",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::levers;
    use crate::scenario::{GpuChoice, ModelChoice};
    use crate::ui::desk::Desk;

    fn on(card: &str) -> Scenario {
        Scenario { gpu: GpuChoice::Catalogue(card.into()), ..Scenario::default() }
    }

    #[track_caller]
    fn shown(card: &str) -> (String, String) {
        let scenario = on(card);
        let found = levers(&scenario).expect("an answer");
        let html = Owner::new().with(|| {
            let state = State::new(vec![scenario.clone()], Desk::default());
            buttons(state, &scenario, &found).to_html()
        });
        (title(&scenario, &found), html)
    }

    #[test]
    fn the_cheapest_way_is_offered_first() {
        let (title, html) = shown("rtx-3060-12gb");
        assert_eq!(title, "What makes it fit");
        let first = html.find("Loss kernel: Liger fused").expect("it is offered");
        assert!(html.find("costs nothing").is_some_and(|cost| cost > first && cost < first + 200), "{html}");
        // and the fewest GPUs, behind one line: no fewer do with the CPU's memory
        let (offered, several) = html.split_once("<details").expect("several GPUs are offered");
        assert_eq!(offered.matches("class=\"lever\"").count(), BUTTONS);
        assert_eq!(several.matches("class=\"lever\"").count(), 2);
        assert!(several.contains("GPU: ") && several.contains(" an hour ("), "{several}");
        // one setting, before a library and what comes with it
        assert!(!offered.contains("Training library"), "{offered}");
    }

    #[test]
    fn what_holds_it_stands_apart_from_what_does_not() {
        let scenario = Scenario {
            model: ModelChoice::Catalogue("meta-llama/Llama-3.3-70B-Instruct".into()),
            ..on("rtx-4090")
        };
        let found = levers(&scenario).expect("an answer");
        assert_eq!(title(&scenario, &found), "What holds it");
        let html = Owner::new().with(|| {
            let state = State::new(vec![scenario.clone()], Desk::default());
            buttons(state, &scenario, &found).to_html()
        });
        let (holds, rest) = html.split_once("is not enough<").unwrap_or_else(|| panic!("one group: {html}"));
        assert!(!holds.contains("does not fit") && holds.contains("· fits"), "{holds}");
        assert_eq!(rest.matches("does not fit").count(), BUTTONS, "{rest}");
    }

    #[test]
    fn room_is_offered_where_there_is_some() {
        let found = levers(&on("rtx-4090")).expect("it fits").uses;
        let html = Owner::new().with(|| {
            let state = State::new(vec![on("rtx-4090")], Desk::default());
            of_uses(state, &found).to_html()
        });
        assert!(html.contains("more at once") && html.contains("Micro-batch size: "), "{html}");
    }
}
