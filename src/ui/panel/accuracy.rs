//! How right the answer is: how that is known, and what was measured that is most like it.

use leptos::prelude::*;

use super::document::Document;
use super::measured::nearest_to;
use super::proof::Proof;
use super::speeds::Speeds;
use crate::accuracy::Band;
use crate::check::{Metric, Run};
use crate::scenario::Scenario;
use crate::ui::browser;
use crate::ui::controls::{Cell, Row, Table, columns, explained};
use crate::ui::format::{Unit, parameters};
use crate::ui::known;
use crate::ui::proof::{metric, settings, signed, software};
use crate::ui::state::{Measured, State};
use crate::ui::summary::differences;
use crate::units::grouped;

/// The band of the answer, and the measured runs behind it.
#[component]
pub fn Accuracy() -> impl IntoView {
    let state = State::of_page();
    Effect::new(move || {
        let is_there = matches!(state.measured.get(), Measured::Here(_) | Measured::Failed(_));
        if let Some(heading) = state.sought.get().filter(|_| is_there) {
            state.sought.set(None);
            request_animation_frame(move || browser::go_to(heading));
        }
    });
    let told = move || {
        let band = state.current().close_look().and_then(|detail| detail.measured_error());
        let sentences = known::known(band.as_ref());
        let told = |(index, sentence): (usize, String)| {
            view! { <p>{explained(&format!("known-{index}"), &sentence)}</p> }
        };
        sentences.into_iter().enumerate().map(told).collect::<Vec<_>>()
    };
    view! {
        <div class="panels proof">
            <Nearest />
            <section class="panel prose">
                <h2>"How we know"</h2>
                {told}
                <p class="tools-row">
                    <Document at="formulas.html" text="Every term: formula, source, known error" />
                    <Document at="accuracy.html" text="How right it is, file by file" />
                </p>
            </section>
            <Proof />
            <Speeds />
        </div>
    }
}

/// The measured run that is most like the scenario: how far off it was, and what differs.
#[component]
fn Nearest() -> impl IntoView {
    let state = State::of_page();
    let found = Memo::new(move |_| {
        let measured = state.measured.get();
        state.current().scenario.with(|scenario| nearest_to(&measured, scenario))
    });
    let told = move || {
        let band = state.current().close_look().and_then(|detail| detail.measured_error());
        let said = |run: &Run| {
            let beyond = band.and_then(|band| beyond(run, &band)).unwrap_or_default();
            sentence(run) + &beyond
        };
        found.with(|run| run.as_ref().map(said).unwrap_or_default())
    };
    let figures = Signal::derive(move || {
        let unit = state.unit();
        found.with(|run| run.as_ref().map(|run| figures(run, unit)).unwrap_or_default())
    });
    let differ = Signal::derive(move || {
        let Some(run) = found.get() else { return Vec::new() };
        state.current().scenario.with(|scenario| differing(scenario, &run))
    });
    let differs = Signal::derive(move || differ.with(Vec::is_empty));
    let open = move |beside: bool| {
        let Some(scenario) = found.get_untracked().and_then(|run| run.scenario()) else { return };
        if beside {
            state.put_beside(scenario);
        } else {
            state.open(scenario, "Opened the measured run");
        }
    };
    view! {
        <section class="panel" hidden=Signal::derive(move || found.with(Option::is_none))>
            <h2>"The nearest measured run"</h2>
            <p class="remark">{move || explained("nearest", &told())}</p>
            <Table
                caption="The nearest measured run, measured and predicted"
                class="measured"
                columns=Signal::stored(columns(["Figure", "Measured", "Predicted", "Error"]))
                rows=figures
            />
            <p class="remark" hidden=Signal::derive(move || !differs.get())>
                "It is this scenario: nothing differs."
            </p>
            <div hidden=differs>
                <Table
                    caption="What differs between this scenario and the nearest measured run"
                    class="differences"
                    columns=Signal::stored(columns(["What differs", "Here", "Measured run"]))
                    rows=differ
                />
            </div>
            <p class="tools-row">
                <button type="button" class="tool" on:click=move |_| open(false)>
                    "Open that run"
                </button>
                <button type="button" class="tool" on:click=move |_| open(true)>
                    "Compare with it"
                </button>
            </p>
        </section>
    }
}

