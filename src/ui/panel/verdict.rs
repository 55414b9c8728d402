//! The verdict: the first thing one reads.

use leptos::either::Either;
use leptos::prelude::*;

use super::document::{Document, Formula, Grounds};
use super::serving::lead_to_formats;
use crate::accuracy;
use crate::estimate::Estimate;
use crate::hardware::{Gpu, Vendor};
use crate::memory::Memory;
use crate::plan::{self, Outcome, fits, instead, repairs};
use crate::scenario::{Allocator, Scenario};
use crate::ui::behind::Behind;
use crate::ui::browser::{self, Later};
use crate::ui::controls::{Explained, explained, meaning, message};
use crate::ui::detail::Detail;
use crate::ui::figures::{self, Figure};
use crate::ui::format::{Unit, exact};
use crate::ui::known;
use crate::ui::markup::unbroken;
use crate::ui::part::Part;
use crate::ui::state::{State, letter};
use crate::ui::verdict::{self, Aside};
use crate::units::Bytes;

/// How long the figures must rest before they are read aloud.
const REST: u32 = 700;

/// The verdict on the active scenario.
///
/// The region is a status for those who look for it, but it is not read at every step of a slider: a quiet copy of it
/// is read once the figures rest.
#[component]
pub fn Verdict() -> impl IntoView {
    let state = State::of_page();
    let class = Signal::derive(move || {
        state.current().fit().map_or("none", |(_, verdict)| verdict.slug()).to_owned()
    });
    // asked where there is no answer alone: some tens of estimates
    let repaired = Memo::new(move |_| {
        let slot = state.current();
        let unanswered = slot.estimate.with(|estimate| estimate.memory.is_none());
        let found = if unanswered { slot.scenario.with(repairs) } else { Vec::new() };
        (!found.is_empty()).then(|| instead(&found))
    });
    let words = move || {
        let slot = state.current();
        let unit = state.unit();
        let detail = slot.close_look();
        let which = (!state.alone()).then(|| letter(state.active.get()));
        let answer = slot
            .answer(|scenario, memory, gpu| answer(scenario, memory, gpu, detail.as_deref(), which, unit));
        match answer {
            Some(answer) => Either::Left(answer),
            None => {
                let divides =
                    slot.scenario.with(|scenario| !scenario.task.trains() && scenario.cluster.is_many());
                let instead = divides.then(|| {
                    lead_to_formats(state, "vLLM over all of them: which formats fit, and how many tokens")
                });
                Either::Right((slot.estimate.with(|estimate| excuse(estimate, repaired.get())), instead))
            }
        }
    };
    let spoken = RwSignal::new(String::new());
    let later = Later::default();
    let mut first = true;
    Effect::new(move || {
        let unit = state.unit();
        let slot = state.current();
        let told = slot.fit();
        let answer = told.and_then(|(fit, verdict)| {
            slot.answer(|scenario, memory, _| verdict::sentence(scenario, memory, &fit, verdict, unit))
        });
        if !std::mem::take(&mut first) {
            let sentence = answer.unwrap_or_else(|| "There is no answer for this scenario.".to_owned());
            later.run(REST, move || spoken.set(sentence));
        }
    });
    view! {
        <section
            class="verdict"
            role="status"
            aria-live="off"
            aria-label="Verdict"
            aria-busy=Signal::derive(move || (state.current().is_awaited() && !state.troubled.get()).to_string())
            data-fit=class
        >
            {words}
            <Figures />
            <Known />
        </section>
        <div class="unseen" aria-live="polite">
            {spoken}
        </div>
    }
}

