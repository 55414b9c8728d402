//! What can be trained on a card: models by methods, each with the largest micro-batch.

use leptos::ev::MouseEvent;
use leptos::html;
use leptos::prelude::*;

use crate::model::catalogue;
use crate::plan::{self, FitCell, FitRow};
use crate::scenario::{Allocator, Method, ModelChoice, Scenario};
use crate::ui::browser::{self, Later};
use crate::ui::controls::Slider;
use crate::ui::format::{Unit, parameters};
use crate::ui::live::{follow, on, state as aria, switch, text};
use crate::ui::markup::Escaped;
use crate::ui::scale;
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::{Bytes, grouped};

/// The models of the table, small before large: those that people start from.
fn models() -> impl Iterator<Item = &'static str> {
    include_str!("../../../data/usual_models.txt").lines()
}

/// How long the controls must rest before the table is computed anew.
const REST: u32 = 200;

/// The table of what can be trained.
#[component]
pub fn Table() -> impl IntoView {
    let state = State::of_page();
    let place = NodeRef::<html::Div>::new();
    let visible = RwSignal::new(false);
    let whole = RwSignal::new(false);
    browser::when_whole(move || whole.set(true));
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
    follow(move || {
        let now = state.current().scenario.with(|scenario| scenario.gpu.clone());
        if card.replace(now.clone()).is_some_and(|before| before != now) {
            asked.set(0);
        }
    });
    let rows = RwSignal::new(Vec::<FitRow>::new());
    let busy = RwSignal::new(true);
    let timer = Later::default();

    follow(move || {
        if let Some(element) = place.get() {
            browser::watch_visible(&element, move |now| visible.set(now));
        }
    });
    let mut answered = None;
    follow(move || {
        let question = (Scenario { batch: 1, ..state.current().scenario.get() }, memory());
        if whole.get() && visible.get() && answered.as_ref() != Some(&question) {
            busy.set(true);
            let later = timer.clone();
            let (base, memory) = question.clone();
            answered = Some(question);
            timer.run(REST, move || compute(later, base, memory, 0, rows, busy));
        }
    });
    let conditions = move || state.current().scenario.with(conditions);
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
                    messages=Signal::stored(String::new())
                    unit="GiB"
                />
            </div>
            <p class="remark">{text(conditions)}</p>
            <div class="table-box">
                <table class="fits" aria-busy=aria(move || busy.get())>
                    <caption class="unseen">"The largest micro-batch by model and method"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Model"</th>
                            {Method::ALL.iter().map(head).collect::<Vec<_>>()}
                        </tr>
                    </thead>
                    <tbody>{(0..=models().count()).map(row).collect::<Vec<_>>()}</tbody>
                </table>
            </div>
        </section>
    }
}

/// Computes one model after the other, so that no key press waits for more than one of them.
fn compute(
    later: Later,
    base: Scenario,
    memory: Bytes,
    index: usize,
    rows: RwSignal<Vec<FitRow>>,
    busy: RwSignal<bool>,
) {
    // The first row is the scenario's own model.
    let found = match listed(index) {
        Some(model) => {
            plan::row(&Scenario { model: ModelChoice::Catalogue(model.into()), ..base.clone() }, memory)
        }
        None if index == 0 => plan::row(&base, memory),
        None => return busy.set(false),
    };
    rows.update(|rows| match rows.get_mut(index) {
        Some(row) => *row = found,
        None => rows.push(found),
    });
    later.clone().run(0, move || compute(later, base, memory, index + 1, rows, busy));
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
    index.checked_sub(1).and_then(|index| models().nth(index))
}

fn is_model(scenario: &Scenario, model: &str) -> bool {
    matches!(&scenario.model, ModelChoice::Catalogue(id) if id == model)
}

/// The name of a model and how large it is.
fn heading(name: &str, count: Option<u64>) -> String {
    format!("<span>{}</span> <small>{}</small>", Escaped(name), count.map(parameters).unwrap_or_default())
}

