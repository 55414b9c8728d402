//! Inference: the weights in every format with what is left beside them, and sequences at once by their length.

use leptos::either::Either;
use leptos::prelude::*;

use super::document::{Document, Grounds};
use super::need::open;
use super::rows::{Pieces, pieces};
use crate::export::{Configuration, configuration};
use crate::issue::Issue;
use crate::plan::{
    BATCHES, ContextCell, ContextRow, FormatRow, Needed, Room, SEQUENCES, ServingRow, Share, Verdict, among,
    kernels, least_room, refused_alike, told,
};
use crate::ui::asked::Listed;
use crate::ui::behind::Behind;
use crate::ui::browser;
use crate::ui::controls::{Cell, Row, Table};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::ui::view::View;
use crate::units::grouped;

/// The heading of the question of formats.
pub const FORMATS: &str = "serving-title";

/// The way to that question, from elsewhere on the page.
pub fn lead_to_formats(state: State, words: &'static str) -> impl IntoView {
    let lead = move |_| {
        state.asked.turn(FORMATS, true);
        state.view.set(View::Plan);
        request_animation_frame(|| browser::go_to(FORMATS));
    };
    view! {
        <button type="button" class="explain" on:click=lead>
            {words}
        </button>
    }
}

/// The rows of a table that comes at once, or why there are none.
fn rows_of<T: Clone + Send + Sync + 'static>(
    found: Pieces<Result<Vec<T>, Issue>>,
    words: impl Fn(&T) -> Row + Send + Sync + 'static,
) -> Signal<Vec<Row>> {
    Signal::derive(move || {
        found.heard.with(|heard| match heard.first() {
            Some(Some(Ok(rows))) => rows.iter().map(&words).collect(),
            Some(Some(Err(issue))) => vec![Row { head: Cell::of(issue.to_string()), ..Row::default() }],
            Some(None) | None => Vec::new(),
        })
    })
}

/// What each format needs, and leaves.
#[component]
pub fn Formats() -> impl IntoView {
    let state = State::of_page();
    let found = pieces(
        state,
        move || state.current().scenario.get(),
        |scenario| vec![Question::Serving(Box::new(scenario.clone()))],
        |_| Place::Serving,
        |answer| {
            let Answer::Serving(rows) = answer else { return None };
            Some(rows)
        },
    );
    let columns = Signal::derive(move || {
        let length = state
            .current()
            .scenario
            .with(|scenario| grouped(scenario.sequence.saturating_add(scenario.generation.new_tokens)));
        let names = [
            "Weights as".to_owned(),
            "Weights".to_owned(),
            "transformers’ generate".to_owned(),
            "vLLM: tokens kept".to_owned(),
            format!("Sequences of {length} tokens at once, prompt and new ones"),
        ];
        Vec::from(names)
    });
    let refused = Memo::new(move |_| {
        found.heard.with(|heard| match heard.first() {
            Some(Some(Ok(rows))) => refused_alike(rows).map(ToString::to_string),
            Some(Some(Err(_)) | None) | None => None,
        })
    });
    let rows = rows_of(found, move |row| {
        let is_told = refused.with(Option::is_some);
        let asked = state.current().scenario.with(|scenario| scenario.batch);
        of_format(state, (row, asked), state.unit(), is_told)
    });
    let told = move || {
        if found.busy.get() {
            return Some("Looking at every format …".to_owned());
        }
        let (share, said) = state.current().scenario.with(|scenario| {
            Some((Share::of(scenario).ok()?, [told(scenario), among(scenario), kernels(scenario)]))
        })?;
        let [told, among, kernels] = said.map(|said| said.map(|said| format!(" {said}")).unwrap_or_default());
        let refused = refused.get().map(|issue| format!(" transformers’ generate has no answer: {issue}."));
        Some(format!(
            "vLLM takes {} % of the card, {}, and tries itself with {} tokens and {} sequences{}{told}{among} {}{kernels}{}",
            share.percent,
            state.unit().amount(share.bytes),
            grouped(share.tokens),
            grouped(share.sequences),
            if told.is_empty() { ", as vllm serve does where nothing is said." } else { "." },
            state.current().scenario.with(least_room),
            refused.unwrap_or_default()
        ))
    };
    view! {
        <p class="remark">{told}</p>
        <Table caption="Weights by format" class="fits formats" listing=state.asked.listing(Listed::Formats) columns=columns rows=rows busy=found.busy stopped=found.stopped />
        <Command />
        <p class="remark">
            "Weights are counted by the layout of each format. What transformers computes from bf16, fp32, int8 and NF4 is \
             followed; of other formats, whose kernels were not run, a range is given, and of llama.cpp’s weights and KV \
             cache alone. What vLLM’s CUDA graphs and libraries take comes off its tokens."
        </p>
        <Grounds of=Behind::Formats />
        <p class="tools-row">
            <Document at=Behind::Vllm.at() text="vLLM’s budget, and how far off it was" />
        </p>
    }
}