fn answer(
    scenario: &Scenario,
    memory: &Memory,
    gpu: &Gpu,
    detail: Option<&Detail>,
    which: Option<&'static str>,
    unit: Unit,
) -> impl IntoView + use<> {
    let fit = fits(memory, gpu);
    let verdict = Detail::verdict(detail, scenario, &fit);
    let (number, name) = unit.split(fit.needed);
    let clause = |Aside { words, more, on_phone }: Aside| {
        let more = (!more.is_empty()).then(|| view! { <i>{format!(": {more}")}</i> });
        view! {
            <span class=if on_phone { "on-phone" } else { "roomy" }>
                {unbroken(&words)}
                {more}
            </span>
        }
    };
    let aside = verdict::aside(scenario, memory, (&fit, verdict), unit).into_iter().map(clause);
    let state = use_context::<State>();
    let remark = verdict::remark(scenario, verdict, detail, unit).map(|(class, words)| {
        let mend = state.zip(joins_segments(scenario, verdict, detail)).map(|(state, scenario)| {
            let take = move |_| {
                state.open(scenario.clone(), "Allocator: Expandable segments");
                browser::focus("answer");
            };
            view! {
                " "
                <button type="button" class="explain" on:click=take>
                    "Choose expandable segments"
                </button>
            }
        });
        view! { <p class=format!("outcome {class}")>{words} {mend}</p> }
    });
    let meter = meter(memory, fit.needed, fit.capacity);
    // beside others, which of them this is
    let letter = which.map(|letter| view! { <b class="letter">{letter}</b> " " });
    let each = scenario.cluster.is_many().then(|| view! { " " <small>"per GPU"</small> });
    view! {
        <div class="gist" id="answer" tabindex="-1">
            <p class="total" title=exact(fit.needed)>
                <strong>{number}</strong>
                " "
                <span>{name}</span>
                {each}
            </p>
            <div class="words">
                <p class="sentence">
                    {letter}
                    <span class="stamp">{verdict.label()}</span>
                    " "
                    {unbroken(&verdict::circumstances(&fit, verdict, scenario, unit))}
                </p>
                <p class="aside">{aside.collect::<Vec<_>>()}</p>
                {remark}
                {to_levers("What to change")}
            </div>
            {meter}
        </div>
    }
}

/// The same run under the allocator that makes it one, where holes alone are in its way.
fn joins_segments(scenario: &Scenario, verdict: plan::Verdict, detail: Option<&Detail>) -> Option<Scenario> {
    let on_card = detail?.on_card.as_ref().ok()?;
    let joins = verdict == plan::Verdict::Tight && on_card.outcome == Outcome::RunsExpandable;
    joins.then(|| Scenario { allocator: Allocator::Expandable, ..scenario.clone() })
}

/// The way to what stands beneath the verdict.
fn to_levers(words: &'static str) -> impl IntoView {
    view! {
        <button type="button" class="explain to-levers" on:click=|_| browser::go_to("levers-title")>
            {words}
        </button>
    }
}

/// The figures of the active scenario: their names stay where they are, with what is open about them, while amounts change.
#[component]
fn Figures() -> impl IntoView {
    let state = State::of_page();
    let figures = Memo::new(move |_| {
        let (slot, unit) = (state.current(), state.unit());
        let detail = slot.close_look();
        let of = |scenario: &Scenario, memory: &Memory, gpu: &Gpu| {
            let verdict = Detail::verdict(detail.as_deref(), scenario, &fits(memory, gpu));
            let figures = figures::figures(memory, (gpu, scenario), detail.as_deref(), unit);
            figures.into_iter().chain(figures::speed(scenario, memory, verdict)).collect::<Vec<_>>()
        };
        slot.answer(of).unwrap_or_default()
    });
    let named = move || figures.get().into_iter().enumerate();
    let figure = move |(number, figure): (usize, Figure)| {
        let at = figure.behind.at();
        let more = move || view! { <Formula at=at /> };
        let meaning = meaning(format!("figure-{number}"), figure.name, figure.help, Some(more.into()));
        let now = move |text: fn(&Figure) -> String| {
            figures.with(|figures| figures.get(number).map(text).unwrap_or_default())
        };
        view! {
            <div>
                <dt>{meaning}</dt>
                " "
                <dd>
                    <b>{move || now(|figure| figure.amount.clone())}</b>
                    " "
                    <small>{move || now(|figure| figure.note.clone())}</small>
                </dd>
            </div>
        }
    };
    view! {
        <dl class="figures" hidden=move || figures.with(Vec::is_empty)>
            <For each=named key=|(number, figure)| (*number, figure.name, figure.help) children=figure />
        </dl>
    }
}

/// A bar as narrow as can be, for the verdict that stays in view on a phone.
fn meter(memory: &Memory, needed: Bytes, capacity: Bytes) -> impl IntoView + use<> {
    let whole = needed.max(capacity);
    let end = capacity.percent_of(whole).min(99.);
    // where the card ends before what is needed does
    let end = (needed > capacity)
        .then(|| view! { <rect class="card-end" x=format!("{end:.2}") width="1" height="1" /> });
    let mut start = 0.;
    let parts: Vec<_> = Part::all()
        .map(|part| {
            let width = part.at_peak(memory).percent_of(whole);
            let at = start;
            start += width;
            let class = format!("part {}", part.class());
            view! { <rect class=class x=format!("{at:.2}") width=format!("{width:.2}") height="1" /> }
        })
        .collect();
    view! {
        <svg class="meter" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
            {parts}
            {end}
        </svg>
    }
}

