//! Adapters on layers that a model lacks, and adapters that are larger than what they adapt.

use crate::model::Architecture;
use crate::model::blocks::{Block, FeedForward};
use crate::scenario::{Field, Issue, LoraTargets, Method, Modules, Scenario, Tuner};
use crate::units::grouped;

/// Layers by name that get no adapter: names that the model lacks beside some that it has, of which peft says nothing,
/// and the embedding, of which adapters are not modelled.
pub(super) fn passed_over(architecture: &Architecture, scenario: &Scenario) -> Option<Issue> {
    let adapts = scenario.method != Method::Full && scenario.task.trains();
    if !adapts || !scenario.lora.tuner.adapts_layers() || scenario.lora.targets != LoraTargets::Named {
        return None;
    }
    let (asked, own) = (scenario.lora.modules, Modules::of(architecture));
    let embedding = architecture.embeddings.tokens.name;
    if asked.adapts(embedding) {
        let message = format!("adapters on {embedding} are not modelled");
        let fix = "leave it out, or have embedding and head trained whole by train-embeddings";
        return Some(Issue::error(Field::LoraTargets, message).with_fix(fix));
    }
    let missing = asked.beside(own);
    // where no layer is left the step says so; experts are layers by names that no parameter has
    let has_experts = |block: &Block| matches!(block.ffn, FeedForward::Moe(_));
    if missing.is_empty() || missing == asked || architecture.blocks.iter().any(has_experts) {
        return None;
    }
    let message = format!(
        "no layer of {} is called {}: peft passes over what it does not find",
        architecture.model_type,
        missing.list()
    );
    Some(Issue::warning(Field::LoraTargets, message).with_fix(format!("its layers are {}", own.list())))
}

/// Adapters of a rank above the model's width hold more than the weights that they adapt, and no rank near it was ever measured.
pub(super) fn wider(architecture: &Architecture, scenario: &Scenario) -> Option<Issue> {
    // others have vectors of the rank, blocks of the width, or factors that stop growing
    let grows = match scenario.lora.tuner {
        Tuner::Lora | Tuner::Dora | Tuner::Loha => true,
        Tuner::Ia3
        | Tuner::Vera
        | Tuner::Lokr
        | Tuner::Oft
        | Tuner::Prompt
        | Tuner::PTuning
        | Tuner::Prefix
        | Tuner::PrefixProjected => false,
    };
    let adapts = scenario.method.has_adapters() && scenario.task.trains() && grows;
    let (rank, width) = (scenario.lora.rank, architecture.hidden);
    if !adapts || rank <= width {
        return None;
    }
    let message = format!(
        "rank {} is above the model's width of {}: its adapters are larger than the weights that they adapt",
        grouped(rank),
        grouped(width)
    );
    Some(Issue::warning(Field::LoraRank, message).with_fix(format!("use at most {}", grouped(width))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_above_the_width_is_told() {
        let told = |rank, method| {
            let mut scenario = Scenario { method, ..Scenario::default() };
            scenario.lora.rank = rank;
            scenario.validate().iter().filter(|issue| issue.field == Field::LoraRank).count()
        };
        let (lora, full) = (Method::Lora, Method::Full);
        assert_eq!([told(4096, lora), told(4097, lora), told(999_999, full)], [0, 1, 0]);
    }

    #[test]
    fn the_size_of_ofts_blocks_is_called_so() {
        let mut scenario = Scenario { method: Method::Lora, ..Scenario::default() };
        let key = crate::scenario::keys::Key::find("lora-rank").unwrap();
        assert_eq!((key.label_for(&scenario), key.help_for(&scenario)), (key.label, key.help));
        let lora = scenario.clone();
        (scenario.lora.tuner, scenario.lora.rank) = (Tuner::Oft, 0);
        assert_eq!(key.label_for(&scenario), "OFT block size");
        assert!(key.help_for(&scenario).contains("oft_block_size"));
        let told = scenario.validate();
        assert!(told.iter().any(|issue| issue.message == "the OFT block size is 0"), "{told:?}");
        // where others have a rank it is one beside them, and full fine-tuning has neither
        let full = Scenario { method: Method::Full, ..lora.clone() };
        assert_eq!(key.label_among([&scenario, &full]), "OFT block size");
        assert_eq!(key.label_among([&scenario, &lora]), "LoRA rank");
    }
}
