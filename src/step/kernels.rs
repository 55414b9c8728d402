//! Scratch space that CUDA kernels of PyTorch ask the allocator for.

mod reductions;

use super::heap::{Heap, NOTHING, StorageId};
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::memory::Category;
use crate::step::what::{Source, What, torch};
pub(super) use reductions::{column_maximum_scratch, column_sum_scratch, maximum_scratch, sum_scratch};

static PREFIX_SUMS: What = What::own(
    "masked_scatter (prefix sums)",
    "where in the source each element comes from",
    Source::At("PyTorch, aten/src/ATen/native/cuda/IndexKernel.cpp"),
);
static SCATTER_STORAGE: What = What::own(
    "masked_scatter (temporary storage)",
    "temporary storage of a running sum",
    Source::At("PyTorch, aten/src/ATen/native/cuda/IndexKernel.cpp"),
);
static NONZERO_COUNT: What = What::own(
    "nonzero (count)",
    "how many elements are not zero",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Nonzero.cu"),
);
static NONZERO_STORAGE: What = What::own(
    "nonzero (temporary storage)",
    "temporary storage of a selection",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Nonzero.cu"),
);
static SORT_SCRATCH: What = What::own(
    "sort (scratch)",
    "indices that are sorted along",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Sort.cu"),
);
static SORT_STORAGE: What = What::own(
    "sort (temporary storage)",
    "temporary storage of a radix sort",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Sort.cu"),
);
static GROUPED_ARGUMENTS: What = What::own(
    "grouped_mm (arguments)",
    "pointers and strides of every expert's product",
    Source::At("PyTorch, aten/src/ATen/native/cuda/GroupMM.cu"),
);
static GROUPED_WORKSPACE: What = What::own(
    "grouped_mm (workspace)",
    "scratch space of the experts' products",
    Source::At("PyTorch, aten/src/ATen/native/cuda/GroupMM.cu"),
);
static SORTED_IDS: What = What::own(
    "sorted ids",
    "token ids in order, for the embedding's gradient",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Embedding.cu"),
);
static ORIGINAL_POSITIONS: What = What::own(
    "original positions",
    "where the sorted token ids were, for the embedding's gradient",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Embedding.cu"),
);
static EMBEDDING_SUMS: What = What::own(
    "embedding (partial sums)",
    "partial sums of the embedding's gradient",
    Source::At("PyTorch, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu"),
);
static EMBEDDING_SEGMENTS: What = What::own(
    "embedding (segments)",
    "where the rows of one token begin, for the embedding's gradient",
    Source::At("PyTorch, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu"),
);
static EMBEDDING_STORAGE: What = What::own(
    "embedding (temporary storage)",
    "temporary storage of the embedding's gradient",
    Source::At("PyTorch, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu"),
);
static LINEAR_INDEX: What = What::own(
    "linear index",
    "where each row is added to",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Indexing.cu"),
);
static STRIDED_INDEX: What = What::own(
    "index · stride",
    "where each row is added to",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Indexing.cu"),
);
static SORTED_INDEX: What = What::own(
    "sorted index",
    "where each row is added to, in order",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Indexing.cu"),
);

/// The most rows for which an embedding's gradient is summed without sorting (`embedding_dense_backward_cuda`).
const UNSORTED_ROWS: u64 = 3072;

/// The order of an embedding's rows, sorted by token id: kept until its gradient is there.
///
/// Source: aten/src/ATen/native/cuda/Embedding.cu `embedding_dense_backward_cuda`.
pub(super) fn embedding_order(heap: &mut Heap, rows: u64) -> [StorageId; 2] {
    if rows <= UNSORTED_ROWS {
        return [NOTHING; 2];
    }
    let order =
        [heap.alloc(rows, Dtype::I64, &SORTED_IDS), heap.alloc(rows, Dtype::I64, &ORIGINAL_POSITIONS)];
    let range = heap.alloc(rows, Dtype::I64, &torch::POSITIONS);
    heap.scratch(radix_sort_bytes(heap.device, rows, 64), &SORT_STORAGE);
    heap.release(range);
    order
}

