//! What PyTorch's allocator does, step by step, and what holds whatever comes.

use super::*;

const MIB: u64 = 1 << 20;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Settings::default())
}

fn expandable(capacity: Option<u64>) -> CachingAllocator {
    CachingAllocator::new(Settings { expandable_segments: true, capacity })
}

#[track_caller]
fn malloc(allocator: &mut CachingAllocator, bytes: u64) -> Block {
    allocator.malloc(bytes, Stream::Compute).expect("no capacity is set")
}

/// Size of every block and whether it is used, segment by segment. Neither blocks nor segments lie over each other.
fn laid_out(allocator: &CachingAllocator) -> Vec<Vec<(u64, bool)>> {
    let segments = allocator.segments();
    let mut blocks: Vec<Placed> = segments.concat();
    for segment in &segments {
        assert!(segment.is_sorted_by_key(|block| block.address), "{segment:?}");
    }
    blocks.sort_by_key(|block| block.address);
    assert!(blocks.windows(2).all(|pair| pair[0].address + pair[0].size <= pair[1].address), "{blocks:?}");
    let kept = |block: &Placed| (block.size, block.used);
    segments.iter().map(|segment| segment.iter().map(kept).collect()).collect()
}

#[test]
fn rounds_as_pytorch_does() {
    for (bytes, allocated, reserved) in [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        // above 1 MiB: a segment of 20 MiB, cut
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        // from 10 MiB on: a segment of its own, whose rest of at most 1 MiB stays in the block
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (21 * MIB + 1, 22 * MIB, 22 * MIB),
    ] {
        let mut allocator = allocator();
        malloc(&mut allocator, bytes);
        let stats = allocator.stats();
        assert_eq!((stats.allocated, stats.reserved), (allocated, reserved), "{bytes}");
    }
}

#[test]
fn joins_neighbours_and_gives_whole_segments_back() {
    let mut allocator = allocator();
    let blocks: Vec<Block> = (0..3).map(|_| malloc(&mut allocator, 4 * MIB)).collect();
    assert_eq!(allocator.stats().reserved, 20 * MIB);
    for block in blocks {
        allocator.free(block);
    }
    allocator.empty_cache();
    assert_eq!((allocator.stats().allocated, allocator.stats().reserved), (0, 0));
}

#[test]
fn retries_under_a_capacity_and_then_gives_up() {
    let capacity = Some(100 * MIB);
    let mut allocator = CachingAllocator::new(Settings { capacity, ..Settings::default() });
    let block = malloc(&mut allocator, 60 * MIB);
    allocator.free(block);
    malloc(&mut allocator, 80 * MIB);
    assert_eq!(allocator.stats().retries, 1);
    assert_eq!(allocator.malloc(40 * MIB, Stream::Compute), Err(OutOfMemory { requested: 40 * MIB }));
}

/// Streams by number, each with a pool of small and one of large blocks.
#[test]
fn a_block_serves_one_stream_and_one_pool() {
    use Stream::{Compute, Copies, Gathers, OtherGathers, Reduces, Scatters};
    let mut allocator = allocator();
    let mut reserved = 0;
    for again in [false, true] {
        for (number, stream) in
            [Compute, Copies, Gathers, OtherGathers, Scatters, Reduces].into_iter().enumerate()
        {
            for (bytes, segment) in [(MIB, 2 * MIB), (4 * MIB, 20 * MIB)] {
                let block = allocator.malloc(bytes, stream).expect("no capacity is set");
                let placed = allocator.placed(block);
                assert_eq!((placed.stream, placed.is_small), (number, bytes == MIB));
                assert_eq!((placed.size, allocator.size_of(block), placed.used), (bytes, bytes, true));
                allocator.free(block);
                reserved += if again { 0 } else { segment };
                assert_eq!(allocator.stats().reserved, reserved, "{stream:?}");
            }
        }
    }
}

