//! Which architectures the step can run. The rest is counted but refused here, so that what runs never meets a part that
//! it does not know.

use crate::model::Architecture;
use crate::model::blocks::{Attention, AttentionCode, Block, FeedForward, Mixer, Projection, Scan, Wiring};
use crate::scenario::{Field, Issue, Method, Scenario};

/// An issue that names what is not modelled, if anything is not.
pub(super) fn unmodelled(architecture: &Architecture, scenario: &Scenario) -> Result<(), Issue> {
    if scenario.method == Method::Qlora && architecture.blocks.iter().any(scans_by_token) {
        let message = match architecture.model_type.as_str() {
            "jamba" => {
                "jamba in 4-bit is not modelled: its steps are then computed in another way".to_owned()
            }
            other => format!(
                "{other} in 4-bit does not run without mamba-ssm: its dt_proj.weight is multiplied as a matrix, which a packed weight is not"
            ),
        };
        return Err(Issue::error(Field::Method, message).with_fix("choose LoRA or full fine-tuning"));
    }
    let part = match &architecture.encoder {
        Some(_) if !matches!(architecture.model_type.as_str(), "t5" | "mt5") => {
            Some("an encoder beside its decoder".to_owned())
        }
        Some(_) => None,
        // Measured 32 % and 13 % off: their own code keeps other tensors than the blocks that count them.
        None if matches!(architecture.model_type.as_str(), "openai-gpt" | "biogpt") => {
            Some("layers whose code is not followed yet".to_owned())
        }
        None if !architecture.loose.is_empty() => Some("parts outside its layers".to_owned()),
        None => architecture.blocks.iter().find_map(block),
    };
    match part {
        None => Ok(()),
        Some(part) => Err(Issue::error(
            Field::Model,
            format!(
                "the parameters of {} are counted, but running it is not modelled: it has {part}",
                architecture.model_type
            ),
        )
        .with_fix("choose another model")),
    }
}

fn scans_by_token(block: &Block) -> bool {
    matches!(&block.mixer, Mixer::StateSpace(space) if matches!(space.scan, Scan::Mamba { .. }))
}

fn block(block: &Block) -> Option<String> {
    let mixer = match &block.mixer {
        Mixer::Attention(attention) => unmodelled_attention(attention),
        Mixer::Latent(latent) => {
            latent.indexer.is_some().then(|| "latent attention to chosen tokens".to_owned())
        }
        Mixer::Cross(_) => Some("attention to pictures, which a step over text alone skips".to_owned()),
        Mixer::StateSpace(_) | Mixer::DeltaNet(_) | Mixer::ShortConv(_) => None,
        Mixer::Module(module) => Some(module.what.to_owned()),
        Mixer::None => None,
    };
    let rest = match (&block.ffn, &block.cross, &block.wiring) {
        (_, Some(_), _) => Some("attention to an encoder"),
        (FeedForward::None, _, wiring) if !matches!(wiring, Wiring::Single { .. }) => {
            Some("layers without a feed-forward network")
        }
        _ if !block.loose.is_empty() => Some("further parameters in its layers"),
        _ => None,
    };
    mixer.or_else(|| rest.map(str::to_owned))
}

fn unmodelled_attention(attention: &Attention) -> Option<String> {
    match (&attention.code, &attention.projection) {
        (AttentionCode::Own(family), _) if !matches!(*family, "gpt_neo" | "gptj" | "mpt") => {
            Some(format!("the attention that only {family} has"))
        }
        (_, Projection::KeysAreValues { .. } | Projection::QueriesOnly(_)) => {
            Some("keys and values that are shared".to_owned())
        }
        _ if attention.position_bias.is_some() => Some("a learned bias by distance".to_owned()),
        _ => None,
    }
}
