//! PyTorch's DistributedDataParallel: every gradient is copied into a flat bucket, which is reduced, and back; or, under
//! `gradient_as_bucket_view=True`, its part of the bucket takes the gradient's place.
//!
//! Source: torch/nn/parallel/distributed.py and torch/csrc/distributed/c10d/reducer.cpp of PyTorch 2.11.

use std::ops::Range;

use super::finds_unused;
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch, Job, Member};
use crate::memory::Category;
use crate::model::Architecture;
use crate::model::blocks::{Param, ParamRole};
use crate::scenario::{Cluster, VisionTower};
use crate::step::heap::{Heap, StorageId};
use crate::step::params::{ParamId, Parameter, Params};
use crate::step::what::{Source, What};
use crate::work::Group;

const REDUCER: Source = Source::At("PyTorch, torch/csrc/distributed/c10d/reducer.cpp");

pub(super) static BUCKET: What = What::own(
    "gradient bucket",
    "the flat tensor that gradients are copied into and averaged in; then they are copied out of it, or are views of it",
    REDUCER,
);
static ORDER: What =
    What::own("bucket order", "the order of the gradients, which the first rank tells the others", REDUCER);
static BUFFERS: What = What::own(
    "coalesced buffers",
    "the model's buffers in one tensor, as the first rank has them",
    Source::At("PyTorch, torch/nn/parallel/distributed.py"),
);

/// Limits of the first bucket and of all later ones (`_DEFAULT_FIRST_BUCKET_BYTES`, `bucket_cap_mb=25`).
const LIMITS: [u64; 2] = [1 << 20, 25 << 20];
/// Buffers are broadcast so many bytes at a time (`broadcast_bucket_size`).
const BROADCAST: u64 = 250 << 20;

/// What DDP keeps.
#[derive(Default)]
pub(in crate::step) struct Ddp {
    /// How many GPUs have the model.
    world: u64,
    /// Bytes of all gradients.
    averaged: u64,
    buckets: Vec<StorageId>,
    /// How many parameters are trained.
    trained: usize,
    /// Parameters in the order in which their gradients came in the first backward pass.
    arrived: Vec<ParamId>,
    /// Whether the buckets were made anew by that order.
    rebuilt: bool,
    /// `find_unused_parameters`: the buckets stay as they were made.
    finds_unused: bool,
    /// `gradient_as_bucket_view`: what is reduced is the gradient.
    views: bool,
    /// Bytes of the model's buffers by element type.
    buffers: Vec<(Dtype, u64)>,
}

impl Ddp {
    /// Before there is a model.
    pub fn of(cluster: Cluster, finds_unused: bool) -> Ddp {
        Ddp { world: cluster.gpus, views: cluster.bucket_views, finds_unused, ..Ddp::default() }
    }

    /// Whether unused parameters are looked for.
    pub fn finds_unused(&self) -> bool {
        self.finds_unused
    }

    /// The reducer is made: as long as no order is known there is one bucket for all gradients of an element type
    /// (`_ddp_init_helper`: `bucket_size_limits = [sys.maxsize]`). Where unused parameters are looked for they are filled in the
    /// order of the model's instead, and stay so.
    pub fn wrap(&mut self, heap: &mut Heap, all: &Params, own: &Range<usize>) {
        let params = all.of(own);
        for storage in heap.storages.iter().filter(|storage| storage.category == Category::Buffers) {
            add(&mut self.buffers, storage.dtype, storage.requested.saturating_mul(u64::from(storage.times)));
        }
        self.trained = params.iter().filter(|param| param.trainable).count();
        let mut flat = Vec::new();
        for param in params.iter().filter(|param| param.trainable) {
            add(&mut flat, param.dtype, bytes(param).saturating_mul(u64::from(param.times)));
        }
        self.averaged = flat.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
        if self.finds_unused {
            let trained = own.clone().map(|id| id as ParamId).filter(|id| all.get(*id).trainable);
            (self.arrived, self.rebuilt) = (trained.collect(), true);
            flat = self.assign(all);
            self.arrived = Vec::new();
        }
        self.buckets = flat.into_iter().map(|(dtype, bytes)| bucket(heap, dtype, bytes)).collect();
    }

    /// A gradient is there (`Reducer::autograd_hook`): its place in the first backward pass is remembered. In the last micro-batch, whose
    /// gradients are reduced, a view of the bucket takes its place (`mark_variable_ready_dense`).
    pub fn arrived(&mut self, heap: &mut Heap, params: &mut Params, param: ParamId, is_last: bool) {
        if !self.rebuilt {
            self.arrived.push(param);
        }
        let Some(bucket) = self.buckets.first().copied().filter(|_| self.views && is_last) else { return };
        let grad = &mut params.list[param as usize].grad;
        if *grad != bucket {
            // which bucket makes no difference: all of them stay
            heap.retain(bucket);
            heap.release(std::mem::replace(grad, bucket));
        }
    }

