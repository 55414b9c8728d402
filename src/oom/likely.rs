//! Runs near a scenario in which the tensor of a message is asked for at the message's moment: what the run may have been that
//! somebody's error comes from.

use serde::{Deserialize, Serialize};

use super::message::Message;
use super::suspect::{Suspect, suspects};
use crate::estimate::estimate;
use crate::plan::{Change, with_method};
use crate::scenario::{Checkpointing, Scenario};
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
const BATCHES: [u64; 6] = [1, 2, 4, 8, 16, 32];
const SEQUENCES: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16384];
/// So many runs are recorded, those with the fewest changes first: each takes some hundredths of a second.
const RECORDED: usize = 60;
/// So many are named.
const NAMED: usize = 2;

/// The runs that differ from the scenario in method, micro-batch size, sequence length or checkpointing and in which a tensor of the
/// message's size is asked for while as much is allocated as the message says, or may have been in use where that is all it says: those with
/// the fewest changes first. None where the message says neither.
pub fn likely(message: &Message, scenario: &Scenario) -> Vec<Likely> {
    // of what was in use a part may have been free blocks: what a run has of tensors is more than half of what it has of the card
    let in_use = || message.held().map(|held| Bytes(held.bytes.0 / 2));
    let least = message.allocated.map(|amount| amount.bytes).or_else(in_use);
    let (Some(_), Some(least)) = (message.requested, least) else { return Vec::new() };
    if message.segment().is_some() {
        return Vec::new();
    }
    let reaches =
        |other: &Scenario| estimate(other).memory.is_some_and(|memory| memory.peak().1.bytes >= least);
    let mut near = near(scenario);
    near.sort_by_key(|(differing, _)| *differing);
    let candidates = near.into_iter().map(|(_, other)| other).filter(reaches).take(RECORDED);
    let found = candidates.filter_map(|other| {
        let suspect = suspects(message, &[], &other).ok()?.into_iter().next()?;
        let may_be =
            if message.allocated.is_some() { suspect.agrees == Some(true) } else { !suspect.contradicts() };
        may_be.then(|| Likely {
            changes: Change::between(scenario, &other, ""),
            suspect,
            scenario: Box::new(other),
        })
    });
    found.take(NAMED).collect()
}

/// Of the runs with a guess's batch, by every method, with and without checkpointing, the one in which what is allocated is nearest to
/// what the message says when its tensor is asked for, or to all that was in use where that is all it says. None where the message says
/// neither, or no run asks for it.
pub fn nearest_run(message: &Message, guess: &Scenario) -> Option<(Scenario, Suspect)> {
    let said = message.allocated.map(|amount| amount.bytes).or_else(|| message.in_use())?;
    let methods = guess.task.methods().iter().map(|method| with_method(guess, *method));
    let runs = methods.flat_map(|run| {
        let other = Scenario { checkpointing: otherwise(run.checkpointing), ..run.clone() };
        let trains = run.task.trains();
        [Some(run), trains.then_some(other)].into_iter().flatten()
    });
    let asked = runs.filter(|run| !run.stops()).filter_map(|run| {
        let suspect = suspects(message, &[], &run).ok()?.into_iter().next()?;
        Some((run, suspect))
    });
    let possible = asked.filter(|(_, suspect)| message.in_use().is_none_or(|most| suspect.allocated <= most));
    possible.min_by_key(|(_, suspect)| suspect.allocated.0.abs_diff(said.0))
}

/// Checkpointing where there is none, and none where there is.
const fn otherwise(checkpointing: Checkpointing) -> Checkpointing {
    match checkpointing {
        Checkpointing::Off => Checkpointing::NonReentrant,
        Checkpointing::NonReentrant
        | Checkpointing::Reentrant
        | Checkpointing::Selective
        | Checkpointing::Offloaded => Checkpointing::Off,
    }
}

/// The scenarios that differ in these inputs, each with the number of those in which it does.
fn near(scenario: &Scenario) -> Vec<(usize, Scenario)> {
    let mut all = vec![(0, scenario.clone())];
    let mut vary = |change: &dyn Fn(&Scenario) -> Vec<Scenario>| {
        for index in 0..all.len() {
            let (differing, other) = all[index].clone();
            let others = change(&other).into_iter().filter(|next| *next != other);
            all.extend(others.map(|next| (differing + 1, next)));
        }
    };
    vary(&|other| BATCHES.map(|batch| Scenario { batch, ..other.clone() }).into());
    vary(&|other| SEQUENCES.map(|sequence| Scenario { sequence, ..other.clone() }).into());
    let methods = scenario.task.methods();
    vary(&|other| methods.iter().map(|method| with_method(other, *method)).collect());
    let checkpointing = otherwise(scenario.checkpointing);
    if scenario.task.trains() {
        vary(&|other| vec![Scenario { checkpointing, ..other.clone() }]);
    }
    all.split_off(1)
}
