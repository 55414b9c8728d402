//! What a run does on a card: the allocator under the card's capacity, and what `nvidia-smi` then shows.

use crate::allocator::Settings;
use crate::hardware::Gpu;
use crate::step::{Failure, Recording};
use crate::units::Bytes;

/// Whether the run gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It does.
    Runs,
    /// It does with `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` only: with the default allocator the tensors fit
    /// and the holes between them do not.
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

/// Runs a recording through the allocator of a card.
pub fn on_card(recording: &Recording, gpu: &Gpu) -> OnCard {
    let capacity = Some(gpu.memory.saturating_sub(gpu.context).0);
    let with = |expandable_segments| recording.allocate(Settings { expandable_segments, capacity });
    let default = with(false);
    let (outcome, allocation) = match default.failure {
        None => (Outcome::Runs, default),
        Some(failure) => {
            let expandable = with(true);
            match expandable.failure {
                None => (Outcome::RunsExpandable, expandable),
                Some(_) => (Outcome::Fails(failure), default),
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
    fn of(memory: Bytes) -> OnCard {
        let scenario = Scenario { gpu: GpuChoice::Custom(memory), ..Scenario::default() };
        let run = || {
            let gpu = scenario.gpu()?;
            Ok(on_card(&Recording::of(&*scenario.architecture()?, &scenario, &gpu)?, &gpu))
        };
        run().unwrap_or_else(|issue: crate::scenario::Issue| panic!("{issue}"))
    }

    #[test]
    fn a_large_card_runs_and_a_small_one_fails() {
        let large = of(Bytes::gib(80.0));
        assert_eq!(large.outcome, Outcome::Runs);
        assert!(large.shown > large.reserved);
        assert!(matches!(of(Bytes::gib(8.0)).outcome, Outcome::Fails(_)));
        assert!(matches!(of(Bytes::ZERO).outcome, Outcome::Fails(_)));
    }

    #[test]
    fn less_memory_never_reserves_more() {
        let reserved = [80.0, 24.0, 15.0, 14.0].map(|gib| of(Bytes::gib(gib)).reserved);
        assert!(reserved.is_sorted_by(|a, b| a >= b), "{reserved:?}");
    }
}
