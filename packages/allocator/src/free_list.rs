//! The free blocks of a pool in the order in which they are taken: the smallest first, of equal ones that at the lowest
//! address.

use std::collections::VecDeque;

/// Free blocks by size: at any time there are few sizes, and up to thousands of blocks of one.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    /// From the smallest to the largest, each with where its blocks are.
    sizes: Vec<(u64, u32)>,
    /// The blocks of each size, that at the lowest address last.
    blocks: Vec<VecDeque<Place>>,
    /// Which of them are empty.
    empty: Vec<u32>,
    /// Where a size stands whose last block was taken out: what is left of that block, or what it was joined to, mostly
    /// stands there next.
    gap: Option<usize>,
}

/// Address and index of a block.
type Place = (u64, u32);

impl FreeList {
    /// Adds a block.
    pub fn insert(&mut self, size: u64, (address, index): Place) {
        let at = self.place_for(size);
        let blocks = &mut self.blocks[self.sizes[at].1 as usize];
        if blocks.back().is_none_or(|(lowest, _)| *lowest > address) {
            blocks.push_back((address, index));
        } else {
            blocks.insert(place(blocks, address), (address, index));
        }
    }

    /// Takes out the block of that size at that address.
    pub fn remove(&mut self, size: u64, address: u64) {
        self.close_gap();
        let at = self.position(size);
        let Some((_, blocks)) = self.sizes.get(at) else { return };
        let blocks = &mut self.blocks[*blocks as usize];
        if blocks.back().is_some_and(|(lowest, _)| *lowest == address) {
            blocks.pop_back();
        } else {
            blocks.remove(place(blocks, address));
        }
        self.gap_if_empty(at);
    }

    /// Takes out the first block of at least that size.
    pub fn take(&mut self, size: u64) -> Option<u32> {
        self.close_gap();
        let at = self.position(size);
        let (_, blocks) = self.sizes.get(at)?;
        let (_, index) = self.blocks[*blocks as usize].pop_back()?;
        self.gap_if_empty(at);
        Some(index)
    }

    /// The blocks of at least that size.
    pub fn at_least(&self, size: u64) -> impl Iterator<Item = u32> {
        let sizes = self.sizes[self.position(size)..].iter();
        sizes.flat_map(|(_, blocks)| self.blocks[*blocks as usize].iter().rev()).map(|(_, index)| *index)
    }

    /// Where the sizes of at least that begin: there are too few for a search to be faster.
    fn position(&self, size: u64) -> usize {
        self.sizes.iter().position(|(other, _)| *other >= size).unwrap_or(self.sizes.len())
    }

    /// Where a size stands, which may not have stood there before.
    fn place_for(&mut self, size: u64) -> usize {
        if let Some(gap) = self.gap.filter(|gap| self.fits(*gap, size)) {
            self.gap = None;
            self.sizes[gap].0 = size;
            return gap;
        }
        self.close_gap();
        let at = self.position(size);
        if self.sizes.get(at).is_none_or(|(other, _)| *other != size) {
            self.add(at, size);
        }
        at
    }

    fn add(&mut self, at: usize, size: u64) {
        let blocks = self.empty.pop().unwrap_or_else(|| {
            self.blocks.push(VecDeque::new());
            self.blocks.len() as u32 - 1
        });
        self.sizes.insert(at, (size, blocks));
    }

    /// Whether the sizes are in order with that one there.
    fn fits(&self, at: usize, size: u64) -> bool {
        (at == 0 || self.sizes[at - 1].0 < size)
            && self.sizes.get(at + 1).is_none_or(|(next, _)| size < *next)
    }

    fn gap_if_empty(&mut self, at: usize) {
        if self.blocks[self.sizes[at].1 as usize].is_empty() {
            self.gap = Some(at);
        }
    }

    fn close_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            let (_, blocks) = self.sizes.remove(gap);
            self.empty.push(blocks);
        }
    }
}

/// How many blocks are at higher addresses than that.
fn place(blocks: &VecDeque<Place>, address: u64) -> usize {
    blocks.partition_point(|(other, _)| *other > address)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn blocks_are_in_the_order_of_size_and_address() {
        let (mut list, mut set) = (FreeList::default(), BTreeSet::new());
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for index in 0..5_000u32 {
            let (size, address) = (512 * (1 + draw(60)), 512 * draw(1 << 20));
            match draw(5) {
                0..3 => {
                    if set.iter().all(|(_, other, _)| *other != address) {
                        set.insert((size, address, index));
                        list.insert(size, (address, index));
                    }
                }
                3 => {
                    let first = set.range((size, 0, 0)..).next().copied();
                    assert_eq!(list.take(size), first.map(|(_, _, index)| index));
                    set.retain(|block| Some(*block) != first);
                }
                _ => {
                    let some = set.range((size, address, 0)..).next().copied();
                    if let Some((size, address, _)) = some {
                        list.remove(size, address);
                    }
                    set.retain(|block| Some(*block) != some);
                }
            }
            let larger: Vec<u32> = set.range((size, 0, 0)..).map(|(_, _, index)| *index).collect();
            assert!(list.at_least(size).eq(larger));
            let sizes: BTreeSet<u64> = set.iter().map(|(size, ..)| *size).collect();
            let kept = list.sizes.iter().enumerate().filter(|(at, _)| Some(*at) != list.gap);
            assert!(kept.map(|(_, (size, _))| *size).eq(sizes));
            assert_eq!(list.empty.len(), list.blocks.len() - list.sizes.len());
        }
        assert!(set.len() > 500 && list.at_least(0).count() == set.len());
        assert!(list.blocks.len() <= 60);
    }
}
