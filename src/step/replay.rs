//! The step layer by layer, with every event, through the allocator.

use super::forward::Model;
use super::iteration::Training;
use super::kernels::Device;
use super::machine::{Event, Machine, State, StorageId, rounded};
use crate::allocator::{Block, CachingAllocator, Settings, Stats};
use crate::estimate::{Category, Phase};
use crate::hardware::Gpu;
use crate::model::Architecture;
use crate::scenario::{Issue, Scenario};
use crate::units::Bytes;

/// Iterations that are replayed: the first, in which the optimizer makes its state, and one like every later.
const ITERATIONS: usize = 2;

/// What the allocator did over the first iterations of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Peak of `memory_allocated()`: blocks as they were handed out.
    pub allocated_peak: Bytes,
    /// Peak of `memory_reserved()`.
    pub reserved_peak: Bytes,
    /// How often the device was full and cached segments were given back.
    pub retries: u64,
    /// Whether the run got through; otherwise the request that failed.
    pub failed: Option<Bytes>,
    /// The last iteration, event by event.
    pub timeline: Vec<Moment>,
    /// The tensors alive at the highest point of the last iteration, largest first.
    pub tensors: Vec<TensorGroup>,
}

/// The ledger after one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The phase.
    pub phase: Phase,
    /// Live bytes.
    pub bytes: Bytes,
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
    pub dtype: crate::dtype::Dtype,
    /// Bytes of one.
    pub bytes: Bytes,
    /// How many.
    pub count: u64,
}

/// Runs the whole step with every layer of its own and feeds every event to a replica of the allocator.
///
/// # Errors
/// An [`Issue`] where the architecture has a part that is not modelled.
pub fn replay(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    settings: Settings,
) -> Result<Replay, Issue> {
    let device = Device::of(gpu);
    let machine = Machine::new(device, true);
    let model = Model::load(&machine, architecture, scenario, device, true);
    let mut training = Training::new(model);
    training.prepare();
    let loaded = machine.state.borrow().events();
    let mut last = loaded;
    for _ in 0..ITERATIONS {
        last = machine.state.borrow().events();
        training.iteration();
    }
    let state = machine.state.borrow();
    let (stats, failed) = feed(&state, loaded, settings);
    let (timeline, tensors) = describe(&state, last);
    Ok(Replay {
        allocated_peak: Bytes(stats.allocated_peak),
        reserved_peak: Bytes(stats.reserved_peak),
        retries: stats.retries,
        failed,
        timeline,
        tensors,
    })
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

/// The second iteration, event by event, and the bytes that are alive before it.
///
/// # Errors
/// An [`Issue`] where the architecture has a part that is not modelled.
pub fn trace(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
) -> Result<(Bytes, Vec<Traced>), Issue> {
    let device = Device::of(gpu);
    let machine = Machine::new(device, true);
    let mut training = Training::new(Model::load(&machine, architecture, scenario, device, true));
    training.prepare();
    training.iteration();
    let (first, before) = {
        let state = machine.state.borrow();
        (state.events(), state.ledger.current)
    };
    training.iteration();
    let state = machine.state.borrow();
    let events = state.events.iter().flatten().skip(first).map(|event| match *event {
        Event::Mark(phase) => Traced::Phase(phase),
        Event::Alloc(id) => {
            let storage = state.storages[id as usize];
            let (bytes, module, operation) = (storage.requested, storage.module, storage.operation);
            Traced::Alloc { id, bytes, module, operation }
        }
        Event::Free(id) => Traced::Free { id, bytes: state.storages[id as usize].requested },
    });
    Ok((Bytes(before), events.collect()))
}

impl State {
    /// Events so far.
    fn events(&self) -> usize {
        self.events.as_ref().map_or(0, Vec::len)
    }
}

/// Feeds all events to an allocator, whose cache is emptied once everything is loaded.
fn feed(state: &State, loaded: usize, settings: Settings) -> (Stats, Option<Bytes>) {
    let mut allocator = CachingAllocator::new(settings);
    let mut blocks: Vec<Option<Block>> = vec![None; state.storages.len()];
    for (index, event) in state.events.iter().flatten().enumerate() {
        if index == loaded {
            allocator.empty_cache();
            allocator.reset_peaks();
        }
        match event {
            Event::Alloc(id) => {
                let requested = state.storages[*id as usize].requested;
                if requested == 0 {
                    continue;
                }
                match allocator.malloc(requested) {
                    Ok(block) => blocks[*id as usize] = Some(block),
                    Err(error) => return (allocator.stats(), Some(Bytes(error.requested))),
                }
            }
            Event::Free(id) => {
                if let Some(block) = blocks[*id as usize].take() {
                    allocator.free(block);
                }
            }
            Event::Mark(_) => {}
        }
    }
    (allocator.stats(), None)
}

/// The timeline of the events from `first` on, and what is alive at its highest point.
fn describe(state: &State, first: usize) -> (Vec<Moment>, Vec<TensorGroup>) {
    let events = state.events.as_deref().unwrap_or_default();
    let size = |id: &StorageId| rounded(state.storages[*id as usize].requested);
    let (before, during) = events.split_at(first.min(events.len()));
    let mut bytes: u64 = 0;
    for event in before {
        match event {
            Event::Alloc(id) => bytes = bytes.saturating_add(size(id)),
            Event::Free(id) => bytes = bytes.saturating_sub(size(id)),
            Event::Mark(_) => {}
        }
    }
    let mut timeline = Vec::with_capacity(during.len());
    let mut phase = Phase::Forward;
    let mut peak = (bytes, 0);
    for (index, event) in during.iter().enumerate() {
        match event {
            Event::Alloc(id) => bytes = bytes.saturating_add(size(id)),
            Event::Free(id) => bytes = bytes.saturating_sub(size(id)),
            Event::Mark(next) => {
                phase = *next;
                continue;
            }
        }
        if bytes > peak.0 {
            peak = (bytes, index + 1);
        }
        timeline.push(Moment { phase, bytes: Bytes(bytes) });
    }
    let mut alive = vec![false; state.storages.len()];
    for event in before.iter().chain(&during[..peak.1]) {
        match event {
            Event::Alloc(id) => alive[*id as usize] = true,
            Event::Free(id) => alive[*id as usize] = false,
            Event::Mark(_) => {}
        }
    }
    (timeline, groups(state, &alive))
}

fn groups(state: &State, alive: &[bool]) -> Vec<TensorGroup> {
    let mut groups: std::collections::BTreeMap<(Category, &str, &str, u64), TensorGroup> = Default::default();
    for (storage, _) in state.storages.iter().zip(alive).filter(|(_, alive)| **alive) {
        let key = (storage.category, storage.module, storage.operation, storage.requested);
        let group = groups.entry(key).or_insert(TensorGroup {
            category: storage.category,
            module: storage.module,
            operation: storage.operation,
            dtype: storage.dtype,
            bytes: Bytes(storage.requested),
            count: 0,
        });
        group.count += 1;
    }
    let mut groups: Vec<TensorGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes.0.saturating_mul(group.count)));
    groups
}
