//! A rank's part of GPT-3's layers, as gpt2's configuration has them.

use super::build::{FC1, FC2, PROJECTION, QKV, Rank};
use crate::issue::Issue;
use crate::model::blocks::{Activation, Attention, Linear, Mlp, Projection};

/// A rank's heads.
pub(super) fn attention(attention: &mut Attention, rank: Rank<'_>) -> Result<(), Issue> {
    let Projection::Fused(joint) = &attention.projection else {
        return rank.refuse("its projections");
    };
    if attention.upcast {
        return rank.refuse("attention in float32");
    }
    if attention.head_dim > 128 || !attention.head_dim.is_multiple_of(8) {
        return rank.refuse("heads that cuDNN's attention is not followed with: a multiple of 8 up to 128");
    }
    let heads = rank.divided(attention.heads, "heads of queries")?;
    let groups = rank.divided(attention.kv_heads, "heads of keys and values")?;
    if groups == 0 || !heads.is_multiple_of(groups) {
        return rank.refuse("heads of queries that are no multiple of those of keys and values");
    }
    let width = heads.saturating_mul(attention.head_dim);
    let joint_width = groups.saturating_mul(attention.head_dim).saturating_mul(2).saturating_add(width);
    (attention.heads, attention.kv_heads) = (heads, groups);
    let (input, output) = (joint.input, attention.output.output);
    attention.projection = Projection::Fused(Linear::new(QKV, input, joint_width).with_bias(true));
    attention.output = Linear::new(PROJECTION, width, output).with_bias(true);
    Ok(())
}

/// A rank's columns of a feed-forward network.
pub(super) fn plain(mlp: &Mlp, rank: Rank<'_>) -> Result<Mlp, Issue> {
    let Mlp::Plain { up, down, act } = mlp else {
        return rank.refuse("its feed-forward networks");
    };
    // `bias_gelu` is of the same formula
    if ![Activation::GeluNew, Activation::GeluTanh].contains(act) {
        return rank.refuse("activations other than GELU by tanh");
    }
    let columns = rank.divided(up.output, "columns of the feed-forward networks")?;
    Ok(Mlp::Plain {
        up: Linear::new(FC1, up.input, columns).with_bias(true),
        down: Linear::new(FC2, columns, down.output).with_bias(true),
        act: *act,
    })
}
