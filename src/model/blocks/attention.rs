//! Attention: over keys and values of their own, and over latent ones.

use super::basic::{Dropout, Linear, Norm, Table};
use super::param::{Param, ParamRole, Visit};

/// How queries, keys and values are projected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// Three linear layers.
    Separate {
        /// Queries.
        q: Linear,
        /// Keys.
        k: Linear,
        /// Values.
        v: Linear,
    },
    /// Two linear layers: the values are the keys before their norm (gemma4).
    KeysAreValues {
        /// Queries.
        q: Linear,
        /// Keys and values.
        k: Linear,
    },
    /// Queries only: keys and values are those of an earlier layer (gemma3n, gemma4).
    QueriesOnly(Linear),
    /// One linear layer whose output is split (gpt2, gpt_neox, phi3, falcon, bloom).
    Fused(Linear),
}

/// How positions enter attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rotary {
    /// No rotary embedding.
    None,
    /// Rotary over the whole head: `q * cos + rotate_half(q) * sin`.
    Full,
    /// Rotary over the first `dim` elements of a head, the rest passed through and joined with `cat`. phi3 and gpt_neox
    /// take this path even where `dim` is the whole head.
    Partial {
        /// Rotated elements of a head.
        dim: u64,
    },
    /// Rotary over the whole head computed in float32 and cast back (cohere, olmo, ernie4_5, modernbert).
    Float32,
    /// Rotary of neighbouring elements (`stack` and `flatten`) over the first `dim` elements, the rest joined with `cat`
    /// (glm, gptj).
    Interleaved {
        /// Rotated elements of a head.
        dim: u64,
    },
    /// Multiplication of complex numbers in float32 (llama4, deepseek_v2).
    Complex,
    /// The two halves of a head computed apart and joined with `cat` (gpt_oss).
    Halves,
    /// Not rotary: a bias on the scores that grows with distance (bloom, mpt, falcon-rw).
    Alibi,
}

impl Rotary {
    /// Elements of a head that are rotated: the width of cos and sin. `None` without a rotary embedding.
    pub fn width(self, head_dim: u64) -> Option<u64> {
        match self {
            Rotary::None | Rotary::Alibi => None,
            Rotary::Full | Rotary::Float32 | Rotary::Complex | Rotary::Halves => Some(head_dim),
            Rotary::Partial { dim } | Rotary::Interleaved { dim } => Some(dim),
        }
    }
}

/// The family whose attention code runs, where transformers' own code differs in what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionCode {
    /// llama, mistral, qwen2, qwen3, gemma, gemma2, phi3, phi, gpt_neox and all that share their shape.
    Standard,
    /// gpt2 and its like: no rotary, `Conv1D`, residual dropout in the block.
    Gpt2,
    /// opt: scaled queries.
    Opt,
    /// bloom: alibi, always eager, `baddbmm`.
    Bloom,
    /// falcon: always builds a mask.
    Falcon,
    /// falcon's newer architecture: keys and values are copied for every head of their group first.
    FalconGrouped,
    /// bert and the encoders like it.
    Bert,
    /// The family writes its attention out by itself, without PyTorch's kernels: gpt_neo, gptj, mpt, deberta-v2.
    Own,
    /// The same of a family whose attention is not modelled: its name.
    Unmodelled(&'static str),
}

/// How queries are multiplied by a number that grows with their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueryScale {
    /// Not at all.
    None,
    /// In their own type (ministral3).
    Plain,
    /// In float32, and cast back (llama4's `attn_temperature_tuning`, in layers whose queries are not rotated).
    Float,
}

/// Norms on queries and keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QkNorm {
    /// Norm of the queries.
    pub q: Norm,
    /// Norm of the keys.
    pub k: Norm,
}

