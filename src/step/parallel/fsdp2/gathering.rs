//! How a unit of FSDP2 becomes whole: its shards are gathered rank after rank, and every parameter is copied out of what came.

use super::{BLOCK_BYTES, CHUNKS, COLLECTIVES, Fsdp2, PARAM};
use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::memory::Category;
use crate::step::float8::casts::{Cast, Float8Tensor, Over, Whole};
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::params::{DOUBLE_QUANT_BLOCK, Kept, Parameter, Params, QUANT_BLOCK};
use crate::step::what::{Dims, Source, What};
use crate::work::Group;

pub(super) static GATHER_INPUT: What = What::own(
    "all-gather input",
    "this rank's shards of a layer, in the type that they are gathered in",
    COLLECTIVES,
);
static FETCHED: What =
    What::own("fetched shard", "this rank's shard of a parameter, copied from the CPU", PARAM);
pub(super) static GATHER_OUTPUT: What =
    What::own("all-gather output", "all ranks' shards of a layer, rank after rank", COLLECTIVES);
pub(super) static GATHERED: What =
    What::own("gathered parameter", "a whole parameter, there while its layer runs", PARAM);
static SAVED: What = What::own(
    "gathered parameter",
    "a whole parameter on its way into a checkpoint",
    Source::At("PyTorch, torch/distributed/_state_dict_utils.py"),
);
static SPLIT: What =
    What::own("split_with_sizes_copy (offsets)", "where the kernel finds what it copies", CHUNKS);

impl Fsdp2 {
    /// Bytes of a shard's tensors as they are gathered, one after the other: one in the type that is computed in, or of torchao's 4-bit
    /// weight its scales, their factors and the packed weight (`fsdp_pre_all_gather` of NF4Tensor), or 8 bits for each number.
    fn pieces(&self, param: &Parameter) -> impl Iterator<Item = u64> + use<> {
        let kept = param.kept;
        let compute = if comes_in_8_bits(param) { 1 } else { self.compute.bytes() };
        let pieces = match kept.dtype {
            Dtype::U8 => {
                let scales = kept.numel.saturating_mul(2) / QUANT_BLOCK;
                [scales, (scales / DOUBLE_QUANT_BLOCK).saturating_mul(compute), kept.numel]
            }
            _ => [0, 0, kept.numel.saturating_mul(compute)],
        };
        pieces.into_iter().filter(move |bytes| *bytes > 0)
    }

    /// Whether two units are gathered in as many bytes, parameter by parameter.
    pub(super) fn is_gathered_alike(&self, params: &Params, units: [usize; 2]) -> bool {
        let [one, other] = units.map(|unit| {
            let pieces = self.units[unit].params.iter().flat_map(|id| self.pieces(params.get(*id)));
            pieces.collect::<Vec<u64>>()
        });
        one == other
    }

    /// `foreach_all_gather`: the shards in the type that they are gathered in, where that is another, then all ranks'.
    /// A single GPU has nothing to gather.
    pub(super) fn gather(&self, heap: &mut Heap, params: &Params, unit: usize) -> StorageId {
        if self.world == 1 {
            return NOTHING;
        }
        let stream = match self.reference() {
            Some(reference) if reference == unit => Stream::OtherGathers,
            // what is not asked for ahead is gathered where it is read (`get_all_gather_streams`)
            _ if self.is_unhooked(unit) => Stream::Compute,
            _ => Stream::Gathers,
        };
        let unit = &self.units[unit];
        let bytes = |own: &mut dyn Iterator<Item = (&Parameter, u32)>| {
            let each = own.map(|(param, times)| self.pieces(param).sum::<u64>().saturating_mul(times.into()));
            each.fold(0, u64::saturating_add)
        };
        let own = || unit.params.iter().map(|id| params.get(*id));
        let counted = || own().zip(unit.times.iter().copied());
        let is_cast = |param: &Parameter| {
            param.kept.dtype != self.compute && param.kept.dtype != Dtype::U8 && !comes_in_8_bits(param)
        };
        let in_8_bits = own().filter(|param| comes_in_8_bits(param));
        let in_8_bits: Vec<Float8Tensor> = in_8_bits.map(|param| cast_shard(heap, param)).collect();
        let cast = bytes(&mut counted().filter(|(param, _)| is_cast(param)));
        let all = bytes(&mut counted());
        let alloc = |heap: &mut Heap, bytes: u64, operation: &'static What| {
            heap.alloc_on(stream, Category::WeightCopies, bytes, self.compute, operation)
        };
        let inputs = if self.offloads {
            own().map(|param| self.fetch(heap, param.kept, stream)).collect()
        } else {
            Vec::from_iter((cast > 0).then(|| alloc(heap, cast, &GATHER_INPUT)))
        };
        let whole = all.saturating_mul(self.world);
        let output = alloc(heap, whole, &GATHER_OUTPUT);
        heap.send_around(Group::Data, whole, self.world);
        inputs.into_iter().rev().for_each(|input| heap.release(input));
        in_8_bits.into_iter().for_each(|shard| shard.release(heap));
        output
    }

    /// `all_gather_inputs` of a shard on the CPU: it is copied as it is and cast then.
    fn fetch(&self, heap: &mut Heap, kept: Kept, stream: Stream) -> StorageId {
        let mut alloc = |dtype: Dtype| {
            let bytes = kept.numel.saturating_mul(dtype.bytes());
            heap.alloc_on(stream, Category::WeightCopies, bytes, dtype, &FETCHED)
        };
        let copy = alloc(kept.dtype);
        if kept.dtype == self.compute {
            return copy;
        }
        let cast = alloc(self.compute);
        heap.release(copy);
        cast
    }

    /// `_gather_state_dict`: one parameter after the other becomes whole, padding and all, in the type that it is kept in.
    pub fn gather_for_checkpoint(&self, heap: &mut Heap, params: &[Parameter]) {
        for Parameter { kept, .. } in params {
            let shard = kept.numel.saturating_mul(kept.dtype.bytes());
            let mut alloc = |bytes: u64, what: &'static What| {
                heap.alloc_as(Category::WeightCopies, bytes, kept.dtype, what)
            };
            let fetched = self.offloads.then(|| alloc(shard, &FETCHED));
            let whole = alloc(shard.saturating_mul(self.world), &SAVED);
            fetched.into_iter().chain([whole]).for_each(|storage| heap.release(storage));
        }
    }

    /// `foreach_all_gather_copy_out`: every parameter by itself.
    pub(super) fn copy_out(&mut self, heap: &mut Heap, params: &Params, unit: usize) {
        let (world, compute) = (self.world, self.compute);
        if world == 1 {
            return self.copy_alone(heap, params, unit);
        }
        let mut pieces = Vec::with_capacity(self.units[unit].params.len());
        for (id, times) in self.units[unit].params.iter().zip(&self.units[unit].times) {
            pieces.extend(self.pieces(params.get(*id)).map(|bytes| (bytes, *times)));
        }
        let whole = |(bytes, times): &(u64, u32)| {
            let bytes = bytes.saturating_mul(world);
            match times {
                1 => heap.alloc_as(Category::WeightCopies, bytes, compute, &GATHERED),
                times => heap.persistent(bytes, compute, *times, Category::WeightCopies, &GATHERED),
            }
        };
        self.units[unit].gathered = pieces.iter().map(whole).collect();
        let shards = pieces.iter().flat_map(|(bytes, times)| (0..*times).map(|_| *bytes));
        let scratch = split_scratch(heap.device, &Vec::from_iter(shards), world);
        heap.scratch(scratch, &SPLIT);
    }
}

