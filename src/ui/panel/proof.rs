//! Every measured run beside its prediction, fetched when it is looked at: points, errors, verdicts, rows, other calculators.

mod filters;
mod points;

use std::sync::Arc;

use leptos::prelude::*;

use super::chart::Chart;
use super::document::Document;
use super::measured::fetch;
use super::peers::{Known, Peers, fetch as fetch_others, said};
use crate::check::{Figure, MISS_PERCENT, Run, Verdicts};
use crate::plan::Verdict;
use crate::ui::browser;
use crate::ui::chart::scatter::{bars, edge_name};
use crate::ui::controls::{Cell, Row, Table, columns, explained};
use crate::ui::format::Unit;
use crate::ui::proof::{EDGES, FILE, Filter, errors, histogram, metric, settings, signed, verdicts};
use crate::ui::state::{Measured, State};
use crate::units::grouped;
use filters::{Change, Filters};
use points::Points;

/// How many rows are listed at first, and how many more with each click.
const LISTED: usize = 20;
const MORE: usize = 100;

/// The runs and what they say, as soon as they are here.
#[component]
pub fn Proof() -> impl IntoView {
    let state = State::of_page();
    fetch(state);
    move || match state.measured.get() {
        Measured::Here(runs) => view! { <Runs runs=runs /> }.into_any(),
        Measured::Failed(why) => view! {
            <section class="panel" role="alert">
                <h2>"Every measured run"</h2>
                <p>{why}</p>
                <button type="button" class="tool" on:click=move |_| fetch(state)>
                    "Try again"
                </button>
            </section>
        }
        .into_any(),
        Measured::Unasked | Measured::Awaited => view! {
            <section class="panel" aria-busy="true">
                <h2>"Every measured run"</h2>
                <p class="remark">"Fetching what was measured …"</p>
            </section>
        }
        .into_any(),
    }
}

/// What the runs ran on, and how far the two are apart (docs/accuracy.md, "How far the null device is from a real one").
fn grounds(runs: &[Run]) -> String {
    let over_null = runs.iter().filter(|run| run.is_over_null_device()).count();
    let on_cards = runs.len().saturating_sub(over_null);
    format!(
        "{} of these runs were on real GPUs, published by others. {} are PyTorch's own code over a CUDA device that computes nothing (the null \
         device), on which every size of a model costs nothing to measure. 48 published runs were repeated there: on a T4 it differs by 0.12 % in the median, on an A10G by \
         0.16 %, at worst by 0.96 %.",
        grouped(on_cards as u64),
        grouped(over_null as u64)
    )
}

/// The figures that are looked at, each with the place of its run.
type Chosen = Vec<(usize, Figure)>;

