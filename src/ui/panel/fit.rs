//! What can be trained on a card: models by methods, each with the largest micro-batch.

use leptos::prelude::*;

use super::need::open;
use super::rows::pieces;
use crate::hardware::{Gpu, Vendor};
use crate::model::catalogue;
use crate::plan::{self, FitCell, FitRow};
use crate::scenario::{Allocator, Method, ModelChoice, Scenario};
use crate::ui::controls::{Cell, Column, Row, Slider, Table};
use crate::ui::desk::Place;
use crate::ui::format::{Unit, parameters};
use crate::ui::question::{Answer, Question};
use crate::ui::scale;
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::{Bytes, grouped};

/// The models of the table, small before large: those that people start from.
const MODELS: [&str; 15] = [
    "openai-community/gpt2",
    "meta-llama/Llama-3.2-1B-Instruct",
    "Qwen/Qwen2.5-1.5B",
    "google/gemma-2-2b",
    "meta-llama/Llama-3.2-3B-Instruct",
    "Qwen/Qwen3-4B",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen3-8B",
    "google/gemma-2-9b",
    "Qwen/Qwen3-14B",
    "mistralai/Mistral-Small-24B-Instruct-2501",
    "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.3-70B-Instruct",
    "mistralai/Mixtral-8x7B-v0.1",
];

/// The table of what can be trained.
#[component]
pub fn Models() -> impl IntoView {
    let state = State::of_page();
    let memory = move || {
        let own = || state.current().scenario.with(|scenario| scenario.gpu().map(|gpu| gpu.memory));
        state.budget().unwrap_or_else(|| own().unwrap_or_default())
    };
    let found = pieces(
        state,
        move || (Scenario { batch: 1, ..state.current().scenario.get() }, memory()),
        |(base, memory)| {
            let models = models(base);
            let ask = |model| Question::Row(Box::new(Scenario { model, ..base.clone() }), *memory);
            models.into_iter().map(ask).collect()
        },
        Place::Row,
        |answer| {
            let Answer::Row(row) = answer else { return None };
            Some(row)
        },
    );
    let conditions = move || state.current().scenario.with(conditions);
    // On a card that is not followed nothing is promised.
    let foreign = move || {
        let is_foreign = |gpu: Gpu| gpu.vendor != Vendor::Nvidia;
        state.budget().is_none()
            && state.current().scenario.with(|scenario| scenario.gpu().is_ok_and(is_foreign))
    };
    let set = move |gib: f64| {
        let card = untrack(|| state.current().scenario.with(|scenario| scenario.gpu.clone()));
        state.budget.set(Some((card, Bytes::gib(gib))));
    };
    let rows = Signal::derive(move || {
        let unit = state.unit();
        state.current().scenario.with(|scenario| {
            found.heard.with(|heard| {
                let models = models(scenario).into_iter().enumerate();
                models
                    .map(|(index, model)| {
                        let own = model == scenario.model;
                        let named = Scenario { model, ..scenario.clone() };
                        // What was computed of another scenario is not shown under the name of this one.
                        let row = heard
                            .get(index)
                            .and_then(Option::as_ref)
                            .filter(|row| row.model == named.model_name());
                        in_words(state, &named, own, row, unit)
                    })
                    .collect::<Vec<_>>()
            })
        })
    });
    let columns = Signal::derive(|| {
        let methods = Method::ALL.iter().map(|method| method.label());
        ["Model"].into_iter().chain(methods).map(|name| (name.to_owned(), None)).collect::<Vec<Column>>()
    });
    let class = Signal::derive(move || if foreign() { "panel fit foreign" } else { "panel fit" });
    view! {
        <section class=class aria-labelledby="fit-title">
            <h2 id="fit-title">"What can I train?"</h2>
            <div class="budget">
                <Slider
                    id="budget"
                    label="On a card with"
                    help="The memory of the card; the scenario's own until you change it."
                    scale=&scale::CARD
                    value=Signal::derive(move || (memory().as_gib() * 10.).round() / 10.)
                    set=Callback::new(set)
                    messages=Signal::stored(Vec::new())
                    unit="GiB"
                />
            </div>
            <p class="remark">{conditions}</p>
            <p class="message warning" hidden=Signal::derive(move || !foreign())>
                "By its tensors alone: this card’s kernels and allocator are not followed."
            </p>
            <Table
                caption="The largest micro-batch by model and method"
                class="fits"
                columns=columns
                rows=rows
                busy=found.busy
            />
        </section>
    }
}

