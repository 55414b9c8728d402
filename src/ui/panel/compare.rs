//! Scenarios side by side: which of them the controls change, and in what they differ.

use leptos::prelude::*;

use super::accuracy::model;
use super::answer::Peak;
use super::curves::{CURVES, Curves};
use super::document::Grounds;
use super::measured::{fetch, nearest_to};
use crate::check::{Metric, Run};
use crate::memory::Parameters;
use crate::plan::{OnCard, Outcome, with_method};
use crate::scenario::{Method, Scenario};
use crate::share::MOST_SCENARIOS;
use crate::ui::behind::Behind;
use crate::ui::browser;
use crate::ui::controls::{Cell, Row, Table};
use crate::ui::detail::Detail;
use crate::ui::figures;
use crate::ui::format::{Unit, parameters};
use crate::ui::markup::unbroken;
use crate::ui::proof::{self, signed};
use crate::ui::state::{Measured, Slot, State, letter};
use crate::ui::summary;
use crate::ui::verdict::margin;
use crate::ui::view::View;
use crate::units::{Between, Bytes, shortest};

/// The scenarios on the page and what can be done with them.
#[component]
pub fn Tabs() -> impl IntoView {
    let state = State::of_page();
    let tab = move |position: usize| {
        let active = Signal::derive(move || state.active.get() == position);
        let name = Signal::derive(move || {
            state.names.with(|names| names.get(position).cloned().unwrap_or_default())
        });
        view! {
            <li hidden=Signal::derive(move || state.is_free(position)) class:active=active>
                <button
                    type="button"
                    class="tab"
                    aria-pressed=Signal::derive(move || active.get().to_string())
                    on:click=move |_| state.active.set(position)
                >
                    <b>{letter(position)}</b>
                    <span title=name>{name}</span>
                </button>
                <button
                    type="button"
                    class="remove"
                    hidden=position == 0
                    title="Compare the others with this one"
                    aria-label=format!("Swap {} and A", letter(position))
                    on:click=move |_| state.swap(position)
                >
                    "⇄"
                </button>
                <button
                    type="button"
                    class="remove"
                    aria-label=format!("Remove {}", letter(position))
                    on:click=move |_| state.remove(position)
                >
                    "×"
                </button>
            </li>
        }
    };
    let counts = Signal::derive(move || {
        let counts =
            state.current().answer(|scenario, memory, _| unbroken(&counts(scenario, &memory.parameters)));
        counts.unwrap_or_default()
    });
    let is_full = Signal::derive(move || !state.is_free(MOST_SCENARIOS - 1));
    let why = Signal::derive(move || {
        if is_full.get() {
            format!("{MOST_SCENARIOS} scenarios at most: remove one first")
        } else {
            "Keeps this scenario and puts a copy beside it to change".to_owned()
        }
    });
    view! {
        <div class="tabs" role="group" aria-label="Scenarios">
            <p class="title" hidden=Signal::derive(move || !state.alone())>
                {counts}
            </p>
            <ul hidden=Signal::derive(move || state.alone())>{(0..MOST_SCENARIOS).map(tab).collect::<Vec<_>>()}</ul>
            <button
                type="button"
                class="compare"
                disabled=is_full
                title=why
                on:click=move |_| state.duplicate()
            >
                {move || if state.alone() { "Compare" } else { "Add a copy" }}
            </button>
        </div>
    }
}

/// How many parameters there are, and how many of them are trained.
fn counts(scenario: &Scenario, counts: &Parameters) -> String {
    let with =
        if scenario.task.trains() && scenario.method.has_adapters() { " with its adapters" } else { "" };
    // of a model whose layers GPUs share a GPU has a part
    let of_part = if scenario.divided().parts() > 1 { " on this GPU" } else { "" };
    let total = format!("{} parameters{with}{of_part}", parameters(counts.total));
    if counts.trainable == 0 {
        total
    } else if counts.trainable == counts.total {
        format!("{total}, all trained")
    } else {
        let share = shortest(counts.trainable as f64 / counts.total as f64 * 100., 2);
        format!("{total}, {} trained ({share} %)", parameters(counts.trainable))
    }
}

