//! Scenarios in words: titles, and what differs between them.

use super::format::{Unit, number, parameters};
use crate::model::{Architecture, catalogue};
use crate::scenario::{GpuChoice, Method, ModelChoice, Scenario};
use crate::units::grouped;

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
    let entry = match &scenario.model {
        ModelChoice::Catalogue(id) => catalogue::find(id),
        ModelChoice::Size(_) | ModelChoice::Custom(_) => None,
    };
    let (total, active) = (architecture.parameters(), architecture.active_parameters());
    let active = if active < total { format!(", {} active", parameters(active)) } else { String::new() };
    let context = entry.and_then(|entry| entry.context).or(architecture.max_positions);
    let context = context.map(|context| format!(" · context {}", grouped(context))).unwrap_or_default();
    let (licence, gated) = match entry {
        Some(entry) if entry.gated => (entry.licence, ", gated"),
        Some(entry) => (entry.licence, ""),
        None => ("", ""),
    };
    let before = if licence.is_empty() { "" } else { " · licence " };
    format!("{} parameters{active}{context}{before}{licence}{gated}", parameters(total))
}

/// What a model that was just read has, to the parameter, as HTML.
pub fn counted(architecture: &Architecture) -> String {
    let (total, active) = (architecture.parameters(), architecture.active_parameters());
    let idle = if active < total { format!(", {} of them active", grouped(active)) } else { String::new() };
    format!("<p class=\"own-count\"><b>{}</b> parameters{idle}</p>", grouped(total))
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

/// What a tab says: model and method.
pub fn title(scenario: &Scenario) -> String {
    let method = match scenario.method {
        Method::Full => "full",
        Method::Lora => "LoRA",
        Method::Qlora => "QLoRA",
    };
    format!("{} · {method}", model(scenario))
}

/// Whether a method trains adapters.
pub const fn adapts(method: Method) -> bool {
    match method {
        Method::Full => false,
        Method::Lora | Method::Qlora => true,
    }
}

/// Every input that a scenario's method reads, by the name of its control.
fn inputs(scenario: &Scenario, unit: Unit) -> Vec<(&'static str, String)> {
    let lora = |text: String| if adapts(scenario.method) { text } else { "–".to_owned() };
    vec![
        ("Model", model(scenario)),
        ("GPU", card(scenario, unit)),
        ("Method", scenario.method.label().to_owned()),
        ("LoRA rank", lora(scenario.lora.rank.to_string())),
        ("Target modules", lora(scenario.lora.targets.label().to_owned())),
        ("Precision", scenario.precision.label().to_owned()),
        ("Optimizer", scenario.optimizer.label().to_owned()),
        ("Micro-batch size", scenario.batch.to_string()),
        ("Sequence length", scenario.sequence.to_string()),
        ("Gradient accumulation", scenario.accumulation.to_string()),
        ("Gradient checkpointing", scenario.checkpointing.label().to_owned()),
        ("Attention", scenario.attention.label().to_owned()),
        ("Mask", scenario.mask.label().to_owned()),
        ("Sequence lengths", scenario.lengths.to_string()),
        ("Software", scenario.stack.label().to_owned()),
        ("Head and loss", scenario.savings.loss.label().to_owned()),
        ("Activation offloading", scenario.savings.offloading.label().to_owned()),
        ("Optimizer step", scenario.savings.step.label().to_owned()),
        ("Allocator", scenario.allocator.label().to_owned()),
    ]
}

/// The inputs in which scenarios differ, each with its value in every scenario.
///
/// ```
/// use headroom::{scenario::Scenario, ui::{format::Unit, summary::differences}};
/// let other = Scenario { batch: 4, ..Scenario::default() };
/// let rows = differences(&[Scenario::default(), other], Unit::Binary);
/// assert_eq!(rows, [("Micro-batch size", vec!["1".to_owned(), "4".to_owned()])]);
/// ```
pub fn differences(scenarios: &[Scenario], unit: Unit) -> Vec<(&'static str, Vec<String>)> {
    let mut rows: Vec<(&'static str, Vec<String>)> = Vec::new();
    for scenario in scenarios {
        for (index, (name, value)) in inputs(scenario, unit).into_iter().enumerate() {
            match rows.get_mut(index) {
                Some((_, values)) => values.push(value),
                None => rows.push((name, vec![value])),
            }
        }
    }
    rows.retain(|(_, values)| values.windows(2).any(|pair| pair[0] != pair[1]));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str) -> Scenario {
        Scenario { model: ModelChoice::Catalogue(model.into()), ..Scenario::default() }
    }

    #[test]
    fn facts_are_those_that_are_known() {
        assert_eq!(
            facts(&of("meta-llama/Llama-3.1-8B")),
            "8.03B parameters · context 131,072 · licence llama3.1, gated"
        );
        assert!(facts(&of("mistralai/Mixtral-8x7B-v0.1")).starts_with("46.7B parameters, 12.9B active · "));
        assert_eq!(facts(&of("nobody/nothing")), "");
        let sized = Scenario { model: ModelChoice::Size(7.), ..Scenario::default() };
        assert!(facts(&sized).contains("B parameters · context "), "{}", facts(&sized));
    }
}
