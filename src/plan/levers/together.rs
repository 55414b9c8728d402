//! Changes that are enough together.

use std::cmp::Reverse;

use super::looks::Outlook;
use super::rules::Rule;
use super::{Cost, LEAST_SHARE, Lever, Looked, brings, lever, step};
use crate::scenario::Scenario;
use crate::units::Bytes;

/// A change that is made together with others, and what is paid for all of it.
#[derive(Clone, Copy)]
struct Pull {
    rule: &'static Rule,
    cost: Cost,
}

impl Pull {
    /// What it costs and, where that is maybe quality, whether it is one of less: shorter texts and lower ranks come last.
    fn dearness(self) -> (Cost, bool) {
        (self.cost, self.cost == Cost::Training && self.rule.again)
    }
}

/// Changes that together make a scenario fit: always of the cheapest kind that saves anything, and of that the one that saves most, until
/// it fits: what a dear change uncovers may go for nothing.
pub(super) fn together(
    scenario: &Scenario,
    looked: &Looked,
    costs: &[Cost],
    rules: &[&'static Rule],
) -> Option<Lever> {
    found(scenario, looked, costs, rules, Vec::new()).map(|(lever, _)| lever)
}

/// How many first changes are tried where the usual search finds nothing.
const STARTS: usize = 2;

/// The same where [`together`] finds nothing: a change that costs nothing may make the one useless that would have been enough, as a loss in
/// pieces, each with a copy of the head, does to 4-bit weights beside a head in float32. Each of the changes that leave least missing is made
/// first, whatever it costs, alone and with the one that then leaves least. Of what comes of them the cheapest.
pub(super) fn from_the_strongest(
    scenario: &Scenario,
    looked: &Looked,
    costs: &[Cost],
    rules: &[&'static Rule],
) -> Option<Lever> {
    let seen = [scenario.clone()];
    let usual = cheapest_saving(costs, &seen, rules).map(|pull| with(scenario, &[pull]));
    let mut strongest: Vec<(Pull, bool, i128)> = savings(costs, &seen, rules)?.collect();
    strongest.sort_by_key(|(pull, still, left)| (*still, *left, pull.dearness()));
    // several rules may do the same, and what the search began with led nowhere
    let mut begun: Vec<Scenario> = usual.into_iter().collect();
    strongest.retain(|(pull, ..)| {
        let changed = with(scenario, &[*pull]);
        let is_new = !begun.contains(&changed);
        begun.push(changed);
        is_new
    });
    let by_strength = |(_, still, left): &(Pull, bool, i128)| (*still, *left);
    // after one of them a cheap change may stand in the way again, and the strongest does not
    let and_next = |pull: Pull| {
        let seen = [scenario.clone(), with(scenario, &[pull])];
        let next = savings(costs, &seen, rules).and_then(|found| found.min_by_key(by_strength));
        [Some(vec![pull]), next.map(|(next, ..)| vec![pull, next])]
    };
    let ways = strongest.into_iter().take(STARTS).flat_map(|(pull, ..)| and_next(pull)).flatten();
    let found = ways.filter_map(|pulls| found(scenario, looked, costs, rules, pulls));
    found
        .min_by_key(|(_, pulls)| (pulls.iter().copied().map(Pull::dearness).max(), pulls.len()))
        .map(|(lever, _)| lever)
}

/// What comes of some changes and those that are made after them until it fits, cheapest first. Nothing leads back to a scenario on the
/// way: of a run that stops, a change with which it goes on may save nothing. Then those that turn out not to be needed are taken back, the
/// dearest first.
fn found(
    scenario: &Scenario,
    looked: &Looked,
    costs: &[Cost],
    rules: &[&'static Rule],
    mut pulls: Vec<Pull>,
) -> Option<(Lever, Vec<Pull>)> {
    let mut seen = vec![scenario.clone()];
    seen.extend((1..=pulls.len()).map(|made| with(scenario, &pulls[..made])));
    while !fits_with(scenario, &pulls, looked) {
        pulls.push(cheapest_saving(costs, &seen, rules)?);
        seen.push(with(scenario, &pulls));
    }
    let mut kept: Vec<Option<Pull>> = pulls.into_iter().map(Some).collect();
    let mut dearest: Vec<usize> = (0..kept.len()).collect();
    dearest.sort_by_key(|index| Reverse((kept[*index].map(Pull::dearness), *index)));
    for index in dearest {
        let taken = kept[index].take();
        if !fits_with(scenario, &Vec::from_iter(kept.iter().flatten().copied()), looked) {
            kept[index] = taken;
        }
    }
    let pulls: Vec<Pull> = kept.into_iter().flatten().collect();
    let dearest = pulls.iter().copied().max_by_key(|pull| pull.cost)?;
    let after = looked.looks.without_holes(with(scenario, &pulls));
    let found = lever(scenario, after, dearest.rule.key, dearest.cost, looked)?;
    costs.contains(&found.cost).then_some((found, pulls))
}

/// The scenario with some changes.
fn with(scenario: &Scenario, pulls: &[Pull]) -> Scenario {
    let mut changed = scenario.clone();
    pulls.iter().for_each(|pull| (pull.rule.pull)(&mut changed));
    changed
}

fn fits_with(scenario: &Scenario, pulls: &[Pull], looked: &Looked) -> bool {
    let changed = with(scenario, pulls);
    Outlook::of_tensors(&changed).is_some_and(|outlook| outlook.holds(&changed))
        && looked.looks.at(&looked.looks.without_holes(changed)).is_some_and(Outlook::fits)
}

/// The change at one of these costs that is the cheapest, and of those the one that leaves least missing of what the tensors need, if it
/// is worth a line; one that stops is changed so that it does not before all. `seen` are the scenarios on the way here, the last of which is
/// changed.
fn cheapest_saving(costs: &[Cost], seen: &[Scenario], rules: &[&'static Rule]) -> Option<Pull> {
    let found = savings(costs, seen, rules)?;
    found.min_by_key(|(pull, still, left)| (*still, pull.dearness(), *left)).map(|(pull, ..)| pull)
}

/// The changes at one of these costs that save enough to be worth a line, each with whether it leaves a run that stops as it is, and with what
/// is then missing of what the tensors need.
fn savings<'a>(
    costs: &'a [Cost],
    seen: &'a [Scenario],
    rules: &'a [&'static Rule],
) -> Option<impl Iterator<Item = (Pull, bool, i128)> + 'a> {
    let scenario = seen.last()?;
    let Missing { needed: before, missing, has_ram: had_ram } = needed_and_missing(scenario)?;
    let stops = scenario.stops();
    let saving = move |rule: &&'static Rule| {
        let changed = step(rule, scenario).filter(|changed| !seen.contains(changed))?;
        // from RAM that no machine has no way leads on
        let Missing { missing: left, .. } =
            needed_and_missing(&changed).filter(|of| of.has_ram || !had_ram)?;
        let goes_on = stops && !changed.stops();
        let saves = left.saturating_add(i128::from(before.0 / LEAST_SHARE)) < missing;
        let cost = (goes_on || saves).then(|| rule.cost.max(brings(scenario, &changed)))?;
        costs.contains(&cost).then_some((Pull { rule, cost }, !goes_on, left))
    };
    Some(rules.iter().filter_map(saving))
}

/// What a run is short of.
struct Missing {
    /// What its tensors need.
    needed: Bytes,
    /// How much of that the card does not leave to it: a part of it may be another's.
    missing: i128,
    /// Whether some known machine has the RAM that it takes.
    has_ram: bool,
}

fn needed_and_missing(scenario: &Scenario) -> Option<Missing> {
    let outlook = Outlook::of_tensors(scenario)?;
    let missing = i128::from(outlook.needed.0) - i128::from(scenario.gpu().ok()?.memory.0);
    Some(Missing { needed: outlook.needed, missing, has_ram: outlook.has_ram(scenario) })
}
