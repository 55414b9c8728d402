//! Other calculators on the same rows: what their own code says of published runs, beside what Headroom does.

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::document::Document;
use crate::check::{Answer, Compared, Errors, Figure, Group, Others, Run};
use crate::ui::browser;
use crate::ui::controls::{Cell, Row, Table};
use crate::ui::proof::{metric, signed};

/// Published runs that the others were asked about, and what is said beside their answers.
struct About {
    /// The file of what they say, beside the page.
    file: &'static str,
    /// What the file is called where it is kept.
    download: &'static str,
    title: &'static str,
    told: &'static str,
    /// What its tables are called: a line for each calculator, a line for each source.
    tables: [&'static str; 2],
    /// Whether one of them was fitted to some of the rows.
    is_fitted: bool,
}

/// Runs of one GPU, then those of several.
static ABOUT: [About; 2] = [
    About {
        file: "peers.tsv",
        download: "headroom-peers.tsv",
        title: "Other calculators on the same rows",
        told: "Each was run by its own code over the published runs of one GPU that Headroom predicts, with the settings of each run and read as favourably as is \
               reasonable: a fixed allowance for the driver’s context is taken off where the figure is PyTorch’s own. Where a calculator has no input for what a run \
               states it has no number, and Headroom’s error beside it is over the same runs as its own. Errors are medians. fitcheck was fitted to most of its own rows.",
        tables: ["What each calculator can say, and how far off it is", "Median error by calculator"],
        is_fitted: true,
    },
    About {
        file: "peers-many.tsv",
        download: "headroom-peers-many.tsv",
        title: "Other calculators over several GPUs",
        told: "The published runs of several GPUs that Headroom predicts are all of Megatron-LM. SimuMax’s numbers are those that its authors published beside their measurements, \
               the others were run by their own code. Some have one number for all GPUs, that of a pipeline’s first stage, and are held against that alone.",
        tables: ["Several GPUs: what each can say", "Several GPUs: median errors"],
        is_fitted: false,
    },
];

/// What other calculators say, once it is here; or that it did not come.
type Answers = RwSignal<Option<Result<Arc<Others>, ()>>>;

/// What they say of the runs of one GPU, then of several.
#[derive(Clone, Copy)]
pub struct Known([Answers; 2]);

/// Fetches what they say, as the view is opened.
pub fn fetch() -> Known {
    Known(ABOUT.each_ref().map(|about| {
        let known = RwSignal::new(None);
        spawn_local(async move {
            let found = browser::fetch(about.file).await.map(|text| Arc::new(Others::read(&text)));
            // the view may be gone by now
            known.try_set(Some(found.map_err(drop)));
        });
        known
    }))
}

/// What they say of a run, in a sentence; nothing where they were not asked.
pub fn said(known: Known, run: &Run, figure: Figure) -> Option<String> {
    let here = known.0.iter().filter_map(|known| known.get()?.ok());
    let (others, answers) =
        here.filter_map(|others| Some((others.clone(), others.of(run)?.to_vec()))).next()?;
    let one = |(calculator, answer): (&crate::check::Calculator, &Answer)| match answer {
        Answer::Takes(bytes) => {
            let off = Figure { measured: figure.measured, predicted: *bytes }.error_pct();
            Some(format!("{} {}", calculator.name, signed(off)))
        }
        Answer::Lacks(_) => None,
    };
    let said: Vec<String> = others.calculators.iter().zip(&answers).filter_map(one).collect();
    (!said.is_empty()).then(|| format!("Other calculators: {}.", said.join(", ")))
}

/// Headroom beside other calculators, over the same rows.
#[component]
pub fn Peers(
    /// All runs.
    runs: StoredValue<Arc<Vec<Run>>>,
    /// What the others say.
    known: Known,
) -> impl IntoView {
    let panel = |(about, known)| view! { <Asked about=about runs=runs known=known /> };
    ABOUT.iter().zip(known.0).map(panel).collect_view()
}

/// The same over the runs of one file.
#[component]
fn Asked(about: &'static About, runs: StoredValue<Arc<Vec<Run>>>, known: Answers) -> impl IntoView {
    let others = move || known.get().and_then(Result::ok);
    let told = move || match known.get() {
        None => "Fetching what other calculators say …",
        Some(Err(())) => "The file with what other calculators say did not come.",
        Some(Ok(_)) => about.told,
    };
    let by_calculator = Signal::derive(move || {
        let rows = |others: Arc<Others>| runs.with_value(|runs| calculators(&others, runs, about.is_fitted));
        others().map(rows).unwrap_or_default()
    });
    let by_source = Signal::derive(move || {
        let rows = |others: Arc<Others>| {
            runs.with_value(|runs| others.groups(runs).iter().map(|group| of_group(&others, group)).collect())
        };
        others().map(rows).unwrap_or_default()
    });
    let names = Signal::derive(move || {
        let names = others().map(|others| others.calculators.iter().map(|one| one.name.clone()).collect());
        let own = ["Published figures", "Headroom"].map(str::to_owned).into_iter();
        own.chain(names.unwrap_or_else(Vec::new)).collect::<Vec<_>>()
    });
    view! {
        <section class="panel wide" aria-label=about.title>
            <h2>{about.title}</h2>
            <p class="remark">{told}</p>
            <div hidden=move || by_calculator.with(Vec::is_empty)>
                <Table
                    caption=about.tables[0]
                    class="measured peers"
                    columns=Signal::stored(headings(about.is_fitted))
                    rows=by_calculator
                />
                <h3>"By source"</h3>
                <Table caption=about.tables[1] class="measured peers" columns=names rows=by_source />
                <p class="tools-row">
                    <Document at="accuracy.html#beside-other-calculators" text="How each was asked" />
                    <a class="explain" href=about.file download=about.download>
                        "Download their numbers (tab-separated)"
                    </a>
                </p>
            </div>
        </section>
    }
}

fn median(errors: &Errors) -> Cell {
    match errors.count {
        0 => Cell::of("–"),
        _ => Cell::amount(format!("{:.2} %", errors.median_pct), errors.median_pct),
    }
}

/// What the columns of the first table are called; two more where a calculator was fitted to some of the rows.
fn headings(is_fitted: bool) -> Vec<String> {
    const OWN: &str = "Headroom on the same";
    let first = ["Calculator", "Rows it can say something of", "Off by", OWN];
    let unfitted = if is_fitted { &["Without fitcheck’s own rows", OWN][..] } else { &[] };
    let all = first.iter().chain(unfitted).chain(&["Nearer than Headroom"]);
    all.map(|heading| (*heading).to_owned()).collect()
}

/// A line for each calculator, over all rows.
fn calculators(others: &Others, runs: &[Run], is_fitted: bool) -> Vec<Row> {
    let row = |(index, calculator): (usize, &crate::check::Calculator)| {
        let [all, unfitted] = [true, false].map(|fitted| others.compared(runs, index, fitted));
        let mean = |errors: &Errors| match errors.count {
            0 => median(errors),
            _ => Cell { small: format!("mean {:.1} %", errors.mean_pct), ..median(errors) },
        };
        let lacks: Vec<_> = all.lacks.iter().map(|(what, count)| format!("{what}: {count}")).collect();
        let lacks = if lacks.is_empty() { String::new() } else { format!("none for {}", lacks.join(", ")) };
        let asked = all.theirs.count + all.lacks.iter().map(|(_, count)| count).sum::<usize>();
        let mut cells = vec![
            Cell {
                small: lacks,
                class: "words",
                ..Cell::amount(format!("{} of {asked}", all.theirs.count), all.theirs.count as f64)
            },
            mean(&all.theirs),
            Cell { class: "own", ..mean(&all.own) },
        ];
        if is_fitted {
            cells.extend([mean(&unfitted.theirs), Cell { class: "own", ..mean(&unfitted.own) }]);
        }
        cells.push(Cell::gain(format!("in {} of {}", all.nearer, all.theirs.count), all.nearer as f64));
        let head = Cell { href: calculator.code.clone(), ..Cell::of(&calculator.name) };
        Row { head, cells, ..Row::default() }
    };
    others.calculators.iter().enumerate().map(row).collect()
}

fn rows(count: usize) -> String {
    if count == 1 { "1 row".to_owned() } else { format!("{count} rows") }
}

/// A line of the figures of one source.
fn of_group(others: &Others, group: &Group) -> Row {
    let own = group.own();
    let of = |index: usize| {
        let Compared { theirs, own: beside, .. } = group.compared(index);
        let small = match theirs.count {
            0 => String::new(),
            count if count < own.count => format!("{}, Headroom {:.2} %", rows(count), beside.median_pct),
            _ => String::new(),
        };
        Cell {
            small,
            class: if group.compared(index).is_nearer() { "nearer" } else { "" },
            ..median(&theirs)
        }
    };
    let name = group.project.split('/').next_back().unwrap_or_default();
    let trained = if group.is_full { "full fine-tuning" } else { "LoRA, QLoRA" };
    Row {
        head: Cell {
            small: format!("{}, {trained}, {}", metric(group.metric), rows(own.count)),
            href: format!("https://github.com/{}", group.project),
            ..Cell::of(name)
        },
        cells: [Cell { class: "own", ..median(&own) }]
            .into_iter()
            .chain((0..others.calculators.len()).map(of))
            .collect(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::read_runs;

    #[test]
    fn a_line_of_the_page_is_over_the_same_rows() {
        let runs = read_runs(include_str!("../../../data/measured.tsv"));
        let others = Others::read(include_str!("../../../data/peers.tsv"));
        let lines = calculators(&others, &runs, true);
        assert_eq!(lines.len(), others.calculators.len());
        assert!(
            lines.iter().all(|line| line.cells[0].text.ends_with(" of 149")),
            "{}",
            lines[0].cells[0].text
        );
        let groups = others.groups(&runs);
        let readme = groups.iter().find(|group| group.project == "QwenLM/Qwen").expect("Qwen’s README");
        let line = of_group(&others, readme);
        // fitcheck is nearer over the twelve rows that it has an input for, which the page says
        assert_eq!(line.cells[1].class, "nearer");
        assert!(line.cells[1].small.starts_with("12 rows, Headroom "), "{}", line.cells[1].small);
        assert_eq!(line.cells[0].class, "own");
    }

    #[test]
    fn those_of_several_gpus_are_compared_too() {
        let runs = read_runs(include_str!("../../../data/measured.tsv"));
        let others = Others::read(include_str!("../../../data/peers-many.tsv"));
        let lines = calculators(&others, &runs, false);
        assert!(lines.iter().all(|line| line.cells.len() + 1 == headings(false).len()));
        let simumax = lines.iter().find(|line| line.head.text.starts_with("SimuMax")).expect("a line");
        assert!(simumax.cells[0].text.starts_with("208 of "), "{}", simumax.cells[0].text);
        assert!(others.groups(&runs).iter().any(|group| group.project == "MooreThreads/SimuMax"));
    }
}
