//! DeepSpeed's ZeRO-3: every rank keeps a partition of every parameter, of the gradients and of masters and optimizer state.
//! Every module gathers its own parameters before it runs, in forward and in backward; from the second pass on what comes next
//! is known, and gathered ahead (`gather.rs`).
//!
//! Source: deepspeed/runtime/zero/stage3.py and partition_parameters.py of DeepSpeed 0.19.8. The order of events was compared
//! with the allocator's trace.

use std::ops::Range;

use super::gather::{FLAT_OUTPUT, GATHERED, Gatherer};
use super::offload::{self, NORM, NORM_PIECE, Offload};
use super::zero::{groups, keep, scratch};
use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::{Cluster, CpuOffload};
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::parallel::{Module, Wrapped};
use crate::step::params::{Kept, ParamId, Params};
use crate::step::what::{Source, What};
use crate::work::Group;

const STAGE_3: Source = Source::At("DeepSpeed, deepspeed/runtime/zero/stage3.py");

static PARTITIONS: What =
    What::own("partitions", "this rank's part of every trained parameter, in one tensor", STAGE_3);
static PARTITION: What = What::own("partition", "this rank's part of a parameter", STAGE_3);
static WHOLE: What = What::own("gathered parameter", "a whole parameter, for a moment", STAGE_3);
static GRADIENTS: What =
    What::own("gradients of the partitions", "this rank's part of every gradient, from load to end", STAGE_3);
static MASTER: What =
    What::own("fp32 master weights", "this rank's part of every trained parameter in float32", STAGE_3);
static BUCKET: What = What::own(
    "reduce bucket",
    "the buffer that gradients are copied into and reduced from: as large as it is configured, from load to end",
    STAGE_3,
);
static FLAT_GRADIENT: What = What::own(
    "flat gradient",
    "the gradient of the partitions that are stepped at once, in one tensor",
    STAGE_3,
);
static RETURNED: What = What::own(
    "gradient from the CPU",
    "this rank's part of a gradient, copied back from what was accumulated",
    STAGE_3,
);
static OVERFLOW: What = What::own(
    "overflow",
    "whether any of this rank's gradients is infinite or no number, before the scale of the loss is chosen anew",
    STAGE_3,
);
static REDUCED: What = What::own("reduce-scatter input", "a bucket's gradients, rank after rank", STAGE_3);

/// What it keeps that a single GPU does not.
pub(super) static OWN: [&What; 5] = [&BUCKET, &GRADIENTS, &FLAT_GRADIENT, &FLAT_OUTPUT, &GATHERED];

/// Elements of partitions that the optimizer steps at a time (`sub_group_size`).
const SUB_GROUP: u64 = 1_000_000_000;

/// What a trainer does before it hands a model to the engine.
#[derive(Clone, Copy, Default)]
pub(in crate::step) struct Habits {
    /// Whether the optimizer has a second group of parameters, those without weight decay.
    pub decays_apart: bool,
    /// Whether weights were divided as they were read, and not made whole first.
    pub divides_read: bool,
    /// Whether adapters stay float32.
    pub widens_adapters: bool,
}

/// What ZeRO-3 keeps.
pub(in crate::step) struct Zero3 {
    world: u64,
    /// The element type of the model's parameters and of gradients (`bf16: {enabled: true}` or `fp16`).
    compute: Dtype,
    /// The element type of trained partitions.
    partitions: Dtype,
    habits: Habits,
    /// `reduce_bucket_size`, in elements.
    bucket_size: u64,
    /// `contiguous_gradients`.
    contiguous: bool,
    /// The stream on which gradients are reduced.
    reduces_on: Stream,
    /// Gather parameters and let go of them: those of the model that is trained, then those of models that only score.
    gatherers: Vec<Gatherer>,
    /// Which of them is of the model that runs.
    running: usize,
    /// The trained parameters.
    trained: Vec<ParamId>,
    /// How many of them, one after the other, and elements of their partitions, the optimizer steps at a time.
    groups: Vec<(usize, u64)>,
    /// Gradients that wait in the bucket for their reduction, and how many elements they are.
    waiting: Vec<ParamId>,
    elements: u64,
    /// The group that the optimizer steps, and its float32 gradient.
    stepping: (usize, StorageId),
    /// Where the optimizer is in the CPU's memory.
    offload: Option<Offload>,
    /// Whether the partitions are there, too.
    keeps_on_host: bool,
    /// Whether a backward pass is through since the optimizer stepped.
    accumulates: bool,
    /// Whether the code of a module runs that is gathered whole.
    pub in_leaf: bool,
}

