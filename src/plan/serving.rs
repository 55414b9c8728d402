//! Serving a model: its weights in every format, and what vLLM leaves to keys and values beside them.
//!
//! Source of vLLM's budget: vLLM 0.21 v1/worker/gpu_worker.py `determine_available_memory`, v1/worker/gpu_model_runner.py
//! `profile_run`, v1/core/kv_cache_utils.py, engine/arg_utils.py `get_batch_defaults`.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::contexts::generating;
use super::verdict::Verdict;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Mlp};
use crate::model::stored::Stored;
use crate::scenario::colocated::keys_and_values;
use crate::scenario::{Method, Precision, Scenario, WeightFormat};
use crate::step::workspace_and_multiprocessors;
use crate::units::{Bytes, grouped};

/// Tokens of a block of vLLM's KV cache (`block_size` on CUDA).
pub const BLOCK: u64 = 16;

/// vLLM's `gpu_memory_utilization` where nothing is said, in percent (config/cache.py).
pub const UTILISATION: u64 = 92;

/// A range of bytes, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Between {
    /// The least.
    pub least: Bytes,
    /// The most.
    pub most: Bytes,
}

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
}

/// What vLLM asks of the card before it starts, in a sentence (v1/core/kv_cache_utils.py `check_enough_kv_cache_memory`).
pub fn least_room(scenario: &Scenario) -> String {
    let context = scenario.architecture().ok().and_then(|architecture| architecture.max_positions);
    let context = context.map_or_else(String::new, |context| {
        format!(", the model's {} tokens where nothing is said", grouped(context))
    });
    format!("It starts only where one sequence of --max-model-len has room{context}.")
}

impl Share {
    /// Of a scenario's card, with the defaults of `vllm serve`.
    ///
    /// # Errors
    /// An [`Issue`] where there is no such card.
    pub fn of(scenario: &Scenario) -> Result<Share, Issue> {
        let card = scenario.card()?;
        let percent = if scenario.reserve.vllm == 0 { UTILISATION } else { scenario.reserve.vllm };
        let bytes = u128::from(card.memory.0) * u128::from(percent.min(100)) / 100;
        // a larger batch slows an A100 down (vLLM's PR 17885)
        let is_large = card.memory >= Bytes::gib(70.0) && !card.name.to_lowercase().contains("a100");
        let (tokens, sequences) = if is_large { (8192, 1024) } else { (2048, 256) };
        Ok(Share { percent, bytes: Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)), tokens, sequences })
    }
}

