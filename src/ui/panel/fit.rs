//! What can be trained on a card: models by methods, each with the largest micro-batch.

use leptos::prelude::*;

use super::document::Grounds;
use super::need::open;
use super::rows::{pieces, summed_up};
use crate::hardware::{Gpu, Vendor};
use crate::model::catalogue;
use crate::plan::{self, FitCell, FitRow, LargestModel, Measure, Verdict, largest_in_words};
use crate::scenario::{Method, ModelChoice, Scenario, Stack};
use crate::ui::asked::{Listed, MOST_MODELS};
use crate::ui::behind::Behind;
use crate::ui::controls::{Cell, Row, Select, Slider, Table, TextBox};
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
    let asked = state.asked;
    let memory = move || {
        state.current().scenario.with(|scenario| {
            let own = || scenario.gpu().map(|gpu| gpu.memory).unwrap_or_default();
            asked.memory(scenario).unwrap_or_else(own)
        })
    };
    let base =
        move || Scenario { batch: 1, ..state.current().scenario.with(|scenario| asked.in_library(scenario)) };
    let models = move || asked.models().unwrap_or_else(|| state.current().scenario.with(usual_models));
    let found = pieces(
        state,
        move || (base(), models(), memory(), asked.measure.get()),
        |(base, models, memory, measure)| {
            let ask = |model: &ModelChoice| {
                Question::Row(Box::new(Scenario { model: model.clone(), ..base.clone() }), *memory, *measure)
            };
            models.iter().map(ask).collect()
        },
        Place::Row,
        |answer| {
            let Answer::Row(row) = answer else { return None };
            Some(row)
        },
    );
    let largest = pieces(
        state,
        move || (base(), asked.words.get(), memory(), asked.measure.get()),
        |(base, words, memory, measure)| {
            let ask = |method| {
                Question::Largest(Box::new(base.clone()), words.clone(), *memory, *measure, method as usize)
            };
            measure.methods(base.task).map(ask).collect()
        },
        Place::Largest,
        |answer| {
            let Answer::Largest(found) = answer else { return None };
            found
        },
    );
    let largest_by_method = move || {
        let methods: Vec<Method> = asked.measure.get().methods(base().task).collect();
        let heard = largest.heard.get();
        methods
            .into_iter()
            .zip(heard)
            .filter_map(|(method, found)| Some((method, *found?)))
            .collect::<Vec<_>>()
    };
    // On a card that is not followed nothing is promised.
    let foreign = move || {
        let is_foreign = |gpu: Gpu| gpu.vendor != Vendor::Nvidia;
        state
            .current()
            .scenario
            .with(|scenario| asked.memory(scenario).is_none() && scenario.gpu().is_ok_and(is_foreign))
    };
    // What was computed of another scenario is not shown under the name of this one.
    let listed = move || {
        let base = base();
        let with_row = |(index, model)| {
            let named = Scenario { model, ..base.clone() };
            let row = found.heard.with(|heard| heard.get(index).cloned().flatten());
            let row = row.filter(|row: &FitRow| row.model == named.model_name());
            (named, row)
        };
        models().into_iter().enumerate().map(with_row).collect::<Vec<_>>()
    };
    let rows = Signal::derive(move || {
        let unit = state.unit();
        let own = state.current().scenario.with(|scenario| scenario.model.clone());
        let row = |(named, row): (Scenario, Option<FitRow>)| {
            in_words(state, &named, named.model == own, row.as_ref(), unit)
        };
        listed().into_iter().map(row).collect::<Vec<_>>()
    });
    let told = move || {
        let listed = listed();
        match listed.is_empty() {
            true => asked.words.with(|words| format!("No model is called “{}”.", words.trim())),
            false => summed_up(largest.busy, largest.stopped, "Looking for the largest models …", || {
                largest_in_words(&largest_by_method(), base().task)
            }),
        }
    };
    let left_out = move || {
        asked.more_models().map(|meant| {
            format!("The {MOST_MODELS} nearest of {meant} models with such a name: more words, such as “qwen3 8b” or “qwen <10b”, list others.")
        })
    };
    let columns = Signal::derive(move || {
        let task = state.current().scenario.with(|scenario| scenario.task);
        let methods = asked.measure.get().methods(task).map(|method| task.method_label(method));
        ["Model"].into_iter().chain(methods).map(str::to_owned).collect::<Vec<_>>()
    });
    view! {
        <Asking memory=Signal::derive(memory) />
        <p class="remark" aria-live="polite">
            {told}
        </p>
        <p class="tools-row">{move || opened(state, &largest_by_method())}</p>
        <p class="message warning" hidden=Signal::derive(move || !foreign())>
            "By its tensors alone: this card’s kernels and allocator are not followed."
        </p>
        <div class:foreign=foreign>
            <Table
                caption="What fits, by model and method"
                class="fits"
                columns=columns
                rows=rows
                busy=found.busy
                stopped=found.stopped
                listing=asked.listing(Listed::Models)
            />
        </div>
        <p class="remark" hidden=Signal::derive(move || asked.more_models().is_none())>
            {left_out}
        </p>
        <p class="remark">{move || conditions(&base(), asked.measure.get())}</p>
        <p class="remark" hidden=Signal::derive(move || !listed().iter().any(is_larger_in_4_bits))>
            "QLoRA needs more than LoRA where most of the weights are experts: transformers keeps those of a layer as one parameter, \
             which bitsandbytes leaves in 16 bits, and prepare_model_for_kbit_training makes float32 of it."
        </p>
        <Grounds of=Behind::Limits />
    }
}

