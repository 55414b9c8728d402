//! The batch that an optimizer step is to see: the micro-batch that each card holds, and the accumulation that reaches it.

use leptos::prelude::*;

use super::document::Grounds;
use super::need::open;
use super::rows::{pieces, summed_up};
use crate::plan::{BatchRow, PerSequence, on_usual_cards, passes_in_words};
use crate::scenario::Scenario;
use crate::ui::asked::Listed;
use crate::ui::behind::Behind;
use crate::ui::controls::{Cell, Row, Slider, Table, columns};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::scale;
use crate::ui::state::State;
use crate::units::grouped;

/// The slider and the table of cards.
#[component]
pub fn Batches() -> impl IntoView {
    let state = State::of_page();
    let asked = state.asked;
    let effective =
        Signal::derive(move || state.current().scenario.with(|scenario| asked.effective(scenario)));
    let base = move || {
        let mut scenario = state.current().scenario.get();
        // the answer is the same whatever these are
        (scenario.batch, scenario.accumulation) = (1, 1);
        scenario
    };
    let found = pieces(
        state,
        move || (base(), effective.get()),
        |(base, effective)| {
            let ask = |on_card: Scenario| Question::Batch(Box::new(on_card), *effective);
            on_usual_cards(base).into_iter().map(ask).collect()
        },
        Place::Batch,
        |answer| {
            let Answer::Batch(row) = answer else { return None };
            Some(row)
        },
    );
    let rows = Signal::derive(move || {
        let unit = state.unit();
        found.heard.with(|heard| {
            let rows = heard
                .iter()
                .enumerate()
                .filter_map(|(index, row)| Some((index, row.as_ref()?.as_ref().ok()?)));
            rows.map(|(index, row)| in_words(state, row, index == 0, unit)).collect::<Vec<_>>()
        })
    });
    let split = Memo::new(move |_| PerSequence::of(&base()));
    let told = move || {
        let unit = state.unit();
        let own =
            found.heard.with(|heard| Some(gist(heard.first()?.as_ref()?.as_ref().ok()?, split.get(), unit)));
        own.unwrap_or_else(|| {
            summed_up(found.busy, found.stopped, &found.looking("Looking at every card"), String::new)
        })
    };
    let set = Callback::new(move |number: f64| asked.set_effective(number as u64));
    view! {
        <div class="asking">
            <Slider
                id="effective-batch"
                label="Effective batch size"
                help="Sequences that an optimizer step sees: micro-batch × accumulation × GPUs."
                scale=&scale::EFFECTIVE
                value=Signal::derive(move || effective.get() as f64)
                set=set
                messages=Signal::stored(Vec::new())
                unit=""
            />
        </div>
        <p class="remark" aria-live="polite">
            {told}
        </p>
        <Table
            caption="Micro-batch and accumulation by card"
            class="fits batches"
            listing=asked.listing(Listed::Batches)
            columns=Signal::stored(columns(["Card", "Largest micro-batch", "Micro-batch and accumulation"]))
            rows=rows
            busy=found.busy
            stopped=found.stopped
        />
        <p class="remark">
            "First the largest micro-batch that can run, with nothing to spare; then one that divides the effective batch and fits with \
             accumulation, under which gradients stay in memory from pass to pass. A safety margin and memory in use, under All settings, stay free."
        </p>
        <Grounds of=Behind::Limits />
    }
}

/// How the scenario's own card does it, and what a sequence adds.
fn gist(row: &BatchRow, split: Option<PerSequence>, unit: Unit) -> String {
    let reached = match &row.reached {
        Ok(Some(reached)) => format!(
            "The {} runs up to {} at once at best: a micro-batch of {} in {} reaches {}.",
            row.name,
            sequences(reached.largest),
            grouped(reached.batch),
            passes(reached.accumulation),
            grouped(reached.effective)
        ),
        Ok(None) => format!("Not even one sequence runs on the {}.", row.name),
        Err(issue) => return format!("No answer: {issue}."),
    };
    let split = split.map(|split| format!(" It takes {}.", split.in_words(|bytes| unit.amount(bytes))));
    reached + &split.unwrap_or_default()
}

fn sequences(count: u64) -> String {
    if count == 1 { "one sequence".to_owned() } else { format!("{} sequences", grouped(count)) }
}

fn passes(count: u64) -> String {
    if count == 1 { "one pass".to_owned() } else { format!("{} passes", grouped(count)) }
}

fn in_words(state: State, row: &BatchRow, is_own: bool, unit: Unit) -> Row {
    let cells = match &row.reached {
        Ok(Some(reached)) => {
            let opened = reached.scenario.clone();
            let told = format!(
                "Opened micro-batch {} with accumulation {} on the {}",
                grouped(reached.batch),
                grouped(reached.accumulation),
                row.name
            );
            let is_close = !reached.verdict.holds();
            let small = if is_close { reached.verdict.label().to_lowercase() } else { String::new() };
            let text = passes_in_words(&reached.scenario);
            vec![
                Cell::gain(grouped(reached.largest), reached.largest as f64),
                Cell {
                    small,
                    hint: format!("Open it on the {}", row.name),
                    act: Some(Callback::new(move |()| open(state, &opened, &told))),
                    class: if is_close { "close" } else { "fits" },
                    ..Cell::gain(text, reached.batch as f64)
                        .taken(": sequences", reached.batch)
                        .taken(": passes", reached.accumulation)
                        .judged(reached.verdict.slug())
                },
            ]
        }
        Ok(None) => vec![Cell::of("none").taken("", 0), Cell::of("–")],
        Err(issue) => vec![Cell::of("–"), Cell { hint: format!("no answer: {issue}"), ..Cell::of("–") }],
    };
    Row {
        class: if is_own { "own" } else { "" },
        head: Cell {
            small: unit.amount(row.memory),
            ..Cell::amount(&row.name, row.memory.0 as f64)
                .taken("", &row.name)
                .taken_bytes(": memory", row.memory, unit)
        },
        cells,
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::batch_row;
    use crate::ui::desk::Desk;

    #[test]
    fn a_card_says_how_it_reaches_the_batch() {
        let row = batch_row(&Scenario::default(), 32).expect("a card");
        let said = gist(&row, PerSequence::of(&Scenario::default()), Unit::Binary);
        assert!(said.starts_with("The ") && said.contains(" reaches 32. It takes "), "{said}");
        assert!(said.ends_with(" for each sequence."), "{said}");
        Owner::new().with(|| {
            let state = State::new(Vec::new(), Desk::default());
            let words = in_words(state, &row, true, Unit::Binary);
            assert_eq!((words.class, words.head.text.as_str()), ("own", row.name.as_str()));
            assert!(words.cells[1].text.contains(" × ") && words.cells[1].act.is_some());
        });
    }
}
