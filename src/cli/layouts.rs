//! `headroom layouts`: every way to use so many GPUs.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::export::tokens_per_second;
use crate::plan::{Verdict, Way, WayOutcome, fewest_layouts, layouts, refusals};
use crate::scenario::Scenario;
use crate::scenario::keys::Key;
use crate::share;
use crate::text::one_line;
use crate::units::{Between, Bytes, grouped};

/// Shows every way to use the scenario's GPUs that is modelled: those that fit, the fastest of each engine first, and why the others do not
///
/// Of the scenario it is asked how many GPUs there are (--gpus); where there is one, the fewest are looked for that hold it. Each way is
/// run: DDP, FSDP2 (resharded or not, in replicas, in the CPU's memory), ZeRO-1 to -3, and Megatron-core's tensor, pipeline,
/// context, expert and data parallelism, with and without gradient checkpointing; of what weights, gradients and states alone are too large
/// for it is said how much these are. All train on as many sequences in a step, in the fastest micro-batch that fits.
#[derive(Args)]
pub(super) struct Arguments {
    /// List those that do not fit, too
    #[arg(long)]
    all: bool,
    /// Print JSON: every way with its link; amounts in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

/// How many of those that fit are listed.
const LISTED: usize = 20;

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.filled(&asked.first());
    let (gpus, ways) = match scenario.cluster.gpus {
        0 | 1 => fewest_layouts(&scenario),
        gpus => (gpus, layouts(&scenario, gpus)),
    };
    let answered = ways.iter().any(|way| way.verdict().is_some());
    // what refuses all of them alike is the answer; several reasons are listed
    if let (false, [(issue, _)]) = (answered, &refusals(ways.iter())[..]) {
        return Err(issue.to_string());
    }
    let mut output = Output::of(match arguments.json {
        true => to_json(gpus, &ways),
        false => arguments.listing.of(table(&scenario, &ways, arguments.all), |table| {
            to_text(&scenario, gpus, (&ways, table), arguments.all)
        })?,
    })
    .noting(asked.notices);
    if !answered {
        output.status = 2;
    } else if !ways.iter().any(Way::fits) {
        output.status = 1;
    }
    Ok(output)
}

fn table(scenario: &Scenario, ways: &[Way], all: bool) -> Table {
    let columns = [Column::words("Layout"), Column::words("Checkpointing")].into_iter();
    let listed = ways.iter().filter(|way| way.needed().is_some() && (all || way.fits()));
    Table::new(columns.chain(figures("Each GPU needs")), listed.map(|way| line(scenario, way)))
}

/// The columns of what comes of a way.
pub(super) fn figures(needs: &str) -> [Column; 4] {
    [
        Column::of("Micro-batch × passes", &[": sequences", ": accumulation"]),
        Column::of(
            needs,
            &[" (bytes)", ": of the CPU's memory (bytes)", ": read there before it is sharded (bytes)"],
        ),
        Column::words("Verdict"),
        Column::of("Tokens per second", &["", ", least", ", most"]),
    ]
}

fn to_text(scenario: &Scenario, gpus: u64, (ways, table): (&[Way], Table), all: bool) -> String {
    let card = scenario.gpu().map_or_else(|issue| issue.to_string(), |gpu| gpu.name.to_string());
    let fitting = ways.iter().filter(|way| way.fits()).count();
    let mut out = format!(
        "{} on {} × {card}: {} of {} ways to use them fit\n\n",
        one_line(&scenario.model_name()),
        grouped(gpus),
        grouped(fitting as u64),
        grouped(ways.len() as u64),
    );
    if !table.is_empty() {
        out.push_str(&table.first(if all { usize::MAX } else { LISTED }).text());
    }
    let hidden = fitting.saturating_sub(LISTED);
    if !all && hidden > 0 {
        out.push_str(&format!("{} more fit\n", grouped(hidden as u64)));
    }
    let over: Vec<&Way> = ways.iter().filter(|way| way.needed().is_some() && !way.fits()).collect();
    if let (false, Some(least)) = (all || over.is_empty(), over.first()) {
        let needed = least.needed().unwrap_or_default();
        // the nearest may be one that is close
        let how = match least.verdict() {
            Some(Verdict::Over) | None => "do not fit",
            Some(_) => {
                "fit closely, by their tensors or with the RAM of no known machine alone, or not at all"
            }
        };
        let verdict = match (least.verdict(), least.short_of_ram()) {
            (Some(verdict), Some(host)) if verdict.holds() => {
                format!(
                    "fits, with {} of the CPU's memory for each, and known machines have {} at most",
                    least.on_host(),
                    host.ram
                )
            }
            (verdict, _) => verdict.map_or("", |verdict| verdict.label()).to_lowercase(),
        };
        out.push_str(&format!(
            "\n{} {how}; the nearest, {}, needs {needed} on each: {verdict} (--all lists them)\n",
            grouped(over.len() as u64),
            least.name(),
        ));
    }
    out.push_str(&beside(scenario, ways));
    let reasons = refusals(ways.iter());
    if !reasons.is_empty() {
        out.push_str("\nNo answer:\n");
    }
    for (issue, names) in reasons {
        let others = match names.len() - 1 {
            0 => String::new(),
            others => format!(" and {} more", grouped(others as u64)),
        };
        out.push_str(&format!("  {}{others}: {}\n", names[0], one_line(&issue.to_string())));
    }
    out
}

