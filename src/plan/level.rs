//! How much of its card a run uses, in words.

use serde::{Deserialize, Serialize};

use super::fit::Fit;

/// The level of use of a card, by thirds of what it has: the 4, 8 and 12 GB of the memory estimation guide of AGI2, whose cards have 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Less than a third.
    Light,
    /// Less than two thirds.
    Moderate,
    /// More, and no more than there is.
    High,
    /// More than there is.
    Beyond,
}

impl Level {
    /// The level of what is needed of a card.
    pub fn of(fit: &Fit) -> Level {
        let thirds = fit.needed.0 as f64 * 3.0;
        let card = fit.capacity.0 as f64;
        match fit.fits() {
            false => Level::Beyond,
            true if thirds < card => Level::Light,
            true if thirds < 2.0 * card => Level::Moderate,
            true => Level::High,
        }
    }

    /// What it is called.
    pub const fn label(self) -> &'static str {
        match self {
            Level::Light => "light use",
            Level::Moderate => "moderate use",
            Level::High => "high use",
            Level::Beyond => "more than there is",
        }
    }

    /// What it recommends.
    pub const fn advice(self) -> &'static str {
        match self {
            Level::Light => "a larger micro-batch, a longer sequence or a smaller card would do",
            Level::Moderate => "watch the memory in the first steps",
            Level::High => "nothing else should start on the card",
            Level::Beyond => "change the run, or take a larger card or several",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::within;
    use crate::units::Bytes;

    #[test]
    fn levels_are_thirds_of_the_card() {
        let of = |gib: f64| Level::of(&within(Bytes::gib(gib), Bytes::gib(12.0)));
        let levels = [0.0, 3.9, 4.0, 7.9, 8.0, 12.0, 12.1].map(of);
        use Level::{Beyond, High, Light, Moderate};
        assert_eq!(levels, [Light, Light, Moderate, Moderate, High, High, Beyond]);
        assert_eq!(Level::of(&within(Bytes(1), Bytes::ZERO)), Beyond);
    }
}
