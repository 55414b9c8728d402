//! Serving a model: its weights in every format, and what vLLM leaves to keys and values beside them.
//!
//! Source of vLLM's budget: vLLM 0.21 v1/worker/gpu_worker.py `determine_available_memory`.

mod between;
mod cache;
mod profile;
mod ranks;
mod share;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::contexts::generating;
use super::verdict::Verdict;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::model::Architecture;
use crate::model::stored::Stored;
use crate::scenario::colocated::keys_and_values;
use crate::scenario::{Method, Precision, Scenario, WeightFormat};
use crate::units::{Bytes, grouped};

pub use between::Between;
use cache::{Blocks, Cache};
use profile::Profiled;
pub use share::{Share, among, kernels, least_room};

/// What `generate` of transformers needs of the card.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Needed {
    /// As it was followed: the scenario, what it needs, and whether it gets through.
    Followed(Box<Scenario>, Bytes, Verdict),
    /// Kernels that were not run: weights and KV cache exactly, and what else is alive from what 16-bit weights take to as much
    /// as a kernel needs that opens the largest matrix first.
    Between(Between),
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
            Needed::Between(Between { least, most }) => format!("{least} to {most}"),
            Needed::AtLeast(least) => format!("over {least}"),
            Needed::Unknown(_) => "no answer".to_owned(),
        }
    }
}

/// What vLLM has for keys and values.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Room {
    /// Tokens of the KV cache, at least and at most, and how many sequences of the scenario's length they are.
    Tokens {
        /// At least and at most.
        tokens: [u64; 2],
        /// Of the scenario's length.
        sequences: [f64; 2],
    },
    /// It stops: not one sequence of the length has room.
    Stops,
    /// It does not load this format, or its profiling run was not followed, and why.
    Unknown(String),
}

