//! The verdict on a run.

use super::{Fit, OnCard, Outcome};

/// Whether a run gets through on its card: the one place that decides it, for the page, the command and the exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Fits,
    /// Its tensors fit, and with the default allocator the holes between them do not.
    Tight,
    /// It does not.
    Over,
}

impl Verdict {
    /// The verdict on what is needed and, where the run has been replayed on the card, what came of that.
    pub fn of(fit: &Fit, on_card: Option<&OnCard>) -> Verdict {
        match on_card.map(|on_card| on_card.outcome) {
            _ if !fit.fits() => Verdict::Over,
            None | Some(Outcome::Runs) => Verdict::Fits,
            Some(Outcome::RunsExpandable) => Verdict::Tight,
            Some(Outcome::Fails(_)) => Verdict::Over,
        }
    }

    /// The first words of it.
    pub const fn label(self) -> &'static str {
        match self {
            Verdict::Fits => "Fits",
            Verdict::Tight => "Tight",
            Verdict::Over => "Does not fit",
        }
    }

    /// The name in exports and in the style sheet.
    pub const fn slug(self) -> &'static str {
        match self {
            Verdict::Fits => "fits",
            Verdict::Tight => "tight",
            Verdict::Over => "over",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::within;
    use crate::units::Bytes;

    #[test]
    fn the_replay_has_the_last_word_on_what_fits() {
        let on_card = |outcome| OnCard { outcome, reserved: Bytes(9), shown: Bytes(10) };
        let (fits, over) = (within(Bytes(8), Bytes(10)), within(Bytes(11), Bytes(10)));
        assert_eq!(Verdict::of(&fits, None), Verdict::Fits);
        assert_eq!(Verdict::of(&fits, Some(&on_card(Outcome::RunsExpandable))), Verdict::Tight);
        assert_eq!(Verdict::of(&over, Some(&on_card(Outcome::RunsExpandable))), Verdict::Over);
        assert_eq!(Verdict::of(&over, None), Verdict::Over);
    }
}
