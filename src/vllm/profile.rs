//! What vLLM's profiling run takes beside the weights: the forward pass of a whole batch, or the sampler, whichever is more.
//!
//! Source: vLLM 0.21 v1/worker/gpu_model_runner.py `profile_run`, v1/worker/workspace.py, v1/sample/ops/topk_topp_triton.py,
//! model_executor/layers/fused_moe/experts/ (`workspace_shapes`), model_executor/layers/attention/mla_attention.py; and the tensors that were
//! alive at the peaks of the runs in data/vllm.tsv.

use super::Share;
use super::cache::BLOCK;
use crate::hardware::{Device, Gpu};
use crate::model::Architecture;
use crate::model::blocks::{Attention, Block, FeedForward, Latent, LatentQuery, Mixer, Mlp, Moe};
use crate::model::stored::Stored;
use crate::units::{Between, Bytes};

/// Latent attention opens no more tokens of its cache at once (`determine_chunked_prefill_workspace_size`).
const OPENED: u64 = 64 * 1024;
/// Of a workspace every part begins at such a multiple (v1/worker/workspace.py).
const ALIGNED: u64 = 256;
/// Kernels for experts in MXFP4 pad both of their sizes to at most such a multiple (fused_moe/oracle/mxfp4.py).
pub(super) const PADDED: u64 = 256;

/// What is profiled.
#[derive(Clone, Copy)]
pub(super) struct Profiled<'a> {
    /// The model as one GPU has it.
    pub rank: &'a Architecture,
    /// Among how many it is divided.
    pub ranks: u64,
    /// All of the vocabulary: every GPU is given all logits (`_gather_logits`).
    pub vocabulary: u64,
    /// How its weights lie.
    pub stored: Stored,
    /// Tokens of a sequence.
    pub length: u64,
    /// Its batch.
    pub share: Share,
}

impl Profiled<'_> {
    /// At least and at most, in bytes (docs/serving.md).
    ///
    /// # Errors
    /// What was not followed.
    pub(super) fn transient(self, card: &Gpu) -> Result<Between, String> {
        if !self.rank.towers.is_empty() {
            // gpu_model_runner.py `profile_run`: `embed_multimodal`, and `encoder_cache["tmp_…"]`
            return Err(
                "its profiling run embeds pictures of the largest size first, which was not followed"
                    .to_owned(),
            );
        }
        let Device { workspace, multiprocessors, .. } = Device::of(card);
        let (hidden, vocabulary) = (self.rank.hidden, self.vocabulary);
        let Share { sequences, returns_processed, .. } = self.share;
        // logits, a float32 copy of them, their softmax and what is drawn with; v1/sample/ops/topk_topp_sampler.py `forward_native` keeps their
        // logarithm beside the last two
        let drawn = if returns_processed { 2 + 4 * 4 } else { 2 + 3 * 4 };
        let experts = self.workspace_of_experts()?;
        let sampler = self
            .of_tokens(hidden)
            .saturating_add(sequences.saturating_mul(hidden).saturating_mul(4))
            .saturating_add(sequences.saturating_mul(vocabulary).saturating_mul(drawn))
            .saturating_add(multiprocessors.saturating_mul(vocabulary).saturating_mul(4));
        let rows = self.rank.embeddings.tokens.rows;
        let tried = rows
            .saturating_mul(hidden)
            .saturating_mul(2)
            .saturating_add(self.of_tokens(hidden.saturating_mul(2)));
        let mut least = sampler.saturating_add(experts[0]);
        let mut most = sampler.max(tried).saturating_add(experts[1]);
        for block in &self.rank.blocks {
            let [own_least, own_most] = self.forward(block, experts)?;
            (least, most) = (least.max(own_least), most.max(own_most));
        }
        let [least, most] = [least, most.max(least)].map(|bytes| Bytes(workspace.saturating_add(bytes)));
        Ok(Between { least, most })
    }

    /// So many elements of 16 bits for every token.
    const fn of_tokens(self, elements: u64) -> u64 {
        self.share.tokens.saturating_mul(elements).saturating_mul(2)
    }

    /// The forward pass while it is in such a layer: three tensors of the hidden size and what the layer makes, four in some models.
    /// Where several GPUs share it one more, which a reduction writes beside what it reads (device_communicators/pynccl.py).
    fn forward(self, block: &Block, [experts, at_most]: [u64; 2]) -> Result<[u64; 2], String> {
        let hidden = self.rank.hidden;
        let more = if self.ranks > 1 { 5 } else { 4 };
        let with = |count: u64, own: u64| self.of_tokens(hidden.saturating_mul(count).saturating_add(own));
        // the workspace of experts stays from the first layer that has any
        let [mut least, mut most] = match &block.ffn {
            FeedForward::Dense(mlp) => {
                let width = width(mlp);
                [with(3, width), with(more, width).saturating_add(at_most)]
            }
            FeedForward::Moe(moe) => {
                let shared = moe.shared.as_ref().map_or(0, width);
                let routed = shared.saturating_add(moe.experts.saturating_mul(2));
                [with(3, 0).saturating_add(experts), with(more, routed).saturating_add(at_most)]
            }
            FeedForward::None => return Err("its profiling run of such layers was not followed".to_owned()),
        };
        match &block.mixer {
            Mixer::Attention(attention) if at_most > 0 => {
                let own = attended(attention);
                least = least.max(with(3, own).saturating_add(experts));
                most = most.max(with(more, own).saturating_add(at_most));
            }
            Mixer::Attention(_) => {}
            Mixer::Latent(latent) => {
                let [few, many] = [self.length, self.rank.max_positions.unwrap_or(u64::MAX).max(self.length)]
                    .map(|length| self.opened(latent, length));
                let [own, more_of] = projected(latent);
                least = least.max(with(2, own).saturating_add(few).saturating_add(experts));
                most = most.max(with(more, more_of).saturating_add(many).saturating_add(at_most));
            }
            Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
            | Mixer::None => {
                return Err("its profiling run of such layers was not followed".to_owned());
            }
        }
        Ok([least, most])
    }

    /// The two parts that the kernels of experts share among all layers, at least and at most: what the first product makes, which is
    /// what the second makes too, and what the activation makes, each for every expert of a token. Triton's (`TritonExperts`) and
    /// Marlin's (`MarlinExperts`) are of the same sizes.
    fn workspace_of_experts(self) -> Result<[u64; 2], String> {
        let mut largest = [0, 0];
        for block in &self.rank.blocks {
            let FeedForward::Moe(moe) = &block.ffn else { continue };
            if matches!(self.stored, Stored::Int8 | Stored::Nf4) {
                return Err("how it opens experts that bitsandbytes quantised is not followed".to_owned());
            }
            if moe.latent.is_some() {
                return Err("its profiling run of experts in a smaller space was not followed".to_owned());
            }
            let plain = self.workspace(moe, [moe.expert_width, self.rank.hidden]);
            let most = match self.stored {
                Stored::Mxfp4 => {
                    let padded = |size: u64| size.div_ceil(PADDED).saturating_mul(PADDED);
                    self.workspace(moe, [padded(moe.expert_width), padded(self.rank.hidden)])
                }
                // what comes in and the activation's output in FP8 too, with a float32 for 128 of either
                Stored::Fp8 => {
                    let elements =
                        moe.top_k.saturating_mul(moe.expert_width).saturating_add(self.rank.hidden);
                    plain.saturating_add(self.of_tokens(elements))
                }
                Stored::Half
                | Stored::Gptq
                | Stored::Awq
                | Stored::Nvfp4
                | Stored::Fp32
                | Stored::Int8
                | Stored::Nf4
                | Stored::Q8
                | Stored::Q6
                | Stored::Q5
                | Stored::Q4 => plain,
            };
            largest = [largest[0].max(plain), largest[1].max(most)];
        }
        Ok(largest)
    }

    fn workspace(self, moe: &Moe, [width, hidden]: [u64; 2]) -> u64 {
        let first = if moe.gated { width.saturating_mul(2) } else { width };
        let part = |elements: u64| {
            let bytes = self.of_tokens(moe.top_k.saturating_mul(elements));
            bytes.div_ceil(ALIGNED).saturating_mul(ALIGNED)
        };
        part(width.max(hidden)).saturating_add(part(first.max(hidden)))
    }

    /// Keys and values of as many tokens of the cache as latent attention opens at once: the profiling run allocates them.
    fn opened(self, latent: &Latent, length: u64) -> u64 {
        let page = self.share.sequences.saturating_mul(BLOCK);
        let tokens = length.saturating_mul(8).max(page.saturating_mul(4)).min(OPENED).max(page);
        let head = latent.nope_dim.saturating_add(latent.value_dim);
        tokens.saturating_mul(latent.heads).saturating_mul(head).saturating_mul(2)
    }
}

