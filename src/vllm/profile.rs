//! What vLLM's profiling run takes beside the weights: the forward pass of a whole batch, or the sampler, whichever is more.
//!
//! Source: vLLM 0.21 v1/worker/gpu_model_runner.py `profile_run`, v1/worker/workspace.py, v1/sample/ops/topk_topp_triton.py,
//! model_executor/layers/fused_moe/experts/ (`workspace_shapes`), model_executor/layers/attention/mla_attention.py; and the tensors that were
//! alive at the peaks of the runs in data/vllm.tsv.

use super::Share;
use super::cache::BLOCK;
use super::pictures::{Shown, shown};
use crate::hardware::{Device, Gpu};
use crate::model::blocks::{Attention, Block, FeedForward, Latent, LatentQuery, Mixer, Mlp, Moe, Scan};
use crate::model::stored::Stored;
use crate::model::{Architecture, MROPE_POSITIONS, RotaryTables};
use crate::units::{Between, Bytes};

/// Latent attention opens no more tokens of its cache at once (`determine_chunked_prefill_workspace_size`).
const OPENED: u64 = 64 * 1024;
/// What is cleared before each kernel that Triton's autotuner tries (triton/backends/nvidia/driver.py `get_empty_cache_for_benchmark`), as it
/// does with those of linear attention in the profiling run (gdn_linear_attn.py `_warmup_prefill_kernels`).
const CLEARED: u64 = 256 << 20;
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
        let text = self.of_text(card)?;
        let Some(tower) = self.rank.towers.first() else { return Ok(text) };
        let Some(vision) = &tower.vision else {
            return Err(
                "its profiling run embeds pictures first, and how its tower does was not followed".to_owned()
            );
        };
        if self.ranks > 1 {
            return Err("how it divides a tower among GPUs is not followed".to_owned());
        }
        let Shown { given, made, tower } = shown(vision, self.share, self.length)?;
        let workspace = Device::of(card).workspace;
        // the tower first, then the language model beside the embeddings
        let with = |text: Bytes| {
            let alive = tower.saturating_add(workspace).max(made.saturating_add(text.0));
            Bytes(given.saturating_add(alive))
        };
        Ok(Between { least: with(text.least), most: with(text.most) })
    }

    /// The language model's.
    fn of_text(self, card: &Gpu) -> Result<Between, String> {
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
        // the embeddings that a model that sees is given lie in a buffer that is there before (`inputs_embeds`)
        let few = if self.rank.towers.is_empty() { 3 } else { 2 };
        let with = |count: u64, own: u64| self.of_tokens(hidden.saturating_mul(count).saturating_add(own));
        // the workspace of experts stays from the first layer that has any
        let [mut least, mut most] = match &block.ffn {
            FeedForward::Dense(mlp) => {
                let width = width(mlp);
                [with(few, width), with(more, width).saturating_add(at_most)]
            }
            FeedForward::Moe(moe) => {
                let shared = moe.shared.as_ref().map_or(0, width);
                let routed = shared.saturating_add(moe.experts.saturating_mul(2));
                [with(few, 0).saturating_add(experts), with(more, routed).saturating_add(at_most)]
            }
            FeedForward::None => [with(2, 0).saturating_add(experts), with(more, 0).saturating_add(at_most)],
        };
        match &block.mixer {
            Mixer::Attention(attention) if at_most > 0 => {
                let own = attended(attention);
                least = least.max(with(few, own).saturating_add(experts));
                most = most.max(with(more, own).saturating_add(at_most));
            }
            Mixer::Attention(_) => {}
            Mixer::Latent(latent) => {
                let [some, many] =
                    [self.length, self.rank.max_positions.unwrap_or(u64::MAX).max(self.length)]
                        .map(|length| self.opened(latent, length));
                let [own, more_of] = projected(latent);
                least = least.max(with(2, own).saturating_add(some).saturating_add(experts));
                most = most.max(with(more, more_of).saturating_add(many).saturating_add(at_most));
            }
            Mixer::StateSpace(_) | Mixer::DeltaNet(_) | Mixer::ShortConv(_) => {
                let [own, more_of] = recurrent(&block.mixer);
                let tried = if matches!(block.mixer, Mixer::DeltaNet(_)) { CLEARED } else { 0 };
                least = least.max(with(2, own).saturating_add(experts));
                most = most.max(with(more, more_of).saturating_add(tried).saturating_add(at_most));
            }
            Mixer::None => {}
            Mixer::Cross(_) | Mixer::Module(_) => {
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

/// The same of a recurrent layer, at least and at most. A profiling run has no states: of the scan it makes what goes in and what comes out
/// (model_executor/layers/mamba/mamba_mixer.py, mamba_mixer2.py, short_conv.py, gdn_linear_attn.py).
fn recurrent(mixer: &Mixer) -> [u64; 2] {
    match mixer {
        Mixer::StateSpace(space) => {
            // what is projected, the scan's output, and what goes through the convolution turned and turned back
            let channels = space.conv.channels;
            let own = space.input.output.saturating_add(space.inner).saturating_add(channels);
            match space.scan {
                // a norm of groups is computed in Python, of the gate in float32
                Scan::Mamba2 { groups: 2.., .. } => {
                    let normed = space.input.output.saturating_add(space.inner.saturating_mul(5));
                    [normed, normed.max(own.saturating_add(channels))]
                }
                Scan::Mamba { .. } | Scan::Mamba2 { .. } => [own, own.saturating_add(channels)],
            }
        }
        Mixer::DeltaNet(net) => {
            let inputs = net.inputs.iter().map(|linear| linear.output);
            let values = net.value_heads.saturating_mul(net.value_dim);
            let own = inputs.fold(values, u64::saturating_add);
            // queries, keys and values, one beside the other in pieces, and as they are put together
            [own, own.saturating_add(net.conv.channels.saturating_mul(2))]
        }
        // three parts, the product of two, that with the third, and what is projected
        Mixer::ShortConv(short) => {
            [short.conv.channels.saturating_mul(5), short.conv.channels.saturating_mul(6)]
        }
        Mixer::Attention(_) | Mixer::Latent(_) | Mixer::Cross(_) | Mixer::Module(_) | Mixer::None => [0, 0],
    }
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

/// Bytes of vLLM's tables of sines and cosines, for all of the model's positions (model_executor/layers/rotary_embedding/base.py): one for
/// each width of head, and of layers with a window one more where they have another base.
pub(super) fn positions(architecture: &Architecture) -> u64 {
    let RotaryTables { apart, times } = architecture.rotary_tables;
    let in_three = architecture.vision().is_some_and(|(_, vision)| vision.places());
    let times = if in_three { times.max(MROPE_POSITIONS) } else { times };
    let mut tables = Vec::new();
    for block in &architecture.blocks {
        let (width, is_local) = match &block.mixer {
            Mixer::Attention(attention) => {
                (attention.rotary.width(attention.head_dim), apart && attention.window.is_some())
            }
            Mixer::Latent(latent) => (Some(latent.rope_dim), false),
            Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
            | Mixer::None => continue,
        };
        let Some(width) = width else { continue };
        let table = width.saturating_mul(if is_local { 1 } else { times });
        if !tables.contains(&(table, is_local)) {
            tables.push((table, is_local));
        }
    }
    let positions = architecture.max_positions.unwrap_or(0);
    let numbers = tables.into_iter().map(|(table, _)| table.saturating_mul(positions));
    numbers.fold(0, u64::saturating_add).saturating_mul(2)
}
