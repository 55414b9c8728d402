//! The answer in words.

use super::format::{Unit, percent};
use super::summary;
use crate::estimate::Memory;
use crate::scenario::Scenario;
use crate::units::Bytes;

/// Whether a run fits on its card, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fits; so much stays free.
    Fits(Bytes),
    /// It does not fit; so much is too much.
    Over(Bytes),
}

impl Fit {
    /// Of so much on a card that has so much.
    pub fn of(needed: Bytes, capacity: Bytes) -> Fit {
        if needed <= capacity {
            Fit::Fits(capacity.saturating_sub(needed))
        } else {
            Fit::Over(needed.saturating_sub(capacity))
        }
    }

    /// The first words of the verdict.
    pub const fn word(self) -> &'static str {
        match self {
            Fit::Fits(_) => "Fits",
            Fit::Over(_) => "Does not fit",
        }
    }

    /// The name in the style sheet.
    pub const fn slug(self) -> &'static str {
        match self {
            Fit::Fits(_) => "fits",
            Fit::Over(_) => "over",
        }
    }

    /// `14.5 GiB to spare`.
    pub fn margin(self, unit: Unit) -> String {
        match self {
            Fit::Fits(free) => format!("{} to spare", unit.amount(free)),
            Fit::Over(over) => format!("{} too much", unit.amount(over)),
        }
    }
}

/// What the verdict of a scenario says.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What the card must have.
    pub needed: Bytes,
    /// Whether it fits.
    pub fit: Fit,
    /// `on the GeForce RTX 4090 with 14.5 GiB to spare`.
    pub margin: String,
    /// `39% of 24.0 GiB`.
    pub share: String,
    /// `backward pass`.
    pub phase: &'static str,
    /// `8.93 GiB allocated + 500 MiB CUDA context`.
    pub composition: String,
}

impl Verdict {
    /// The verdict on an answer; `None` where the card is unknown, which leaves no answer either.
    pub fn of(scenario: &Scenario, memory: &Memory, unit: Unit) -> Option<Verdict> {
        let capacity = scenario.gpu().ok()?.memory;
        let (phase, peak) = memory.peak();
        let needed = memory.needed();
        let fit = Fit::of(needed, capacity);
        let joint = match fit {
            Fit::Fits(_) => " with",
            Fit::Over(_) => ":",
        };
        Some(Verdict {
            needed,
            fit,
            margin: format!("on the {}{joint} {}", summary::card(scenario, unit), fit.margin(unit)),
            share: format!("{} of {}", percent(needed, capacity), unit.amount(capacity)),
            phase: phase.label(),
            composition: format!(
                "{} allocated + {} CUDA context",
                unit.amount(peak.bytes),
                unit.amount(memory.context)
            ),
        })
    }

    /// The whole of it in one sentence, to be read aloud.
    pub fn sentence(&self, unit: Unit) -> String {
        format!(
            "{}. {} {}. The peak is in the {}.",
            unit.amount(self.needed),
            self.fit.word(),
            self.margin,
            self.phase
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_card_still_fits() {
        assert_eq!(Fit::of(Bytes(7), Bytes(7)), Fit::Fits(Bytes(0)));
        assert_eq!(Fit::of(Bytes(8), Bytes(7)), Fit::Over(Bytes(1)));
    }

    #[test]
    fn the_verdict_names_card_share_and_phase() {
        let scenario = Scenario::default();
        let memory = Memory {
            context: Bytes(1 << 30),
            parameters: Default::default(),
            first: Default::default(),
            steady: Default::default(),
            resting: Default::default(),
        };
        let verdict = Verdict::of(&scenario, &memory, Unit::Binary).expect("the default card is known");
        assert!(verdict.margin.starts_with("on the GeForce RTX 4090 with 2"), "{verdict:?}");
        assert!(verdict.sentence(Unit::Binary).contains("The peak is in the forward pass"), "{verdict:?}");
    }
}
