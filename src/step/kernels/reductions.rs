//! Scratch space of sums and of largest elements that are split over thread blocks.
//!
//! Source: `setReduceConfig`, `ReduceConfig::global_memory_size` and `gpu_reduce_kernel` of aten/src/ATen/native/cuda/Reduce.cuh.

use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::what::{Source, What};

static SUM_PARTIAL: What = What::own(
    "sum (partial)",
    "partial sums of a reduction that is split over thread blocks",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Reduce.cuh"),
);
static SUM_SEMAPHORES: What = What::own(
    "sum (semaphores)",
    "semaphores of a reduction that is split over thread blocks",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Reduce.cuh"),
);
static SUM_OF_PIECES: What = What::own(
    "sum (of pieces)",
    "the sum so far of what is larger than 32-bit offsets reach, which is reduced piece by piece",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Reduce.cuh"),
);
static MAXIMUM_PARTIAL: What = What::own(
    "max (partial)",
    "partial results of a reduction that is split over thread blocks",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Reduce.cuh"),
);
static MAXIMUM_SEMAPHORES: What = What::own(
    "max (semaphores)",
    "semaphores of a reduction that is split over thread blocks",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Reduce.cuh"),
);

/// Scratch of a sum over rows, `[rows, width] → [width]`, when it is split over thread blocks.
pub(in crate::step) fn column_sum_scratch(heap: &mut Heap, rows: u64, width: u64, dtype: Dtype) {
    let accumulator = if dtype.is_half() { 4 } else { dtype.bytes() };
    let sums = in_pieces(heap, (rows, width), dtype, &|heap, rows| {
        column_scratch(heap, (rows, width), accumulator, [&SUM_PARTIAL, &SUM_SEMAPHORES]);
    });
    heap.release(sums);
}

/// The same of the largest elements of columns, which are kept in their own type.
pub(in crate::step) fn column_maximum_scratch(heap: &mut Heap, rows: u64, width: u64, dtype: Dtype) {
    for rows in pieces(rows, width, dtype.bytes()) {
        column_scratch(heap, (rows, width), dtype.bytes(), [&MAXIMUM_PARTIAL, &MAXIMUM_SEMAPHORES]);
    }
}

/// Scratch of the largest of all elements: a partial result of each thread block, and a semaphore.
///
/// Source: as of [`column_sum_scratch`]; a thread has four elements at a time.
pub(in crate::step) fn maximum_scratch(heap: &mut Heap, numel: u64, dtype: Dtype, stream: Stream) {
    for numel in pieces(numel, 1, dtype.bytes()) {
        scalar_scratch(heap, numel, (dtype.bytes(), stream), [&MAXIMUM_PARTIAL, &MAXIMUM_SEMAPHORES]);
    }
}

/// The same of the sum of all elements.
pub(in crate::step) fn sum_scratch(heap: &mut Heap, numel: u64, dtype: Dtype) {
    let accumulator = if dtype.is_half() { 4 } else { dtype.bytes() };
    let sums = in_pieces(heap, (numel, 1), dtype, &|heap, numel| {
        scalar_scratch(heap, numel, (accumulator, Stream::Compute), [&SUM_PARTIAL, &SUM_SEMAPHORES]);
    });
    heap.release(sums);
}

/// A sum of rows in pieces. Returns the sums so far in float32, where numbers of 16 bits have several pieces.
fn in_pieces(
    heap: &mut Heap,
    (rows, width): (u64, u64),
    dtype: Dtype,
    reduce: &dyn Fn(&mut Heap, u64),
) -> StorageId {
    let pieces = pieces(rows, width, dtype.bytes());
    let sums = if pieces.len() > 1 && dtype.is_half() {
        heap.alloc_as(Category::Temporaries, width.saturating_mul(4), Dtype::F32, &SUM_OF_PIECES)
    } else {
        NOTHING
    };
    pieces.into_iter().for_each(|rows| reduce(heap, rows));
    sums
}

/// Rows in the pieces that a kernel reduces one after the other: halves until an offset in bytes is a 32-bit number
/// (`TensorIterator::with_32bit_indexing`). Those of one length change nothing after the first.
fn pieces(rows: u64, width: u64, element: u64) -> Vec<u64> {
    let fits = |rows: u64| {
        let bytes = rows.saturating_mul(width).saturating_mul(element);
        rows <= 1 || bytes.saturating_sub(element.saturating_sub(1)) <= i32::MAX as u64
    };
    // halves of what is even or not are as long or one longer
    let (mut fewer, mut more) = (rows, rows);
    while !fits(fewer) {
        (fewer, more) = (fewer / 2, more.div_ceil(2));
    }
    match (more == rows, fits(more)) {
        (true, _) => vec![rows],
        (false, true) => vec![fewer, more],
        (false, false) => vec![fewer, more / 2, more.div_ceil(2)],
    }
}

