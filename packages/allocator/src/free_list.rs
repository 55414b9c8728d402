//! The free blocks of a pool in the order in which they are taken: the smallest first, of equal ones that at the lowest
//! address.

use std::cmp::Ordering;
use std::collections::VecDeque;

/// How many sizes without a block may stand among the others: what comes and goes finds its place as it left it.
const MOST_EMPTY: usize = 24;

/// Free blocks by size: at any time there are few sizes, and up to thousands of blocks of one.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    /// From the smallest to the largest.
    sizes: Vec<u64>,
    /// The blocks of each size, that at the lowest address last.
    blocks: Vec<VecDeque<Place>>,
    /// How many of them are empty.
    empty: usize,
    /// What held the blocks of sizes that are gone.
    spare: Vec<VecDeque<Place>>,
}

/// Address and index of a block.
type Place = (u64, u32);

impl FreeList {
    /// Adds a block.
    pub fn insert(&mut self, size: u64, (address, index): Place) {
        let at = self.position(size);
        if self.sizes.get(at) != Some(&size) {
            self.sizes.insert(at, size);
            self.blocks.insert(at, self.spare.pop().unwrap_or_default());
        } else if self.blocks[at].is_empty() {
            self.empty -= 1;
        }
        let blocks = &mut self.blocks[at];
        blocks.insert(place(blocks, address), (address, index));
    }

    /// Takes out the block of that size at that address.
    pub fn remove(&mut self, size: u64, address: u64) {
        let at = self.position(size);
        if let Some(blocks) = self.blocks.get_mut(at) {
            blocks.remove(place(blocks, address));
            self.forget_if_empty(at);
        }
    }

    /// Takes out the first block of at least that size.
    pub fn take(&mut self, size: u64) -> Option<u32> {
        let first = self.position(size);
        let at = first + self.blocks[first..].iter().position(|blocks| !blocks.is_empty())?;
        let (_, index) = self.blocks[at].pop_back()?;
        self.forget_if_empty(at);
        Some(index)
    }

    /// The blocks of at least that size.
    pub fn at_least(&self, size: u64) -> impl Iterator<Item = u32> {
        let sizes = self.blocks[self.position(size)..].iter();
        sizes.flat_map(|blocks| blocks.iter().rev()).map(|(_, index)| *index)
    }

    /// Where the sizes of at least that begin: there are too few for a search to be faster.
    fn position(&self, size: u64) -> usize {
        self.sizes.iter().position(|other| *other >= size).unwrap_or(self.sizes.len())
    }

    /// Counts a size that has no block any more, and forgets all such once they are many.
    fn forget_if_empty(&mut self, at: usize) {
        if !self.blocks[at].is_empty() {
            return;
        }
        self.empty += 1;
        if self.empty > MOST_EMPTY {
            let mut kept = self.blocks.iter().map(|blocks| !blocks.is_empty());
            self.sizes.retain(|_| kept.next().unwrap_or_default());
            self.spare.extend(self.blocks.extract_if(.., |blocks| blocks.is_empty()));
            self.empty = 0;
        }
    }
}

/// How many blocks are at higher addresses than that: mostly all others, since what was freed last is at the lowest.
fn place(blocks: &VecDeque<Place>, address: u64) -> usize {
    match blocks.back().map(|(lowest, _)| lowest.cmp(&address)) {
        None | Some(Ordering::Greater) => blocks.len(),
        Some(Ordering::Equal) => blocks.len() - 1,
        Some(Ordering::Less) => blocks.partition_point(|(other, _)| *other > address),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn blocks_are_in_the_order_of_size_and_address() {
        let (mut list, mut set) = (FreeList::default(), BTreeSet::new());
        let mut most_empty = 0;
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
            assert_eq!(list.empty, list.blocks.iter().filter(|blocks| blocks.is_empty()).count());
            most_empty = most_empty.max(list.empty);
        }
        assert!(set.len() > 500 && list.at_least(0).count() == set.len());
        assert_eq!(most_empty, MOST_EMPTY);
    }
}