/// What lies outside of what each GPU needs: NCCL's buffers, what is read before it is sharded, and how much RAM known machines have.
fn beside(asked: &Scenario, ways: &[Way]) -> String {
    let answered = || ways.iter().filter(|way| way.is_followed());
    let mut out = String::new();
    let nccl = answered().map(|way| way.scenario.nccl()).max_by_key(|nccl| nccl.most);
    if let Some(Between { least, most }) = nccl.filter(|nccl| nccl.most > Bytes::ZERO) {
        out.push_str(&format!(
            "\nNCCL's buffers are outside of what each GPU needs, {least} to {most} by the layout's communicators: what only fits while they take \
             less is close.\n"
        ));
    }
    let loading = answered().map(Way::loading).max().unwrap_or_default();
    if loading > Bytes::ZERO {
        out.push_str(&format!(
            "Before FSDP2 has shards every process reads the whole model into the CPU's memory, {loading} each at most, and lets go of it.\n"
        ));
    }
    let offloads = answered().any(|way| way.on_host() > Bytes::ZERO || way.loading() > Bytes::ZERO);
    if let Some(host) = answered().next().and_then(|way| way.scenario.known_host()).filter(|_| offloads) {
        let card = asked.gpu().map(|gpu| gpu.name.to_string()).unwrap_or_default();
        let gpus = grouped(host.gpus);
        out.push_str(&format!(
            "Of known machines with {gpus} × {card}, {} has most RAM: {}, for {gpus} processes.\n",
            host.name, host.ram
        ));
    }
    out
}

fn line(asked: &Scenario, way: &Way) -> Vec<Cell> {
    let scenario = &way.scenario;
    let brings = way.brings(asked).map_or_else(String::new, |brings| format!(", {brings}"));
    let checkpointing =
        Key::find("gradient-checkpointing").map_or_else(String::new, |key| key.words(scenario));
    let mut cells = vec![Cell::words(format!("{}{brings}", way.name())), Cell::words(checkpointing)];
    cells.extend(outcome(way));
    cells
}

/// What comes of a way, in the columns of [`figures`].
pub(super) fn outcome(way: &Way) -> [Cell; 4] {
    let needed = way.needed().unwrap_or_default();
    let values = [needed, way.on_host(), way.loading()].map(|bytes| bytes.0.to_string());
    [
        batches(way),
        Cell::amount(needs(way), needed.0 as f64, values),
        Cell::verdict(way.verdict()),
        speed(way),
    ]
}

/// Sequences of a pass × passes of a step.
fn batches(way: &Way) -> Cell {
    let both = [way.scenario.batch, way.scenario.accumulation];
    let text = both.map(grouped).join(" × ");
    Cell::amount(text, both[0] as f64, both.map(|number| number.to_string()))
}

/// What each GPU needs, and what is kept for it in the CPU's memory.
pub(super) fn needs(way: &Way) -> String {
    let needed = way.needed().unwrap_or_default();
    match way.on_host() {
        Bytes::ZERO if !way.is_followed() => format!("more than {needed}"),
        Bytes::ZERO => needed.to_string(),
        on_host => {
            let short = if way.short_of_ram().is_some() { ", more than known machines have" } else { "" };
            format!("{needed} and {on_host} of the CPU's{short}")
        }
    }
}

/// Tokens per second, with the range.
fn speed(way: &Way) -> Cell {
    way.speed().map_or_else(
        || Cell::none("–"),
        |speed| {
            let [typical, between] = tokens_per_second(speed);
            let values = [speed.typical, speed.least, speed.most].map(|speed| format!("{speed:.0}"));
            Cell::amount(format!("{typical} ({between})"), speed.typical, values)
        },
    )
}

/// What a way is called by, with its batches, its link and what comes of it.
pub(super) fn with_outcome(mut named: Value, way: &Way) -> Value {
    let outcome = match &way.outcome {
        WayOutcome::Answered { needed, verdict, speed, on_host, loading } => {
            let host = way.scenario.known_host().map(|host| json!({ "name": host.name, "ram": host.ram }));
            json!({
                "needed": needed,
                "verdict": verdict.slug(),
                "tokens_per_second": speed,
                "on_host": on_host,
                "read_on_host": loading,
                "short_of_ram": way.short_of_ram().and(host),
                "nccl": way.scenario.nccl(),
            })
        }
        WayOutcome::TooLarge { least } => {
            json!({ "needed_at_least": least, "verdict": Verdict::Over.slug() })
        }
        WayOutcome::Refused(issue) => json!({ "issue": issue }),
    };
    let run = json!({
        "batch": way.scenario.batch,
        "accumulation": way.scenario.accumulation,
        "link": share::encode(std::slice::from_ref(&way.scenario)),
    });
    if let Value::Object(named) = &mut named {
        for more in [run, outcome] {
            named.extend(more.as_object().cloned().unwrap_or_default());
        }
    }
    named
}

fn to_json(gpus: u64, ways: &[Way]) -> String {
    let ways: Vec<Value> =
        ways.iter().map(|way| with_outcome(json!({ "layout": way.name() }), way)).collect();
    format!("{:#}\n", json!({ "schema": "headroom-layouts/1", "gpus": gpus, "layouts": ways }))
}
