//! `headroom settings`: every sensible combination of settings for a model on its card.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::layouts::{figures, needs, outcome, with_outcome};
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::plan::{Way, WayOrder, setting_name, tried_settings};
use crate::scenario::Scenario;
use crate::text::one_line;
use crate::units::grouped;

/// Shows every sensible combination of method, precision, optimizer, fused loss and gradient checkpointing: those that fit, the fastest
/// first
///
/// Each combination is run with the scenario's model on its card, with as many sequences in a step, in the fastest micro-batch that fits.
/// Methods, precisions and 8-bit optimizers do not learn the same: the fastest need not be the best.
#[derive(Args)]
pub(super) struct Arguments {
    /// List those that do not fit, too
    #[arg(long)]
    all: bool,
    /// Those that need least first
    #[arg(long)]
    by_memory: bool,
    /// Print JSON: every combination with its link; amounts in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.filled(&asked.first());
    if !scenario.task.trains() {
        return Err(
            "settings are of a training run; `headroom serving` has the formats of weights".to_owned()
        );
    }
    let order = if arguments.by_memory { WayOrder::Memory } else { WayOrder::Speed };
    let ways = tried_settings(&scenario, order);
    let mut output = Output::of(match arguments.json {
        true => to_json(&ways),
        false => arguments
            .listing
            .of(table(&ways, arguments.all), |table| to_text(&scenario, (&ways, &table), arguments.all))?,
    })
    .noting(asked.notices);
    if !ways.iter().any(Way::fits) {
        output.status = 1;
    }
    Ok(output)
}

fn table(ways: &[Way], all: bool) -> Table {
    let listed = ways.iter().filter(|way| way.needed().is_some() && (all || way.fits()));
    let row = |way: &Way| {
        let name = Cell::words(setting_name(&way.scenario).join(", "));
        std::iter::once(name).chain(outcome(way)).collect::<Vec<_>>()
    };
    Table::new(std::iter::once(Column::words("Settings")).chain(figures("Needs")), listed.map(row))
}

fn to_text(scenario: &Scenario, (ways, table): (&[Way], &Table), all: bool) -> String {
    let card = scenario.gpu().map_or_else(|issue| issue.to_string(), |gpu| gpu.name.to_string());
    let answered: Vec<&Way> = ways.iter().filter(|way| way.needed().is_some()).collect();
    let fitting = answered.iter().filter(|way| way.fits()).count();
    let mut out = format!(
        "{} on the {card}: {} of {} combinations fit\n\n",
        one_line(&scenario.model_name()),
        grouped(fitting as u64),
        grouped(answered.len() as u64),
    );
    if !table.is_empty() {
        out.push_str(&table.text());
    }
    let least = answered.iter().min_by_key(|way| way.needed());
    if let (0, false, Some(least)) = (fitting, all, least) {
        out.push_str(&format!(
            "the least, {}, needs {} (--all lists all)\n",
            setting_name(&least.scenario).join(", "),
            needs(least)
        ));
    }
    out
}

fn to_json(ways: &[Way]) -> String {
    let one = |way: &Way| -> Value {
        let [method, settings] = setting_name(&way.scenario);
        with_outcome(json!({ "method": method, "settings": settings }), way)
    };
    let ways: Vec<Value> = ways.iter().map(one).collect();
    format!("{:#}\n", json!({ "schema": "headroom-settings/1", "settings": ways }))
}