/// Softmax attention over all or a window of the earlier tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of one head's query and key.
    pub head_dim: u64,
    /// How q, k and v are made.
    pub projection: Projection,
    /// The output projection.
    pub output: Linear,
    /// Norms on q and k, if any. A norm as wide as all heads together runs before the heads are split.
    pub qk_norm: Option<QkNorm>,
    /// Positions.
    pub rotary: Rotary,
    /// Sliding window in tokens, or the size of llama4's chunks; a mask is built when the sequence is at least that long.
    pub window: Option<u64>,
    /// Whether scores are soft-capped with tanh (gemma2, eager only).
    pub softcap: bool,
    /// Whether it looks back only.
    pub causal: bool,
    /// Learned attention sinks: one extra logit per head (gpt-oss).
    pub sinks: bool,
    /// Whether the query projection also makes a gate, as wide as the queries, that multiplies the output (qwen3_next).
    pub gated: bool,
    /// Whether queries are multiplied by a number that grows with their position.
    pub query_scale: QueryScale,
    /// Whether queries, keys and values are clipped (`clip_qkv` of olmo and mpt).
    pub clipped: bool,
    /// Whether eager attention multiplies queries and keys in float32, scaled in the product (gpt2's
    /// `reorder_and_upcast_attn`).
    pub upcast: bool,
    /// A learned bias on the scores by distance (t5).
    pub position_bias: Option<Table>,
    /// Dropout on the attention probabilities (0 where the config gives none).
    pub dropout: Dropout,
    /// Whose code runs.
    pub code: AttentionCode,
}

impl Attention {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        if self.sinks {
            visit(Param { name: "self_attn.sinks".into(), shape: vec![self.heads], role: ParamRole::Other });
        }
        match &self.projection {
            Projection::Separate { q, k, v } => [q, k, v].into_iter().for_each(|linear| linear.visit(visit)),
            Projection::KeysAreValues { q, k } => [q, k].into_iter().for_each(|linear| linear.visit(visit)),
            Projection::QueriesOnly(linear) | Projection::Fused(linear) => linear.visit(visit),
        }
        self.output.visit(visit);
        if let Some(norms) = &self.qk_norm {
            norms.q.visit(visit);
            norms.k.visit(visit);
        }
        if let Some(table) = &self.position_bias {
            table.visit(visit);
        }
    }
}

/// How latent attention makes its queries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LatentQuery {
    /// One projection.
    Full(Linear),
    /// Down to `q_lora_rank`, a norm, and up again.
    LowRank {
        /// Down.
        a: Linear,
        /// The norm between.
        norm: Norm,
        /// Up.
        b: Linear,
    },
}

/// What chooses the tokens that sparse latent attention looks at (deepseek_v32, glm_moe_dsa).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Indexer {
    /// Queries, from the low-rank query.
    pub q: Linear,
    /// Keys, one head.
    pub k: Linear,
    /// Norm of the keys.
    pub norm: Norm,
    /// Weights of the heads.
    pub weights: Linear,
}

/// Multi-head latent attention (deepseek): keys and values are made from one low-rank vector per token, and a part of
/// the key, with its position, is shared by all heads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Latent {
    /// Heads.
    pub heads: u64,
    /// Elements of a head's query and key without position.
    pub nope_dim: u64,
    /// Elements of a head's query and key with position.
    pub rope_dim: u64,
    /// Elements of a head's value.
    pub value_dim: u64,
    /// Width of the low-rank vector.
    pub kv_rank: u64,
    /// Queries.
    pub query: LatentQuery,
    /// Down to the low-rank vector and the shared part of the key.
    pub kv_a: Linear,
    /// Norm of the low-rank vector.
    pub kv_norm: Norm,
    /// Up to keys and values of every head.
    pub kv_b: Linear,
    /// The output projection.
    pub output: Linear,
    /// Positions: [`Rotary::Full`], [`Rotary::Interleaved`] or [`Rotary::Complex`] over `rope_dim`.
    pub rotary: Rotary,
    /// What chooses tokens.
    pub indexer: Option<Indexer>,
    /// How many tokens are chosen, where any are.
    pub chosen: u64,
    /// Dropout on the attention probabilities.
    pub dropout: Dropout,
}

impl Latent {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        match &self.query {
            LatentQuery::Full(linear) => linear.visit(visit),
            LatentQuery::LowRank { a, norm, b } => {
                a.visit(visit);
                norm.visit(visit);
                b.visit(visit);
            }
        }
        self.kv_a.visit(visit);
        self.kv_norm.visit(visit);
        self.kv_b.visit(visit);
        self.output.visit(visit);
        if let Some(indexer) = &self.indexer {
            indexer.q.visit(visit);
            indexer.k.visit(visit);
            indexer.norm.visit(visit);
            indexer.weights.visit(visit);
        }
    }
}
