//! The tensors that are alive at a moment of a recording, in groups of equal ones.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::heap::record::{Maker, Pass};
use super::heap::{StorageId, rounded};
use super::recording::Recording;
use crate::allocator::Settings;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::what::{Dims, Role, Source, What, roles};
use crate::units::Bytes;

static BLOCK_REST: What = What::own(
    "rest of a block",
    "the allocator splits a block only where more than 1 MiB would be left of it",
    Source::At("PyTorch, c10/cuda/CUDACachingAllocator.cpp, should_split"),
);

/// Equal tensors that are alive at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorGroup {
    /// What they are for.
    pub category: Category,
    /// The module that made them, without the layer's number.
    pub module: &'static str,
    /// What they are.
    pub what: &'static What,
    /// What the operation that made them was run for.
    pub role: &'static Role,
    /// Their dimensions.
    pub dims: Dims,
    /// When they were made.
    pub pass: Pass,
    /// The layer whose they are, counted from 1, where those of each are a group; 0 outside of the layers.
    pub layer: u32,
    /// Their element type.
    pub dtype: Dtype,
    /// Bytes of one.
    pub bytes: Bytes,
    /// How many.
    pub count: u64,
}

impl TensorGroup {
    /// What blocks have beyond their tensors, of which there is none yet.
    fn rests() -> TensorGroup {
        TensorGroup {
            category: Category::Rounding,
            module: "",
            what: &BLOCK_REST,
            role: &roles::RESIDUAL,
            dims: Dims::Elements,
            pass: Pass::Forward,
            layer: 0,
            dtype: Dtype::U8,
            bytes: Bytes::ZERO,
            count: 1,
        }
    }

    /// Bytes of all of them, each rounded up to the allocator's 512.
    pub fn total(&self) -> Bytes {
        Bytes(rounded(self.bytes.0).saturating_mul(self.count))
    }
}

impl Recording {
    /// The tensors alive at the highest point of the run, by category, the largest first; what their blocks have beyond
    /// them is one group at the end.
    pub fn tensors_at_peak(&self, settings: Settings) -> Vec<TensorGroup> {
        self.tensors_at(self.replay(settings).highest, settings)
    }

    /// The same at the moment after the event of that number.
    pub fn tensors_at(&self, at: usize, settings: Settings) -> Vec<TensorGroup> {
        let (mut sorted, rests) = self.groups(at, settings, |maker| Maker { layer: 0, ..maker });
        sorted.sort_by_key(|group| (group.category, Reverse(group.total())));
        sorted.extend(rests);
        sorted
    }

    /// The same, those of each layer by themselves, by category and module.
    pub fn tensors_by_layer(&self, at: usize, settings: Settings) -> Vec<TensorGroup> {
        let (mut groups, rests) = self.groups(at, settings, |maker| maker);
        groups.extend(rests);
        groups
    }

    /// The tensors after that event, grouped by what is left of their maker, and what their blocks have beyond them.
    fn groups(
        &self,
        at: usize,
        settings: Settings,
        by: fn(Maker) -> Maker,
    ) -> (Vec<TensorGroup>, Option<TensorGroup>) {
        let (feed, _) = self.feed(at.saturating_add(1), settings, &mut |_, _| ());
        let mut rests = TensorGroup::rests();
        let mut groups: BTreeMap<(Category, Maker, u64, Dtype), TensorGroup> = BTreeMap::new();
        for (id, category, rest) in feed.alive() {
            let (storage, maker) = (self.storage(id), by(self.makers[id as usize]));
            let group = groups
                .entry((category, maker, storage.requested, storage.dtype))
                .or_insert_with(|| TensorGroup { layer: maker.layer, ..self.group(id, category) });
            group.count += u64::from(storage.times);
            rests.bytes += rest;
        }
        (groups.into_values().collect(), (rests.bytes > Bytes::ZERO).then_some(rests))
    }

    /// The group of a storage that is for that, without any member yet.
    pub(super) fn group(&self, id: StorageId, category: Category) -> TensorGroup {
        let (storage, maker) = (self.storage(id), self.makers[id as usize]);
        TensorGroup {
            category,
            module: maker.module,
            what: maker.what,
            role: maker.role,
            dims: maker.dims,
            pass: maker.pass,
            layer: 0,
            dtype: storage.dtype,
            bytes: Bytes(storage.requested),
            count: 0,
        }
    }
}
