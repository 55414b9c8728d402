//! ZeRO-Offload: float32 masters, their gradients and the optimizer are in the CPU's memory, and a gradient passes through the
//! GPU on its way there.
//!
//! Source: deepspeed/runtime/zero/stage_1_and_2.py (`copy_grads_in_partition`) and stage3.py (`partition_grads`) of DeepSpeed
//! 0.19.8. The order of events was compared with the allocator's trace.

use super::zero::keep;
use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::{Cluster, CpuOffload};
use crate::step::heap::{Heap, StorageId};
use crate::step::what::{Source, What};

const ZERO: Source = Source::At("DeepSpeed, deepspeed/runtime/zero");

pub(super) static NORM: What = What::own("gradient in float64", "of which the norm is taken", ZERO);
static SCALAR: What =
    What::own("gradient's norm", "one number for each gradient of the partition, until the step", ZERO);
static LEAVING: What =
    What::own("gradient in float32", "this rank's part of a gradient, on its way to the CPU's memory", ZERO);
static BUFFER: What = What::own(
    "offload buffer",
    "as large as the largest trained parameter: gradients come back through it where they are accumulated",
    ZERO,
);

/// Elements of a gradient of which ZeRO-3 takes the norm at a time (`_constant_buffered_norm2`).
pub(super) const NORM_PIECE: u64 = 250_000_000;

/// What is on the GPU for the sake of an optimizer that is not.
pub(super) struct Offload {
    /// The norms of the gradients that have left (`norm_for_param_grads`).
    norms: Vec<StorageId>,
}

impl Offload {
    /// None where the optimizer is on the GPU.
    pub fn of(cluster: Cluster) -> Option<Offload> {
        match cluster.cpu {
            CpuOffload::Off => None,
            CpuOffload::Optimizer | CpuOffload::All => Some(Offload { norms: Vec::new() }),
        }
    }

    /// `temp_grad_buffer_for_gpu_offload` of a largest parameter of so many elements.
    pub fn keep_buffer(heap: &mut Heap, largest: u64, dtype: Dtype) {
        keep(heap, largest, dtype, Category::Gradients, &BUFFER);
    }

    /// So many elements of a gradient are this rank's: their norm is taken, `piece` of them at a time, and they go in float32.
    pub fn send(&mut self, heap: &mut Heap, stream: Stream, numel: u64, piece: u64) {
        let scratch = |heap: &mut Heap, numel: u64, dtype: Dtype, what: &'static What| {
            let bytes = numel.saturating_mul(dtype.bytes());
            heap.alloc_on(stream, Category::Temporaries, bytes, dtype, what)
        };
        // pieces of one length change nothing after the first
        let rest = if numel > piece { numel % piece } else { 0 };
        for part in [numel.min(piece), rest].into_iter().filter(|part| *part > 0) {
            let wide = scratch(heap, part, Dtype::F64, &NORM);
            heap.release(wide);
        }
        self.norms.push(scratch(heap, 1, Dtype::F64, &SCALAR));
        let copy = scratch(heap, numel, Dtype::F32, &LEAVING);
        heap.release(copy);
    }

    /// The optimizer has stepped (`reset_cpu_buffers`).
    pub fn leave_step(&mut self, heap: &mut Heap) {
        self.norms.drain(..).for_each(|norm| heap.release(norm));
    }
}

/// Bytes of pinned memory that PyTorch takes for so many (aten/src/ATen/core/CachingHostAllocator.h): the next power of two.
pub(in crate::step) fn pinned(bytes: u64) -> u64 {
    bytes.checked_next_power_of_two().unwrap_or(bytes)
}

