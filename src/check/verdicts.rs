//! Verdicts against measured runs: on cards around what a run really takes, or on the card that it is known to have had, how often
//! "fits" is wrong, and how often a run is refused that gets through.

use serde::Serialize;

use crate::accuracy::Doubt;
use crate::hardware::Gpu;
use crate::plan::{OnCard, Verdict};
use crate::scenario::Allocator;
use crate::step::Recording;
use crate::units::Bytes;

/// The cards: parts of what the run took in all.
const CARDS: [f64; 7] = [0.90, 0.95, 0.98, 1.0, 1.02, 1.05, 1.10];

/// How often each verdict was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// [`Verdict::Fits`].
    pub fits: usize,
    /// [`Verdict::Close`].
    pub close: usize,
    /// [`Verdict::Tight`].
    pub tight: usize,
    /// [`Verdict::Over`].
    pub over: usize,
}

impl Verdicts {
    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Fits => self.fits += 1,
            Verdict::Close => self.close += 1,
            Verdict::Tight => self.tight += 1,
            Verdict::Over => self.over += 1,
            // what was measured ran, on a card of NVIDIA's
            Verdict::WouldNotRun | Verdict::NotFollowed => {}
        }
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.fits + self.close + self.tight + self.over
    }

    fn counts(&self) -> [usize; 4] {
        [self.fits, self.close, self.tight, self.over]
    }

    fn add(&mut self, other: &Verdicts) {
        self.fits += other.fits;
        self.close += other.close;
        self.tight += other.tight;
        self.over += other.over;
    }
}

/// The verdicts by what is known of the run on that card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// It gets through: the card has what was reserved where there was no limit.
    pub runs: Verdicts,
    /// Not known: the allocator gives cached blocks back where the card is full.
    pub between: Verdicts,
    /// It fails: the card has less than was allocated.
    pub fails: Verdicts,
}

impl Confusion {
    /// Counts the verdicts on a run whose measured peaks are these; `percent` is how far its estimate may be off.
    pub(super) fn count(
        &mut self,
        recording: &Recording,
        allocator: Allocator,
        gpu: &Gpu,
        percent: f64,
        [allocated, reserved]: [Bytes; 2],
    ) {
        for part in CARDS {
            let taken = (reserved + gpu.context).0 as f64;
            let card = Gpu { memory: Bytes((taken * part).ceil() as u64), ..gpu.clone() };
            let room = card.memory.saturating_sub(card.context);
            let known = match room {
                _ if room >= reserved => &mut self.runs,
                _ if room < allocated => &mut self.fails,
                _ => &mut self.between,
            };
            known.count(Verdict::of(&OnCard::of(recording, allocator, &card, Doubt::either_way(percent))));
        }
    }

    /// Counts the verdict on the card that a run had, on which it got through: of those that were published no other is known.
    pub(super) fn count_own(&mut self, recording: &Recording, allocator: Allocator, gpu: &Gpu, percent: f64) {
        self.runs.count(Verdict::of(&OnCard::of(recording, allocator, gpu, Doubt::either_way(percent))));
    }

    /// All counts: for each thing known, each verdict.
    pub(super) fn counts(&self) -> [usize; 12] {
        let [runs, between, fails] = [self.runs, self.between, self.fails].map(|verdicts| verdicts.counts());
        std::array::from_fn(|index| [runs, between, fails][index / 4][index % 4])
    }

    /// What has those counts; 0 where there are too few.
    pub(super) fn of_counts(mut counts: impl Iterator<Item = usize>) -> Confusion {
        let mut next = || counts.next().unwrap_or_default();
        let mut verdicts = || Verdicts { fits: next(), close: next(), tight: next(), over: next() };
        Confusion { runs: verdicts(), between: verdicts(), fails: verdicts() }
    }

    /// How many verdicts were given.
    pub fn total(&self) -> usize {
        self.runs.total() + self.between.total() + self.fails.total()
    }

    /// Adds those of other runs.
    pub fn add(&mut self, other: &Confusion) {
        self.runs.add(&other.runs);
        self.between.add(&other.between);
        self.fails.add(&other.fails);
    }
}