fn scalar_scratch(
    heap: &mut Heap,
    numel: u64,
    (accumulator, stream): (u64, Stream),
    [partial, semaphores]: [&'static What; 2],
) {
    let values = numel.div_ceil(MAX_THREADS);
    if values < 256 {
        return;
    }
    let target = heap.device.multiprocessors * (heap.device.threads / MAX_THREADS);
    let blocks = target.min(values.div_ceil(16)).max(values.div_ceil(256));
    if blocks <= 1 {
        return;
    }
    let bytes = blocks.saturating_mul(accumulator);
    let mut alloc = |bytes, what| heap.alloc_on(stream, Category::Temporaries, bytes, Dtype::U8, what);
    let both = [alloc(bytes, partial), alloc(4, semaphores)];
    both.into_iter().rev().for_each(|storage| heap.release(storage));
}

/// The most threads of a block that reduces.
const MAX_THREADS: u64 = 512;

/// Scratch of a reduction of columns whose partial results are of so many bytes.
fn column_scratch(
    heap: &mut Heap,
    (rows, width): (u64, u64),
    accumulator: u64,
    [partial, semaphores]: [&'static What; 2],
) {
    const WARP: u64 = 32;
    if rows == 0 || width == 0 {
        return;
    }
    let device = heap.device;
    // Four outputs per thread where the width allows it (get_output_vec_size).
    let vector = [4, 2].into_iter().find(|vector| width.is_multiple_of(*vector)).unwrap_or(1);
    let max_threads = MAX_THREADS / vector;
    let last_power = |n: u64| 1 << n.ilog2();
    let across = last_power(width / vector).min(max_threads);
    let down = last_power(rows).min(max_threads);
    let block_width = across.min(WARP);
    let block_height = down.min(max_threads / block_width);
    let block_width = across.min(max_threads / block_height);
    let values = rows.div_ceil(block_height);
    let grid = width.div_ceil(block_width * vector);
    let target = device.multiprocessors * (device.threads / (block_width * block_height));
    if values < 256 || grid > target {
        return;
    }
    let blocks = target.div_ceil(grid).min(values.div_ceil(16)).max(values.div_ceil(256));
    if blocks <= 1 {
        return;
    }
    let bytes = accumulator.saturating_mul(width).saturating_mul(blocks).saturating_mul(block_width * vector);
    let buffer = heap.alloc_as(Category::Temporaries, bytes, Dtype::U8, partial);
    heap.scratch(grid * 4, semaphores);
    heap.release(buffer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Device, Gpu};

    /// Bytes that a reduction asks for on so many multiprocessors of so many threads.
    fn asked((multiprocessors, threads): (u64, u64), reduce: impl FnOnce(&mut Heap)) -> Vec<u64> {
        let usual = Device::of(&Gpu::custom(crate::units::Bytes::gib(24.0)));
        let mut heap = Heap::new(Device { multiprocessors, threads, ..usual }, None);
        let before = heap.storages.len();
        reduce(&mut heap);
        heap.storages[before..].iter().map(|storage| storage.requested).collect()
    }

    const A100: (u64, u64) = (108, 2048);
    const T4: (u64, u64) = (40, 1024);
    const RTX_3090: (u64, u64) = (82, 1536);
    const H100: (u64, u64) = (132, 2048);
    const B200: (u64, u64) = (148, 2048);

    /// What `setReduceConfig`, `global_memory_size` and `semaphore_size` of Reduce.cuh say of rows that lie one after the other.
    #[test]
    fn columns_are_summed_by_several_blocks_where_these_are_few() {
        for (rows, width, dtype, card, bytes) in [
            (8192, 896, Dtype::Bf16, A100, Some([58_720_256, 28])),
            (4096, 4096, Dtype::F32, H100, Some([134_217_728, 128])),
            (2048, 4096, Dtype::Bf16, H100, Some([67_108_864, 128])),
            // 32 × 4 threads, each with 256 values, and with 255
            (1024, 4096, Dtype::Bf16, H100, Some([33_554_432, 128])),
            (1020, 4096, Dtype::Bf16, H100, None),
            // a thread would have more than 256 values otherwise
            (65_536, 8192, Dtype::Bf16, A100, Some([268_435_456, 256])),
            // more columns than the card runs blocks
            (8192, 131_072, Dtype::Bf16, T4, None),
            (100_000, 50_257, Dtype::F32, T4, None),
            // two outputs of a thread, or one
            (4096, 4098, Dtype::F32, A100, Some([14_687_232, 260])),
            (40_960, 37, Dtype::F32, RTX_3090, Some([582_528, 8])),
            // a block of all columns
            (16_384, 16, Dtype::Bf16, A100, Some([32_768, 4])),
            (1024, 16, Dtype::Bf16, A100, None),
            (65_536, 2, Dtype::F32, RTX_3090, Some([256, 4])),
            (1, 4096, Dtype::F32, A100, None),
        ] {
            let own = asked(card, |heap| column_sum_scratch(heap, rows, width, dtype));
            assert_eq!(own, bytes.map_or(vec![], Vec::from), "{rows} × {width}");
        }
        // a sum of bytes is one of bytes here; the largest of 16-bit numbers is one of these
        let largest = asked(B200, |heap| column_maximum_scratch(heap, 4097, 1152, Dtype::U8));
        assert_eq!(largest, [9_584_640, 36]);
        let largest = asked(A100, |heap| column_maximum_scratch(heap, 8192, 896, Dtype::Bf16));
        assert_eq!(largest, [58_720_256 / 2, 28]);
    }

    /// As PyTorch 2.11 asks for it over the null device: what is larger than 32-bit offsets reach is halved, and 16-bit numbers are added up in float32.
    #[test]
    fn what_is_too_large_for_32_bit_offsets_is_reduced_in_pieces() {
        let sum = |rows, width, dtype| asked(A100, |heap| column_sum_scratch(heap, rows, width, dtype));
        let of_piece = [310_378_496, 256];
        assert_eq!(sum(300_000, 8192, Dtype::Bf16), [&[32_768][..], &of_piece, &of_piece].concat());
        assert_eq!(sum(4096, 151_936, Dtype::F32), [[155_582_464, 4748]; 2].concat());
        // an offset of 2 GiB is none of the last element
        assert_eq!(sum(1 << 17, 8192, Dtype::Bf16), [536_870_912, 256]);
        let largest = asked(A100, |heap| column_maximum_scratch(heap, 300_000, 8192, Dtype::Bf16));
        assert_eq!(largest, [[155_189_248, 256]; 2].concat());
        let all = asked(A100, |heap| sum_scratch(heap, 1 << 31, Dtype::Bf16));
        assert_eq!(all, [4, 32_768, 4, 32_768, 4]);
    }

    /// The same of all elements: 512 threads of a block sum along, and each block leaves one number.
    #[test]
    fn all_elements_are_summed_by_blocks_of_512_threads() {
        for (numel, card, blocks) in [
            (255 * 512, A100, None),
            (255 * 512 + 1, A100, Some(16)),
            (1 << 20, A100, Some(128)),
            (1 << 23, A100, Some(108 * 4)),
            (1 << 23, T4, Some(40 * 2)),
            (1 << 23, RTX_3090, Some(82 * 3)),
            // 4,096 × 151,936: 256 values a thread
            (622_329_856, A100, Some(4748)),
        ] {
            let bytes = |each: u64| blocks.map_or(vec![], |blocks: u64| vec![blocks * each, 4]);
            assert_eq!(asked(card, |heap| sum_scratch(heap, numel, Dtype::Bf16)), bytes(4), "{numel}");
            let largest = asked(card, |heap| maximum_scratch(heap, numel, Dtype::Bf16, Stream::Compute));
            assert_eq!(largest, bytes(2), "{numel}");
        }
    }

    #[test]
    fn a_sum_of_any_shape_asks_for_something_or_nothing() {
        let gpu = Gpu::custom(crate::units::Bytes::gib(24.0));
        let sizes = [0, 1, 2, 3, 255, 4096, 1 << 30, 1 << 60, u64::MAX];
        for rows in sizes {
            for width in sizes {
                let mut heap = Heap::new(Device::of(&gpu), Some(0));
                column_sum_scratch(&mut heap, rows, width, Dtype::Bf16);
                assert_eq!(heap.ledger.current, 0, "{rows} × {width}");
            }
        }
    }
}
