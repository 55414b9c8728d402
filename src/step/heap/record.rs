//! What happened to the allocator, event by event, and what made each storage.

use super::StorageId;
use crate::memory::{Category, Phase};
use crate::step::what::{Dims, Role, What, roles, torch};

/// What made a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::step) struct Maker {
    /// The module, as a path inside its layer.
    pub module: &'static str,
    /// What it is.
    pub what: &'static What,
    /// What the operation was run for.
    pub role: &'static Role,
    /// Its dimensions.
    pub dims: Dims,
    /// When it was made.
    pub pass: Pass,
}

/// The part of a step in which a storage is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Forward; or the optimizer's step.
    Forward,
    /// The recomputation of a layer's forward by checkpointing.
    Recomputation,
    /// Backward.
    Backward,
}

/// One thing that happened to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Event {
    /// A storage was allocated.
    Alloc(StorageId),
    /// A storage was freed.
    Free(StorageId),
    /// A storage serves something else from now on.
    Becomes(StorageId, Category),
    /// A phase begins.
    Mark(Phase),
    /// The script empties the allocator's cache.
    EmptyCache,
}

/// All that happened to the allocator, and what made each storage.
#[derive(Debug, Default)]
pub(in crate::step) struct Record {
    pub events: Vec<Event>,
    /// By [`StorageId`].
    pub makers: Vec<Maker>,
    /// What each storage was for when it was made.
    pub born: Vec<Category>,
}

impl Record {
    /// A record of nothing but [`super::NOTHING`].
    pub fn new() -> Record {
        Record {
            events: Vec::with_capacity(1 << 15),
            makers: vec![Maker {
                module: "",
                what: &torch::ZERO,
                role: &roles::RESIDUAL,
                dims: Dims::Elements,
                pass: Pass::Forward,
            }],
            born: vec![Category::Temporaries],
        }
    }
}
