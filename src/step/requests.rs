//! Which tensors of a run ask the card for an amount: what an out-of-memory message leaves open.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::alive::TensorGroup;
use super::heap::record::Event;
use super::heap::rounded;
use super::recording::Recording;
use crate::allocator::{Settings, segment_for};
use crate::memory::Phase;
use crate::units::Bytes;

/// A request for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The tensors that it is for: equal ones, which ask at several moments.
    pub tensors: TensorGroup,
    /// The phase of the moment nearest to what was looked for; absent while the model is loaded.
    pub phase: Option<Phase>,
    /// What is allocated right before that moment.
    pub allocated: Bytes,
    /// The most that the allocator has of the card right before any of their moments.
    pub reserved: Bytes,
    /// The number of the event.
    pub at: usize,
}

impl Recording {
    /// The tensors for which the allocator asks the card for an amount within those bounds if no free block is large enough,
    /// whether or not one was: each kind once, at the moment before which `allocated` is most nearly allocated, the nearest kind first.
    pub fn requests(&self, asked: RangeInclusive<u64>, allocated: Bytes, settings: Settings) -> Vec<Request> {
        let mut kinds = BTreeMap::new();
        let mut before = [Bytes::ZERO; 2];
        self.feed(self.len(), settings, &mut |at, feed| {
            let [now, reserved] = std::mem::replace(&mut before, [feed.allocated(), feed.reserved()]);
            let Some(Event::Alloc(id)) = self.event(at) else { return };
            let storage = &self.storages[id as usize];
            if !asked.contains(&segment_for(rounded(storage.bytes()))) {
                return;
            }
            let tensors = self.group(id, storage.born);
            let kind = (tensors.category, tensors.module, tensors.what, tensors.pass, tensors.bytes);
            let request = Request { tensors, phase: feed.phase(), allocated: now, reserved, at };
            let nearest = kinds.entry(kind).or_insert_with(|| request.clone());
            let count = nearest.tensors.count + 1;
            let reserved = nearest.reserved.max(reserved);
            if now.0.abs_diff(allocated.0) < nearest.allocated.0.abs_diff(allocated.0) {
                *nearest = request;
            }
            nearest.tensors.count = count;
            nearest.reserved = reserved;
        });
        let mut requests: Vec<Request> = kinds.into_values().collect();
        requests.sort_by_key(|request| request.allocated.0.abs_diff(allocated.0));
        requests
    }

    /// Whether a tensor is made for which the allocator may ask for an amount within those bounds.
    pub fn asks_for(&self, asked: &RangeInclusive<u64>) -> bool {
        self.storages.iter().any(|storage| asked.contains(&segment_for(rounded(storage.bytes()))))
    }

    /// The most that the allocator asks the card for at once.
    pub fn largest_request(&self) -> Bytes {
        let largest = self.storages.iter().map(|storage| storage.bytes()).max();
        Bytes(largest.map_or(0, |bytes| segment_for(rounded(bytes))))
    }
}