impl Zero3 {
    /// Before there is a model.
    pub fn of(cluster: Cluster, compute: Dtype, habits: Habits) -> Zero3 {
        let overlaps = cluster.overlaps();
        let stream = |own: Stream| if overlaps { own } else { Stream::Compute };
        Zero3 {
            world: cluster.gpus,
            compute,
            habits,
            bucket_size: cluster.deepspeed.reduce_bucket,
            contiguous: cluster.deepspeed.contiguous,
            reduces_on: stream(Stream::Scatters),
            gatherers: vec![Gatherer::new(cluster, stream(Stream::Gathers))],
            partitions: compute,
            running: 0,
            trained: Vec::new(),
            groups: Vec::new(),
            waiting: Vec::new(),
            elements: 0,
            stepping: (0, NOTHING),
            offload: Offload::of(cluster),
            keeps_on_host: cluster.cpu == CpuOffload::All,
            accumulates: false,
            in_leaf: false,
        }
    }

    /// The element type of the model's parameters and of gradients.
    pub fn compute(&self) -> Dtype {
        self.compute
    }

    /// Whether the optimizer steps in the CPU's memory.
    pub fn offloads(&self) -> bool {
        self.offload.is_some()
    }

    /// Bytes of the CPU's memory that this rank takes: masters and AdamW's states, their gradients and those that are accumulated,
    /// pinned, and where partitions are there these, pinned as well.
    pub fn on_host(&self, params: &Params) -> u64 {
        let bytes = |numel: u64, dtype: Dtype| numel.saturating_mul(dtype.bytes());
        let sum = |parts: &[u64]| parts.iter().copied().fold(0, u64::saturating_add);
        let whole = sum(&Vec::from_iter(self.groups.iter().map(|(_, numel)| *numel)));
        let optimizer = self.offload.as_ref().map_or(0, |_| {
            let gradients = self.groups.iter().map(|(_, numel)| offload::pinned(bytes(*numel, Dtype::F32)));
            sum(&[
                bytes(whole, Dtype::F32),
                offload::states(whole),
                gradients.fold(0, u64::saturating_add),
                offload::pinned(bytes(whole, self.compute)),
            ])
        });
        if !self.keeps_on_host {
            return optimizer;
        }
        let frozen = params.list.iter().filter(|param| !param.trainable).map(|param| {
            offload::pinned(bytes(param.kept.numel, param.kept.dtype)).saturating_mul(u64::from(param.times))
        });
        sum(&[optimizer, offload::pinned(bytes(whole, self.partitions)), frozen.fold(0, u64::saturating_add)])
    }

    /// This rank's partition of a parameter, which is one row: all ranks' are as long.
    pub fn partition_of(&self, (rows, columns): (u64, u64), dtype: Dtype) -> Kept {
        let numel = rows.saturating_mul(columns).div_ceil(self.world);
        Kept { numel, rows: 1, dtype }
    }

    /// The element type of an adapter that was made in this one. The engine casts a model that is whole (`_cast_module_mixed_precision`),
    /// and leaves as it is what stands beside weights that are divided by then.
    pub fn dtype_beside(&self, dtype: Dtype) -> Dtype {
        if self.habits.widens_adapters { dtype } else { self.compute }
    }

    /// Whether weights are divided as they are read; whether their partitions stay on the GPU then.
    pub fn divides_read(&self) -> Option<bool> {
        self.habits.divides_read.then_some(!self.keeps_on_host)
    }

    /// How many groups of partitions the optimizer steps, one after the other.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Elements of the group that it steps.
    pub fn group(&self) -> u64 {
        self.groups.get(self.stepping.0).map_or(0, |(_, numel)| *numel)
    }