#[component]
fn Runs(
    /// All of them.
    runs: Arc<Vec<Run>>,
) -> impl IntoView {
    let state = State::of_page();
    let filter = RwSignal::new(Filter::default());
    let listed = RwSignal::new(LISTED);
    let others = fetch_others();
    let runs = StoredValue::new(runs);
    let chosen: Memo<Chosen> =
        Memo::new(move |_| filter.with(|filter| runs.with_value(|runs| filter.figures(runs))));
    let change = Callback::new(move |change: Change| {
        filter.update(|filter| change(filter));
        listed.set(LISTED);
    });
    let gist = move || {
        let unexplained = chosen.with(|chosen| runs.with_value(|runs| unexplained(runs, chosen)));
        chosen.with(|chosen| gist(&filter.get(), chosen)) + &unexplained
    };
    let none = Signal::derive(move || chosen.with(Vec::is_empty));
    let bins = Signal::derive(move || {
        let bins = chosen.with(|chosen| histogram(chosen));
        let row = |(index, count): (usize, &usize)| Row {
            head: Cell::of(bin(index)),
            cells: vec![Cell::of(grouped(*count as u64))],
            ..Row::default()
        };
        bins.iter().enumerate().map(row).collect::<Vec<_>>()
    });
    let matrix = Signal::derive(move || chosen.with(|chosen| runs.with_value(|runs| matrix(runs, chosen))));
    let rows = Signal::derive(move || {
        let unit = state.unit();
        chosen.with(|chosen| {
            let listed = chosen.iter().take(listed.get());
            runs.with_value(|runs| {
                listed
                    .filter_map(|(place, figure)| Some(row(state, others, runs.get(*place)?, *figure, unit)))
                    .collect()
            })
        })
    });
    let left = Signal::derive(move || chosen.with(Vec::len).saturating_sub(listed.get()));
    view! {
        <section class="panel wide" aria-labelledby="proof-title">
            <h2 id="proof-title">"Every measured run"</h2>
            <p class="remark">{runs.with_value(|runs| explained("grounds", &grounds(runs)))}</p>
            <Filters runs=runs filter=filter change=change />
            <p class="proof-gist" role="status">
                {gist}
            </p>
            <div class="proof-charts" hidden=none>
                <Points chosen=chosen runs=runs />
                <div>
                    <h3>"How far off"</h3>
                    <Chart
                        label="How many figures are off by how much"
                        draw=move |width| {
                            bars(&chosen.with(|chosen| histogram(chosen)), width, "Figures by error")
                        }
                    />
                    <details class="twin">
                        <summary>"As a table"</summary>
                        <Table
                            caption="How many figures are off by how much"
                            class="measured"
                            columns=Signal::stored(columns(["Off by", "Figures"]))
                            rows=bins
                        />
                    </details>
                    <h3>"How often the verdict was right"</h3>
                    <p class="remark">
                        "Each of these runs on cards of 0.90 to 1.10 times what it took; of a run that others published with its card, on \
                         that card. “Close” and “tight” hedge; “fits” for a run that fails is the error that costs."
                    </p>
                    <Table
                        caption="Verdicts by what the runs do"
                        class="measured matrix"
                        columns=Signal::derive(|| {
                            let verdicts = [Verdict::Fits, Verdict::Close, Verdict::Tight, Verdict::Over];
                            let names = verdicts.map(|verdict| verdict.label().to_owned());
                            ["The run".to_owned()].into_iter().chain(names).collect::<Vec<_>>()
                        })
                        rows=matrix
                    />
                </div>
            </div>
            <div hidden=none>
                <h3>"Row by row, those furthest off first"</h3>
                <Table
                    caption="Measured runs, those furthest off first"
                    class="measured runs"
                    columns=Signal::stored(columns(["Run", "Measured", "Predicted", "Error", "Where, and why it is missed"]))
                    rows=rows
                />
                <p class="tools-row">
                    <button
                        type="button"
                        class="explain"
                        hidden=Signal::derive(move || left.get() == 0)
                        on:click=move |_| listed.update(|listed| *listed += MORE)
                    >
                        {move || format!("{} more", grouped(left.get().min(MORE) as u64))}
                    </button>
                    <a class="explain" href=FILE download="headroom-measured.tsv">
                        "Download the data (tab-separated)"
                    </a>
                    <Document at="versions.html" text="What other versions of the libraries take" />
                    <a class="explain" href="unexpressed.tsv" target="_blank">
                        "Published, but not predicted, and why"
                    </a>
                </p>
            </div>
        </section>
        <Peers runs=runs known=others />
    }
}

/// What the figures say together.
fn gist(filter: &Filter, chosen: &[(usize, Figure)]) -> String {
    if chosen.is_empty() {
        return format!("{}: no run has this figure under these filters.", metric(filter.metric));
    }
    let errors = errors(chosen);
    let within = chosen.iter().filter(|(_, figure)| !figure.is_miss()).count();
    format!(
        "{}, {} runs: off by {:.2} % in the median, {:.2} % at the 95th percentile, {:.1} % at worst; {} within {MISS_PERCENT} %.",
        metric(filter.metric),
        grouped(errors.count as u64),
        errors.median_pct,
        errors.p95_pct,
        errors.worst_pct,
        grouped(within as u64),
    )
}

/// How many of the misses have no cause that was found.
fn unexplained(runs: &[Run], chosen: &[(usize, Figure)]) -> String {
    let misses = chosen.iter().filter(|(_, figure)| figure.is_miss());
    let misses: Vec<&Run> = misses.filter_map(|(place, _)| runs.get(*place)).collect();
    let unknown = misses.iter().filter(|run| run.has_no_cause()).count();
    match (misses.len(), unknown) {
        (0, _) => String::new(),
        (1, 0) => " The other one has a cause.".to_owned(),
        (all, 0) => format!(" Of the {} others each has a cause.", grouped(all as u64)),
        (all, unknown) => {
            let [others, unknown] = [all, unknown].map(|count| grouped(count as u64));
            let have = if unknown == "1" { "has" } else { "have" };
            match all {
                1 => " The other one has no cause that was found yet.".to_owned(),
                _ => format!(" Of the {others} others {unknown} {have} no cause that was found yet."),
            }
        }
    }
}

