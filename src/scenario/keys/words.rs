//! Values for people, where a label does not say them. What differs reads differently, as far as a short text can.

use crate::scenario::{GpuChoice, Lengths, LoraTargets, ModelChoice, Scenario, Tuner};
use crate::units::{BYTES_PER_GB, Bytes, decimal, grouped, shortest};

/// `meta-llama/Llama-3.1-8B`, `Any 7B Llama-like model`, `mine (1,234,567 parameters)`.
pub fn model(model: &ModelChoice) -> String {
    match model {
        ModelChoice::Catalogue(id) => id.clone(),
        ModelChoice::Size(billions) => format!("Any {billions}B Llama-like model"),
        ModelChoice::Custom(custom) => {
            format!("{} ({} parameters)", custom.name, grouped(custom.architecture.parameters()))
        }
    }
}

/// `GeForce RTX 4090`, `Any 24 GiB card`.
pub fn card(gpu: &GpuChoice) -> String {
    match gpu {
        GpuChoice::Catalogue(slug) => {
            crate::hardware::gpu(slug).map_or_else(|_| slug.clone(), |gpu| gpu.name.to_string())
        }
        GpuChoice::Custom(memory) => format!("Any {} card", amount(*memory)),
    }
}

/// The amount as people say it, where that is exact to the byte, however it was rounded: `24 GB`, `23.5 GiB`; else in bytes.
fn amount(memory: Bytes) -> String {
    if memory.0 > 0 && memory.0.is_multiple_of(BYTES_PER_GB) {
        return format!("{} GB", grouped(memory.0 / BYTES_PER_GB));
    }
    let gib = shortest(memory.as_gib(), 2);
    match decimal(&gib).map(Bytes::gib) {
        Some(same) if same.0.abs_diff(memory.0) <= 1 => format!("{gib} GiB"),
        _ => format!("{} bytes", grouped(memory.0)),
    }
}

/// The group of layers, or their names.
pub fn targets(scenario: &Scenario) -> String {
    match scenario.lora.targets {
        LoraTargets::Named => scenario.lora.modules.to_string().replace(',', ", "),
        LoraTargets::Qv if scenario.lora.tuner == Tuner::Ia3 => "peft's default".to_owned(),
        LoraTargets::AllLinear
        | LoraTargets::Qv
        | LoraTargets::Attention
        | LoraTargets::Mlp
        | LoraTargets::AllLinearAndHead => scenario.lora.targets.label().to_owned(),
    }
}

/// `All equal`, `3,234 ± 2,547 tokens`.
pub fn lengths(lengths: Lengths) -> String {
    match lengths {
        Lengths::Equal => "All equal".to_owned(),
        Lengths::Uniform => "Any, each as likely".to_owned(),
        Lengths::Spread { mean, deviation } => {
            format!("{} ± {} tokens", grouped(mean), grouped(deviation))
        }
    }
}

/// `As in the config`, `0.1`.
pub fn dropout(probability: Option<u16>) -> String {
    match probability {
        None => "As in the config".to_owned(),
        Some(p) => (f64::from(p) / 10_000.0).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_said_as_it_was_rounded() {
        let of = |bytes| card(&GpuChoice::Custom(Bytes(bytes)));
        // 79.11 GiB, rounded up as an out-of-memory message is read
        assert_eq!(of(84_943_715_697), "Any 79.11 GiB card");
        assert_eq!(of(24_000_000_000), "Any 24 GB card");
        assert_eq!(of(24_500_000_000), "Any 24,500,000,000 bytes card");
    }
}