/// A format, and whether there is room for as many sequences as are asked for; `is_told` is whether what `generate` is refused for stands
/// above the table.
fn of_format(state: State, (row, asked): (&ServingRow, u64), unit: Unit, is_told: bool) -> Row {
    let needed = match &row.needed {
        Needed::Followed(scenario, needed, verdict) => {
            let (opened, told) = (scenario.clone(), format!("Opened weights as {}", row.label()));
            let act = move |()| open(state, &opened, &told);
            Cell {
                hint: format!("{}: open weights as {}", verdict.label(), row.label()),
                small: if *verdict == Verdict::Fits { String::new() } else { verdict.label().to_lowercase() },
                act: (*verdict != Verdict::Over).then(|| Callback::new(act)),
                class: verdict.slug(),
                ..Cell::bytes(*needed, unit).judged(verdict.slug())
            }
        }
        Needed::Between(range, verdict) => Cell {
            small: if *verdict == Verdict::Fits { String::new() } else { verdict.label().to_lowercase() },
            ..Cell::amount(
                format!("{} to {}", unit.amount(range.least), unit.amount(range.most)),
                range.least.0 as f64,
            )
        }
        .judged(verdict.slug())
        .taken_bytes(": at least", range.least, unit)
        .taken_bytes(": at most", range.most, unit),
        Needed::AtLeast(least) => Cell::amount(format!("over {}", unit.amount(*least)), least.0 as f64)
            .taken_bytes(": at least", *least, unit),
        Needed::Unknown(_) if is_told => Cell::of("–"),
        Needed::Unknown(issue) => Cell { small: issue.to_string(), class: "unknown", ..Cell::of("–") },
    };
    let [tokens, sequences] = row.room.words();
    let mut taken: [Vec<(String, String)>; 2] = Default::default();
    let (small, room) = match &row.room {
        Room::Unknown(reason) => (reason.clone(), [None; 2]),
        Room::Stops => {
            let small = match &row.fp8 {
                Room::Tokens { .. } => format!("in FP8 {}", row.fp8.words()[0]),
                Room::Stops | Room::Unknown(_) => String::new(),
            };
            (small, [Some(0.0); 2])
        }
        Room::Tokens { tokens: [least, most], sequences: [fewest, at_most] } => {
            let [in_fp8, _] = row.fp8.words();
            let between = |least: &dyn ToString, most: &dyn ToString| {
                [(": at least".to_owned(), least.to_string()), (": at most".to_owned(), most.to_string())]
            };
            taken = [
                Vec::from(between(least, most)),
                Vec::from(between(&format!("{fewest:.2}"), &format!("{at_most:.2}"))),
            ];
            (format!("in FP8 {in_fp8}"), [Some(*least as f64), Some(*fewest)])
        }
    };
    let [kept, at_once] = room;
    let stops = row.start.filter(|start| !start.starts[0]).map(|start| {
        let perhaps = if start.starts[1] { "perhaps " } else { "" };
        match start.longest {
            0 => format!("does not start at its own {} tokens", grouped(start.context)),
            longest => format!("{perhaps}only to --max-model-len {}", grouped(longest)),
        }
    });
    let small = [stops.unwrap_or_default(), small].into_iter().filter(|own| !own.is_empty());
    let small = small.collect::<Vec<_>>().join("; ");
    let head = Cell { hint: row.stored.layout().to_owned(), ..Cell::of(row.label()) };
    let [mut of_kept, of_sequences] = taken;
    if !of_kept.is_empty() {
        of_kept.push((": note".to_owned(), small.clone()));
    }
    let cells = vec![
        Cell::bytes(row.weights, unit),
        needed,
        Cell { small, sorted_as: kept, most_first: true, taken: of_kept, ..Cell::of(tokens) },
        of_sequences_asked(
            (row.holds(asked).filter(|_| asked > 1), asked),
            Cell { sorted_as: at_once, most_first: true, taken: of_sequences, ..Cell::of(sequences) },
        ),
    ];
    Row { head, cells, ..Row::default() }
}

/// How many sequences there is room for, judged by how many are asked for.
fn of_sequences_asked((verdict, asked): (Option<Verdict>, u64), cell: Cell) -> Cell {
    let Some(verdict) = verdict else { return cell };
    let text = format!("{} of {}", cell.text, grouped(asked));
    Cell { text, small: verdict.label().to_lowercase(), class: verdict.slug(), ..cell }.judged(verdict.slug())
}

/// The command that has vLLM serve the scenario, or why none does.
#[component]
fn Command() -> impl IntoView {
    let state = State::of_page();
    let command = Memo::new(move |_| {
        let generates = state.current().scenario.get();
        (!generates.task.trains())
            .then(|| configuration(&generates, Configuration::Vllm).map(|written| serve_line(&written.text)))
    });
    let of = move |command: Result<String, Issue>| match command {
        Ok(line) => {
            let copied = line.clone();
            Either::Left(view! {
                <pre class="command">
                    <code>{line}</code>
                </pre>
                <button type="button" class="tool" on:click=move |_| state.copy(&copied, "Command copied")>
                    "Copy the command"
                </button>
            })
        }
        Err(issue) => Either::Right(view! {
            <p class="remark">{format!("No command of vLLM’s is written of it as it is: {issue}.")}</p>
        }),
    };
    move || command.get().map(of)
}

