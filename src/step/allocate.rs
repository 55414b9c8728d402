//! A recording fed to the replica of PyTorch's allocator: what is allocated and reserved at every moment, and whether
//! there is memory for it.

use serde::{Deserialize, Serialize};

use super::heap::record::Event;
use super::heap::{StorageId, rounded};
use super::recording::Recording;
use crate::allocator::{Block, CachingAllocator, OutOfMemory, Placed, Settings};
use crate::memory::{Category, Iteration, Parts, Peak, Phase, Stage};
use crate::units::Bytes;

/// A moment of a run at which a script can read the allocator's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Milestone {
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
    /// The same with the loading of the model, after which PyTorch's scripts reset their peaks: a limit above it is never met.
    pub most_reserved: Bytes,
    /// `memory_allocated()` at the end.
    pub allocated: Bytes,
    /// How often the device was full and cached segments were given back.
    pub retries: u64,
    /// The request for which there was no memory.
    pub failure: Option<Failure>,
}

/// A request that failed: an out-of-memory error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failure {
    /// What was asked for.
    pub requested: Bytes,
    /// The phase; absent while the model was loaded.
    pub phase: Option<Phase>,
}

/// What the allocator made of a recording, phase by phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The counters.
    pub allocation: Allocation,
    /// The peaks of the first iteration, in blocks.
    pub first: Iteration,
    /// The highest peaks of all later ones, in blocks.
    pub steady: Iteration,
    /// What is allocated when the last iteration is over, in blocks.
    pub resting: Parts,
    /// The number of the event after which most is allocated.
    pub highest: usize,
}

/// A storage on the card.
#[derive(Clone, Copy)]
struct Held {
    /// Its block, while it has one.
    block: Option<Block>,
    /// What it is for now.
    category: Category,
    /// Its bytes, rounded up to 512.
    bytes: u64,
}

impl Default for Held {
    fn default() -> Held {
        Held { block: None, category: Category::Temporaries, bytes: 0 }
    }
}

/// A recording on its way through the allocator, event by event.
pub(super) struct Feed<'a> {
    recording: &'a Recording,
    /// What the card has for it, once the model is loaded.
    capacity: Option<u64>,
    allocator: CachingAllocator,
    /// By storage.
    held: Vec<Held>,
    /// Bytes of tensors by category.
    parts: Parts,
    /// Bytes of tensors, each rounded up to 512.
    tensors: u64,
    /// Peak of what was reserved while the model was loaded.
    reserved_loading: u64,
    phase: Option<Phase>,
}

impl<'a> Feed<'a> {
    /// The recording before its first event.
    pub fn new(recording: &'a Recording, settings: Settings) -> Feed<'a> {
        let capacity = settings.capacity.filter(|_| recording.limits_loading || recording.loaded == 0);
        Feed {
            recording,
            capacity: settings.capacity,
            allocator: CachingAllocator::new(Settings { capacity, ..settings }),
            held: vec![Held::default(); recording.storages.len()],
            parts: Parts::default(),
            tensors: 0,
            reserved_loading: 0,
            phase: None,
        }
    }

    /// Everything is loaded. The allocator's cache is emptied, unless an engine laid out the model anew, which leaves its cache as it is.
    fn end_loading(&mut self) {
        if self.recording.empties {
            self.allocator.empty_cache();
        }
        self.reserved_loading = self.allocator.stats().reserved_peak;
        self.allocator.reset_peaks();
        self.allocator.limit(self.capacity);
    }

    /// The last iteration begins once more.
    fn repeat(&mut self) {
        for (left, freed) in self.recording.handed_over() {
            self.held[freed] = self.held[left];
            self.held[left].block = None;
        }
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`OutOfMemory`] where there is no memory for it.
    fn take(&mut self, event: Event) -> Result<(), OutOfMemory> {
        match event {
            Event::Alloc(id) => self.alloc(id)?,
            Event::Free(id) => self.free(id),
            Event::Becomes(id, category) => {
                let held = &mut self.held[id as usize];
                let from = std::mem::replace(&mut held.category, category);
                self.parts.subtract(from, held.bytes);
                self.parts.add(category, held.bytes);
            }
            Event::Mark(phase) => self.phase = Some(phase),
            Event::EmptyCache => self.allocator.empty_cache(),
        }
        Ok(())
    }

    fn alloc(&mut self, id: StorageId) -> Result<(), OutOfMemory> {
        let storage = &self.recording.storages[id as usize];
        let held = &mut self.held[id as usize];
        let requested = storage.bytes();
        held.category = storage.born;
        if requested > 0 {
            held.bytes = rounded(requested);
            held.block = Some(self.allocator.malloc(requested, storage.stream)?);
            self.tensors = self.tensors.saturating_add(held.bytes);
            self.parts.add(held.category, held.bytes);
        }
        Ok(())
    }

    fn free(&mut self, id: StorageId) {
        let held = &mut self.held[id as usize];
        if let Some(block) = held.block.take() {
            self.allocator.free(block);
            self.tensors = self.tensors.saturating_sub(held.bytes);
            self.parts.subtract(held.category, held.bytes);
        }
    }

    /// `memory_allocated()`.
    pub fn allocated(&self) -> Bytes {
        Bytes(self.allocator.stats().allocated)
    }

    /// The same by category, with what blocks have beyond their tensors.
    pub fn parts(&self) -> Parts {
        let mut parts = self.parts;
        parts.add(Category::Rounding, self.allocated().0.saturating_sub(self.tensors));
        parts
    }

    /// Bytes of tensors, each rounded up to 512.
    pub fn tensors(&self) -> Bytes {
        Bytes(self.tensors)
    }

    /// `memory_reserved()`.
    pub fn reserved(&self) -> Bytes {
        Bytes(self.allocator.stats().reserved)
    }

    /// Where a storage lies, while it has a block.
    pub fn placed(&self, id: StorageId) -> Option<Placed> {
        Some(self.allocator.placed(self.held.get(id as usize)?.block?))
    }

    /// The blocks of every segment.
    pub fn segments(&self) -> Vec<Vec<Placed>> {
        self.allocator.segments()
    }

    /// The same by category.
    pub fn tensor_parts(&self) -> &Parts {
        &self.parts
    }

    /// The phase that runs; none while the model is loaded.
    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// The storages that have a block, what each is for, and by how much its block is larger.
    pub fn alive(&self) -> impl Iterator<Item = (StorageId, Category, Bytes)> {
        let held = self.held.iter().zip(0..);
        held.filter_map(|(held, id)| {
            let rest = self.allocator.size_of(held.block?).saturating_sub(held.bytes);
            Some((id, held.category, Bytes(rest)))
        })
    }

    fn outcome(&self, failure: Option<OutOfMemory>) -> Allocation {
        let stats = self.allocator.stats();
        Allocation {
            allocated_peak: Bytes(stats.allocated_peak),
            reserved_peak: Bytes(stats.reserved_peak),
            most_reserved: Bytes(stats.reserved_peak.max(self.reserved_loading)),
            allocated: Bytes(stats.allocated),
            retries: stats.retries,
            failure: failure.map(|error| Failure { requested: Bytes(error.requested), phase: self.phase }),
        }
    }
}

impl Recording {
    /// Feeds the recording to a replica of the allocator.
    pub fn allocate(&self, settings: Settings) -> Allocation {
        self.allocate_until(Milestone::End, settings)
    }

