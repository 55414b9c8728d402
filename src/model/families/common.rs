//! What all layers of a model have in common.

use crate::model::blocks::{Activation, Dropout, Rotary};

/// What all layers of a model have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// Hidden size.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Activation of the feed-forward networks.
    pub act: Activation,
    /// Rotary embedding, where a layer has one.
    pub rotary: Rotary,
    /// Dropout on the attention probabilities.
    pub attention_dropout: Dropout,
    /// Dropout on the residual branches.
    pub residual_dropout: Dropout,
}