fn own_heading(scenario: &Scenario) -> String {
    let architecture = scenario.architecture().ok();
    heading(&summary::model(scenario), architecture.map(|architecture| architecture.parameters()))
}

/// One model: the scenario's own where the table does not have it anyway, or one of the table's.
#[component]
fn Row(
    /// Its place in the table; 0 is the scenario's own model.
    index: usize,
    /// What has been computed.
    rows: RwSignal<Vec<FitRow>>,
) -> impl IntoView {
    let state = State::of_page();
    let scenario = move || state.current().scenario;
    let model = listed(index);
    let own = move || scenario().with(|scenario| model.is_none_or(|model| is_model(scenario, model)));
    let again = move || {
        model.is_none() && scenario().with(|scenario| models().any(|model| is_model(scenario, model)))
    };
    let fixed = model.map(|model| {
        let count = catalogue::find(model).map(|entry| entry.parameters);
        heading(model.rsplit('/').next().unwrap_or(model), count)
    });
    let name = move || fixed.clone().unwrap_or_else(|| scenario().with(own_heading));
    let cell = move |column: usize| {
        let usual = move || scenario().with(|scenario| scenario.sequence);
        let found = move |rows: &Vec<FitRow>| rows.get(index).and_then(|row| row.cells.get(column)).cloned();
        let html = move || {
            let unit = state.unit();
            rows.with(found).map_or_else(|| "…".to_owned(), |cell| content(&cell, usual(), unit))
        };
        let shut = move || !matches!(rows.with(found), Some(FitCell::Fits { .. }));
        let open = move |_: MouseEvent| {
            if let Some(FitCell::Fits { batch, scenario }) = rows.with_untracked(found) {
                let told = format!("Opened {}, micro-batch {}", summary::title(&scenario), grouped(batch));
                state.open(*scenario, &told);
                browser::scroll_to_top();
            }
        };
        view! {
            <td>
                <button
                    type="button"
                    class="cell"
                    disabled=switch(shut)
                    inner_html=text(html)
                    on:click=on(open)
                ></button>
            </td>
        }
    };
    view! {
        <tr class:own=switch(own) hidden=switch(again)>
            <th scope="row" inner_html=text(name)></th>
            {(0..Method::ALL.len()).map(cell).collect::<Vec<_>>()}
        </tr>
    }
}

/// What a cell says; the sequence length where it is another than the usual one.
fn content(cell: &FitCell, usual: u64, unit: Unit) -> String {
    match cell {
        FitCell::Fits { batch, scenario } => {
            let title = summary::title(scenario);
            let mark = match scenario.allocator {
                Allocator::Native => "",
                Allocator::Expandable => "<sup>e</sup>",
            };
            let length = match scenario.sequence {
                same if same == usual => String::new(),
                other => format!(" <small>× {}</small>", grouped(other)),
            };
            format!(
                "batch <b>{}</b>{mark}{length}<span class=\"unseen\">: open {}</span>",
                grouped(*batch),
                Escaped(&title)
            )
        }
        FitCell::TooLarge { needed } => {
            format!("<span class=\"unseen\">needs </span>{}", unit.amount(*needed))
        }
        FitCell::Unknown(issue) => {
            let why = issue.to_string();
            format!(
                "<span title=\"{0}\">–<span class=\"unseen\"> no answer: {0}</span></span>",
                Escaped(&why)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_in_the_catalogue() {
        for model in models() {
            assert!(catalogue::find(model).is_some(), "{model}");
        }
    }

    #[test]
    fn a_cell_says_what_fits_or_what_it_needs() {
        let rows = plan::table(&["meta-llama/Llama-3.1-8B"], &Scenario::default(), Bytes::gib(24.));
        let texts: Vec<_> = rows[0].cells.iter().map(|cell| content(cell, 2048, Unit::Binary)).collect();
        assert!(texts[0].contains("needs ") && texts[0].ends_with("GiB"), "{texts:?}");
        assert!(
            texts[2].starts_with("batch <b>") && texts[2].contains("open Llama-3.1-8B · QLoRA"),
            "{texts:?}"
        );
    }
}
