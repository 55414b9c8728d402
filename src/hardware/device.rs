//! The card, as far as kernels are chosen and launched by it.

use super::gpu::Gpu;
use crate::units::Bytes;

/// What kernels are chosen and launched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Compute capability times ten: 80 for 8.0.
    pub capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u64,
    /// Threads that one multiprocessor runs at a time.
    pub threads: u64,
    /// Bytes of one cuBLAS workspace: the user's (`CUBLAS_WORKSPACE_CONFIG`), or PyTorch's (ATen/cuda/CUDABlas.cpp `parseChosenWorkspaceSize`: 32 MiB on 9.0,
    /// 4096 KiB · 2 + 16 KiB · 8 elsewhere; seen on 8.9, 9.0, 10.0 and 12.0).
    pub workspace: u64,
    /// Bytes of the second-level cache, `cudaDeviceProp`'s `l2CacheSize`. Those of 8.0, 8.6 and 9.0 are what the null device answers
    /// (tools/null_device/nullcuda/nullcuda.c), with which rows were measured; the others no file of this project has a source for. It
    /// matters under Megatron's fused loss alone, where the first step's trial of kernels is the peak.
    pub cache: u64,
    /// Whether it has no more memory than what Unsloth calls a small card (`_SMALL_CARD_BYTES`, 24.5 GiB), for which its loss is
    /// computed otherwise.
    pub is_small: bool,
}

/// Unsloth's `_SMALL_CARD_BYTES`.
const SMALL_CARD: Bytes = Bytes(49 << 29);

/// Whether both run every step alike, event by event: what differs is how much they have room for.
pub(crate) fn run_alike(one: &Gpu, other: &Gpu) -> bool {
    Device::of(one) == Device::of(other)
}

impl Device {
    /// Whether 8-bit products with a scale for each row are CUTLASS's: cuBLASLt has them on 9.0 alone
    /// (aten/src/ATen/native/cuda/ScaledBlas.cpp).
    pub fn has_cutlass_by_row(&self) -> bool {
        !(90..100).contains(&self.capability)
    }

    /// Whether these are of the kind whose blocks share tiles.
    pub fn shares_tiles(&self) -> bool {
        self.capability < 90
    }

    pub fn of(gpu: &Gpu) -> Device {
        let capability = gpu
            .capability
            .map_or(80, |capability| u32::from(capability.major) * 10 + u32::from(capability.minor));
        // Multiprocessors of one card of each generation (T4, A100, RTX 3090, RTX 4090, H100, B200) for all of them: the
        // catalogue says nothing of a card's own, an RTX 3060 (28) runs as a 3090 (82). They size the scratch space of large
        // sums, choose bitsandbytes' kernel for products of few tokens (`four_bit`), split flash's keys and values over
        // blocks (`splits`) and are the rows of Liger's partial sums. Seven scenarios on a 3090 (4-bit, LoRA, full, Liger,
        // 128 to 4096 tokens) peak alike with 28 and with 128.
        let (multiprocessors, threads, cache) = match capability {
            0..=75 => (40, 1024, 4 << 20),
            76..=80 => (108, 2048, 40 << 20),
            81..=86 => (82, 1536, 6 << 20),
            87..=89 => (128, 1536, 72 << 20),
            90..=99 => (132, 2048, 60 << 20),
            _ => (148, 2048, 126 << 20),
        };
        let usual = if (90..100).contains(&capability) { 33_554_432 } else { 8_519_680 };
        let workspace = gpu.workspace.map_or(usual, |bytes| bytes.0);
        let is_small = gpu.memory <= SMALL_CARD;
        Device { capability, multiprocessors, threads, workspace, cache, is_small }
    }
}
