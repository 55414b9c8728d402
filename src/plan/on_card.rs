//! What a run does on a card: the allocator under the card's capacity, and what `nvidia-smi` then shows.

use crate::allocator::Settings;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::model::Architecture;
use crate::scenario::{Allocator, Scenario};
use crate::step::{Failure, Recording};
use crate::units::Bytes;

/// Whether the run gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It does.
    Runs,
    /// It would with [`Allocator::Expandable`] only: the tensors fit and the holes between them do not.
    RunsExpandable,
    /// It runs out of memory.
    Fails(Failure),
}

/// A run on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnCard {
    /// Whether it gets through.
    pub outcome: Outcome,
    /// Peak of `memory_reserved()` under the card's capacity; up to the failure where it fails.
    pub reserved: Bytes,
    /// What `nvidia-smi` shows at most: that and what lies outside the allocator.
    pub shown: Bytes,
}

impl OnCard {
    /// Runs the scenario on that card.
    ///
    /// # Errors
    /// As [`Recording::of`].
    pub fn of(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<OnCard, Issue> {
        Ok(on_card(&Recording::of(architecture, scenario, gpu)?, scenario.allocator, gpu))
    }
}

/// Runs a recording through the allocator of a card.
pub fn on_card(recording: &Recording, allocator: Allocator, gpu: &Gpu) -> OnCard {
    let capacity = Some(gpu.memory.saturating_sub(gpu.context).0);
    let with = |expandable_segments| recording.allocate(Settings { expandable_segments, capacity });
    let own = with(allocator == Allocator::Expandable);
    let (outcome, allocation) = match (own.failure, allocator) {
        (None, _) => (Outcome::Runs, own),
        (Some(failure), Allocator::Expandable) => (Outcome::Fails(failure), own),
        (Some(failure), Allocator::Native) => {
            let expandable = with(true);
            match expandable.failure {
                None => (Outcome::RunsExpandable, expandable),
                Some(_) => (Outcome::Fails(failure), own),
            }
        }
    };
    let reserved = allocation.reserved_peak;
    OnCard { outcome, reserved, shown: reserved + gpu.context }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{GpuChoice, Scenario};

    #[track_caller]
    fn of(memory: Bytes, allocator: Allocator) -> OnCard {
        let scenario = Scenario { gpu: GpuChoice::Custom(memory), allocator, ..Scenario::default() };
        let run = || OnCard::of(&*scenario.architecture()?, &scenario, &scenario.gpu()?);
        run().unwrap_or_else(|issue: crate::issue::Issue| panic!("{issue}"))
    }

    #[test]
    fn a_large_card_runs_and_a_small_one_fails() {
        for allocator in [Allocator::Native, Allocator::Expandable] {
            let large = of(Bytes::gib(80.0), allocator);
            assert_eq!(large.outcome, Outcome::Runs);
            assert!(large.shown > large.reserved);
            assert!(matches!(of(Bytes::gib(8.0), allocator).outcome, Outcome::Fails(_)));
            assert!(matches!(of(Bytes::ZERO, allocator).outcome, Outcome::Fails(_)));
        }
    }

    #[test]
    fn what_runs_without_holes_only_runs_where_that_is_chosen() {
        let tight = (900..1500)
            .map(|step| Bytes::gib(f64::from(step) / 100.))
            .find(|memory| of(*memory, Allocator::Native).outcome == Outcome::RunsExpandable);
        let tight = tight.expect("between what fails and what runs there is what runs without holes");
        assert_eq!(of(tight, Allocator::Expandable).outcome, Outcome::Runs);
    }

    #[test]
    fn less_memory_never_reserves_more() {
        let reserved = [80.0, 24.0, 15.0, 14.0].map(|gib| of(Bytes::gib(gib), Allocator::Native).reserved);
        assert!(reserved.is_sorted_by(|a, b| a >= b), "{reserved:?}");
    }
}
