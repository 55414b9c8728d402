//! The memory of a run: storages with a reference count and no data, the bytes that live, and the record of what happens
//! to the allocator. It knows nothing of tensors, graphs or operations.

mod benchmark;
pub(super) mod ledger;
mod made;
pub(super) mod record;
mod repeat;
mod work;

pub(super) use benchmark::{BENCHMARK, BENCHMARK_BUFFER};
pub(super) use record::Loading;
pub(super) use repeat::Repeat;

use std::collections::VecDeque;

use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::memory::{Category, Peak, Phase};
use crate::step::what::{Dims, Role, Source, What, roles};
use crate::work::Work;
use ledger::Ledger;
use record::{Event, Maker, Pass, Record, storages_of};
use repeat::OneRun;

static LOADING: What =
    What::own("loading", "a tensor that is gone before the model is loaded", Source::Modeling);
static CUBLAS: What = What::own(
    "cuBLAS workspace",
    "scratch space that cuBLAS keeps per thread",
    Source::At("PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp"),
);
static CUBLASLT: What = What::own(
    "cuBLASLt workspace",
    "scratch space that cuBLASLt keeps per thread",
    Source::At("PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp"),
);

/// PyTorch's allocator hands out multiples of this (`kMinBlockSize`, c10/cuda/CUDACachingAllocator.h).
pub(super) const BLOCK: u64 = 512;

/// `bytes` rounded up as the allocator rounds a request.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
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
    /// How many identical storages this one stands for (see [`Heap::begin_repeat`]).
    pub times: u32,
    /// Whether all runs of a repeated body use this one storage: it is freed once, after the last of them.
    pub shared: bool,
    /// The stream that it was asked for on: the allocator gives each blocks of its own.
    pub stream: Stream,
    /// What it is for.
    pub category: Category,
    /// What it was for when it was made.
    pub born: Category,
    /// Element type, for the explanation.
    pub dtype: Dtype,
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

/// A card's memory in the course of a run.
pub(super) struct Heap {
    /// The card.
    pub device: Device,
    pub storages: Vec<Storage>,
    pub ledger: Ledger,
    /// What happened, where it is wanted.
    pub record: Option<Record>,
    /// Category of what is allocated now.
    pub category: Category,
    /// Module that is running.
    pub module: &'static str,
    /// The layer that it is in, counted from 1; 0 outside of the layers.
    pub layer: u32,
    /// What its operations are run for.
    pub role: &'static Role,
    /// Whether checkpointing's recomputation is running.
    pub recomputing: bool,
    /// Whether a recomputation has all that it needs: nothing is allocated until it has ended.
    pub stopped: bool,
    /// What the running operation makes, where that is noted, and whether it is kept for it already.
    pub noted: Option<Vec<(StorageId, bool)>>,
    /// What the running operation made when it ran first, in the order in which it asks for it: it does not run again.
    pub handed: Option<VecDeque<StorageId>>,
    /// How many identical runs the running bodies stand for; 1 outside of such.
    pub repeating: u32,
    /// What only one run of the running bodies does.
    one_run: OneRun,
    /// Whether every body that ran on behalf of others was fed what it returned, and left what there was to leave.
    pub alike: bool,
    /// Whether autograd's thread runs: it has a cuBLAS workspace of its own.
    pub in_backward: bool,
    /// Bytes of the workspaces, cuBLAS's and cuBLASLt's, that the first product of the script's and of autograd's thread will
    /// ask for.
    pub due_workspaces: [[u64; 2]; 2],
    /// Whether the script's thread multiplied while the model was loaded, and has cuBLAS's since.
    pub multiplied: bool,
    /// The highest point of the running phase up to the moment at which its thread got its workspaces, where it got them.
    pub early: Option<Peak>,
    /// What was computed so far.
    pub work: Work,
    /// The kernels whose settings were tried.
    pub tuned: Vec<&'static str>,
}

impl Heap {
    /// An empty one; with a record of what happens where one is wanted, of about so many events.
    pub fn new(device: Device, recorded: Option<usize>) -> Heap {
        let nothing = Storage {
            requested: 0,
            references: 1,
            times: 1,
            shared: false,
            stream: Stream::Compute,
            category: Category::Temporaries,
            born: Category::Temporaries,
            dtype: Dtype::U8,
        };
        let mut storages = Vec::with_capacity(recorded.map_or(1 << 10, storages_of));
        storages.push(nothing);
        Heap {
            device,
            storages,
            ledger: Ledger::default(),
            record: recorded.map(Record::of),
            category: Category::Activations,
            module: "",
            layer: 0,
            role: &roles::RESIDUAL,
            recomputing: false,
            stopped: false,
            noted: None,
            handed: None,
            repeating: 1,
            one_run: OneRun::default(),
            alike: true,
            in_backward: false,
            due_workspaces: [[0; 2]; 2],
            multiplied: false,
            early: None,
            work: Work::default(),
            tuned: Vec::new(),
        }
    }

