//! A replica of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, 2.11): what is reserved, and whether a
//! run fits under a capacity, depend on how blocks are cut and joined, not only on what is alive.

use std::collections::BTreeSet;

/// Smallest block, and the unit that requests are rounded up to (`kMinBlockSize`).
const MIN_BLOCK: u64 = 512;
/// Requests up to this come from the small pool (`kSmallSize`).
const SMALL_SIZE: u64 = 1 << 20;
/// Segment of the small pool (`kSmallBuffer`).
const SMALL_SEGMENT: u64 = 2 << 20;
/// Segment of the large pool for requests below [`MIN_LARGE`] (`kLargeBuffer`).
const LARGE_SEGMENT: u64 = 20 << 20;
/// From here on a segment is made for the request alone (`kMinLargeAlloc`).
const MIN_LARGE: u64 = 10 << 20;
/// Such a segment is rounded up to a multiple of this (`kRoundLarge`).
const ROUND_LARGE: u64 = 2 << 20;

/// Index of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u32);

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    size: u64,
    /// Neighbours in the same segment.
    previous: u32,
    next: u32,
    small: bool,
    used: bool,
}

/// The device has not enough memory left, even after everything cached was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub requested: u64,
}

/// How the allocator is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
    pub expandable_segments: bool,
    /// Bytes that the device has for it; unlimited if absent.
    pub capacity: Option<u64>,
}

/// What the allocator counts, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `memory_allocated()`.
    pub allocated: u64,
    /// `max_memory_allocated()`.
    pub allocated_peak: u64,
    /// `memory_reserved()`.
    pub reserved: u64,
    /// `max_memory_reserved()`.
    pub reserved_peak: u64,
    /// How often cached segments were given back because the device was full (`num_alloc_retries`).
    pub retries: u64,
}

/// The allocator of one device and stream.
#[derive(Debug)]
pub struct CachingAllocator {
    settings: Settings,
    stats: Stats,
    blocks: Vec<Entry>,
    /// Free blocks by size and address: of the large pool, of the small one.
    free: [BTreeSet<(u64, u64, u32)>; 2],
    recycled: Vec<u32>,
    /// Where the next segment goes.
    frontier: u64,
    /// Under expandable segments: the last block of each pool's one segment.
    tail: [u32; 2],
}

