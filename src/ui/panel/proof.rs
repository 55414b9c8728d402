//! Every measured run beside its prediction, fetched when it is looked at: points, errors, verdicts, rows, other calculators.

use std::sync::Arc;

use leptos::ev::{Event, PointerEvent};
use leptos::html;
use leptos::prelude::*;

use super::chart::{Chart, USUAL_WIDTH, follow_width};
use super::document::Document;
use super::measured::fetch;
use super::peers::{Known, Peers, fetch as fetch_others, said};
use crate::check::{Figure, MISS_PERCENT, Metric, Run, Verdicts};
use crate::plan::Verdict;
use crate::ui::browser;
use crate::ui::chart::scatter::{Axes, bars, draw, edge_name};
use crate::ui::controls::{Cell, Row, Table, columns, explained};
use crate::ui::format::Unit;
use crate::ui::proof::{
    EDGES, FILE, Filter, Kind, errors, histogram, metric, settings, signed, software, values, verdicts,
};
use crate::ui::state::{Measured, State};
use crate::units::grouped;

/// How many rows are listed at first, and how many more with each click.
const LISTED: usize = 20;
const MORE: usize = 100;

/// How close, in CSS pixels, a pointer must come to a point.
const REACH: f64 = 12.;

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

/// A change of the filter.
type Change = Box<dyn FnOnce(&mut Filter) + Send>;

/// What is looked at.
#[component]
fn Filters(
    /// All runs.
    runs: StoredValue<Arc<Vec<Run>>>,
    /// The filter.
    filter: RwSignal<Filter>,
    /// Changes it.
    change: Callback<Change>,
) -> impl IntoView {
    let list = move |first: &str, of: fn(&Run) -> &str, words: fn(&str) -> String| {
        let all = [(String::new(), first.to_owned())];
        let found = runs.with_value(|runs| {
            values(runs, of).into_iter().map(|value| (value.to_owned(), words(value))).collect::<Vec<_>>()
        });
        all.into_iter().chain(found).collect::<Vec<_>>()
    };
    let metrics = Metric::ALL.map(|one| (one.slug().to_owned(), metric(one).to_owned())).into();
    let devices = list("Real GPUs and the null device", Run::ran_on, device);
    let files = list("All files", |run| &run.file, |file| format!("{file}.json"));
    let stacks = list("All libraries", |run| &run.software, software);
    let methods = list("All methods", Run::method, settings);
    let families = list("All families", |run| &run.family, str::to_owned);
    let field = move |id, label, choices, set: fn(&mut Filter, String)| {
        drop_down(
            id,
            label,
            choices,
            Callback::new(move |value| change.run(Box::new(move |filter| set(filter, value)))),
        )
    };
    let state = State::of_page();
    // while an answer is awaited that of before stands
    let kind = Memo::new(move |before: Option<&Option<(Kind, String)>>| {
        let Some(detail) = state.current().close_look() else { return before.cloned().flatten() };
        let band = detail.measured_error()?;
        Some((Kind::of(&detail.scenario, &band)?, band.rests_on()))
    });
    let only_kind = RwSignal::new(false);
    // of another answer the runs are others
    Effect::new(move || {
        let chosen = kind.get().filter(|_| only_kind.get()).map(|(kind, _)| kind);
        if filter.with_untracked(|filter| filter.kind != chosen) {
            change.run(Box::new(move |filter| filter.kind = chosen));
        }
    });
    view! {
        <div class="filters" role="group" aria-label="Which runs">
            {field("proof-metric", "What was measured", metrics, |filter, slug| {
                filter.metric = Metric::ALL.into_iter().find(|metric| metric.slug() == slug).unwrap_or(filter.metric);
            })}
            {field("proof-device", "Measured on", devices, |filter, slug| filter.device = slug)}
            {field("proof-file", "File", files, |filter, file| filter.file = file)}
            {field("proof-software", "Training library", stacks, |filter, slug| filter.software = slug)}
            {field("proof-method", "Method of the run", methods, |filter, slug| filter.method = slug)}
            {field("proof-family", "Family", families, |filter, family| filter.family = family)}
            <label class="only-misses" hidden=Signal::derive(move || kind.with(Option::is_none))>
                <input
                    type="checkbox"
                    prop:checked=only_kind
                    on:change=move |event: Event| only_kind.set(event_target_checked(&event))
                />
                {move || {
                    let behind = kind.with(|kind| kind.as_ref().map(|(_, behind)| behind.clone()));
                    format!("Only those behind this answer’s measured error, allocated: {}", behind.unwrap_or_default())
                }}
            </label>
            <label class="only-misses">
                <input
                    type="checkbox"
                    prop:checked=Signal::derive(move || filter.with(|filter| filter.misses))
                    on:change=move |event: Event| {
                        let misses = event_target_checked(&event);
                        change.run(Box::new(move |filter| filter.misses = misses));
                    }
                />
                {format!("Only misses: off by {MISS_PERCENT}% or more")}
            </label>
        </div>
    }
}

/// What runs ran on, in words.
fn device(slug: &str) -> String {
    if slug == "card" { "Real GPUs" } else { "The null device" }.to_owned()
}

