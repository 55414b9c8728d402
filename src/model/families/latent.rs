//! Latent attention from a config: deepseek and those that took it over.

use super::common::Common;
use super::parts;
use crate::model::blocks::{Indexer, Latent, LatentQuery, Linear, Norm, NormKind, Rotary};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads the latent attention of a layer; `indexed` says whether one with an indexer has its own.
pub fn read(config: &Config<'_>, common: &Common, indexed: bool) -> Result<Latent, ModelError> {
    let (hidden, heads) = (common.hidden, common.heads);
    let bias = config.flag("attention_bias")?;
    let nope = config.size("qk_nope_head_dim")?;
    let rope = config.size("qk_rope_head_dim")?;
    let value = parts::head_dim(config, "v_head_dim", hidden, heads)?;
    let rank = config.size("kv_lora_rank")?;
    let rms = |name, width| Norm::new(name, width, NormKind::Rms);
    let queries = heads * (nope + rope);
    let query_rank = config.optional("q_lora_rank")?.filter(|rank| *rank > 0);
    let query = match query_rank {
        None => LatentQuery::Full(Linear::new("self_attn.q_proj", hidden, queries)),
        Some(rank) => LatentQuery::LowRank {
            a: Linear::new("self_attn.q_a_proj", hidden, rank).with_bias(bias),
            norm: rms("self_attn.q_a_layernorm", rank),
            b: Linear::new("self_attn.q_b_proj", rank, queries),
        },
    };
    let index_heads = config.optional("index_n_heads")?.filter(|_| indexed);
    let indexer = match index_heads {
        None => None,
        Some(index_heads) => {
            let dim = config.size("index_head_dim")?;
            let from = query_rank.unwrap_or(hidden);
            Some(Indexer {
                q: Linear::new("self_attn.indexer.wq_b", from, index_heads * dim),
                k: Linear::new("self_attn.indexer.wk", hidden, dim),
                norm: Norm::new("self_attn.indexer.k_norm", dim, NormKind::LayerNorm { bias: true }),
                weights: Linear::new("self_attn.indexer.weights_proj", hidden, index_heads),
            })
        }
    };
    let rotary = match (common.rotary, config.optional_flag("rope_interleave")?) {
        (Rotary::Full, Some(true)) => Rotary::Interleaved { dim: rope },
        (rotary, _) => rotary,
    };
    Ok(Latent {
        heads,
        nope_dim: nope,
        rope_dim: rope,
        value_dim: value,
        kv_rank: rank,
        query,
        kv_a: Linear::new("self_attn.kv_a_proj_with_mqa", hidden, rank + rope).with_bias(bias),
        kv_norm: rms("self_attn.kv_a_layernorm", rank),
        kv_b: Linear::new("self_attn.kv_b_proj", rank, heads * (nope + value)),
        output: Linear::new("self_attn.o_proj", heads * value, hidden).with_bias(bias),
        rotary,
        indexer,
        chosen: config.optional("index_topk")?.unwrap_or(0),
        dropout: common.attention_dropout,
    })
}
