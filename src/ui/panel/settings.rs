//! Every sensible combination of settings for the scenario's model and card: those that fit, the fastest first.

use leptos::prelude::*;

use super::document::Grounds;
use super::rows::summed_up;
use super::ways::{WayTable, outcome, tried};
use crate::plan::{Way, WayOrder, passes_in_words, setting_name, settings};
use crate::scenario::Scenario;
use crate::scenario::keys::{Key, keys};
use crate::ui::asked::Listed;
use crate::ui::behind::Behind;
use crate::ui::controls::{Cell, Row};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::state::State;
use crate::units::grouped;

/// How many are listed before all are asked for.
const LISTED: usize = 10;

/// The table of combinations.
#[component]
pub fn Settings() -> impl IntoView {
    let state = State::of_page();
    let tried =
        tried(state, move || state.current().scenario.with(settings), Place::Setting, WayOrder::Speed);
    let told = move || {
        summed_up(tried.busy, tried.stopped, "Running every combination …", || {
            tried.known.with(|ways| gist(ways))
        })
    };
    view! {
        <p class="remark">{told}</p>
        <WayTable
            tried=tried
            caption="Combinations of settings"
            names=["Settings", "Needs", "Tokens per second"]
            table=Listed::Settings
            listed=LISTED
            what="combinations"
            row=row
        />
        <p class="remark">
            "Method, precision, optimizer, fused loss and checkpointing; the rest as in the scenario. A step sees as many sequences \
             in each, in the fastest micro-batch that fits; speeds are rough. Methods, precisions and 8-bit optimizers do not learn the \
             same: the fastest need not be the best."
        </p>
        <Grounds of=Behind::Settings />
    }
}

/// How many combinations fit, and which is fastest.
fn gist(ways: &[Way]) -> String {
    let fitting = ways.iter().filter(|way| way.fits()).count();
    let answered = ways.iter().filter(|way| way.needed().is_some()).count();
    let of = format!("{} of {} combinations fit", grouped(fitting as u64), grouped(answered as u64));
    let others = match ways.len() - answered {
        0 => String::new(),
        others => format!(" {} more have no answer.", grouped(others as u64)),
    };
    let named = |way: &Way| setting_name(&way.scenario).join(", ");
    let fastest = ways.iter().find(|way| way.fits() && way.speed().is_some());
    let least = ways.iter().filter(|way| way.needed().is_some()).min_by_key(|way| way.needed());
    match (fastest, least) {
        (Some(way), _) => format!("{of} beyond doubt; the fastest is {}.{others}", named(way)),
        (None, Some(way)) if fitting == 0 => {
            format!(
                "None of {} combinations fits beyond doubt; {} needs least.{others}",
                grouped(answered as u64),
                named(way)
            )
        }
        (None, Some(_)) => format!("{of} beyond doubt.{others}"),
        (None, None) => "No combination has an answer.".to_owned(),
    }
}

fn row(state: State, way: &Way, own: &Scenario, unit: Unit) -> Row {
    let scenario = &way.scenario;
    let [method, rest] = setting_name(scenario);
    let batches = passes_in_words(scenario);
    let besides = besides(own, scenario).map_or_else(String::new, |besides| format!("; {besides}"));
    let told = format!("Opened {method}, {rest}");
    Row {
        class: if **scenario == *own { "own" } else { "" },
        cells: outcome(state, way, &told, format!("open {method}, {rest}"), unit),
        head: Cell { small: format!("{rest}; {batches}{besides}"), ..Cell::of(method) },
        ..Row::default()
    }
}

/// What a row is called by, and the batch.
const NAMED: [&str; 7] = [
    "method",
    "precision",
    "optimizer",
    "loss",
    "gradient-checkpointing",
    "batch-size",
    "gradient-accumulation",
];

/// What else a combination changes of the scenario: `Allocator: Expandable segments`.
fn besides(own: &Scenario, scenario: &Scenario) -> Option<String> {
    let differs =
        |key: &&Key| !NAMED.contains(&key.name) && key.matters(scenario) && !key.is_same(own, scenario);
    let words = |key: &Key| format!("{}: {}", key.label_for(scenario), key.words(scenario));
    let found: Vec<String> = keys().filter(differs).map(words).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tried_settings;
    use crate::ui::desk::Desk;

    #[test]
    fn a_combination_says_what_it_is_and_what_it_needs() {
        let scenario = Scenario::default();
        let ways = tried_settings(&scenario, WayOrder::Speed);
        let said = gist(&ways);
        assert!(said.contains(" combinations fit beyond doubt; the fastest is "), "{said}");
        Owner::new().with(|| {
            let state = State::new(Vec::new(), Desk::default());
            let rows: Vec<Row> = ways.iter().map(|way| row(state, way, &scenario, Unit::Binary)).collect();
            assert_eq!(rows.iter().filter(|row| row.class == "own").count(), 1);
            assert!(rows[0].cells[0].act.is_some() && rows[0].cells[1].text.ends_with("tokens/s"));
        });
        // what a click changes is all in the row: what is tight runs with expandable segments
        let tight = crate::share::decode("gpu=rtx-3060-12gb&b=4&ga=2").scenarios.remove(0);
        let ways = tried_settings(&tight, WayOrder::Speed);
        let joined = ways.iter().find(|way| way.scenario.allocator != tight.allocator).expect("one of them");
        Owner::new().with(|| {
            let state = State::new(Vec::new(), Desk::default());
            let said = row(state, joined, &tight, Unit::Binary).head.small;
            assert!(said.contains("; Allocator: Expandable segments"), "{said}");
            assert!(said.contains(" a pass × "), "{said}");
        });
        let small = crate::share::decode("gpu=4GB").scenarios.remove(0);
        let none = gist(&tried_settings(&small, WayOrder::Speed));
        assert!(none.starts_with("None of ") && none.ends_with(" needs least."), "{none}");
    }
}
