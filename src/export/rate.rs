//! The learning rate that a written file begins with.

use crate::scenario::{Method, Scenario, Task};

/// What trl's own scripts train with, for adapters ten times as much as for all weights (trl 1.16, scripts/sft.py and scripts/dpo.py). No
/// script says it of reinforcement and reward models: there all weights have GRPOConfig's default, 1e-6, and adapters RewardConfig's, 1e-4,
/// and between adapters and all weights lies the same factor.
pub(super) fn learning_rate(scenario: &Scenario) -> f64 {
    let (full, adapters) = match scenario.task {
        Task::Sft | Task::Classify | Task::Embed | Task::Distil | Task::Generate => (2e-5, 2e-4),
        Task::Dpo | Task::Kto | Task::Orpo | Task::Cpo | Task::Simpo => (5e-7, 5e-6),
        Task::Grpo | Task::Rloo | Task::Ppo => (1e-6, 1e-5),
        Task::Reward => (1e-5, 1e-4),
    };
    if scenario.method == Method::Full { full } else { adapters }
}
