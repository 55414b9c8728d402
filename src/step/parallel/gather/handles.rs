//! How ranks' partitions become whole parameters: gathers on their way, and what they are copied out of.
//!
//! Source: deepspeed/runtime/zero/partition_parameters.py (`all_gather_coalesced` and its handles) of DeepSpeed 0.19.8.

use super::{Gatherer, Handle, Partitioned, Status};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::heap::{Heap, StorageId};
use crate::step::what::{Source, What};
use crate::work::Group;

const PARTITION: Source = Source::At("DeepSpeed, deepspeed/runtime/zero/partition_parameters.py");

pub(in crate::step::parallel) static FLAT_OUTPUT: What = What::own(
    "all-gather output",
    "several parameters' partitions of all ranks, until the last of these parameters is needed",
    PARTITION,
);
pub(in crate::step::parallel) static GATHERED: What = What::own(
    "gathered parameter",
    "a whole parameter: gathered ahead, in use, or kept as it is used again soon",
    PARTITION,
);

static FETCHED: What = What::own(
    "fetched partition",
    "this rank's partition of a parameter, copied from the CPU's memory to be gathered",
    PARTITION,
);

impl Gatherer {
    /// `all_gather` outside of the trace: of one parameter, on the stream of who asks.
    pub(super) fn gather_alone(&mut self, heap: &mut Heap, index: usize) {
        let Partitioned { part, dtype, .. } = self.params[index];
        let bytes = part.saturating_mul(self.world).saturating_mul(dtype.bytes());
        let storage = heap.alloc_as(Category::WeightCopies, bytes, dtype, &GATHERED);
        if self.fetches {
            let bytes = part.saturating_mul(dtype.bytes());
            let fetched = heap.alloc_as(Category::WeightCopies, bytes, dtype, &FETCHED);
            heap.release(fetched);
        }
        heap.send_around(Group::Data, bytes, self.world);
        (self.params[index].storage, self.params[index].status) = (storage, Status::Available);
    }

    /// `all_gather_coalesced`: one parameter by itself, several through one tensor of each element type.
    pub(super) fn gather(&mut self, heap: &mut Heap, mut own: Vec<usize>) {
        // by the number that DeepSpeed gave it
        own.sort_unstable_by_key(|index| (self.params[*index].late, *index));
        let handle = self.handles.len();
        for index in &own {
            let param = &mut self.params[*index];
            param.status = Status::InFlight(handle);
            self.available = self.available.saturating_add(i64::try_from(param.numel).unwrap_or(i64::MAX));
        }
        if self.world == 1 {
            return self.take_alone(heap, own);
        }
        // `sort_dtypes`, by name
        own.sort_by_key(|index| self.params[*index].dtype == Dtype::F32);
        let (outputs, left) = match own.as_slice() {
            [] => return,
            [one] => {
                let Partitioned { part, dtype, .. } = self.params[*one];
                let whole = part.saturating_mul(self.world);
                heap.send_around(Group::Data, whole.saturating_mul(dtype.bytes()), self.world);
                self.params[*one].storage = self.alloc(heap, (whole, dtype), &GATHERED);
                self.fetch_partitions(heap, &own);
                own.clear();
                (Vec::new(), 1)
            }
            several => {
                let of_types =
                    several.chunk_by(|one, other| self.params[*one].dtype == self.params[*other].dtype);
                let outputs = of_types.map(|alike| self.gather_alike(heap, alike)).collect();
                (outputs, several.len())
            }
        };
        self.handles.push(Handle { outputs, params: own, left });
    }

    /// `_all_gather_dtype`.
    fn gather_alike(&self, heap: &mut Heap, own: &[usize]) -> StorageId {
        let parts = own.iter().map(|index| self.params[*index].part).fold(0, u64::saturating_add);
        let (whole, dtype) = (parts.saturating_mul(self.world), self.params[own[0]].dtype);
        heap.send_around(Group::Data, whole.saturating_mul(dtype.bytes()), self.world);
        let output = self.alloc(heap, (whole, dtype), &FLAT_OUTPUT);
        self.fetch_partitions(heap, own);
        output
    }

    /// Partitions that are in the CPU's memory are copied to be gathered.
    fn fetch_partitions(&self, heap: &mut Heap, own: &[usize]) {
        if self.fetches {
            let part = |index: &usize| (self.params[*index].part, self.params[*index].dtype);
            let fetched: Vec<StorageId> =
                own.iter().map(|index| self.alloc(heap, part(index), &FETCHED)).collect();
            fetched.into_iter().rev().for_each(|part| heap.release(part));
        }
    }

    /// `_no_gather_coalesced`: the partition of a single rank is the parameter, and is copied where it lies in the CPU's memory.
    fn take_alone(&mut self, heap: &mut Heap, own: Vec<usize>) {
        if own.is_empty() {
            return;
        }
        for index in own.iter().filter(|_| self.fetches) {
            let Partitioned { numel, dtype, .. } = self.params[*index];
            self.params[*index].storage = self.alloc(heap, (numel, dtype), &GATHERED);
        }
        self.handles.push(Handle { outputs: Vec::new(), params: Vec::new(), left: own.len() });
    }

    fn alloc(&self, heap: &mut Heap, (numel, dtype): (u64, Dtype), what: &'static What) -> StorageId {
        let bytes = numel.saturating_mul(dtype.bytes());
        heap.alloc_on(self.stream, Category::WeightCopies, bytes, dtype, what)
    }

    /// Waits for a parameter: all of its handle are copied out with the first, and what they were gathered in goes with the
    /// last.
    pub(super) fn wait(&mut self, heap: &mut Heap, index: usize) {
        let Status::InFlight(number) = self.params[index].status else { return };
        for other in std::mem::take(&mut self.handles[number].params) {
            let Partitioned { numel, dtype, .. } = self.params[other];
            self.params[other].storage = self.alloc(heap, (numel, dtype), &GATHERED);
        }
        self.params[index].status = Status::Available;
        let handle = &mut self.handles[number];
        handle.left -= 1;
        if handle.left == 0 {
            handle.outputs.drain(..).for_each(|output| heap.release(output));
        }
        while self.handles.pop_if(|handle| handle.left == 0).is_some() {}
    }
}