/// What the table is asked about: the memory, the library and the models.
#[component]
fn Asking(
    /// The memory that is asked about.
    memory: Signal<Bytes>,
) -> impl IntoView {
    let state = State::of_page();
    let asked = state.asked;
    let scenario = move || untrack(|| state.current().scenario.get());
    let set_memory = move |gib: f64| asked.set_memory(&scenario(), Bytes::gib(gib));
    let library = Signal::derive(move || {
        let library = state.current().scenario.with(|scenario| asked.library(scenario));
        Stack::ALL.iter().position(|other| *other == library).unwrap_or_default()
    });
    let set_library = move |index: usize| {
        if let Some(library) = Stack::ALL.get(index) {
            asked.set_library(&scenario(), *library);
        }
    };
    let set_words = move |words: String| {
        asked.words.set(words);
        Ok(())
    };
    view! {
        <div class="asking">
            <Slider
                id="budget"
                label="On a card with"
                help="The memory of the card; the scenario's own until you change it."
                scale=&scale::CARD
                value=Signal::derive(move || (memory.get().as_gib() * 10.).round() / 10.)
                set=Callback::new(set_memory)
                messages=Signal::stored(Vec::new())
                unit="GiB"
            />
            <Select
                id="table-stack"
                label="With the library"
                help="The training library of every cell; the scenario's own until you change it."
                choices=Stack::CHOICES
                value=library
                set=Callback::new(set_library)
                messages=Signal::stored(Vec::new())
            />
            <Select
                id="table-cells"
                label="Cells say"
                help="What of it is looked for in every cell."
                choices=&Measure::CHOICES
                value=Signal::derive(move || asked.measure.get() as usize)
                set=Callback::new(move |index: usize| asked.measure.set(Measure::ALL.get(index).copied().unwrap_or_default()))
                messages=Signal::stored(Vec::new())
            />
            <TextBox
                id="table-models"
                label="Models"
                help="A part of their names and sizes, such as qwen3, coder 7b or llama <10b; models that people start from where this is empty."
                value=Signal::derive(move || asked.words.get())
                set=Callback::new(set_words)
                messages=Signal::stored(Vec::new())
            />
        </div>
    }
}

/// What opens the largest models, each with the most of it that fits.
fn opened(state: State, found: &[(Method, LargestModel)]) -> Vec<impl IntoView + use<>> {
    let button = |(_, largest): &(Method, LargestModel)| {
        let FitCell::Fits { scenario, .. } = &largest.sure.as_ref()?.cell else { return None };
        let scenario = scenario.clone();
        let title = summary::title(&scenario);
        let told = format!("Opened {title}");
        Some(view! {
            <button type="button" class="tool" on:click=move |_| open(state, &scenario, &told)>
                {format!("Open {title}")}
            </button>
        })
    };
    found.iter().filter_map(button).collect()
}

/// The models of the table: first the scenario's own, where it is none of them anyway.
fn usual_models(scenario: &Scenario) -> Vec<ModelChoice> {
    let mut models: Vec<_> = MODELS.iter().map(|id| ModelChoice::Catalogue((*id).into())).collect();
    if !models.contains(&scenario.model) {
        models.insert(0, scenario.model.clone());
    }
    models
}

