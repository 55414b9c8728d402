//! `headroom settings`: every sensible combination of settings for a model on its card.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::layouts::{batches, needs, speed, with_outcome};
use super::output::Output;
use super::table::aligned;
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
        false => to_text(&scenario, &ways, arguments.all),
    })
    .noting(asked.notices);
    if !ways.iter().any(Way::fits) {
        output.status = 1;
    }
    Ok(output)
}

fn to_text(scenario: &Scenario, ways: &[Way], all: bool) -> String {
    let card = scenario.gpu().map_or_else(|issue| issue.to_string(), |gpu| gpu.name.to_string());
    let answered: Vec<&Way> = ways.iter().filter(|way| way.needed().is_some()).collect();
    let fitting = answered.iter().filter(|way| way.fits()).count();
    let mut out = format!(
        "{} on the {card}: {} of {} combinations fit\n\n",
        one_line(&scenario.model_name()),
        grouped(fitting as u64),
        grouped(answered.len() as u64),
    );
    let header = ["Settings", "Micro-batches", "Needs", "Verdict", "Tokens per second"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    let listed = answered.iter().filter(|way| all || way.fits());
    lines.extend(listed.map(|way| {
        let name = setting_name(&way.scenario).join(", ");
        let verdict = way.verdict().map_or("", |verdict| verdict.label()).to_lowercase();
        vec![name, batches(way), needs(way), verdict, speed(way)]
    }));
    if lines.len() > 1 {
        out.push_str(&aligned(&lines));
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