impl CachingAllocator {
    /// An allocator that has reserved nothing.
    pub fn new(settings: Settings) -> CachingAllocator {
        CachingAllocator {
            settings,
            stats: Stats::default(),
            blocks: Vec::new(),
            free: [BTreeSet::new(), BTreeSet::new()],
            recycled: Vec::new(),
            frontier: 0,
            tail: [NONE; 2],
        }
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// `reset_peak_memory_stats()`.
    pub fn reset_peaks(&mut self) {
        self.stats.allocated_peak = self.stats.allocated;
        self.stats.reserved_peak = self.stats.reserved;
    }

    /// Hands out a block for `bytes` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the capacity does not allow it even after the cache was emptied.
    pub fn malloc(&mut self, bytes: u64) -> Result<Block, OutOfMemory> {
        let size = bytes.div_ceil(MIN_BLOCK).saturating_mul(MIN_BLOCK).max(MIN_BLOCK);
        let small = size <= SMALL_SIZE;
        let index = match self.best_fit(size, small) {
            Some(index) => index,
            None => self.grow(size, small).ok_or(OutOfMemory { requested: bytes })?,
        };
        self.cut(index, size, small);
        let block = &mut self.blocks[index as usize];
        block.used = true;
        self.stats.allocated = self.stats.allocated.saturating_add(block.size);
        self.stats.allocated_peak = self.stats.allocated_peak.max(self.stats.allocated);
        Ok(Block(index))
    }

    /// Takes a block back and joins it with free neighbours.
    pub fn free(&mut self, block: Block) {
        let mut index = block.0;
        let entry = self.blocks[index as usize];
        self.blocks[index as usize].used = false;
        self.stats.allocated = self.stats.allocated.saturating_sub(entry.size);
        let pool = usize::from(entry.small);
        let mergeable = |blocks: &[Entry], other: u32| other != NONE && !blocks[other as usize].used;
        if mergeable(&self.blocks, entry.previous) {
            let before = self.blocks[entry.previous as usize];
            self.free[pool].remove(&(before.size, before.address, entry.previous));
            self.join(entry.previous, index);
            index = entry.previous;
        }
        let next = self.blocks[index as usize].next;
        if mergeable(&self.blocks, next) {
            let after = self.blocks[next as usize];
            self.free[pool].remove(&(after.size, after.address, next));
            self.join(index, next);
        }
        let merged = self.blocks[index as usize];
        self.free[pool].insert((merged.size, merged.address, index));
    }

    /// `torch.cuda.empty_cache()`: gives segments without a used block back.
    pub fn empty_cache(&mut self) {
        for pool in 0..2 {
            let whole: Vec<(u64, u64, u32)> = self.free[pool]
                .iter()
                .copied()
                .filter(|(_, _, index)| {
                    let block = &self.blocks[*index as usize];
                    block.previous == NONE && block.next == NONE
                })
                .collect();
            for entry in whole {
                self.free[pool].remove(&entry);
                self.stats.reserved = self.stats.reserved.saturating_sub(entry.0);
                self.recycled.push(entry.2);
                if self.tail[pool] == entry.2 {
                    self.tail[pool] = NONE;
                }
            }
            if self.settings.expandable_segments {
                self.unmap(pool);
            }
        }
    }

    /// Under expandable segments free pages inside a segment are given back too.
    fn unmap(&mut self, pool: usize) {
        let page = page(pool == 1);
        let tail = self.tail[pool];
        if tail == NONE || self.blocks[tail as usize].used {
            return;
        }
        let block = self.blocks[tail as usize];
        let keep = (block.address.div_ceil(page) * page).saturating_sub(block.address).min(block.size);
        self.free[pool].remove(&(block.size, block.address, tail));
        self.stats.reserved = self.stats.reserved.saturating_sub(block.size - keep);
        if keep == 0 {
            let previous = block.previous;
            self.recycled.push(tail);
            self.tail[pool] = previous;
            if previous != NONE {
                self.blocks[previous as usize].next = NONE;
            }
        } else {
            self.blocks[tail as usize].size = keep;
            self.free[pool].insert((keep, block.address, tail));
        }
    }

    fn best_fit(&mut self, size: u64, small: bool) -> Option<u32> {
        let pool = &mut self.free[usize::from(small)];
        let entry = *pool.range((size, 0, 0)..).next()?;
        pool.remove(&entry);
        Some(entry.2)
    }

    fn new_block(&mut self, entry: Entry) -> u32 {
        match self.recycled.pop() {
            Some(index) => {
                self.blocks[index as usize] = entry;
                index
            }
            None => {
                self.blocks.push(entry);
                self.blocks.len() as u32 - 1
            }
        }
    }

    fn allows(&self, more: u64) -> bool {
        self.settings.capacity.is_none_or(|capacity| self.stats.reserved.saturating_add(more) <= capacity)
    }

    fn reserve(&mut self, bytes: u64) {
        self.stats.reserved = self.stats.reserved.saturating_add(bytes);
        self.stats.reserved_peak = self.stats.reserved_peak.max(self.stats.reserved);
    }

    /// A new segment, or further pages of the expandable one.
    fn grow(&mut self, size: u64, small: bool) -> Option<u32> {
        if self.settings.expandable_segments {
            return self.expand(size, small);
        }
        let bytes = if small {
            SMALL_SEGMENT
        } else if size < MIN_LARGE {
            LARGE_SEGMENT
        } else {
            size.div_ceil(ROUND_LARGE).saturating_mul(ROUND_LARGE)
        };
        if !self.allows(bytes) {
            self.empty_cache();
            self.stats.retries += 1;
            if !self.allows(bytes) {
                return None;
            }
        }
        self.reserve(bytes);
        let address = self.frontier;
        self.frontier = self.frontier.saturating_add(bytes);
        Some(self.new_block(Entry { address, size: bytes, previous: NONE, next: NONE, small, used: false }))
    }

    fn expand(&mut self, size: u64, small: bool) -> Option<u32> {
        let pool = usize::from(small);
        let missing = |allocator: &CachingAllocator| {
            let tail = allocator.tail[pool];
            let have = if tail == NONE || allocator.blocks[tail as usize].used {
                0
            } else {
                allocator.blocks[tail as usize].size
            };
            size.saturating_sub(have).div_ceil(page(small)).saturating_mul(page(small))
        };
        let mut bytes = missing(self);
        if !self.allows(bytes) {
            self.empty_cache();
            self.stats.retries += 1;
            bytes = missing(self);
            if !self.allows(bytes) {
                return None;
            }
        }
        self.reserve(bytes);
        let tail = self.tail[pool];
        if tail != NONE && !self.blocks[tail as usize].used {
            let block = self.blocks[tail as usize];
            self.free[pool].remove(&(block.size, block.address, tail));
            self.blocks[tail as usize].size += bytes;
            return Some(tail);
        }
        // each pool has an address range of its own
        let address = match tail {
            NONE => (pool as u64) << 60,
            tail => self.blocks[tail as usize].address + self.blocks[tail as usize].size,
        };
        let index =
            self.new_block(Entry { address, size: bytes, previous: tail, next: NONE, small, used: false });
        if tail != NONE {
            self.blocks[tail as usize].next = index;
        }
        self.tail[pool] = index;
        Some(index)
    }

    /// `should_split`: the rest goes back to the pool where it is worth keeping.
    fn cut(&mut self, index: u32, size: u64, small: bool) {
        let block = self.blocks[index as usize];
        let rest = block.size - size;
        let worth =
            if small || self.settings.expandable_segments { rest >= MIN_BLOCK } else { rest > SMALL_SIZE };
        if !worth {
            return;
        }
        let entry = Entry {
            address: block.address + size,
            size: rest,
            previous: index,
            next: block.next,
            small,
            used: false,
        };
        let other = self.new_block(entry);
        if block.next != NONE {
            self.blocks[block.next as usize].previous = other;
        }
        let first = &mut self.blocks[index as usize];
        first.size = size;
        first.next = other;
        let pool = usize::from(small);
        if self.tail[pool] == index {
            self.tail[pool] = other;
        }
        self.free[pool].insert((rest, entry.address, other));
    }

    fn join(&mut self, first: u32, second: u32) {
        let gone = self.blocks[second as usize];
        let kept = &mut self.blocks[first as usize];
        kept.size += gone.size;
        kept.next = gone.next;
        let pool = usize::from(gone.small);
        if gone.next != NONE {
            self.blocks[gone.next as usize].previous = first;
        }
        if self.tail[pool] == second {
            self.tail[pool] = first;
        }
        self.recycled.push(second);
    }
}

/// Granularity of an expandable segment.
const fn page(small: bool) -> u64 {
    if small { SMALL_SEGMENT } else { LARGE_SEGMENT }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn allocator() -> CachingAllocator {
        CachingAllocator::new(Settings::default())
    }

    #[track_caller]
    fn malloc(allocator: &mut CachingAllocator, bytes: u64) -> Block {
        allocator.malloc(bytes).expect("no capacity is set")
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
        assert_eq!(allocator.malloc(40 * MIB), Err(OutOfMemory { requested: 40 * MIB }));
    }

    #[test]
    fn expandable_segments_leave_no_holes_at_the_end() {
        let mut allocator =
            CachingAllocator::new(Settings { expandable_segments: true, ..Settings::default() });
        let first = malloc(&mut allocator, 30 * MIB);
        allocator.free(first);
        malloc(&mut allocator, 50 * MIB);
        assert_eq!(allocator.stats().reserved, 60 * MIB);
    }
}
