//! What a rank builds of latent attention and of a mixture of experts: Megatron-core's `MLASelfAttention` and `MoELayer`.

use super::build::{PROJECTION, Rank, dense, named};
use crate::issue::{Field, Issue};
use crate::model::blocks::{Activation, Latent, LatentQuery, Linear, Mixer, Moe};
use crate::model::modeling::Router;
use crate::scenario::Cluster;
use crate::units::grouped;

/// Names of the modules, by which their parameters are put in Megatron's order.
pub(super) const QUERY: &str = "self_attention.linear_q_proj";
pub(super) const QUERY_DOWN: &str = "self_attention.linear_q_down_proj";
pub(super) const QUERY_UP: &str = "self_attention.linear_q_up_proj";
pub(super) const QUERY_NORM: &str = "self_attention.linear_q_up_proj.layer_norm";
pub(super) const KEY_DOWN: &str = "self_attention.linear_kv_down_proj";
pub(super) const KEY_UP: &str = "self_attention.linear_kv_up_proj";
pub(super) const KEY_NORM: &str = "self_attention.linear_kv_up_proj.layer_norm";
pub(super) const ROUTER: &str = "mlp.router";
pub(super) const SHARED_FC1: &str = "mlp.shared_experts.linear_fc1";
pub(super) const SHARED_FC2: &str = "mlp.shared_experts.linear_fc2";

/// The widest heads of queries and keys, and of values, that cuDNN's attention is followed with in latent attention.
const WIDEST: [u64; 2] = [192, 128];

/// The most experts of a rank: more than any model has in all.
const MOST_EXPERTS: u64 = 1024;

/// Refuses local layers.
fn of_transformer_engine(rank: Rank<'_>, what: &str) -> Result<(), Issue> {
    if rank.layout.has_transformer_engine() {
        return Ok(());
    }
    let message = format!("{what} needs Transformer Engine's layers");
    Err(Issue::error(Field::TransformerImpl, message).with_fix("choose these"))
}

/// Refuses what of a cluster was not compared beside latent attention and the experts that go with it.
fn whole_layers(rank: Rank<'_>, what: &str) -> Result<(), Issue> {
    let layout = rank.layout;
    of_transformer_engine(rank, what)?;
    let divided = [
        (Field::TensorParallel, layout.tensor, "GPUs that share a layer"),
        (Field::ContextParallel, layout.context, "GPUs that share a sequence"),
    ];
    for (field, size, who) in divided {
        if size > 1 {
            let message = format!("{what} is not followed under {who}");
            return Err(Issue::error(field, message).with_fix("use a size of 1"));
        }
    }
    Ok(())
}

/// Latent attention, whose norms belong to the projections up.
pub(super) fn latent(latent: &mut Latent, rank: Rank<'_>) -> Result<(), Issue> {
    whole_layers(rank, "latent attention")?;
    if latent.indexer.is_some() {
        return rank.refuse("what chooses the tokens that its attention looks at");
    }
    let widths = [latent.nope_dim.saturating_add(latent.rope_dim), latent.value_dim];
    if widths.iter().zip(WIDEST).any(|(width, most)| *width > most || !width.is_multiple_of(8)) {
        return rank.refuse(
            "heads that cuDNN's attention is not followed with: multiples of 8, queries up to 192 and values up to 128",
        );
    }
    let renamed = |linear: &Linear, name| match linear.bias {
        true => rank.refuse("biases"),
        false => Ok(Linear::new(name, linear.input, linear.output)),
    };
    match &mut latent.query {
        LatentQuery::Full(query) => *query = renamed(query, QUERY)?,
        LatentQuery::LowRank { a, norm, b } => {
            (*a, *b) = (renamed(a, QUERY_DOWN)?, renamed(b, QUERY_UP)?);
            named(norm, QUERY_NORM, rank)?;
        }
    }
    latent.kv_a = renamed(&latent.kv_a, KEY_DOWN)?;
    latent.kv_b = renamed(&latent.kv_b, KEY_UP)?;
    latent.output = renamed(&latent.output, PROJECTION)?;
    named(&mut latent.kv_norm, KEY_NORM, rank)
}

/// A mixture of experts, of which the rank has its part of those that are routed to.
pub(super) fn sparse(
    moe: &mut Moe,
    (mixer, router): (&Mixer, Router),
    rank: Rank<'_>,
    cluster: Cluster,
) -> Result<(), Issue> {
    let what = "a mixture of experts";
    match (mixer, router) {
        (Mixer::Latent(_), Router::SoftGroups) => whole_layers(rank, what)?,
        (Mixer::Attention(_), Router::Mixtral | Router::Qwen) => of_transformer_engine(rank, what)?,
        _ => return rank.refuse("such a router beside such attention"),
    }
    if rank.layout.tensor > 1 && !rank.layout.sequence {
        let message = "Megatron-core stops at experts in layers that GPUs share without sequence parallelism";
        return Err(Issue::error(Field::SequenceParallel, message).with_fix("switch it on"));
    }
    let is_plain = moe.gated && moe.act == Activation::Silu && !moe.expert_bias && !moe.router.bias;
    if !is_plain || moe.correction.is_some() || moe.shared_gate.is_some() || moe.latent.is_some() {
        return rank.refuse("its experts");
    }
    let [groups, chosen] = moe.groups;
    // what torch.topk is asked for must be there: groups, and experts in each of them
    let of_each = moe.experts / groups.max(1);
    let is_whole = moe.experts.is_multiple_of(groups.max(1)) && chosen <= groups;
    if groups > 1 && (chosen == 0 || moe.top_k < chosen || !is_whole || moe.top_k / chosen > of_each) {
        return rank.refuse("its groups of experts");
    }
    if moe.top_k > moe.router.output {
        return rank.refuse("a token goes to more experts than there are");
    }
    moe.router = Linear::new(ROUTER, moe.router.input, moe.router.output);
    if let Some(shared) = &mut moe.shared {
        *shared = dense(shared, [SHARED_FC1, SHARED_FC2], rank)?;
    }
    // GPUs that share a layer share each of its experts, unless --expert-tensor-parallel-size says otherwise
    moe.expert_width = rank.divided(moe.expert_width, "columns of an expert")?;
    moe.experts = of_rank(moe.experts, cluster)?;
    if moe.experts > MOST_EXPERTS {
        let message = format!("a GPU with {} experts is not followed", grouped(moe.experts));
        let fix = format!("share them among more GPUs, {} on each at most", grouped(MOST_EXPERTS));
        return Err(Issue::error(Field::ExpertParallel, message).with_fix(fix));
    }
    Ok(())
}

/// How many experts a rank has.
fn of_rank(experts: u64, cluster: Cluster) -> Result<u64, Issue> {
    let size = cluster.layout.experts.max(1);
    let copies = cluster.gpus / cluster.layout.parts().max(1);
    for (number, what) in [(experts, "experts"), (copies, "GPUs that hold the same part of the model")] {
        if !number.is_multiple_of(size) {
            let message = format!("{} GPUs cannot share the {} {what}", grouped(size), grouped(number));
            let fix =
                (1..size).rev().find(|size| experts.is_multiple_of(*size) && copies.is_multiple_of(*size));
            return Err(Issue::error(Field::ExpertParallel, message)
                .with_fix(format!("use an expert parallel size of {}", grouped(fix.unwrap_or(1)))));
        }
    }
    Ok(experts / size)
}
