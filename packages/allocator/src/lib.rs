//! A replica of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, 2.11): what is reserved, and whether a
//! run fits under a capacity, depend on how blocks are cut and joined, not only on what is alive.
//!
//! ```
//! use headroom_allocator::{CachingAllocator, Settings, Stream};
//!
//! let mut allocator = CachingAllocator::new(Settings::default());
//! let block = allocator.malloc(3 << 20, Stream::Compute)?;
//! // three MiB are cut from a segment of 20, and the rest stays for others
//! assert_eq!((allocator.stats().allocated, allocator.stats().reserved), (3 << 20, 20 << 20));
//! allocator.free(block);
//! assert_eq!((allocator.stats().allocated, allocator.stats().reserved), (0, 20 << 20));
//! # Ok::<(), headroom_allocator::OutOfMemory>(())
//! ```

mod expandable;
mod free_list;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use free_list::FreeList;

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

/// Which stream memory is asked for on: a block serves one stream until its segment is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    /// The one that computes.
    #[default]
    Compute,
    /// The one that copies to and from the CPU.
    Copies,
    /// FSDP2's that copies shards in and gathers them.
    Gathers,
    /// The same of another model, which has streams of its own.
    OtherGathers,
    /// FSDP2's that reduces gradients and scatters them.
    Scatters,
    /// FSDP2's that adds gradients up across replicas.
    Reduces,
}

/// Large and small blocks of each stream.
const POOLS: usize = 12;

/// The pool of a request; the small ones have odd numbers.
fn pool_of(size: u64, stream: Stream) -> usize {
    usize::from(size <= SMALL_SIZE) + 2 * stream as usize
}

/// Whether a pool is one of small blocks.
const fn is_small(pool: usize) -> bool {
    pool % 2 == 1
}

/// What the card is asked for where no block is free for so many bytes (`get_allocation_size`): the figure of an
/// out-of-memory message.
pub fn segment_for(bytes: u64) -> u64 {
    if bytes <= SMALL_SIZE {
        SMALL_SEGMENT
    } else if bytes < MIN_LARGE {
        LARGE_SEGMENT
    } else {
        bytes.div_ceil(ROUND_LARGE).saturating_mul(ROUND_LARGE)
    }
}

/// Index of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u32);

/// A block where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Whether it is handed out.
    pub used: bool,
    /// Whether it is cut from a segment of small blocks.
    pub is_small: bool,
    /// The number of its stream.
    pub stream: usize,
}

const NONE: u32 = u32::MAX;

/// Where the address space of segments ends.
const HIGHEST: u64 = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    size: u64,
    /// Neighbours in the same segment.
    previous: u32,
    next: u32,
    /// Which of the lists it is in while it is free: few bytes, since a run goes through thousands of blocks.
    pool: u8,
    used: bool,
    /// Whether there is memory behind its addresses; under expandable segments only may there be none.
    mapped: bool,
}

/// The device has not enough memory left, even after everything cached was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub requested: u64,
}

/// How the allocator is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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

/// The allocator of one device.
#[derive(Debug)]
pub struct CachingAllocator {
    settings: Settings,
    stats: Stats,
    blocks: Vec<Entry>,
    /// Free blocks of each pool.
    free: [FreeList; POOLS],
    recycled: Vec<u32>,
    /// Where the last segment begins. Of equal blocks the one at the lowest address is taken, and the driver, as mmap does
    /// where the measurements come from, hands out addresses from above.
    frontier: u64,
    /// Under expandable segments: addresses without memory of each pool.
    unmapped: [BTreeSet<(u64, u32)>; POOLS],
}

