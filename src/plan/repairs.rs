//! What would run in place of a scenario that has no answer.

use super::answer::Answer;
use super::levers::Change;
use crate::scenario::keys::{Key, ValueKind};
use crate::scenario::{CpuOffload, Field, LoraTargets, Scenario};
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

impl Repair {
    /// Whether what it needs is no more than its card has.
    pub fn fits(&self) -> bool {
        self.scenario.gpu().is_ok_and(|gpu| self.needed <= gpu.memory)
    }
}

/// What repairs are called: they would run only where one of them fits.
pub fn instead(repairs: &[Repair]) -> &'static str {
    match repairs.iter().any(Repair::fits) {
        true => "What would run instead",
        false => "What has an answer, and does not fit",
    }
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
        found.iter().any(|repair| !repair.scenario.emulates_bfloat16())
    };
    let blamed: Vec<_> =
        answer.estimate.errors().filter_map(|issue| Key::of(issue.field)).filter(is_setting).collect();
    let helped = blamed.into_iter().filter(|key| collect(key)).count();
    // what is laid in the CPU's memory is often what stands against another choice
    if scenario.cluster.cpu != CpuOffload::Off {
        let _ = Key::find("cpu-offload").is_some_and(&mut collect);
    }
    // one refusal may stand behind another
    let together = if helped == 0 { one_after_the_other(scenario) } else { None };
    if helped == 0 && together.is_none() {
        let mut companions = COMPANIONS.into_iter().filter_map(Key::find);
        companions.any(collect);
    }
    found.extend(together);
    // what the card only emulates comes last, and what does not fit behind what does
    found.sort_by_key(|repair| (repair.scenario.emulates_bfloat16(), !repair.fits()));
    found
}

/// A sequence that is lengthened has a multiple of so many tokens.
const TOKENS: u64 = 256;

/// No more inputs are changed together.
const MOST_TOGETHER: usize = 4;

/// Several inputs changed, each where the last one led to another refusal; none where a refusal stays whatever its input is.
fn one_after_the_other(scenario: &Scenario) -> Option<Repair> {
    let mut last = scenario.clone();
    let mut first = None;
    for _ in 0..MOST_TOGETHER {
        let answer = Answer::of_tensors(last.clone());
        if let Some(fit) = answer.fit() {
            let changes = Change::between(scenario, &last, first?);
            let repair = Repair { changes, needed: fit.needed, scenario: Box::new(last) };
            // what makes no difference to either of them is no change to name
            return (!repair.changes.is_empty()).then_some(repair);
        }
        let refusal = answer.refusal();
        let key = Key::of(refusal.field).filter(is_setting)?;
        first = first.or(Some(key.name));
        let field = |other: &Scenario| {
            Answer::of_tensors(other.clone()).estimate.errors().next().map(|issue| issue.field)
        };
        last = values(&last, key).find(|other| field(other) != Some(refusal.field))?;
    }
    None
}

/// Whether an input is a setting: another model or card is another question.
fn is_setting(key: &&'static Key) -> bool {
    !matches!(key.field, Field::Model | Field::Gpu | Field::Task)
}

/// The scenario with the other values of an input, its usual one first.
fn values(scenario: &Scenario, key: &'static Key) -> impl Iterator<Item = Scenario> + use<> {
    let mut usual = scenario.clone();
    key.copy(&mut usual, &scenario.defaults());
    let values: Vec<&str> = match key.kind() {
        ValueKind::Choice(choices) => choices.iter().map(|choice| choice.slug).collect(),
        ValueKind::Switch => vec!["on", "off"],
        ValueKind::Targets => vec![LoraTargets::Attention, LoraTargets::Mlp, LoraTargets::Qv]
            .into_iter()
            .map(LoraTargets::slug)
            .collect(),
        ValueKind::Model
        | ValueKind::Teacher
        | ValueKind::Count(_)
        | ValueKind::Lengths
        | ValueKind::Dropout
        | ValueKind::Gpu => Vec::new(),
    };
    let own = scenario.clone();
    let with = move |value: &str| {
        let mut other = own.clone();
        let mut read = Ok(());
        other.change(|scenario| read = key.read(scenario, value));
        read.ok().map(|()| other)
    };
    // a sequence that has room for its pictures, and some text beside them
    let tokens = (key.field == Field::Sequence).then(|| scenario.picture_tokens()).flatten();
    let longer = tokens.map(|tokens| {
        let sequence = tokens.room.saturating_add(1).checked_next_multiple_of(TOKENS).unwrap_or(tokens.room);
        Scenario { sequence, ..scenario.clone() }
    });
    let own = scenario.clone();
    std::iter::once(usual)
        .chain(longer)
        .chain(values.into_iter().filter_map(with))
        .filter(move |other| *other != own)
}