    /// Allocates `requested` bytes with one reference.
    pub fn alloc_as(
        &mut self,
        category: Category,
        requested: u64,
        dtype: Dtype,
        what: &'static What,
    ) -> StorageId {
        if self.stopped {
            return NOTHING;
        }
        if let Some(handed) = &mut self.handed {
            return handed.pop_front().unwrap_or(NOTHING);
        }
        let id = self.storages.len() as StorageId;
        self.noted.iter_mut().for_each(|noted| noted.push((id, false)));
        self.storages.push(Storage {
            requested,
            references: 1,
            times: self.repeating,
            shared: false,
            stream: Stream::Compute,
            category,
            born: category,
            dtype,
        });
        self.ledger.add(category, rounded(requested));
        self.write(requested);
        if let Some(record) = &mut self.record {
            record.events.push(Event::Alloc(id));
            let (module, layer, role) = (self.module, self.layer, self.role);
            let pass = match (self.recomputing, self.in_backward) {
                (true, _) => Pass::Recomputation,
                (false, true) => Pass::Backward,
                (false, false) => Pass::Forward,
            };
            record.makers.push(Maker { module, what, role, dims: Dims::Elements, pass, layer });
        }
        id
    }

    /// The same on another stream than the one that computes.
    pub fn alloc_on(
        &mut self,
        stream: Stream,
        category: Category,
        requested: u64,
        dtype: Dtype,
        operation: &'static What,
    ) -> StorageId {
        let id = self.alloc_as(category, requested, dtype, operation);
        if id != NOTHING {
            self.storages[id as usize].stream = stream;
        }
        id
    }

    /// A storage like another that so many further ones have, made as it was; nothing is allocated.
    pub fn stand_in(&mut self, of: StorageId, times: u32) -> StorageId {
        let id = self.storages.len() as StorageId;
        self.storages.push(Storage { references: 1, times, ..self.storages[of as usize] });
        if let Some(record) = &mut self.record {
            let maker = record.makers[of as usize];
            record.makers.push(maker);
        }
        id
    }

    /// Allocates `numel` elements in the running category.
    pub fn alloc(&mut self, numel: u64, dtype: Dtype, what: &'static What) -> StorageId {
        self.alloc_as(self.category, numel.saturating_mul(dtype.bytes()), dtype, what)
    }

    /// The same with the rows of another tensor.
    pub fn alloc_for(&mut self, of: StorageId, numel: u64, dtype: Dtype, what: &'static What) -> StorageId {
        let id = self.alloc(numel, dtype, what);
        self.take_dims(id, of);
        id
    }

    /// Allocates the result of a matrix product, whose elements are each a sum of `inner` products. The first one of a thread
    /// gets cuBLAS's workspace after it.
    pub fn alloc_product(&mut self, numel: u64, inner: u64, dtype: Dtype, what: &'static What) -> StorageId {
        self.multiply(numel, inner);
        let storage = self.alloc(numel, dtype, what);
        self.get_due_workspace();
        storage
    }

    /// A matrix product into memory that is there.
    pub fn multiply_into(&mut self, numel: u64, inner: u64) {
        self.multiply(numel, inner);
        self.get_due_workspace();
    }

    fn get_due_workspace(&mut self) {
        if self.due_workspaces != [[0; 2]; 2] && !self.stopped {
            self.get_workspace();
        }
    }

    /// The same with the rows of an operand.
    pub fn alloc_product_for(
        &mut self,
        of: StorageId,
        (numel, inner): (u64, u64),
        dtype: Dtype,
        what: &'static What,
    ) -> StorageId {
        let id = self.alloc_product(numel, inner, dtype, what);
        self.take_dims(id, of);
        id
    }

