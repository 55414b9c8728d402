//! Several GPUs: what each of them holds, and what other numbers of them and other engines would make of the scenario.

use leptos::prelude::*;

use super::chart::Chart;
use super::need::open;
use super::rows::pieces;
use crate::estimate::estimate;
use crate::memory::{Memory, Rank};
use crate::plan::{GPU_COUNTS, Layout as OnGpus, Verdict};
use crate::scenario::{Cluster, Scenario, Sharding, Stack};
use crate::ui::chart::stack::{Bar, Layout, draw};
use crate::ui::controls::{Cell, Column, Row, Table};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::{Bytes, grouped};

/// How many GPUs have a bar of their own.
const DRAWN: u64 = 8;

/// How many stages of a pipeline have.
const MOST_STAGES: u64 = 32;

/// What every GPU holds, where there are several.
#[component]
pub fn Ranks() -> impl IntoView {
    let state = State::of_page();
    let cluster = Memo::new(move |_| state.current().scenario.with(|scenario| scenario.cluster));
    let title = move || format!("All {} GPUs", grouped(cluster.get().gpus));
    let told = move || {
        let unit = state.unit();
        let told = |needed, capacity, batch| together(cluster.get(), needed, capacity, batch, unit);
        state.current().answer(|scenario, memory, gpu| match memory.rank {
            Some(rank) => staged(cluster.get(), rank),
            None => told(memory.needed(), gpu.memory, scenario.batch.saturating_mul(scenario.accumulation)),
        })
    };
    let silent = move || {
        !cluster.get().is_many() || state.current().estimate.with(|estimate| estimate.memory.is_none())
    };
    view! {
        <section class="panel" hidden=Signal::derive(silent)>
            <h2>{title}</h2>
            <Chart label="Memory at the peak of every GPU" draw=move |width| bars(state, width) />
            <p class="remark">{told}</p>
            <p class="remark">{move || cluster.get().sharding.help()}</p>
        </section>
    }
}

/// A bar for each GPU, as far as there is room.
fn bars(state: State, width: u32) -> String {
    let unit = state.unit();
    let layout = Layout { width, bar: 14, gap: 6, names: 56, amounts: 76, labelled: false };
    let drawn = state.current().answer(|scenario, memory, gpu| {
        let bar = |name, memory: &Memory| Bar {
            name,
            segments: Bar::segments(&memory.peak().1.parts, memory.context),
            capacity: gpu.memory,
            faded: false,
        };
        let Some(rank) = memory.rank else {
            let bars = (0..scenario.cluster.gpus.min(DRAWN)).map(|rank| bar(format!("GPU {rank}"), memory));
            let told = "Bars of the memory at the peak of every GPU, all alike";
            return draw(&bars.collect::<Vec<_>>(), unit, layout, told);
        };
        let stages = 1..=rank.stages.min(MOST_STAGES);
        let bars = stages.filter_map(|stage| {
            let name = format!("stage {}", grouped(stage));
            if stage == rank.stage {
                return Some(bar(name, memory));
            }
            let mut other = scenario.clone();
            other.cluster.layout.stage = stage;
            Some(bar(name, &estimate(&other).memory?))
        });
        draw(
            &bars.collect::<Vec<_>>(),
            unit,
            layout,
            "Bars of the memory at the peak of a GPU of every stage",
        )
    });
    drawn.unwrap_or_default()
}

/// Which stage is answered for, and what the others are.
fn staged(cluster: Cluster, rank: Rank) -> String {
    let each = cluster.gpus / rank.stages.max(1);
    let leads = if cluster.layout.stage == 0 { "needs most, and its figures are shown" } else { "is shown" };
    let beyond = match rank.stages.checked_sub(MOST_STAGES) {
        None | Some(0) => String::new(),
        Some(more) => format!(" {} more stages are not drawn.", grouped(more)),
    };
    let gpus = if each == 1 { "one GPU".to_owned() } else { format!("{} GPUs, all alike", grouped(each)) };
    format!(
        "A GPU of {}, {leads}. Each stage has {gpus}; the bars of other stages are of their tensors.{beyond}",
        rank.words()
    )
}