/// Bytes of AdamW's two states of a partition of so many elements.
pub(super) fn states(numel: u64) -> u64 {
    numel.saturating_mul(2).saturating_mul(Dtype::F32.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Device;
    use crate::hardware::Gpu;
    use crate::units::Bytes;

    #[test]
    fn a_gradient_leaves_in_pieces_however_large_it_is() {
        let sent = |numel| {
            let cluster = Cluster { cpu: CpuOffload::Optimizer, ..Cluster::ONE };
            let mut heap = Heap::new(Device::of(&Gpu::custom(Bytes::gib(24.0))), None);
            let before = heap.storages.len();
            let mut offload = Offload::of(cluster).expect("it offloads");
            offload.send(&mut heap, Stream::Compute, numel, NORM_PIECE);
            heap.storages[before..].iter().map(|storage| storage.requested).collect::<Vec<u64>>()
        };
        assert_eq!(sent(1_000), [8_000, 8, 4_000]);
        assert_eq!(sent(600_000_000), [2_000_000_000, 800_000_000, 8, 2_400_000_000]);
        assert_eq!(sent(u64::MAX).len(), 4);
    }

    /// Bytes of the CPU's memory that each of four processes takes which train Llama 3.2 1B: 1,235,814,400 elements, of which the embedding is
    /// 128,256 × 2,048.
    fn on_host(link: &str) -> u64 {
        let link = format!("v=1&m=meta-llama/Llama-3.2-1B&method=full&gpu=80GB&gpus=4&{link}");
        let answer = crate::estimate(&crate::share::decode(&link).scenarios[0]);
        answer.memory.unwrap_or_else(|| panic!("{link}: {:?}", answer.issues)).on_host.0
    }

    /// deepspeed/runtime/zero/stage_1_and_2.py `__init__`: of a partition pinned are `single_partition_of_fp32_groups` and its gradient,
    /// `param_buffer_of_bit16_for_cpu_offload_groups` and `temp_grad_buffer_for_cpu_offload`; CPUAdam's states are not.
    #[test]
    fn zeros_partitions_in_the_cpus_memory_are_pinned_and_states_are_not() {
        let own = 1_235_814_400 / 4;
        // masters of 1.2 GB, their copies of 0.6 GB, a buffer for the embedding of 0.5 GB
        let expected = 2 * (1 << 31) + (1 << 30) + (1 << 29) + own * 8;
        assert_eq!(on_host("shard=zero2&cpu=optimizer"), expected);
        assert_eq!(on_host("shard=zero1&cpu=optimizer"), expected);
        assert_eq!(on_host("shard=zero2"), 0);
    }

    /// The same of trl, whose 33 norms are a group without weight decay, and with two micro-batches: `accumulated_grads_in_cpu` has those of the
    /// first quarter whole, which are the embedding, the first layer's matrices and nine norms.
    #[test]
    fn gradients_that_are_accumulated_are_there_whole() {
        let norms = 33 * 2048;
        let [first, second] = [1_235_814_400 - norms, norms].map(|numel| numel / 4);
        let group = |masters: u64, own: u64| 2 * masters + masters / 2 + own * 8;
        let once = group(1 << 31, first) + group(1 << 17, second) + (1 << 29);
        assert_eq!(on_host("st=trl&shard=zero2&cpu=optimizer"), once);
        let [q, k, gate] = [2048 * 2048 * 2, 512 * 2048 * 2, 8192 * 2048 * 2];
        let whole = (1 << 29) + 2 * q + 2 * k + 3 * gate + 9 * 4096;
        assert_eq!(on_host("st=trl&shard=zero2&cpu=optimizer&ga=2"), once + whole);
    }

    /// stage3.py `_create_fp32_partitions` (masters are not pinned, their gradients are), `grad_partitions_flat_buffer`, and with `offload_param`
    /// the flat parameters.
    #[test]
    fn zero_3_has_its_parameters_there_too() {
        let own = 1_235_814_400 / 4;
        let optimizer = own * (4 + 8) + (1 << 31) + (1 << 30);
        assert_eq!(on_host("shard=zero3&cpu=optimizer"), optimizer);
        assert_eq!(on_host("shard=zero3&cpu=all"), optimizer + (1 << 30));
        assert_eq!(on_host("shard=zero3"), 0);
    }

    /// `CPUOffloadPolicy(pin_memory=True)`: each shard and its gradient by themselves, and AdamW's states.
    #[test]
    fn fsdp2_pins_every_shard_by_itself() {
        let embedding = 1u64 << 28;
        let layer = 2 * (1 << 22) + 2 * (1 << 20) + 3 * (1 << 24);
        let pinned = embedding + 16 * layer + 33 * 2048;
        let states = 2 * 1_235_814_400;
        assert_eq!(on_host("p=amp-bf16&shard=fsdp2&cpu=all"), 2 * pinned + states);
        assert_eq!(on_host("p=amp-bf16&shard=fsdp2"), 0);
    }
}