/// Scratch of an embedding's gradient over sorted rows: positions of segments of one token each and, for every ten rows
/// of a segment, a float32 partial sum. How many segments there are is only known on the device: there are no more than
/// rows and no more than entries of the table.
///
/// Source: aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu (`NROWS_PER_THREAD` is 10).
pub(super) fn embedding_scratch(heap: &mut Heap, rows: u64, width: u64, entries: u64) {
    const ROWS_PER_THREAD: u64 = 10;
    const SCAN_BYTES: u64 = 1279;
    if rows <= UNSORTED_ROWS {
        return;
    }
    let segments = rows.min(entries);
    let partial = segments.saturating_add(rows / ROWS_PER_THREAD);
    let index = |heap: &mut Heap, numel: u64| heap.alloc(numel, Dtype::I64, &EMBEDDING_SEGMENTS);
    let offsets = index(heap, rows);
    let count = index(heap, 1);
    let all = index(heap, rows);
    heap.scratch(SCAN_BYTES, &EMBEDDING_STORAGE);
    heap.release(all);
    let lengths = [index(heap, segments), index(heap, segments)];
    heap.scratch(SCAN_BYTES, &EMBEDDING_STORAGE);
    let parts = [index(heap, 1), index(heap, partial)];
    let sums = heap.alloc(partial.saturating_mul(width), Dtype::F32, &EMBEDDING_SUMS);
    heap.release(sums);
    parts.into_iter().rev().chain(lengths).chain([count, offsets]).for_each(|storage| heap.release(storage));
}

/// The most elements that are sorted within one thread block (aten/src/ATen/native/cuda/Sort.cu).
const SMALL_SORT: u64 = 4096;
/// The most pairs that cub's radix sort takes in one tile, without temporary storage.
const ONE_TILE: u64 = 2304;

/// Temporary storage of cub's radix sort of pairs of 64-bit integers over `bits` bits (measured with CUDA 13.0): second
/// buffers of keys and values, and the histograms of passes and tiles.
fn radix_sort_bytes(device: Device, numel: u64, bits: u64) -> u64 {
    const PASS_BYTES: u64 = 2048;
    const TILE_BYTES: u64 = 1024;
    if numel <= ONE_TILE {
        return 1;
    }
    let tile = if device.capability >= 90 { 384 * 12 } else { 384 * 10 };
    let buffer = numel.saturating_mul(8).div_ceil(256).saturating_mul(256);
    let tiles = numel.div_ceil(tile).saturating_mul(TILE_BYTES);
    let passes = bits.div_ceil(8).saturating_mul(PASS_BYTES);
    buffer.saturating_mul(2).saturating_add(tiles).saturating_add(passes).saturating_add(511)
}

/// Scratch of `torch.sort` over one dimension of 64-bit integers.
pub(super) fn sort_scratch(heap: &mut Heap, numel: u64) {
    let indices = heap.alloc(numel, Dtype::I64, &SORT_SCRATCH);
    if numel > SMALL_SORT {
        heap.scratch(radix_sort_bytes(heap.device, numel, 64), &SORT_STORAGE);
    }
    heap.release(indices);
}

/// Scratch of `index_put_(accumulate=True)` with `rows` indices into `targets` rows: linear indices, sorted.
///
/// Source: aten/src/ATen/native/cuda/Indexing.cu `index_put_with_sort_kernel`.
pub(super) fn index_put_scratch(heap: &mut Heap, rows: u64, targets: u64) {
    let mut index = |what: &'static What| heap.alloc(rows, Dtype::I64, what);
    let wrapped = index(&torch::INDEX);
    let linear = index(&LINEAR_INDEX);
    heap.release(wrapped);
    sort_indices(heap, rows, targets);
    heap.release(linear);
}

/// Sorts linear indices into so many rows, with their order.
fn sort_indices(heap: &mut Heap, rows: u64, targets: u64) {
    let mut held = [NOTHING; 3];
    for storage in &mut held {
        *storage = heap.alloc(rows, Dtype::I64, &SORTED_INDEX);
    }
    let bits = u64::from(u64::BITS - targets.leading_zeros());
    heap.scratch(radix_sort_bytes(heap.device, rows, bits), &SORT_STORAGE);
    held.into_iter().rev().for_each(|storage| heap.release(storage));
}

/// The same with an index for each of two dimensions, as a boolean mask gives them: `found` holds both, and goes before
/// they are sorted.
pub(super) fn index_put_pairs_scratch(heap: &mut Heap, rows: u64, targets: u64, found: StorageId) {
    let mut index = |what: &'static What| heap.alloc(rows, Dtype::I64, what);
    let wrapped = index(&torch::INDEX);
    let linear = index(&LINEAR_INDEX);
    heap.release(wrapped);
    let [wrapped, strided] = [&torch::INDEX, &STRIDED_INDEX].map(|name| heap.alloc(rows, Dtype::I64, name));
    for storage in [wrapped, strided, found] {
        heap.release(storage);
    }
    sort_indices(heap, rows, targets);
    heap.release(linear);
}

