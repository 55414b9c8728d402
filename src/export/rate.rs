//! The learning rate that a written file begins with.

use crate::scenario::{Method, Scenario, Task};

/// What trl's own scripts train with: for adapters ten times as much as for all weights (trl 1.16, scripts/sft.py and scripts/dpo.py). Of
/// reinforcement and reward models, which have no such script, all weights or adapters have the default of the trainer's configuration.
pub(super) fn learning_rate(scenario: &Scenario) -> f64 {
    let (full, adapters) = match scenario.task {
        Task::Sft | Task::Classify | Task::Embed | Task::Distil | Task::Generate => (2e-5, 2e-4),
        Task::Dpo | Task::Kto | Task::Orpo | Task::Cpo | Task::Simpo => (5e-7, 5e-6),
        Task::Grpo | Task::Rloo | Task::Ppo => (1e-6, 1e-5),
        Task::Reward => (1e-5, 1e-4),
    };
    if scenario.method == Method::Full { full } else { adapters }
}
