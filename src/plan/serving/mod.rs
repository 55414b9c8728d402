//! Serving a model: its weights in every format, and what vLLM leaves to keys and values beside them.

mod chosen;
mod followed;
mod share;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::contexts::generating;
use super::verdict::Verdict;
use crate::dtype::Dtype;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::model::Architecture;
use crate::model::blocks::Mixer;
use crate::model::stored::{Stored, is_published_in_mxfp4};
use crate::scenario::Scenario;
use crate::units::{Between, Bytes};
use crate::vllm::{Asked, Cache, Room, Served, Share, Start};

use followed::followed;

pub use chosen::{Chosen, chosen};
pub use followed::{FormatRow, SEQUENCES, by_batch};
pub use share::{UTILISATION, among, kernels, least_room, told};

/// What `generate` of transformers needs of the card.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Needed {
    /// As it was followed: the scenario, what it needs, and whether it gets through.
    Followed(Box<Scenario>, Bytes, Verdict),
    /// Kernels that were not run: weights and KV cache exactly, and what else is alive from what 16-bit weights take to as much
    /// as a kernel needs that opens the largest matrix first; and whether that is on the card.
    Between(Between, Verdict),
    /// llama.cpp's: weights and KV cache alone, to which its compute buffers come.
    AtLeast(Bytes),
    /// Why there is no answer.
    Unknown(Issue),
}

impl Needed {
    /// In words.
    pub fn words(&self) -> String {
        match self {
            Needed::Followed(_, needed, Verdict::Fits) => needed.to_string(),
            Needed::Followed(_, needed, verdict) => format!("{needed} {}", verdict.slug()),
            Needed::Between(range, Verdict::Fits) => range.to_string(),
            Needed::Between(range, verdict) => format!("{range} {}", verdict.slug()),
            Needed::AtLeast(least) => format!("over {least}"),
            Needed::Unknown(_) => "no answer".to_owned(),
        }
    }
}

/// A format of the weights and what comes of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServingRow {
    /// The format.
    pub stored: Stored,
    /// How many weights of GPTQ's and AWQ's share a scale; 0 where a whole column does.
    pub group: u64,
    /// Of the weights.
    pub weights: Bytes,
    /// By transformers' `generate`, with the scenario's prompts.
    pub needed: Needed,
    /// Whether only some of its layers are in the format, as the model is published.
    pub as_published: bool,
    /// Under vLLM.
    pub room: Room,
    /// Whether vLLM starts at the model's own context, with keys and values as the scenario says; none where that or its budget is not known.
    pub start: Option<Start>,
    /// The same where keys and values are FP8 (`kv_cache_dtype="fp8"`).
    pub fp8: Room,
}

impl ServingRow {
    /// The format's name shown to people.
    pub fn label(&self) -> String {
        let label = self.stored.label_in_groups(self.group);
        if self.as_published { format!("{label}, as published") } else { label }
    }

    /// Whether vLLM has so many sequences of the scenario's length at once, where its budget is known: beyond doubt, perhaps, or not.
    pub fn holds(&self, sequences: u64) -> Option<Verdict> {
        let asked = sequences as f64;
        match self.room {
            Room::Tokens { sequences: [fewest, _], .. } if fewest >= asked => Some(Verdict::Fits),
            Room::Tokens { sequences: [_, most], .. } if most >= asked => Some(Verdict::Close),
            Room::Tokens { .. } | Room::Stops => Some(Verdict::Over),
            Room::Unknown(_) => None,
        }
    }
}

/// Why vLLM has no answer, and of which formats.
pub fn unanswered(rows: &[ServingRow]) -> Vec<(&str, Vec<String>)> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let Room::Unknown(reason) = &row.room else { continue };
        match reasons.iter_mut().find(|(other, _)| other == reason) {
            Some((_, formats)) => formats.push(row.label()),
            None => reasons.push((reason, vec![row.label()])),
        }
    }
    reasons
}

