//! Where the memory goes: the charts and what belongs to them.

use leptos::ev::MouseEvent;
use leptos::prelude::*;

use super::breakdown::{Breakdown, Opened, explanations, sizes};
use super::chart::Chart;
use super::document::Grounds;
use super::oom::OutOfMemory;
use super::ranks::Ranks;
use super::recorded::Recorded;
use super::serving::lead_to_formats;
use crate::explain::{Note, Switch};
use crate::hardware::Gpu;
use crate::memory::{Iteration, Memory, Parts, Stage};
use crate::scenario::Scenario;
use crate::ui::behind::Behind;
use crate::ui::browser;
use crate::ui::chart::card::{Named, draw_card};
use crate::ui::chart::stack::{Bar, Layout, Segment, draw};
use crate::ui::format::Unit;
use crate::ui::markup::unbroken;
use crate::ui::part::Part;
use crate::ui::state::{Slot, State, letter};
use crate::ui::summary;
use crate::ui::verdict;
use crate::units::Bytes;

/// Where the memory goes, at the peak and in every phase.
#[component]
pub fn Fit() -> impl IntoView {
    let state = State::of_page();
    let unknown = move || state.current().estimate.with(|estimate| estimate.memory.is_none());
    view! {
        <OutOfMemory />
        <div class="panels">
            <div class="column">
                <Peak />
            </div>
            <div class="column">
                <Elsewhere />
                <Recorded />
                <Ranks />
                <Notes />
                <section class="panel" hidden=unknown>
                    <h2>"Peak by phase"</h2>
                    <Chart label="Peak by phase" draw=move |width| phases(state, width) />
                    <p class="remark">{move || first_iteration(state)}</p>
                    <Grounds of=Behind::Needs />
                </section>
            </div>
        </div>
    }
}

/// Where the rest of an answer on inference is: other formats of weights, and engines that serve.
#[component]
fn Elsewhere() -> impl IntoView {
    let state = State::of_page();
    view! {
        <section class="panel" hidden=move || state.current().scenario.with(|scenario| scenario.task.trains())>
            <h2>"Served by vLLM, or in another format?"</h2>
            <p class="remark">
                "This is transformers’ generate. Weights in FP8, GPTQ, AWQ, GGUF and others, and how many tokens vLLM keeps beside them, are in the \
                 view Plan."
            </p>
            {lead_to_formats(state, "Serve it: every format, how many at once, and vLLM’s command")}
        </section>
    }
}

/// What stands out at the peak, each with the change that it suggests.
#[component]
fn Notes() -> impl IntoView {
    let state = State::of_page();
    let notes = move || state.current().close_look().map(|detail| detail.notes.clone()).unwrap_or_default();
    let note = move |(Note { category, bytes, words, switch }, is_again): (Note, bool)| {
        let unit = state.unit();
        let button = switch.map(|Switch { label, saves, scenario }| {
            let told = label.clone();
            let saves = unit.amount(saves);
            let words = match is_again {
                true => format!("{label}, the same −{saves}"),
                false => format!("{label}, −{saves}"),
            };
            view! {
                <button type="button" class="explain" on:click=move |_| state.open(*scenario.clone(), &told)>
                    {words}
                </button>
            }
        });
        view! {
            <li class=Part::Tensors(category).class()>
                <i class="swatch"></i>
                <p>
                    <b>{unit.amount(bytes)}</b>
                    " "
                    {unbroken(&words)}
                    ". "
                    {button}
                </p>
            </li>
        }
    };
    view! {
        <section class="panel" hidden=move || notes().is_empty()>
            <h2>"Why is this so large?"</h2>
            <ul class="notes-list">{move || with_repeats(notes()).into_iter().map(note).collect::<Vec<_>>()}</ul>
        </section>
    }
}

/// Each note, and whether one before it suggests the same change: what that saves is had once.
fn with_repeats(notes: Vec<Note>) -> Vec<(Note, bool)> {
    let scenario = |note: &Note| note.switch.as_ref().map(|switch| switch.scenario.clone());
    let mut seen = Vec::new();
    let mut told: Vec<(Note, bool)> = Vec::new();
    for note in notes {
        let own = scenario(&note);
        let is_same = |other: &Note| other.words == note.words && scenario(other) == own;
        // of two parts the same is said once, of both together
        if let Some((other, _)) = told.iter_mut().find(|(other, _)| is_same(other)) {
            other.bytes += note.bytes;
            continue;
        }
        told.push((note, own.as_ref().is_some_and(|own| seen.contains(own))));
        seen.extend(own);
    }
    told
}

