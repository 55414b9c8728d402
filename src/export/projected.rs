//! The layers whose gradients GaLore and APOLLO project, as files name them.

use crate::model::Architecture;
use crate::scenario::{LoraTargets, Modules, Scenario, StepTime};

/// Their names; none where the optimizer projects nothing.
pub(super) fn layers(scenario: &Scenario, architecture: &Architecture) -> Option<Vec<&'static str>> {
    let embedding = Modules::NONE.with("embed_tokens").unwrap_or_default();
    let head = Modules::NONE.with("lm_head").unwrap_or_default();
    let all = || Modules::of(architecture).beside(embedding);
    let named = match scenario.lora.targets {
        // of peft's default layers no such optimizer knows
        LoraTargets::AllLinear | LoraTargets::Qv => all().beside(head),
        LoraTargets::AllLinearAndHead => all(),
        LoraTargets::Attention => Modules::of_mixers(architecture),
        LoraTargets::Mlp => Modules::of_feed_forward(architecture),
        LoraTargets::Named => scenario.lora.modules,
    };
    scenario.projects().then(|| named.iter().collect())
}

/// The optimizer's name in transformers' arguments, where it has one: another where such an optimizer steps in backward.
pub(super) fn optim(scenario: &Scenario) -> Option<String> {
    let name = crate::import::names::optim(scenario.optimizer)?;
    let is_layerwise = scenario.projects() && scenario.savings.step == StepTime::InBackward;
    Some(if is_layerwise { format!("{name}_layerwise") } else { name.to_owned() })
}
