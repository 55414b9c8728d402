//! The free blocks of a pool in the order in which they are taken: the smallest first, of equal ones that at the lowest
//! address.

use std::collections::VecDeque;

use super::NONE;

/// Free blocks by size: at any time there are few sizes, most of them with a single block, and some with thousands.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    /// From the smallest to the largest.
    sizes: Vec<Size>,
    /// Where a size stands whose last block was taken out: what is left of that block, or what it was joined to, mostly
    /// stands there next.
    gap: Option<usize>,
    /// Blocks of a size beside its first, that at the lowest address last.
    queues: Vec<VecDeque<Place>>,
    /// Which of them no size has.
    spare: Vec<u32>,
}

/// Blocks of one size.
#[derive(Debug)]
struct Size {
    size: u64,
    /// The block at the lowest address.
    address: u64,
    index: u32,
    /// The queue of its others, or [`NONE`] until there are any.
    others: u32,
}

/// Address and index of a block.
type Place = (u64, u32);

impl FreeList {
    /// Adds a block.
    pub fn insert(&mut self, size: u64, (address, index): Place) {
        if let Some(gap) = self.gap.filter(|gap| self.fits(*gap, size)) {
            self.gap = None;
            let others = self.sizes[gap].others;
            self.sizes[gap] = Size { size, address, index, others };
            return;
        }
        self.close_gap();
        let at = self.position(size);
        if self.sizes.get(at).is_some_and(|other| other.size == size) {
            self.insert_at(at, (address, index));
        } else {
            self.sizes.insert(at, Size { size, address, index, others: NONE });
        }
    }

    /// Adds a block to those of its size that stand there.
    fn insert_at(&mut self, at: usize, block: Place) {
        let size = &mut self.sizes[at];
        if size.others == NONE {
            size.others = self.spare.pop().unwrap_or_else(|| {
                self.queues.push(VecDeque::new());
                self.queues.len() as u32 - 1
            });
        }
        let others = &mut self.queues[size.others as usize];
        if block.0 < size.address {
            others.push_back((size.address, size.index));
            (size.address, size.index) = block;
        } else {
            others.insert(place(others, block.0), block);
        }
    }

    /// Takes out the block of that size at that address.
    pub fn remove(&mut self, size: u64, address: u64) {
        self.close_gap();
        let at = self.position(size);
        match self.sizes.get(at) {
            Some(size) if size.address != address => {
                if let Some(others) = self.queues.get_mut(size.others as usize) {
                    others.remove(place(others, address));
                }
            }
            Some(_) => self.remove_first(at),
            None => {}
        }
    }

    /// Takes out the first block of at least that size.
    pub fn take(&mut self, size: u64) -> Option<u32> {
        self.close_gap();
        let at = self.position(size);
        let index = self.sizes.get(at)?.index;
        self.remove_first(at);
        Some(index)
    }

    /// Takes out the first block of a size.
    fn remove_first(&mut self, at: usize) {
        let size = &mut self.sizes[at];
        match self.queues.get_mut(size.others as usize).and_then(VecDeque::pop_back) {
            Some(next) => (size.address, size.index) = next,
            None => self.gap = Some(at),
        }
    }

    /// The blocks of at least that size.
    pub fn at_least(&self, size: u64) -> impl Iterator<Item = u32> {
        let first = self.position(size);
        let sizes =
            self.sizes[first..].iter().enumerate().filter(move |(at, _)| Some(first + at) != self.gap);
        sizes.flat_map(|(_, size)| {
            let others =
                self.queues.get(size.others as usize).into_iter().flat_map(|others| others.iter().rev());
            std::iter::once(size.index).chain(others.map(|(_, index)| *index))
        })
    }

    /// Where the sizes of at least that begin: there are too few for a search to be faster.
    fn position(&self, size: u64) -> usize {
        self.sizes.iter().position(|other| other.size >= size).unwrap_or(self.sizes.len())
    }

    /// Whether the sizes are in order with that one there.
    fn fits(&self, at: usize, size: u64) -> bool {
        (at == 0 || self.sizes[at - 1].size < size)
            && self.sizes.get(at + 1).is_none_or(|next| size < next.size)
    }

    /// Forgets the size without a block.
    fn close_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            let others = self.sizes.remove(gap).others;
            if others != NONE {
                self.spare.push(others);
            }
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

    /// The same blocks in an order that is right at sight: size, address and index.
    type Ordered = BTreeSet<(u64, u64, u32)>;

    /// Many blocks of few sizes, and few blocks of few and of many sizes.
    #[test]
    fn blocks_are_in_the_order_of_size_and_address() {
        for (sizes, most) in [(60, usize::MAX), (60, 20), (5_000, 40)] {
            let (list, set) = after_steps(sizes, most);
            assert!(set.len() > most.min(500) / 2 && list.at_least(0).count() == set.len());
        }
    }

    fn after_steps(sizes: u64, most: usize) -> (FreeList, Ordered) {
        let (mut list, mut set) = (FreeList::default(), Ordered::new());
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for index in 0..5_000u32 {
            let (size, address) = (512 * (1 + draw(sizes)), 512 * draw(1 << 20));
            match draw(5) {
                0..3 => {
                    if set.len() < most && set.iter().all(|(_, other, _)| *other != address) {
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
            check(&list, &set, size);
        }
        (list, set)
    }

    fn check(list: &FreeList, set: &Ordered, size: u64) {
        let larger = set.range((size, 0, 0)..).map(|(_, _, index)| *index);
        assert!(list.at_least(size).eq(larger));
        let sizes: BTreeSet<u64> = set.iter().map(|(size, ..)| *size).collect();
        let kept = list.sizes.iter().enumerate().filter(|(at, _)| Some(*at) != list.gap);
        assert!(kept.map(|(_, size)| size.size).eq(sizes));
        let with_queue = list.sizes.iter().filter(|size| size.others != NONE).count();
        assert_eq!(list.spare.len(), list.queues.len() - with_queue);
    }
}