    /// The same of the run up to some moment.
    pub fn allocate_until(&self, milestone: Milestone, settings: Settings) -> Allocation {
        self.feed(self.position(milestone), settings, &mut |_, _| ()).1
    }

    /// The same with the peak of every phase, as `memory_allocated()` counts: by blocks.
    pub fn replay(&self, settings: Settings) -> Replay {
        let mut iterations = [(); 2].map(|()| Iteration::default());
        let mut highest = (Bytes::ZERO, 0);
        let (feed, allocation) = self.feed(self.len(), settings, &mut |index, feed| {
            let Some(phase) = feed.phase() else { return };
            let peak = iterations[usize::from(index >= self.first)].phase_mut(phase);
            if feed.allocated() > peak.bytes {
                *peak = Peak { bytes: feed.allocated(), parts: feed.parts() };
                if peak.bytes > highest.0 {
                    highest = (peak.bytes, index);
                }
            }
        });
        let [first, steady] = iterations;
        Replay { allocation, first, steady, resting: feed.parts(), highest: highest.1 }
    }

    /// Feeds so many events to the allocator, until there is no memory for one; `each` sees what it left.
    pub(super) fn feed(
        &self,
        end: usize,
        settings: Settings,
        each: &mut dyn FnMut(usize, &Feed<'_>),
    ) -> (Feed<'_>, Allocation) {
        let mut feed = Feed::new(self, settings);
        // as they were recorded, then those that happen once more
        for (first, events) in [(0, self.events()), (self.repeats_at(), self.events_again())] {
            for (index, event) in (first..end).zip(events) {
                if index == self.loaded {
                    feed.end_loading();
                }
                if index == self.repeats_at() {
                    feed.repeat();
                }
                if let Err(error) = feed.take(*event) {
                    // the batch is there before the first phase begins
                    if self.is_of_batch(*event) {
                        feed.phase = feed.phase.or(self.first_phase());
                    }
                    let failed = feed.outcome(Some(error));
                    return (feed, failed);
                }
                each(index, &feed);
            }
        }
        let done = feed.outcome(None);
        (feed, done)
    }

    /// Whether something of the batch is asked for.
    fn is_of_batch(&self, event: Event) -> bool {
        matches!(event, Event::Alloc(id) if self.storages[id as usize].born == Category::Batch)
    }

    /// How many events come before a moment.
    fn position(&self, milestone: Milestone) -> usize {
        let last_mark = |stage: Stage| {
            let marks = |event: &Event| matches!(event, Event::Mark(phase) if phase.stage == stage);
            self.last(marks).unwrap_or(self.len())
        };
        match milestone {
            Milestone::End => self.len(),
            Milestone::FirstIteration => self.first,
            Milestone::Loaded => self.loaded,
            Milestone::Forward => last_mark(Stage::Backward),
            Milestone::Backward => last_mark(Stage::Step),
            Milestone::Step => self.stepped,
        }
    }
}
