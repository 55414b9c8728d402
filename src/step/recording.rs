//! The step layer by layer, with every event.

use std::ops::Range;

use super::forward::Apart;
use super::heap::record::{Event, Maker, Record};
use super::heap::{Storage, StorageId};
use super::iteration::Rounds;
use super::machine::Machine;
use super::ready::Ready;
use super::run::each_stage;
use super::schedule::{Draw, Schedule};
use super::support::too_large;
use crate::allocator::Settings;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::job::Job;
use crate::memory::{Iteration, Peak, Phase};
use crate::model::Architecture;
use crate::scenario::{Allocator, Scenario};
use crate::units::Bytes;

/// Every allocation and every free of the first iterations of a run. Where all lengths are equal the last one happens once
/// more: it is recorded once and has further numbers.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) storages: Vec<Storage>,
    /// What made each of them.
    pub(super) makers: Vec<Maker>,
    events: Vec<Event>,
    /// How many of them, at the end, happen once more.
    again: usize,
    /// What those leave that the next iteration frees, each with the storage that they freed in its place.
    left: Vec<(StorageId, StorageId)>,
    /// Whether the allocator's cache is emptied then.
    pub(super) empties: bool,
    /// Whether the card's limit holds while the model is loaded.
    pub(super) limits_loading: bool,
    /// Where the first iteration begins.
    pub(super) loaded: usize,
    /// Where the first iteration ends.
    pub(super) first: usize,
    /// The iteration that is shown: the last one, or that of the longest batch where lengths vary.
    shown: Range<usize>,
    /// Where its optimizer's step has ended.
    pub(super) stepped: usize,
    /// The most that its tensors take at once.
    tensors: Bytes,
    /// The stage of a pipeline that it is of, which does worst on the card; none where all ranks do the same, or one was asked for.
    pub(crate) stage: Option<u64>,
}

/// How the run of a stage ends on a card, the worst last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Runs,
    RunsExpandable,
    Fails,
}

