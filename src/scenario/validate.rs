//! Checks of a scenario that need no execution.

use super::{Field, Issue, ModelChoice, Scenario};

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
    // The models of the catalogue are checked against their published counts: nothing was assumed that matters.
    if let ModelChoice::Custom(model) = &scenario.model {
        issues.extend(model.architecture.notes.iter().map(|note| Issue::warning(Field::Model, note)));
    }
    issues
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{CustomModel, Severity};

    #[test]
    fn what_was_assumed_of_an_own_model_is_said() {
        let config = r#"{"model_type": "nobody_knows", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}"#;
        let model = ModelChoice::Custom(CustomModel::read("mine", config).unwrap().into());
        let issues = Scenario { model, ..Scenario::default() }.validate();
        assert_eq!(issues.len(), 1, "{issues:?}");
        assert!(issues[0].severity == Severity::Warning && issues[0].message.contains("nobody_knows"));
    }
}
