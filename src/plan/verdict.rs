//! The verdict on a run.

use super::{Fit, OnCard, Outcome};

/// Whether a run gets through on its card: the one place that decides it, for the page, the command and the exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Fits,
    /// Perhaps: what is left is less than the estimate may be off by.
    Close,
    /// Its tensors fit, and with the default allocator the holes between them do not.
    Tight,
    /// It does not.
    Over,
}

impl Verdict {
    /// The verdict on what is needed and, where the run has been replayed on the card, what came of that; `percent` is how
    /// far what is needed may be off.
    pub fn of(fit: &Fit, on_card: Option<&OnCard>, percent: f64) -> Verdict {
        let is_close = fit.needed.0 as f64 * (1.0 + percent / 100.0) > fit.capacity.0 as f64;
        match on_card.map(|on_card| on_card.outcome) {
            _ if !fit.fits() => Verdict::Over,
            Some(Outcome::RunsExpandable) => Verdict::Tight,
            Some(Outcome::Fails(_)) => Verdict::Over,
            None | Some(Outcome::Runs) if is_close => Verdict::Close,
            None | Some(Outcome::Runs) => Verdict::Fits,
        }
    }

    /// The first words of it.
    pub const fn label(self) -> &'static str {
        match self {
            Verdict::Fits => "Fits",
            Verdict::Close => "Close",
            Verdict::Tight => "Tight",
            Verdict::Over => "Does not fit",
        }
    }

    /// The name in exports and in the style sheet.
    pub const fn slug(self) -> &'static str {
        match self {
            Verdict::Fits => "fits",
            Verdict::Close => "close",
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
        let (fits, over) = (within(Bytes(80), Bytes(100)), within(Bytes(110), Bytes(100)));
        let (runs, tight) = (on_card(Outcome::Runs), on_card(Outcome::RunsExpandable));
        assert_eq!(Verdict::of(&fits, None, 1.), Verdict::Fits);
        assert_eq!(Verdict::of(&fits, Some(&runs), 1.), Verdict::Fits);
        assert_eq!(Verdict::of(&fits, Some(&tight), 1.), Verdict::Tight);
        assert_eq!(Verdict::of(&over, Some(&tight), 1.), Verdict::Over);
        assert_eq!(Verdict::of(&over, None, 1.), Verdict::Over);
    }

    #[test]
    fn what_is_left_must_be_more_than_the_error() {
        let fit = within(Bytes(990), Bytes(1000));
        assert_eq!(Verdict::of(&fit, None, 0.9), Verdict::Fits);
        assert_eq!(Verdict::of(&fit, None, 1.1), Verdict::Close);
    }
}