impl Recording {
    /// Runs the whole step, every layer of its own, and records it.
    ///
    /// # Errors
    /// An [`Issue`] where the architecture has a part that is not modelled, or more layers than can be followed one by one.
    pub fn of(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Recording, Issue> {
        let record = |scenario: &Scenario| {
            Ready::with(scenario, architecture, gpu, |ready| Recording::ready(ready, None))
        };
        let stages = each_stage(scenario);
        if let [only] = &stages[..] {
            return record(only);
        }
        let room = gpu.memory.saturating_sub(gpu.context);
        let mut worst: Option<((Ending, Bytes), Recording)> = None;
        for own in stages {
            let recording = Recording { stage: Some(own.cluster.layout.stage), ..record(&own)? };
            let ending = recording.ending(scenario.allocator == Allocator::Expandable, room);
            if worst.as_ref().is_none_or(|(known, _)| ending > *known) {
                worst = Some((ending, recording));
            }
        }
        worst.map(|(_, recording)| recording).ok_or_else(too_large)
    }

    /// How it ends where the allocator can have so much, and what it reserves where it can have all.
    fn ending(&self, expandable: bool, room: Bytes) -> (Ending, Bytes) {
        let run = |expandable_segments, capacity: Option<Bytes>| {
            self.allocate(Settings { expandable_segments, capacity: capacity.map(|bytes| bytes.0) })
        };
        let reserved = run(expandable, None).most_reserved;
        let holds = |expandable| run(expandable, Some(room)).failure.is_none();
        let ending = if reserved <= room || holds(expandable) {
            Ending::Runs
        } else if !expandable && holds(true) {
            Ending::RunsExpandable
        } else {
            Ending::Fails
        };
        (ending, reserved)
    }

    /// The same of micro-batches whose lengths are drawn, for a scenario whose lengths vary.
    ///
    /// # Errors
    /// As [`Recording::of`].
    pub fn of_lengths(
        architecture: &Architecture,
        scenario: &Scenario,
        gpu: &Gpu,
        draw: &dyn Fn(usize) -> Vec<u64>,
    ) -> Result<Recording, Issue> {
        Ready::with(scenario, architecture, gpu, |ready| Recording::ready(ready, Some(draw)))
    }

    /// The same of any job.
    ///
    /// # Errors
    /// An [`Issue`] where a model is not known, or it or what is done with it is not modelled, or there are more layers than
    /// can be followed one by one.
    pub fn of_job(job: &Job, gpu: &Gpu) -> Result<Recording, Issue> {
        let architectures = job.architectures()?;
        let architectures: Vec<&Architecture> =
            architectures.iter().map(|architecture| &**architecture).collect();
        Recording::ready(&Ready::of(job, &architectures, gpu)?, None)
    }

    fn ready(ready: &Ready<'_>, drawn: Option<Draw<'_>>) -> Result<Recording, Issue> {
        Recording::run(ready, &Schedule::of(ready, drawn)?)
    }

    fn run(ready: &Ready<'_>, schedule: &Schedule) -> Result<Recording, Issue> {
        let machine = Machine::new(ready.device, Some(schedule.events));
        let models = ready.load(&machine, Apart::All)?;
        let mut rounds = Rounds::new(&machine, ready, models);
        rounds.run_up_to(schedule.accumulated, schedule.passes);
        rounds.prepare();
        let made = || machine.with(|state| (state.events(), state.storages.len()));
        let (loaded, _) = made();
        let (mut first, mut shown) = (loaded, loaded..loaded);
        let (mut survivors, mut left, mut alike) = (Vec::new(), Vec::new(), true);
        let mut highest = Bytes::ZERO;
        let iterations = schedule.iterations();
        let count = iterations.len();
        for (index, batches) in iterations.into_iter().enumerate() {
            let (start, own) = made();
            rounds.is_last = index + 1 == count;
            highest = highest.max(rounds.round(batches).highest().1.bytes);
            let (end, _) = made();
            if index == 0 {
                first = end;
            }
            if schedule.shows(batches) {
                shown = start..end;
            }
            if schedule.repeats() {
                let later = machine.with(|state| state.survivors(own));
                let is_freed = |id: &StorageId| machine.with(|state| state.references(*id)) == 0;
                let freed: Vec<StorageId> = survivors.into_iter().filter(is_freed).collect();
                let sizes = |ids: &[StorageId]| -> Vec<u64> {
                    machine.with(|state| ids.iter().map(|id| state.storages[*id as usize].bytes()).collect())
                };
                alike = sizes(&later) == sizes(&freed);
                left = later.iter().copied().zip(freed).collect();
                survivors = later;
            }
        }
        ready.followed(&machine, highest)?;
        if schedule.repeats() && !alike {
            // it leaves something else than it found
            drop(rounds);
            return Recording::run(ready, &schedule.in_full());
        }
        let mut stepped = rounds.stepped();
        // what the loop still holds is freed after the run, which is no part of the recording
        let Record { events, makers, .. } = machine.with(|state| state.record.take().unwrap_or_default());
        drop(rounds);
        let storages = machine.into_state().heap.storages;
        let empties = !ready.lays_out_anew();
        let limits_loading = ready.holds_the_loading();
        let again = if schedule.repeats() { shown.len() } else { 0 };
        shown = shown.start + again..shown.end + again;
        stepped += again;
        Ok(Recording {
            storages,
            makers,
            events,
            again,
            left,
            empties,
            limits_loading,
            loaded,
            first,
            shown,
            stepped,
            tensors: highest,
            stage: None,
        })
    }

    /// How many events there are, those that happen once more with them.
    pub(super) fn len(&self) -> usize {
        self.events.len() + self.again
    }

    /// All events; the last of them happen once more.
    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    /// The phase with which the first iteration begins.
    pub(super) fn first_phase(&self) -> Option<Phase> {
        let marked = |event: &Event| if let Event::Mark(phase) = event { Some(*phase) } else { None };
        self.events.iter().find_map(marked)
    }

    /// Those that happen once more.
    pub(super) fn events_again(&self) -> &[Event] {
        &self.events[self.events.len() - self.again..]
    }

    /// Where the iteration begins that happened before.
    pub(super) fn repeats_at(&self) -> usize {
        self.events.len()
    }

    /// What that one leaves, each with what it freed of the one before: as that it is freed when it happens again.
    pub(super) fn handed_over(&self) -> impl Iterator<Item = (usize, usize)> {
        self.left.iter().map(|(left, freed)| (*left as usize, *freed as usize))
    }

    /// The event of that number.
    pub(super) fn event(&self, number: usize) -> Option<Event> {
        let before = if number < self.events.len() { number } else { number.checked_sub(self.again)? };
        self.events.get(before).copied()
    }

    /// The number of the last event that is so.
    pub(super) fn last(&self, is_so: impl Fn(&Event) -> bool) -> Option<usize> {
        self.events.iter().rposition(is_so).map(|index| index + self.again)
    }

    pub(super) fn storage(&self, id: u32) -> &Storage {
        &self.storages[id as usize]
    }

    /// The peaks of the first iteration and of the one that is shown, in tensors: what [`run`](super::run) says of them, event
    /// by event.
    pub fn iterations(&self) -> [Iteration; 2] {
        let mut iterations = [(); 2].map(|()| Iteration::default());
        self.feed(self.len(), Settings::default(), &mut |number, feed| {
            let Some(phase) = feed.phase() else { return };
            for (iteration, events) in iterations.iter_mut().zip([&(self.loaded..self.first), &self.shown]) {
                if events.contains(&number) {
                    let peak = iteration.phase_mut(phase);
                    if feed.tensors() > peak.bytes {
                        *peak = Peak::of(*feed.tensor_parts());
                    }
                }
            }
        });
        iterations
    }

    /// The most that its tensors take at once, each rounded up to 512 bytes: with less the run fails, however they lie.
    pub fn tensors(&self) -> Bytes {
        self.tensors
    }

    /// The events of the first iteration.
    pub fn first(&self) -> Range<usize> {
        self.loaded..self.first
    }

    /// The events of the iteration that is shown: the last one, or that of the longest batch where lengths vary.
    pub fn shown(&self) -> Range<usize> {
        self.shown.clone()
    }

    /// What made a storage: module and operation.
    pub(super) fn made_by(&self, id: StorageId) -> (&'static str, &'static str) {
        let Maker { module, what, .. } = self.makers[id as usize];
        (module, what.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use crate::scenario::{
        Checkpointing, Cluster, Loop, Method, ModelChoice, Offloading, Precision, Savings, Sharding, Stack,
        StepTime,
    };

    /// What the allocator makes of three iterations, with and without a limit, and what is shown of the last one.
    #[track_caller]
    fn is_as_if_run_three_times(scenario: &Scenario) {
        let (architecture, gpu) =
            (scenario.architecture().expect("a model"), scenario.gpu().expect("a card"));
        let job = Job::from(scenario);
        let ready = Ready::of(&job, &[&architecture], &gpu).expect("it is modelled");
        let [twice, thrice] = [2, 3].map(|run| {
            let recording = Recording::run(&ready, &Schedule::equal(run)).expect("it is modelled");
            let unlimited = recording.replay(Settings::default());
            let capacity = Some(unlimited.allocation.reserved_peak.0 / 100 * 97);
            let limited = recording.replay(Settings { expandable_segments: true, capacity });
            let moments = recording.timeline(recording.shown(), 400, Settings::default());
            let groups = recording.tensors_at(moments[moments.len() / 2].at, Settings::default());
            (
                recording.events.len(),
                (unlimited, limited, moments, groups, recording.snapshot(Settings::default()).events),
            )
        });
        assert!(twice.0 < thrice.0);
        assert!(twice.1 == thrice.1, "{scenario:?}");
    }

    #[test]
    fn every_later_iteration_does_what_the_second_did() {
        let base = Scenario {
            model: ModelChoice::Catalogue("Qwen/Qwen2.5-0.5B".into()),
            method: Method::Full,
            precision: Precision::Bf16,
            sequence: 256,
            ..Scenario::default()
        };
        let kept = Loop { keeps_outputs: true, grads_to_none: false, ..base.training_loop };
        let cached = Loop { fills_cache: true, ..base.training_loop };
        let sharded = Cluster { gpus: 4, sharding: Sharding::Fsdp2, ..base.cluster };
        let in_backward = Savings { step: StepTime::InBackward, ..base.savings };
        let offloaded = Savings { offloading: Offloading::On, ..base.savings };
        for scenario in [
            base.clone(),
            Scenario { training_loop: kept, ..base.clone() },
            Scenario { training_loop: kept, accumulation: 3, precision: Precision::AmpBf16, ..base.clone() },
            Scenario { method: Method::Qlora, checkpointing: Checkpointing::Reentrant, ..base.clone() },
            Scenario { savings: in_backward, ..base.clone() },
            Scenario { savings: offloaded, stack: Stack::Trl, ..base.clone() },
            Scenario { stack: Stack::Torchtune, training_loop: kept, ..base.clone() },
            Scenario { stack: Stack::Liger, accumulation: 6, ..base.clone() },
            Scenario { precision: Precision::AmpFp16, ..base.clone() },
            Scenario { training_loop: cached, checkpointing: Checkpointing::Off, ..base.clone() },
            Scenario { cluster: sharded, precision: Precision::AmpBf16, ..base.clone() },
            Scenario { model: ModelChoice::Catalogue("google-t5/t5-small".into()), ..base.clone() },
            Scenario {
                model: ModelChoice::Catalogue("ibm-granite/granite-3.1-1b-a400m-base".into()),
                ..base
            },
        ] {
            is_as_if_run_three_times(&scenario);
        }
    }
}
