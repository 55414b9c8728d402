//! The batch that an optimizer step is to see: the micro-batch that a card holds and the accumulation that reaches it.

use super::answer::Answer;
use super::solve::largest_batch;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::scenario::{Allocator, GpuChoice, Scenario};
use crate::units::Bytes;

/// How a card reaches an effective batch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reached {
    /// The most sequences of a forward pass that run.
    pub largest: u64,
    /// The micro-batch: the largest that divides what each GPU has to see, or the largest where none above half of it does.
    pub batch: u64,
    /// Passes per optimizer step.
    pub accumulation: u64,
    /// Sequences that a step then sees on all GPUs: the effective batch, or a little more.
    pub effective: u64,
    /// The scenario.
    pub scenario: Box<Scenario>,
}

/// The largest micro-batch on a card and the accumulation with which a step sees `target` sequences on all GPUs; `None` where not
/// even one sequence runs.
///
/// # Errors
/// As [`largest_batch`].
///
/// ```
/// use headroom::plan::reach;
/// use headroom::scenario::Scenario;
/// let scenario = Scenario::default();
/// let reached = reach(&scenario, &scenario.gpu()?, 32)?.expect("one sequence runs");
/// assert_eq!((reached.batch * reached.accumulation, reached.effective), (32, 32));
/// assert!(reached.batch <= reached.largest);
/// # Ok::<(), headroom::scenario::Issue>(())
/// ```
pub fn reach(scenario: &Scenario, gpu: &Gpu, target: u64) -> Result<Option<Reached>, Issue> {
    let Some(largest) = largest_batch(&*scenario.architecture()?, scenario, gpu)? else { return Ok(None) };
    let gpus = scenario.cluster.gpus.max(1);
    let each = target.max(1).div_ceil(gpus);
    let most = largest.number.min(each);
    let divides = (most.div_ceil(2)..=most).rev().find(|batch| each.is_multiple_of(*batch));
    let batch = divides.unwrap_or(most);
    let accumulation = each.div_ceil(batch);
    let allocator: Allocator = largest.allocator;
    let scenario = Scenario { batch, accumulation, allocator, ..scenario.clone() };
    let effective = batch.saturating_mul(accumulation).saturating_mul(gpus);
    Ok(Some(Reached {
        largest: largest.number,
        batch,
        accumulation,
        effective,
        scenario: Box::new(scenario),
    }))
}

/// What a run takes whatever its micro-batch, and what each further sequence adds: between one sequence and two.
pub fn fixed_and_per_sequence(scenario: &Scenario) -> Option<(Bytes, Bytes)> {
    let of = |batch| {
        let answer = Answer::of_tensors(Scenario { batch, ..scenario.clone() });
        Some(answer.estimate.memory.as_ref()?.needed())
    };
    let [one, two] = [of(1)?, of(2)?];
    let each = two.saturating_sub(one);
    Some((one.saturating_sub(each), each))
}

/// Cards of all sizes that people buy or rent, for a table of batches.
const CARDS: [&str; 9] = [
    "rtx-3060-12gb",
    "rtx-4060-ti-16gb",
    "rtx-4090",
    "rtx-5090",
    "a100-sxm-40gb",
    "l40s",
    "h100-sxm-80gb",
    "h200-sxm",
    "b200",
];

/// Each of some usual cards, and how it reaches an effective batch.
pub fn reach_on_cards(
    scenario: &Scenario,
    target: u64,
) -> impl Iterator<Item = (Gpu, Result<Option<Reached>, Issue>)> {
    CARDS.into_iter().filter_map(move |slug| {
        let on = Scenario { gpu: GpuChoice::Catalogue(slug.to_owned()), ..scenario.clone() };
        let gpu = on.gpu().ok()?;
        let reached = reach(&on, &gpu, target);
        Some((gpu, reached))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;

    #[test]
    fn every_card_of_the_table_is_in_the_catalogue() {
        for slug in CARDS {
            assert!(gpu(slug).is_ok(), "{slug}");
        }
    }

    #[test]
    fn a_prime_batch_is_reached_with_a_little_more_or_exactly() {
        let scenario = Scenario::default();
        let gpu = scenario.gpu().unwrap();
        for target in [1, 2, 3, 7, 64, 97] {
            let reached = reach(&scenario, &gpu, target).unwrap().expect("one sequence runs");
            assert!(reached.batch <= reached.largest && reached.batch <= target, "{reached:?}");
            assert!((target..target + reached.batch).contains(&reached.effective), "{target}: {reached:?}");
        }
    }

    #[test]
    fn a_margin_leaves_less_for_sequences() {
        let largest = |margin: u64| {
            let mut scenario = Scenario::default();
            scenario.reserve.margin = margin;
            let gpu = scenario.gpu().unwrap();
            reach(&scenario, &gpu, 1_000).unwrap().map_or(0, |reached| reached.largest)
        };
        assert!(largest(0) > largest(4_000) && largest(4_000) > 0);
        assert_eq!(largest(20_000), 0);
    }

    #[test]
    fn what_is_fixed_and_what_a_sequence_adds_are_what_one_takes() {
        let scenario = Scenario::default();
        let (fixed, each) = fixed_and_per_sequence(&scenario).expect("an answer");
        let one = Answer::of_tensors(scenario).estimate.memory.unwrap().needed();
        assert!(fixed > Bytes::gib(6.0) && each > Bytes::gib(1.0));
        assert_eq!(fixed + each, one);
    }
}
