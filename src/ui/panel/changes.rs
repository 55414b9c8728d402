//! Every change that saves memory, and what the room is good for, in tables.

use leptos::prelude::*;

use super::document::Grounds;
use super::levers::{UNTRIED, fits, in_words, is_behind, saved};
use crate::plan::{Change, Lever, Levers as Found, Use};
use crate::scenario::Scenario;
use crate::ui::asked::Listed;
use crate::ui::behind::Behind;
use crate::ui::controls::{Cell, Row, Table, columns};
use crate::ui::format::Unit;
use crate::ui::state::State;

/// Every change that saves something.
#[component]
pub fn Changes() -> impl IntoView {
    let state = State::of_page();
    let rows = Signal::derive(move || {
        let unit = state.unit();
        state.levers.with(|known| known.as_ref().map(|known| rows(state, &known.1, unit)).unwrap_or_default())
    });
    let uses = Signal::derive(move || {
        let unit = state.unit();
        state
            .uses
            .with(|known| known.as_ref().map(|known| use_rows(state, &known.1, unit)).unwrap_or_default())
    });
    let busy = Signal::derive(move || !state.untried.get() && is_behind(state, state.levers));
    let looks_for_uses =
        Signal::derive(move || fits(state) && !state.untried.get() && is_behind(state, state.uses));
    view! {
        <p class="remark" hidden=move || !state.untried.get()>
            {UNTRIED}
        </p>
        <Table
            caption="Changes that save memory"
            class="lever-table"
            listing=state.asked.listing(Listed::Changes)
            columns=Signal::stored(columns(["Change", "Costs", "Speed", "Saves", "Needs", "Verdict"]))
            rows=rows
            busy=busy
            stopped=state.untried
        />
        <div hidden=move || !fits(state) || uses.with(Vec::is_empty)>
            <h3>"What the room is good for"</h3>
            <Table
                caption="What the room is good for"
                class="lever-table"
                listing=state.asked.listing(Listed::Uses)
                columns=Signal::stored(columns(["Change", "Wins", "Needs", "Verdict"]))
                rows=uses
                busy=looks_for_uses
            />
        </div>
        <Grounds of=Behind::Changes />
    }
}

fn rows(state: State, found: &Found, unit: Unit) -> Vec<Row> {
    let row =
        |lever: &Lever| {
            let less = found.needed.0 as f64 - lever.needed.0 as f64;
            let (slower, needed) = (pace(lever.slower), lever.needed_in_words(|bytes| unit.amount(bytes)));
            Row {
                fit: lever.verdict.slug(),
                head: opening(state, &lever.changes, &lever.scenario),
                cells: vec![
                    Cell {
                        class: "words",
                        narrow: slower.clone(),
                        ..Cell::amount(lever.cost.label(), f64::from(lever.cost as u8))
                    },
                    lever.slower.into_iter().fold(
                        Cell {
                            sorted_as: lever.slower,
                            ..Cell::of(if slower.is_empty() { "–" } else { &slower })
                        },
                        |cell, longer| cell.taken(": time per token (% more)", format!("{longer:.1}")),
                    ),
                    Cell {
                        narrow: format!("needs {needed}"),
                        ..Cell::gain(saved(state, lever, found, unit), less).taken(
                            &format!(" ({})", unit.label()),
                            format!("{:.3}", unit.count(found.needed) - unit.count(lever.needed)),
                        )
                    },
                    Cell::amount(needed, lever.needed.0 as f64)
                        .taken_bytes("", lever.needed, unit)
                        .taken_bytes(": RAM", lever.on_host, unit),
                    Cell::amount(lever.verdict.label(), f64::from(lever.verdict as u8)),
                ],
                ..Row::default()
            }
        };
    // what is offered as a button is in the table too
    found.together.iter().chain(&found.single).chain(&found.offloaded).map(row).collect()
}

/// How many more tokens a second a change makes, or fewer, of how much longer each takes: `8 % faster`.
fn pace(longer: Option<f64>) -> String {
    let slower = longer.map(|percent| 100.0 * (1.0 - 100.0 / (100.0 + percent.max(-99.0))));
    slower.map_or_else(String::new, |percent| match percent.round() as i64 {
        0 => "as fast".to_owned(),
        percent => format!("{} % {}", percent.abs(), if percent > 0 { "slower" } else { "faster" }),
    })
}

fn use_rows(state: State, uses: &[Use], unit: Unit) -> Vec<Row> {
    let row = |usage: &Use| Row {
        fit: usage.verdict.slug(),
        head: Cell {
            small: usage.limit.clone().unwrap_or_default(),
            ..opening(state, &usage.changes, &usage.scenario)
        },
        cells: vec![
            Cell { class: "words", ..Cell::of(usage.gain.label()) },
            Cell::bytes(usage.needed, unit),
            Cell::amount(usage.verdict.label(), f64::from(usage.verdict as u8)),
        ],
        ..Row::default()
    };
    uses.iter().map(row).collect()
}

/// What leads to a changed scenario.
fn opening(state: State, changes: &[Change], scenario: &Scenario) -> Cell {
    let words: Vec<_> = changes.iter().map(in_words).collect();
    let (scenario, told) = (scenario.clone(), words.first().cloned().unwrap_or_default());
    let act = Callback::new(move |()| state.open(scenario.clone(), &told));
    Cell { act: Some(act), ..Cell::of(words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::levers;
    use crate::scenario::GpuChoice;
    use crate::ui::desk::Desk;

    fn on(card: &str) -> Scenario {
        Scenario { gpu: GpuChoice::Catalogue(card.into()), ..Scenario::default() }
    }

    #[test]
    fn every_change_and_every_use_has_a_row() {
        for card in ["rtx-3060-12gb", "rtx-4090"] {
            let found = levers(&on(card)).expect("an answer");
            Owner::new().with(|| {
                let state = State::new(vec![on(card)], Desk::default());
                let others = usize::from(found.together.is_some()) + usize::from(found.offloaded.is_some());
                assert_eq!(rows(state, &found, Unit::Binary).len(), found.single.len() + others);
                assert_eq!(use_rows(state, &found.uses, Unit::Binary).len(), found.uses.len());
            });
        }
    }

    #[test]
    fn how_fast_a_change_is_needs_no_sign() {
        let told = [None, Some(-8.2), Some(0.3), Some(41.)].map(pace);
        // of a time that is 8.2 % shorter 1.09 as many tokens come in a second, of one that is 41 % longer 0.71
        assert_eq!(told, ["", "9 % faster", "as fast", "29 % slower"]);
    }

    #[test]
    fn every_change_has_the_combination_that_is_offered() {
        let large = Scenario { batch: 64, sequence: 8192, ..on("rtx-3060-12gb") };
        let found = levers(&large).expect("an answer");
        let together = found.together.as_ref().expect("several are enough together");
        let words: Vec<_> = together.changes.iter().map(in_words).collect();
        let rows = Owner::new().with(|| {
            let state = State::new(vec![large.clone()], Desk::default());
            rows(state, &found, Unit::Binary)
        });
        assert!(rows.iter().any(|row| row.head.text == words.join(", ")), "{words:?}");
    }
}
