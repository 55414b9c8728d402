//! What vLLM asks of a card: its share, and what its profiling run has.
//!
//! Source: vLLM 0.21 config/cache.py, engine/arg_utils.py `get_batch_defaults`.

use crate::issue::Issue;
use crate::model::blocks::FeedForward;
use crate::scenario::{Scenario, ServedCache, Serving};
use crate::units::{Bytes, grouped};
use crate::vllm::{Cache, Share};

/// vLLM's `gpu_memory_utilization` where nothing is said, in percent (config/cache.py).
pub const UTILISATION: u64 = 92;

impl Share {
    /// Of a scenario's card, with the defaults of `vllm serve` where nothing is said.
    ///
    /// # Errors
    /// An [`Issue`] where there is no such card.
    pub fn of(scenario: &Scenario) -> Result<Share, Issue> {
        let card = scenario.card()?;
        let percent = if scenario.reserve.vllm == 0 { UTILISATION } else { scenario.reserve.vllm };
        let bytes = u128::from(card.memory.0) * u128::from(percent.min(100)) / 100;
        // a larger batch slows an A100 down (vLLM's PR 17885)
        let is_large = card.memory >= Bytes::gib(70.0) && !card.name.to_lowercase().contains("a100");
        let (own_tokens, own_sequences) = if is_large { (8192, 1024) } else { (2048, 256) };
        let bytes = Bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
        let Serving { batched_tokens, sequences, .. } = scenario.serving;
        let own_tokens = (batched_tokens == 0).then_some(own_tokens);
        let tokens = own_tokens.unwrap_or(batched_tokens);
        let sequences = if sequences == 0 { own_sequences.min(tokens) } else { sequences };
        let share = Share { percent, bytes, tokens, sequences, own_tokens, returns_processed: false };
        Ok(share.at(length(scenario)))
    }
}

/// Tokens of a sequence: the prompt's and the new ones (`max_model_len`).
pub(crate) fn length(scenario: &Scenario) -> u64 {
    scenario.sequence.saturating_add(scenario.generation.new_tokens)
}

/// In what the scenario has vLLM keep keys and values.
pub(crate) fn cache(scenario: &Scenario) -> Cache {
    match scenario.serving.cache {
        ServedCache::Auto => Cache::AsComputed,
        ServedCache::Fp8 => Cache::Fp8,
    }
}

/// How its profiling run comes to its tokens and sequences, and how keys and values are kept, in words; nothing where all is vLLM's own
/// choice.
pub fn told(scenario: &Scenario) -> Option<String> {
    let Serving { batched_tokens, sequences, cache } = scenario.serving;
    let given = [
        (batched_tokens > 0).then(|| format!("--max-num-batched-tokens {batched_tokens}")),
        (sequences > 0).then(|| format!("--max-num-seqs {sequences}")),
        (cache != ServedCache::Auto).then(|| format!("--kv-cache-dtype {}", cache.slug())),
    ];
    let given: Vec<String> = given.into_iter().flatten().collect();
    let starts = match cache {
        ServedCache::Auto => "",
        ServedCache::Fp8 => " Whether it starts is answered with keys and values in FP8.",
    };
    (!given.is_empty()).then(|| format!("It is told {}.{starts}", given.join(", ")))
}

/// What vLLM asks of the card before it starts, in a sentence (v1/core/kv_cache_utils.py `_check_enough_kv_cache_memory`).
pub fn least_room(scenario: &Scenario) -> String {
    let context = scenario.architecture().ok().and_then(|architecture| architecture.max_positions);
    let context = context.map_or_else(String::new, |context| {
        format!(
            ", the model's {} tokens where nothing is said: where not, the table says up to how many it does",
            grouped(context)
        )
    });
    format!("It starts only where one sequence of --max-model-len has room{context}.")
}

/// Among how many GPUs vLLM divides the model: all of the scenario's.
pub(super) fn ranks(scenario: &Scenario) -> u64 {
    if scenario.cluster.is_many() { scenario.cluster.gpus } else { 1 }
}

/// How the scenario's GPUs are used where there are several, in a sentence.
pub fn among(scenario: &Scenario) -> Option<String> {
    let (ranks, words) = (ranks(scenario), grouped(ranks(scenario)));
    scenario.cluster.is_many().then(|| {
        format!("vLLM divides the model among the {words} GPUs (--tensor-parallel-size {ranks}): its tokens are those of one, and all of them keep the same ones; the weights are the whole model's.")
    })
}

/// Whose kernels the figures are of, in a sentence, where a mixture of experts meets a card on which vLLM may take others: from compute
/// capability 9.0 on which come first depends on the format (fused_moe/oracle/), and they have workspaces of their own.
pub fn kernels(scenario: &Scenario) -> Option<String> {
    let architecture = scenario.architecture().ok()?;
    let is_mixture = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    let capability = scenario.card().ok()?.capability?;
    (is_mixture && capability.major >= 9).then(|| {
        "Experts are counted in Triton's or Marlin's kernels (--moe-backend); by format vLLM may prefer others on such a card (FlashInfer's, \
         DeepGEMM's, OpenAI's), whose workspaces are not followed."
            .to_owned()
    })
}
