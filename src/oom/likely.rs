//! Runs near a scenario in which the tensor of a message is asked for at the message's moment: what the run may have been that
//! somebody's error comes from.

use serde::{Deserialize, Serialize};

use super::message::Message;
use super::place::Place;
use super::suspect::{Suspect, suspects};
use crate::allocator::segment_for;
use crate::estimate::estimate;
use crate::plan::{Change, with_method};
use crate::scenario::{AttentionKernel, Checkpointing, Precision, Scenario, Sharding};
use crate::units::Bytes;

/// A run that the message may be of.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Likely {
    /// In what it differs from the scenario.
    pub changes: Vec<Change>,
    /// The tensor that asks for as much, at that moment.
    pub suspect: Suspect,
    /// The run.
    pub scenario: Box<Scenario>,
}

/// Sizes that people choose.
pub(super) const BATCHES: [u64; 6] = [1, 2, 4, 8, 16, 32];
pub(super) const SEQUENCES: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16384];
/// So many runs are recorded, those with the fewest changes first: each takes some hundredths of a second.
const RECORDED: usize = 48;
/// So many of those whose scores have the size.
const SCORED: usize = 12;
/// So many of each are named, and so many of one tensor.
const NAMED: usize = 2;
const OF_ONE: usize = 2;

/// The runs that differ from the scenario in method, micro-batch size, sequence length, checkpointing, element types or the attention
/// kernel and in which a tensor of the message's size is asked for where its traceback stands and while as much is allocated as the message
/// says, or may have been in use where that is all it says: those with the fewest changes first. None where the message says neither.
pub fn likely(message: &Message, places: &[Place], scenario: &Scenario) -> Vec<Likely> {
    let (Some(_), Some(least)) = (message.sought(), least(message)) else { return Vec::new() };
    let reaches = |other: &Scenario| reaches(other, least);
    let mut near = near(scenario, places.first().copied());
    near.sort_by_key(|(differing, _)| *differing);
    let mut scored = scored(message, scenario, places.first().copied());
    scored.sort_by_key(|(differing, other)| (*differing, other.method != scenario.method));
    let mut found: Vec<(usize, Likely)> = Vec::new();
    for (candidates, most) in [(near, RECORDED), (scored, SCORED)] {
        let before = found.len();
        for (differing, other) in candidates.into_iter().filter(|(_, other)| reaches(other)).take(most) {
            let Some(suspect) = first_suspect(message, places, &other) else { continue };
            let may_be = if message.allocated.is_some() {
                suspect.agrees == Some(true)
            } else {
                !suspect.contradicts()
            };
            let of_it = |found: &&(usize, Likely)| found.1.suspect.line.what == suspect.line.what;
            if may_be && found.iter().filter(of_it).count() < OF_ONE {
                let changes = Change::between(scenario, &other, "");
                found.push((differing, Likely { changes, suspect, scenario: Box::new(other) }));
            }
            if found.len() - before == NAMED {
                break;
            }
        }
    }
    found.sort_by_key(|(differing, _)| *differing);
    found.into_iter().map(|(_, likely)| likely).collect()
}

/// The least that a run has of tensors at its highest point where a message is of it: what the message says was allocated, or half of what was in use.
fn least(message: &Message) -> Option<Bytes> {
    // of what was in use a part may have been free blocks: what a run has of tensors is more than half of what it has of the card
    let in_use = || message.held().map(|held| Bytes(held.bytes.0 / 2));
    message.allocated.map(|amount| amount.bytes).or_else(in_use)
}

/// Whether a run has as much at its highest point.
fn reaches(run: &Scenario, least: Bytes) -> bool {
    estimate(run).memory.is_some_and(|memory| memory.peak().1.bytes >= least)
}

/// The likeliest tensor of a run that is made where the traceback stands, if there is one.
fn first_suspect(message: &Message, places: &[Place], run: &Scenario) -> Option<Suspect> {
    let first = suspects(message, places, run).ok()?.into_iter().next()?;
    (places.is_empty() || first.place == places.first().copied()).then_some(first)
}

/// A run of a guess has less than a message says was allocated where its highest point lies below this part of it.
const BELOW: f64 = 0.9;

/// Of the runs with a guess's batch, by every method, with and without checkpointing, the one in which what is allocated is nearest to
/// what the message says when its tensor is asked for where the traceback stands, or to all that was in use where that is all it says. None
/// where the message says neither, or no run asks for it. `by_any` engine where the text proves that there are several GPUs and not what they share.
pub fn nearest_run(
    message: &Message,
    places: &[Place],
    guess: &Scenario,
    by_any: bool,
) -> Option<(Scenario, Suspect)> {
    let said = message.allocated.map(|amount| amount.bytes).or_else(|| message.in_use())?;
    let enough = |run: &Scenario| {
        let part = |said: Bytes| Bytes((said.0 as f64 * BELOW) as u64);
        message.allocated.is_none_or(|said| reaches(run, part(said.bytes)))
    };
    let engines: &[Sharding] = if by_any { &ENGINES } else { &[guess.cluster.sharding] };
    let all = engines.iter().flat_map(|sharding| {
        let mut other = guess.clone();
        other.change(|other| other.cluster.sharding = *sharding);
        runs(&other).collect::<Vec<_>>()
    });
    let asked = all.filter(|run| !run.stops() && enough(run)).filter_map(|run| {
        let suspect = first_suspect(message, places, &run)?;
        Some((run, suspect))
    });
    let possible = asked.filter(|(_, suspect)| message.in_use().is_none_or(|most| suspect.allocated <= most));
    possible.min_by_key(|(_, suspect)| suspect.allocated.0.abs_diff(said.0))
}

