//! The step layer by layer, with every event: what the allocator makes of it, the timeline, the tensors at the peak.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::forward::Apart;
use super::heap::ledger::Ledger;
use super::heap::record::{Event, Maker, Pass, Record};
use super::heap::{Storage, StorageId, rounded};
use super::iteration::Rounds;
use super::machine::Machine;
use super::ready::Ready;
use super::schedule::{ITERATIONS, Schedule};
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
    Source::At("c10/cuda/CUDACachingAllocator.cpp, should_split"),
);

/// Every allocation and every free of the first iterations of a run.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) storages: Vec<Storage>,
    /// What made each of them.
    makers: Vec<Maker>,
    /// What each of them was for when it was made.
    pub(super) born: Vec<Category>,
    pub(super) events: Vec<Event>,
    /// Where the first iteration begins.
    pub(super) loaded: usize,
    /// Where the first iteration ends.
    pub(super) first: usize,
    /// The iteration that is shown: the last one, or that of the longest batch where lengths vary.
    shown: Range<usize>,
    /// Where its optimizer's step has ended.
    pub(super) stepped: usize,
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
        Recording::ready(&Ready::of(&Job::from(scenario), &[architecture], gpu)?)
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
        Recording::ready(&Ready::of(job, &architectures, gpu)?)
    }

    fn ready(ready: &Ready<'_>) -> Result<Recording, Issue> {
        let schedule = Schedule::of(ready)?;
        let machine = Machine::new(ready.device, true);
        let models = ready.load(&machine, Apart::All)?;
        let mut rounds = Rounds::new(&machine, ready, models);
        rounds.run_up_to(schedule.accumulated);
        rounds.prepare();
        let recorded = || machine.with(|state| state.events());
        let loaded = recorded();
        let mut first = None;
        let mut highest = Bytes::ZERO;
        let mut shown = loaded..loaded;
        let mut run = |longest: bool, iteration: &mut dyn FnMut() -> Iteration| {
            let start = recorded();
            highest = highest.max(iteration().highest().1.bytes);
            let end = recorded();
            first.get_or_insert(end);
            if longest {
                shown = start..end;
            }
        };
        if schedule.batches.is_empty() {
            for _ in 0..ITERATIONS {
                run(true, &mut || rounds.round(&[]));
            }
        } else {
            for batches in schedule.batches.chunks(schedule.per_iteration) {
                let longest = batches.iter().any(|batch| batch.length == schedule.longest);
                run(longest, &mut || rounds.round(batches));
            }
        }
        ready.followed(&machine, highest)?;
        let first = first.unwrap_or(loaded);
        let stepped = rounds.stepped();
        // what the loop still holds is freed after the run, which is no part of the recording
        let Record { events, makers, born, .. } =
            machine.with(|state| state.record.take().unwrap_or_default());
        drop(rounds);
        let storages = machine.into_state().heap.storages;
        Ok(Recording { storages, makers, born, events, loaded, first, shown, stepped })
    }

    fn storage(&self, id: u32) -> &Storage {
        &self.storages[id as usize]
    }

    /// The peaks of the first iteration and of the one that is shown, in tensors: what [`run`](super::run) says of them, event
    /// by event.
    pub fn iterations(&self) -> [Iteration; 2] {
        let mut iterations = [(); 2].map(|()| Iteration::default());
        let mut ledger = Ledger::default();
        let mut categories = self.born.clone();
        let mut phase = None;
        for (index, event) in self.events.iter().enumerate() {
            match *event {
                Event::Alloc(id) => {
                    ledger.add(categories[id as usize], rounded(self.storage(id).bytes()));
                }
                Event::Free(id) => {
                    ledger.subtract(categories[id as usize], rounded(self.storage(id).bytes()));
                }
                Event::Becomes(id, category) => {
                    let from = std::mem::replace(&mut categories[id as usize], category);
                    ledger.move_to(from, category, rounded(self.storage(id).bytes()));
                }
                Event::Mark(next) => phase = Some(next),
                Event::EmptyCache => {}
            }
            let Some(phase) = phase else { continue };
            for (iteration, events) in iterations.iter_mut().zip([&(self.loaded..self.first), &self.shown]) {
                if events.contains(&index) {
                    let peak = iteration.phase_mut(phase);
                    if ledger.current > peak.bytes.0 {
                        *peak = Peak::of(ledger.parts);
                    }
                }
            }
        }
        iterations
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
            let moment = Moment { at: index, phase, parts: *parts, reserved: feed.reserved() };
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
        let mut peak = (Bytes::ZERO, 0);
        self.feed(self.events.len(), settings, |index, feed| {
            if feed.phase().is_some() && feed.allocated() > peak.0 {
                peak = (feed.allocated(), index);
            }
        });
        self.tensors_at(peak.1, settings)
    }

    /// The same at the moment after the event of that number.
    pub fn tensors_at(&self, at: usize, settings: Settings) -> Vec<TensorGroup> {
        let (feed, _) = self.feed(at.saturating_add(1), settings, |_, _| ());
        let mut rests = TensorGroup::rests();
        let mut groups: BTreeMap<(Category, Maker, u64, Dtype), TensorGroup> = BTreeMap::new();
        for (id, category, rest) in feed.alive() {
            let (storage, maker) = (self.storage(id), self.makers[id as usize]);
            let group =
                groups.entry((category, maker, storage.requested, storage.dtype)).or_insert(TensorGroup {
                    category,
                    module: maker.module,
                    what: maker.what,
                    role: maker.role,
                    dims: maker.dims,
                    pass: maker.pass,
                    dtype: storage.dtype,
                    bytes: Bytes(storage.requested),
                    count: 0,
                });
            group.count += u64::from(storage.times);
            rests.bytes += rest;
        }
        let mut sorted: Vec<TensorGroup> = groups.into_values().collect();
        sorted.sort_by_key(|group| (group.category, Reverse(group.total())));
        sorted.extend((rests.bytes > Bytes::ZERO).then_some(rests));
        sorted
    }

    /// What the event of that number does; nothing where no tensor comes or goes.
    pub fn happening(&self, at: usize) -> Option<Happening> {
        let (id, comes) = match *self.events.get(at)? {
            Event::Alloc(id) => (id, true),
            Event::Free(id) => (id, false),
            Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache => return None,
        };
        let Maker { module, what, pass, .. } = *self.makers.get(id as usize)?;
        let (operation, recomputed) = (what.name, pass == Pass::Recomputation);
        Some(Happening { comes, module, operation, recomputed, bytes: Bytes(self.storage(id).bytes()) })
    }

    /// The last iteration event by event, and the bytes that are alive before it.
    pub fn trace(&self) -> (Bytes, Vec<Traced>) {
        let (feed, _) = self.feed(self.shown.start + 1, Settings::default(), |_, _| ());
        let rounding = feed.parts().get(Category::Rounding);
        let before = feed.allocated().saturating_sub(rounding);
        (before, self.traced(self.shown.clone()).collect())
    }

    /// The whole run event by event, from the first that its loading asks for.
    pub fn whole_trace(&self) -> Vec<Traced> {
        let loading = self.traced(0..self.loaded);
        loading.chain([Traced::EmptyCache]).chain(self.traced(self.loaded..self.events.len())).collect()
    }

    fn traced(&self, events: Range<usize>) -> impl Iterator<Item = Traced> {
        self.events[events].iter().filter_map(|event| match *event {
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
