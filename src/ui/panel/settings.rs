//! Every sensible combination of settings for the scenario's model and card: those that fit, the fastest first.

use leptos::prelude::*;

use super::document::Grounds;
use super::rows::summed_up;
use super::ways::{WayTable, outcome, tried};
use crate::plan::{Way, setting_name, settings};
use crate::scenario::Scenario;
use crate::ui::asked::Listed;
use crate::ui::behind::Behind;
use crate::ui::controls::{Cell, Row};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::state::State;
use crate::units::grouped;

/// How many are listed before all are asked for.
const LISTED: usize = 10;

/// The table of combinations, where the model is trained.
#[component]
pub fn Settings() -> impl IntoView {
    let state = State::of_page();
    let trains = Memo::new(move |_| state.current().scenario.with(|scenario| scenario.task.trains()));
    move || trains.get().then(|| view! { <Combinations /> })
}

#[component]
fn Combinations() -> impl IntoView {
    let state = State::of_page();
    let tried = tried(state, move || state.current().scenario.with(settings), Place::Setting);
    let told = move || {
        summed_up(tried.busy, tried.stopped, "Running every combination …", || {
            tried.known.with(|ways| gist(ways))
        })
    };
    view! {
        <section class="panel" aria-labelledby="settings-title">
            <h2 id="settings-title">"Which settings?"</h2>
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
        </section>
    }
}

/// How many combinations fit, and which is fastest.
fn gist(ways: &[Way]) -> String {
    let fitting = ways.iter().filter(|way| way.fits()).count();
    let answered = ways.iter().filter(|way| way.needed().is_some()).count();
    let of = format!("{} of {} combinations fit", grouped(fitting as u64), grouped(answered as u64));
    let named = |way: &Way| setting_name(&way.scenario).join(", ");
    let fastest = ways.iter().find(|way| way.fits() && way.speed().is_some());
    let least = ways.iter().filter(|way| way.needed().is_some()).min_by_key(|way| way.needed());
    match (fastest, least) {
        (Some(way), _) => format!("{of} beyond doubt; the fastest is {}.", named(way)),
        (None, Some(way)) if fitting == 0 => {
            format!(
                "None of {} combinations fits beyond doubt; {} needs least.",
                grouped(answered as u64),
                named(way)
            )
        }
        (None, Some(_)) => format!("{of} beyond doubt."),
        (None, None) => "No combination has an answer.".to_owned(),
    }
}

fn row(state: State, way: &Way, own: &Scenario, unit: Unit) -> Row {
    let scenario = &way.scenario;
    let [method, rest] = setting_name(scenario);
    let batches = format!("{} × {} sequences", grouped(scenario.accumulation), grouped(scenario.batch));
    let told = format!("Opened {method}, {rest}");
    Row {
        class: if **scenario == *own { "own" } else { "" },
        cells: outcome(state, way, &told, format!("open {method}, {rest}"), unit),
        head: Cell { small: format!("{rest}; {batches}"), ..Cell::of(method) },
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{WayOrder, tried_settings};
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
        let small = crate::share::decode("gpu=4GB").scenarios.remove(0);
        let none = gist(&tried_settings(&small, WayOrder::Speed));
        assert!(none.starts_with("None of ") && none.ends_with(" needs least."), "{none}");
    }
}
