//! A table of scenarios that are each run in the fastest micro-batch that fits: ways to use GPUs, combinations of settings.

use leptos::prelude::*;

use super::need::open;
use super::rows::pieces;
use crate::export::tokens_per_second;
use crate::plan::{Verdict, Way, WayOrder, WayOutcome, rank_ways};
use crate::scenario::Scenario;
use crate::ui::asked::Listed;
use crate::ui::controls::{Cell, Row, Table, columns};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::units::Bytes;

/// How many are asked about at once: a worker is free again in between.
const AT_ONCE: usize = 6;

/// What was heard so far.
#[derive(Clone, Copy)]
pub struct Tried {
    /// Those that fit first, in the order that was asked for.
    pub known: Memo<Vec<Way>>,
    /// Whether some are still to come.
    pub busy: RwSignal<bool>,
    /// Whether some will not come.
    pub stopped: RwSignal<bool>,
}

/// Has the workers try what is wanted, and anew whenever that changes.
pub fn tried(
    state: State,
    wanted: impl Fn() -> Vec<Scenario> + Send + Sync + 'static,
    place: fn(usize) -> Place,
    order: WayOrder,
) -> Tried {
    let found = pieces(
        state,
        wanted,
        |wanted| wanted.chunks(AT_ONCE).map(|some| Question::Ways(some.to_vec())).collect(),
        place,
        |answer| {
            let Answer::Ways(ways) = answer else { return None };
            Some(ways)
        },
    );
    let known = Memo::new(move |_| {
        let mut ways: Vec<Way> =
            found.heard.with(|heard| heard.iter().flatten().flatten().cloned().collect());
        rank_ways(&mut ways, order);
        ways
    });
    Tried { known, busy: found.busy, stopped: found.stopped }
}

/// The table: what each is called, what it needs and how fast it is.
#[component]
pub fn WayTable(
    /// What was heard.
    tried: Tried,
    /// What the table is, for those who do not see what stands around it.
    caption: &'static str,
    /// The names of its columns.
    names: [&'static str; 3],
    /// Which table it is.
    table: Listed,
    /// How many are listed before all are asked for.
    listed: usize,
    /// What several rows are called.
    what: &'static str,
    /// A row in words, beside the scenario on the page.
    row: fn(State, &Way, &Scenario, Unit) -> Row,
) -> impl IntoView {
    let state = State::of_page();
    let rows = Signal::derive(move || {
        let unit = state.unit();
        let own = state.current().scenario.get();
        tried.known.with(|ways| ways.iter().map(|way| row(state, way, &own, unit)).collect::<Vec<_>>())
    });
    view! {
        <Table
            caption=caption
            class="measured layouts"
            columns=Signal::stored(columns(names))
            rows=rows
            busy=tried.busy
            stopped=tried.stopped
            listing=state.asked.listing(table)
            first=(listed, what)
        />
    }
}

/// What a way needs, which opens it, and its speed where it fits; or why it has no answer.
pub fn outcome(state: State, way: &Way, told: &str, hint: String, unit: Unit) -> Vec<Cell> {
    match &way.outcome {
        WayOutcome::Refused(issue) => {
            vec![Cell::of("–"), Cell { small: issue.to_string(), class: "unknown", ..Cell::default() }]
        }
        WayOutcome::TooLarge { least } => {
            let (opened, told) = (way.scenario.clone(), told.to_owned());
            let needs = Cell {
                small: Verdict::Over.label().to_lowercase(),
                class: Verdict::Over.slug(),
                act: Some(Callback::new(move |()| open(state, &opened, &told))),
                hint,
                ..Cell::amount(format!("more than {}", unit.amount(*least)), least.0 as f64)
                    .taken_bytes(": more than", *least, unit)
                    .judged(Verdict::Over.slug())
            };
            vec![needs, Cell::of("–")]
        }
        WayOutcome::Answered { needed, verdict, speed, on_host, .. } => {
            let [typical, between] = speed.map_or_else(|| ["–".to_owned(), String::new()], tokens_per_second);
            let (opened, told) = (way.scenario.clone(), told.to_owned());
            let fits = way.fits();
            let short = way.short_of_ram();
            let short = short.map(|host| format!(", known machines have {} at most", unit.amount(host.ram)));
            let host = match *on_host {
                Bytes::ZERO => String::new(),
                bytes => match way.scenario.cluster.gpus {
                    0 | 1 => format!(", {} of the CPU’s", unit.amount(bytes)),
                    // as the changes and the figure beside the verdict count it
                    gpus => {
                        format!(", {} of the CPU’s for all", unit.amount(Bytes(bytes.0.saturating_mul(gpus))))
                    }
                },
            };
            let needs = Cell {
                small: format!("{}{host}{}", verdict.label().to_lowercase(), short.unwrap_or_default()),
                class: verdict.slug(),
                act: Some(Callback::new(move |()| open(state, &opened, &told))),
                hint,
                ..Cell::bytes(*needed, unit).judged(verdict.slug()).taken_bytes(
                    ": of the CPU's memory",
                    *on_host,
                    unit,
                )
            };
            let pace = match fits {
                true => Cell {
                    small: between,
                    sorted_as: speed.map(|speed| speed.typical),
                    most_first: true,
                    ..speed.iter().fold(Cell::of(typical), |cell, speed| {
                        [("", speed.typical), (": at least", speed.least), (": at most", speed.most)]
                            .into_iter()
                            .fold(cell, |cell, (ending, pace)| cell.taken(ending, format!("{pace:.0}")))
                    })
                },
                false => Cell::of("–"),
            };
            vec![needs, pace]
        }
    }
}
