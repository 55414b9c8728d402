//! A recording event by event, for comparing it with the trace of PyTorch's own allocator.

use std::ops::Range;

use super::heap::record::{Event, Maker};
use super::recording::Recording;
use crate::allocator::Settings;
use crate::memory::Phase;
use crate::units::Bytes;

/// One event of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A phase begins.
    Phase(Phase),
    /// The allocator's cache is emptied.
    EmptyCache,
    /// A tensor's storage is allocated.
    Alloc {
        /// Number of the storage.
        id: u32,
        /// Bytes asked for.
        bytes: u64,
        /// The module, without the layer's number.
        module: &'static str,
        /// The operation.
        operation: &'static str,
    },
    /// A storage is freed.
    Free {
        /// Number of the storage.
        id: u32,
        /// Bytes asked for.
        bytes: u64,
    },
}

impl Recording {
    /// The last iteration event by event, and the bytes that are alive before it.
    pub fn trace(&self) -> (Bytes, Vec<Traced>) {
        let (feed, _) = self.feed(self.shown().start + 1, Settings::default(), &mut |_, _| ());
        let before = feed.tensors();
        (before, self.traced(self.shown()).collect())
    }

    /// The whole run event by event, from the first that its loading asks for.
    pub fn whole_trace(&self) -> Vec<Traced> {
        let loading = self.traced(0..self.loaded);
        loading
            .chain(self.empties.then_some(Traced::EmptyCache))
            .chain(self.traced(self.loaded..self.len()))
            .collect()
    }

    fn traced(&self, numbers: Range<usize>) -> impl Iterator<Item = Traced> {
        numbers.filter_map(|number| self.event(number)).filter_map(|event| match event {
            Event::Becomes(..) => None,
            Event::EmptyCache => Some(Traced::EmptyCache),
            Event::Mark(phase) => Some(Traced::Phase(phase)),
            Event::Alloc(id) => {
                let Maker { module, what, .. } = self.makers[id as usize];
                let operation = what.name;
                Some(Traced::Alloc { id, bytes: self.storage(id).bytes(), module, operation })
            }
            Event::Free(id) => Some(Traced::Free { id, bytes: self.storage(id).bytes() }),
        })
    }
}
