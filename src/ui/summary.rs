//! Scenarios in words: titles, and what differs between them.

use super::format::{Unit, number};
use crate::scenario::{GpuChoice, Method, ModelChoice, Scenario};

/// The model without its organisation: `Llama-3.1-8B`.
pub fn model(scenario: &Scenario) -> String {
    match &scenario.model {
        ModelChoice::Catalogue(id) => id.rsplit('/').next().unwrap_or(id).to_owned(),
        ModelChoice::Size(billions) => format!("{}B model", number(*billions)),
        ModelChoice::Custom(model) => model.name.clone(),
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
