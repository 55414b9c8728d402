//! DeepSpeed's ZeRO-1 and ZeRO-2: every rank has the whole model in bfloat16, in one flat tensor, and steps a partition of it,
//! of which it keeps float32 masters. ZeRO-1 reduces gradients when backward is over, ZeRO-2 as they come.
//!
//! Source: deepspeed/runtime/zero/stage_1_and_2.py of DeepSpeed 0.19.8. The order of events was compared with the allocator's
//! trace.

use std::ops::Range;

use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::{Cluster, CpuOffload, Sharding};
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::parallel::Wrapped;
use crate::step::parallel::offload::{self, NORM, Offload};
use crate::step::params::{ParamId, Params};
use crate::step::what::{Source, What};
use crate::units::Bytes;
use crate::work::Group;

const STAGES: Source = Source::At("DeepSpeed, deepspeed/runtime/zero/stage_1_and_2.py");

static FLAT: What =
    What::own("flat parameters", "all trained parameters of the model in one bfloat16 tensor", STAGES);
static MASTER: What =
    What::own("fp32 master weights", "this rank's partition of the parameters in float32", STAGES);
static BUCKET: What = What::own(
    "reduce bucket",
    "the buffer that gradients are copied into and reduced from: as large as it is configured, from the first gradient to \
     the end of backward",
    STAGES,
);
static OWNED: What = What::own(
    "gradients of the partition",
    "the averaged gradients of all parameters that this rank's partition has a part of",
    STAGES,
);
static ZEROS: What = What::own(
    "zeros",
    "the gradient of a parameter of this rank's partition that nothing in the step ran",
    STAGES,
);
static CLONE: What = What::own(
    "gradient beyond the bucket",
    "a copy of a gradient that is larger than the bucket, which nothing writes to until it is in the CPU's memory",
    STAGES,
);
static FLATTENED: What = What::own(
    "flattened bucket",
    "a bucket's slices for each rank, in one tensor that all ranks sum up",
    STAGES,
);
static FLAT_GRADIENT: What =
    What::own("flat gradient", "the gradient of this rank's partition in one tensor", STAGES);
static STAND_IN: What = What::own(
    "stand-in",
    "the element that a parameter is while its own are flattened in the CPU's memory",
    STAGES,
);
static PARTITION: What = What::own("partition", "this rank's part of the flat parameters", STAGES);

/// What it keeps that a single GPU does not.
pub(super) static OWN: [&What; 3] = [&BUCKET, &OWNED, &FLAT_GRADIENT];

/// What ZeRO-1 and ZeRO-2 keep.
pub(in crate::step) struct Zero {
    world: u64,
    /// The card's memory.
    card: Bytes,
    /// The element type of parameters and gradients (`bf16: {enabled: true}` or `fp16`).
    compute: Dtype,
    /// Whether the optimizer has a second group of parameters, those without weight decay.
    decays_apart: bool,
    /// Whether gradients are reduced as they come: ZeRO-2 (`partition_gradients`).
    partitions_gradients: bool,
    /// `reduce_bucket_size`, in elements.
    bucket_size: u64,
    /// `contiguous_gradients`.
    contiguous: bool,
    /// `overlap_comm`: two buckets, and reductions on a stream of their own.
    overlaps: bool,
    /// The trained parameters, group by group in the order of the model's modules.
    trained: Vec<Trained>,
    /// By parameter: where it is in `trained`.
    places: Vec<Option<u32>>,
    /// Elements of the partition that each rank has of each group.
    partitions: Vec<u64>,
    /// The buffers that gradients are copied into, from the first gradient to the end of backward.
    buffers: [StorageId; 2],
    /// Elements that wait in the bucket for their reduction.
    elements: u64,
    /// Whose they are, by place.
    waiting: Vec<u32>,
    /// The reduced gradients of this rank's parameters in this backward pass (`grads_in_partition`).
    reduced: StorageId,
    /// Those that wait for the step (`averaged_gradients`), and whether the first tensor among them has some of a later group than the first.
    averaged: Vec<StorageId>,
    is_shared: bool,
    /// The float32 gradients of the partitions, while the optimizer steps.
    single: Vec<StorageId>,
    /// Where the optimizer is in the CPU's memory.
    offload: Option<Offload>,
    /// Whether a micro-batch ended that was not the last of its step.
    accumulates: bool,
}

