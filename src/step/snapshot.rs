//! Where every tensor lies: a recording's blocks and segments as the allocator places them, for PyTorch's memory_viz.

use super::heap::record::Event;
use super::recording::Recording;
use crate::allocator::{Placed, Settings};

/// A block and what lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotBlock {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes that were asked for; all of them where it is free.
    pub requested: u64,
    /// Whether a tensor lies in it.
    pub used: bool,
    /// Whether its segment is one of small blocks.
    pub is_small: bool,
    /// The number of its stream.
    pub stream: usize,
    /// The module that made it, without the layer's number.
    pub module: &'static str,
    /// The operation that made it.
    pub operation: &'static str,
}

/// A block that is handed out or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEvent {
    /// Whether it is handed out.
    pub comes: bool,
    /// The block.
    pub block: SnapshotBlock,
}

/// The blocks of the iteration that is shown, one after the other, and all segments at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What comes and goes.
    pub events: Vec<SnapshotEvent>,
    /// Each segment's blocks, by address.
    pub segments: Vec<Vec<SnapshotBlock>>,
}

impl Recording {
    /// The iteration that is shown, block by block; it ends where there is no memory for more.
    pub fn snapshot(&self, settings: Settings) -> Snapshot {
        let shown = self.shown();
        let mut placed: Vec<Option<SnapshotBlock>> = vec![None; self.storages.len()];
        let mut events = Vec::new();
        let (feed, _) = self.feed(shown.end, settings, &mut |index, feed| {
            if index == self.repeats_at() {
                self.handed_over().for_each(|(left, freed)| placed[freed] = placed[left].take());
            }
            let (id, comes) = match self.event(index) {
                Some(Event::Alloc(id)) => (id, true),
                Some(Event::Free(id)) => (id, false),
                Some(Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache) | None => return,
            };
            let slot = &mut placed[id as usize];
            let block = if comes {
                *slot = feed.placed(id).map(|placed| self.block(Some(id), placed));
                *slot
            } else {
                slot.take()
            };
            if shown.contains(&index) {
                events.extend(block.map(|block| SnapshotEvent { comes, block }));
            }
        });
        let tensors =
            placed.iter().enumerate().filter_map(|(id, block)| Some((block.as_ref()?.address, id as u32)));
        let tensors: std::collections::BTreeMap<u64, u32> = tensors.collect();
        let segment = |blocks: Vec<Placed>| {
            blocks
                .into_iter()
                .map(|placed| self.block(tensors.get(&placed.address).copied(), placed))
                .collect()
        };
        Snapshot { events, segments: feed.segments().into_iter().map(segment).collect() }
    }

    fn block(&self, id: Option<u32>, placed: Placed) -> SnapshotBlock {
        let Placed { address, size, used, is_small, stream } = placed;
        let (requested, (module, operation)) = match id {
            Some(id) => (self.storages[id as usize].bytes(), self.made_by(id)),
            None => (size, ("", "")),
        };
        SnapshotBlock { address, size, requested, used, is_small, stream, module, operation }
    }
}
