//! The verdict on a run.

use serde::{Deserialize, Serialize};

use super::{Fit, OnCard, Outcome};

/// Whether a run gets through on its card: the one place that decides it, for the page, the command and the exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Verdict {
    /// It does.
    Fits,
    /// Perhaps: what is left, or missing, is less than the estimate may be off by.
    Close,
    /// Its tensors fit, and with the default allocator the holes between them do not.
    Tight,
    /// It does not.
    Over,
}

impl Verdict {
    /// The verdict on a run that was replayed on the card.
    pub fn of(on_card: &OnCard) -> Verdict {
        match (on_card.outcome, on_card.close) {
            (Outcome::Runs, false) => Verdict::Fits,
            (Outcome::Runs | Outcome::Fails(_), true) => Verdict::Close,
            (Outcome::RunsExpandable, _) => Verdict::Tight,
            (Outcome::Fails(_), false) => Verdict::Over,
        }
    }

    /// The verdict while only the tensors are counted, which may be off by `percent`.
    pub fn of_tensors(fit: &Fit, percent: f64) -> Verdict {
        let more = fit.needed.0 as f64 * (1.0 + percent / 100.0);
        match fit.fits() {
            false => Verdict::Over,
            true if more > fit.capacity.0 as f64 => Verdict::Close,
            true => Verdict::Fits,
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
    use crate::allocator::Settings;
    use crate::plan::within;
    use crate::step::Failure;
    use crate::units::Bytes;

    #[test]
    fn the_replay_decides_and_its_edge_is_close() {
        let of = |outcome, close| {
            let settings = Settings::default();
            Verdict::of(&OnCard { outcome, close, reserved: Bytes(9), shown: Bytes(10), settings })
        };
        let fails = Outcome::Fails(Failure { requested: Bytes(1), phase: None });
        assert_eq!(of(Outcome::Runs, false), Verdict::Fits);
        assert_eq!(of(Outcome::Runs, true), Verdict::Close);
        assert_eq!(of(Outcome::RunsExpandable, false), Verdict::Tight);
        assert_eq!(of(fails, true), Verdict::Close);
        assert_eq!(of(fails, false), Verdict::Over);
    }

    #[test]
    fn what_is_left_must_be_more_than_the_error() {
        let fit = within(Bytes(990), Bytes(1000));
        assert_eq!(Verdict::of_tensors(&fit, 0.9), Verdict::Fits);
        assert_eq!(Verdict::of_tensors(&fit, 1.1), Verdict::Close);
        assert_eq!(Verdict::of_tensors(&within(Bytes(1010), Bytes(1000)), 1.1), Verdict::Over);
    }
}
