//! vLLM's budget on a card: of its share what the weights take, what the profiling run takes beside them, and how many blocks of keys
//! and values are left.
//!
//! Source: vLLM 0.21 v1/worker/gpu_worker.py `determine_available_memory`.

mod cache;
mod pictures;
mod profile;
mod ranks;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::hardware::Gpu;
use crate::model::Architecture;
use crate::model::stored::Stored;
use crate::units::{Between, Bytes, grouped};

pub(crate) use cache::Cache;

use cache::Blocks;
use profile::{PADDED, Profiled};

/// What vLLM asks of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// `gpu_memory_utilization`, in percent.
    pub percent: u64,
    /// Bytes of that.
    pub bytes: Bytes,
    /// Tokens of its profiling run (`max_num_batched_tokens`).
    pub tokens: u64,
    /// Sequences that it draws a next token for (`max_num_seqs`).
    pub sequences: u64,
    /// Its own choice of these tokens where it is told none: they are no more than all sequences have together.
    pub own_tokens: Option<u64>,
    /// Whether it returns log-probabilities as they were drawn from (`logprobs_mode="processed_logprobs"`).
    pub returns_processed: bool,
}

impl Share {
    /// Where a sequence has so many tokens at most (engine/arg_utils.py `_set_default_max_num_seqs_and_batched_tokens_args`).
    #[must_use]
    pub fn at(self, length: u64) -> Share {
        let all = self.sequences.saturating_mul(length);
        Share { tokens: self.own_tokens.map_or(self.tokens, |own| own.min(all)), ..self }
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

/// Whether vLLM starts at the model's own context, where nothing is said of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Start {
    /// The model's positions.
    pub context: u64,
    /// Whether one sequence of that length has room, whatever the profiling run takes, or only where that takes least.
    pub starts: [bool; 2],
    /// The longest `--max-model-len` with which it starts whatever the profiling run takes; 0 where none does.
    pub longest: u64,
}

impl Start {
    /// In words: `yes`, `no, to 45,936`.
    pub fn words(&self) -> String {
        let to = match self.longest {
            0 => String::new(),
            longest => format!(", to {}", grouped(longest)),
        };
        match self.starts {
            [true, _] => "yes".to_owned(),
            [false, true] => format!("perhaps{to}"),
            [false, false] => format!("no{to}"),
        }
    }

    /// The same in one word, for programs.
    pub const fn slug(&self) -> &'static str {
        match self.starts {
            [true, _] => "yes",
            [false, true] => "perhaps",
            [false, false] => "no",
        }
    }
}

/// Rows and columns of FP8 weights that share a scale.
const FP8_BLOCK: u64 = 128;
/// Columns of NVFP4's (vLLM 0.21 model_executor/layers/quantization/modelopt.py).
const NVFP4_BLOCK: u64 = 16;

/// A model that vLLM serves.
pub(crate) struct Served {
    /// As one of the GPUs has it, or why it does not.
    rank: Result<Architecture, String>,
    /// How many they are.
    ranks: u64,
    vocabulary: u64,
    share: Share,
    /// Tokens of a sequence.
    length: u64,
    /// How many weights of GPTQ's and AWQ's share a scale.
    group: u64,
}

/// What of a model vLLM is asked to serve.
pub(crate) struct Asked {
    /// Tokens of a sequence.
    pub length: u64,
    /// How many weights of GPTQ's and AWQ's share a scale.
    pub group: u64,
}

/// What becomes of vLLM's share.
pub(crate) struct Budget {
    /// Of one GPU's weights.
    pub weights: Bytes,
    /// Beside them: the profiling run, and the table of positions.
    pub beside: Between,
    /// What is left, at least and at most.
    pub left: Between,
    blocks: Blocks,
    /// Blocks that one sequence takes.
    of_sequence: u64,
    length: u64,
}

