//! Scenarios in words: titles, and what differs between them.

use leptos::prelude::*;

use super::format::{Unit, number, parameters};
use crate::issue::Field;
use crate::model::{Architecture, catalogue};
use crate::scenario::keys::{Count, Group, Key, ValueKind, keys};
use crate::scenario::{GpuChoice, Method, ModelChoice, Scenario, Task};
use crate::units::grouped;

/// The task as the verb of a sentence whose object is the model.
pub fn task(scenario: &Scenario) -> &'static str {
    match scenario.task {
        Task::Sft => "Fine-tune",
        Task::Classify => "Train a classifier of",
        Task::Embed => "Train embeddings of",
        Task::Dpo => "Train by DPO",
        Task::Kto => "Train by KTO",
        Task::Orpo => "Train by ORPO",
        Task::Cpo => "Train by CPO",
        Task::Simpo => "Train by SimPO",
        Task::Reward => "Train a reward model of",
        Task::Grpo => "Train by GRPO",
        Task::Rloo => "Train by RLOO",
        Task::Ppo => "Train by PPO",
        Task::Distil => "Distil into",
        Task::Generate => "Generate text from",
    }
}

/// `batch 4`, or so many of what the batch is of.
pub fn batch(scenario: &Scenario) -> String {
    let count = grouped(scenario.batch);
    let things = match (scenario.task, scenario.batch) {
        (Task::Sft | Task::Classify | Task::Generate, _) => return format!("batch {count}"),
        (Task::Embed, 1) => "example",
        (Task::Embed, _) => "examples",
        (Task::Dpo | Task::Orpo | Task::Cpo | Task::Simpo | Task::Reward, 1) => "pair",
        (Task::Dpo | Task::Orpo | Task::Cpo | Task::Simpo | Task::Reward, _) => "pairs",
        (Task::Kto | Task::Grpo | Task::Rloo | Task::Ppo | Task::Distil, 1) => "answer",
        (Task::Kto | Task::Grpo | Task::Rloo | Task::Ppo | Task::Distil, _) => "answers",
    };
    format!("{count} {things}")
}

/// The training library without its version: `transformers + PEFT`; nothing for what generates.
pub fn library(scenario: &Scenario) -> String {
    let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let words = |label: &str| label.split(' ').filter(|word| !is_version(word)).collect::<Vec<_>>().join(" ");
    if scenario.task.trains() { words(scenario.library()) } else { String::new() }
}

/// What generates the answers that are learned from, where these are not given.
pub fn rollouts(scenario: &Scenario) -> &'static str {
    if !scenario.task.learns_from_own_answers() || scenario.learns_by_gkd() && !scenario.generates_itself() {
        ""
    } else if scenario.generates_itself() {
        "answers by itself"
    } else if scenario.asks_a_server() {
        "vLLM elsewhere"
    } else {
        "vLLM on the same card"
    }
}