#[test]
fn a_segment_with_a_used_block_stays() {
    let mut allocator = allocator();
    let blocks: Vec<Block> =
        [4 * MIB, 4 * MIB, 512, 30 * MIB].map(|size| malloc(&mut allocator, size)).into();
    let [first, _, small, large] = blocks[..] else { panic!("four blocks") };
    let place = allocator.placed(first).address;
    for block in [first, small, large] {
        allocator.free(block);
    }
    let beside = [(4 * MIB, false), (4 * MIB, true), (12 * MIB, false)];
    assert_eq!(laid_out(&allocator), [&beside[..], &[(2 * MIB, false)], &[(30 * MIB, false)]]);
    allocator.empty_cache();
    assert_eq!(laid_out(&allocator), [beside]);
    let again = malloc(&mut allocator, 4 * MIB);
    assert_eq!((allocator.placed(again).address, allocator.stats().reserved), (place, 20 * MIB));
}

#[test]
fn peaks_are_counted_anew_and_what_is_reserved_counts_under_a_new_limit() {
    let mut allocator = allocator();
    let block = malloc(&mut allocator, 30 * MIB);
    malloc(&mut allocator, 20 * MIB);
    allocator.free(block);
    allocator.reset_peaks();
    let Stats { allocated_peak, reserved_peak, .. } = allocator.stats();
    assert_eq!((allocated_peak, reserved_peak), (20 * MIB, 50 * MIB));
    allocator.empty_cache();
    allocator.reset_peaks();
    assert_eq!(allocator.stats().reserved_peak, 20 * MIB);
    allocator.limit(Some(50 * MIB));
    assert_eq!(allocator.malloc(32 * MIB, Stream::Compute), Err(OutOfMemory { requested: 32 * MIB }));
    malloc(&mut allocator, 30 * MIB);
}

#[test]
fn free_pages_between_used_blocks_are_given_back_and_used_again() {
    let mut allocator = expandable(None);
    let blocks: Vec<Block> = [10, 65, 25].map(|mib| malloc(&mut allocator, mib * MIB)).into();
    assert_eq!(allocator.stats().reserved, 100 * MIB);
    allocator.free(blocks[1]);
    allocator.empty_cache();
    // of the free addresses from 10 to 75 MiB the pages from 20 to 60
    assert_eq!(allocator.stats().reserved, 60 * MIB);
    malloc(&mut allocator, 25 * MIB);
    assert_eq!(allocator.stats().reserved, 80 * MIB);
    // 5 MiB before the last hole, its 20 and 15 behind it
    malloc(&mut allocator, 26 * MIB);
    assert_eq!(allocator.stats().reserved, 100 * MIB);
}

#[test]
fn expandable_segments_leave_no_holes_at_the_end() {
    let mut allocator = expandable(None);
    let first = malloc(&mut allocator, 30 * MIB);
    allocator.free(first);
    malloc(&mut allocator, 50 * MIB);
    assert_eq!(allocator.stats().reserved, 60 * MIB);
}

#[test]
fn pages_that_end_with_a_block_leave_nothing_of_it() {
    let mut allocator = expandable(None);
    let blocks: Vec<Block> = [20, 40, 40].map(|mib| malloc(&mut allocator, mib * MIB)).into();
    malloc(&mut allocator, MIB);
    allocator.free(blocks[1]);
    allocator.empty_cache();
    let small = [(MIB, true), (MIB, false)];
    assert_eq!(laid_out(&allocator), [[(20 * MIB, true), (40 * MIB, true)], small]);
    // they are the first that is room for, and what is behind them stays without memory
    let again = malloc(&mut allocator, 20 * MIB);
    assert_eq!(allocator.placed(again).address, allocator.placed(blocks[0]).address + 20 * MIB);
    let after = [(20 * MIB, true), (20 * MIB, true), (40 * MIB, true)];
    assert_eq!(laid_out(&allocator), [&after[..], &small]);
}