/// The values of an input with which the scenario has an answer; of those that need as much the first, as that is no choice to make.
fn of_input(scenario: &Scenario, key: &'static Key) -> Vec<Repair> {
    let repair = |other: Scenario| {
        let answer = Answer::of_tensors(other);
        let needed = answer.fit()?.needed;
        let changes = Change::between(scenario, &answer.scenario, key.name);
        (!changes.is_empty()).then(|| Repair { changes, needed, scenario: Box::new(answer.scenario) })
    };
    let mut found: Vec<Repair> = Vec::new();
    for repair in values(scenario, key).filter_map(repair) {
        if found.iter().all(|other| other.needed != repair.needed) {
            found.push(repair);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_against_the_cpus_memory_runs_without_it() {
        let link = "m=meta-llama/Meta-Llama-3-8B&method=qlora&o=adamw-8bit&gpus=2&shard=zero2&cpu=optimizer&gpu=rtx-4090&s=2048&mask=padded";
        let found = repairs(&crate::share::decode(link).scenarios[0]);
        let first = found.first().expect("a repair");
        assert!(first.fits(), "{first:?}");
        let is_kept = |repair: &Repair| {
            repair.scenario.cluster.cpu == CpuOffload::Off
                && repair.scenario.optimizer == crate::scenario::Optimizer::AdamW8bit
        };
        assert!(found.iter().any(is_kept), "{found:?}");
    }
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

    /// peft stops at the routers of llama4, which "all-linear" names.
    #[test]
    fn layers_that_no_adapter_can_be_put_on_are_left_out() {
        let found = repaired("m=meta-llama/Llama-4-Scout-17B-16E-Instruct&method=lora&gpu=b200");
        assert_eq!(found[0], ("Target modules".to_owned(), "Attention".to_owned()), "{found:?}");
    }

    #[test]
    fn a_refusal_behind_another_is_repaired_too() {
        let link = "m=meta-llama/Llama-3.3-70B-Instruct&st=megatron&method=full&gpus=8&gpu=h100-sxm-80gb";
        let found = repaired(link);
        assert_eq!(found, [("Optimizer".to_owned(), "AdamW".to_owned())], "{found:?}");
        let changes = &repairs(&share::decode(link).scenarios[0])[0].changes;
        assert!(changes.len() > 1 && changes.len() <= MOST_TOGETHER, "{changes:?}");
    }

    #[test]
    fn what_a_card_emulates_is_offered_last() {
        let scenario = &share::decode("gpu=t4&gpus=2&shard=fsdp2&method=full&p=fp16").scenarios[0];
        let found = repairs(scenario);
        let emulated: Vec<bool> = found.iter().map(|repair| repair.scenario.emulates_bfloat16()).collect();
        assert!(!emulated[0] && emulated.is_sorted(), "{found:?}");
    }

    /// FSDP2 is not followed of it: under DDP it has an answer, 6,250 GiB on each GPU.
    #[test]
    fn what_has_an_answer_and_does_not_fit_is_not_said_to_run() {
        let of = |link: &str| repairs(&share::decode(link).scenarios[0]);
        let large = of("m=deepseek-ai/DeepSeek-R1&method=full&gpu=h100-sxm-80gb&gpus=64&shard=fsdp2");
        assert!(!large.is_empty() && !large.iter().any(Repair::fits), "{large:?}");
        assert_eq!(instead(&large), "What has an answer, and does not fit");
        let small = of("m=Qwen/Qwen3-0.6B&st=unsloth&method=full");
        assert_eq!(instead(&small), "What would run instead");
    }

    #[test]
    fn a_model_that_is_not_known_is_not_guessed() {
        assert_eq!(repaired("m=nobody/nothing"), []);
    }
}
