//! What can be trained on a card: models by methods, each with the largest micro-batch.

use leptos::either::EitherOf4;
use leptos::html;
use leptos::prelude::*;

use crate::hardware::{Gpu, Vendor};
use crate::model::catalogue;
use crate::plan::{self, FitCell, FitRow};
use crate::scenario::{Allocator, Method, ModelChoice, Scenario};
use crate::ui::browser::{self, Later};
use crate::ui::controls::Slider;
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

/// How long the controls must rest before the table is computed anew.
const REST: u32 = 200;

/// The table of what can be trained.
#[component]
pub fn Table() -> impl IntoView {
    let state = State::of_page();
    let place = NodeRef::<html::Div>::new();
    let visible = RwSignal::new(false);
    // The MiB that were asked for; 0 while it is the scenario's own card.
    let asked = RwSignal::new(0_usize);
    let memory = move || match asked.get() {
        0 => {
            state.current().scenario.with(|scenario| scenario.gpu().map(|gpu| gpu.memory).unwrap_or_default())
        }
        mib => Bytes::mib(mib as u64),
    };
    // Another card is asked about as it is.
    let mut card = None;
    Effect::new(move || {
        let now = state.current().scenario.with(|scenario| scenario.gpu.clone());
        if card.replace(now.clone()).is_some_and(|before| before != now) {
            asked.set(0);
        }
    });
    let rows = RwSignal::new(vec![None; MODELS.len() + 1]);
    let busy = RwSignal::new(true);
    let timer = Later::default();

    Effect::new(move || {
        if let Some(element) = place.get() {
            browser::watch_visible(&element, move |now| visible.set(now));
        }
    });
    let mut asked_last = None;
    Effect::new(move || {
        let question = (Scenario { batch: 1, ..state.current().scenario.get() }, memory());
        if asked_last.as_ref() == Some(&question) {
            return;
        }
        // What was asked of an earlier scenario is of no use any more, whether the table is seen or not.
        for index in 0..=MODELS.len() {
            state.desk.with_value(|desk| desk.forget(Place::Row(index)));
        }
        timer.cancel();
        if visible.get() {
            busy.set(true);
            let (base, memory) = question.clone();
            asked_last = Some(question);
            timer.run(REST, move || ask(state, &base, memory, rows, busy));
        }
    });
    let conditions = move || state.current().scenario.with(conditions);
    // On a card that is not followed nothing is promised.
    let foreign = move || {
        let is_own = asked.get() == 0;
        let is_foreign = |gpu: Gpu| gpu.vendor != Vendor::Nvidia;
        is_own && state.current().scenario.with(|scenario| scenario.gpu().is_ok_and(is_foreign))
    };
    let head = |method: &Method| view! { <th scope="col">{method.label()}</th> };
    let row = |index| view! { <Row index=index rows=rows /> };
    view! {
        <section class="panel fit" aria-labelledby="fit-title">
            <h2 id="fit-title">"What can I train?"</h2>
            <div class="budget" node_ref=place>
                <Slider
                    id="budget"
                    label="On a card with"
                    help="The memory of the card; the scenario's own until you change it."
                    scale=&scale::CARD
                    value=Signal::derive(move || (memory().as_gib() * 10.).round() / 10.)
                    set=Callback::new(move |gib: f64| asked.set((gib * 1024.) as usize))
                    messages=Signal::stored(Vec::new())
                    unit="GiB"
                />
            </div>
            <p class="remark">{conditions}</p>
            <p class="message warning" hidden=Signal::derive(move || !foreign())>
                "By its tensors alone: this card’s kernels and allocator are not followed."
            </p>
            <div class="table-box">
                <table class="fits" class:foreign=foreign aria-busy=Signal::derive(move || busy.get().to_string())>
                    <caption class="unseen">"The largest micro-batch by model and method"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Model"</th>
                            {Method::ALL.iter().map(head).collect::<Vec<_>>()}
                        </tr>
                    </thead>
                    <tbody>{(0..=MODELS.len()).map(row).collect::<Vec<_>>()}</tbody>
                </table>
            </div>
        </section>
    }
}

/// Asks for every row, one after the other.
fn ask(
    state: State,
    base: &Scenario,
    memory: Bytes,
    rows: RwSignal<Vec<Option<FitRow>>>,
    busy: RwSignal<bool>,
) {
    for index in 0..=MODELS.len() {
        // The first row is the scenario's own model.
        let model = listed(index).map_or_else(|| base.model.clone(), |id| ModelChoice::Catalogue(id.into()));
        let question = Question::Row(Box::new(Scenario { model, ..base.clone() }), memory);
        let take = move |answer: Option<Answer>| {
            let found = answer.and_then(Answer::row);
            rows.update(|rows| rows[index] = found);
            if index == MODELS.len() {
                busy.set(false);
            }
        };
        state.desk.with_value(|desk| desk.ask(Place::Row(index), question, take));
    }
}

