//! Searches for the largest number with which a run gets through, with as few runs as that takes.

use super::fit::{Fit, fits, within};
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::memory::Memory;
use crate::units::Bytes;

/// The first stride down is the number over this: of what the tensors have room for mostly all but a percent or two runs.
const FIRST_STRIDE: u64 = 256;

/// The largest number up to `most` with an outcome, where mostly `most` itself has one or little less does: steps down in strides
/// that double, then halves the last stride.
pub(super) fn last_that_runs<T>(
    most: u64,
    mut run: impl FnMut(u64) -> Result<Option<T>, Issue>,
) -> Result<Option<T>, Issue> {
    let (mut number, mut stride, mut failing) = (most, (most / FIRST_STRIDE).max(1), most.saturating_add(1));
    let mut best = loop {
        if let Some(found) = run(number)? {
            break (number, found);
        }
        failing = number;
        if number <= 1 {
            return Ok(None);
        }
        number = number.saturating_sub(stride).max(1);
        stride = stride.saturating_mul(2);
    };
    while failing - best.0 > 1 {
        let middle = best.0.midpoint(failing);
        match run(middle)? {
            Some(found) => best = (middle, found),
            None => failing = middle,
        }
    }
    Ok(Some(best.1))
}

/// Up to which number the tensors fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fitting {
    /// This one, and what 1 needs.
    UpTo(u64, Bytes),
    /// None, and what 1 needs.
    None(Bytes),
}

/// What one evaluation says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// What is needed.
    needed: Bytes,
    /// What of it does not depend on the batch, for a first guess of the slope.
    fixed: Bytes,
    /// What there is.
    capacity: Bytes,
}

impl Sample {
    pub(super) fn new(memory: &Memory, gpu: &Gpu) -> Sample {
        let Fit { needed, capacity, .. } = fits(memory, gpu);
        Sample { needed, fixed: memory.resting.total() + memory.context, capacity }
    }

    pub(super) fn fits(self) -> bool {
        within(self.needed, self.capacity).fits()
    }

    /// Bytes above the card; negative below.
    fn excess(self) -> i128 {
        i128::from(self.needed.0) - i128::from(self.capacity.0)
    }

    /// The excess of a batch of 0, roughly.
    fn excess_of_none(self) -> i128 {
        i128::from(self.fixed.min(self.needed).0) - i128::from(self.capacity.0)
    }
}

/// The largest `n` from 1 to `cap` whose sample fits, for samples that grow with `n`; an error where 1 has no sample.
///
/// Memory is piecewise linear in the batch, so a line through two samples lands on the answer or beside it; two more
/// evaluations prove it. Where the line does not converge, halving the bracket does.
pub(super) fn largest(
    cap: u64,
    mut sample: impl FnMut(u64) -> Result<Sample, Issue>,
) -> Result<Fitting, Issue> {
    let first = sample(1)?;
    if !first.fits() {
        return Ok(Fitting::None(first.needed));
    }
    // `low` fits and `high` does not.
    let (mut low, mut high) = (1, cap.max(1).saturating_add(1));
    let mut line = [(0, first.excess_of_none()), (1, first.excess())];
    let mut patience = 0;
    while high - low > 1 {
        let [a, b] = line;
        let guess = if patience < 3 { crossing(a, b) } else { low + (high - low) / 2 };
        let guess = guess.clamp(low + 1, high - 1);
        // What is refused for its number alone runs no more than what does not fit.
        let result = sample(guess).ok();
        let before = high - low;
        if result.is_some_and(Sample::fits) {
            low = guess;
        } else {
            high = guess;
        }
        patience = if (high - low) <= before / 2 { 0 } else { patience + 1 };
        if let Some(result) = result {
            line = [if b.0 == guess { a } else { b }, (guess, result.excess())];
        }
    }
    Ok(Fitting::UpTo(low, first.needed))
}

/// The last whole `n` at which the line through two points is not above 0; the largest number where it never is.
fn crossing(a: (u64, i128), b: (u64, i128)) -> u64 {
    let run = i128::from(b.0) - i128::from(a.0);
    let rise = b.1 - a.1;
    if run == 0 || rise.signum() * run.signum() <= 0 {
        return u64::MAX;
    }
    let n = i128::from(b.0) + (-b.1).saturating_mul(run).div_euclid(rise);
    u64::try_from(n.clamp(0, i128::from(u64::MAX))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::LARGEST;

    /// Solves for a function of the batch, checks the answer and returns it with the number of evaluations.
    #[track_caller]
    fn solve(cap: u64, capacity: u64, fixed: u64, needed: impl Fn(u64) -> u64) -> (Option<u64>, u32) {
        let mut evaluations = 0;
        let most = largest(cap, |n| {
            evaluations += 1;
            Ok(Sample { needed: Bytes(needed(n)), fixed: Bytes(fixed), capacity: Bytes(capacity) })
        })
        .unwrap();
        let found = match most {
            Fitting::None(one) => {
                assert!(one.0 == needed(1) && one.0 > capacity);
                None
            }
            Fitting::UpTo(n, one) => {
                assert!((1..=cap).contains(&n) && needed(n) <= capacity && one.0 == needed(1));
                assert!(n == cap || needed(n + 1) > capacity, "{n} is not the largest");
                Some(n)
            }
        };
        (found, evaluations)
    }

    #[test]
    fn a_line_takes_three_evaluations() {
        assert_eq!(solve(LARGEST, 1_000, 100, |n| 100 + 7 * n), (Some(128), 3));
        assert_eq!(solve(LARGEST, 106, 100, |n| 100 + 7 * n), (None, 1));
        assert_eq!(solve(LARGEST, 107, 100, |n| 100 + 7 * n).0, Some(1));
    }

    #[test]
    fn pieces_parabolas_steps_and_flats() {
        for capacity in [10, 1_000, 123_456, 1 << 40] {
            let (_, evaluations) = solve(LARGEST, capacity, 5, |n| (3 * n).max((9 * n).saturating_sub(600)));
            assert!(evaluations <= 8, "{evaluations} at {capacity}");
            let (_, evaluations) = solve(LARGEST, capacity, 0, |n| n * n + 4 * n);
            assert!(evaluations <= 40, "{evaluations} at {capacity}");
            solve(LARGEST, capacity, 0, |n| n / 512 * 512);
            solve(LARGEST, capacity, 0, |_| 10);
            solve(LARGEST, capacity, 0, |n| if n < 77 { 0 } else { u64::MAX });
            solve(1, capacity, 0, |n| n);
        }
        assert_eq!(solve(LARGEST, u64::MAX, 0, |n| n).0, Some(LARGEST));
    }

    #[test]
    fn what_fits_is_confirmed_or_lowered() {
        for (most, runs) in [(1, 1), (1, 0), (9, 9), (9, 8), (100, 63), (100, 1), (100, 0), (u64::MAX, 3)] {
            let mut runs_tried = 0;
            let found = last_that_runs(most, |n| {
                runs_tried += 1;
                Ok((n <= runs).then_some(n))
            });
            assert_eq!(found, Ok((runs > 0).then_some(runs)));
            assert!(runs_tried <= 130 && (most != runs || runs_tried == 1), "{runs_tried} for {most}");
        }
    }

    #[test]
    fn issues_pass_through() {
        let issue = Issue::error(crate::scenario::Field::Model, "no");
        assert_eq!(largest(8, |_| Err(issue.clone())), Err(issue));
    }
}