/// What attention makes of a token until its output is projected: queries, keys and values, those that are normed, and what it returns.
fn attended(attention: &Attention) -> u64 {
    let queries = attention.heads.saturating_mul(attention.head_dim);
    let keys = attention.kv_heads.saturating_mul(attention.head_dim);
    let normed = if attention.qk_norm.is_some() { queries.saturating_add(keys) } else { 0 };
    queries.saturating_mul(2).saturating_add(keys.saturating_mul(2)).saturating_add(normed)
}

/// The same of latent attention, at least and at most: queries, the vector of keys and values and its normed part, the rotated part of
/// the key, and what it returns; of a low-rank query the vector too, normed and not.
fn projected(latent: &Latent) -> [u64; 2] {
    let head = latent.nope_dim.saturating_add(latent.rope_dim).saturating_add(latent.value_dim);
    let vector = latent.kv_rank.saturating_add(latent.rope_dim).saturating_mul(2);
    let own = latent.heads.saturating_mul(head).saturating_add(vector);
    let query = match &latent.query {
        LatentQuery::Full(_) => 0,
        LatentQuery::LowRank { a, .. } => a.output,
    };
    [own.saturating_add(query), own.saturating_add(query.saturating_mul(2))]
}

/// How wide the tensors of a feed-forward network are together, in elements a token.
fn width(mlp: &Mlp) -> u64 {
    match mlp {
        Mlp::Gated { down, .. } | Mlp::GatedFused { down, .. } => down.input.saturating_mul(3),
        Mlp::Plain { down, .. } => down.input.saturating_mul(2),
    }
}

/// Bytes of vLLM's table of sines and cosines, for all of the model's positions (model_executor/layers/rotary_embedding/base.py).
pub(super) fn positions(architecture: &Architecture) -> u64 {
    let width = |block: &Block| match &block.mixer {
        Mixer::Attention(attention) => attention.rotary.width(attention.head_dim),
        Mixer::Latent(latent) => Some(latent.rope_dim),
        Mixer::Cross(_)
        | Mixer::StateSpace(_)
        | Mixer::DeltaNet(_)
        | Mixer::ShortConv(_)
        | Mixer::Module(_)
        | Mixer::None => None,
    };
    let positions = architecture.max_positions.unwrap_or(0);
    let width = architecture.blocks.iter().find_map(width);
    width.map_or(0, |width| positions.saturating_mul(width).saturating_mul(2))
}
