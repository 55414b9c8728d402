//! Whether a training step fits on a card.

use crate::hardware::Gpu;
use crate::memory::Memory;
use crate::units::Bytes;

/// How far a card is from what is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Margin {
    /// It fits, and so much is left.
    Headroom(Bytes),
    /// It does not fit; so much is missing.
    Overshoot(Bytes),
}

/// What is needed against what a card has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// What the step needs of the card.
    pub needed: Bytes,
    /// What a program can have of the card.
    pub capacity: Bytes,
    /// The difference.
    pub margin: Margin,
}

impl Fit {
    /// Whether it fits.
    pub fn fits(&self) -> bool {
        matches!(self.margin, Margin::Headroom(_))
    }

    /// The share of the card that is needed, in percent.
    pub fn percent(&self) -> f64 {
        self.needed.percent_of(self.capacity)
    }
}

/// Whether the step fits on the card: the one place that decides it, for the page, the command and the solvers.
pub fn fits(memory: &Memory, gpu: &Gpu) -> Fit {
    within(memory.needed(), gpu.memory)
}

/// Whether so much fits into an amount of memory.
pub fn within(needed: Bytes, capacity: Bytes) -> Fit {
    let margin = if needed <= capacity {
        Margin::Headroom(capacity.saturating_sub(needed))
    } else {
        Margin::Overshoot(needed.saturating_sub(capacity))
    };
    Fit { needed, capacity, margin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_decides() {
        assert_eq!(within(Bytes(8), Bytes(8)).margin, Margin::Headroom(Bytes::ZERO));
        assert_eq!(within(Bytes(9), Bytes(8)).margin, Margin::Overshoot(Bytes(1)));
        assert!(!within(Bytes(1), Bytes::ZERO).fits());
        assert_eq!(within(Bytes(1), Bytes::ZERO).percent(), 0.0);
    }
}
