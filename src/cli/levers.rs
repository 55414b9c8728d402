//! `headroom levers`: what to change.

use clap::Args;

use super::input::Input;
use super::output::Output;
use super::table::aligned;
use crate::export;
use crate::issue::Issue;
use crate::plan::{Change, Layout, Levers, Verdict, levers};
use crate::scenario::Scenario;
use crate::units::{Bytes, grouped};

/// Shows what to change so that a run fits: what each change saves and what it costs, from a run of the changed scenario
#[derive(Args)]
pub(super) struct Arguments {
    /// Print JSON; amounts in bytes, each change with the link of the changed scenario
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: Input,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, String> {
    let asked = arguments.input.read()?;
    let scenario = asked.first();
    let found = levers(&scenario).map_err(|issue| issue.to_string())?;
    Ok(Output::of(if arguments.json {
        format!("{:#}\n", export::levers_json(&found))
    } else {
        to_text(&scenario, &found)?
    })
    .noting(asked.notices))
}

fn to_text(scenario: &Scenario, found: &Levers) -> Result<String, String> {
    let gpu = scenario.gpu().map_err(|issue| issue.to_string())?;
    let stops = scenario.stop().map_or_else(String::new, |issue| format!("It would stop: {issue}\n"));
    let mut out = format!(
        "{} needs {} of {} on {}: {}\n{stops}\n",
        scenario.model_name(),
        found.needed,
        gpu.memory,
        gpu.name,
        lower(found.verdict),
    );
    let header = ["Change", "Costs", "Time", "Saves", "Needs", "Verdict"].map(str::to_owned).to_vec();
    let mut rows = vec![header];
    for lever in &found.single {
        let saves = saved_in_words(found.needed, lever.needed);
        let (cost, time) = (lever.cost.label().to_owned(), lever.slower_in_words());
        let needed = lever.needed_in_words(|bytes| bytes.to_string());
        let cells = [cost, time, saves, needed, lower(lever.verdict)];
        rows.extend(lines(&lever.changes, cells));
    }
    match found.single.is_empty() {
        false => out.push_str(&aligned(&rows)),
        true => out.push_str("No change saves anything worth naming.\n"),
    }
    if let Some(lever) = &found.together {
        let single = found.single.iter().any(|other| other.verdict.holds());
        let why =
            if single { "Cheaper than one change that is enough" } else { "No single change is enough" };
        out.push_str(&format!("\n{why}: together these are.\n\n"));
        let (cost, time) = (lever.cost.label().to_owned(), lever.slower_in_words());
        let needed = lever.needed_in_words(|bytes| bytes.to_string());
        let cells = [cost, time, needed, lower(lever.verdict)];
        let mut rows = vec![["Change", "Costs", "Time", "Needs", "Verdict"].map(str::to_owned).to_vec()];
        rows.extend(lines(&lever.changes, cells));
        out.push_str(&aligned(&rows));
    }
    if !found.uses.is_empty() {
        out.push_str("\nWhat the room is good for:\n\n");
        let mut rows = vec![["Change", "Wins", "Needs", "Verdict"].map(str::to_owned).to_vec()];
        for usage in &found.uses {
            let cells = [usage.gain.label().to_owned(), usage.needed.to_string(), lower(usage.verdict)];
            rows.extend(lines(&usage.changes, cells));
        }
        out.push_str(&aligned(&rows));
        for usage in &found.uses {
            let of = usage.changes.first().map(|change| format!("{} {}", change.label, change.to));
            if let Some((of, limit)) = of.zip(usage.limit.as_ref()) {
                out.push_str(&format!("{of}: {limit}\n"));
            }
        }
    }
    if !found.can_fit() {
        out.push_str("\nNone of these makes it fit: take a larger card, several or a smaller model.\n");
    }
    out.push_str(&format!("\n{}\n", fewest_in_words(&found.fewest)));
    if let Some(lever) = &found.offloaded {
        let gpus = grouped(lever.scenario.cluster.gpus);
        out.push_str(&format!(
            "With weights and optimizer in the CPU's memory {gpus} do: {} on each, and {} of RAM\n",
            lever.needed, lever.on_host
        ));
    }
    Ok(out)
}

/// What a change saves, or takes more.
fn saved_in_words(before: Bytes, after: Bytes) -> String {
    match after > before {
        true => format!("takes {} more", after.saturating_sub(before)),
        false => before.saturating_sub(after).to_string(),
    }
}

/// How many GPUs it takes.
pub(super) fn fewest_in_words(fewest: &Result<Option<Layout>, Issue>) -> String {
    match fewest {
        Err(issue) => format!("Fewest GPUs that hold it: not known: {issue}"),
        Ok(None) => "Fewest GPUs that hold it: not even 1,024 do".to_owned(),
        Ok(Some(Layout { gpus: 1, needed, .. })) => format!("Fewest GPUs that hold it: 1, {needed}"),
        Ok(Some(layout)) => {
            let cluster = layout.scenario.cluster;
            let (gpus, engine) = (grouped(layout.gpus), cluster.sharding.label());
            format!(
                "Fewest GPUs that hold it, of one machine or machines of 8: {gpus} under {engine}, {} on each",
                layout.needed
            )
        }
    }
}

/// A line for the first change, with the figures, and one for each that comes with it.
pub(super) fn lines<const N: usize>(changes: &[Change], cells: [String; N]) -> Vec<Vec<String>> {
    let words = |change: &Change| format!("{}: {} → {}", change.label, change.from, change.to);
    let mut lines: Vec<_> = changes.iter().map(|change| vec![words(change)]).collect();
    for line in lines.iter_mut().skip(1) {
        line[0].insert_str(0, "  with ");
    }
    if let Some(first) = lines.first_mut() {
        first.extend(cells);
    }
    lines
}

/// The verdict in the middle of a line.
pub(super) fn lower(verdict: Verdict) -> String {
    verdict.label().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_more_saves_nothing() {
        assert_eq!(saved_in_words(Bytes::gib(4.0), Bytes::gib(3.0)), "1.00 GiB");
        assert_eq!(saved_in_words(Bytes::gib(3.0), Bytes::gib(4.0)), "takes 1.00 GiB more");
    }
}
