//! What to change, as JSON.

use serde_json::{Value, json};

use crate::issue::Issue;
use crate::plan::{LargerCard, Layout, Lever, Levers, Use};
use crate::share;

/// What to change so that a run fits, as JSON: amounts in bytes, each change with the link of the changed scenario.
pub fn levers_json(found: &Levers) -> Value {
    let lever = |lever: &Lever| {
        json!({
            "changes": lever.changes,
            "cost": lever.cost,
            "slower_percent": lever.slower,
            "saved": i128::from(found.needed.0) - i128::from(lever.needed.0),
            "needed": lever.needed,
            "on_host": lever.on_host,
            "short_of_ram": lever.short_of_ram().map(|host| json!({ "name": host.name, "ram": host.ram })),
            "verdict": lever.verdict.slug(),
            "link": share::encode(std::slice::from_ref(&lever.scenario)),
        })
    };
    let usage = |usage: &Use| {
        json!({
            "changes": usage.changes,
            "gain": usage.gain,
            "needed": usage.needed,
            "verdict": usage.verdict.slug(),
            "limit": usage.limit,
            "link": share::encode(std::slice::from_ref(&usage.scenario)),
        })
    };
    json!({
        "schema": "headroom-levers/1",
        "needed": found.needed,
        "verdict": found.verdict.slug(),
        "single": found.single.iter().map(lever).collect::<Vec<_>>(),
        "together": found.together.as_ref().map(lever),
        "uses": found.uses.iter().map(usage).collect::<Vec<_>>(),
        "fewest_gpus": fewest_gpus_json(&found.fewest),
        "fewest_gpus_with_cpu_offload": found.offloaded.as_ref().map(lever),
        "larger_card": found.larger.as_ref().map(larger_card),
    })
}

fn larger_card(card: &LargerCard) -> Value {
    json!({
        "changes": card.changes,
        "needed": card.needed,
        "verdict": card.verdict.slug(),
        "per_hour": card.machine.per_hour,
        "machine": format!("{} {}", card.machine.provider, card.machine.name),
        "link": share::encode(std::slice::from_ref(&card.scenario)),
    })
}

/// The fewest GPUs that hold a run, as JSON: null where none of the numbers that are tried do.
pub fn fewest_gpus_json(fewest: &Result<Option<Layout>, Issue>) -> Value {
    match fewest {
        Err(issue) => json!({ "issue": issue }),
        Ok(None) => Value::Null,
        Ok(Some(layout)) => json!({
            "gpus": layout.gpus,
            "needed": layout.needed,
            "verdict": layout.verdict.slug(),
            "link": share::encode(std::slice::from_ref(&layout.scenario)),
        }),
    }
}
