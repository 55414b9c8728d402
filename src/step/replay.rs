//! The step layer by layer, with every event: what the allocator makes of it, the timeline, the tensors at the peak.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::forward::Model;
use super::iteration::Training;
use super::kernels::Device;
use super::machine::{Event, Machine, Maker, Record, Storage, rounded};
use super::plan::{ITERATIONS, Plan};
use crate::allocator::{Block, CachingAllocator, Settings, Stats, Stream};
use crate::dtype::Dtype;
use crate::estimate::{Category, Iteration, Parts, Phase};
use crate::hardware::Gpu;
use crate::model::Architecture;
use crate::scenario::{Issue, Scenario};
use crate::units::Bytes;

/// Every allocation and every free of the first iterations of a run.
#[derive(Debug)]
pub struct Recording {
    storages: Vec<Storage>,
    /// What made each of them.
    makers: Vec<Maker>,
    events: Vec<Event>,
    /// Where the first iteration begins.
    loaded: usize,
    /// Where the first iteration ends.
    first: usize,
    /// The iteration that is shown: the last one, or that of the longest batch where lengths vary.
    shown: Range<usize>,
    /// Where its optimizer's step has ended.
    stepped: usize,
}

/// A moment of a run at which somebody may read the allocator's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instant {
    /// The end of the run: peaks are those of all of it.
    End,
    /// The end of the first iteration.
    FirstIteration,
    /// The model is loaded, nothing has run.
    Loaded,
    /// A later iteration's (the last micro-batch's) forward pass is over.
    Forward,
    /// Its backward pass is over.
    Backward,
    /// Its optimizer has stepped; the gradients are still there.
    Step,
}

/// What the allocator made of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Peak of `memory_allocated()`: blocks as they were handed out.
    pub allocated_peak: Bytes,
    /// Peak of `memory_reserved()`.
    pub reserved_peak: Bytes,
    /// `memory_allocated()` at the end.
    pub allocated: Bytes,
    /// How often the device was full and cached segments were given back.
    pub retries: u64,
    /// The request for which there was no memory.
    pub failure: Option<Failure>,
}

/// A request that failed: an out-of-memory error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was asked for.
    pub requested: Bytes,
    /// The phase; absent while the model was loaded.
    pub phase: Option<Phase>,
}

/// The ledger after one event of the last iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The phase.
    pub phase: Phase,
    /// Live bytes by category.
    pub parts: Parts,
}

/// Equal tensors that are alive at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorGroup {
    /// What they are for.
    pub category: Category,
    /// The module that made them, without the layer's number.
    pub module: &'static str,
    /// The operation that made them.
    pub operation: &'static str,
    /// Their element type.
    pub dtype: Dtype,
    /// Rows and columns of the parameter that each is, or is made for; 0 where there is none.
    pub shape: (u64, u64),
    /// Whether checkpointing's recomputation made them.
    pub recomputed: bool,
    /// Bytes of one.
    pub bytes: Bytes,
    /// How many.
    pub count: u64,
}

/// What tells groups apart: category, what made them, bytes of one, element type.
type GroupKey = (Category, Maker, u64, Dtype);