/// Of a file the command alone.
fn serve_line(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// Sequences at once by their length.
#[component]
pub fn Contexts() -> impl IntoView {
    let state = State::of_page();
    let found = pieces(
        state,
        move || state.current().scenario.get(),
        |scenario| vec![Question::Contexts(Box::new(scenario.clone()))],
        |_| Place::Contexts,
        |answer| {
            let Answer::Contexts(rows) = answer else { return None };
            Some(rows)
        },
    );
    let columns =
        Signal::stored(std::iter::once("Tokens".to_owned()).chain(BATCHES.map(grouped)).collect::<Vec<_>>());
    let rows = rows_of(found, move |row| of_context(state, row, state.unit()));
    let told = move || if found.busy.get() { "Looking at every length …" } else { "" };
    view! {
        <p class="remark">{told}</p>
        <Table caption="Sequences at once by their length" class="fits contexts" listing=state.asked.listing(Listed::Contexts) columns=columns rows=rows busy=found.busy stopped=found.stopped />
        <p class="remark">
            "What transformers’ generate needs for so many sequences at once. A length is that of a sequence when its last token \
             is there, the new ones as many as are chosen. Figures are those of tensors; one that is opened is replayed on \
             the card’s allocator."
        </p>
        <Grounds of=Behind::Contexts />
    }
}

/// Models that are compared, formats and sequences at once.
#[component]
pub fn ByBatch() -> impl IntoView {
    let state = State::of_page();
    let found = pieces(
        state,
        move || state.shown().map(|slot| slot.scenario.get()).collect::<Vec<_>>(),
        |scenarios| scenarios.iter().map(|scenario| Question::ByBatch(Box::new(scenario.clone()))).collect(),
        Place::ByBatch,
        |answer| {
            let Answer::ByBatch(rows) = answer else { return None };
            Some(rows)
        },
    );
    let columns = Signal::stored(
        ["Weights as".to_owned(), "Weights".to_owned()]
            .into_iter()
            .chain(SEQUENCES.map(grouped))
            .collect::<Vec<_>>(),
    );
    let rows = Signal::derive(move || {
        let of = |heard: Option<Result<Vec<FormatRow>, Issue>>| match heard {
            Some(Ok(rows)) => rows.iter().map(|row| of_batches(state, row, state.unit())).collect(),
            Some(Err(issue)) => vec![Row { head: Cell::of(issue.to_string()), ..Row::default() }],
            None => Vec::new(),
        };
        found.heard.get().into_iter().flat_map(of).collect::<Vec<_>>()
    });
    let told = move || if found.busy.get() { "Looking at every format …" } else { "" };
    view! {
        <p class="remark">{told}</p>
        <Table caption="Sequences at once by format" class="fits contexts" listing=state.asked.listing(Listed::ByBatch) columns=columns rows=rows busy=found.busy stopped=found.stopped />
        <p class="remark">
            "What transformers’ generate needs for so many sequences at once, of the prompt and the new tokens that are \
             chosen, in the formats that its own code computes from. Models that are compared stand below each other."
        </p>
        <Grounds of=Behind::Formats />
    }
}

fn of_batches(state: State, row: &FormatRow, unit: Unit) -> Row {
    let label = row.stored.label();
    let head = match state.alone() {
        true => label.to_owned(),
        false => format!("{}, {} tokens, {label}", row.model, grouped(row.sequence)),
    };
    let cells = SEQUENCES.into_iter().zip(&row.cells);
    let cells =
        cells.map(|(batch, cell)| at_once(state, (batch, cell), &format!(" with weights as {label}"), unit));
    let weights = Cell::bytes(row.weights, unit);
    Row { head: Cell::of(head), cells: std::iter::once(weights).chain(cells).collect(), ..Row::default() }
}

/// What so many sequences need, which opens.
fn at_once(state: State, (batch, cell): (u64, &Result<ContextCell, Issue>), of: &str, unit: Unit) -> Cell {
    match cell {
        Ok(ContextCell { needed, verdict, scenario }) => {
            let sequences =
                if batch == 1 { "one sequence".to_owned() } else { format!("{} sequences", grouped(batch)) };
            let told = format!("Opened {sequences}{of}");
            let (opened, hint) = (scenario.clone(), format!("{}: {told}", verdict.label()));
            let act = move |()| open(state, &opened, &told);
            Cell {
                hint,
                small: if *verdict == Verdict::Fits { String::new() } else { verdict.label().to_lowercase() },
                act: (*verdict != Verdict::Over).then(|| Callback::new(act)),
                class: verdict.slug(),
                ..Cell::bytes(*needed, unit).judged(verdict.slug())
            }
        }
        Err(issue) => Cell { small: issue.to_string(), class: "unknown", ..Cell::of("–") },
    }
}

fn of_context(state: State, row: &ContextRow, unit: Unit) -> Row {
    let of = format!(" of {} tokens", grouped(row.context));
    let cells = BATCHES.into_iter().zip(&row.cells).map(|own| at_once(state, own, &of, unit)).collect();
    Row { head: Cell::amount(grouped(row.context), row.context as f64), cells, ..Row::default() }
}
