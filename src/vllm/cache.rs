//! vLLM's KV cache: groups of layers, how many blocks a card has for them, and how many a sequence takes. Recurrent layers, whose state
//! is as large however long a sequence is, take a block of the same pool for each sequence.
//!
//! Source: vLLM 0.21 v1/core/kv_cache_utils.py (`get_kv_cache_groups`, `_get_kv_cache_groups_uniform_page_size`,
//! `get_kv_cache_config_from_groups`, `get_max_concurrency_for_kv_cache_config`), v1/kv_cache_interface.py, platforms/interface.py
//! (`_align_hybrid_block_size`) and model_executor/layers/mamba/mamba_utils.py (`MambaStateShapeCalculator`).

use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::blocks::{Attention, Conv, DeltaNet, Latent, Mixer, Projection, StateSpace};

/// Tokens of a block (`block_size` on CUDA).
pub(crate) const BLOCK: u64 = 16;

/// How vLLM keeps keys and values (`kv_cache_dtype`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// In the 16 bits that are computed in.
    AsComputed,
    /// A byte each (`AttentionSpec.real_page_size_bytes`); their scales are a number for each layer.
    Fp8,
}

impl Cache {
    const fn bytes(self) -> u64 {
        match self {
            Cache::AsComputed => 2,
            Cache::Fp8 => 1,
        }
    }
}

/// What a layer keeps of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    /// Bytes.
    page: u64,
    /// Tokens.
    tokens: u64,
    /// How much of a sequence it keeps.
    span: Span,
}

/// How much of a sequence a layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// All of it.
    Whole,
    /// As far as it looks back.
    Window(u64),
    /// The piece of so many tokens that it is in (llama4).
    Chunk(u64),
    /// One state, whatever the length (`mamba_cache_mode` "none", as prefixes of such models are not kept).
    State,
}

impl Kept {
    /// Blocks that a sequence takes at most while so many tokens are computed at a time.
    fn blocks(self, length: u64, batched: u64) -> u64 {
        let tokens = self.tokens.max(1);
        match self.span {
            Span::Whole => length.div_ceil(tokens),
            Span::State => 1,
            // `ChunkedLocalAttentionSpec.max_memory_usage_bytes`
            Span::Chunk(chunk) => chunk.saturating_add(batched).min(length).div_ceil(tokens),
            // `SlidingWindowSpec.max_admission_blocks_per_request`: a window begins anywhere in its first block
            Span::Window(window) => {
                let held = window.saturating_sub(1).saturating_add(batched).min(length);
                held.div_ceil(tokens).saturating_add(1)
            }
        }
    }
}

/// The blocks of a model: layers in groups of as many, each group with block tables of its own, all out of one pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Bytes of a block: of one group's layers.
    bytes: u64,
    /// What a layer of each group keeps.
    groups: Vec<Kept>,
}

impl Blocks {
    /// Of a model, as one GPU has it.
    ///
    /// # Errors
    /// What was not followed, or stops vLLM.
    pub(super) fn of(architecture: &Architecture, cache: Cache) -> Result<Blocks, String> {
        let kept = architecture.blocks.iter().map(|block| layer(&block.mixer, cache));
        let mut kept = kept.collect::<Result<Vec<_>, _>>()?;
        align(&mut kept);
        let in_chunks = architecture.model_type.starts_with("llama4");
        for kept in kept.iter_mut().flatten().filter(|_| in_chunks) {
            kept.span = match kept.span {
                Span::Window(chunk) => Span::Chunk(chunk),
                span => span,
            };
        }
        let mut kinds: Vec<(Kept, u64)> = Vec::new();
        for place in &architecture.order {
            let Some(Some(kept)) = kept.get(usize::from(*place)).copied() else { continue };
            match kinds.iter_mut().find(|(other, _)| *other == kept) {
                Some((_, layers)) => *layers += 1,
                None => kinds.push((kept, 1)),
            }
        }
        if architecture.encoder.is_some() {
            return Err("its groups of layers with other caches are not followed".to_owned());
        }
        let Some((first, _)) = kinds.first().copied() else {
            return Err("it keeps no keys and values".to_owned());
        };
        // `UniformTypeKVCacheSpecs`: layers that differ in their width alone are one group
        if kinds.iter().all(|(kept, _)| kept.span == first.span) {
            let page = |(kept, layers): &(Kept, u64)| kept.page.saturating_mul(*layers);
            let bytes = kinds.iter().map(page).fold(0, u64::saturating_add);
            return Ok(Blocks { bytes, groups: vec![first] });
        }
        let page = kinds.iter().map(|(kept, _)| kept.page).max().unwrap_or(0);
        let layers = kinds.iter().map(|(_, layers)| *layers);
        let [fewest, most] = [layers.clone().min().unwrap_or(1), layers.max().unwrap_or(1)];
        let size = if most.saturating_mul(2) < fewest.saturating_mul(3) { most } else { fewest }.max(1);
        let mut groups = Vec::new();
        for (kept, layers) in kinds {
            // `unify_kv_cache_spec_page_size`
            if kept.page == 0 || !page.is_multiple_of(kept.page) {
                return Err("it stops: it cannot give its layers blocks of one size".to_owned());
            }
            let kept = Kept { page, tokens: kept.tokens.saturating_mul(page / kept.page), ..kept };
            groups.extend((0..layers.div_ceil(size)).map(|_| kept));
        }
        Ok(Blocks { bytes: page.saturating_mul(size), groups })
    }