/// A labelled list to choose from: values and words. The first is chosen.
fn drop_down(
    id: &'static str,
    label: &'static str,
    choices: Vec<(String, String)>,
    choose: Callback<String>,
) -> AnyView {
    let option = |(value, words): (String, String)| view! { <option value=value>{words}</option> };
    let options: Vec<_> = choices.into_iter().map(option).collect();
    view! {
        <div>
            <label for=id>{label}</label>
            <select id=id on:change=move |event: Event| choose.run(event_target_value(&event))>
                {options}
            </select>
        </div>
    }
    .into_any()
}

/// Predicted against measured; the point under the pointer says what it is.
#[component]
fn Points(
    /// What is looked at.
    chosen: Memo<Chosen>,
    /// All runs.
    runs: StoredValue<Arc<Vec<Run>>>,
) -> impl IntoView {
    let state = State::of_page();
    let place = NodeRef::<html::Div>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    follow_width(place, width);
    let drawing = move || {
        chosen.with(|chosen| {
            let figures: Vec<Figure> = chosen.iter().map(|(_, figure)| *figure).collect();
            let name = format!(
                "Predicted against measured, {} figures; the table below has them",
                grouped(figures.len() as u64)
            );
            draw(&figures, state.unit(), width.get(), &name)
        })
    };
    let pointed = RwSignal::new(None::<usize>);
    let point = move |event: &PointerEvent| {
        let at = (f64::from(event.offset_x()), f64::from(event.offset_y()));
        let found = chosen.with_untracked(|chosen| closest(chosen, width.get_untracked(), at));
        if pointed.get_untracked() != found {
            pointed.set(found);
        }
    };
    let told = move || {
        let index = pointed.get().filter(|index| *index < chosen.with(Vec::len));
        let told = index.and_then(|index| {
            let (run, figure) = chosen.with(|chosen| chosen[index]);
            runs.with_value(|runs| runs.get(run).map(|run| told(run, figure, state.unit())))
        });
        told.unwrap_or_else(|| {
            "Each point is a run; on the line, prediction and measurement agree.".to_owned()
        })
    };
    view! {
        <div>
            <h3>"Predicted against measured"</h3>
            <figure class="chart timeline" aria-label="Predicted against measured">
                <div
                    class="drawing scatter"
                    node_ref=place
                    inner_html=drawing
                    on:pointermove=move |event| point(&event)
                    on:pointerdown=move |event| point(&event)
                ></div>
            </figure>
            <p class="remark pointed">{told}</p>
        </div>
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
        "{}, {} runs: off by {:.2}% in the median, {:.2}% at the 95th percentile, {:.1}% at worst; {} within {MISS_PERCENT}%.",
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

/// A run in a few words, and how far off it was.
fn told(run: &Run, figure: Figure, unit: Unit) -> String {
    format!(
        "{}: measured {}, predicted {}, {}",
        run.id,
        unit.amount(figure.measured),
        unit.amount(figure.predicted),
        signed(figure.error_pct())
    )
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

/// Which figure a point of the drawing is closest to, if it is close to any.
fn closest(figures: &[(usize, Figure)], width: u32, (x, y): (f64, f64)) -> Option<usize> {
    let axes = Axes::of(figures.iter().map(|(_, figure)| figure));
    let off = |(_, figure): &(usize, Figure)| {
        let (left, top) = axes.place(*figure, width);
        (left - x).hypot(top - y)
    };
    let distances = figures.iter().map(off).enumerate();
    let (index, distance) = distances.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (distance <= REACH).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::read_runs;
    use crate::units::Bytes;

    #[test]
    fn bars_have_names() {
        assert_eq!(
            (bin(0), bin(5), bin(10)),
            ("less than −10%".into(), "−0.1% to +0.1%".into(), "more than +10%".into())
        );
    }

    #[test]
    fn a_point_is_found_where_it_is() {
        let figure = |measured, predicted| Figure { measured: Bytes(measured), predicted: Bytes(predicted) };
        let figures = [(7, figure(1 << 30, 1 << 30)), (3, figure(1 << 34, 1 << 33))];
        let (x, y) = Axes::of(figures.iter().map(|(_, figure)| figure)).place(figures[1].1, 500);
        assert_eq!(closest(&figures, 500, (x + 2., y)), Some(1));
        assert_eq!(closest(&figures, 500, (x + 100., y)), None);
        assert_eq!(closest(&[], 500, (0., 0.)), None);
    }

    #[test]
    fn what_was_kept_shows_that_no_run_that_fails_was_said_to_fit() {
        let runs = read_runs(include_str!("../../../data/measured.tsv"));
        let chosen = Filter::default().figures(&runs);
        assert!(chosen.len() > 2_000, "{}", chosen.len());
        let rows = matrix(&runs, &chosen);
        assert_eq!(rows[1].cells[0].text, "0");
        assert!(gist(&Filter::default(), &chosen).contains("off by 0.00% in the median"));
        let reserved = Filter { metric: Metric::Reserved, ..Filter::default() }.figures(&runs);
        let told = unexplained(&runs, &reserved);
        let misses = reserved.iter().filter(|(_, figure)| figure.is_miss()).count();
        assert!(told.contains(&format!("Of the {misses} others ")), "{told}");
        assert_eq!(unexplained(&runs, &reserved[reserved.len() - 1..]), "");
    }
}
