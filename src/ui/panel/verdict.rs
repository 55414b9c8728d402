//! The verdict: the first thing one reads.

use leptos::prelude::*;

use super::card::OnCard;
use crate::scenario::Severity;
use crate::ui::browser::Later;
use crate::ui::controls::message;
use crate::ui::format::exact;
use crate::ui::part::Part;
use crate::ui::state::State;
use crate::ui::verdict;

/// How long the figures must rest before they are read aloud.
const REST: u32 = 700;

/// The verdict on the active scenario.
///
/// The region is a status for those who look for it, but it is not read at every step of a slider: a quiet copy of it
/// is read once the figures rest.
#[component]
pub fn Verdict() -> impl IntoView {
    let state = State::of_page();
    let verdict = Memo::new(move |_| {
        let slot = state.current();
        let unit = state.unit.get();
        slot.estimate.with(|estimate| {
            let memory = estimate.memory.as_ref()?;
            slot.scenario.with(|scenario| verdict::Verdict::of(scenario, memory, unit))
        })
    });
    let spoken = RwSignal::new(String::new());
    let later = StoredValue::new_local(Later::default());
    Effect::new(move |first: Option<()>| {
        let sentence = match verdict.get() {
            Some(verdict) => verdict.sentence(state.unit.get()),
            None => "There is no answer for this scenario.".to_owned(),
        };
        if first.is_some() {
            later.with_value(|later| later.run(REST, move || spoken.set(sentence)));
        }
    });
    let state_name = move || verdict.get().map_or("none", |verdict| verdict.fit.slug());
    let body = move || match verdict.get() {
        Some(verdict) => figures(verdict, state).into_any(),
        None => excuse(state).into_any(),
    };
    view! {
        <section class="verdict" role="status" aria-live="off" aria-label="Verdict" data-fit=state_name>
            {body}
        </section>
        <div class="unseen" aria-live="polite">{move || spoken.get()}</div>
    }
    .into_any()
}

fn figures(verdict: verdict::Verdict, state: State) -> impl IntoView {
    let (number, unit) = state.unit.get().split(verdict.needed);
    view! {
        <p class="total" title=exact(verdict.needed)>
            <strong>{number}</strong>
            " "
            <span>{unit}</span>
        </p>
        <div class="words">
            <p class="sentence">
                <span class="stamp">{verdict.fit.word()}</span>
                " "
                <span class="margin">{verdict.margin}</span>
            </p>
            <p class="aside">
                <span>{verdict.share}</span>
                <span>"peak in the "{verdict.phase}</span>
                <span class="composition">{verdict.composition}</span>
            </p>
            <OnCard />
        </div>
        <Meter />
    }
}

/// The bar of the phone's sticky verdict, as narrow as can be.
#[component]
fn Meter() -> impl IntoView {
    let state = State::of_page();
    let stretches = move || {
        let slot = state.current();
        let capacity =
            slot.scenario.with(|scenario| scenario.gpu().map(|gpu| gpu.memory).unwrap_or_default());
        slot.estimate.with(|estimate| {
            let memory = estimate.memory.as_ref()?;
            let parts = Part::all().map(|part| (part.class(), part.at_peak(memory)));
            let whole = memory.needed().max(capacity);
            let stretches = parts.filter(|(_, bytes)| bytes.0 > 0).map(|(class, bytes)| {
                view! { <i class=format!("stretch {class}") style:width=format!("{}%", bytes.percent_of(whole))></i> }
            });
            Some(stretches.collect_view())
        })
    };
    view! { <div class="meter" aria-hidden="true">{stretches}</div> }
}

/// What is said where there is no figure.
fn excuse(state: State) -> impl IntoView {
    let errors = move || {
        state.current().estimate.with(|estimate| {
            let errors = estimate.issues.iter().filter(|issue| issue.severity == Severity::Error).cloned();
            errors.map(message).collect_view()
        })
    };
    view! {
        <p class="total none" aria-hidden="true">
            <strong>"–"</strong>
        </p>
        <div class="words">
            <p class="sentence">
                <span class="stamp">"No answer"</span>
                " for this scenario yet"
            </p>
            {errors}
        </div>
    }
}
