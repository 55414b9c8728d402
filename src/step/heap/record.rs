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
    /// The layer whose it is, counted from 1; 0 outside of the layers.
    pub layer: u32,
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

/// When something happens while a model is loaded: everything of an earlier one comes first, whatever order the description
/// of the model has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::step) enum Loading {
    /// The modules are made, and their weights quantised.
    #[default]
    Weights,
    /// peft's `prepare_model_for_kbit_training` casts what is left in half precision to float32.
    Upcasts,
    /// peft adds the adapters.
    Adapters,
    /// peft casts half-precision adapters to float32 (`cast_adapter_dtype`).
    AdapterCasts,
}

impl Loading {
    const COUNT: usize = Loading::AdapterCasts as usize + 1;
}

/// About how many storages so many events have: most of them come and go.
pub(super) fn storages_of(events: usize) -> usize {
    events / 2 + 1
}

/// All that happened to the allocator, and what made each storage.
#[derive(Debug, Default)]
pub(in crate::step) struct Record {
    pub events: Vec<Event>,
    /// By [`StorageId`].
    pub makers: Vec<Maker>,
    /// The running part of the loading, whose events `events` are until it ends.
    loading: Loading,
    /// Those of its other parts.
    parts: [Vec<Event>; Loading::COUNT],
}

impl Record {
    /// A record of nothing but [`super::NOTHING`], with room for so many events.
    pub fn of(events: usize) -> Record {
        let mut makers = Vec::with_capacity(storages_of(events));
        makers.push(Maker {
            module: "",
            what: &torch::ZERO,
            role: &roles::RESIDUAL,
            dims: Dims::Elements,
            pass: Pass::Forward,
            layer: 0,
        });
        Record {
            events: Vec::with_capacity(events),
            makers,
            loading: Loading::Weights,
            parts: Default::default(),
        }
    }

    /// Notes that what follows happens in that part of the loading; returns the one up to now.
    pub fn load_in(&mut self, part: Loading) -> Loading {
        let before = std::mem::replace(&mut self.loading, part);
        if before != part {
            std::mem::swap(&mut self.events, &mut self.parts[before as usize]);
            std::mem::swap(&mut self.events, &mut self.parts[part as usize]);
        }
        before
    }

    /// The loading is over: its parts come one after the other. Whoever quantises empties the cache, and so does peft after
    /// its upcasts.
    pub fn end_loading(&mut self, quantised: bool) {
        self.load_in(Loading::Weights);
        for (part, events) in self.parts.iter_mut().enumerate() {
            if quantised && [Loading::Upcasts as usize, Loading::Adapters as usize].contains(&part) {
                self.events.push(Event::EmptyCache);
            }
            self.events.append(events);
        }
    }
}