/// The name of a bar.
fn bin(index: usize) -> String {
    let edge = |index: usize| EDGES.get(index).map(|edge| edge_name(*edge)).unwrap_or_default();
    match index {
        0 => format!("less than {}", edge(0)),
        _ if index == EDGES.len() => format!("more than {}", edge(index - 1)),
        _ => format!("{} to {}", edge(index - 1), edge(index)),
    }
}

/// The verdicts by what the runs do.
fn matrix(runs: &[Run], chosen: &[(usize, Figure)]) -> Vec<Row> {
    let all = verdicts(runs, chosen);
    let row = |name: &str, small: &str, verdicts: &Verdicts, wrong: usize| {
        let counts = [verdicts.fits, verdicts.close, verdicts.tight, verdicts.over];
        let cell = |(index, count): (usize, usize)| Cell {
            class: if index == wrong && count > 0 { "wrong" } else { "" },
            ..Cell::of(grouped(count as u64))
        };
        Row {
            head: Cell { small: small.to_owned(), ..Cell::of(name) },
            cells: counts.into_iter().enumerate().map(cell).collect(),
            ..Row::default()
        }
    };
    vec![
        row("It gets through", "the card has what it reserved", &all.runs, 3),
        row("It fails", "the card has less than it allocated", &all.fails, 0),
        row("Between", "depends on what PyTorch gives back", &all.between, usize::MAX),
    ]
}

fn row(state: State, others: Known, run: &Run, figure: Figure, unit: Unit) -> Row {
    let link = run.link.clone();
    let open = Callback::new(move |()| {
        if let Some(scenario) = Run::linked(&link) {
            state.open(scenario, "Opened the measured run");
            browser::scroll_to_top();
        }
    });
    let where_from = match (run.source.is_empty(), run.device.is_empty()) {
        (true, false) => format!("{}.json, {}", run.file, run.device),
        (_, true) => format!("{}.json", run.file),
        (false, false) => run.device.clone(),
    };
    // a link to a branch leads to what stands there today
    let moves =
        run.source.contains("/blob/HEAD/").then_some("No commit was recorded: the source may have changed.");
    let reason = Some(run.reason.as_str()).filter(|reason| figure.is_miss() && !reason.is_empty());
    let others = said(others, run, figure);
    let reason = [reason, moves, others.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    Row {
        head: Cell {
            small: format!(
                "{} · {} × {} tokens",
                settings(&run.settings),
                grouped(run.batch),
                grouped(run.sequence)
            ),
            hint: format!("Open this run: {}", run.id),
            act: Some(open),
            // what was drawn has no name of its own
            ..Cell::of(if run.model == "model" { run.id.clone() } else { run.model.clone() })
        },
        cells: vec![
            Cell::of(unit.amount(figure.measured)),
            Cell::of(unit.amount(figure.predicted)),
            Cell {
                class: if figure.is_miss() { "miss" } else { "" },
                ..Cell::of(signed(figure.error_pct()))
            },
            Cell { class: "origin", small: reason, href: run.source.clone(), ..Cell::of(where_from) },
        ],
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Metric, read_runs};

    #[test]
    fn bars_have_names() {
        assert_eq!(
            (bin(0), bin(5), bin(10)),
            ("less than −10 %".into(), "−0.1 % to +0.1 %".into(), "more than +10 %".into())
        );
    }

    #[test]
    fn what_was_kept_shows_that_no_run_that_fails_was_said_to_fit() {
        let runs = read_runs(include_str!("../../../data/measured.tsv"));
        let chosen = Filter::default().figures(&runs);
        assert!(chosen.len() > 2_000, "{}", chosen.len());
        let rows = matrix(&runs, &chosen);
        assert_eq!(rows[1].cells[0].text, "0");
        assert!(gist(&Filter::default(), &chosen).contains("off by 0.00 % in the median"));
        let reserved = Filter { metric: Metric::Reserved, ..Filter::default() }.figures(&runs);
        let told = unexplained(&runs, &reserved);
        let misses = reserved.iter().filter(|(_, figure)| figure.is_miss()).count();
        assert!(told.contains(&format!("Of the {misses} others ")), "{told}");
        assert_eq!(unexplained(&runs, &reserved[reserved.len() - 1..]), "");
    }
}