/// Why `generate` has no answer, where that is one and the same for every format: on several GPUs.
pub fn refused_alike(rows: &[ServingRow]) -> Option<&Issue> {
    let mut refusals = rows.iter().map(|row| match &row.needed {
        Needed::Unknown(issue) => Some(issue),
        Needed::Followed(..) | Needed::Between(..) | Needed::AtLeast(_) => None,
    });
    let first = refusals.next()??;
    refusals.all(|other| other == Some(first)).then_some(first)
}

/// The weights of the scenario's model in every format. A scenario that trains is asked as what it would be if it generated.
///
/// # Errors
/// An [`Issue`] where model or card are not known.
pub fn serving(base: &Scenario) -> Result<Vec<ServingRow>, Issue> {
    let base = generating(base);
    let architecture = base.architecture()?;
    let card = base.card()?;
    let half = followed(&base, Stored::Half);
    let ranks = share::ranks(&base);
    let length = share::length(&base);
    let group = u64::try_from(base.quantization.group.size()).unwrap_or(0);
    let served = Served::new(&architecture, ranks, Share::of(&base)?, &Asked { length, group });
    let context = architecture.max_positions.filter(|context| *context > 0);
    let rows = Stored::ALL.map(|stored| {
        let weights = stored.bytes_in_groups(&architecture, group);
        let room = |cache| {
            let budget = served.budget(stored, cache, &card);
            budget.map_or_else(Room::Unknown, |budget| budget.room())
        };
        let [room, fp8] = [Cache::AsComputed, Cache::Fp8].map(room);
        ServingRow {
            stored,
            group,
            weights,
            needed: needed(&base, (&architecture, &card), (stored, weights), &half),
            as_published: stored == Stored::Mxfp4 && is_published_in_mxfp4(&architecture),
            start: context.and_then(|context| served.start(stored, share::cache(&base), &card, context)),
            room,
            fp8,
        }
    });
    Ok(rows.into())
}

fn needed(
    base: &Scenario,
    (architecture, card): (&Architecture, &Gpu),
    (stored, weights): (Stored, Bytes),
    half: &Answer,
) -> Needed {
    if stored.is_followed() {
        let answer = followed(base, stored);
        return match (answer.fit(), answer.verdict()) {
            (Some(fit), Some(verdict)) => Needed::Followed(Box::new(answer.scenario), fit.needed, verdict),
            _ => Needed::Unknown(answer.refusal()),
        };
    }
    let Some(fit) = half.fit() else { return Needed::Unknown(half.refusal()) };
    if stored.is_of_llama_cpp() {
        let tokens = base.sequence.saturating_add(base.generation.new_tokens);
        let cache = keys_and_values(architecture, tokens).saturating_mul(base.batch);
        return Needed::AtLeast(Bytes(weights.0.saturating_add(cache)));
    }
    let beside = fit.needed.saturating_sub(Stored::Half.bytes(architecture));
    let least = Bytes(weights.0.saturating_add(beside.0));
    let most = Bytes(least.0.saturating_add(Stored::largest_opened(architecture).0));
    let verdict = match (most <= card.memory, least <= card.memory) {
        (true, _) => Verdict::Fits,
        (false, true) => Verdict::Close,
        (false, false) => Verdict::Over,
    };
    Needed::Between(Between { least, most }, verdict)
}

/// The least that llama.cpp keeps of so many tokens of a sequence in 16 bits: of a layer with a window those within it, of latent attention
/// what keys and values are made of. States of recurrent layers are no keys, and an encoder's are not counted.
fn keys_and_values(architecture: &Architecture, tokens: u64) -> u64 {
    let of_layer = |kind: &u16| {
        let elements = match &architecture.blocks.get(usize::from(*kind))?.mixer {
            Mixer::Attention(attention) => {
                let kept = attention.window.map_or(tokens, |window| window.min(tokens));
                attention.kv_heads.saturating_mul(attention.head_dim).saturating_mul(2).saturating_mul(kept)
            }
            Mixer::Latent(latent) => latent.kv_rank.saturating_add(latent.rope_dim).saturating_mul(tokens),
            Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
            | Mixer::None => 0,
        };
        Some(elements.saturating_mul(Dtype::Bf16.bytes()))
    };
    architecture.order.iter().filter_map(of_layer).fold(0, u64::saturating_add)
}