/// Scenarios side by side: what differs, what comes of it, and their parts on one axis.
#[component]
pub fn Compare() -> impl IntoView {
    let state = State::of_page();
    let alone = Signal::derive(move || state.alone());
    Effect::new(move || {
        if !alone.get() {
            fetch(state);
        }
    });
    let columns = Signal::derive(move || {
        let letters = (0..state.count.get()).map(letter);
        ["Scenario"].into_iter().chain(letters).map(str::to_owned).collect::<Vec<_>>()
    });
    let rows = Signal::derive(move || {
        let mut rows = differences(&state.scenarios());
        rows.extend(outcomes(state));
        rows.push(nearest_runs(state));
        rows
    });
    // One of each method is what most people want to see side by side.
    let other = move |method: &Method| {
        let method = *method;
        let is_own = move || state.current().scenario.with(|scenario| scenario.method == method);
        let add = move |_| {
            let now = untrack(|| state.current().scenario.get());
            state.put_beside(with_method(&now, method));
        };
        view! {
            <button type="button" class="lever" hidden=is_own on:click=add>
                <b>{method.label()}</b>
                <small>"the same model on the same card"</small>
            </button>
        }
    };
    view! {
        <section class="panel" hidden=Signal::derive(move || !alone.get())>
            <h2>"Compare with"</h2>
            <div class="lever-buttons">
                {Method::ALL.iter().map(other).collect::<Vec<_>>()}
                <button type="button" class="lever" on:click=move |_| state.duplicate()>
                    <b>"A copy"</b>
                    <small>"change it, and see what comes of it"</small>
                </button>
            </div>
        </section>
        <section class="panel" hidden=alone>
            <h2>"What differs"</h2>
            <Table
                caption="Inputs in which the scenarios differ"
                class="differences"
                columns=columns
                rows=rows
            />
            <Grounds of=Behind::Needs />
        </section>
        <Peak />
        {move || {
            (!alone.get())
                .then(|| {
                    view! {
                        <section class="panel" aria-labelledby="curves-title">
                            <h2 id="curves-title">{CURVES}</h2>
                            <Curves />
                        </section>
                    }
                })
        }}
    }
}

/// The inputs in which scenarios differ; what is otherwise than in the first stands out.
fn differences(scenarios: &[Scenario]) -> Vec<Row> {
    let row = |(name, values): (&str, Vec<String>)| {
        let first = values.first().cloned();
        let cell = |value: String| {
            let class = if first.as_ref() == Some(&value) { "" } else { "changed" };
            Cell { class, ..Cell::of(value) }
        };
        Row { head: Cell::of(name), cells: values.into_iter().map(cell).collect(), ..Row::default() }
    };
    let rows: Vec<Row> = summary::differences(scenarios).into_iter().map(row).collect();
    if rows.is_empty() {
        return vec![Row {
            head: Cell::of("Nothing yet: change a setting, and it shows here"),
            cells: vec![Cell::of("–"); scenarios.len()],
            ..Row::default()
        }];
    }
    rows
}