/// `mask.nonzero()` of a boolean mask of two dimensions: both indices of every true element.
///
/// Source: aten/src/ATen/native/cuda/Nonzero.cu; the temporary storage of cub's reduction and selection was measured with
/// CUDA 13.0.
pub(super) fn true_positions(heap: &mut Heap, numel: u64, found: u64) -> StorageId {
    const SELECT_BYTES: u64 = 1023;
    let count = heap.alloc(1, Dtype::I32, &NONZERO_COUNT);
    heap.scratch(reduction_bytes(heap.device, numel), &NONZERO_STORAGE);
    let positions = heap.alloc(found.saturating_mul(2), Dtype::I64, &torch::NONZERO);
    heap.scratch(SELECT_BYTES, &NONZERO_STORAGE);
    heap.release(count);
    positions
}

/// Temporary storage of cub's sum of so many elements: beyond one tile a number for each of five blocks for every one that
/// runs at a time.
fn reduction_bytes(device: Device, numel: u64) -> u64 {
    const TILE: u64 = 4096;
    const BLOCK_THREADS: u64 = 256;
    if numel <= TILE {
        return 1;
    }
    let blocks = 5 * (device.threads / BLOCK_THREADS) * device.multiprocessors;
    (blocks * 4).next_multiple_of(256) + 255
}

/// Scratch of `masked_scatter_`: where in the source each element comes from.
///
/// Source: aten/src/ATen/native/cuda/IndexKernel.cpp `masked_scatter__cuda`.
pub(super) fn prefix_sum_scratch(heap: &mut Heap, numel: u64) {
    const SCAN_BYTES: u64 = 1279;
    let sums = heap.alloc(numel, Dtype::I64, &PREFIX_SUMS);
    heap.scratch(SCAN_BYTES, &SCATTER_STORAGE);
    heap.release(sums);
}

/// Scratch of `masked_scatter_` with a mask of rows: where in the source each element comes from, and the mask of every
/// element. The temporary storage of cub's scan was measured with CUDA 13.0 from 65,536 to 335,544,320 elements.
pub(super) fn masked_scatter_scratch(heap: &mut Heap, numel: u64) {
    const TILE: u64 = 896;
    let sums = heap.alloc(numel, Dtype::I64, &PREFIX_SUMS);
    let dense = heap.alloc(numel, Dtype::Bool, &torch::CONTIGUOUS);
    heap.scratch(tiles_bytes(numel, TILE, 16), &SCATTER_STORAGE);
    heap.release(dense);
    heap.release(sums);
}

/// `mask.nonzero()` of a boolean mask of three dimensions: the three indices of every true element. Measured as above.
pub(super) fn true_elements(heap: &mut Heap, numel: u64, found: u64) -> StorageId {
    let tile = if heap.device.capability >= 90 { 4224 } else { 2304 };
    let count = heap.alloc(1, Dtype::I32, &NONZERO_COUNT);
    heap.scratch(reduction_bytes(heap.device, numel), &NONZERO_STORAGE);
    let elements = heap.alloc(found.saturating_mul(3), Dtype::I64, &torch::NONZERO);
    heap.scratch(tiles_bytes(numel, tile, 8), &NONZERO_STORAGE);
    heap.release(count);
    elements
}

/// Temporary storage of cub's algorithms that look back from tile to tile: so many bytes for each tile and for a warp more.
fn tiles_bytes(numel: u64, tile: u64, each: u64) -> u64 {
    const WARP: u64 = 32;
    const ALIGNMENT: u64 = 256;
    let states = numel.div_ceil(tile).saturating_add(WARP).saturating_mul(each);
    states.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX).saturating_add(2 * ALIGNMENT - 1)
}

/// Whether one kernel multiplies all groups of rows with their matrices, rather than one after the other
/// (ATen/native/cuda/GroupedBlas.cpp `_grouped_mm_cuda`).
pub(super) fn is_grouped_kernel(device: &Device, dtype: Dtype) -> bool {
    matches!(device.capability, 90..=109) && dtype == Dtype::Bf16
}

/// Scratch of a grouped product in bfloat16 on Hopper and Blackwell: pointers and strides of every group, and CUTLASS's
/// workspace for every multiprocessor (measured; ATen/native/cuda/GroupMM.cu). Elsewhere the groups run one by one.
pub(super) fn grouped_scratch(heap: &mut Heap, groups: u64, dtype: Dtype) {
    if !is_grouped_kernel(&heap.device, dtype) {
        return;
    }
    let per_multiprocessor = if heap.device.capability < 100 { 512 } else { 5376 };
    let arguments =
        heap.alloc_as(Category::Temporaries, groups.saturating_mul(60), Dtype::U8, &GROUPED_ARGUMENTS);
    heap.scratch(per_multiprocessor * heap.device.multiprocessors, &GROUPED_WORKSPACE);
    heap.release(arguments);
}