/// The weights of the scenario's model in every format. A scenario that trains is asked as what it would be if it generated.
///
/// # Errors
/// An [`Issue`] where model or card are not known.
pub fn serving(base: &Scenario) -> Result<Vec<ServingRow>, Issue> {
    let base = generating(base);
    let architecture = base.architecture()?;
    let card = base.card()?;
    let share = Share::of(&base)?;
    let half = followed(&base, Stored::Half);
    let transient = transient(&architecture, &card, share);
    let length = base.sequence.saturating_add(base.generation.new_tokens);
    let group = u64::try_from(base.quantization.group.size()).unwrap_or(0);
    let rows = Stored::ALL.map(|stored| {
        let weights = stored.bytes_in_groups(&architecture, group);
        let [room, fp8] = [Cache::AsComputed, Cache::Fp8]
            .map(|cache| room(&architecture, (share, stored, cache), weights, &transient, length));
        ServingRow {
            stored,
            group,
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

/// What vLLM's profiling run takes beside the weights: the forward pass of a whole batch, or the sampler, whichever is more.
///
/// Measured of vLLM 0.21 over a null device (docs/serving.md): at its peak a dense model has the gate's and the up projection's
/// output and their product, and three tensors of the hidden size, four in some of its models. Where Inductor compiles it for the
/// first time it tries its kernels out on copies of what they read: of the embedding table too, and two hidden states. The sampler has logits in 16 bits and three float32 tensors of their shape, the scratch of its top-k kernel,
/// and the last hidden states.
fn transient(architecture: &Architecture, card: &Gpu, share: Share) -> Result<Between, String> {
    if !architecture.towers.is_empty() {
        // gpu_model_runner.py `profile_run`: `embed_multimodal`, and `encoder_cache["tmp_…"]`
        return Err(
            "its profiling run embeds pictures of the largest size first, which was not followed".to_owned()
        );
    }
    let width = width(architecture)?;
    let (workspace, multiprocessors) = workspace_and_multiprocessors(card);
    let Share { tokens, sequences, .. } = share;
    let of_tokens = |count: u64| tokens.saturating_mul(count).saturating_mul(2);
    let (hidden, vocabulary) = (architecture.hidden, architecture.vocab);
    let sampler = of_tokens(hidden)
        .saturating_add(sequences.saturating_mul(hidden).saturating_mul(4))
        .saturating_add(sequences.saturating_mul(vocabulary).saturating_mul(2 + 3 * 4))
        .saturating_add(multiprocessors.saturating_mul(vocabulary).saturating_mul(4));
    let most = |forward: u64| Bytes(workspace.saturating_add(sampler.max(forward)));
    let least = of_tokens(hidden.saturating_mul(3).saturating_add(width));
    let table = vocabulary
        .saturating_mul(hidden)
        .saturating_mul(2)
        .saturating_add(of_tokens(hidden.saturating_mul(2)));
    Ok(Between { least: most(least), most: most(table.max(least.saturating_add(of_tokens(hidden)))) })
}

/// How wide the tensors of a layer's feed-forward network are together, in elements a token.
fn width(architecture: &Architecture) -> Result<u64, String> {
    let mut widest = 0;
    for block in &architecture.blocks {
        let own = match &block.ffn {
            FeedForward::Dense(Mlp::Gated { down, .. } | Mlp::GatedFused { down, .. }) => {
                down.input.saturating_mul(3)
            }
            FeedForward::Dense(Mlp::Plain { down, .. }) => down.input.saturating_mul(2),
            FeedForward::Moe(_) | FeedForward::None => {
                return Err("its profiling run of such layers was not followed".to_owned());
            }
        };
        widest = widest.max(own);
    }
    Ok(widest)
}

/// Bytes of vLLM's table of sines and cosines, for all of the model's positions (model_executor/layers/rotary_embedding/base.py).
fn positions(architecture: &Architecture) -> u64 {
    let width = architecture
        .blocks
        .iter()
        .filter_map(|block| block.mixer.attention())
        .find_map(|attention| attention.rotary.width(attention.head_dim));
    let positions = architecture.max_positions.unwrap_or(0);
    width.map_or(0, |width| positions.saturating_mul(width).saturating_mul(2))
}

/// How vLLM keeps keys and values (`kv_cache_dtype`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// In the 16 bits that are computed in.
    AsComputed,
    /// A byte each (`AttentionSpec.real_page_size_bytes`); their scales are a number for each layer.
    Fp8,
}

fn room(
    architecture: &Architecture,
    (share, stored, cache): (Share, Stored, Cache),
    weights: Bytes,
    transient: &Result<Between, String>,
    length: u64,
) -> Room {
    let transient = match transient {
        Ok(transient) => transient,
        Err(reason) => return Room::Unknown(reason.clone()),
    };
    if stored.is_of_llama_cpp() {
        return Room::Unknown("how it runs llama.cpp's formats is not followed".to_owned());
    }
    if stored == Stored::Fp32 {
        return Room::Unknown("keys and values are float32 too then, which is not followed".to_owned());
    }
    let Some(token) = keys_and_values(architecture) else {
        return Room::Unknown("its groups of layers with other caches are not followed".to_owned());
    };
    let token = if cache == Cache::Fp8 { token / 2 } else { token };
    let tokens = [transient.most, transient.least].map(|transient| {
        let beside = Bytes(transient.0.saturating_add(positions(architecture)));
        let rest = share.bytes.saturating_sub(weights).saturating_sub(beside);
        (rest.0 / token.saturating_mul(BLOCK).max(1)).saturating_mul(BLOCK)
    });
    if tokens[1] < length {
        return Room::Stops;
    }
    Room::Tokens { tokens, sequences: tokens.map(|tokens| tokens as f64 / length.max(1) as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;
    use crate::scenario::{GpuChoice, GroupSize, ModelChoice, Task};

    /// The profiling runs of vLLM 0.21 over a null device of compute capability 8.0 (tools/vllm_budget.py): tokens, sequences and
    /// `torch_peak_increase`; the last four were compiled by Inductor, the others ran with `enforce_eager`.
    const RUNS: [(&str, u64, u64, u64); 15] = [
        ("meta-llama/Llama-3.2-1B", 8192, 16, 511_836_160),
        ("meta-llama/Llama-3.2-1B", 2048, 256, 536_455_168),
        ("meta-llama/Llama-3.2-1B", 16_384, 1024, 1_980_250_112),
        ("meta-llama/Meta-Llama-3-8B", 8192, 256, 914_489_344),
        ("Qwen/Qwen2.5-7B", 4096, 64, 592_576_512),
        ("Qwen/Qwen3-8B", 2048, 256, 639_689_728),
        ("mistralai/Mistral-7B-Instruct-v0.3", 8192, 32, 914_489_344),
        ("Qwen/Qwen3-8B", 8192, 32, 880_934_912),
        ("Qwen/Qwen2.5-1.5B", 8192, 32, 550_633_472),
        ("microsoft/Phi-3-mini-4k-instruct", 4096, 32, 285_343_744),
        ("meta-llama/Llama-2-13b-hf", 2048, 64, 241_303_552),
        ("meta-llama/Llama-3.2-1B", 8192, 16, 593_530_880),
        ("Qwen/Qwen3-8B", 8192, 32, 1_379_966_976),
        ("mistralai/Mistral-7B-Instruct-v0.3", 8192, 32, 956_432_384),
        ("meta-llama/Llama-2-13b-hf", 2048, 64, 369_641_472),
    ];

    #[test]
    fn profiling_runs_lie_in_the_range() {
        let card = gpu("a100-sxm-80gb").unwrap();
        for (model, tokens, sequences, measured) in RUNS {
            let architecture = ModelChoice::Catalogue(model.into()).architecture().unwrap();
            let share = Share { percent: 92, bytes: Bytes::gib(80.0), tokens, sequences };
            let Between { least, most } = transient(&architecture, &card, share).unwrap();
            let (least, most) = (least.0 as f64 * 0.998, most.0 as f64 * 1.002);
            let said = format!("{model} {tokens} {sequences}: {measured} in {least:.0} to {most:.0}");
            assert!((least..=most).contains(&(measured as f64)), "{said}");
        }
    }

    fn rows(model: &str, card: Bytes) -> Vec<ServingRow> {
        let scenario = Scenario {
            task: Task::Generate,
            model: ModelChoice::Catalogue(model.into()),
            method: Method::Full,
            precision: Precision::Bf16,
            sequence: 2048,
            gpu: GpuChoice::Custom(card),
            ..Scenario::default()
        };
        serving(&scenario).unwrap()
    }

    /// Qwen3-8B on 24 GiB: vLLM made 2,828 blocks in one measured run.
    #[test]
    fn what_is_left_are_blocks() {
        let rows = rows("Qwen/Qwen3-8B", Bytes::gib(24.0));
        let half = rows.iter().find(|row| row.stored == Stored::Half).unwrap();
        let Room::Tokens { tokens: [least, most], .. } = half.room else { panic!("{:?}", half.room) };
        let measured = 2_828 * BLOCK;
        assert!(least <= measured && measured <= most + most / 1000, "{least} {measured} {most}");
    }

    /// Keys and values of a byte each: twice as many tokens, to a block.
    #[test]
    fn fp8_holds_twice_as_many() {
        let mut compared = 0;
        for row in rows("Qwen/Qwen3-8B", Bytes::gib(24.0)) {
            let (Room::Tokens { tokens, .. }, Room::Tokens { tokens: more, .. }) = (&row.room, &row.fp8)
            else {
                continue;
            };
            for (own, more) in tokens.iter().zip(more) {
                assert!((2 * own..=2 * own + BLOCK).contains(more), "{row:?}");
                compared += 1;
            }
        }
        assert!(compared > 0);
    }

    /// GPTQ's and AWQ's groups are those that are chosen.
    #[test]
    fn groups_are_the_scenarios() {
        let mut scenario =
            Scenario { model: ModelChoice::Catalogue("Qwen/Qwen3-8B".into()), ..Scenario::default() };
        let weights = |scenario: &Scenario| {
            let rows = serving(scenario).unwrap();
            let row = rows.into_iter().find(|row| row.stored == Stored::Gptq).unwrap();
            (row.label(), row.weights)
        };
        let plain = weights(&scenario);
        scenario.quantization.group = GroupSize::Of32;
        let finer = weights(&scenario);
        assert_eq!((&*plain.0, &*finer.0), ("GPTQ (4 bits, 128)", "GPTQ (4 bits, 32)"));
        // 6.95 billion weights of linear layers, a scale and a zero of 2.5 bytes for each group
        assert_eq!(
            (finer.1.0 - plain.1.0) / 1_000_000,
            (6_945_767_424_u64 / 32 - 6_945_767_424 / 128) * 5 / 2 / 1_000_000
        );
    }

    #[test]
    fn what_was_not_followed_is_said() {
        let small = rows("Qwen/Qwen3-8B", Bytes::gib(8.0));
        assert!(small.iter().filter(|row| row.room == Room::Stops).count() > 2, "{small:?}");
        // a model that sees embeds pictures first
        for model in ["Qwen/Qwen3-30B-A3B", "google/gemma-2-9b", "Qwen/Qwen2.5-VL-7B-Instruct"] {
            let rows = rows(model, Bytes::gib(80.0));
            for row in &rows {
                assert!([&row.room, &row.fp8].iter().all(|room| matches!(room, Room::Unknown(_))), "{model}");
            }
            assert_eq!(unanswered(&rows).iter().map(|(_, formats)| formats.len()).sum::<usize>(), rows.len());
            assert!(rows.iter().all(|row| row.weights > Bytes::ZERO));
        }
    }
}
