//! Checks of a scenario that need no execution.

use super::{Field, Issue, Scenario};

/// The largest micro-batch, sequence length, accumulation and rank that are computed; above it a size is a typing error.
pub const LARGEST: u64 = 1 << 24;

pub(super) fn validate(scenario: &Scenario) -> Vec<Issue> {
    let mut issues = Vec::new();
    for (field, name, value) in [
        (Field::Batch, "micro-batch size", scenario.batch),
        (Field::Sequence, "sequence length", scenario.sequence),
        (Field::Accumulation, "gradient accumulation", scenario.accumulation),
        (Field::LoraRank, "LoRA rank", scenario.lora.rank),
    ] {
        if value == 0 || value > LARGEST {
            issues.push(
                Issue::error(field, format!("the {name} is {value}"))
                    .with_fix(format!("use a whole number from 1 to {LARGEST}")),
            );
        }
    }
    issues
}
