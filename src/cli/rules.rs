//! `headroom rules`: what rules of thumb say of a run, beside what it takes.

use clap::Args;
use serde_json::{Value, json};

use super::input::Input;
use super::output::Output;
use super::table::{Cell, Column, Listing, Table};
use crate::export::Answer;
use crate::rules::{Figures, Rule, about, held_against, level, of_one_gpu, rules};
use crate::scenario::Scenario;
use crate::text::one_line;
use crate::units::Bytes;

/// Shows what rules of thumb say that a run takes, beside what it does take, and where each goes wrong
#[derive(Args)]
pub(super) struct Arguments {
    /// Print JSON; amounts in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    let architecture = scenario.architecture().map_err(|issue| issue.to_string())?;
    let answer = Answer::of(scenario);
    let memory = answer.estimate.memory.as_ref().ok_or_else(|| answer.refusal().to_string())?;
    let figures = Figures::of(&answer.scenario, &architecture);
    Ok(Output::of(match arguments.json {
        true => to_json(&answer.scenario, &figures, memory.needed()),
        false => arguments.listing.of(table(&answer.scenario, &figures, memory.needed()), |table| {
            to_text(&answer.scenario, &table, memory.needed())
        })?,
    })
    .noting(asked.notices))
}

fn table(scenario: &Scenario, figures: &Figures, needed: Bytes) -> Table {
    let columns = [
        Column::words("Rule of thumb"),
        Column::of("Says", &[" (bytes)"]),
        Column::of("Of what is needed", &[" (%)"]),
    ];
    let against = held_against(scenario, needed);
    let row = |rule: &Rule| {
        let total = rule.total(figures);
        let share = against.map(|needed| total.percent_of(needed));
        let share = share.map_or_else(
            || Cell::words("–"),
            |share| Cell::amount(format!("{share:.0} %"), share, [format!("{share:.1}")]),
        );
        vec![Cell::words(rule.name), Cell::bytes(total), share]
    };
    Table::new(columns, rules(scenario).iter().map(row))
}

fn to_text(scenario: &Scenario, table: &Table, needed: Bytes) -> String {
    let line =
        |rule: &Rule| format!("{}: {}\n  {}\n  From: {}\n", rule.name, rule.formula, rule.wrong, rule.source);
    let watch = scenario.gpu().map_or(&[][..], |gpu| gpu.watch());
    let watch = watch.iter().map(|command| format!("Watch it: {command}\n")).collect::<String>();
    let about = about(scenario).map_or_else(String::new, |words| format!("{words}\n"));
    let alone = held_against(scenario, needed).and_then(|alone| of_one_gpu(scenario, &alone.to_string()));
    let alone = alone.map_or_else(String::new, |words| format!("{words}\n"));
    format!(
        "{} needs {needed}. One guide calls that {}\n{about}{alone}\n{}\n{}\n{watch}",
        one_line(&scenario.model_name()),
        level(needed),
        table.text(),
        rules(scenario).iter().map(line).collect::<String>()
    )
}

fn to_json(scenario: &Scenario, figures: &Figures, needed: Bytes) -> String {
    let rule = |rule: &Rule| -> Value {
        let terms = rule.terms(figures).into_iter().map(|(name, bytes)| (name.to_owned(), json!(bytes)));
        json!({
            "slug": rule.slug,
            "name": rule.name,
            "formula": rule.formula,
            "says": rule.total(figures),
            "terms": serde_json::Map::from_iter(terms),
            "wrong": rule.wrong,
            "source": rule.source,
        })
    };
    let value = json!({
        "schema": "headroom-rules/1",
        "needed": needed,
        "held_against": held_against(scenario, needed),
        "level": level(needed),
        "about": about(scenario),
        "rules": rules(scenario).iter().map(rule).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
