//! The machine that a step runs on: storages with a reference count and no data, and the stream of events for the
//! allocator.
//!
//! Tensors are handles with Python's lifetime rules: a clone holds the storage, dropping the last handle frees it. The
//! model code in [`super::forward`] therefore frees a tensor exactly where the Python code that it mirrors does.

use std::cell::RefCell;

use super::autograd::Graph;
use super::gradient::OnGrad;
use super::kernels::Device;
use super::ledger::Ledger;
use super::params::{ParamId, Params};
use super::repeat::OneRun;
use crate::dtype::Dtype;
use crate::memory::{Category, Peak, Phase};

/// PyTorch's allocator hands out multiples of this (`kMinBlockSize`, c10/cuda/CUDACachingAllocator.h).
pub(super) const BLOCK: u64 = 512;

/// `bytes` rounded up as the allocator rounds a request.
pub(super) fn rounded(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.div_ceil(BLOCK).saturating_mul(BLOCK) }
}

/// Index of a storage; 0 is the storage of nothing.
pub(super) type StorageId = u32;

/// The storage of nothing: operations that are skipped return it.
pub(super) const NOTHING: StorageId = 0;

/// Memory that tensors share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    /// Bytes that were asked for.
    pub requested: u64,
    /// Live references: handles, saved variables, pending gradients.
    pub references: u32,
    /// How many identical storages this one stands for (see [`super::repeat`]).
    pub times: u32,
    /// Whether all runs of a repeated body use this one storage: it is freed once, after the last of them.
    pub shared: bool,
    /// Whether it was asked for on the stream that copies from the CPU: the allocator gives each stream blocks of its own.
    pub aside: bool,
    /// What it is for.
    pub category: Category,
    /// Element type, for the explanation.
    pub dtype: Dtype,
}

/// What made a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Maker {
    /// The module, as a path inside its layer.
    pub module: &'static str,
    /// The operation.
    pub operation: &'static str,
    /// Rows and columns of the parameter that it is, or is made for; 0 where there is none.
    pub shape: (u64, u64),
    /// Whether checkpointing's recomputation made it.
    pub recomputed: bool,
}

impl Storage {
    /// Bytes that were asked for, by all those that it stands for, each rounded up as the allocator does.
    pub fn bytes(&self) -> u64 {
        match self.times {
            0 | 1 => self.requested,
            times => rounded(self.requested).saturating_mul(u64::from(times)),
        }
    }
}

/// All that happened to the allocator, and what made each storage.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub events: Vec<Event>,
    /// By [`StorageId`].
    pub makers: Vec<Maker>,
    /// What each storage was for when it was made.
    pub born: Vec<Category>,
}

/// One thing that happened to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A storage was allocated.
    Alloc(StorageId),
    /// A storage was freed.
    Free(StorageId),
    /// A storage serves something else from now on.
    Becomes(StorageId, Category),
    /// A phase begins.
    Mark(Phase),
    /// The script empties the allocator's cache.
    EmptyCache,
}

/// The state of a run; reached through [`Machine`].
pub(super) struct State {
    pub storages: Vec<Storage>,
    pub ledger: Ledger,
    /// What happened, where it is wanted.
    pub record: Option<Record>,
    pub graph: Graph,
    pub params: Params,
    pub device: Device,
    /// Sequences of the batch.
    pub sequences: u64,
    /// Category of what is allocated now.
    pub category: Category,
    /// Module that is running.
    pub module: &'static str,
    /// The autocast element type, inside autocast.
    pub autocast: Option<Dtype>,
    /// Parameters whose copies autocast's cache holds.
    pub cast_cache: Vec<ParamId>,
    /// How many identical runs the running bodies stand for; 1 outside of such.
    pub repeating: u32,
    /// Whether autograd's thread runs: it has a cuBLAS workspace of its own.
    pub in_backward: bool,
    /// Bytes of the workspaces, cuBLAS's and cuBLASLt's, that the first product of the script's and of autograd's thread will
    /// ask for.
    pub due_workspaces: [[u64; 2]; 2],
    /// The highest point of the running phase up to the moment at which its thread got its workspaces, where it got them.
    pub early: Option<Peak>,
    /// What the run came across and has no code for: it has no figure.
    pub unmodelled: Option<&'static str>,
    /// Whether every body that ran on behalf of others was fed what it returned, and left what there was to leave.
    pub alike: bool,
    /// What happens to a gradient as soon as it is there.
    pub on_grad: OnGrad,
    /// What only one run of the running bodies does.
    pub one_run: OneRun,
}