impl Fsdp2 {
    /// `wait_for_unshard` over a world of one: every parameter is copied out of its shard, which is cast before it. Two casts are there at a
    /// time, as a variable holds the one before until the next is made.
    fn copy_alone(&mut self, heap: &mut Heap, params: &Params, unit: usize) {
        let compute = self.compute;
        let (mut gathered, mut cast) = (Vec::with_capacity(self.units[unit].params.len()), NOTHING);
        for id in &self.units[unit].params {
            let kept = params.get(*id).kept;
            let bytes = kept.numel.saturating_mul(compute.bytes());
            if kept.dtype != compute {
                let input = heap.alloc_as(Category::WeightCopies, bytes, compute, &GATHER_INPUT);
                heap.release(std::mem::replace(&mut cast, input));
            }
            gathered.push(heap.alloc_as(Category::WeightCopies, bytes, compute, &GATHERED));
        }
        heap.release(cast);
        self.units[unit].gathered = gathered;
    }
}

/// Whether a parameter is gathered in 8 bits.
fn comes_in_8_bits(param: &Parameter) -> bool {
    param.float8.is_some_and(|recipe| recipe.gathers)
}

/// `fsdp_pre_all_gather` of torchao's `WeightWithDynamicFloat8CastTensor`: the shard in 8 bits, with one scale that all ranks agree on.
fn cast_shard(heap: &mut Heap, param: &Parameter) -> Float8Tensor {
    let kept = param.kept;
    let dims = Dims::Parameter(kept.rows, kept.numel / kept.rows.max(1), param.rank);
    let shard = Whole::weight(kept.numel, kept.dtype, dims, Stream::Gathers);
    Cast { rounds: false }.of(heap, shard, Over::All { transposed: false })
}

/// Threads of a block.
const BLOCK_THREADS: u64 = 128;

/// What `split_with_sizes_copy` tells its kernel of every tensor, of so many bytes, and block (aten/src/ATen/native/cuda/TensorShape.cu).
fn split_scratch(device: Device, shards: &[u64], world: u64) -> u64 {
    let blocks =
        |each: u64| -> u64 { shards.iter().map(|bytes| bytes.div_ceil(each)).fold(0, u64::saturating_add) };
    let at_a_time = device.multiprocessors.saturating_mul(device.threads / BLOCK_THREADS).saturating_mul(2);
    let repeats = blocks(BLOCK_BYTES).saturating_mul(world).div_ceil(at_a_time.max(1)).max(1);
    // spread evenly between ranks' chunks that a block copies and what it repeats within each
    let root = repeats.isqrt();
    let chunks = if root * root < repeats { root + 1 } else { root }.min(world).max(1);
    let rounds = repeats.div_ceil(chunks);
    let numbers = blocks(BLOCK_BYTES.saturating_mul(rounds)).saturating_add(4 * shards.len() as u64 + 1);
    numbers.saturating_mul(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;

    /// As PyTorch 2.11 asked for it on the null device (compute capability 8.0): embedding, norm and head of a model of 128,256 entries and
    /// 2,048 numbers, gathered in 16 bits among two GPUs.
    #[test]
    fn a_copy_is_spread_over_ranks_and_repeats() {
        let device = Device::of(&gpu("a100-sxm-40gb").expect("it is in the catalogue"));
        let table = 128_256 / 2 * 2_048 * 2;
        assert_eq!(split_scratch(device, &[table, 2_048 / 2 * 2, table], 2), 27_488);
    }
}