/// What all GPUs need together, so that nobody takes the figure of one for it.
fn together(cluster: Cluster, needed: Bytes, capacity: Bytes, sequences: u64, unit: Unit) -> String {
    let gpus = cluster.gpus;
    let all = |bytes: Bytes| unit.amount(Bytes(bytes.0.saturating_mul(gpus)));
    let beyond = match gpus.checked_sub(DRAWN) {
        None | Some(0) => String::new(),
        Some(more) => format!("{} more are like those drawn. ", grouped(more)),
    };
    format!(
        "{beyond}All do the same at the same time, each with a batch of its own: one is executed on behalf of all. Together they \
         need {} of {} and take {} sequences per step.",
        all(needed),
        all(capacity),
        grouped(sequences.saturating_mul(gpus)),
    )
}

/// The numbers of GPUs that are listed.
fn counts() -> impl Iterator<Item = u64> {
    GPU_COUNTS.into_iter().filter(|gpus| (2..=32).contains(gpus))
}

/// The engines that go with the scenario's training library.
fn engines(scenario: &Scenario) -> impl Iterator<Item = Sharding> + use<> {
    let megatron = scenario.stack == Stack::Megatron;
    Sharding::ALL.iter().copied().filter(move |sharding| match sharding {
        Sharding::Ddp => true,
        Sharding::Distributed => megatron,
        Sharding::Fsdp2 | Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => !megatron,
    })
}

/// The scenario under an engine on so many GPUs, with the precision that they usually have unless another was chosen.
fn under(scenario: &Scenario, sharding: Sharding, gpus: u64) -> Scenario {
    let mut other = scenario.clone();
    other.change(|scenario| {
        scenario.cluster.set_gpus(gpus);
        scenario.cluster.sharding = sharding;
    });
    other
}

/// What a GPU needs under each engine, by their number.
#[component]
pub fn Layouts() -> impl IntoView {
    let state = State::of_page();
    let found = pieces(
        state,
        // Another number or another engine is another place in the same table.
        move || state.current().scenario.with(|scenario| under(scenario, Sharding::ALL[0], 2)),
        |scenario| {
            let ask = |sharding, gpus| Question::Point(Box::new(under(scenario, sharding, gpus)));
            let row = |sharding: Sharding| counts().map(|gpus| ask(sharding, gpus)).collect::<Vec<_>>();
            engines(scenario).flat_map(row).collect()
        },
        Place::Layout,
        |answer| {
            let Answer::Point(point) = answer else { return None };
            Some(point)
        },
    );
    let rows = Signal::derive(move || {
        let unit = state.unit();
        let points: Vec<_> = found.heard.get();
        state.current().scenario.with(|scenario| {
            let row = |(index, sharding): (usize, Sharding)| {
                let cell = |(column, gpus): (usize, u64)| {
                    let point = points.get(index * counts().count() + column).copied().flatten();
                    cell(state, under(scenario, sharding, gpus), point, unit)
                };
                Row {
                    class: if scenario.cluster.is_many() && scenario.cluster.sharding == sharding {
                        "own"
                    } else {
                        ""
                    },
                    head: Cell { hint: sharding.help().to_owned(), ..Cell::of(sharding.label()) },
                    cells: counts().enumerate().map(cell).collect(),
                    ..Row::default()
                }
            };
            engines(scenario).enumerate().map(row).collect::<Vec<_>>()
        })
    });
    let columns = Signal::derive(|| {
        let numbers = counts().map(|gpus| format!("{} GPUs", grouped(gpus)));
        ["Sharding".to_owned()].into_iter().chain(numbers).map(|name| (name, None)).collect::<Vec<Column>>()
    });
    let fewest = move || {
        let known = state.levers.get()?;
        let unit = state.unit();
        Some(match &known.1.fewest {
            Err(issue) => view! { {format!("How many GPUs hold it is not known: {issue}.")} }.into_any(),
            Ok(None) => {
                view! { "None of 1, 2, 4, 8 and so on up to 1,024 of these cards holds it." }.into_any()
            }
            Ok(Some(layout)) => fewest(state, &known.0, layout, unit).into_any(),
        })
    };
    view! {
        <section class="panel" aria-labelledby="layouts-title">
            <h2 id="layouts-title">"How many GPUs?"</h2>
            <p class="fewest">{fewest}</p>
            <Table
                caption="What each GPU needs, by engine and number of GPUs"
                class="measured layouts"
                columns=columns
                rows=rows
                busy=found.busy
            />
            <p class="remark">"What each GPU needs, not all of them together. Choose a cell to open it."</p>
        </section>
    }
}