/// What comes of them: the three figures, each with its difference to the first, the verdict and the speed.
fn outcomes(state: State) -> Vec<Row> {
    let unit = state.unit();
    let amounts = |name: &str, look: fn(&Detail) -> Option<Reached>| {
        let found: Vec<Option<Reached>> =
            state.shown().map(|slot| slot.close_look().and_then(|detail| look(&detail))).collect();
        let cell = |reached: &Option<Reached>| {
            reached.map_or_else(|| Cell::of("–"), |reached| outcome(reached, found[0], unit))
        };
        Row {
            class: "outcome",
            head: Cell::of(name),
            cells: found.iter().map(cell).collect(),
            ..Row::default()
        }
    };
    let verdict = |slot: Slot| match slot.fit() {
        None => Cell::of("No answer"),
        Some((fit, verdict)) => {
            Cell { small: margin(&fit, verdict, unit), class: verdict.slug(), ..Cell::of(verdict.label()) }
        }
    };
    let speed = |slot: Slot| {
        let pace = slot.fit().and_then(|(_, verdict)| {
            slot.answer(|scenario, memory, _| figures::speed(scenario, memory, verdict)).flatten()
        });
        pace.map_or_else(|| Cell::of("–"), |pace| Cell { small: pace.note, ..Cell::of(pace.amount) })
    };
    vec![
        amounts("Needs", |detail| {
            let bytes = detail.memory.needed();
            Some(Reached { bytes, most: bytes, fails: false })
        }),
        amounts("PyTorch reserves", |detail| reached(detail, |on_card| on_card.reserved)),
        amounts("nvidia-smi shows", |detail| {
            let reached = reached(detail, |on_card| on_card.shown)?;
            let (on_card, gpu) = (detail.on_card.as_ref().ok()?, detail.scenario.gpu().ok()?);
            // a run that failed before NCCL was seen says nothing of it
            Some(if reached.fails { reached } else { reached.of(on_card.with(detail.scenario.nccl(), &gpu)) })
        }),
        Row {
            class: "outcome",
            head: Cell::of("On its card"),
            cells: state.shown().map(verdict).collect(),
            ..Row::default()
        },
        Row {
            class: "outcome",
            head: Cell::of("Tokens per second, roughly"),
            cells: state.shown().map(speed).collect(),
            ..Row::default()
        },
    ]
}

/// How far off the measured run was that is most like each of them; a click shows it.
fn nearest_runs(state: State) -> Row {
    let measured = state.measured.get();
    let cell = |(position, slot): (usize, Slot)| {
        let found = slot.scenario.with(|scenario| nearest_to(&measured, scenario));
        let show = Callback::new(move |()| {
            state.active.set(position);
            state.view.set(View::Accuracy);
            browser::scroll_to_top();
        });
        match (found, &measured) {
            (Some(run), _) => Cell { act: Some(show), ..missed_by(&run) },
            (None, Measured::Awaited) => Cell::of("…"),
            (None, Measured::Unasked | Measured::Here(_) | Measured::Failed(_)) => Cell::of("–"),
        }
    };
    Row {
        class: "outcome",
        head: Cell::of("Nearest measured run"),
        cells: state.shown().enumerate().map(cell).collect(),
        ..Row::default()
    }
}

/// How far off a run's allocated peak was, which is what the measured error is of, or what else was measured of it; which run it is, and
/// what it ran on.
fn missed_by(run: &Run) -> Cell {
    let over = if run.is_over_null_device() { "PyTorch without a GPU" } else { "a real GPU" };
    let figure = Metric::ALL.into_iter().find_map(|metric| Some((metric, run.figure(metric)?)));
    figure.map_or_else(
        || Cell::of("–"),
        |(metric, figure)| Cell {
            small: format!("{}, {}, {over}", proof::metric(metric).to_lowercase(), model(run)),
            hint: format!("Show this run: {}", run.id),
            ..Cell::of(signed(figure.error_pct()))
        },
    )
}

/// An amount, or the range that it is in, and whether the run gets no further than that.
#[derive(Clone, Copy)]
struct Reached {
    bytes: Bytes,
    most: Bytes,
    fails: bool,
}

impl Reached {
    /// The same of another amount, which is known as a range.
    fn of(self, Between { least, most }: Between) -> Reached {
        Reached { bytes: least, most, ..self }
    }

    fn in_words(self, unit: Unit) -> String {
        unit.between(Between { least: self.bytes, most: self.most })
    }
}

/// What a run comes to on its card.
fn reached(detail: &Detail, pick: fn(&OnCard) -> Bytes) -> Option<Reached> {
    let on_card = detail.on_card.as_ref().ok()?;
    let bytes = pick(on_card);
    Some(Reached { bytes, most: bytes, fails: matches!(on_card.outcome, Outcome::Fails(_)) })
}