/// The block that pages can be mapped behind is kept for what needs them (`get_free_block`).
#[test]
fn a_block_that_can_grow_is_taken_last() {
    let mut allocator = expandable(None);
    let blocks: Vec<Block> = [40, 10, 10].map(|mib| malloc(&mut allocator, mib * MIB)).into();
    for at in [0, 2] {
        allocator.free(blocks[at]);
    }
    let block = malloc(&mut allocator, 8 * MIB);
    assert_eq!(allocator.placed(block).address, allocator.placed(blocks[0]).address);
    let blocks = [(8 * MIB, true), (32 * MIB, false), (10 * MIB, true), (10 * MIB, false)];
    assert_eq!(laid_out(&allocator), [blocks]);
}

#[test]
fn expandable_segments_retry_under_a_capacity_and_then_give_up() {
    let mut allocator = expandable(Some(100 * MIB));
    let small = malloc(&mut allocator, MIB);
    allocator.free(small);
    // the small pool's page is in the way
    malloc(&mut allocator, 100 * MIB);
    assert_eq!((allocator.stats().reserved, allocator.stats().retries), (100 * MIB, 1));
    assert_eq!(allocator.malloc(MIB, Stream::Compute), Err(OutOfMemory { requested: MIB }));
    assert_eq!(allocator.stats().retries, 2);
}

#[test]
fn a_request_that_fails_maps_no_page() {
    let mut allocator = expandable(Some(100 * MIB));
    let first = malloc(&mut allocator, 20 * MIB);
    allocator.free(first);
    assert!(allocator.malloc(120 * MIB, Stream::Compute).is_err());
    assert_eq!((allocator.stats().reserved, allocator.stats().reserved_peak), (0, 20 * MIB));
}

/// Whatever comes and goes, on two streams and in both pools of each: what is counted is what lies there, no block over
/// another, each in a segment of its pool and its stream.
#[test]
fn the_counters_are_what_lies_there() {
    let mut random = 1u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for (expandable_segments, capacity) in
        [false, true].into_iter().flat_map(|kind| [(kind, None), (kind, Some(600 * MIB))])
    {
        let mut allocator = CachingAllocator::new(Settings { expandable_segments, capacity });
        let mut used: Vec<(Block, Stream, u64)> = Vec::new();
        for _ in 0..5_000 {
            match draw(20) {
                0..11 => {
                    let bytes = [draw(MIB), draw(12 * MIB), draw(60 * MIB)][draw(3) as usize];
                    let stream = [Stream::Compute, Stream::Copies][draw(2) as usize];
                    if let Ok(block) = allocator.malloc(bytes, stream) {
                        used.push((block, stream, bytes));
                    }
                }
                19 => allocator.empty_cache(),
                _ if used.is_empty() => {}
                _ => allocator.free(used.swap_remove(draw(used.len() as u64) as usize).0),
            }
            let stats = allocator.stats();
            let blocks = laid_out(&allocator).concat();
            let sizes = |counts: fn(&(u64, bool)) -> bool| -> u64 {
                blocks.iter().filter(|block| counts(block)).map(|(size, _)| size).sum()
            };
            assert_eq!((sizes(|(_, used)| *used), sizes(|_| true)), (stats.allocated, stats.reserved));
            assert!(capacity.is_none_or(|capacity| stats.reserved <= capacity));
            for (block, stream, bytes) in &used {
                let placed = allocator.placed(*block);
                assert!(placed.used && placed.size >= *bytes && placed.stream == *stream as usize);
                assert_eq!(placed.is_small, *bytes <= MIB);
            }
        }
        assert!(allocator.stats().retries > 0 || capacity.is_none());
    }
}

#[test]
fn beyond_all_addresses_nothing_is_handed_out() {
    let mut allocator = CachingAllocator::new(Settings::default());
    let huge = 1 << 60;
    let blocks: Vec<_> = (0..8).map_while(|_| allocator.malloc(huge, Stream::Compute).ok()).collect();
    let addresses: std::collections::BTreeSet<_> =
        blocks.iter().map(|block| allocator.placed(*block).address).collect();
    assert!(blocks.len() < 8 && addresses.len() == blocks.len());
    assert_eq!(allocator.stats().reserved, blocks.len() as u64 * huge);
}