impl State {
    /// Allocates `requested` bytes with one reference.
    pub fn alloc_as(
        &mut self,
        category: Category,
        requested: u64,
        dtype: Dtype,
        operation: &'static str,
    ) -> StorageId {
        if self.graph.stopped {
            return NOTHING;
        }
        let id = self.storages.len() as StorageId;
        self.storages.push(Storage {
            requested,
            references: 1,
            times: self.repeating,
            shared: false,
            aside: false,
            category,
            dtype,
        });
        self.ledger.add(category, rounded(requested));
        if let Some(record) = &mut self.record {
            record.events.push(Event::Alloc(id));
            let recomputed = self.graph.is_recomputing();
            record.makers.push(Maker { module: self.module, operation, shape: (0, 0), recomputed });
            record.born.push(category);
        }
        id
    }

    /// Notes the parameter's shape for the explanation of a storage that is its gradient.
    pub fn note_shape(&mut self, id: StorageId, (rows, columns): (u64, u64)) {
        if let Some(maker) = self.record.as_mut().and_then(|record| record.makers.get_mut(id as usize)) {
            maker.shape = (rows, columns);
        }
    }

    /// Notes it for all storages since the one of that number: a parameter and what belongs to it.
    pub fn note_shapes(&mut self, first: usize, shape: (u64, u64)) {
        if let Some(record) = &mut self.record {
            record.makers.iter_mut().skip(first).for_each(|maker| maker.shape = shape);
        }
    }

    /// Allocates `numel` elements in the running category.
    pub fn alloc(&mut self, numel: u64, dtype: Dtype, operation: &'static str) -> StorageId {
        self.alloc_as(self.category, numel.saturating_mul(dtype.bytes()), dtype, operation)
    }

    /// Allocates the result of a matrix product. The first one of a thread gets cuBLAS's workspace after it.
    pub fn alloc_product(&mut self, numel: u64, dtype: Dtype, operation: &'static str) -> StorageId {
        let storage = self.alloc(numel, dtype, operation);
        if self.due_workspaces != [[0; 2]; 2] && !self.graph.stopped {
            self.get_workspace();
        }
        storage
    }

    /// The workspaces that the running thread is due, which stay until the end.
    pub fn get_workspace(&mut self) {
        let due = std::mem::take(&mut self.due_workspaces[usize::from(self.in_backward)]);
        if due == [0; 2] {
            return;
        }
        self.note_workspace(due.into_iter().map(rounded).sum());
        for (bytes, name) in due.into_iter().zip(["cuBLAS workspace", "cuBLASLt workspace"]) {
            if bytes > 0 {
                self.persistent(bytes, Dtype::U8, 1, Category::Workspace, name);
            }
        }
    }

