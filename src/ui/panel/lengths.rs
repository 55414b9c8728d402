//! Texts of different lengths: how long micro-batches are, which of them run out of memory, and how soon.

use leptos::ev::Event;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::document::Grounds;
use super::levers::change_button;
use super::rows::pieces;
use crate::plan::{Change, MicroBatch, Order, Outlook};
use crate::scenario::{Lengths, Scenario, Texts};
use crate::ui::behind::Behind;
use crate::ui::browser::{self, Later};
use crate::ui::controls::{Cell, ChooseFile, Row, Table, columns};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::markup::capitalised;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::units::grouped;

/// How long, in milliseconds, the keys must rest before the text is read.
const REST: u32 = 300;
/// In so many orders the run is followed.
const ORDERS: u64 = 4;

/// The box for the lengths, and what they do.
#[component]
pub fn TextLengths() -> impl IntoView {
    let state = State::of_page();
    let read = RwSignal::new(None::<Result<Texts, String>>);
    let later = Later::default();
    Effect::new(move || {
        later.cancel();
        let text = state.texts.get();
        if text.trim().is_empty() {
            return read.set(None);
        }
        later.run(REST, move || read.set(Some(text.parse().map_err(|error| format!("{error}")))));
    });
    let texts = Memo::new(move |_| read.with(|read| read.as_ref()?.as_ref().ok().cloned()));
    let asked = move || texts.get().map(|texts| (state.current().scenario.get(), texts));
    let outlook = pieces(
        state,
        asked,
        |asked| {
            asked
                .iter()
                .map(|(scenario, texts)| Question::Texts(Box::new(scenario.clone()), texts.clone()))
                .collect()
        },
        |_| Place::Texts,
        |answer| {
            let Answer::Texts(found) = answer else { return None };
            Some(found)
        },
    );
    let orders = pieces(
        state,
        asked,
        |asked| {
            let ask = |(scenario, texts): &(Scenario, Texts)| {
                let order = |number| Question::TextOrder(Box::new(scenario.clone()), texts.clone(), number);
                (0..ORDERS).map(order).collect()
            };
            asked.as_ref().map(ask).unwrap_or_default()
        },
        Place::TextOrder,
        |answer| {
            let Answer::TextOrder(order) = answer else { return None };
            order
        },
    );
    let shown = move || match read.get()? {
        Err(problem) => Some(view! { <p class="message warning">{capitalised(&problem)}"."</p> }.into_any()),
        Ok(texts) => {
            let found = outlook.heard.with(|heard| heard.first().cloned().flatten())?;
            let orders = orders.heard.with(|heard| heard.iter().copied().collect::<Option<Vec<Order>>>());
            Some(match found {
                Err(issue) => {
                    view! { <p class="message warning">{capitalised(&issue.to_string())}"."</p> }.into_any()
                }
                Ok(found) => state.current().scenario.with(|scenario| {
                    in_words(state, scenario, &texts, &found, &orders.unwrap_or_default(), state.unit())
                }),
            })
        }
    };
    let write = move |event: Event| state.texts.set(event_target_value(&event));
    let take = move |file: web_sys::File| {
        spawn_local(async move {
            match browser::read(&file).await {
                Ok(text) => state.texts.set(text),
                Err(issue) => state.tell(&format!("{}: {}", file.name(), issue.message)),
            }
        });
    };
    view! {
        <div class="pasting">
            <label for="texts" class="remark">
                "In tokens, with spaces, commas or line breaks between them; 512x30 stands for thirty texts of 512. Lines of JSON and CSV with a \
                 column tokens or length are read too. They are read here and sent nowhere."
            </label>
            <textarea
                id="texts"
                rows="4"
                spellcheck="false"
                autocomplete="off"
                prop:value=move || state.texts.get()
                on:input=write
            ></textarea>
            <p class="tools-row">
                <ChooseFile label="Choose a file" take=Callback::new(take) />
            </p>
            <div class="found" aria-live="polite">{shown}</div>
            <Grounds of=Behind::Lengths />
        </div>
    }
}

fn in_words(
    state: State,
    scenario: &Scenario,
    texts: &Texts,
    found: &Outlook,
    orders: &[Order],
    unit: Unit,
) -> AnyView {
    let (mean, _) = texts.spread();
    let cut = match found.cut {
        0 => String::new(),
        1 => format!("; one is cut to {} tokens", grouped(scenario.sequence)),
        cut => format!("; {} are cut to {} tokens", grouped(cut), grouped(scenario.sequence)),
    };
    let first = format!(
        "{} texts of {mean:.0} tokens in the mean, the longest {}{cut}. {:.0} % of all tokens are padding.",
        grouped(texts.count()),
        grouped(texts.longest()),
        found.padding * 100.0
    );
    let row = |batch: &MicroBatch| Row {
        head: Cell::of(format!("{:.0} %", batch.share * 100.0)),
        cells: vec![
            Cell::of(grouped(batch.length)),
            Cell::of(unit.amount(batch.needed)),
            Cell { class: batch.verdict.slug(), ..Cell::of(batch.verdict.label()) },
        ],
        ..Row::default()
    };
    let rows: Vec<Row> = found.micro_batches.iter().map(row).collect();
    let names = ["Micro-batches", "Tokens of each sequence, up to", "Needs", "Verdict"];
    let sentences = found.sentences(scenario).into_iter().chain(Order::sentence(orders));
    let sentences: Vec<_> = sentences.map(|words| view! { <p>{words}</p> }).collect();
    let cut = found.limit.as_ref().filter(|limit| limit.longest > 0).map(|limit| {
        let effect = format!("every text runs; {} are cut", grouped(limit.texts));
        change_button(
            state,
            &Change::between(scenario, &limit.scenario, "seq-length"),
            effect,
            &limit.scenario,
        )
    });
    let smaller = found.limit.as_ref().and_then(|limit| limit.smaller.as_ref()).map(|smaller| {
        let changes = Change::between(scenario, smaller, "batch-size");
        change_button(state, &changes, "every text runs as it is".to_owned(), smaller)
    });
    let varying = texts.varying();
    let spread = (scenario.lengths != varying && !matches!(varying, Lengths::Spread { deviation: 0, .. }))
        .then(|| {
            let varied = Scenario { lengths: varying, ..scenario.clone() };
            let changes = Change::between(scenario, &varied, "lengths");
            change_button(state, &changes, "in the answer above, and in the link".to_owned(), &varied)
        });
    view! {
        <p>{first}</p>
        <Table
            caption="Micro-batches by their length"
            class="measured"
            columns=Signal::stored(columns(names))
            rows=Signal::stored(rows)
        />
        {sentences}
        <div class="lever-buttons">{smaller} {cut} {spread}</div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Verdict, outlook};
    use crate::ui::desk::Desk;

    #[test]
    fn the_rare_long_text_is_told_with_what_removes_it() {
        let scenario = Scenario { batch: 4, sequence: 4096, ..Scenario::default() };
        let texts: Texts = "400x9990 9000x10".parse().expect("lengths");
        let found = outlook(&scenario, &texts).expect("an answer");
        assert_eq!(found.micro_batches[1].verdict, Verdict::Over);
        let html = Owner::new().with(|| {
            let state = State::new(vec![scenario.clone()], Desk::default());
            in_words(state, &scenario, &texts, &found, &[], Unit::Binary).to_html()
        });
        for words in [
            "10,000 texts of 409 tokens",
            "10 are cut to 4,096",
            "0.40 % of them, for 10 of the texts",
            "Sequence length: ",
            "Micro-batch size: ",
        ] {
            assert!(html.contains(words), "{words} is missing in {html}");
        }
    }
}
