//! What is to be said of models whose layers are state spaces or linear attention.

use super::{Field, Issue, LoraTargets, Method, Scenario};
use crate::model::Architecture;
use crate::model::blocks::{Mixer, Scan};

/// What runs without the optional kernels, and what peft does not adapt.
pub(super) fn issues(scenario: &Scenario, architecture: &Architecture) -> Vec<Issue> {
    let kernels = architecture.blocks.iter().find_map(|block| match &block.mixer {
        Mixer::DeltaNet(_) => Some(("its linear attention chunk by chunk", "flash-linear-attention")),
        Mixer::StateSpace(space) => Some(match space.scan {
            Scan::Mamba { .. } => ("its state spaces token by token", "mamba-ssm"),
            Scan::Mamba2 { .. } => ("its state spaces with every product written out", "mamba-ssm"),
        }),
        Mixer::Attention(_)
        | Mixer::Latent(_)
        | Mixer::Cross(_)
        | Mixer::ShortConv(_)
        | Mixer::Module(_)
        | Mixer::None => None,
    });
    let Some((how, package)) = kernels else { return Vec::new() };
    let message = format!(
        "this is {} as transformers runs it by itself, {how}: with {package} and causal-conv1d installed a step needs less",
        architecture.model_type
    );
    let mut issues = vec![Issue::warning(Field::Model, message)];
    let adapts = matches!(scenario.method, Method::Lora | Method::Qlora);
    let refuses = architecture.family.is_some_and(|family| family.modeling.peft.refuses_out_proj);
    if adapts && refuses {
        match scenario.lora.targets {
            LoraTargets::AllLinear | LoraTargets::AllLinearAndHead => {
                let message =
                    "peft refuses to adapt out_proj of this model: counted are all other linear layers";
                let fix = "name the layers in target_modules, without out_proj";
                issues.push(Issue::warning(Field::LoraTargets, message).with_fix(fix));
            }
            LoraTargets::Named if scenario.lora.modules.adapts("mixer.out_proj") => {
                let message = "peft refuses to adapt out_proj of this model";
                issues.push(Issue::error(Field::LoraTargets, message).with_fix("leave it out"));
            }
            LoraTargets::Named | LoraTargets::Qv | LoraTargets::Attention | LoraTargets::Mlp => {}
        }
    }
    issues
}
