//! What would run in place of a scenario that has no answer.

use super::answer::Answer;
use super::levers::Change;
use crate::scenario::keys::{Key, ValueKind};
use crate::scenario::{Field, Precision, Scenario};
use crate::units::Bytes;

/// A change of one input with which a scenario has an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// The inputs that change: first the one that it is about, then what comes with it.
    pub changes: Vec<Change>,
    /// What the changed run needs of the card.
    pub needed: Bytes,
    /// The changed scenario.
    pub scenario: Box<Scenario>,
}

/// Inputs that most refusals hang on: tried where none of those that an error is about helps.
const COMPANIONS: [&str; 6] = ["precision", "shard", "stack", "optimizer", "attention", "method"];

/// The changes of one input with which a scenario without an answer has one: its usual value first, then its other choices. None where
/// there is an answer.
///
/// ```
/// use headroom::{plan::repairs, share};
/// let scenario = &share::decode("method=full&p=amp-bf16-weights&gpus=8&shard=fsdp2").scenarios[0];
/// let first = &repairs(scenario)[0];
/// assert_eq!((first.changes[0].label.as_str(), first.changes[0].to.as_str()), ("Precision", "bf16 mixed (fp32 weights)"));
/// ```
pub fn repairs(scenario: &Scenario) -> Vec<Repair> {
    let answer = Answer::of_tensors(scenario.clone());
    if answer.estimate.memory.is_some() {
        return Vec::new();
    }
    let mut found: Vec<Repair> = Vec::new();
    let mut collect = |key: &'static Key| {
        for repair in of_input(scenario, key) {
            if found.iter().all(|other| other.scenario != repair.scenario) {
                found.push(repair);
            }
        }
        found.iter().any(|repair| !is_emulated(&repair.scenario))
    };
    // another model or card is another question
    let is_setting = |key: &&Key| !matches!(key.field, Field::Model | Field::Gpu | Field::Task);
    let blamed: Vec<_> =
        answer.estimate.errors().filter_map(|issue| Key::of(issue.field)).filter(is_setting).collect();
    let helped = blamed.into_iter().filter(|key| collect(key)).count();
    if helped == 0 {
        let mut companions = COMPANIONS.into_iter().filter_map(Key::find);
        companions.any(collect);
    }
    // what the card only emulates comes last
    found.sort_by_key(|repair| is_emulated(&repair.scenario));
    found
}

/// Whether it computes in bfloat16 on a card that has none: it would run, slowly.
fn is_emulated(scenario: &Scenario) -> bool {
    match scenario.precision {
        Precision::Bf16 | Precision::AmpBf16 | Precision::AmpBf16Weights => !scenario.has_bfloat16(),
        Precision::Fp32 | Precision::Fp16 | Precision::AmpFp16 => false,
    }
}

/// The values of an input with which the scenario has an answer.
fn of_input(scenario: &Scenario, key: &'static Key) -> Vec<Repair> {
    let mut usual = scenario.clone();
    key.copy(&mut usual, &scenario.defaults());
    let values: Vec<&str> = match key.kind() {
        ValueKind::Choice(choices) => choices.iter().map(|choice| choice.slug).collect(),
        ValueKind::Switch => vec!["on", "off"],
        ValueKind::Model
        | ValueKind::Teacher
        | ValueKind::Targets
        | ValueKind::Count(_)
        | ValueKind::Lengths
        | ValueKind::Dropout
        | ValueKind::Gpu => Vec::new(),
    };
    let with = |value: &str| {
        let mut other = scenario.clone();
        let mut read = Ok(());
        other.change(|scenario| read = key.read(scenario, value));
        read.ok().map(|()| other)
    };
    let tried = std::iter::once(usual).chain(values.into_iter().filter_map(with));
    let repair = |other: Scenario| {
        let answer = Answer::of_tensors(other);
        let needed = answer.fit()?.needed;
        let changes = Change::between(scenario, &answer.scenario, key.name);
        (!changes.is_empty()).then(|| Repair { changes, needed, scenario: Box::new(answer.scenario) })
    };
    tried.filter(|other| other != scenario).filter_map(repair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;

    fn repaired(link: &str) -> Vec<(String, String)> {
        told(&share::decode(link).scenarios[0])
    }

    fn told(scenario: &Scenario) -> Vec<(String, String)> {
        let found = repairs(scenario);
        for repair in &found {
            let answer = Answer::of_tensors((*repair.scenario).clone());
            assert_eq!(answer.fit().map(|fit| fit.needed), Some(repair.needed), "{scenario:?}");
        }
        found.iter().map(|repair| (repair.changes[0].label.clone(), repair.changes[0].to.clone())).collect()
    }

    #[test]
    fn what_has_an_answer_needs_no_repair() {
        assert_eq!(repaired("v=1"), []);
    }

    #[test]
    fn what_stands_in_the_way_is_changed() {
        // a number that cannot be goes back to the usual one
        let without = Scenario { sequence: 0, ..Scenario::default() };
        assert_eq!(told(&without)[0], ("Sequence length".to_owned(), "2,048".to_owned()));
        for link in ["st=unsloth&method=full", "gpus=4&shard=fsdp2&st=litgpt", "st=megatron"] {
            assert!(!repaired(link).is_empty(), "{link}");
        }
    }

    #[test]
    fn what_a_card_emulates_is_offered_last() {
        let scenario = &share::decode("gpu=t4&gpus=2&shard=fsdp2&method=full&p=fp16").scenarios[0];
        let found = repairs(scenario);
        let emulated: Vec<bool> = found.iter().map(|repair| is_emulated(&repair.scenario)).collect();
        assert!(!emulated[0] && emulated.is_sorted(), "{found:?}");
    }

    #[test]
    fn a_model_that_is_not_known_is_not_guessed() {
        assert_eq!(repaired("m=nobody/nothing"), []);
    }
}