/// A parameter that is trained.
struct Trained {
    id: ParamId,
    numel: u64,
    /// The group that it is of, and its first element in the flat tensor of that.
    group: usize,
    offset: u64,
    /// Whether its gradient came since gradients were taken last.
    arrived: bool,
}

/// The parameters that are trained, in the groups that the optimizer is given: weights decay, and norms and biases do not where they are
/// `apart` (transformers 5.17 trainer.py `get_decay_parameter_names`, which goes by their names). Here vectors are taken for those that do
/// not, which puts gpt-oss's sinks and its experts' biases and the one row of a reward model's head into the other group.
pub(super) fn groups(params: &Params, own: Range<usize>, apart: bool) -> [Vec<usize>; 2] {
    let decays = |id: usize| !apart || params.list[id].rows > 1;
    let (first, second) = own.filter(|id| params.list[*id].trainable).partition(|id| decays(*id));
    [first, second]
}

impl Zero {
    /// Before there is a model.
    pub fn of(cluster: Cluster, compute: Dtype, decays_apart: bool, card: Bytes) -> Zero {
        Zero {
            world: cluster.gpus,
            card,
            compute,
            decays_apart,
            partitions_gradients: cluster.sharding == Sharding::Zero2,
            bucket_size: cluster.deepspeed.reduce_bucket,
            contiguous: cluster.deepspeed.contiguous || cluster.cpu != CpuOffload::Off,
            overlaps: cluster.overlaps(),
            trained: Vec::new(),
            places: Vec::new(),
            partitions: Vec::new(),
            buffers: [NOTHING; 2],
            elements: 0,
            waiting: Vec::new(),
            reduced: NOTHING,
            averaged: Vec::new(),
            is_shared: false,
            single: Vec::new(),
            offload: Offload::of(cluster),
            accumulates: false,
        }
    }

    /// The element type of parameters and gradients.
    pub fn compute(&self) -> Dtype {
        self.compute
    }

    /// Whether the optimizer steps in the CPU's memory.
    pub fn offloads(&self) -> bool {
        self.offload.is_some()
    }