/// The models of the table: first the scenario's own, where it is none of them anyway.
fn models(scenario: &Scenario) -> Vec<ModelChoice> {
    let mut models: Vec<_> = MODELS.iter().map(|id| ModelChoice::Catalogue((*id).into())).collect();
    if !models.contains(&scenario.model) {
        models.insert(0, scenario.model.clone());
    }
    models
}

/// What holds for every cell.
fn conditions(base: &Scenario) -> String {
    format!(
        "The largest micro-batch that fits, otherwise what a batch of 1 needs. Click to open. ᵉ needs expandable_segments. {}",
        plan::conditions(base)
    )
}

/// One model, and what was heard of it so far.
fn in_words(state: State, scenario: &Scenario, own: bool, row: Option<&FitRow>, unit: Unit) -> Row {
    let count = match &scenario.model {
        ModelChoice::Catalogue(id) => catalogue::find(id).map(|entry| entry.parameters),
        ModelChoice::Size(_) | ModelChoice::Custom(_) => {
            scenario.architecture().ok().map(|architecture| architecture.parameters())
        }
    };
    let cells = match row {
        None => vec![Cell::of("…"); Method::ALL.len()],
        Some(row) => row.cells.iter().map(|cell| content(state, cell, scenario.sequence, unit)).collect(),
    };
    Row {
        class: if own { "own" } else { "" },
        head: Cell { small: count.map(parameters).unwrap_or_default(), ..Cell::of(summary::model(scenario)) },
        cells,
        ..Row::default()
    }
}

/// What a cell says. The sequence length where it is another than the usual one.
fn content(state: State, cell: &FitCell, usual: u64, unit: Unit) -> Cell {
    match cell {
        FitCell::Fits { batch, scenario } => {
            let mark = if scenario.allocator == Allocator::Expandable { "ᵉ" } else { "" };
            let is_other = scenario.sequence != usual;
            let opened = scenario.clone();
            let told = format!("Opened {}, micro-batch {}", summary::title(scenario), grouped(*batch));
            Cell {
                small: if is_other { format!("× {}", grouped(scenario.sequence)) } else { String::new() },
                hint: format!("Open {}", summary::title(scenario)),
                act: Some(Callback::new(move |()| open(state, &opened, &told))),
                class: "fits",
                ..Cell::of(format!("batch {}{mark}", grouped(*batch)))
            }
        }
        FitCell::TooLarge { needed } => Cell::of(format!("needs {}", unit.amount(*needed))),
        FitCell::Unknown(issue) => Cell { hint: format!("no answer: {issue}"), ..Cell::of("–") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::desk::Desk;

    #[test]
    fn every_model_is_in_the_catalogue() {
        for model in MODELS {
            assert!(catalogue::find(model).is_some(), "{model}");
        }
    }

    #[test]
    fn a_cell_says_what_fits_or_what_it_needs() {
        let rows = plan::table(&["meta-llama/Llama-3.1-8B"], &Scenario::default(), Bytes::gib(24.));
        let row = Owner::new().with(|| {
            let state = State::new(Vec::new(), Desk::default());
            in_words(state, &Scenario::default(), true, rows.first(), Unit::Binary)
        });
        assert_eq!((row.class, row.head.text.as_str()), ("own", "Llama-3.1-8B"));
        let [full, _, qlora] = &row.cells[..] else { panic!("a cell per method") };
        assert!(full.text.starts_with("needs ") && full.text.ends_with("GiB"), "{}", full.text);
        assert!(
            qlora.text.starts_with("batch ") && qlora.hint == "Open Llama-3.1-8B · QLoRA",
            "{}",
            qlora.hint
        );
        assert_eq!(models(&Scenario::default()).len(), MODELS.len());
    }
}
