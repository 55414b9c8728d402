//! The step layer by layer, with every event: what the allocator makes of it, the timeline, the tensors at the peak.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::forward::Apart;
use super::heap::record::{Event, Maker, Pass, Record};
use super::heap::{Storage, StorageId, rounded};
use super::iteration::Rounds;
use super::machine::Machine;
use super::ready::Ready;
use super::run::placed;
use super::schedule::{Draw, Schedule};
use crate::allocator::Settings;
use crate::dtype::Dtype;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::job::Job;
use crate::memory::{Category, Iteration, Parts, Peak, Phase};
use crate::model::Architecture;
use crate::scenario::Scenario;
use crate::step::what::{Dims, Role, Source, What, roles};
use crate::units::Bytes;

static BLOCK_REST: What = What::own(
    "rest of a block",
    "the allocator splits a block only where more than 1 MiB would be left of it",
    Source::At("PyTorch, c10/cuda/CUDACachingAllocator.cpp, should_split"),
);

/// Every allocation and every free of the first iterations of a run. Where all lengths are equal the last one happens once
/// more: it is recorded once and has further numbers.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) storages: Vec<Storage>,
    /// What made each of them.
    makers: Vec<Maker>,
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
}

/// The ledger after one event of the last iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Moment {
    /// The event's number, for asking about it.
    pub at: usize,
    /// The phase.
    pub phase: Phase,
    /// Live bytes by category.
    pub parts: Parts,
    /// What the allocator has of the card.
    pub reserved: Bytes,
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Whether a tensor comes; otherwise it goes.
    pub comes: bool,
    /// The module that made it, without the layer's number.
    pub module: &'static str,
    /// The operation that made it.
    pub operation: &'static str,
    /// Whether checkpointing's recomputation made it.
    pub recomputed: bool,
    /// Bytes that were asked for.
    pub bytes: Bytes,
    /// Which of its kind it is in its phase, from 1, and how many there are: of what every layer makes once, the layer.
    pub place: (usize, usize),
}

/// Equal tensors that are alive at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorGroup {
    /// What they are for.
    pub category: Category,
    /// The module that made them, without the layer's number.
    pub module: &'static str,
    /// What they are.
    pub what: &'static What,
    /// What the operation that made them was run for.
    pub role: &'static Role,
    /// Their dimensions.
    pub dims: Dims,
    /// When they were made.
    pub pass: Pass,
    /// The layer whose they are, counted from 1, where those of each are a group; 0 outside of the layers.
    pub layer: u32,
    /// Their element type.
    pub dtype: Dtype,
    /// Bytes of one.
    pub bytes: Bytes,
    /// How many.
    pub count: u64,
}

impl TensorGroup {
    /// What blocks have beyond their tensors, of which there is none yet.
    fn rests() -> TensorGroup {
        TensorGroup {
            category: Category::Rounding,
            module: "",
            what: &BLOCK_REST,
            role: &roles::RESIDUAL,
            dims: Dims::Elements,
            pass: Pass::Forward,
            layer: 0,
            dtype: Dtype::U8,
            bytes: Bytes::ZERO,
            count: 1,
        }
    }

    /// Bytes of all of them, each rounded up to the allocator's 512.
    pub fn total(&self) -> Bytes {
        Bytes(rounded(self.bytes.0).saturating_mul(self.count))
    }
}

impl Recording {
    /// Runs the whole step, every layer of its own, and records it.
    ///
    /// # Errors
    /// An [`Issue`] where the architecture has a part that is not modelled, or more layers than can be followed one by one.
    pub fn of(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Recording, Issue> {
        let scenario = &*placed(architecture, scenario, gpu)?;
        Ready::with(scenario, architecture, gpu, |ready| Recording::ready(ready, None))
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
        let scenario = &*placed(architecture, scenario, gpu)?;
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
        for (index, batches) in schedule.iterations().into_iter().enumerate() {
            let (start, own) = made();
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
        })
    }

