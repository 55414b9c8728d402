//! Ways put in order, and the fewest GPUs of which some way holds a run.

use super::enumerated::ways;
use super::trying::{followed, place, tried};
use super::way::{Way, WayOutcome, engine};
use crate::issue::Issue;
use crate::plan::counts::{between, usual};
use crate::plan::each;
use crate::scenario::Scenario;
use crate::units::Bytes;

/// What ways are put in order by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOrder {
    /// The fastest first; of unknown speed the one that needs least.
    Speed,
    /// The same behind the fastest of each engine.
    Engines,
    /// The one that needs least first.
    Memory,
}

/// Puts ways in order: those that fit, then those that might, those that do not, which need least first, and those without an
/// answer.
pub fn rank_ways(ways: &mut [Way], order: WayOrder) {
    let speed = |way: &Way| match order {
        WayOrder::Speed | WayOrder::Engines if place(way) <= 1 => {
            way.speed().map_or(0.0, |speed| speed.typical)
        }
        WayOrder::Speed | WayOrder::Engines | WayOrder::Memory => 0.0,
    };
    ways.sort_by(|one, other| {
        let by_speed = speed(other).total_cmp(&speed(one));
        place(one).cmp(&place(other)).then(by_speed).then(one.needed().cmp(&other.needed()))
    });
    if order == WayOrder::Engines {
        lead(ways);
    }
}

/// Moves the first way of each engine that fits before the others: one engine alone may have more ways than anybody reads.
fn lead(ways: &mut [Way]) {
    let mut led: Vec<&'static str> = Vec::new();
    for at in 0..ways.len() {
        let engine = engine(&ways[at].scenario);
        if ways[at].fits() && !led.contains(&engine) {
            ways[led.len()..=at].rotate_right(1);
            led.push(engine);
        }
    }
}

/// Reasons why ways have no answer, each with how many have it.
pub fn refusals<'w>(ways: impl Iterator<Item = &'w Way>) -> Vec<(Issue, Vec<String>)> {
    let mut reasons: Vec<(Issue, Vec<String>)> = Vec::new();
    for way in ways {
        let WayOutcome::Refused(issue) = &way.outcome else { continue };
        let name = way.name();
        match reasons.iter_mut().find(|(own, _)| own == issue) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((issue.clone(), vec![name])),
        }
    }
    reasons
}

/// Every way to use so many GPUs, tried and in order ([`rank_ways`]).
pub fn layouts(scenario: &Scenario, gpus: u64) -> Vec<Way> {
    let mut ways: Vec<Way> = each(&ways(scenario, gpus), tried);
    rank_ways(&mut ways, WayOrder::Engines);
    // the nearest of those that do not fit is told by what it needs
    while let Some(at) = ways.iter().position(|way| place(way) == 2)
        && at.checked_sub(1).is_none_or(|before| place(&ways[before]) == 0)
        && !ways[at].is_followed()
    {
        ways[at] = followed(&ways[at]);
        rank_ways(&mut ways, WayOrder::Engines);
    }
    ways
}

/// The same of the fewest GPUs that hold the scenario in any way without the CPU's memory, of which it is not known how much there is; of
/// the most that are looked at where none do.
pub fn fewest_layouts(scenario: &Scenario) -> (u64, Vec<Way>) {
    let holds = |way: &Way| way.fits() && way.on_host() == Bytes::ZERO;
    let mut last = (1, Vec::new());
    let mut fewer = 0;
    for gpus in usual(scenario.cluster.per_node) {
        last = (gpus, layouts(scenario, gpus));
        if last.1.iter().any(holds) {
            let fewer = between(fewer, gpus, scenario.cluster.per_node);
            let mut fewer = fewer.map(|gpus| (gpus, layouts(scenario, gpus)));
            return fewer.find(|(_, ways)| ways.iter().any(holds)).unwrap_or(last);
        }
        if gpus > 1 && !last.1.iter().any(|way| way.verdict().is_some()) {
            break;
        }
        fewer = gpus;
    }
    last
}
