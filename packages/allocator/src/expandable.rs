//! Expandable segments: address ranges that pages are mapped into and taken out of, one range for each pool.

use super::{CachingAllocator, Entry, LARGE_SEGMENT, NONE, SMALL_SEGMENT, is_small};

/// Addresses of an expandable segment: a multiple of both pages, and more than any card has memory.
const ADDRESSES: u64 = 20 << 54;

impl CachingAllocator {
    pub(super) fn list_unmapped(&mut self, address: u64, index: u32, pool: usize) {
        self.unmapped[pool].insert((address, index));
    }

    pub(super) fn unlist_unmapped(&mut self, address: u64, index: u32, pool: usize) {
        self.unmapped[pool].remove(&(address, index));
    }

    /// Gives the whole pages of a free block back (`unmap_block`).
    pub(super) fn unmap(&mut self, index: u32, pool: usize) {
        let page = page(pool);
        let block = self.blocks[index as usize];
        let end = block.address.saturating_add(block.size);
        let (first, last) = (block.address.div_ceil(page).saturating_mul(page), end / page * page);
        if first >= last {
            return;
        }
        self.unlist(index, pool);
        let mut index = index;
        if first > block.address {
            let rest = self.split(index, first - block.address);
            self.list(index, pool);
            index = rest;
        }
        if end > last {
            let rest = self.split(index, last - first);
            self.list(rest, pool);
        }
        self.blocks[index as usize].mapped = false;
        self.stats.reserved = self.stats.reserved.saturating_sub(last - first);
        let index = self.merged(index, pool);
        self.list(index, pool);
    }

    pub(super) fn size_it_can_have(&self, index: u32) -> u64 {
        let block = &self.blocks[index as usize];
        let next = self.blocks.get(block.next as usize).filter(|next| !next.mapped);
        block.size.saturating_add(next.map_or(0, |next| next.size))
    }

    pub(super) fn expand(&mut self, size: u64, pool: usize) -> Option<u32> {
        let grown = self.mapped_for(size, pool);
        if grown.is_some() {
            return grown;
        }
        self.empty_cache();
        self.stats.retries += 1;
        self.mapped_for(size, pool)
    }

    /// Maps pages until there is a free block of that size, which is then in no list (`try_allocate_expandable_block`).
    fn mapped_for(&mut self, size: u64, pool: usize) -> Option<u32> {
        let mut index = self.room(size, pool)?;
        if !self.blocks[index as usize].mapped {
            index = self.map(index, size, pool)?;
        }
        while self.blocks[index as usize].size < size {
            let Entry { size: have, next, .. } = self.blocks[index as usize];
            index = self.map(next, size - have, pool)?;
        }
        self.unlist(index, pool);
        Some(index)
    }

    /// The first stretch of free addresses with that much room, at the lowest one without memory or at the free block
    /// before it (`find_expandable_block`).
    fn room(&mut self, size: u64, pool: usize) -> Option<u32> {
        if self.unmapped[pool].is_empty() {
            // each pool has an address range of its own, larger than any card
            let address = (pool as u64) << 60;
            let entry = Entry {
                address,
                size: ADDRESSES,
                previous: NONE,
                next: NONE,
                pool: pool as u8,
                used: false,
                mapped: false,
            };
            let index = self.new_block(entry);
            self.list(index, pool);
        }
        let free = |index: u32| self.blocks.get(index as usize).filter(|block| !block.used);
        let starts = self.unmapped[pool].iter().map(|(_, index)| {
            let previous = self.blocks[*index as usize].previous;
            if free(previous).is_some() { previous } else { *index }
        });
        let fits = |start: &u32| {
            let mut room = 0u64;
            let mut index = *start;
            while let Some(block) = free(index).filter(|_| room < size) {
                room = room.saturating_add(block.size);
                index = block.next;
            }
            room >= size
        };
        starts.into_iter().find(fits)
    }

    /// Maps the first pages of a block without memory, up to `size` or its end, and joins them with what is free around
    /// them (`map_block`).
    fn map(&mut self, index: u32, size: u64, pool: usize) -> Option<u32> {
        let page = page(pool);
        let block = self.blocks[index as usize];
        let bytes = size.min(block.size).div_ceil(page).saturating_mul(page);
        if !self.allows(bytes) {
            return None;
        }
        self.unlist(index, pool);
        if bytes < block.size {
            let rest = self.split(index, bytes);
            self.list(rest, pool);
        }
        self.blocks[index as usize].mapped = true;
        self.reserve(bytes);
        let index = self.merged(index, pool);
        self.list(index, pool);
        Some(index)
    }
}

/// Granularity of an expandable segment.
const fn page(pool: usize) -> u64 {
    if is_small(pool) { SMALL_SEGMENT } else { LARGE_SEGMENT }
}