    /// How many of them so many bytes are.
    pub(super) fn within(&self, bytes: u64) -> u64 {
        bytes / self.bytes.max(1)
    }

    /// How many of them a sequence takes.
    pub(super) fn of_sequence(&self, length: u64, batched: u64) -> u64 {
        self.groups.iter().map(|kept| kept.blocks(length, batched)).fold(0, u64::saturating_add)
    }
}

/// What a layer keeps; none where it keeps nothing.
fn layer(mixer: &Mixer, cache: Cache) -> Result<Option<Kept>, String> {
    let (width, span) = match mixer {
        Mixer::Attention(attention) if !attention.causal => {
            return Err("an encoder keeps no keys and values, as it generates nothing".to_owned());
        }
        Mixer::Attention(attention) => {
            (keys_and_values(attention)?, attention.window.map_or(Span::Whole, Span::Window))
        }
        Mixer::Latent(latent) => (latent_vector(latent)?, Span::Whole),
        Mixer::StateSpace(space) => return Ok(Some(state(space_state(space)))),
        Mixer::DeltaNet(net) => return Ok(Some(state(net_state(net)))),
        Mixer::ShortConv(short) => return Ok(Some(state(window_of(&short.conv)))),
        Mixer::None => return Ok(None),
        Mixer::Cross(_) | Mixer::Module(_) => {
            return Err("its groups of layers with other caches are not followed".to_owned());
        }
    };
    let page = width.saturating_mul(BLOCK).saturating_mul(cache.bytes());
    Ok(Some(Kept { page, tokens: BLOCK, span }))
}

const fn state(page: u64) -> Kept {
    Kept { page, tokens: 1, span: Span::State }
}

/// `_align_hybrid_block_size`: a block of keys and values is of as many tokens as take no less than a state, and a state is padded to it.
fn align(layers: &mut [Option<Kept>]) {
    let largest = |of_states: bool| {
        let own = layers.iter().flatten().filter(|kept| (kept.span == Span::State) == of_states);
        own.map(|kept| kept.page).max()
    };
    let (Some(state), Some(keys)) = (largest(true), largest(false)) else { return };
    let times = state.div_ceil(keys.max(1)).max(1);
    for kept in layers.iter_mut().flatten() {
        *kept = match kept.span {
            Span::State => Kept { page: keys.saturating_mul(times), ..*kept },
            Span::Whole | Span::Window(_) | Span::Chunk(_) => Kept {
                page: kept.page.saturating_mul(times),
                tokens: kept.tokens.saturating_mul(times),
                ..*kept
            },
        };
    }
}

/// Bytes of the last tokens that a convolution sees again (`conv_state`), in 16 bits.
const fn window_of(conv: &Conv) -> u64 {
    conv.channels.saturating_mul(conv.kernel.saturating_sub(1)).saturating_mul(Dtype::Bf16.bytes())
}

/// Bytes of a state in what it is kept in, 16 bits where nothing is said.
fn kept_in(elements: u64, dtype: Option<Dtype>) -> u64 {
    elements.saturating_mul(dtype.unwrap_or(Dtype::Bf16).bytes())
}

/// `mamba1_state_shape`, `mamba2_state_shape`: of every channel so many numbers, and the convolution's.
fn space_state(space: &StateSpace) -> u64 {
    kept_in(space.inner.saturating_mul(space.state), space.kept_in).saturating_add(window_of(&space.conv))
}

/// `gated_delta_net_state_shape`.
fn net_state(net: &DeltaNet) -> u64 {
    let head = net.key_dim.saturating_mul(net.value_dim);
    kept_in(net.value_heads.saturating_mul(head), net.kept_in).saturating_add(window_of(&net.conv))
}

/// Elements that a layer keeps of a token.
fn keys_and_values(attention: &Attention) -> Result<u64, String> {
    match attention.projection {
        Projection::Separate { .. } | Projection::KeysAreValues { .. } | Projection::Fused(_) => {
            Ok(attention.kv_heads.saturating_mul(attention.head_dim).saturating_mul(2))
        }
        Projection::QueriesOnly(_) => {
            Err("layers that read another layer's keys and values are not followed".to_owned())
        }
    }
}

/// `MLAAttentionSpec`: the low-rank vector and the part of the key that has a position, on every GPU.
fn latent_vector(latent: &Latent) -> Result<u64, String> {
    match latent.indexer {
        Some(_) => Err("the keys of its indexer, a cache of their own, are not followed".to_owned()),
        None => Ok(latent.kv_rank.saturating_add(latent.rope_dim)),
    }
}