    /// `DeepSpeedZeroOptimizer_Stage3.__init__` of partitioned parameters: those that are trained move into one tensor.
    pub fn wrap(&mut self, heap: &mut Heap, params: &mut Params, model: &Wrapped) {
        self.gatherers[0].wrap(params, &model.params, self.habits.divides_read);
        let mut whole = 0u64;
        for group in groups(params, model.params.clone(), self.habits.decays_apart) {
            let mut is_open = false;
            for id in group {
                let numel = params.list[id].kept.numel;
                whole = whole.saturating_add(numel);
                match self.groups.last_mut() {
                    Some((count, sum)) if is_open && *sum < SUB_GROUP => {
                        (*count, *sum) = (*count + 1, sum.saturating_add(numel))
                    }
                    Some(_) | None => self.groups.push((1, numel)),
                }
                is_open = true;
                self.trained.push(id as ParamId);
            }
        }
        if let Some(first) = self.trained.first() {
            self.partitions = params.get(*first).kept.dtype;
        }
        self.partition(heap, params, model.params.clone());
        for id in &self.trained {
            let storage = std::mem::replace(&mut params.list[*id as usize].storage, NOTHING);
            heap.release(storage);
        }
        if !self.keeps_on_host {
            // `defragment`
            heap.empty_cache();
            keep(heap, whole, self.partitions, Category::Weights, &PARTITIONS);
        }
        if !self.offloads() {
            self.make_masters(heap);
        }
        if self.contiguous {
            keep(heap, self.bucket_size, self.compute, Category::Gradients, &BUCKET);
        }
        if !self.offloads() {
            keep(heap, whole, self.compute, Category::Gradients, &GRADIENTS);
        }
        // `create_reduce_and_remove_grad_hooks` gathers each to find where its gradient is accumulated
        for id in &self.trained {
            let Kept { numel: part, dtype, .. } = params.get(*id).kept;
            let gathered = scratch(heap, part.saturating_mul(self.world), dtype, &WHOLE);
            if self.keeps_on_host {
                let fetched = scratch(heap, part, dtype, &PARTITION);
                heap.release(fetched);
            }
            heap.release(gathered);
        }
    }

    /// What trl does with a model that only scores (models/utils.py `prepare_deepspeed`): an engine of its own without an optimizer, whose
    /// partitions stay where they are.
    pub fn wrap_reference(&mut self, heap: &mut Heap, params: &mut Params, own: Range<usize>) {
        let mut gatherer = self.gatherers[0].another();
        gatherer.wrap(params, &own, self.habits.divides_read);
        self.gatherers.push(gatherer);
        self.partition(heap, params, own);
    }

    /// `_convert_to_zero_parameters`: of each parameter that is whole this rank's partition stays. Where weights were divided as they were
    /// read no whole ones wait in the cache either.
    fn partition(&self, heap: &mut Heap, params: &mut Params, own: Range<usize>) {
        if self.habits.divides_read {
            return heap.empty_cache();
        }
        for param in &mut params.list[own] {
            let (category, times) = (heap.category_of(param.storage), param.times);
            let Kept { numel, dtype, .. } = param.kept;
            let part = if self.keeps_on_host {
                NOTHING
            } else {
                heap.persistent(numel.saturating_mul(dtype.bytes()), dtype, times, category, &PARTITION)
            };
            heap.release(std::mem::replace(&mut param.storage, part));
        }
    }

    /// `_create_fp32_partitions` and `initialize_optimizer_states` on the GPU.
    fn make_masters(&self, heap: &mut Heap) {
        // `converted.clone()`: the variable holds the last one until the next is there
        let mut converted = NOTHING;
        for (_, numel) in &self.groups {
            // of float32 partitions there is nothing to convert
            let next = match self.partitions {
                Dtype::F32 => NOTHING,
                _ => scratch(heap, *numel, Dtype::F32, &MASTER),
            };
            heap.release(std::mem::replace(&mut converted, next));
            keep(heap, *numel, Dtype::F32, Category::Optimizer, &MASTER);
        }
        heap.release(converted);
        let largest = self.groups.iter().map(|(_, numel)| *numel).max().unwrap_or(0);
        let gradient = scratch(heap, largest, Dtype::F32, &FLAT_GRADIENT);
        heap.release(gradient);
    }