/// What came along with a change, where it makes a difference before and after: `Also set: Precision: bf16 mixed`.
pub fn came_along(before: &Scenario, after: &Scenario, followed: &[&'static Key]) -> Option<String> {
    let shown = followed.iter().filter(|key| key.matters(before) && key.matters(after));
    let words: Vec<_> = shown.map(|key| format!("{}: {}", key.label_for(after), key.words(after))).collect();
    (!words.is_empty()).then(|| format!("Also set: {}", words.join(", ")))
}

/// The model without its organisation: `Llama-3.1-8B`.
pub fn model(scenario: &Scenario) -> String {
    match &scenario.model {
        ModelChoice::Catalogue(id) => last_part(id),
        ModelChoice::Size(billions) => format!("{}B model", number(*billions)),
        ModelChoice::Custom(model) => last_part(&model.name),
    }
}

fn last_part(id: &str) -> String {
    id.rsplit('/').next().unwrap_or(id).to_owned()
}

/// What a model is called that nobody named: `llama, 8.03B`.
pub fn unnamed(architecture: &Architecture) -> String {
    format!("{}, {}", architecture.model_type, parameters(architecture.parameters()))
}

/// What is known of the model: parameters, of a mixture also those that a token meets, context and licence.
pub fn facts(scenario: &Scenario) -> String {
    let Ok(architecture) = scenario.architecture() else { return String::new() };
    let (entry, context) = match &scenario.model {
        ModelChoice::Catalogue(id) => (catalogue::find(id), catalogue::context(id)),
        ModelChoice::Size(_) | ModelChoice::Custom(_) => (None, None),
    };
    let (total, active) = (architecture.parameters(), architecture.active_parameters());
    let active = if active < total { format!(", {} active", parameters(active)) } else { String::new() };
    let context = context
        .or(architecture.max_positions)
        .map(|context| format!(" · context {}", grouped(context)))
        .unwrap_or_default();
    // what somebody else made of the same shape has terms of its own
    let is_its_own = |entry: &&catalogue::Entry| match &scenario.model {
        ModelChoice::Catalogue(id) => {
            id.split_once('/').is_none_or(|(by, _)| by.eq_ignore_ascii_case(entry.organisation()))
        }
        ModelChoice::Size(_) | ModelChoice::Custom(_) => false,
    };
    let (licence, gated) = match entry.filter(is_its_own) {
        Some(entry) if entry.gated => (entry.licence, ", gated"),
        Some(entry) => (entry.licence, ""),
        None => ("", ""),
    };
    let before = if licence.is_empty() { "" } else { " · licence " };
    format!("{} parameters{active}{context}{before}{licence}{gated}", parameters(total))
}

/// What a model that was just read has, to the parameter.
pub fn counted(architecture: &Architecture) -> impl IntoView + use<> {
    let (total, active) = (architecture.parameters(), architecture.active_parameters());
    let idle = if active < total { format!(", {} of them active", grouped(active)) } else { String::new() };
    view! {
        <p class="own-count">
            <b>{grouped(total)}</b>
            " parameters"
            {idle}
        </p>
    }
}

/// The card's name: `GeForce RTX 4090`, `24.0 GiB card`.
pub fn card(scenario: &Scenario, unit: Unit) -> String {
    match &scenario.gpu {
        GpuChoice::Catalogue(slug) => {
            scenario.gpu().map_or_else(|_| slug.clone(), |gpu| gpu.name.to_string())
        }
        GpuChoice::Custom(memory) => format!("{} card", unit.amount(*memory)),
    }
}

/// How many of them: `8 × GeForce RTX 4090`.
pub fn cards(scenario: &Scenario, unit: Unit) -> String {
    let gpus = if scenario.cluster.is_many() { scenario.cluster.gpus } else { 1 };
    format!("{} × {}", grouped(gpus), card(scenario, unit))
}

/// What a tab says: model and method.
pub fn title(scenario: &Scenario) -> String {
    let method = match scenario.method {
        Method::Qlora if !scenario.task.trains() => scenario.quantization.format.label(),
        Method::Full | Method::Lora if !scenario.task.trains() => scenario.precision.label(),
        Method::Full => "full",
        Method::Lora => "LoRA",
        Method::Qlora => "QLoRA",
    };
    format!("{} · {method}", model(scenario))
}

/// What a picture of the answer is of: `Llama-3.1-8B · QLoRA, rank 16 · 2,048 tokens · batch 1 · GeForce RTX 4090`.
pub fn caption(scenario: &Scenario, unit: Unit) -> String {
    let tuner = scenario.lora.tuner;
    let rank = if scenario.task.trains() && scenario.method.has_adapters() && tuner.has_rank() {
        format!(", {}", tuner.sized(scenario.lora.rank))
    } else {
        String::new()
    };
    let cards = if scenario.cluster.is_many() { cards(scenario, unit) } else { card(scenario, unit) };
    let tokens = grouped(scenario.sequence);
    format!("{}{rank} · {tokens} tokens · {} · {cards}", title(scenario), batch(scenario))
}

/// The price as the page asks for it: the scenario keeps cents, as the command does.
pub const PRICE: &str = "US dollars per GPU-hour";

/// What a scenario says of an input, in the unit in which the page asks for it.
fn words(key: &Key, scenario: &Scenario) -> String {
    match (key.kind(), scenario.data.price()) {
        (ValueKind::Count(Count::Cents), Some(dollars)) => format!("{dollars:.2}"),
        (ValueKind::Count(Count::Cents), None) => "as listed".to_owned(),
        _ => key.words(scenario),
    }
}

/// The same; a dash where it makes no difference.
fn said(key: &Key, scenario: &Scenario) -> String {
    if key.matters(scenario) { words(key, scenario) } else { "–".to_owned() }
}

/// Every key, group by group.
fn grouped_keys() -> impl Iterator<Item = &'static Key> {
    Group::ALL.into_iter().flat_map(|group| keys().filter(move |key| key.group == group))
}