impl TensorGroup {
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
        let device = Device::of(gpu);
        super::support::unmodelled(architecture, scenario, device)?;
        let laid_out = scenario.laid_out();
        let architecture = &*super::forward::stacks::architecture(architecture, &laid_out)?;
        let plan = Plan::of(architecture, scenario, device)?;
        let scenario = &*laid_out;
        let machine = Machine::new(device, true);
        let mut training = Training::new(Model::load(&machine, architecture, scenario, device, true));
        training.prepare();
        let recorded = || machine.state.borrow().events();
        let loaded = recorded();
        let mut first = None;
        let mut shown = loaded..loaded;
        let mut run = |longest: bool, iteration: &mut dyn FnMut() -> Iteration| {
            let start = recorded();
            // its peaks are not asked for: the events say more
            let _ = iteration();
            let end = recorded();
            first.get_or_insert(end);
            if longest {
                shown = start..end;
            }
        };
        if plan.batches.is_empty() {
            for _ in 0..ITERATIONS {
                run(true, &mut || training.iteration());
            }
        } else {
            for batches in plan.batches.chunks(plan.per_iteration) {
                let longest = batches.iter().any(|batch| batch.sequence == scenario.sequence);
                run(longest, &mut || training.iteration_of(batches));
            }
        }
        let first = first.unwrap_or(loaded);
        let stepped = training.stepped();
        // what the loop still holds is freed after the run, which is no part of the recording
        let Record { events, makers } = machine.state.borrow_mut().record.take().unwrap_or_default();
        drop(training);
        let storages = machine.state.into_inner().storages;
        Ok(Recording { storages, makers, events, loaded, first, shown, stepped })
    }

    fn storage(&self, id: u32) -> &Storage {
        &self.storages[id as usize]
    }

    /// Feeds the recording to a replica of the allocator, whose cache is emptied once everything is loaded.
    pub fn allocate(&self, settings: Settings) -> Allocation {
        self.allocate_until(Instant::End, settings)
    }

    /// The same of the run up to some moment.
    pub fn allocate_until(&self, instant: Instant, settings: Settings) -> Allocation {
        let end = self.position(instant);
        let mut allocator = CachingAllocator::new(settings);
        let mut blocks: Vec<Option<Block>> = vec![None; self.storages.len()];
        let mut phase = None;
        for (index, event) in self.events.iter().enumerate().take(end) {
            if index == self.loaded {
                allocator.empty_cache();
                allocator.reset_peaks();
            }
            match event {
                Event::Alloc(id) => {
                    let requested = self.storage(*id).bytes();
                    if requested == 0 {
                        continue;
                    }
                    match allocator.malloc(requested, Stream::of(self.storage(*id).aside)) {
                        Ok(block) => blocks[*id as usize] = Some(block),
                        Err(error) => {
                            let requested = Bytes(error.requested);
                            return outcome(allocator.stats(), Some(Failure { requested, phase }));
                        }
                    }
                }
                Event::Free(id) => {
                    if let Some(block) = blocks[*id as usize].take() {
                        allocator.free(block);
                    }
                }
                Event::Mark(next) => phase = Some(*next),
                Event::EmptyCache => allocator.empty_cache(),
            }
        }
        outcome(allocator.stats(), None)
    }

    /// How many events come before a moment.
    fn position(&self, instant: Instant) -> usize {
        let last_mark = |phase: Phase| {
            let marks = self.events.iter().rposition(|event| *event == Event::Mark(phase));
            marks.unwrap_or(self.events.len())
        };
        match instant {
            Instant::End => self.events.len(),
            Instant::FirstIteration => self.first,
            Instant::Loaded => self.loaded,
            Instant::Forward => last_mark(Phase::Backward),
            Instant::Backward => last_mark(Phase::Step),
            Instant::Step => self.stepped,
        }
    }

    /// The ledger after each event of the iteration that is shown.
    fn walk(&self, mut each: impl FnMut(usize, Phase, &Parts)) {
        let mut parts = Parts::default();
        let mut phase = Phase::Forward;
        for (index, event) in self.events.iter().enumerate() {
            match event {
                Event::Alloc(id) => {
                    let storage = self.storage(*id);
                    let part = &mut parts.0[storage.category.index()];
                    *part = part.saturating_add(rounded(storage.bytes()));
                }
                Event::Free(id) => {
                    let storage = self.storage(*id);
                    let part = &mut parts.0[storage.category.index()];
                    *part = part.saturating_sub(rounded(storage.bytes()));
                }
                Event::Mark(next) => phase = *next,
                Event::EmptyCache => {}
            }
            if self.shown.contains(&index) {
                each(index, phase, &parts);
            }
        }
    }

    /// The last iteration in at most `points` moments; of every stretch the lowest and the highest.
    pub fn timeline(&self, points: usize) -> Vec<Moment> {
        let stretch = (self.shown.len() * 2).div_ceil(points.max(2)).max(1);
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
        self.walk(|index, phase, parts| {
            let at = (index - self.shown.start) / stretch;
            let moment = Moment { phase, parts: *parts };
            if low_and_high
                .is_some_and(|[low, _]| (low.0 - self.shown.start) / stretch != at || low.1.phase != phase)
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

    /// The tensors alive at the highest point of the last iteration, by category, the largest first.
    pub fn tensors_at_peak(&self) -> Vec<TensorGroup> {
        let mut peak = (Bytes::ZERO, self.shown.start);
        self.walk(|index, _, parts| {
            let bytes = parts.total();
            if bytes > peak.0 {
                peak = (bytes, index);
            }
        });
        let mut alive = vec![false; self.storages.len()];
        for event in self.events.iter().take(peak.1 + 1) {
            match event {
                Event::Alloc(id) => alive[*id as usize] = true,
                Event::Free(id) => alive[*id as usize] = false,
                Event::Mark(_) | Event::EmptyCache => {}
            }
        }
        let mut groups: BTreeMap<GroupKey, TensorGroup> = BTreeMap::new();
        let made = self.storages.iter().zip(&self.makers);
        for ((storage, maker), _) in made.zip(alive).filter(|(_, alive)| *alive) {
            let key = (storage.category, *maker, storage.requested, storage.dtype);
            let group = groups.entry(key).or_insert(TensorGroup {
                category: storage.category,
                module: maker.module,
                operation: maker.operation,
                dtype: storage.dtype,
                shape: maker.shape,
                recomputed: maker.recomputed,
                bytes: Bytes(storage.requested),
                count: 0,
            });
            group.count += u64::from(storage.times);
        }
        let mut groups: Vec<TensorGroup> = groups.into_values().collect();
        // Stable: groups of one size stay in the order of what made them.
        groups.sort_by_key(|group| (group.category, Reverse(group.total())));
        groups
    }

    /// The last iteration event by event, and the bytes that are alive before it.
    pub fn trace(&self) -> (Bytes, Vec<Traced>) {
        let mut before = None;
        self.walk(|index, _, parts| {
            if index == self.shown.start {
                before = Some(parts.total());
            }
        });
        let traced = self.events[self.shown.clone()].iter().filter_map(|event| match *event {
            Event::EmptyCache => None,
            Event::Mark(phase) => Some(Traced::Phase(phase)),
            Event::Alloc(id) => {
                let Maker { module, operation, .. } = self.makers[id as usize];
                Some(Traced::Alloc { id, bytes: self.storage(id).bytes(), module, operation })
            }
            Event::Free(id) => Some(Traced::Free { id, bytes: self.storage(id).bytes() }),
        });
        (before.unwrap_or_default(), traced.collect())
    }
}

fn outcome(stats: Stats, failure: Option<Failure>) -> Allocation {
    Allocation {
        allocated_peak: Bytes(stats.allocated_peak),
        reserved_peak: Bytes(stats.reserved_peak),
        allocated: Bytes(stats.allocated),
        retries: stats.retries,
        failure,
    }
}

/// One event of the stream, for comparing it with the trace of PyTorch's own allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A phase begins.
    Phase(Phase),
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
