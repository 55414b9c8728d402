//! `headroom lengths`: what texts of different lengths need.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use super::text::{is_standard_input, read_given};
use crate::issue::Issue;
use crate::plan::{MicroBatch, Order, Outcome, Outlook, each, order, outlook};
use crate::scenario::{Scenario, Texts};
use crate::share;
use crate::units::grouped;

/// The longest list that is read.
const LONGEST: usize = 64 << 20;

/// Shows what a data set's lengths do: how long micro-batches are, which of them run out of memory and how soon, and how far
/// reserved memory grows
///
/// A micro-batch is padded to its longest text, and texts longer than the sequence length are cut to it. A run of hours may end at
/// the one batch that holds a long text: what that needs, and how many texts are that long, is what is printed.
#[derive(Args)]
pub(super) struct Arguments {
    /// The lengths in tokens, with spaces, commas or line breaks between them, 512x30 for thirty of 512, or CSV or lines of JSON with a
    /// column tokens or length; standard input if not given, or -
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    texts: Option<PathBuf>,
    /// In how many orders of the texts the run is followed
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(0..=64))]
    orders: u64,
    /// Print JSON; amounts in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    if is_standard_input(arguments.texts.as_deref()) && arguments.input.is_standard_input() {
        return Err(
            "standard input is the scenario here: give the lengths as a file, --texts FILE".to_owned()
        );
    }
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    let text = read_given(arguments.texts.as_deref(), LONGEST)?;
    let texts: Texts = text.parse().map_err(|error| format!("{error}"))?;
    let in_words = |issue: Issue| issue.to_string();
    let found = outlook(&scenario, &texts).map_err(in_words)?;
    let numbers: Vec<u64> = (0..arguments.orders).collect();
    let orders = each(&numbers, |number| order(&scenario, &texts, *number));
    let orders = orders.into_iter().collect::<Result<Vec<_>, Issue>>().map_err(in_words)?;
    Ok(Output::of(match arguments.json {
        true => to_json(&texts, &found, &orders),
        false => arguments
            .listing
            .of(table(&found), |table| to_text(&scenario, &texts, (&found, &table), &orders))?,
    })
    .noting(asked.notices))
}

fn table(found: &Outlook) -> Table {
    let columns = [
        Column::of("Micro-batches", &[" (%)"]),
        Column::of("Tokens of each sequence, up to", &[""]),
        Column::of("Needs", &[" (bytes)"]),
        Column::words("Verdict"),
    ];
    let row = |batch: &MicroBatch| {
        let MicroBatch { share, length, needed, verdict } = *batch;
        let percent = share * 100.0;
        let share = Cell::amount(format!("{percent:.0} %"), percent, [format!("{percent:.1}")]);
        vec![share, Cell::count(length), Cell::bytes(needed), Cell::verdict(verdict)]
    };
    Table::new(columns, found.micro_batches.iter().map(row))
}

fn to_text(
    scenario: &Scenario,
    texts: &Texts,
    (found, table): (&Outlook, &Table),
    orders: &[Order],
) -> String {
    let (mean, deviation) = texts.spread();
    let mut out = format!(
        "{} texts of {mean:.0} tokens in the mean, standard deviation {deviation:.0} (--lengths {}), the longest {}\n",
        grouped(texts.count()),
        texts.varying(),
        grouped(texts.longest())
    );
    if found.cut > 0 {
        let length = grouped(scenario.sequence);
        out.push_str(&format!("{} of them are cut to the sequence length, {length}\n", grouped(found.cut)));
    }
    out.push_str(&format!("padding is {:.0} % of all tokens\n\n", found.padding * 100.0));
    out.push_str(&table.text());
    out.push('\n');
    for sentence in found.sentences(scenario) {
        out.push_str(&format!("{sentence}\n"));
    }
    if let Some(sentence) = Order::sentence(orders) {
        out.push_str(&format!("{sentence}\n"));
    }
    out
}

fn to_json(texts: &Texts, found: &Outlook, orders: &[Order]) -> String {
    let (mean, deviation) = texts.spread();
    let limit = found.limit.as_ref().map(|limit| {
        json!({
            "longest": limit.longest,
            "texts": limit.texts,
            "per_batch": limit.per_batch,
            "half": limit.half,
            "link": share::encode(std::slice::from_ref(&limit.scenario)),
            "smaller": limit.smaller.as_ref().map(|smaller| share::encode(std::slice::from_ref(smaller))),
        })
    });
    let value = json!({
        "schema": "headroom-lengths/1",
        "texts": texts.count(),
        "mean": mean,
        "deviation": deviation,
        "longest": texts.longest(),
        "cut": found.cut,
        "padding": found.padding,
        "micro_batches": found.micro_batches.iter().map(|batch| json!({
            "share": batch.share,
            "length": batch.length,
            "needed": batch.needed,
            "verdict": batch.verdict.slug(),
        })).collect::<Vec<_>>(),
        "limit": limit,
        "orders": orders.iter().map(|order| json!({
            "micro_batches": order.micro_batches,
            "runs": order.outcome == Outcome::Runs,
            "reserved": order.reserved,
        })).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
