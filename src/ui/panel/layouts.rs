//! Every way to use so many GPUs: those that hold the scenario, the fastest of each engine first, and why the others do not.

use leptos::prelude::*;

use super::document::Grounds;
use super::rows::summed_up;
use super::ways::{WayTable, outcome, tried};
use crate::plan::{Way, WayOrder, passes_in_words, refusals, ways};
use crate::scenario::Scenario;
use crate::scenario::keys::Key;
use crate::ui::asked::{Listed, layout_gpus};
use crate::ui::behind::Behind;
use crate::ui::controls::{Cell, Row};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::grouped;

/// How many are listed before all are asked for.
const LISTED: usize = 8;

/// The table of ways to use GPUs.
#[component]
pub fn Layouts() -> impl IntoView {
    let state = State::of_page();
    let chosen = state.asked.gpus;
    let gpus = Memo::new(move |_| {
        let own = state.current().scenario.with(|scenario| scenario.cluster.gpus);
        let fewest =
            || state.levers.with(|known| Some(known.as_ref()?.1.fewest.as_ref().ok()?.as_ref()?.gpus));
        chosen.get().unwrap_or_else(|| if own > 1 { own } else { fewest().unwrap_or(1).max(2) })
    });
    let tried = tried(
        state,
        move || {
            state.current().scenario.with(|scenario| match scenario.task.trains() {
                true => ways(scenario, gpus.get()),
                false => Vec::new(),
            })
        },
        Place::Layout,
        WayOrder::Engines,
    );
    let told = move || {
        let looking = format!("Running every way to use {} GPUs …", grouped(gpus.get()));
        summed_up(tried.busy, tried.stopped, &looking, || {
            tried.known.with(|ways| gist(gpus.get(), ways, state.unit()))
        })
    };
    let number = move |number: u64| {
        view! {
            <button
                type="button"
                aria-pressed=Signal::derive(move || (gpus.get() == number).to_string())
                on:click=move |_| chosen.set(Some(number))
            >
                {grouped(number)}
            </button>
        }
    };
    view! {
        <p class="remark" id="layout-gpus">"Number of GPUs"</p>
        <div class="units" role="group" aria-labelledby="layout-gpus">
            {layout_gpus().map(number).collect::<Vec<_>>()}
        </div>
        <p class="remark">{told}</p>
        <WayTable
            tried=tried
            caption="Ways to use the GPUs"
            names=["Layout", "Each GPU needs", "Tokens per second"]
            table=Listed::Layouts
            listed=LISTED
            what="ways"
            row=row
        />
        <p class="remark">
            "What each GPU needs, and what all of them do. Every way trains on as many sequences in a step, in the fastest \
             micro-batch that fits; the fastest of each engine comes first, and speeds are rough. Choose one to open it."
        </p>
        <Grounds of=Behind::Gpus />
    }
}

/// How many ways fit, and which is fastest; where none does, why, or which comes nearest.
fn gist(gpus: u64, ways: &[Way], unit: Unit) -> String {
    let fitting = ways.iter().filter(|way| way.fits()).count();
    if fitting == 0 {
        let none =
            format!("None of {} ways to use {} of these cards", grouped(ways.len() as u64), grouped(gpus));
        let nearest =
            ways.iter().filter_map(|way| Some((way.needed()?, way))).min_by_key(|(needed, _)| *needed);
        let reason = refusals(ways.iter()).into_iter().max_by_key(|(_, names)| names.len());
        return match (nearest, reason) {
            (Some((needed, way)), _) => {
                let needs = match way.is_followed() {
                    true => format!("comes nearest and needs {} of each", unit.amount(needed)),
                    false => format!("comes nearest and needs more than {} of each", unit.amount(needed)),
                };
                format!(
                    "{none} fits beyond doubt: {} {needs}. More GPUs, or a change to the run itself, may do.",
                    way.name()
                )
            }
            (None, Some((issue, _))) => format!("{none} has an answer: {issue}."),
            (None, None) => format!("{none} has an answer."),
        };
    }
    let of = format!(
        "{} of {} ways to use {} of these cards fit",
        grouped(fitting as u64),
        grouped(ways.len() as u64),
        grouped(gpus)
    );
    let fastest = ways.iter().filter(|way| way.fits() && way.speed().is_some());
    let speed = |way: &Way| way.speed().map_or(0.0, |speed| speed.typical);
    match fastest.max_by(|one, other| speed(one).total_cmp(&speed(other))) {
        Some(way) => format!("{of}; the fastest is {}.", way.name()),
        None => format!("{of}. No measured run is near enough to say which is fastest."),
    }
}

fn row(state: State, way: &Way, own: &Scenario, unit: Unit) -> Row {
    let scenario = &way.scenario;
    let checkpointing =
        Key::find("gradient-checkpointing").map_or_else(String::new, |key| key.words(scenario));
    let batches = passes_in_words(scenario);
    let brings =
        way.brings(own).map_or_else(String::new, |brings| format!("; differs from this scenario: {brings}"));
    let head = Cell {
        small: format!("checkpointing {}, {batches}{brings}", checkpointing.to_lowercase()),
        ..Cell::of(way.name())
    };
    let told = format!("{} under {}", summary::cards(scenario, unit), way.name());
    Row {
        class: if **scenario == *own { "own" } else { "" },
        cells: outcome(state, way, &told, format!("open {}", way.name()), unit),
        head,
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::layouts;
    use crate::share;
    use crate::ui::desk::Desk;

    #[test]
    fn a_way_says_what_it_needs_and_what_stands_in_its_way() {
        let link = "m=HuggingFaceTB/SmolLM-360M&method=full&p=amp-bf16-weights&gpu=a100-sxm-40gb";
        let scenario = share::decode(link).scenarios.remove(0);
        let ways = layouts(&scenario, 2);
        let said = gist(2, &ways, Unit::Binary);
        assert!(said.contains(" ways to use 2 of these cards fit; the fastest is "), "{said}");
        Owner::new().with(|| {
            let state = State::new(Vec::new(), Desk::default());
            let first = row(state, &ways[0], &ways[0].scenario, Unit::Binary);
            assert_eq!((first.class, first.head.text), ("own", ways[0].name()));
            assert!(first.cells[0].act.is_some() && first.cells[1].text.ends_with("tokens/s"));
            let refused =
                ways.iter().find(|way| way.verdict().is_none()).expect("CPU offload under AdamW is one");
            let last = row(state, refused, &scenario, Unit::Binary);
            assert!(last.cells[0].act.is_none() && !last.cells[1].small.is_empty());
        });
    }

    #[test]
    fn where_none_fits_the_nearest_or_the_reason_is_told() {
        let none = |link: &str| {
            let scenario = share::decode(link).scenarios.remove(0);
            gist(2, &layouts(&scenario, 2), Unit::Binary)
        };
        let large = none("m=meta-llama/Llama-3.3-70B-Instruct&method=full&p=bf16&gpu=4GB");
        assert!(large.contains(" comes nearest and needs ") && large.contains("GiB of each"), "{large}");
        let foreign = none("m=Qwen/Qwen3-8B&st=unsloth&gpu=rtx-4090");
        assert!(foreign.contains(" has an answer: ") && foreign.contains("Unsloth"), "{foreign}");
    }
}
