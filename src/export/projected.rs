//! Optimizers that project gradients, as files name them and their layers.

use crate::import::names;
use crate::issue::{Field, Issue};
use crate::model::Architecture;
use crate::scenario::modules::{paths, paths_of_feed_forward, paths_of_mixers};
use crate::scenario::{LoraTargets, Optimizer, Scenario, StepTime};

/// Pieces of the paths of the layers whose gradients are projected: each is somewhere in the path of one of them, and in no other
/// layer's. None where the optimizer projects nothing.
pub(super) fn pieces(scenario: &Scenario, architecture: &Architecture) -> Option<Vec<String>> {
    scenario.projects().then(|| {
        let wanted = wanted(scenario, architecture);
        let others: Vec<String> =
            paths(architecture).into_iter().filter(|path| !wanted.contains(path)).collect();
        let mut pieces: Vec<String> = Vec::new();
        for piece in wanted.iter().map(|path| piece(path, &others)) {
            if !pieces.iter().any(|known| known == piece) {
                pieces.push(piece.to_owned());
            }
        }
        pieces
    })
}

fn wanted(scenario: &Scenario, architecture: &Architecture) -> Vec<String> {
    let mut wanted = match scenario.lora.targets {
        LoraTargets::Attention => paths_of_mixers(architecture),
        LoraTargets::Mlp => paths_of_feed_forward(architecture),
        // peft's default layers are none of such an optimizer's
        LoraTargets::AllLinear | LoraTargets::AllLinearAndHead | LoraTargets::Qv | LoraTargets::Named => {
            paths(architecture)
        }
    };
    wanted.retain(|path| match scenario.lora.targets {
        LoraTargets::AllLinear | LoraTargets::Qv => *path != architecture.head.linear.name,
        LoraTargets::Named => scenario.lora.modules.adapts(path),
        LoraTargets::AllLinearAndHead | LoraTargets::Attention | LoraTargets::Mlp => true,
    });
    wanted
}

/// The shortest end of a path that is in none of the others, from a dot on; all of it where there is none.
fn piece<'p>(path: &'p str, others: &[String]) -> &'p str {
    let ends = path.rmatch_indices('.').map(|(dot, _)| path.get(dot + 1..).unwrap_or(path));
    ends.chain([path]).find(|end| !others.iter().any(|other| other.contains(end))).unwrap_or(path)
}

/// The optimizer's name in the arguments of transformers' `Trainer`, where it has one: another where such an optimizer steps in backward.
///
/// # Errors
/// An [`Issue`] where the `Trainer` stops at the name.
pub(super) fn trainers_name(scenario: &Scenario) -> Result<Option<String>, Issue> {
    let Some(name) = names::optim(scenario.optimizer) else { return Ok(None) };
    if !scenario.projects() || scenario.savings.step == StepTime::AfterBackward {
        return Ok(Some(name.to_owned()));
    }
    if scenario.optimizer == Optimizer::GaLoreAdafactor {
        let issue = Issue::error(Field::Step, Optimizer::STOPS_LAYERWISE);
        return Err(issue.with_fix("let the optimizer step after backward"));
    }
    Ok(Some(format!("{name}_layerwise")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Objective;
    use crate::scenario::{Method, ModelChoice};

    fn written(model: &str, targets: LoraTargets) -> Vec<String> {
        let mut scenario = Scenario { method: Method::Full, ..Scenario::default() };
        (scenario.model, scenario.optimizer) =
            (ModelChoice::Catalogue(model.to_owned()), Optimizer::GaLoreAdamW);
        scenario.lora.targets = targets;
        pieces(&scenario, &scenario.architecture().unwrap()).unwrap()
    }

    #[test]
    fn pieces_are_in_no_other_layer() {
        let pythia = "EleutherAI/pythia-1.4b";
        assert_eq!(written(pythia, LoraTargets::Attention), ["query_key_value", "attention.dense"]);
        assert_eq!(written(pythia, LoraTargets::Mlp), ["dense_h_to_4h", "dense_4h_to_h"]);
        let starcoder = "bigcode/starcoderbase-1b";
        assert_eq!(written(starcoder, LoraTargets::Attention), ["c_attn", "attn.c_proj"]);
        let llama = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
        assert_eq!(written("meta-llama/Llama-3.1-8B", LoraTargets::AllLinear), llama);
    }

    /// Of every decoder of the catalogue, as transformers looks for them.
    #[test]
    fn pieces_find_the_layers_again() {
        for entry in crate::model::catalogue::entries() {
            let mut scenario = Scenario { method: Method::Full, ..Scenario::default() };
            (scenario.model, scenario.optimizer) =
                (ModelChoice::Catalogue(entry.id.to_string()), Optimizer::GaLoreAdamW);
            let Ok(architecture) = scenario.architecture() else { continue };
            // files are written for decoders, and a tower beside one is refused
            if architecture.head.objective != Objective::CausalLm || !architecture.towers.is_empty() {
                continue;
            }
            for targets in [LoraTargets::AllLinear, LoraTargets::Attention, LoraTargets::Mlp] {
                scenario.lora.targets = targets;
                let (pieces, wanted) =
                    (pieces(&scenario, &architecture).unwrap(), wanted(&scenario, &architecture));
                for path in paths(&architecture) {
                    let found = pieces.iter().any(|piece| path.contains(piece.as_str()));
                    assert_eq!(found, wanted.contains(&path), "{}: {path} by {pieces:?}", entry.id);
                }
            }
        }
    }
}