/// An amount with its difference to the first, but where one of the two is what a run had when it failed.
fn outcome(reached: Reached, first: Option<Reached>, unit: Unit) -> Cell {
    let bytes = reached.bytes;
    if reached.fails {
        return Cell { small: "until it fails".to_owned(), ..Cell::of(unit.amount(bytes)) };
    }
    let first = first.filter(|first| first.bytes != bytes && !first.fails);
    let small = first.map(|first| unit.difference(first.bytes, bytes)).unwrap_or_default();
    let class = if small.starts_with('+') { "more" } else { "less" };
    Cell { small, class, ..Cell::of(reached.in_words(unit)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_had_when_it_failed_is_compared_with_nothing() {
        let [whole, failed, other] = [(4, false), (2, true), (3, false)].map(|(gib, fails)| Reached {
            bytes: Bytes(gib << 30),
            most: Bytes(gib << 30),
            fails,
        });
        let small = |one, first| outcome(one, Some(first), Unit::Binary).small;
        assert_eq!(small(failed, whole), "until it fails");
        assert_eq!(small(whole, failed), "");
        assert_eq!(small(other, whole), "−1.00\u{a0}GiB");
        // beside other GPUs it is a range, as in the answer above
        let range = Between { least: Bytes::gib(3.5), most: Bytes::gib(4.5) };
        assert_eq!(
            outcome(other.of(range), Some(whole.of(range)), Unit::Binary).text,
            "3.50 to 4.50\u{a0}GiB"
        );
    }

    #[test]
    fn a_compared_scenario_has_the_error_of_its_nearest_run() {
        let runs = crate::check::read_runs(include_str!("../../../data/measured.tsv"));
        let own = runs.iter().find(|run| run.id == "full-bf16-gpt2-b8-s1024").expect("a measured run");
        let scenario = own.scenario().expect("a link");
        let found = nearest_to(&Measured::Here(std::sync::Arc::new(runs.clone())), &scenario);
        let cell = missed_by(&found.expect("the run itself"));
        let error = own.figure(Metric::Allocated).expect("a figure").error_pct();
        assert_eq!(cell.text, signed(error));
        assert!(
            cell.hint.ends_with(&own.id) && cell.small.starts_with("allocated peak, gpt2"),
            "{}",
            cell.small
        );
        // columns are of one quantity where it was measured by that software
        let measured = Measured::Here(std::sync::Arc::new(runs.clone()));
        for link in ["method=lora", "method=full"] {
            let found = nearest_to(&measured, &crate::share::decode(link).scenarios[0]);
            assert!(found.is_some_and(|run| run.figure(Metric::Allocated).is_some()), "{link}");
        }
        assert_eq!(nearest_to(&Measured::Awaited, &scenario), None);
    }

    #[test]
    fn what_differs_stands_out() {
        let first = Scenario::default();
        let same = differences(&[first.clone(), first.clone()]);
        assert!(same[0].head.text.starts_with("Nothing yet") && same[0].cells.len() == 2);
        let second = Scenario { batch: 4, ..first.clone() };
        let rows = differences(&[first, second]);
        assert_eq!(rows[0].head.text, "Micro-batch size");
        assert_eq!((rows[0].cells[0].class, rows[0].cells[1].class), ("", "changed"));
    }

    #[test]
    fn trained_parameters_are_told_from_frozen_ones() {
        let lora = Scenario::default();
        let some = Parameters { total: 8_072_204_288, trainable: 41_943_040 };
        assert_eq!(counts(&lora, &some), "8.07B parameters with its adapters, 41.9M trained (0.52 %)");
        let full = Scenario { method: Method::Full, ..lora };
        let all = Parameters { total: 124_439_808, trainable: 124_439_808 };
        assert_eq!(counts(&full, &all), "124M parameters, all trained");
    }
}