fn cell(state: State, scenario: Scenario, point: Option<Option<(Bytes, Verdict)>>, unit: Unit) -> Cell {
    match point {
        None => Cell::of("…"),
        Some(None) => {
            let issue = estimate(&scenario).errors().next().map(ToString::to_string);
            Cell { hint: issue.unwrap_or_default(), class: "unknown", ..Cell::of("–") }
        }
        Some(Some((bytes, verdict))) => {
            let told =
                format!("{} under {}", summary::cards(&scenario, unit), scenario.cluster.sharding.label());
            Cell {
                small: verdict.label().to_lowercase(),
                class: verdict.slug(),
                act: Some(Callback::new(move |()| open(state, &scenario, &told))),
                ..Cell::of(unit.amount(bytes))
            }
        }
    }
}

/// The fewest GPUs that hold the scenario, and the way there.
fn fewest(state: State, scenario: &Scenario, layout: &OnGpus, unit: Unit) -> impl IntoView + use<> {
    let cards = summary::cards(&layout.scenario, unit);
    let told = match layout.gpus {
        1 => format!("One GPU holds it: {}.", unit.amount(layout.needed)),
        _ => format!(
            "The fewest of 1, 2, 4, 8 and so on that hold it: {cards} under {}, {} on each.",
            layout.scenario.cluster.sharding.label(),
            unit.amount(layout.needed)
        ),
    };
    let other = (layout.gpus != scenario.cluster.gpus).then(|| (*layout.scenario).clone());
    let button = other.map(|scenario| {
        let told = format!("Open {cards}");
        let face = told.clone();
        view! {
            <button type="button" class="explain" on:click=move |_| open(state, &scenario, &told)>
                {face}
            </button>
        }
    });
    view! { {told} " " {button} }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;
    use crate::share;

    #[test]
    fn the_figure_of_one_and_of_all_are_told_apart() {
        let cluster = Cluster { gpus: 16, ..Cluster::ONE };
        let told = together(cluster, Bytes::gib(10.), Bytes::gib(24.), 4, Unit::Binary);
        assert!(told.starts_with("8 more are like those drawn. "), "{told}");
        assert!(told.contains("need 160.0 GiB of 384.0 GiB and take 64 sequences per step"), "{told}");
        let two = together(Cluster { gpus: 2, ..cluster }, Bytes::gib(10.), Bytes::gib(24.), 1, Unit::Binary);
        assert!(two.starts_with("All do the same"), "{two}");
    }

    #[test]
    fn stages_are_told_apart() {
        let layout = scenario::Layout { tensor: 2, pipeline: 4, ..scenario::Layout::WHOLE };
        let cluster = Cluster { gpus: 16, layout, ..Cluster::ONE };
        let rank = Rank { stage: 1, stages: 4, in_flight: 4, interleaved: false };
        let told = staged(cluster, rank);
        assert!(
            told.starts_with("A GPU of stage 1 of 4, which holds the embedding and 4 micro-batches"),
            "{told}"
        );
        assert!(told.contains("Each stage has 4 GPUs, all alike"), "{told}");
    }

    #[test]
    fn every_place_of_the_table_is_the_scenario_there() {
        let scenario = share::decode("method=full&b=2&gpus=4&shard=fsdp2&p=amp-bf16").scenarios.remove(0);
        assert_eq!(under(&scenario, Sharding::Fsdp2, 4), scenario);
        let copies = under(&scenario, Sharding::Ddp, 8);
        assert_eq!((copies.cluster.gpus, copies.cluster.sharding, copies.batch), (8, Sharding::Ddp, 2));
        assert!(counts().all(|gpus| gpus > 1));
    }
}