    /// Whether a parameter is there whole; what no engine has is.
    pub fn is_gathered(&self, id: ParamId) -> bool {
        self.gatherers.iter().find_map(|gatherer| gatherer.is_there(id)).unwrap_or(true)
    }

    /// A gathered parameter's storage.
    pub fn gathered(&self, id: ParamId) -> StorageId {
        self.gatherers.iter().find_map(|gatherer| gatherer.storage(id)).unwrap_or(NOTHING)
    }

    /// `_zero3_consolidated_16bit_state_dict` of the model that is trained.
    pub fn gather_for_checkpoint(&mut self, heap: &mut Heap) {
        self.gatherers[0].gather_one_by_one(heap);
    }

    /// The model of that parameter runs from now on.
    pub fn run_model(&mut self, first: ParamId) {
        let own = self.gatherers.iter().position(|gatherer| gatherer.is_there(first).is_some());
        self.running = own.unwrap_or_default();
    }

    /// A module's code reads a parameter of another module.
    pub fn read(&mut self, heap: &mut Heap, id: ParamId) {
        self.gatherers[self.running].read(heap, id);
    }

    /// Whether a module needed other parameters than come next in the pass that was recorded.
    pub fn is_lost(&self) -> bool {
        self.gatherers.iter().any(Gatherer::is_lost)
    }

    /// A parameter is taken out of its module, or put back.
    pub fn parametrize(&mut self, id: ParamId, begins: bool) {
        self.gatherers[self.running].parametrize(id, begins);
    }

    /// A forward pass begins (`reset_step`).
    pub fn enter_forward(&mut self, heap: &mut Heap) {
        self.gatherers[self.running].begin(heap);
    }

    /// A module is about to run in forward; whether with gradients.
    pub fn enter_forward_of(&mut self, module: Module, with_gradients: bool) {
        self.gatherers[self.running].expect_backward(module, with_gradients);
    }

    /// A module is about to run: in forward, which may be a recomputation, or in backward.
    pub fn enter(&mut self, heap: &mut Heap, module: Module, backward: bool) {
        self.gatherers[self.running].fetch(heap, module, backward);
    }

    /// A module has run; in backward, whether the optimizer steps then. Gradients of one that is gathered whole are reduced when all of
    /// them are there (`reduce_leaf_module_grads`).
    pub fn leave(&mut self, heap: &mut Heap, params: &mut Params, module: Module, backward: Option<bool>) {
        if let (Some(steps), Some([first, last])) = (backward, module.whole()) {
            let trained: Vec<ParamId> = (first..=last).filter(|id| params.get(*id).trainable).collect();
            trained.into_iter().for_each(|id| self.take(heap, params, id, steps));
        }
        if backward.is_some() && !self.gatherers[self.running].sees_backward(module) {
            return;
        }
        self.gatherers[self.running].release(heap, module, backward.is_some());
    }

    /// A gradient is there.
    pub fn arrived(&mut self, heap: &mut Heap, params: &mut Params, id: ParamId, steps: bool) {
        if !self.gatherers[0].is_in_leaf(id) {
            self.take(heap, params, id, steps);
        }
    }

    /// A gradient is reduced (`reduce_independent_p_g_buckets_and_remove_grads`): it is copied into the bucket, which is reduced
    /// before where it has no room. One that is larger than the bucket stays where it is.
    fn take(&mut self, heap: &mut Heap, params: &mut Params, id: ParamId, steps: bool) {
        let numel = params.get(id).numel;
        if self.elements.saturating_add(numel) > self.bucket_size {
            self.reduce(heap, params, steps);
        }
        if self.contiguous && self.elements.saturating_add(numel) <= self.bucket_size {
            heap.release(std::mem::replace(&mut params.list[id as usize].grad, NOTHING));
        }
        self.elements = self.elements.saturating_add(numel);
        self.waiting.push(id);
    }

