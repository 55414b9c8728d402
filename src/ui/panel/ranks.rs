//! Several GPUs: what each of them holds.

use leptos::prelude::*;

use super::chart::Chart;
use super::document::Grounds;
use crate::estimate::estimate;
use crate::memory::{Memory, Rank};
use crate::scenario::Cluster;
use crate::ui::behind::Behind;
use crate::ui::chart::stack::{Bar, Layout, draw};
use crate::ui::format::Unit;
use crate::ui::state::State;
use crate::units::{Bytes, grouped};

/// How many stages of a pipeline have.
const MOST_STAGES: u64 = 32;

/// What every GPU holds, where there are several.
#[component]
pub fn Ranks() -> impl IntoView {
    let state = State::of_page();
    let cluster = Memo::new(move |_| state.current().scenario.with(|scenario| scenario.cluster));
    let title = move || match cluster.get().gpus {
        2 => "Both GPUs".to_owned(),
        gpus => format!("All {} GPUs", grouped(gpus)),
    };
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
            <Grounds of=Behind::Gpus />
        </section>
    }
}

/// A bar for each GPU that is unlike the others.
fn bars(state: State, width: u32) -> String {
    let unit = state.unit();
    let layout = Layout { width, bar: 14, gap: 6, names: 56, amounts: 76, labelled: false, stretched: true };
    let drawn = state.current().answer(|scenario, memory, gpu| {
        let bar = |name, memory: &Memory| Bar {
            name,
            segments: Bar::segments(&memory.peak().1.parts, memory.context),
            capacity: gpu.memory,
            apart: None,
            faded: false,
        };
        let Some(rank) = memory.rank else {
            let told = "A bar of the memory at the peak of each GPU: all are alike";
            return draw(&[bar("each".to_owned(), memory)], unit, layout, told);
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
    let leads = if cluster.layout.stage == 0 { "decides, and its figures are shown" } else { "is shown" };
    let beyond = match rank.stages.checked_sub(MOST_STAGES) {
        None | Some(0) => String::new(),
        Some(more) => format!(" {} more stages are not drawn.", grouped(more)),
    };
    let gpus = if each == 1 { "one GPU".to_owned() } else { format!("{} GPUs, all alike", grouped(each)) };
    let ranks = rank.ranks(each);
    format!(
        "A GPU of {}, {leads} ({ranks}). Each stage has {gpus}; the bars of other stages are of their tensors.{beyond}",
        rank.words()
    )
}

/// What all GPUs need together, so that nobody takes the figure of one for it.
fn together(cluster: Cluster, needed: Bytes, capacity: Bytes, sequences: u64, unit: Unit) -> String {
    let gpus = cluster.gpus;
    let all = |bytes: Bytes| unit.amount(Bytes(bytes.0.saturating_mul(gpus)));
    format!(
        "All do the same at the same time, each with a batch of its own: one is executed on behalf of all. Together they \
         need {} of {} and take {} sequences per step.",
        all(needed),
        all(capacity),
        grouped(sequences.saturating_mul(gpus)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn the_figure_of_one_and_of_all_are_told_apart() {
        let cluster = Cluster { gpus: 16, ..Cluster::ONE };
        let told = together(cluster, Bytes::gib(10.), Bytes::gib(24.), 4, Unit::Binary);
        assert!(told.starts_with("All do the same"), "{told}");
        let told = crate::ui::markup::plain(&told);
        assert!(told.contains("need 160.0 GiB of 384.0 GiB and take 64 sequences per step"), "{told}");
    }

    #[test]
    fn stages_are_told_apart() {
        let layout = scenario::Layout { tensor: 2, pipeline: 4, ..scenario::Layout::WHOLE };
        let cluster = Cluster { gpus: 16, layout, ..Cluster::ONE };
        let rank = Rank { stage: 1, stages: 4, layers: 8, of_first: 8, in_flight: 4, interleaved: false };
        let told = staged(cluster, rank);
        assert!(
            told.starts_with(
                "A GPU of stage 1 of 4, which holds the embedding, 8 layers and 4 micro-batches"
            ),
            "{told}"
        );
        assert!(told.contains("Each stage has 4 GPUs, all alike"), "{told}");
    }
}
