//! What can be trained on a card: models by methods, each with the largest micro-batch.

use leptos::html;
use leptos::prelude::*;

use crate::model::catalogue;
use crate::plan::{self, FitCell, FitRow};
use crate::scenario::{Checkpointing, Method, ModelChoice, Scenario};
use crate::ui::browser::{self, Later};
use crate::ui::controls::Slider;
use crate::ui::format::parameters;
use crate::ui::scale;
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::Bytes;

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

/// How long the controls must rest before the table is computed anew.
const REST: u32 = 200;

/// What the table is computed for.
#[derive(Clone, PartialEq)]
struct Question {
    base: Scenario,
    memory: Bytes,
}

/// The table of what can be trained.
#[component]
pub fn Table() -> impl IntoView {
    let state = State::of_page();
    let section = NodeRef::<html::Section>::new();
    let visible = RwSignal::new(false);
    // The amount that was asked for; the card of the scenario otherwise.
    let asked = RwSignal::new(None::<Bytes>);
    let card = state.read(|scenario| scenario.gpu().map(|gpu| gpu.memory).unwrap_or_default());
    let memory = Memo::new(move |_| asked.get().unwrap_or_else(|| card.get()));
    let question = Memo::new(move |_| {
        // Neither model nor batch of the scenario matters: they are what the table varies.
        let usual = Scenario::default();
        let base = state.current().scenario.get();
        Question { base: Scenario { model: usual.model, batch: 1, ..base }, memory: memory.get() }
    });
    let rows = RwSignal::new(Vec::<FitRow>::new());
    let busy = RwSignal::new(true);
    let timer = StoredValue::new_local(Later::default());

    Effect::new(move |_| {
        if let Some(element) = section.get() {
            browser::watch_visible(&element, move |now| visible.set(now));
        }
    });
    Effect::new(move |answered: Option<Option<Question>>| {
        let answered = answered.flatten();
        let question = question.get();
        if !visible.get() || answered.as_ref() == Some(&question) {
            return answered;
        }
        busy.set(true);
        let begun = question.clone();
        timer.with_value(|timer| {
            let later = timer.clone();
            timer.run(REST, move || compute(later, question, 0, rows, busy));
        });
        Some(begun)
    });
    let slide = Callback::new(move |gib: f64| asked.set(Some(Bytes::gib(gib))));
    let heads =
        Method::ALL.iter().map(|method| view! { <th scope="col">{method.label()}</th> }).collect_view();
    view! {
        <section class="panel fit" aria-labelledby="fit-title" node_ref=section>
            <h2 id="fit-title">"What can I train?"</h2>
            <div class="budget">
                <Slider
                    id="budget"
                    label="On a card with"
                    help="The memory of the card; the scenario's own until you change it."
                    scale=&scale::CARD
                    value=Signal::derive(move || (memory.get().as_gib() * 10.).round() / 10.)
                    set=slide
                    messages=Signal::stored(Vec::new())
                    unit="GiB"
                />
            </div>
            <p class="remark">{move || conditions(&question.get().base)}</p>
            <div class="table-box">
                <table class="fits" aria-busy=move || busy.get().to_string()>
                    <caption class="unseen">"The largest micro-batch by model and method"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Model"</th>
                            {heads}
                        </tr>
                    </thead>
                    <tbody>
                        {MODELS
                            .into_iter()
                            .enumerate()
                            .map(|(index, model)| view! { <Row index=index model=model rows=rows /> })
                            .collect_view()}
                    </tbody>
                </table>
            </div>
        </section>
    }
    .into_any()
}

/// Computes one model after the other, so that no key press waits for more than one of them.
fn compute(
    later: Later,
    question: Question,
    index: usize,
    rows: RwSignal<Vec<FitRow>>,
    busy: RwSignal<bool>,
) {
    let Some(model) = MODELS.get(index) else { return busy.set(false) };
    let found = plan::table(&[model], &question.base, question.memory).pop();
    rows.update(|rows| {
        if let Some(found) = found {
            match rows.get_mut(index) {
                Some(row) => *row = found,
                None => rows.push(found),
            }
        }
    });
    later.clone().run(0, move || compute(later, question, index + 1, rows, busy));
}

/// What holds for every cell.
fn conditions(base: &Scenario) -> String {
    let checkpointing = match base.checkpointing {
        Checkpointing::Off => "without gradient checkpointing",
        Checkpointing::NonReentrant | Checkpointing::Reentrant => "with gradient checkpointing",
    };
    format!(
        "The largest micro-batch of {} tokens per sequence, {checkpointing}; the rest as in the scenario. Choose a cell to open it.",
        crate::units::grouped(base.sequence)
    )
}

#[component]
fn Row(
    /// Its place in the table.
    index: usize,
    /// Its model.
    model: &'static str,
    /// What has been computed.
    rows: RwSignal<Vec<FitRow>>,
) -> impl IntoView {
    let state = State::of_page();
    let row = Memo::new(move |_| rows.with(|rows| rows.get(index).cloned()));
    let cells = move || match row.get() {
        Some(row) => row
            .cells
            .into_iter()
            .map(|cell| view! { <td>{content(state, cell)}</td> })
            .collect_view()
            .into_any(),
        None => Method::ALL.iter().map(|_| view! { <td>"…"</td> }).collect_view().into_any(),
    };
    let size = catalogue::find(model).map(|entry| parameters(entry.parameters));
    let chosen = state.read(|scenario| scenario.model.clone());
    let own = move || chosen.with(|chosen| matches!(chosen, ModelChoice::Catalogue(id) if id == model));
    view! {
        <tr class:own=own>
            <th scope="row">
                <span>{model.rsplit('/').next().unwrap_or(model)}</span>
                <small>{size}</small>
            </th>
            {cells}
        </tr>
    }
    .into_any()
}

fn content(state: State, cell: FitCell) -> impl IntoView {
    match cell {
        FitCell::Fits { batch, scenario } => {
            let title = summary::title(&scenario);
            let opened = format!("Opened {title}, micro-batch {batch}");
            let hint = format!(": open {title}");
            view! {
                <button
                    type="button"
                    class="cell"
                    on:click=move |_| {
                        state.open((*scenario).clone(), opened.clone());
                        browser::scroll_to_top();
                    }
                >
                    "batch "
                    <b>{crate::units::grouped(batch)}</b>
                    <span class="unseen">{hint}</span>
                </button>
            }
            .into_any()
        }
        FitCell::TooLarge { needed } => {
            view! { <span class="too-large">"needs " {move || state.unit.get().amount(needed)}</span> }
                .into_any()
        }
        FitCell::Unknown(issue) => {
            view! { <span class="too-large" title=issue.to_string()>"unknown"</span> }.into_any()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MODELS;
    use crate::model::catalogue;

    #[test]
    fn every_model_is_in_the_catalogue() {
        for model in MODELS {
            assert!(catalogue::find(model).is_some(), "{model}");
        }
    }
}