    /// The workspaces that the running thread is due, which stay until the end.
    pub fn get_workspace(&mut self) {
        let due = std::mem::take(&mut self.due_workspaces[usize::from(self.in_backward)]);
        if due == [0; 2] {
            return;
        }
        self.note_workspace(due.into_iter().map(rounded).sum());
        for (bytes, what) in due.into_iter().zip([&CUBLAS, &CUBLASLT]) {
            if bytes > 0 {
                self.persistent(bytes, Dtype::U8, 1, Category::Workspace, what);
            }
        }
    }

    /// A product while the model is loaded, the first of which gets the script's thread its workspace.
    pub fn multiply_while_loading(&mut self) {
        if !std::mem::replace(&mut self.multiplied, true) {
            let bytes = self.device.workspace;
            self.persistent(bytes, Dtype::U8, 1, Category::Workspace, &CUBLAS);
        }
    }

    /// Allocates something that stays until the end and stands for `times` identical ones.
    pub fn persistent(
        &mut self,
        bytes: u64,
        dtype: Dtype,
        times: u32,
        category: Category,
        what: &'static What,
    ) -> StorageId {
        let outer = std::mem::replace(&mut self.repeating, times);
        let storage = self.alloc_as(category, bytes, dtype, what);
        self.repeating = outer;
        self.count_again(storage, times);
        storage
    }

    /// Counts a storage that stands for `times` ones as that many.
    pub fn count_again(&mut self, storage: StorageId, times: u32) {
        let Some(stored) = self.storages.get(storage as usize) else { return };
        let more = rounded(stored.requested).saturating_mul(u64::from(times.saturating_sub(1)));
        let category = stored.category;
        self.ledger.add(category, more);
    }

    /// A tensor that is gone before the model is loaded, where events are recorded: it leaves its block in the
    /// allocator's cache, out of which later ones are cut.
    pub fn while_loading(&mut self, count: u64, dtype: Dtype) -> StorageId {
        if self.record.is_none() || count == 0 {
            return NOTHING;
        }
        let bytes = count.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, &LOADING)
    }

    /// Notes that what follows happens in that part of the loading; returns the one up to now.
    pub fn load_in(&mut self, part: Loading) -> Loading {
        self.record.as_mut().map_or(part, |record| record.load_in(part))
    }

    /// Allocates and frees at once: a kernel's scratch space.
    pub fn scratch(&mut self, bytes: u64, what: &'static What) {
        if bytes > 0 {
            let id = self.alloc_as(Category::Temporaries, bytes, Dtype::U8, what);
            self.release(id);
        }
    }

    /// Keeps a storage that the running operation made and saves, where what it makes is noted.
    pub fn keep_noted(&mut self, id: StorageId) {
        let made = self.noted.iter_mut().flatten().find(|(made, is_saved)| *made == id && !is_saved);
        if let Some((_, is_saved)) = made {
            *is_saved = true;
            self.retain(id);
        }
    }

    /// Adds a reference.
    pub fn retain(&mut self, id: StorageId) {
        if id != NOTHING {
            self.storages[id as usize].references += 1;
        }
    }

    /// Drops a reference; the last one frees.
    #[inline]
    pub fn release(&mut self, id: StorageId) {
        if id == NOTHING {
            return;
        }
        let storage = &mut self.storages[id as usize];
        storage.references -= 1;
        if storage.references == 0 {
            self.free_or_wait(id);
        }
    }

    /// Frees a storage that has no reference any more; what all runs of a body share waits for the last of them.
    fn free_or_wait(&mut self, id: StorageId) {
        if self.repeating > 1 && self.storages[id as usize].shared {
            self.free_in_last_run(id);
        } else {
            self.free(id);
        }
    }

    fn free(&mut self, id: StorageId) {
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

    /// Notes that a storage outlived the repeated body that made it: all runs but the last one have given theirs away.
    pub fn counts_once(&mut self, id: StorageId) {
        if id != NOTHING {
            self.storages[id as usize].times = self.repeating;
        }
    }

    /// The storages from that number on that are still there.
    pub fn survivors(&self, first: usize) -> Vec<StorageId> {
        let ids = first as StorageId..self.storages.len() as StorageId;
        ids.filter(|id| self.references(*id) > 0).collect()
    }

    /// What a storage is for.
    pub fn category_of(&self, id: StorageId) -> Category {
        self.storages[id as usize].category
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

    /// Moves a gradient that the loss made to `category`, now that other operations write theirs over it.
    pub fn leave_loss(&mut self, id: StorageId, category: Category) {
        if self.storages[id as usize].category == Category::Logits {
            self.recategorise(id, category);
        }
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