    /// `__avg_scatter_grads` and `partition_grads`: a single gradient that falls to the ranks without a rest is scattered
    /// where it is. What falls to this rank is added to the partition's gradient, or copied back from where that is added to one in the
    /// CPU's memory, and in the last micro-batch of a step it goes there in float32.
    fn reduce(&mut self, heap: &mut Heap, params: &mut Params, steps: bool) {
        let padded = |id: &ParamId| params.get(*id).kept.numel.saturating_mul(self.world);
        let whole = self.waiting.iter().map(padded).fold(0, u64::saturating_add);
        heap.send_around(Group::Data, whole.saturating_mul(self.compute.bytes()), self.world);
        let input = match self.waiting.as_slice() {
            [] => return,
            [one] if params.get(*one).numel == whole => NOTHING,
            _ => {
                let bytes = whole.saturating_mul(self.compute.bytes());
                heap.alloc_on(self.reduces_on, Category::Temporaries, bytes, self.compute, &REDUCED)
            }
        };
        self.waiting.sort_unstable();
        let mut returned = NOTHING;
        for id in self.waiting.drain(..) {
            if let Some(offload) = &mut self.offload {
                if !self.accumulates {
                    heap.release(std::mem::replace(&mut returned, NOTHING));
                }
                let numel = params.get(id).kept.numel;
                let bytes = numel.saturating_mul(self.compute.bytes());
                let part =
                    heap.alloc_on(self.reduces_on, Category::Gradients, bytes, self.compute, &RETURNED);
                // a variable holds the one before until then
                heap.release(std::mem::replace(&mut returned, part));
                if steps {
                    offload.send(heap, self.reduces_on, numel, NORM_PIECE);
                }
            }
            heap.release(std::mem::replace(&mut params.list[id as usize].grad, NOTHING));
        }
        heap.release(returned);
        heap.release(input);
        self.elements = 0;
    }

    /// The backward pass is through: what waits is reduced, and what no module let go of goes.
    pub fn leave_backward(&mut self, heap: &mut Heap, params: &mut Params, steps: bool) {
        self.reduce(heap, params, steps);
        self.accumulates = !steps;
        self.gatherers[0].release_leftovers(heap);
    }

    /// `step` up to the first group's: all parameters go, float16 gradients are looked through for infinities, and the norm of every
    /// partition's gradient is taken in float64.
    pub fn enter_step(&mut self, heap: &mut Heap, params: &Params) {
        self.gatherers[0].release_all(heap);
        if self.offloads() {
            return;
        }
        if self.compute == Dtype::F16 {
            self.look_for_overflow(heap);
        }
        for id in &self.trained {
            let wide = scratch(heap, params.get(*id).kept.numel, Dtype::F64, &NORM);
            heap.release(wide);
        }
    }

    /// `has_overflow`: `torch.isinf` of all gradients takes their sizes and a byte for each, `torch.isnan` that byte.
    fn look_for_overflow(&self, heap: &mut Heap) {
        let whole = self.groups.iter().map(|(_, numel)| *numel).fold(0, u64::saturating_add);
        let mut made = |dtype: Dtype| {
            let bytes = whole.saturating_mul(dtype.bytes());
            heap.alloc_on(self.reduces_on, Category::Temporaries, bytes, dtype, &OVERFLOW)
        };
        let infinite = [made(self.compute), made(Dtype::U8)];
        infinite.into_iter().for_each(|storage| heap.release(storage));
        let undefined = heap.alloc_on(self.reduces_on, Category::Temporaries, whole, Dtype::U8, &OVERFLOW);
        heap.release(undefined);
    }

    /// The optimizer is about to step a group, whose gradient is made float32.
    pub fn enter_group(&mut self, heap: &mut Heap, number: usize) {
        if self.offloads() {
            return;
        }
        let Some((count, numel)) = self.groups.get(number).copied() else { return };
        let flat = if count > 1 { scratch(heap, numel, self.compute, &FLAT_GRADIENT) } else { NOTHING };
        let bytes = numel.saturating_mul(Dtype::F32.bytes());
        self.stepping = (number, heap.alloc_as(Category::Gradients, bytes, Dtype::F32, &FLAT_GRADIENT));
        heap.release(flat);
    }

    /// It has stepped it.
    pub fn leave_group(&mut self, heap: &mut Heap) {
        heap.release(std::mem::replace(&mut self.stepping.1, NOTHING));
    }

    /// `_post_step`: the parameters that are kept whole are gathered.
    pub fn leave_step(&mut self, heap: &mut Heap) {
        self.offload.iter_mut().for_each(|offload| offload.leave_step(heap));
        self.gatherers[0].gather_persistent(heap);
    }
}