    /// A tensor that is gone before the model is loaded, where events are recorded: it leaves its block in the
    /// allocator's cache, out of which later ones are cut.
    pub fn while_loading(&mut self, count: u64, dtype: Dtype) -> StorageId {
        if self.record.is_none() || count == 0 {
            return NOTHING;
        }
        let bytes = count.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, "loading")
    }

    /// Allocates and frees at once: a kernel's scratch space.
    pub fn scratch(&mut self, bytes: u64, operation: &'static str) {
        if bytes > 0 {
            let id = self.alloc_as(Category::Temporaries, bytes, Dtype::U8, operation);
            self.release(id);
        }
    }

    /// Adds a reference.
    pub fn retain(&mut self, id: StorageId) {
        if id != NOTHING {
            self.storages[id as usize].references += 1;
        }
    }

    /// Drops a reference; the last one frees.
    pub fn release(&mut self, id: StorageId) {
        if id == NOTHING {
            return;
        }
        let storage = &mut self.storages[id as usize];
        storage.references -= 1;
        if storage.references == 0 {
            if self.repeating > 1 && storage.shared {
                return self.free_in_last_run(id);
            }
            self.free(id);
        }
    }

    pub fn free(&mut self, id: StorageId) {
        let storage = &self.storages[id as usize];
        // Inside a repeated body every run frees one of its own; outside of it the storage stands for all of them.
        let times = match self.repeating {
            0 | 1 => storage.times.max(1),
            // nearly always, and a division costs as much as all the rest
            repeating if repeating == storage.times => 1,
            repeating => (storage.times / repeating).max(1),
        };
        let times = u64::from(times);
        let (category, bytes) = (storage.category, rounded(storage.requested).saturating_mul(times));
        self.ledger.subtract(category, bytes);
        if let Some(record) = &mut self.record {
            record.events.push(Event::Free(id));
        }
    }

    /// Declares that all runs of a repeated body use this one storage.
    pub fn share(&mut self, id: StorageId) {
        if id != NOTHING {
            self.storages[id as usize].shared = true;
        }
    }

    /// Says of a storage that it outlived the repeated body that made it: all runs but the last one have given theirs away.
    pub fn counts_once(&mut self, id: StorageId) {
        if id != NOTHING {
            self.storages[id as usize].times = self.repeating;
        }
    }

    /// References of a storage.
    pub fn references(&self, id: StorageId) -> u32 {
        self.storages[id as usize].references
    }

    /// Moves a live storage to another category (a temporary that became a gradient).
    pub fn recategorise(&mut self, id: StorageId, category: Category) {
        if id == NOTHING {
            return;
        }
        let storage = &mut self.storages[id as usize];
        let bytes = rounded(storage.requested);
        let from = std::mem::replace(&mut storage.category, category);
        self.ledger.move_to(from, category, bytes);
        if let Some(record) = &mut self.record {
            record.events.push(Event::Becomes(id, category));
        }
    }

    /// Takes a gradient that the loss made out of the part of the loss, now that others write theirs over it.
    pub fn leave_loss(&mut self, id: StorageId, category: Category) {
        if self.storages[id as usize].category == Category::Logits {
            self.recategorise(id, category);
        }
    }

    /// Poisons the run: what it came across is not modelled, and whatever it goes on with is no answer. The first is named.
    pub fn meet_unmodelled(&mut self, what: &'static str) {
        self.unmodelled.get_or_insert(what);
    }

    /// How many events were recorded.
    pub fn events(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.events.len())
    }

    /// Notes that the script empties the allocator's cache.
    pub fn empty_cache(&mut self) {
        if let Some(record) = &mut self.record {
            record.events.push(Event::EmptyCache);
        }
    }

    /// Marks the start of a phase in the event stream.
    pub fn mark(&mut self, phase: Phase) {
        if let Some(record) = &mut self.record {
            record.events.push(Event::Mark(phase));
        }
    }
}

/// The machine: shared by every tensor handle of a run.
pub(super) struct Machine {
    pub state: RefCell<State>,
}

impl Machine {
    /// A machine without tensors; with a record of what happens if `recording`.
    pub fn new(device: Device, recording: bool) -> Machine {
        let nothing = Storage {
            requested: 0,
            references: 1,
            times: 1,
            shared: false,
            aside: false,
            category: Category::Temporaries,
            dtype: Dtype::U8,
        };
        let mut storages = Vec::with_capacity(if recording { 1 << 14 } else { 1 << 10 });
        storages.push(nothing);
        let record = recording.then(|| Record {
            events: Vec::with_capacity(1 << 15),
            makers: vec![Maker { module: "", operation: "", shape: (0, 0), recomputed: false }],
            born: vec![Category::Temporaries],
        });
        Machine {
            state: RefCell::new(State {
                storages,
                ledger: Ledger::default(),
                record,
                graph: Graph::default(),
                params: Params::default(),
                device,
                sequences: 1,
                category: Category::Activations,
                module: "",
                autocast: None,
                cast_cache: Vec::new(),
                repeating: 1,
                in_backward: false,
                due_workspaces: [[0; 2]; 2],
                early: None,
                unmodelled: None,
                alike: true,
                on_grad: OnGrad::Keep,
                one_run: OneRun::default(),
            }),
        }
    }

    /// Runs `body` with allocations labelled by `module`.
    pub fn within<R>(&self, module: &'static str, body: impl FnOnce() -> R) -> R {
        let outer = std::mem::replace(&mut self.state.borrow_mut().module, module);
        let result = body();
        self.state.borrow_mut().module = outer;
        result
    }

    /// Runs `body` with allocations of that category.
    pub fn as_category<R>(&self, category: Category, body: impl FnOnce() -> R) -> R {
        let outer = std::mem::replace(&mut self.state.borrow_mut().category, category);
        let result = body();
        self.state.borrow_mut().category = outer;
        result
    }
}