/// The memory at the peak: all scenarios on one axis, and their parts.
#[component]
pub fn Peak() -> impl IntoView {
    let state = State::of_page();
    let silent = move || state.shown().all(|slot| slot.estimate.with(|estimate| estimate.memory.is_none()));
    let opened = Opened::none(state);
    // a stretch of the bar opens the row of its part, which is what the keyboard opens; the bar stays in sight
    let open = move |event: MouseEvent| {
        let part = browser::classes_at(&event).and_then(|classes| Part::of_class(&classes));
        if part.is_some_and(|part| opened.turn(part)) {
            let reveal = move || part.into_iter().flat_map(explanations).for_each(|id| browser::reveal(&id));
            request_animation_frame(reveal);
        }
    };
    view! {
        <section class="panel peak" hidden=silent>
            <h2>"Memory at the peak"</h2>
            <div on:click=open>
                <Chart label="Memory at the peak" draw=move |width| peak(state, width) />
            </div>
            <Breakdown opened=opened />
        </section>
    }
}

/// All scenarios on one axis.
fn peak(state: State, width: u32) -> String {
    let unit = state.unit();
    let alone = state.alone();
    let mut name = String::from("Stacked bars of memory");
    for slot in state.shown() {
        slot.answer(|scenario, memory, _| {
            name.push_str(&format!(". {}: {}", summary::title(scenario), unit.amount(memory.needed())));
        });
    }
    let bars = bars(state);
    let layout = if alone {
        Layout { width, bar: 48, gap: 10, names: 0, amounts: 0, labelled: true, stretched: true }
    } else {
        Layout { width, bar: 28, gap: 10, names: 24, amounts: 80, labelled: false, stretched: true }
    };
    draw(&bars, unit, layout, &name)
}

/// One bar for each scenario that has an answer.
fn bars(state: State) -> Vec<Bar> {
    let alone = state.alone();
    let active = state.active.get();
    let bar = |(position, slot): (usize, Slot)| {
        slot.answer(|scenario, memory, gpu| Bar {
            name: if alone { String::new() } else { letter(position).to_owned() },
            segments: Bar::segments(&memory.peak().1.parts, memory.context),
            capacity: gpu.memory,
            apart: apart(scenario, gpu),
            faded: !alone && position != active,
        })
    };
    state.shown().enumerate().filter_map(bar).collect()
}

/// What the run leaves to others of its card, or has to.
fn apart(scenario: &Scenario, gpu: &Gpu) -> Option<Segment> {
    let bytes = scenario.card().ok()?.memory.saturating_sub(gpu.memory);
    (bytes > Bytes::ZERO).then(|| Segment { class: "apart".to_owned(), label: "others, margin", bytes })
}

/// The same chart as a picture that stands by itself, and its size.
pub fn card(state: State, width: u32) -> (String, (u32, u32)) {
    let unit = state.unit();
    let alone = state.alone();
    let mut told = Vec::new();
    for (position, slot) in state.shown().enumerate() {
        let Some((fit, verdict)) = slot.fit() else { continue };
        slot.scenario.with(|scenario| {
            let which = if alone { String::new() } else { format!("{}: ", letter(position)) };
            told.push(format!(
                "{which}{}, {}. {} {}.",
                if alone { summary::library(scenario) } else { summary::caption(scenario, unit) },
                unit.amount(fit.needed),
                verdict.label(),
                verdict::circumstances(&fit, verdict, scenario, unit)
            ));
        });
    }
    let mut bars = bars(state);
    bars.iter_mut().for_each(|bar| bar.faded = false);
    let amounts = |parts: &[Part]| -> Vec<Bytes> {
        let sum = |memory: &Memory| parts.iter().map(|part| part.at_peak(memory)).sum();
        state.shown().filter_map(|slot| slot.answer(|_, memory, _| sum(memory))).collect()
    };
    let words = |name: String, parts: &[Part]| match amounts(parts)[..] {
        [one] => format!("{name} {}", unit.amount(one)),
        _ => name,
    };
    // as on the page: what is small is told together
    let (large, small) = sizes(state);
    let named = |part: &Part| Named { class: part.class(), words: words(part.label().to_owned(), &[*part]) };
    let mut legend: Vec<_> = large.iter().map(named).collect();
    if !small.is_empty() {
        let name = format!("{} small parts", small.len());
        legend.push(Named { class: small[0].class(), words: words(name, &small) });
    }
    let heading = match alone {
        true => state.current().scenario.with(|scenario| summary::caption(scenario, unit)),
        false => "GPU memory".to_owned(),
    };
    let page = browser::address();
    let page = page.split(['#', '?']).next().unwrap_or_default();
    let from = page.split_once("://").map_or(page, |(_, rest)| rest).trim_end_matches('/');
    draw_card(&heading, &told, &bars, &legend, (unit, from), width)
}

/// The peaks of the phases of the active scenario.
fn phases(state: State, width: u32) -> String {
    let unit = state.unit();
    let layout =
        Layout { width, bar: 16, gap: 10, names: 128, amounts: 76, labelled: false, stretched: true };
    let drawn = state.current().answer(|scenario, memory, gpu| {
        let bars = bars_of_phases(scenario, memory, gpu);
        draw(&bars, unit, layout, "Bars of the memory at the peak of each phase")
    });
    drawn.unwrap_or_default()
}

