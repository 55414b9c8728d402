//! Live bytes by category, and their highest point.

use crate::memory::{Category, Parts, Peak};

/// The running total by category and its highest point since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::step) struct Ledger {
    /// Live bytes.
    pub current: u64,
    /// Live bytes by category.
    pub parts: Parts,
    /// The highest point since [`Ledger::restart`]; its parts are noted when it is left.
    peak: Peak,
    /// Whether the highest point is now.
    rising: bool,
}

impl Ledger {
    /// Something came.
    pub fn add(&mut self, category: Category, bytes: u64) {
        self.current = self.current.saturating_add(bytes);
        self.parts.add(category, bytes);
        if self.current > self.peak.bytes.0 {
            self.peak.bytes.0 = self.current;
            self.rising = true;
        }
    }

    /// Something went.
    pub fn subtract(&mut self, category: Category, bytes: u64) {
        self.note_peak();
        self.current = self.current.saturating_sub(bytes);
        self.parts.subtract(category, bytes);
    }

    /// Something came to be of another category.
    pub fn move_to(&mut self, from: Category, to: Category, bytes: u64) {
        self.note_peak();
        self.parts.subtract(from, bytes);
        self.parts.add(to, bytes);
    }

    /// The parts of the highest point are those of now, if it is now.
    fn note_peak(&mut self) {
        if self.rising {
            self.rising = false;
            self.peak.parts = self.parts;
        }
    }

    /// The highest point since the last reset.
    pub fn peak(&mut self) -> Peak {
        self.note_peak();
        self.peak
    }

    /// From now on the highest point is that of what follows; returns the ledger up to now.
    pub fn restart(&mut self) -> Ledger {
        self.note_peak();
        let until_now = *self;
        self.peak.bytes.0 = self.current;
        self.rising = true;
        until_now
    }

    /// Moves to other live bytes, reached by way of that highest point.
    pub fn set(&mut self, parts: Parts, peak: Peak) {
        *self = Ledger { current: parts.total().0, parts, peak, rising: false };
    }
}

impl Parts {
    pub(in crate::step) fn add(&mut self, category: Category, bytes: u64) {
        let part = &mut self.0[category.index()];
        *part = part.saturating_add(bytes);
    }

    pub(in crate::step) fn subtract(&mut self, category: Category, bytes: u64) {
        let part = &mut self.0[category.index()];
        *part = part.saturating_sub(bytes);
    }
}

impl Peak {
    pub(in crate::step) fn of(parts: Parts) -> Peak {
        Peak { bytes: parts.total(), parts }
    }

    /// The same with so much more of a category.
    pub(in crate::step) fn with(self, category: Category, bytes: u64) -> Peak {
        let mut parts = self.parts;
        parts.add(category, bytes);
        Peak::of(parts)
    }

    /// The same without what is gone by then.
    pub(in crate::step) fn without(self, gone: &Parts) -> Peak {
        let mut parts = self.parts;
        Category::ALL.into_iter().for_each(|category| parts.subtract(category, gone.get(category).0));
        Peak::of(parts)
    }
}

/// The higher of two points, the first where they are as high.
pub(in crate::step) fn higher(one: Peak, other: Peak) -> Peak {
    if other.bytes > one.bytes { other } else { one }
}
