//! What becomes of a unit's gradients: they are put one behind the other, and each rank has the sum of its shards'.

use super::{BLOCK_BYTES, CHUNKS, COLLECTIVES, Fsdp2, Wrapper};
use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::params::{ParamId, Params};
use crate::step::what::What;
use crate::work::Group;

static REDUCE_INPUT: What = What::own(
    "reduce-scatter input",
    "a layer's gradients, as they are reduced: until the next layer's are",
    COLLECTIVES,
);
pub(super) static SHARDED: What =
    What::own("sharded gradients", "the averaged gradients of this rank's shards of a layer", COLLECTIVES);
static PARTS_SUMMED: What = What::own(
    "all_reduce",
    "the gradient of a norm, of which each GPU that shares a layer made a part",
    super::PARAM,
);
static PADDED: What = What::own(
    "padded gradient",
    "a float16 gradient with as many rows as all ranks' shards have, on its way into what is reduced in float32",
    CHUNKS,
);
static CONCATENATE: What = What::own("_chunk_cat (offsets)", "where the kernel finds what it copies", CHUNKS);

impl Fsdp2 {
    /// `post_backward`: the whole parameters go, then their gradients are reduced (`foreach_reduce`). What they are copied
    /// into stays until the next unit's are. transformers' Trainer has that done in the last micro-batch alone.
    pub fn reduce(&mut self, heap: &mut Heap, params: &mut Params, unit: usize, is_last: bool) {
        if self.wrapper.is_under_trainer() && !is_last {
            return self.reshard(heap, unit);
        }
        let mut grads = Vec::with_capacity(self.units[unit].params.len());
        let (mut numel, mut sizes) = (0u64, Vec::with_capacity(grads.capacity()));
        let mut uneven = Vec::new();
        let mut stored = None;
        let mut arrived = Vec::with_capacity(grads.capacity());
        for (id, shard) in self.units[unit].params.iter().zip(&self.units[unit].shards) {
            let param = &mut params.list[*id as usize];
            let grad = std::mem::replace(&mut param.grad, NOTHING);
            if grad != NOTHING {
                let is_part = self.sums_norms() && param.rows == 1;
                let grad = if is_part { self.summed(heap, grad, param.numel) } else { grad };
                grads.push(grad);
                arrived.push(*id);
                sizes.push(*shard);
                let padded = shard.saturating_mul(self.world);
                uneven.extend((padded != param.numel).then_some(padded));
                numel = numel.saturating_add(*shard);
                stored = Some(param.kept.dtype);
            }
        }
        self.reshard(heap, unit);
        let Some(stored) = stored else { return };
        heap.release(std::mem::replace(&mut self.reduced, NOTHING));
        let bytes = numel.saturating_mul(self.reduce.bytes());
        let whole = bytes.saturating_mul(self.world);
        self.reduced = heap.alloc_as(Category::Temporaries, whole, self.reduce, &REDUCE_INPUT);
        if self.compute == Dtype::F16 && self.reduce != self.compute {
            self.pad(heap, &uneven);
        } else {
            heap.scratch(concatenation_scratch(&sizes, self.reduce), &CONCATENATE);
        }
        // the list is emptied from its end, but a variable of the loop holds its last one; there is no loop where one GPU has all
        let last = if self.world > 1 { grads.pop().unwrap_or(NOTHING) } else { NOTHING };
        grads.into_iter().rev().for_each(|grad| heap.release(grad));
        let scattered = |heap: &mut Heap, stream: Stream, dtype: Dtype| {
            let bytes = numel.saturating_mul(dtype.bytes());
            heap.alloc_on(stream, Category::Gradients, bytes, dtype, &SHARDED)
        };
        let mut output = scattered(heap, Stream::Scatters, self.reduce);
        heap.send_around(Group::Data, whole, self.world);
        if self.is_replicated() {
            heap.send_around(Group::Replicas, bytes.saturating_mul(2), self.replicas);
            heap.retain(output);
            self.units[unit].all_reduced = output;
        }
        if stored != self.reduce {
            let cast_on = if self.is_replicated() { Stream::Reduces } else { Stream::Scatters };
            let cast = scattered(heap, cast_on, stored);
            heap.release(std::mem::replace(&mut output, cast));
        }
        heap.release(last);
        self.units[unit].arrived = arrived;
        self.add_to(heap, unit, output);
    }

