//! vLLM's KV cache: groups of layers, how many blocks a card has for them, and how many a sequence takes.
//!
//! Source: vLLM 0.21 v1/core/kv_cache_utils.py (`get_kv_cache_groups`, `_get_kv_cache_groups_uniform_page_size`,
//! `get_kv_cache_config_from_groups`, `get_max_concurrency_for_kv_cache_config`) and v1/kv_cache_interface.py.

use crate::model::Architecture;
use crate::model::blocks::{Attention, Latent, Mixer, Projection};

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
    /// How far it looks back, where it does not to the first token.
    window: Option<u64>,
}

impl Kept {
    /// Blocks that a sequence takes at most while so many tokens are computed at a time.
    fn blocks(self, length: u64, batched: u64) -> u64 {
        let tokens = self.tokens.max(1);
        match self.window {
            None => length.div_ceil(tokens),
            // `SlidingWindowSpec.max_admission_blocks_per_request`: a window begins anywhere in its first block
            Some(window) => {
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
        let kept: Vec<_> = architecture.blocks.iter().map(|block| layer(&block.mixer, cache)).collect();
        let mut kinds: Vec<(Kept, u64)> = Vec::new();
        for place in &architecture.order {
            let Some(kept) = kept.get(usize::from(*place)) else { continue };
            let kept = kept.clone()?;
            match kinds.iter_mut().find(|(other, _)| *other == kept) {
                Some((_, layers)) => *layers += 1,
                None => kinds.push((kept, 1)),
            }
        }
        if architecture.encoder.is_some() || architecture.model_type.starts_with("llama4") {
            return Err("its groups of layers with other caches are not followed".to_owned());
        }
        let Some((first, _)) = kinds.first().copied() else {
            return Err("it keeps no keys and values".to_owned());
        };
        // `UniformTypeKVCacheSpecs`: layers that differ in their width alone are one group
        if kinds.iter().all(|(kept, _)| kept.window == first.window) {
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

fn layer(mixer: &Mixer, cache: Cache) -> Result<Kept, String> {
    let (width, window) = match mixer {
        Mixer::Attention(attention) if !attention.causal => {
            return Err("an encoder keeps no keys and values, as it generates nothing".to_owned());
        }
        Mixer::Attention(attention) => (keys_and_values(attention)?, attention.window),
        Mixer::Latent(latent) => (latent_vector(latent)?, None),
        Mixer::Cross(_)
        | Mixer::StateSpace(_)
        | Mixer::DeltaNet(_)
        | Mixer::ShortConv(_)
        | Mixer::Module(_)
        | Mixer::None => {
            return Err("its groups of layers with other caches are not followed".to_owned());
        }
    };
    let page = width.saturating_mul(BLOCK).saturating_mul(cache.bytes());
    Ok(Kept { page, tokens: BLOCK, window })
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