    /// `_pre_forward`: the buckets are made anew once the order is known, and the buffers of the first rank are broadcast.
    /// Whether a trained parameter had no gradient: without `find_unused_parameters` PyTorch stops then ("Expected to have
    /// finished reduction in the prior iteration").
    #[must_use]
    pub fn enter_forward(&mut self, heap: &mut Heap, params: &Params) -> bool {
        let lacks = !self.rebuilt && !self.arrived.is_empty() && self.arrived.len() < self.trained;
        if !self.rebuilt && !self.arrived.is_empty() {
            self.rebuild(heap, params);
        }
        for (_, bytes) in &self.buffers {
            heap.scratch((*bytes).min(BROADCAST), &BUFFERS);
        }
        lacks
    }

    /// All gradients were averaged, once a step: trainers leave the micro-batches before the last unreduced (`no_sync`).
    pub fn enter_step(&self, heap: &mut Heap) {
        heap.send_around(Group::Data, self.averaged.saturating_mul(2), self.world);
    }

    /// `Reducer::rebuild_buckets`: the ranks agree on the order, then the old buckets go and the new ones come.
    fn rebuild(&mut self, heap: &mut Heap, params: &Params) {
        self.rebuilt = true;
        let sizes = self.assign(params);
        let all: u64 = self.arrived.iter().map(|id| u64::from(params.get(*id).times)).sum();
        let alloc = |heap: &mut Heap, count: u64| {
            heap.alloc_as(Category::Temporaries, count.saturating_mul(4), Dtype::U8, &ORDER)
        };
        let order = alloc(heap, all + 1);
        let count = alloc(heap, sizes.len() as u64);
        heap.release(count);
        heap.release(order);
        self.buckets.drain(..).for_each(|bucket| heap.release(bucket));
        self.buckets = sizes.into_iter().map(|(dtype, bytes)| bucket(heap, dtype, bytes)).collect();
        self.arrived = Vec::new();
    }

    /// `compute_bucket_assignment_by_size`: a bucket is full as soon as it has reached its limit; those of each element type
    /// are filled by themselves.
    fn assign(&self, params: &Params) -> Vec<(Dtype, u64)> {
        let mut full = Vec::new();
        let mut open: Vec<(Dtype, u64)> = Vec::new();
        let mut begun: Vec<Dtype> = Vec::new();
        let body = |id: &ParamId| params.get(*id).body;
        for body in self.arrived.chunk_by(|one, next| body(one) == body(next)) {
            // one layer stands for many: its parameters come as often
            let times = body.first().map_or(1, |id| params.get(*id).times);
            for id in (0..times).flat_map(|_| body) {
                let param = params.get(*id);
                let filled = add(&mut open, param.dtype, bytes(param));
                let limit = LIMITS[usize::from(begun.contains(&param.dtype))];
                if filled >= limit {
                    open.retain(|(dtype, _)| *dtype != param.dtype);
                    begun.push(param.dtype);
                    full.push((param.dtype, filled));
                }
            }
        }
        full.extend(open);
        full
    }
}

/// An issue where DDP waits for gradients that never come: of a trained tower beside text alone, or of its adapters.
pub(super) fn all_learn(job: &Job, member: &Member, architecture: &Architecture) -> Result<(), Issue> {
    let is_idle = |batch: Batch| batch.pictures.count == 0 && batch.pictures.tower != VisionTower::Frozen;
    let learns = |param: &Param| {
        let path = param.name.trim_end_matches(".weight");
        !member.adapts || param.role == ParamRole::LinearWeight && member.adapts_beside(path)
    };
    let waits = job.round.iter().filter_map(Act::batch).all(is_idle)
        && architecture.towers.iter().flat_map(|tower| &tower.params).any(learns);
    if !waits || finds_unused(member, architecture) {
        return Ok(());
    }
    let message = format!(
        "text alone leaves the tower of {}, {}, without gradients, and DDP stops in the second step (\"Expected to have finished reduction in the prior \
         iteration before starting a new one\") unless it looks for unused parameters (find_unused_parameters=True), as trl has it done but under \
         reentrant checkpoints",
        architecture.model_type,
        if member.adapts { "whose layers have adapters" } else { "which is trained" }
    );
    let fix = "freeze the tower (vision-tower frozen), or choose FSDP2 or one of DeepSpeed's stages";
    Err(Issue::error(Field::VisionTower, message).with_fix(fix))
}

/// Bytes of a parameter's gradient.
fn bytes(param: &Parameter) -> u64 {
    param.numel.saturating_mul(param.dtype.bytes())
}

/// Adds to the sum of an element type and returns it.
fn add(sums: &mut Vec<(Dtype, u64)>, dtype: Dtype, bytes: u64) -> u64 {
    match sums.iter_mut().find(|(own, _)| *own == dtype) {
        Some((_, sum)) => {
            *sum = sum.saturating_add(bytes);
            *sum
        }
        None => {
            sums.push((dtype, bytes));
            bytes
        }
    }
}

fn bucket(heap: &mut Heap, dtype: Dtype, bytes: u64) -> StorageId {
    heap.alloc_as(Category::Gradients, bytes, dtype, &BUCKET)
}