/// Whether scenarios for which an input makes a difference have different values of it.
fn has_values(key: &Key, scenarios: &[Scenario]) -> bool {
    let mut values = scenarios.iter().filter(|scenario| key.matters(scenario));
    values.next().is_some_and(|first| values.any(|other| !key.is_same(first, other)))
}

/// Whether an input that makes a difference for some of the scenarios only is worth a row: a rank beside full fine-tuning,
/// but not what QLoRA does by default.
fn is_for_some(key: &Key, scenarios: &[Scenario]) -> bool {
    let is_said = |scenario: &&Scenario| {
        key.matters(scenario) && (key.place.is_always_said() || !key.is_same(scenario, &scenario.defaults()))
    };
    scenarios.iter().any(|scenario| !key.matters(scenario)) && scenarios.iter().find(is_said).is_some()
}

/// The inputs in which scenarios differ, each with its value in every scenario.
///
/// ```
/// use headroom::{scenario::Scenario, ui::summary::differences};
/// let other = Scenario { batch: 4, ..Scenario::default() };
/// let rows = differences(&[Scenario::default(), other]);
/// assert_eq!(rows, [("Micro-batch size", vec!["1".to_owned(), "4".to_owned()])]);
/// ```
pub fn differences(scenarios: &[Scenario]) -> Vec<(&'static str, Vec<String>)> {
    let row = |key: &'static Key| {
        let label = match key.kind() {
            ValueKind::Count(Count::Cents) => PRICE,
            _ => key.label_among(scenarios),
        };
        (label, scenarios.iter().map(|scenario| said(key, scenario)).collect())
    };
    let differs = |key: &&'static Key| has_values(key, scenarios) || is_for_some(key, scenarios);
    grouped_keys().filter(differs).map(row).collect()
}

/// The most inputs that a short name says.
const SAID: usize = 3;

/// A short name for each of several scenarios, `LoRA · batch 4`: of the first what tells it from any other, of the others what tells them
/// from the first.
pub fn names(scenarios: &[Scenario]) -> Vec<String> {
    let keys: Vec<_> = grouped_keys().filter(|key| has_values(key, scenarios)).collect();
    let name = |(position, scenario): (usize, &Scenario)| {
        let is_firsts = |key: &Key| {
            let first = &scenarios[0];
            position > 0 && key.matters(first) && key.is_same(first, scenario)
        };
        let own: Vec<_> = keys.iter().filter(|key| key.matters(scenario) && !is_firsts(key)).collect();
        let mut said: Vec<_> = own.iter().take(SAID).map(|key| phrase(key, scenario)).collect();
        if own.len() > SAID {
            said.push("…".to_owned());
        }
        if said.is_empty() { title(scenario) } else { said.join(" · ") }
    };
    scenarios.iter().enumerate().map(name).collect()
}

/// An input and its value in a few words: `QLoRA`, `batch 4`, `Double quantisation Off`.
fn phrase(key: &Key, scenario: &Scenario) -> String {
    let words = words(key, scenario);
    match key.field {
        Field::Batch => return batch(scenario),
        Field::Sequence => return format!("{words} tokens"),
        Field::LoraRank => return format!("rank {words}"),
        Field::Gpus => return format!("{words} {}", if scenario.cluster.gpus == 1 { "GPU" } else { "GPUs" }),
        // without who makes it: `ZeRO-3 (DeepSpeed)`
        Field::Sharding => return words.split(" (").next().unwrap_or_default().to_owned(),
        _ => {}
    }
    match key.kind() {
        ValueKind::Model => model(scenario),
        ValueKind::Gpu => words,
        ValueKind::Teacher => format!("{}: {words}", key.label),
        ValueKind::Choice(_) if says_enough(key.field) => words,
        ValueKind::Count(Count::Cents) => format!("price {words}"),
        ValueKind::Count(_)
        | ValueKind::Choice(_)
        | ValueKind::Targets
        | ValueKind::Switch
        | ValueKind::Lengths
        | ValueKind::Dropout => {
            format!("{} {}", key.label_for(scenario), words)
        }
    }
}