/// What is said where there is no figure, and the way to what would run instead: that may have been scrolled away under it.
fn excuse(estimate: &Estimate, repaired: Option<&'static str>) -> impl IntoView + use<> {
    let why = estimate.errors().map(message).collect::<Vec<_>>();
    let instead = repaired.map(to_levers);
    view! {
        <div class="gist" id="answer" tabindex="-1">
            <p class="total" aria-hidden="true">
                <strong>"–"</strong>
            </p>
            <div class="words">
                <p class="sentence">
                    <span class="stamp">"No answer"</span>
                    " for this scenario"
                </p>
                {why}
                {instead}
            </div>
        </div>
    }
}

/// How sure the figures are, and how they are known.
#[component]
fn Known() -> impl IntoView {
    let state = State::of_page();
    // no run on another vendor's card was measured
    let is_nvidias = Memo::new(move |_| {
        let is_its_card = |scenario: &Scenario| scenario.gpu().is_ok_and(|gpu| gpu.vendor == Vendor::Nvidia);
        state.current().scenario.with(is_its_card)
    });
    let unmeasured = Memo::new(move |_| state.current().scenario.with(accuracy::unmeasured));
    let band = move || state.current().close_look().and_then(|detail| detail.measured_error());
    let known = move || match band() {
        Some(band) => (band.in_words(), known::against(&band)),
        None if unmeasured.get().is_some() => {
            ("not measured".to_owned(), unmeasured.get().unwrap_or_default().to_owned())
        }
        None if is_nvidias.get() => ("…".to_owned(), String::new()),
        None => (
            "not measured".to_owned(),
            "no run on such a card was measured; the driver’s part is assumed".to_owned(),
        ),
    };
    let (sure, rests_on) =
        (Signal::derive(move || unbroken(&known().0)), Signal::derive(move || unbroken(&known().1)));
    let unknown = Signal::derive(move || state.current().estimate.with(|estimate| estimate.memory.is_none()));
    let told = move || {
        let sentences = known::known(band().as_ref());
        let told = |(index, sentence): (usize, String)| {
            view! { <p>{explained(&format!("sure-{index}"), &sentence)}</p> }
        };
        sentences.into_iter().enumerate().map(told).collect::<Vec<_>>()
    };
    view! {
        <p class="known" hidden=unknown>
            <span class="known-name">"Measured error, allocated"</span>
            " "
            <b>{sure}</b>
            " "
            <small>{rests_on}</small>
            " "
            <Explained id="how-we-know" face="How we know" name="How we know" heading="How we know">
                {told}
                <Grounds of=Behind::Verdict />
                <p class="tools-row">
                    <Document at=Behind::Card.at() text="What the card has, and who reported it" />
                    <Document at=Behind::Parameters.at() text="How parameters are counted" />
                </p>
            </Explained>
        </p>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;
    use crate::scenario::ModelChoice;

    /// The share of the card and its level are what a phone has room for.
    #[test]
    fn the_share_and_the_level_stand_on_a_phone_too() {
        let scenario = Scenario::default();
        let memory = estimate(&scenario).memory.expect("an answer");
        let gpu = scenario.gpu().expect("a card");
        let html = answer(&scenario, &memory, &gpu, None, None, Unit::Binary).to_html();
        let kept: Vec<&str> = html.split("class=\"on-phone").skip(1).collect();
        assert_eq!(kept.len(), 2, "{html}");
        assert!(kept[0].contains("% of ") && kept[1].contains(" use<"), "{html}");
        let style = include_str!("../../../style/answer.css");
        assert!(style.contains(".aside > :not(.on-phone)") && !style.contains(".aside {\n    display: none"));
    }

    #[test]
    fn without_an_answer_the_reasons_stand_there() {
        let scenario = Scenario { model: ModelChoice::Catalogue("<nobody>".into()), ..Scenario::default() };
        let html = excuse(&estimate(&scenario), None).to_html();
        assert!(html.contains("No answer") && html.contains("&lt;nobody&gt;"), "{html}");
        assert!(!html.contains("<button"), "{html}");
        assert!(
            excuse(&estimate(&scenario), Some("What would run instead"))
                .to_html()
                .contains("What would run instead")
        );
        let style = include_str!("../../../style/answer.css");
        assert!(style.contains("[data-fit=\"none\"] .to-levers"));
    }
}