/// One bar for each phase. Where a vLLM on the same card, awake all the while, generates the answers, that is the first: what lies there
/// between the steps, vLLM's share among it.
fn bars_of_phases(scenario: &Scenario, memory: &Memory, gpu: &Gpu) -> Vec<Bar> {
    let bar = |name: &str, parts: &Parts, faded: bool| Bar {
        name: name.to_owned(),
        segments: Bar::segments(parts, memory.context),
        capacity: gpu.memory,
        apart: None,
        faded,
    };
    let highest = memory.steady.highest().0;
    let generating = scenario.vllm_beside().map(|_| bar(Stage::Wake.title(), &memory.resting, true));
    let phases = memory
        .steady
        .phases
        .iter()
        .map(|(phase, peak)| bar(phase.stage.title(), &peak.parts, *phase != highest));
    generating.into_iter().chain(phases).collect()
}

/// What the first iteration does otherwise than those that are drawn.
fn first_iteration(state: State) -> String {
    let unit = state.unit();
    state.current().answer(|_, memory, _| remark(memory, unit)).unwrap_or_default()
}

fn remark(memory: &Memory, unit: Unit) -> String {
    let needed = |iteration: &Iteration| -> Bytes { iteration.highest().1.bytes + memory.context };
    let (first, later) = (needed(&memory.first), needed(&memory.steady));
    if first > later {
        let phase = memory.first.highest().0.label();
        format!(
            "Shown: every step after the first, which goes higher: {} in the {phase}.",
            unit.amount(first)
        )
    } else if first < later {
        format!(
            "Shown: every step after the first, which peaks at {}: there is no optimizer state before it.",
            unit.amount(first)
        )
    } else {
        "Shown: any step; the first goes as high.".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The float32 embedding and its 16-bit copy go with one setting: what it saves is not had twice.
    #[test]
    fn a_change_that_two_notes_suggest_is_one() {
        let detail = crate::ui::detail::Detail::of(&Scenario::default()).expect("an answer");
        let told = with_repeats(detail.notes);
        let of = |words: &str| told.iter().find(|(note, _)| note.words.contains(words)).expect(words).1;
        assert!(!of("prepare_model_for_kbit_training") && of("A 16-bit copy of") && !of("a fused loss"));
    }

    /// Logits and temporaries of one micro-batch: one sentence, one switch.
    #[test]
    fn what_is_said_of_two_parts_is_said_once() {
        let link = "task=grpo&b=8&ref=none&mask=padded&st=trl";
        let scenario = crate::share::decode(link).scenarios.remove(0);
        let notes = crate::ui::detail::Detail::of(&scenario).expect("an answer").notes;
        let sum = |notes: &mut dyn Iterator<Item = Bytes>| notes.sum::<Bytes>();
        let before = sum(&mut notes.iter().map(|note| note.bytes));
        let told = with_repeats(notes);
        let words: std::collections::HashSet<&str> =
            told.iter().map(|(note, _)| note.words.as_str()).collect();
        assert_eq!(words.len(), told.len());
        assert_eq!(sum(&mut told.iter().map(|(note, _)| note.bytes)), before);
    }

    /// When vLLM generates is a phase of its own, whether it sleeps in between or is there all the while.
    #[test]
    fn generating_beside_the_training_is_a_phase() {
        let link =
            "task=grpo&m=Qwen/Qwen2.5-0.5B&method=qlora&b=8&ref=none&mask=padded&st=trl&gpu=h100-sxm-80gb";
        let of = |rest: &str| {
            let scenario = crate::share::decode(&format!("{link}{rest}")).scenarios.remove(0);
            let memory = crate::estimate(&scenario).memory.expect("an answer");
            let bars = bars_of_phases(&scenario, &memory, &scenario.gpu().expect("a card"));
            let total = |bar: &Bar| bar.segments.iter().fold(Bytes::ZERO, |sum, part| sum + part.bytes);
            bars.iter().map(|bar| (bar.name.clone(), total(bar))).collect::<Vec<_>>()
        };
        let (awake, asleep, elsewhere) = (of("&vllm=30"), of("&vllm=30&vsleep=on"), of("&vllm=0"));
        let generates = |(name, _): &&(String, Bytes)| name == "Answers by vLLM";
        let [there, woken] = [&awake, &asleep].map(|bars| bars.iter().find(generates).expect("a bar").1);
        // 30 % of a card of 80 GB and the model beside it, and no more than the training has beside vLLM
        assert!(there > Bytes::gib(23.7) && woken > Bytes::gib(23.7), "{awake:?} {asleep:?}");
        assert!(awake.iter().all(|(_, bytes)| *bytes >= there), "{awake:?}");
        assert_eq!(awake[0].0, "Answers by vLLM");
        assert!(elsewhere.iter().find(generates).is_none() && awake.len() == elsewhere.len() + 1);
    }
}