    /// Whether norms are whole on each GPU that shares a layer and see its own tokens alone, so that each has a part of their gradients.
    fn sums_norms(&self) -> bool {
        self.parts > 1 && self.wrapper == Wrapper::Torchtitan
    }

    /// `_get_grad_inner_tensor`: what the GPUs that share a layer have of a gradient, added up.
    fn summed(&self, heap: &mut Heap, grad: StorageId, numel: u64) -> StorageId {
        let (dtype, bytes) = (self.compute, numel.saturating_mul(self.compute.bytes()));
        heap.send_around(Group::Tensor, bytes.saturating_mul(2), self.parts);
        let sum = heap.alloc_as(Category::Gradients, bytes, dtype, &PARTS_SUMMED);
        heap.release(grad);
        sum
    }

    /// The gradients of a unit's shards are there.
    fn add_to(&mut self, heap: &mut Heap, unit: usize, gradient: StorageId) {
        let own = &mut self.units[unit].grad;
        if *own == NOTHING && !self.offloads {
            *own = gradient;
        } else {
            // added to those of earlier micro-batches, or copied to the CPU
            heap.release(gradient);
        }
    }

    /// The gradient of the shard of a parameter that is alone in its unit, which nothing reduced.
    pub fn add_gradient(&mut self, heap: &mut Heap, id: ParamId, gradient: StorageId) {
        let unit = self.owners[id as usize] as usize;
        self.units[unit].arrived = vec![id];
        self.add_to(heap, unit, gradient);
    }

    /// `_chunk_cat` has a kernel that makes float32 of bfloat16, and none of float16 (`_chunk_cat_out_cuda`): gradients whose rows do not
    /// divide among the ranks are padded then, each in a tensor of its own, before they are put one behind the other.
    fn pad(&self, heap: &mut Heap, padded: &[u64]) {
        let pad = |numel: &u64| {
            let bytes = numel.saturating_mul(self.compute.bytes());
            heap.alloc_as(Category::Temporaries, bytes, self.compute, &PADDED)
        };
        let padded: Vec<StorageId> = padded.iter().map(pad).collect();
        padded.into_iter().for_each(|gradient| heap.release(gradient));
    }

    /// `_root_post_backward_final_callback`: the turn of units whose inputs need no gradient, in the order of the model's modules.
    pub fn leave_backward(&mut self, heap: &mut Heap, params: &mut Params, is_last: bool) {
        let root = self.root();
        let layers = root - self.ends.len();
        std::iter::once(root).chain(layers..root).for_each(|unit| self.reduce(heap, params, unit, is_last));
        // the embedding's, where nothing called for what was gathered ahead
        heap.release(std::mem::replace(&mut self.ahead, NOTHING));
        (0..layers).for_each(|unit| self.reduce(heap, params, unit, is_last));
        self.leave_adapters(heap, params, is_last);
        self.passes = 0;
        for unit in &mut self.units {
            heap.release(std::mem::replace(&mut unit.all_reduced, NOTHING));
        }
        heap.release(std::mem::replace(&mut self.reduced, NOTHING));
    }
}

/// What `_chunk_cat` tells its kernel of every tensor and block, whose blocks write so many bytes of the output.
fn concatenation_scratch(shards: &[u64], output: Dtype) -> u64 {
    let blocks = shards.iter().map(|numel| numel.saturating_mul(output.bytes()).div_ceil(BLOCK_BYTES));
    let blocks = blocks.fold(0, u64::saturating_add);
    blocks.saturating_add(6 * shards.len() as u64 + 2).saturating_mul(8)
}
