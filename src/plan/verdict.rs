//! The verdict on a run.

use serde::{Deserialize, Serialize};

use super::fit::{Fit, Margin};
use super::on_card::{OnCard, Outcome};
use crate::accuracy::Doubt;
use crate::hardware::Vendor;
use crate::scenario::Scenario;
use crate::units::Bytes;

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
    /// It would stop with an error, however much memory there is.
    WouldNotRun,
    /// Its tensors fit; what else it takes on a card that is not NVIDIA's is not known.
    NotFollowed,
}

impl Verdict {
    /// The verdict on a scenario: by its replay where there is one, else by its tensors, which may be off by `doubt`.
    pub fn on(scenario: &Scenario, fit: &Fit, on_card: Option<&OnCard>, doubt: Doubt) -> Verdict {
        let by_tensors = Verdict::of_tensors(fit, doubt.more);
        if scenario.stops() {
            Verdict::WouldNotRun
        } else if scenario.gpu().is_ok_and(|gpu| gpu.vendor != Vendor::Nvidia) {
            // neither the allocator that was replayed nor the kernels are this card's; the tensors are
            if by_tensors == Verdict::Over { Verdict::Over } else { Verdict::NotFollowed }
        } else {
            on_card.map_or(by_tensors, Verdict::of)
        }
    }

    /// The verdict on a run that was replayed on the card.
    pub fn of(on_card: &OnCard) -> Verdict {
        match (on_card.outcome, on_card.close) {
            (Outcome::Runs, false) => Verdict::Fits,
            (Outcome::Runs | Outcome::Fails(_), true) => Verdict::Close,
            (Outcome::RunsExpandable, _) => Verdict::Tight,
            (Outcome::Fails(_), false) => Verdict::Over,
        }
    }

    /// The verdict while only the tensors are counted, of which there may be `percent` more.
    pub fn of_tensors(fit: &Fit, percent: f64) -> Verdict {
        let more = fit.needed.0 as f64 * (1.0 + percent / 100.0);
        match fit.fits() {
            false => Verdict::Over,
            true if more > fit.capacity.0 as f64 => Verdict::Close,
            true => Verdict::Fits,
        }
    }

    /// Whether it gets through as far as can be said: beyond doubt, or on a card that is not followed by its tensors.
    pub const fn holds(self) -> bool {
        match self {
            Verdict::Fits | Verdict::NotFollowed => true,
            Verdict::Close | Verdict::Tight | Verdict::Over | Verdict::WouldNotRun => false,
        }
    }

    /// The first words of it.
    pub const fn label(self) -> &'static str {
        match self {
            Verdict::Fits => "Fits",
            Verdict::Close => "Close",
            Verdict::Tight => "Tight",
            Verdict::Over => "Does not fit",
            Verdict::WouldNotRun => "Would not run",
            Verdict::NotFollowed => "Not followed",
        }
    }

    /// How far the run is from its card: what is left or missing, and what that comes to.
    pub(crate) fn margin(self, margin: Margin, amount: impl Fn(Bytes) -> String) -> String {
        match (self, margin) {
            (Verdict::WouldNotRun, _) => "it stops with an error".to_owned(),
            (Verdict::NotFollowed, Margin::Headroom(free)) => format!("its tensors leave {}", amount(free)),
            (Verdict::Close, Margin::Overshoot(over)) => {
                format!("over by {}, less than the estimate may be off by", amount(over))
            }
            (_, Margin::Overshoot(over)) => format!("over by {}", amount(over)),
            (Verdict::Fits, Margin::Headroom(free)) => format!("{} to spare", amount(free)),
            (Verdict::Close, Margin::Headroom(free)) => {
                format!("{} to spare, which may be too little", amount(free))
            }
            (Verdict::Tight, Margin::Headroom(free)) => {
                format!("its tensors leave {}, the holes between them take more", amount(free))
            }
            (Verdict::Over, Margin::Headroom(free)) => format!(
                "its tensors leave {}, the holes between them or what is made before the first step take more",
                amount(free)
            ),
        }
    }

    /// The name in exports and in the style sheet.
    pub const fn slug(self) -> &'static str {
        match self {
            Verdict::Fits => "fits",
            Verdict::Close => "close",
            Verdict::Tight => "tight",
            Verdict::Over => "over",
            Verdict::WouldNotRun => "would-not-run",
            Verdict::NotFollowed => "not-followed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Settings;
    use crate::plan::within;
    use crate::step::Failure;

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

    #[test]
    fn memory_is_not_all_that_decides() {
        let on = |link: &str| {
            let scenario = &crate::share::decode(link).scenarios[0];
            let fit = |needed| within(Bytes::gib(needed), scenario.gpu().unwrap().memory);
            [1.0, 900.0].map(|needed| Verdict::on(scenario, &fit(needed), None, Doubt::either_way(1.0)))
        };
        // gpt2 has an embedding for each of 1,024 positions
        assert_eq!(on("m=openai-community/gpt2&s=2048"), [Verdict::WouldNotRun; 2]);
        assert_eq!(on("m=openai-community/gpt2&s=1024"), [Verdict::Fits, Verdict::Over]);
        assert_eq!(on("gpu=apple-m3-max-36gb"), [Verdict::NotFollowed, Verdict::Over]);
        assert_eq!(on("gpu=mi300x"), [Verdict::NotFollowed, Verdict::Over]);
    }
}