    /// How many events there are, those that happen once more with them.
    pub(super) fn len(&self) -> usize {
        self.events.len() + self.again
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

    fn storage(&self, id: u32) -> &Storage {
        &self.storages[id as usize]
    }

    /// The peaks of the first iteration and of the one that is shown, in tensors: what [`run`](super::run) says of them, event
    /// by event.
    pub fn iterations(&self) -> [Iteration; 2] {
        let mut iterations = [(); 2].map(|()| Iteration::default());
        self.feed(self.len(), Settings::default(), |number, feed| {
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

    /// What is allocated after each block that comes or goes in the iteration that is shown, with the number of the event.
    pub fn heights(&self, settings: Settings) -> Vec<(usize, Bytes)> {
        let shown = self.shown();
        let mut heights = Vec::with_capacity(shown.len());
        self.feed(shown.end, settings, |index, feed| {
            let is_block = matches!(self.event(index), Some(Event::Alloc(_) | Event::Free(_)));
            if is_block && shown.contains(&index) {
                heights.push((index, feed.parts().total()));
            }
        });
        heights
    }

    /// Some events in at most `points` moments; of every bucket the lowest and the highest.
    pub fn timeline(&self, events: Range<usize>, points: usize, settings: Settings) -> Vec<Moment> {
        let bucket = (events.len() * 2).div_ceil(points.max(2)).max(1);
        let mut moments = Vec::with_capacity(points + 2);
        let mut low_and_high: Option<[(usize, Moment); 2]> = None;
        let mut flush = |pair: &mut Option<[(usize, Moment); 2]>| {
            if let Some([low, high]) = pair.take() {
                let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
                moments.push(first.1);
                if first.0 != second.0 {
                    moments.push(second.1);
                }
            }
        };
        self.feed(events.end, settings, |index, feed| {
            let (true, Some(phase)) = (events.contains(&index), feed.phase()) else { return };
            let parts = feed.parts();
            let at = (index - events.start) / bucket;
            let moment = Moment { at: index, phase, parts, reserved: feed.reserved() };
            if low_and_high
                .is_some_and(|[low, _]| (low.0 - events.start) / bucket != at || low.1.phase != phase)
            {
                flush(&mut low_and_high);
            }
            let bytes = parts.total();
            let [low, high] = low_and_high.get_or_insert([(index, moment); 2]);
            if bytes < low.1.parts.total() {
                *low = (index, moment);
            }
            if bytes > high.1.parts.total() {
                *high = (index, moment);
            }
        });
        flush(&mut low_and_high);
        moments
    }

    /// The tensors alive at the highest point of the run, by category, the largest first; what their blocks have beyond
    /// them is one group at the end.
    pub fn tensors_at_peak(&self, settings: Settings) -> Vec<TensorGroup> {
        self.tensors_at(self.replay(settings).highest, settings)
    }

    /// The same at the moment after the event of that number.
    pub fn tensors_at(&self, at: usize, settings: Settings) -> Vec<TensorGroup> {
        let (mut sorted, rests) = self.groups(at, settings, |maker| Maker { layer: 0, ..maker });
        sorted.sort_by_key(|group| (group.category, Reverse(group.total())));
        sorted.extend(rests);
        sorted
    }

    /// The same, those of each layer by themselves, by category and module.
    pub fn tensors_by_layer(&self, at: usize, settings: Settings) -> Vec<TensorGroup> {
        let (mut groups, rests) = self.groups(at, settings, |maker| maker);
        groups.extend(rests);
        groups
    }

    /// The tensors after that event, grouped by what is left of their maker, and what their blocks have beyond them.
    fn groups(
        &self,
        at: usize,
        settings: Settings,
        by: fn(Maker) -> Maker,
    ) -> (Vec<TensorGroup>, Option<TensorGroup>) {
        let (feed, _) = self.feed(at.saturating_add(1), settings, |_, _| ());
        let mut rests = TensorGroup::rests();
        let mut groups: BTreeMap<(Category, Maker, u64, Dtype), TensorGroup> = BTreeMap::new();
        for (id, category, rest) in feed.alive() {
            let (storage, maker) = (self.storage(id), by(self.makers[id as usize]));
            let group = groups
                .entry((category, maker, storage.requested, storage.dtype))
                .or_insert_with(|| TensorGroup { layer: maker.layer, ..self.group(id, category) });
            group.count += u64::from(storage.times);
            rests.bytes += rest;
        }
        (groups.into_values().collect(), (rests.bytes > Bytes::ZERO).then_some(rests))
    }

    /// The group of a storage that is for that, without any member yet.
    pub(super) fn group(&self, id: StorageId, category: Category) -> TensorGroup {
        let (storage, maker) = (self.storage(id), self.makers[id as usize]);
        TensorGroup {
            category,
            module: maker.module,
            what: maker.what,
            role: maker.role,
            dims: maker.dims,
            pass: maker.pass,
            layer: 0,
            dtype: storage.dtype,
            bytes: Bytes(storage.requested),
            count: 0,
        }
    }

    /// What the event of that number does; nothing where no tensor comes or goes.
    pub fn happening(&self, at: usize) -> Option<Happening> {
        let (id, comes) = match self.event(at)? {
            Event::Alloc(id) => (id, true),
            Event::Free(id) => (id, false),
            Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache => return None,
        };
        let Maker { module, what, pass, .. } = *self.makers.get(id as usize)?;
        let (operation, recomputed) = (what.name, pass == Pass::Recomputation);
        let bytes = Bytes(self.storage(id).bytes());
        Some(Happening { comes, module, operation, recomputed, bytes, place: self.place(at, id, comes) })
    }

    /// Which of those of its kind an event is in its phase, and how many there are.
    fn place(&self, at: usize, id: StorageId, comes: bool) -> (usize, usize) {
        let kind =
            |id: StorageId| self.makers.get(id as usize).map(|maker| (maker.module, maker.what, maker.pass));
        let of_kind = |number: &usize| match self.event(*number) {
            Some(Event::Alloc(other)) => comes && kind(other) == kind(id),
            Some(Event::Free(other)) => !comes && kind(other) == kind(id),
            Some(Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache) | None => false,
        };
        let is_inside = |number: &usize| !matches!(self.event(*number), Some(Event::Mark(_)) | None);
        let before = (0..at).rev().take_while(is_inside).filter(of_kind).count();
        let after = (at + 1..self.len()).take_while(is_inside).filter(of_kind).count();
        (before + 1, before + 1 + after)
    }

    /// The last iteration event by event, and the bytes that are alive before it.
    pub fn trace(&self) -> (Bytes, Vec<Traced>) {
        let (feed, _) = self.feed(self.shown.start + 1, Settings::default(), |_, _| ());
        let before = feed.tensors();
        (before, self.traced(self.shown.clone()).collect())
    }

    /// The whole run event by event, from the first that its loading asks for.
    pub fn whole_trace(&self) -> Vec<Traced> {
        let loading = self.traced(0..self.loaded);
        loading
            .chain(self.empties.then_some(Traced::EmptyCache))
            .chain(self.traced(self.loaded..self.len()))
            .collect()
    }

    fn traced(&self, numbers: Range<usize>) -> impl Iterator<Item = Traced> {
        numbers.filter_map(|number| self.event(number)).filter_map(|event| match event {
            Event::Becomes(..) => None,
            Event::EmptyCache => Some(Traced::EmptyCache),
            Event::Mark(phase) => Some(Traced::Phase(phase)),
            Event::Alloc(id) => {
                let Maker { module, what, .. } = self.makers[id as usize];
                let operation = what.name;
                Some(Traced::Alloc { id, bytes: self.storage(id).bytes(), module, operation })
            }
            Event::Free(id) => Some(Traced::Free { id, bytes: self.storage(id).bytes() }),
        })
    }
}

/// One event of the stream, for comparing it with the trace of PyTorch's own allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A phase begins.
    Phase(Phase),
    /// The allocator's cache is emptied.
    EmptyCache,
    /// A tensor's storage is allocated.
    Alloc {
        /// Number of the storage.
        id: u32,
        /// Bytes asked for.
        bytes: u64,
        /// The module, without the layer's number.
        module: &'static str,
        /// The operation.
        operation: &'static str,
    },
    /// A storage is freed.
    Free {
        /// Number of the storage.
        id: u32,
        /// Bytes asked for.
        bytes: u64,
    },
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