/// Whether the names of a choice say what is chosen.
fn says_enough(field: Field) -> bool {
    [Field::Method, Field::Precision, Field::Optimizer, Field::Stack].contains(&field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str) -> Scenario {
        Scenario { model: ModelChoice::Catalogue(model.into()), ..Scenario::default() }
    }

    #[test]
    fn nothing_that_changes_the_answer_is_left_out() {
        let base = Scenario::default();
        let mut other = base.clone();
        other.quantization.double_quant = false;
        assert_eq!(
            differences(&[base.clone(), other]),
            [("Double quantisation", vec!["On".to_owned(), "Off".to_owned()])]
        );
        let named = |names: &str| {
            let mut scenario = base.clone();
            scenario.lora.targets = crate::scenario::LoraTargets::Named;
            scenario.lora.modules = names.parse().unwrap();
            scenario
        };
        assert_eq!(
            differences(&[named("q_proj"), named("q_proj,v_proj")]),
            [("Target modules", vec!["q_proj".to_owned(), "q_proj, v_proj".to_owned()])]
        );
        let full = Scenario { method: Method::Full, ..base.clone() };
        let rows = differences(&[base, full]);
        assert!(rows.contains(&("LoRA rank", vec!["16".to_owned(), "–".to_owned()])), "{rows:?}");
    }

    #[test]
    fn what_came_along_is_told_where_it_counts() {
        let told = |change: fn(&mut Scenario)| {
            let before = Scenario { method: Method::Full, ..Scenario::default() };
            let mut after = before.clone();
            let followed = after.change_and_tell(change);
            came_along(&before, &after, &followed)
        };
        assert_eq!(told(|scenario| scenario.batch = 4), None);
        let fp16 = told(|scenario| scenario.gpu = GpuChoice::Catalogue("t4".into()));
        assert!(
            fp16.as_ref().is_some_and(|told| told.contains("Precision: ") && !told.contains("LoRA")),
            "{fp16:?}"
        );
    }

    #[test]
    fn a_picture_says_what_it_is_of() {
        let of = |scenario: &Scenario| caption(scenario, Unit::Binary);
        let told = "Llama-3.1-8B · QLoRA, rank 16 · 2,048 tokens · batch 1 · GeForce RTX 4090";
        assert_eq!(of(&Scenario::default()), told);
        let mut eight = Scenario { method: Method::Full, ..Scenario::default() };
        eight.cluster.set_gpus(8);
        assert_eq!(of(&eight), "Llama-3.1-8B · full · 2,048 tokens · batch 1 · 8 × GeForce RTX 4090");
    }

    #[test]
    fn names_say_what_tells_scenarios_apart() {
        let base = Scenario::default();
        let all = [base.clone(), Scenario { method: Method::Lora, batch: 4, ..base.clone() }];
        assert_eq!(names(&all), ["QLoRA · batch 1", "LoRA · batch 4"]);
        assert_eq!(names(&[base.clone(), base.clone()])[1], "Llama-3.1-8B · QLoRA");
        let batches = [base.clone(), Scenario { batch: 8, ..base }];
        assert_eq!(names(&batches)[1], "batch 8");
        let mut eight = batches[0].clone();
        eight.cluster.set_gpus(8);
        assert!(names(&[batches[0].clone(), eight])[0].starts_with("1 GPU"), "one of it");
        let link = "method=full&p=amp-bf16&gpu=h100-sxm-80gb&gpus=8&shard=fsdp2&2.shard=ddp&3.shard=zero3&4.b=4&4.shard=zero2";
        let layouts = crate::share::decode(link).scenarios;
        assert_eq!(names(&layouts), ["FSDP2 · batch 1", "DDP", "ZeRO-3", "ZeRO-2 · batch 4"]);
    }

    #[test]
    fn facts_are_those_that_are_known() {
        assert_eq!(
            facts(&of("meta-llama/Llama-3.1-8B")),
            "8.03B parameters · context 131,072 · licence llama3.1, gated"
        );
        assert!(facts(&of("mistralai/Mixtral-8x7B-v0.1")).starts_with("46.7B parameters, 12.9B active · "));
        assert_eq!(facts(&of("nobody/nothing")), "");
        // the terms of a model of the same shape are somebody else's
        let mirror = facts(&of("unsloth/llama-3-8b-Instruct"));
        assert!(mirror.contains("context 8,192") && !mirror.contains("licence"), "{mirror}");
        let sized = Scenario { model: ModelChoice::Size(7.), ..Scenario::default() };
        assert!(facts(&sized).contains("B parameters · context "), "{}", facts(&sized));
    }
}