/// What the model is called; one that was made for the measurement has no name of its own.
pub(super) fn model(run: &Run) -> String {
    match run.model.as_str() {
        "model" => format!("a {} of {} parameters", run.family, parameters(run.parameters)),
        name => name.to_owned(),
    }
}

/// What ran, and where.
fn sentence(run: &Run) -> String {
    let gpus = if run.gpus > 1 { format!("{} GPUs, ", grouped(run.gpus)) } else { String::new() };
    format!(
        "{}, {}: {}; {gpus}micro-batch {} × {} tokens. Measured on: {}.",
        model(run),
        software(&run.software),
        settings(&run.settings),
        grouped(run.batch),
        grouped(run.sequence),
        run.device
    )
}

/// Where the run is off by more than the band of the answer: of what that is.
fn beyond(run: &Run, band: &Band) -> Option<String> {
    let off = |wanted: &Metric| Some((*wanted, run.figure(*wanted)?.error_pct()));
    // what was predicted too high needed less
    let is_beyond = |(_, percent): &(Metric, f64)| *percent > band.percent || -percent > band.more_percent;
    let (metric, percent) = Metric::ALL.iter().filter_map(off).find(is_beyond)?;
    Some(format!(
        " Off by {} in its {}: the measured error of this answer, {}, is that of the allocated peak in {}.",
        signed(percent),
        self::metric(metric).to_lowercase(),
        band.in_words(),
        band.rests_on()
    ))
}

fn figures(run: &Run, unit: Unit) -> Vec<Row> {
    let row = |wanted: Metric| {
        let figure = run.figure(wanted)?;
        Some(Row {
            head: Cell::of(metric(wanted)),
            cells: vec![
                Cell::of(unit.amount(figure.measured)),
                Cell::of(unit.amount(figure.predicted)),
                Cell::of(signed(figure.error_pct())),
            ],
            ..Row::default()
        })
    };
    Metric::ALL.into_iter().filter_map(row).collect()
}

/// The inputs in which a scenario differs from a run.
fn differing(scenario: &Scenario, run: &Run) -> Vec<Row> {
    let Some(measured) = run.scenario() else { return Vec::new() };
    let row = |(name, mut values): (&str, Vec<String>)| {
        // the card of its link stands for what it ran on
        if name == "GPU"
            && run.is_over_null_device()
            && let Some(card) = values.last_mut()
        {
            card.clone_from(&run.device);
        }
        Row { head: Cell::of(name), cells: values.into_iter().map(Cell::of).collect(), ..Row::default() }
    };
    differences(&[scenario.clone(), measured]).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::Evidence;
    use crate::check::check_runs;

    #[test]
    fn a_run_says_what_it_was_and_what_differs() {
        let row = r#"[{"id": "mine", "gpu_model": "Tesla T4", "reading": {
            "scenario": {"model": "gpt2", "method": "full", "precision": "bf16", "batch-size": 4, "seq-length": 1024},
            "metric": "allocated", "bytes": 3000000000}}]"#;
        let run = &check_runs("mine", row).expect("an array").1[0];
        assert!(
            sentence(run).contains("micro-batch 4 × 1,024 tokens. Measured on: Tesla T4."),
            "{}",
            sentence(run)
        );
        let unnamed = Run { model: "model".to_owned(), ..run.clone() };
        assert!(sentence(&unnamed).starts_with("a gpt2 of 124M parameters, transformers"));
        assert_eq!(figures(run, Unit::Decimal)[0].cells[0].text, "3.00\u{a0}GB");
        // its own error is not within the band of other runs: what that is of is said
        let band = |percent| Band {
            percent,
            more_percent: percent,
            reserved_percent: None,
            evidence: Evidence::SameKind,
            rows: 7,
            on_cards: 2,
        };
        assert_eq!(beyond(run, &band(1000.)), None);
        let told = beyond(run, &band(0.)).expect("it is off");
        let of = "in its allocated peak: the measured error of this answer, ±0.0 %, is that of the allocated peak in 7 runs of this kind, 2 on real GPUs.";
        assert!(told.starts_with(" Off by ") && told.ends_with(of), "{told}");
        let rows = differing(&Scenario::default(), run);
        assert!(rows.iter().any(|row| row.head.text == "Model"));
        assert!(differing(&run.scenario().expect("a link"), run).is_empty());
    }
}