impl Room {
    /// Tokens, and sequences at once, in words.
    pub fn words(&self) -> [String; 2] {
        match self {
            Room::Tokens { tokens: [least, most], sequences: [fewest, all] } => {
                let range = |one: String, other: String| {
                    if one == other { one } else { format!("{one} to {other}") }
                };
                [range(grouped(*least), grouped(*most)), range(format!("{fewest:.1}"), format!("{all:.1}"))]
            }
            Room::Stops => ["none: it stops".to_owned(), "0".to_owned()],
            Room::Unknown(_) => ["no answer".to_owned(), "–".to_owned()],
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
    /// Under vLLM.
    pub room: Room,
    /// The same where keys and values are FP8 (`kv_cache_dtype="fp8"`).
    pub fp8: Room,
}

impl ServingRow {
    /// The format's name shown to people.
    pub fn label(&self) -> String {
        self.stored.label_in_groups(self.group)
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
        Needed::Followed(..) | Needed::Between(_) | Needed::AtLeast(_) => None,
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
    let served = Served {
        rank: ranks::rank(&architecture, ranks),
        ranks,
        vocabulary: architecture.vocab,
        share: Share::of(&base)?,
        length: base.sequence.saturating_add(base.generation.new_tokens),
        group: u64::try_from(base.quantization.group.size()).unwrap_or(0),
    };
    let rows = Stored::ALL.map(|stored| {
        let weights = stored.bytes_in_groups(&architecture, served.group);
        let [room, fp8] = [Cache::AsComputed, Cache::Fp8]
            .map(|cache| served.room(stored, cache, &card).unwrap_or_else(Room::Unknown));
        ServingRow {
            stored,
            group: served.group,
            weights,
            needed: needed(&base, &architecture, (stored, weights), &half),
            room,
            fp8,
        }
    });
    Ok(rows.into())
}

/// The scenario with weights of a format that transformers' own code computes from.
fn followed(base: &Scenario, stored: Stored) -> Answer {
    let mut scenario = base.clone();
    scenario.method = match stored {
        Stored::Int8 | Stored::Nf4 => Method::Qlora,
        Stored::Fp32
        | Stored::Half
        | Stored::Fp8
        | Stored::Q8
        | Stored::Q6
        | Stored::Q5
        | Stored::Q4
        | Stored::Gptq
        | Stored::Awq
        | Stored::Nvfp4
        | Stored::Mxfp4 => Method::Full,
    };
    let half = if base.precision == Precision::Fp16 || !base.has_bfloat16() {
        Precision::Fp16
    } else {
        Precision::Bf16
    };
    scenario.precision = if stored == Stored::Fp32 { Precision::Fp32 } else { half };
    scenario.quantization.format =
        if stored == Stored::Int8 { WeightFormat::Int8 } else { WeightFormat::Nf4 };
    Answer::of_tensors(scenario)
}

fn needed(
    base: &Scenario,
    architecture: &Architecture,
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
        return match keys_and_values(architecture) {
            Some(token) => {
                let cache = token.saturating_mul(tokens).saturating_mul(base.batch);
                Needed::AtLeast(Bytes(weights.0.saturating_add(cache)))
            }
            None => Needed::AtLeast(weights),
        };
    }
    let beside = fit.needed.saturating_sub(Stored::Half.bytes(architecture));
    let least = Bytes(weights.0.saturating_add(beside.0));
    let most = Bytes(least.0.saturating_add(Stored::largest_opened(architecture).0));
    Needed::Between(Between { least, most })
}

/// Rows and columns of FP8 weights that share a scale.
const FP8_BLOCK: u64 = 128;
/// Columns of NVFP4's (vLLM 0.21 model_executor/layers/quantization/modelopt.py).
const NVFP4_BLOCK: u64 = 16;

/// A model that vLLM serves.
struct Served {
    /// As one of the GPUs has it, or why it does not.
    rank: Result<Architecture, String>,
    /// How many they are.
    ranks: u64,
    vocabulary: u64,
    share: Share,
    /// Tokens of a sequence.
    length: u64,
    group: u64,
}

impl Served {
    /// What is left of a card beside weights and the profiling run, in blocks of the cache. Where vLLM counts tokens, it is those of
    /// as many sequences of the length as run at once (`_report_kv_cache_config`).
    fn room(&self, stored: Stored, cache: Cache, card: &Gpu) -> Result<Room, String> {
        let rank = self.rank.as_ref().map_err(String::clone)?;
        if stored.is_of_llama_cpp() {
            return Err("how it runs llama.cpp's formats is not followed".to_owned());
        }
        if stored == Stored::Fp32 {
            return Err("keys and values are float32 too then, which is not followed".to_owned());
        }
        let Served { ranks, vocabulary, share, length, .. } = *self;
        match stored {
            Stored::Fp8 => ranks::in_blocks(rank, FP8_BLOCK, true)?,
            Stored::Gptq | Stored::Awq => ranks::in_blocks(rank, self.group, false)?,
            Stored::Nvfp4 => ranks::in_blocks(rank, NVFP4_BLOCK, false)?,
            // the kernels of MXFP4 pad
            Stored::Half
            | Stored::Int8
            | Stored::Nf4
            | Stored::Mxfp4
            | Stored::Fp32
            | Stored::Q8
            | Stored::Q6
            | Stored::Q5
            | Stored::Q4 => {}
        }
        let transient = Profiled { rank, ranks, vocabulary, stored, length, share }.transient(card)?;
        let blocks = Blocks::of(rank, cache)?;
        let weights = stored.bytes_in_groups(rank, self.group);
        let of_sequence = blocks.of_sequence(self.length, self.share.tokens).max(1);
        let within = [transient.most, transient.least].map(|transient| {
            let beside = Bytes(transient.0.saturating_add(profile::positions(rank)));
            blocks.within(self.share.bytes.saturating_sub(weights).saturating_sub(beside).0)
        });
        if within[1] < of_sequence {
            return Ok(Room::Stops);
        }
        let tokens = within.map(|blocks| {
            let tokens = u128::from(blocks) * u128::from(self.length) / u128::from(of_sequence);
            u64::try_from(tokens).unwrap_or(u64::MAX)
        });
        Ok(Room::Tokens { tokens, sequences: within.map(|blocks| blocks as f64 / of_sequence as f64) })
    }
}