/// What several GPUs of a run that nobody knows are tried with.
const ENGINES: [Sharding; 4] = [Sharding::Fsdp2, Sharding::Zero3, Sharding::Zero2, Sharding::Ddp];

/// A scenario by every method, with and without checkpointing.
fn runs(scenario: &Scenario) -> impl Iterator<Item = Scenario> {
    let methods = scenario.task.methods().iter().map(|method| with_method(scenario, *method));
    methods.flat_map(|run| {
        let other = Scenario { checkpointing: otherwise(run.checkpointing), ..run.clone() };
        let trains = run.task.trains();
        [Some(run), trains.then_some(other)].into_iter().flatten()
    })
}

/// Checkpointing where there is none, and none where there is.
const fn otherwise(checkpointing: Checkpointing) -> Checkpointing {
    match checkpointing {
        Checkpointing::Off => Checkpointing::NonReentrant,
        Checkpointing::NonReentrant
        | Checkpointing::Reentrant
        | Checkpointing::Selective
        | Checkpointing::Alternate
        | Checkpointing::Operations
        | Checkpointing::Offloaded => Checkpointing::Off,
    }
}

/// Scenarios, each with the number of inputs in which it differs from the first.
struct Near(Vec<(usize, Scenario)>);

impl Near {
    fn vary(&mut self, change: impl Fn(&Scenario) -> Vec<Scenario>) {
        for index in 0..self.0.len() {
            let (differing, other) = self.0[index].clone();
            let others = change(&other).into_iter().filter(|next| *next != other);
            self.0.extend(others.map(|next| (differing + 1, next)));
        }
    }

    fn vary_tokens(&mut self) {
        self.vary(|other| BATCHES.map(|batch| Scenario { batch, ..other.clone() }).into());
        self.vary(|other| SEQUENCES.map(|sequence| Scenario { sequence, ..other.clone() }).into());
    }

    fn vary_method(&mut self, scenario: &Scenario) {
        let methods = scenario.task.methods();
        self.vary(|other| methods.iter().map(|method| with_method(other, *method)).collect());
        let checkpointing = otherwise(scenario.checkpointing);
        if scenario.task.trains() {
            self.vary(|other| vec![Scenario { checkpointing, ..other.clone() }]);
        }
    }
}

/// The scenarios that differ in these inputs, as far as they have a part in what is made at the innermost place of a traceback, each with the number
/// of those in which it does.
fn near(scenario: &Scenario, place: Option<Place>) -> Vec<(usize, Scenario)> {
    let mut near = Near(vec![(0, scenario.clone())]);
    // how many tokens there are has no part in weights and what is remembered of them
    let is_of_tokens = place.is_none_or(Place::is_of_tokens);
    if is_of_tokens {
        near.vary_tokens();
    }
    near.vary_method(scenario);
    // a run in other element types differs in few inputs more, or nobody can tell which
    let mut otherwise =
        Near(near.0.iter().filter(|(differing, _)| !is_of_tokens || *differing < 2).cloned().collect());
    let own = otherwise.0.len();
    otherwise.vary(|other| {
        let is_alike = |precision: &&Precision| precision.is_float16() == other.precision.is_float16();
        let mut alike: Vec<Precision> = Precision::ALL.iter().filter(is_alike).copied().collect();
        // which hardly anybody trains in
        alike.sort_by_key(|precision| *precision == Precision::Fp32);
        alike.into_iter().map(|precision| Scenario { precision, ..other.clone() }).collect()
    });
    near.0.extend(otherwise.0.split_off(own));
    near.0.split_off(1)
}

/// The scenarios with attention's scores written out in which these have the message's size.
fn scored(message: &Message, scenario: &Scenario, place: Option<Place>) -> Vec<(usize, Scenario)> {
    let heads = scenario.architecture().ok().and_then(|architecture| architecture.heads());
    let may_be = place.is_none_or(Place::may_be_of_scores) && scenario.attention != AttentionKernel::Eager;
    let (Some((heads, _)), Some(sought), true) = (heads, message.sought(), may_be) else { return Vec::new() };
    let mut near = Near(vec![(1, Scenario { attention: AttentionKernel::Eager, ..scenario.clone() })]);
    near.vary_tokens();
    near.0.retain(|(_, other)| {
        scores(heads, other.batch, other.sequence).any(|(_, bytes)| sought.contains(&segment_for(bytes)))
    });
    near.vary_method(scenario);
    near.0
}

/// The bytes that the scores of so many heads have, in 16 and in 32 bits, each with its bytes for one.
pub(super) fn scores(heads: u64, batch: u64, sequence: u64) -> impl Iterator<Item = (u64, u64)> {
    let all = [batch, sequence, sequence].into_iter().fold(heads, u64::saturating_mul);
    [2, 4].into_iter().map(move |bytes| (bytes, all.saturating_mul(bytes)))
}