impl CachingAllocator {
    /// An allocator that has reserved nothing.
    pub fn new(settings: Settings) -> CachingAllocator {
        CachingAllocator {
            settings,
            stats: Stats::default(),
            blocks: Vec::new(),
            free: Default::default(),
            recycled: Vec::new(),
            frontier: HIGHEST,
            unmapped: [const { BTreeSet::new() }; POOLS],
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

    /// From now on the device has so much for it.
    pub fn limit(&mut self, capacity: Option<u64>) {
        self.settings.capacity = capacity;
    }

    /// Hands out a block for `bytes` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the capacity does not allow it even after the cache was emptied.
    pub fn malloc(&mut self, bytes: u64, stream: Stream) -> Result<Block, OutOfMemory> {
        let size = bytes.checked_next_multiple_of(MIN_BLOCK).unwrap_or(HIGHEST).max(MIN_BLOCK);
        let pool = pool_of(size, stream);
        let index = match self.best_fit(size, pool) {
            Some(index) => index,
            None => self.grow(size, pool).ok_or(OutOfMemory { requested: bytes })?,
        };
        self.cut(index, size, pool);
        let block = &mut self.blocks[index as usize];
        block.used = true;
        self.stats.allocated = self.stats.allocated.saturating_add(block.size);
        self.stats.allocated_peak = self.stats.allocated_peak.max(self.stats.allocated);
        Ok(Block(index))
    }

    /// Bytes of a block that was handed out.
    pub fn size_of(&self, block: Block) -> u64 {
        self.blocks[block.0 as usize].size
    }

    /// Where a block lies.
    pub fn placed(&self, block: Block) -> Placed {
        let Entry { address, size, used, pool, .. } = self.blocks[block.0 as usize];
        Placed { address, size, used, is_small: is_small(pool.into()), stream: usize::from(pool / 2) }
    }

    /// The blocks of every segment, by address; of expandable segments those that have memory.
    pub fn segments(&self) -> Vec<Vec<Placed>> {
        let gone: BTreeSet<u32> = self.recycled.iter().copied().collect();
        let firsts = (0..self.blocks.len() as u32)
            .filter(|index| !gone.contains(index) && self.blocks[*index as usize].previous == NONE);
        let segment = |first: u32| {
            let next = |index: &u32| Some(self.blocks[*index as usize].next).filter(|next| *next != NONE);
            let blocks = std::iter::successors(Some(first), next);
            blocks
                .filter(|index| self.blocks[*index as usize].mapped)
                .map(|index| self.placed(Block(index)))
                .collect()
        };
        firsts.map(segment).filter(|blocks: &Vec<Placed>| !blocks.is_empty()).collect()
    }

    /// Takes a block back and joins it with free neighbours.
    pub fn free(&mut self, block: Block) {
        let mut index = block.0;
        let entry = self.blocks[index as usize];
        self.blocks[index as usize].used = false;
        self.stats.allocated = self.stats.allocated.saturating_sub(entry.size);
        let pool = entry.pool.into();
        index = self.merged(index, pool);
        self.list(index, pool);
    }

    /// Joins a block that is in no list with those neighbours that are as free and as mapped as it is
    /// (`try_merge_blocks`).
    fn merged(&mut self, mut index: u32, pool: usize) -> u32 {
        let entry = self.blocks[index as usize];
        let alike = |blocks: &[Entry], other: u32| {
            other != NONE && !blocks[other as usize].used && blocks[other as usize].mapped == entry.mapped
        };
        if alike(&self.blocks, entry.previous) {
            self.unlist(entry.previous, pool);
            self.join(entry.previous, index);
            index = entry.previous;
        }
        if alike(&self.blocks, entry.next) {
            self.unlist(entry.next, pool);
            self.join(index, entry.next);
        }
        index
    }

    /// Adds a free block to the list of its kind.
    fn list(&mut self, index: u32, pool: usize) {
        let block = self.blocks[index as usize];
        if block.mapped {
            self.free[pool].insert(block.size, (block.address, index));
        } else {
            self.list_unmapped(block.address, index, pool);
        }
    }

    fn unlist(&mut self, index: u32, pool: usize) {
        let block = self.blocks[index as usize];
        if block.mapped {
            self.free[pool].remove(block.size, block.address);
        } else {
            self.unlist_unmapped(block.address, index, pool);
        }
    }

    /// `torch.cuda.empty_cache()`: gives segments without a used block back, and of expandable ones every free page.
    pub fn empty_cache(&mut self) {
        for pool in 0..POOLS {
            let blocks: Vec<u32> = self.free[pool].at_least(0).collect();
            for index in blocks {
                let block = self.blocks[index as usize];
                if self.settings.expandable_segments {
                    self.unmap(index, pool);
                } else if block.previous == NONE && block.next == NONE {
                    self.unlist(index, pool);
                    self.stats.reserved = self.stats.reserved.saturating_sub(block.size);
                    self.recycled.push(index);
                }
            }
        }
    }

    /// The smallest free block that is large enough. A block that can grow counts with all that it can grow to.
    fn best_fit(&mut self, size: u64, pool: usize) -> Option<u32> {
        if !self.settings.expandable_segments {
            return self.free[pool].take(size);
        }
        let mut larger = self.free[pool].at_least(size);
        let mut best = larger.next()?;
        for other in larger {
            if self.size_it_can_have(other) >= self.size_it_can_have(best) {
                break;
            }
            best = other;
        }
        self.unlist(best, pool);
        Some(best)
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
    fn grow(&mut self, size: u64, pool: usize) -> Option<u32> {
        if self.settings.expandable_segments {
            return self.expand(size, pool);
        }
        let bytes = segment_for(size);
        if !self.allows(bytes) {
            self.empty_cache();
            self.stats.retries += 1;
            if !self.allows(bytes) {
                return None;
            }
        }
        // no two blocks lie at one address, however much is asked for
        let address = self.frontier.checked_sub(bytes)?;
        self.frontier = address;
        self.reserve(bytes);
        Some(self.new_block(Entry {
            address,
            size: bytes,
            previous: NONE,
            next: NONE,
            pool: pool as u8,
            used: false,
            mapped: true,
        }))
    }

    /// `should_split`: the rest goes back to the pool where it is worth keeping.
    fn cut(&mut self, index: u32, size: u64, pool: usize) {
        let block = self.blocks[index as usize];
        let rest = block.size - size;
        let worth = if is_small(pool) || self.settings.expandable_segments {
            rest >= MIN_BLOCK
        } else {
            rest > SMALL_SIZE
        };
        if !worth {
            return;
        }
        let other = self.split(index, size);
        self.list(other, pool);
    }

    /// Cuts a block after `size` bytes; returns the rest, which is in no list.
    fn split(&mut self, index: u32, size: u64) -> u32 {
        let block = self.blocks[index as usize];
        let rest = Entry { address: block.address + size, size: block.size - size, previous: index, ..block };
        let other = self.new_block(rest);
        if block.next != NONE {
            self.blocks[block.next as usize].previous = other;
        }
        let first = &mut self.blocks[index as usize];
        first.size = size;
        first.next = other;
        other
    }

    fn join(&mut self, first: u32, second: u32) {
        let gone = self.blocks[second as usize];
        let kept = &mut self.blocks[first as usize];
        kept.size += gone.size;
        kept.next = gone.next;
        if gone.next != NONE {
            self.blocks[gone.next as usize].previous = first;
        }
        self.recycled.push(second);
    }
}