/// What holds for every cell.
fn conditions(base: &Scenario) -> String {
    format!(
        "The largest micro-batch that fits, otherwise what a batch of 1 needs. Click to open. ᵉ needs expandable_segments. {}",
        plan::conditions(base)
    )
}

/// The model of a row of the table; none for the first, which is the scenario's own.
fn listed(index: usize) -> Option<&'static str> {
    index.checked_sub(1).and_then(|index| MODELS.get(index)).copied()
}

fn is_model(scenario: &Scenario, model: &str) -> bool {
    matches!(&scenario.model, ModelChoice::Catalogue(id) if id == model)
}

/// One model: the scenario's own where the table does not have it anyway, or one of the table's.
#[component]
fn Row(
    /// Its place in the table; 0 is the scenario's own model.
    index: usize,
    /// What has been computed.
    rows: RwSignal<Vec<Option<FitRow>>>,
) -> impl IntoView {
    let state = State::of_page();
    let scenario = move || state.current().scenario;
    let model = listed(index);
    let own = move || scenario().with(|scenario| model.is_none_or(|model| is_model(scenario, model)));
    let again = move || {
        model.is_none() && scenario().with(|scenario| MODELS.iter().any(|model| is_model(scenario, model)))
    };
    let heading = move || {
        let (name, count) = match model {
            Some(id) => (
                id.rsplit('/').next().unwrap_or(id).to_owned(),
                catalogue::find(id).map(|entry| entry.parameters),
            ),
            None => scenario().with(|scenario| {
                let architecture = scenario.architecture().ok();
                (summary::model(scenario), architecture.map(|architecture| architecture.parameters()))
            }),
        };
        view! { <span>{name}</span> " " <small>{count.map(parameters)}</small> }
    };
    let usual = move || scenario().with(|scenario| scenario.sequence);
    // What was computed of the model that stood here before is not shown under the name of this one.
    let expected = move || model.map_or_else(|| scenario().with(Scenario::model_name), str::to_owned);
    let cell = move |column: usize| {
        let found = move |rows: &Vec<Option<FitRow>>| {
            let row = rows[index].as_ref().filter(|row| row.model == expected())?;
            row.cells.get(column).cloned()
        };
        let shut = move || !matches!(rows.with(found), Some(FitCell::Fits { .. }));
        let open = move |_| {
            if let Some(FitCell::Fits { batch, scenario }) = rows.with_untracked(found) {
                let told = format!("Opened {}, micro-batch {}", summary::title(&scenario), grouped(batch));
                state.open(*scenario, &told);
                browser::scroll_to_top();
            }
        };
        view! {
            <td>
                <button type="button" class="cell" disabled=shut on:click=open>
                    {move || content(rows.with(found), usual(), state.unit())}
                </button>
            </td>
        }
    };
    view! {
        <tr class:own=own hidden=again>
            <th scope="row">{heading}</th>
            {(0..Method::ALL.len()).map(cell).collect::<Vec<_>>()}
        </tr>
    }
}

/// What a cell says; nothing yet where it was not computed. The sequence length where it is another than the usual one.
fn content(cell: Option<FitCell>, usual: u64, unit: Unit) -> impl IntoView + use<> {
    match cell {
        None => EitherOf4::A("…"),
        Some(FitCell::Fits { batch, scenario }) => {
            let mark = (scenario.allocator == Allocator::Expandable).then(|| view! { <sup>"e"</sup> });
            let other = (scenario.sequence != usual).then_some(scenario.sequence);
            let length = other.map(|length| view! { " " <small>"× " {grouped(length)}</small> });
            EitherOf4::B(view! {
                "batch " <b>{grouped(batch)}</b> {mark} {length}
                <span class="unseen">": open " {summary::title(&scenario)}</span>
            })
        }
        Some(FitCell::TooLarge { needed }) => {
            EitherOf4::C(view! { <span class="unseen">"needs "</span> {unit.amount(needed)} })
        }
        Some(FitCell::Unknown(issue)) => {
            let why = issue.to_string();
            EitherOf4::D(view! {
                <span title=why.clone()>"–" <span class="unseen">" no answer: " {why.clone()}</span></span>
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_in_the_catalogue() {
        for model in MODELS {
            assert!(catalogue::find(model).is_some(), "{model}");
        }
    }

    #[test]
    fn a_cell_says_what_fits_or_what_it_needs() {
        let rows = plan::table(&["meta-llama/Llama-3.1-8B"], &Scenario::default(), Bytes::gib(24.));
        let texts: Vec<_> = rows[0]
            .cells
            .iter()
            .map(|cell| content(Some(cell.clone()), 2048, Unit::Binary).to_html())
            .collect();
        assert!(texts[0].contains("needs ") && texts[0].contains("GiB"), "{texts:?}");
        assert!(texts[2].contains("batch ") && texts[2].contains("Llama-3.1-8B · QLoRA"), "{texts:?}");
    }
}