impl Served {
    /// By so many GPUs that share it, each with such a share of its card.
    pub fn new(architecture: &Architecture, ranks: u64, share: Share, asked: &Asked) -> Served {
        let Asked { length, group } = *asked;
        let rank = ranks::rank(architecture, ranks);
        Served { rank, ranks, vocabulary: architecture.vocab, share, length, group }
    }

    /// What is left of a card beside weights and the profiling run.
    ///
    /// # Errors
    /// What vLLM refuses, or was not followed.
    pub fn budget(&self, stored: Stored, cache: Cache, card: &Gpu) -> Result<Budget, String> {
        self.budget_of(stored, cache, (card, self.length))
    }

    /// Whether it starts where a sequence may be as long as the model's context, and the longest with which it does (v1/core/kv_cache_utils.py
    /// `_check_enough_kv_cache_memory`, `estimate_max_model_len`); none where its budget was not followed.
    pub fn start(&self, stored: Stored, cache: Cache, card: &Gpu, context: u64) -> Option<Start> {
        let whether = |length: u64| {
            let budget = self.budget_of(stored, cache, (card, length)).ok()?;
            Some([budget.starts(), budget.room() != Room::Stops])
        };
        let starts = whether(context)?;
        let [mut longest, mut beyond] = [0, context.saturating_add(1)];
        while beyond - longest > 1 {
            let between = longest.midpoint(beyond);
            match whether(between)? {
                [true, _] => longest = between,
                [false, _] => beyond = between,
            }
        }
        Some(Start { context, starts, longest })
    }

    /// The same for sequences of so many tokens.
    fn budget_of(&self, stored: Stored, cache: Cache, (card, length): (&Gpu, u64)) -> Result<Budget, String> {
        let rank = self.rank.as_ref().map_err(String::clone)?;
        if stored.is_of_llama_cpp() {
            return Err("how it runs llama.cpp's formats is not followed".to_owned());
        }
        if stored == Stored::Fp32 {
            return Err("keys and values are float32 too then, which is not followed".to_owned());
        }
        let Served { ranks, vocabulary, .. } = *self;
        let share = self.share.at(length);
        if share.sequences > share.tokens {
            return Err(format!(
                "it stops: it is to draw for {} sequences at once (max_num_seqs), and computes {} tokens at a time (max_num_batched_tokens)",
                grouped(share.sequences),
                grouped(share.tokens)
            ));
        }
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
        let positions = Bytes(profile::positions(rank));
        let beside = Between { least: transient.least + positions, most: transient.most + positions };
        let blocks = Blocks::of(rank, cache)?;
        let weights = stored.bytes_in_groups(rank, self.group);
        // what it pads when it loads them is no part of what is published
        let beside = Between { most: beside.most + stored.padding(rank, PADDED), ..beside };
        let rest = share.bytes.saturating_sub(weights);
        let left =
            Between { least: rest.saturating_sub(beside.most), most: rest.saturating_sub(beside.least) };
        let of_sequence = blocks.of_sequence(length, share.tokens).max(1);
        Ok(Budget { weights, beside, left, blocks, of_sequence, length })
    }
}

impl Budget {
    /// Where vLLM counts tokens, it is those of as many sequences of the length as run at once (`_report_kv_cache_config`).
    pub fn room(&self) -> Room {
        let within = [self.left.least, self.left.most].map(|left| self.blocks.within(left.0));
        if within[1] < self.of_sequence {
            return Room::Stops;
        }
        let tokens = within.map(|blocks| {
            let tokens = u128::from(blocks) * u128::from(self.length) / u128::from(self.of_sequence);
            u64::try_from(tokens).unwrap_or(u64::MAX)
        });
        Room::Tokens { tokens, sequences: within.map(|blocks| blocks as f64 / self.of_sequence as f64) }
    }

    /// Whether one sequence has room whatever its profiling run takes, without which vLLM does not start
    /// (v1/core/kv_cache_utils.py `_check_enough_kv_cache_memory`).
    pub fn starts(&self) -> bool {
        self.blocks.within(self.left.least.0) >= self.of_sequence
    }
}
