//! Runs of more positions than their model knows.

use crate::model::Architecture;
use crate::scenario::{Field, Issue, Scenario};
use crate::units::grouped;

/// Whether the run takes more positions than the model has.
fn exceeds(scenario: &Scenario, most: u64) -> bool {
    let own = scenario.sequence.saturating_add(scenario.positions_after());
    own.saturating_add(scenario.virtual_tokens()) > most
}

/// Whether the run takes positions that the model has no embedding for: PyTorch's lookup fails there.
pub(super) fn lacks_positions(architecture: &Architecture, scenario: &Scenario) -> bool {
    let embedded = architecture.embeddings.positions.is_some();
    embedded && architecture.max_positions.is_some_and(|most| exceeds(scenario, most))
}

/// What a run of more positions than the model knows comes to.
pub(super) fn beyond_positions(architecture: &Architecture, scenario: &Scenario) -> Option<Issue> {
    let most = architecture.max_positions.filter(|most| exceeds(scenario, *most))?;
    Some(too_long(scenario, most, lacks_positions(architecture, scenario)))
}

fn too_long(scenario: &Scenario, most: u64, embedded: bool) -> Issue {
    let known = grouped(most);
    let message = match embedded {
        true => {
            format!("the model has an embedding for each of {known} positions: PyTorch fails beyond them")
        }
        false => format!(
            "the model was made for {known} positions: it runs beyond them, but how well is another question"
        ),
    };
    let (field, fix) = if scenario.task.trains() {
        match most.saturating_sub(scenario.virtual_tokens()) {
            0 => (Field::LoraRank, format!("use fewer virtual tokens than {known}")),
            room => (Field::Sequence, format!("use at most {}", grouped(room))),
        }
    } else {
        // the last token is written and never read
        let together = grouped(most.saturating_add(1));
        let field = if scenario.sequence > most { Field::Sequence } else { Field::NewTokens };
        (field, format!("use at most {together} for the prompt and the new tokens together"))
    };
    Issue::warning(field, message).with_fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Method, ModelChoice, Precision, Task};

    #[test]
    fn new_tokens_take_positions_too() {
        let generating = |model: &str, sequence, new_tokens| {
            let mut scenario = Scenario {
                task: Task::Generate,
                model: ModelChoice::Catalogue(model.to_owned()),
                method: Method::Full,
                precision: Precision::Bf16,
                sequence,
                ..Scenario::default()
            };
            scenario.generation.new_tokens = new_tokens;
            scenario
        };
        let told = |scenario: &Scenario| {
            let issues = scenario.validate().into_iter().filter(|issue| issue.message.contains("positions"));
            issues.map(|issue| (issue.field, issue.fix.unwrap_or_default())).collect::<Vec<_>>()
        };
        // 1,024 positions: the last token needs none
        let gpt2 = |sequence, new_tokens| generating("openai-community/gpt2", sequence, new_tokens);
        for (sequence, new_tokens, stops) in [
            (1_000, 25, false),
            (1_000, 26, true),
            (1_024, 1, false),
            (1_025, 1, true),
            (u64::MAX, u64::MAX, true),
        ] {
            let scenario = gpt2(sequence, new_tokens);
            assert_eq!((scenario.stops(), told(&scenario).len()), (stops, usize::from(stops)), "{sequence}");
        }
        let fix = "use at most 1,025 for the prompt and the new tokens together".to_owned();
        assert_eq!(told(&gpt2(1_000, 512)), [(Field::NewTokens, fix.clone())]);
        assert_eq!(told(&gpt2(2_000, 512)), [(Field::Sequence, fix)]);
        // positions that are computed have no end
        let llama = generating("meta-llama/Llama-3.1-8B", 131_072, 2);
        assert_eq!((llama.stops(), told(&llama).len()), (false, 1));
        // what is trained has no new tokens
        let trained = Scenario { task: Task::Sft, ..gpt2(1_024, 4_000) };
        assert_eq!((trained.stops(), told(&trained)), (false, Vec::new()));
        // by default there is room for them
        assert_eq!((gpt2(1, 512).defaults().sequence, gpt2(1, 1).defaults().sequence), (513, 1_024));
    }
}