/// What holds for every cell.
fn conditions(base: &Scenario, measure: Measure) -> String {
    let said = match measure {
        Measure::Batch => "The largest micro-batch that fits, otherwise what a batch of 1 needs.",
        Measure::Length => "The longest sequence that fits, otherwise what a single token needs.",
        Measure::Rank => "The largest rank that fits, otherwise what rank 1 needs.",
    };
    format!("{said} Click to open. {}", plan::conditions(base, measure))
}

/// Whether 4-bit weights take more than 16-bit ones.
fn is_larger_in_4_bits((_, row): &(Scenario, Option<FitRow>)) -> bool {
    let needed = |method: Method| {
        let at = Method::ALL.iter().position(|other| *other == method)?;
        match row.as_ref()?.cells.get(at)? {
            FitCell::TooLarge { needed } => Some(*needed),
            FitCell::Fits { .. } | FitCell::Unknown(_) => None,
        }
    };
    needed(Method::Qlora).zip(needed(Method::Lora)).is_some_and(|(in_4_bits, in_16)| in_4_bits > in_16)
}

/// The parameters of a scenario's model.
fn count(scenario: &Scenario) -> Option<u64> {
    match &scenario.model {
        ModelChoice::Catalogue(id) => catalogue::find(id).map(|entry| entry.parameters),
        ModelChoice::Size(_) | ModelChoice::Custom(_) => {
            scenario.architecture().ok().map(|architecture| architecture.parameters())
        }
    }
}

/// One model, and what was heard of it so far.
fn in_words(state: State, scenario: &Scenario, own: bool, row: Option<&FitRow>, unit: Unit) -> Row {
    let measure = state.asked.measure.get();
    let methods: Vec<Method> = measure.methods(scenario.task).collect();
    let cells = match row {
        None => vec![Cell::of("…"); methods.len()],
        Some(row) => {
            let cells = Method::ALL.iter().zip(&row.cells).filter(|(method, _)| methods.contains(method));
            cells.map(|(_, cell)| content(state, cell, (scenario, measure), unit)).collect()
        }
    };
    Row {
        class: if own { "own" } else { "" },
        head: Cell {
            small: count(scenario).map(parameters).unwrap_or_default(),
            sorted_as: count(scenario).map(|count| count as f64),
            ..Cell::of(summary::model(scenario))
                .taken("", summary::model(scenario))
                .taken(": parameters", count(scenario).map(|count| count.to_string()).unwrap_or_default())
        },
        cells,
        ..Row::default()
    }
}

/// What a cell says; the sequence length and the allocator where they are others than asked for.
fn content(state: State, cell: &FitCell, (asked, measure): (&Scenario, Measure), unit: Unit) -> Cell {
    match cell {
        FitCell::Fits { batch, verdict, scenario, .. } => {
            let expandable =
                (scenario.allocator != asked.allocator).then(|| "expandable segments".to_owned());
            let is_close = cell.is_close();
            let tokens = grouped(scenario.sequence);
            let (said, found) = match measure {
                Measure::Batch => (format!("batch {}", grouped(*batch)), *batch),
                Measure::Length => (format!("{tokens} tokens"), scenario.sequence),
                Measure::Rank => (scenario.lora.tuner.sized(scenario.lora.rank), scenario.lora.rank),
            };
            let length = (measure != Measure::Length && scenario.sequence != asked.sequence)
                .then(|| format!("× {tokens}"));
            let close = is_close.then(|| verdict.label().to_lowercase());
            let opened = scenario.clone();
            let told = format!("Opened {}, {said}", summary::title(scenario));
            Cell {
                small: [length, cell.layout(), close, expandable]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(", "),
                hint: format!("Open {}", summary::title(scenario)),
                act: Some(Callback::new(move |()| open(state, &opened, &told))),
                class: if is_close { "close" } else { "fits" },
                ..Cell::gain(said, found as f64)
                    .taken(": sequences", batch)
                    .taken(": tokens of each", scenario.sequence)
                    .judged(verdict.slug())
                    .taken(": rank", scenario.lora.rank)
                    .taken(": allocator", scenario.allocator.slug())
            }
        }
        // the more is missing, the farther below what fits
        FitCell::TooLarge { needed } => {
            Cell::amount(format!("needs {}", unit.amount(*needed)), -(needed.0 as f64))
                .taken_bytes(": needs", *needed, unit)
                .judged(Verdict::Over.slug())
        }
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
        assert_eq!(usual_models(&Scenario::default()).len(), MODELS.len());
    }
}