    /// Bytes of the CPU's memory that this rank takes: masters, their gradients, what is copied to the parameters and a buffer as
    /// large as the largest of them, all pinned, and AdamW's states; where gradients are accumulated those of every parameter of which
    /// the partition has a part, whole (`accumulated_grads_in_cpu`).
    pub fn on_host(&self) -> u64 {
        if !self.offloads() {
            return 0;
        }
        let pinned = |numel: u64, dtype: Dtype| offload::pinned(numel.saturating_mul(dtype.bytes()));
        let sum = |of: &dyn Fn(u64) -> u64| {
            self.partitions.iter().map(|partition| of(*partition)).fold(0, u64::saturating_add)
        };
        let masters = sum(&|partition| pinned(partition, Dtype::F32));
        let copies = sum(&|partition| pinned(partition, self.compute));
        let own = self.trained.iter().filter(|own| self.accumulates && self.has_part(own));
        let accumulated = own.map(|own| pinned(own.numel, self.compute)).fold(0, u64::saturating_add);
        let states = sum(&offload::states);
        [masters, masters, copies, pinned(self.largest(), self.compute), accumulated, states]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Elements of the largest parameter that is trained.
    fn largest(&self) -> u64 {
        self.trained.iter().map(|trained| trained.numel).max().unwrap_or(0)
    }

    /// Elements of the flat tensors that this rank's optimizer steps.
    pub fn partition(&self) -> u64 {
        self.partitions.iter().copied().fold(0, u64::saturating_add)
    }

    /// `DeepSpeedZeroOptimizer.__init__`: the trained parameters of each group become views of one flat tensor, which is made in the CPU's
    /// memory where the card has no room for it beside them, and this rank's partition of it is copied to float32.
    pub fn wrap(&mut self, heap: &mut Heap, params: &mut Params, model: &Wrapped) {
        self.places = vec![None; params.list.len()];
        let groups = groups(params, model.params.clone(), self.decays_apart);
        for ids in groups.into_iter().filter(|ids| !ids.is_empty()) {
            let (group, first) = (self.partitions.len(), self.trained.len());
            let mut offset = 0u64;
            for id in ids {
                let param = &params.list[id];
                let numel = param.numel.saturating_mul(u64::from(param.times));
                self.places[id] = Some(self.trained.len() as u32);
                self.trained.push(Trained { id: id as ParamId, numel, group, offset, arrived: false });
                offset = offset.saturating_add(numel);
            }
            // NCCL's buffers begin at four bytes (`nccl_start_alignment_factor`)
            let partition = offset.div_ceil(self.world.saturating_mul(2)).saturating_mul(2);
            self.partitions.push(partition);
            heap.empty_cache();
            let flat = partition.saturating_mul(self.world);
            // without pynvml, which DeepSpeed does not bring, other processes and the context count as available (`available_memory`)
            let available = self.card.saturating_sub(Bytes(heap.ledger.current));
            let on_cpu = flat.saturating_mul(self.compute.bytes()) > available.0;
            if on_cpu {
                for trained in &self.trained[first..] {
                    let stand_in = scratch(heap, 1, Dtype::F32, &STAND_IN);
                    heap.release(std::mem::replace(&mut params.list[trained.id as usize].storage, stand_in));
                }
                heap.empty_cache();
            }
            keep(heap, flat, self.compute, Category::Weights, &FLAT);
            for trained in &self.trained[first..] {
                let storage = std::mem::replace(&mut params.list[trained.id as usize].storage, NOTHING);
                heap.release(storage);
            }
            let copy = scratch(heap, partition, self.compute, &PARTITION);
            if !self.offloads() {
                keep(heap, partition, Dtype::F32, Category::Optimizer, &MASTER);
            }
            heap.release(copy);
        }
        if self.offloads() {
            return Offload::keep_buffer(heap, self.largest(), self.compute);
        }
        // `initialize_optimizer_states`
        let zeros = |partition: &u64| scratch(heap, *partition, Dtype::F32, &FLAT_GRADIENT);
        let gradients: Vec<StorageId> = self.partitions.iter().map(zeros).collect();
        gradients.into_iter().for_each(|gradient| heap.release(gradient));
    }

    /// A gradient is there (`process_gradients`). ZeRO-1 collects it in the last micro-batch of a step alone
    /// (`reduce_ready_partitions_and_remove_grads`).
    pub fn arrived(&mut self, heap: &mut Heap, params: &mut Params, id: ParamId, steps: bool) {
        let Some(place) = self.places.get(id as usize).copied().flatten() else { return };
        self.trained[place as usize].arrived = true;
        // `setup_buckets`
        if self.contiguous && self.buffers[0] == NOTHING {
            let buffer = |heap: &mut Heap| {
                let bytes = self.bucket_size.saturating_mul(self.compute.bytes());
                heap.alloc_as(Category::Gradients, bytes, self.compute, &BUCKET)
            };
            self.buffers[0] = buffer(heap);
            if self.overlaps {
                self.buffers[1] = buffer(heap);
            }
        }
        if self.partitions_gradients || self.overlaps && steps {
            self.collect(heap, params, place, steps);
        }
    }

    /// `reduce_independent_p_g_buckets_and_remove_grads`: a gradient is copied into the bucket, which is reduced before where
    /// it has no room. One that is larger than the bucket stays where it is.
    fn collect(&mut self, heap: &mut Heap, params: &mut Params, place: u32, steps: bool) {
        let Trained { id, numel, .. } = self.trained[place as usize];
        if self.elements.saturating_add(numel) > self.bucket_size {
            self.reduce(heap, params, steps);
        }
        if self.contiguous && numel <= self.bucket_size {
            let grad = std::mem::replace(&mut params.list[id as usize].grad, NOTHING);
            heap.release(grad);
        } else if self.offloads() {
            // `_offload_gradient_safety_enabled`
            let bytes = numel.saturating_mul(self.compute.bytes());
            let clone = heap.alloc_as(Category::Gradients, bytes, self.compute, &CLONE);
            heap.release(std::mem::replace(&mut params.list[id as usize].grad, clone));
        }
        self.elements = self.elements.saturating_add(numel);
        self.waiting.push(place);
    }

    /// `reduce_ipg_grads`: the gradients that wait are averaged; those of other partitions go, and this rank's are copied out
    /// of the bucket, or go to the CPU's memory, in the last micro-batch of a step in float32.
    fn reduce(&mut self, heap: &mut Heap, params: &mut Params, steps: bool) {
        if self.waiting.is_empty() {
            return;
        }
        self.average(heap);
        if self.partitions_gradients {
            self.all_reduce(heap, self.elements);
        }
        self.elements = 0;
        // the bucket's list holds them until it is cleared, which Python does from its end
        let mut cleared = Vec::with_capacity(self.waiting.len());
        for place in std::mem::take(&mut self.waiting) {
            let id = self.trained[place as usize].id as usize;
            if !self.is_own(place) {
                if self.partitions_gradients {
                    cleared.push(std::mem::replace(&mut params.list[id].grad, NOTHING));
                }
            } else if self.offloads() {
                let (stream, numel) = (self.reduces_on(), self.own_part(place));
                if steps && let Some(offload) = &mut self.offload {
                    offload.send(heap, stream, numel, u64::MAX);
                    heap.release(std::mem::replace(&mut params.list[id].grad, NOTHING));
                }
            } else if self.contiguous {
                // `copy_grads_in_partition`
                if self.reduced == NOTHING {
                    let own = self.trained.iter().filter(|trained| self.has_part(trained));
                    let numel = own.fold(0u64, |sum, trained| sum.saturating_add(trained.numel));
                    let bytes = numel.saturating_mul(self.compute.bytes());
                    self.reduced =
                        heap.alloc_on(self.reduces_on(), Category::Gradients, bytes, self.compute, &OWNED);
                }
                heap.release(std::mem::replace(&mut params.list[id].grad, NOTHING));
            }
        }
        cleared.into_iter().rev().for_each(|grad| heap.release(grad));
    }

    /// `allreduce_bucket`.
    fn all_reduce(&self, heap: &mut Heap, numel: u64) {
        let bytes = numel.saturating_mul(self.compute.bytes());
        heap.send_around(Group::Data, bytes.saturating_mul(2), self.world);
    }

    /// The stream on which gradients are reduced and copied out of the bucket.
    fn reduces_on(&self) -> Stream {
        if self.overlaps { Stream::Scatters } else { Stream::Compute }
    }

    /// Elements of that parameter that this rank's partition, the first, has.
    fn own_part(&self, place: u32) -> u64 {
        let Trained { numel, group, offset, .. } = self.trained[place as usize];
        numel.min(self.partitions[group].saturating_sub(offset))
    }

    /// Whether this rank's partition, the first, has a part of that parameter.
    fn has_part(&self, trained: &Trained) -> bool {
        trained.offset < self.partitions[trained.group]
    }

    /// The same of the parameter at that place.
    fn is_own(&self, place: u32) -> bool {
        self.has_part(&self.trained[place as usize])
    }

    /// `average_tensor` and `allreduce_and_scatter`: the slices that fall to the ranks are laid out in one tensor as soon as
    /// they are more elements than a bucket has; one slice alone is reduced where it is.
    fn average(&self, heap: &mut Heap) {
        let flatten = |heap: &mut Heap, slices: u64, numel: u64| {
            if slices > 1 {
                let bytes = numel.saturating_mul(self.compute.bytes());
                let flat =
                    heap.alloc_on(self.reduces_on(), Category::Temporaries, bytes, self.compute, &FLATTENED);
                heap.release(flat);
            }
        };
        if !self.contiguous {
            // `buffered_reduce_fallback`: as many tensors as gradients
            return flatten(heap, self.waiting.len() as u64, self.elements);
        }
        let partition = |group: usize| self.partitions[group].max(1);
        if self.elements <= self.bucket_size {
            // neighbours of a rank are one slice
            let ends = |place: &u32| {
                let Trained { group, offset, numel, .. } = self.trained[*place as usize];
                let rank = |element: u64| element / partition(group);
                [rank(offset), rank(offset.saturating_add(numel).saturating_sub(1))]
            };
            let mut ranks = self.waiting.iter().flat_map(ends);
            let first = ranks.next();
            let is_one = ranks.all(|rank| Some(rank) == first);
            return flatten(heap, if is_one { 1 } else { 2 }, self.elements);
        }
        // a gradient by itself that is larger than the bucket
        for place in &self.waiting {
            let Trained { group, offset: mut at, numel: mut left, .. } = self.trained[*place as usize];
            let partition = partition(group);
            while left > 0 {
                let room = partition - at % partition;
                let further = match self.bucket_size.checked_sub(room) {
                    Some(more) => more / partition + 1,
                    None => 0,
                };
                let most = room.saturating_add(further.saturating_mul(partition));
                let piece = most.min(left);
                flatten(heap, if piece > room { 2 } else { 1 }, piece);
                // those behind it that are like it change nothing
                let times = if room == partition { (left / most).max(1) } else { 1 };
                let taken = piece.saturating_mul(times).min(left);
                at = at.saturating_add(taken);
                left -= taken;
            }
        }
    }

    /// The backward pass is through (`allreduce_gradients`, `independent_gradient_partition_epilogue`).
    pub fn leave_backward(&mut self, heap: &mut Heap, params: &mut Params, steps: bool) {
        if !self.partitions_gradients {
            if !steps {
                // gradients are added up where they are
                self.accumulates = true;
                return;
            }
            // `reduce_gradients`: one parameter after the other
            for place in 0..self.trained.len() as u32 {
                if !self.overlaps && self.trained[place as usize].arrived {
                    self.collect(heap, params, place, steps);
                }
            }
        }
        self.reduce(heap, params, steps);
        self.accumulates |= !steps;
        let mut own = vec![std::mem::replace(&mut self.reduced, NOTHING)];
        for trained in &self.trained {
            let grad = std::mem::replace(&mut params.list[trained.id as usize].grad, NOTHING);
            if self.has_part(trained) && self.offload.is_none() {
                // `get_all_grad_tensors`: of what nothing ran there are zeros
                let zeros = |heap: &mut Heap| {
                    let bytes = trained.numel.saturating_mul(self.compute.bytes());
                    heap.alloc_as(Category::Gradients, bytes, self.compute, &ZEROS)
                };
                own.push(if trained.arrived { grad } else { zeros(heap) });
            } else {
                heap.release(grad);
            }
        }
        let came = |trained: &&Trained| trained.arrived && self.has_part(trained);
        self.is_shared = self.trained.iter().filter(came).any(|trained| trained.group > 0);
        self.trained.iter_mut().for_each(|trained| trained.arrived = false);
        if self.averaged.is_empty() {
            self.averaged = own;
        } else {
            // added to those of earlier micro-batches
            own.into_iter().rev().for_each(|grad| heap.release(grad));
        }
        // `_release_ipg_buffers`
        for buffer in &mut self.buffers {
            heap.release(std::mem::replace(buffer, NOTHING));
        }
    }

    /// `step` up to the optimizer's: the norm of every gradient of the partitions, in float64, then their float32 gradients. The second
    /// group, of few elements, has its own beside those of the first here, where DeepSpeed steps one after the other.
    pub fn enter_step(&mut self, heap: &mut Heap) {
        if !self.partitions_gradients {
            // in the last micro-batch, and so once a step
            self.all_reduce(heap, self.partition().saturating_mul(self.world));
        }
        if self.offloads() {
            return;
        }
        let mut tensors = vec![0u64; self.partitions.len()];
        for place in (0..self.trained.len() as u32).filter(|place| self.is_own(*place)) {
            let numel = self.own_part(place);
            let wide = scratch(heap, numel, Dtype::F64, &NORM);
            heap.release(wide);
            tensors[self.trained[place as usize].group] += 1;
        }
        for (partition, tensors) in self.partitions.iter().zip(tensors) {
            let flat =
                if tensors > 1 { scratch(heap, *partition, self.compute, &FLAT_GRADIENT) } else { NOTHING };
            let bytes = partition.saturating_mul(Dtype::F32.bytes());
            self.single.push(heap.alloc_as(Category::Gradients, bytes, Dtype::F32, &FLAT_GRADIENT));
            heap.release(flat);
        }
        // of all groups' gradients there is one tensor, which goes with those of the last group that has any in it
        let kept = usize::from(self.is_shared).min(self.averaged.len());
        // a list lets go of its last one first
        self.averaged.drain(kept..).rev().for_each(|grad| heap.release(grad));
    }

    /// The optimizer has stepped: the partitions are gathered in the flat tensor (`all_gather_dp_groups`).
    pub fn leave_step(&mut self, heap: &mut Heap) {
        let whole = self.partition().saturating_mul(self.world).saturating_mul(self.compute.bytes());
        heap.send_around(Group::Data, whole, self.world);
        self.single.drain(..).for_each(|gradient| heap.release(gradient));
        self.averaged.drain(..).for_each(|grad| heap.release(grad));
        self.offload.iter_mut().for_each(|offload| offload.leave_step(heap));
    }
}

/// Something that stays until the end.
pub(super) fn keep(heap: &mut Heap, numel: u64, dtype: Dtype, category: Category, what: &'static What) {
    heap.persistent(numel.saturating_mul(dtype.bytes()), dtype, 1, category, what);
}

pub(super) fn scratch(heap: &mut Heap, numel: u64, dtype: Dtype, what: &'static What) -> StorageId {
    heap.alloc_as(Category::Temporaries, numel.saturating_mul(dtype.bytes()), dtype, what)
}

#[cfg(test)]
mod tests;
