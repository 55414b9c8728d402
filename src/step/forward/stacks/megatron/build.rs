//! What one rank builds of a model: Megatron-core's modules, of each its part of the heads, columns and vocabulary, and the
//! layers of its stage.

use super::experts::{latent, sparse};
use super::gpt;
use super::refused::settings;
use super::share::{of_rank, stages};
use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::blocks::{
    Activation, Attention, Block, FeedForward, Linear, Mixer, Mlp, Norm, NormKind, Projection, Rotary, Wiring,
};
use crate::model::modeling::{Code, HeadNorms, Router};
use crate::model::{Architecture, Objective};
use crate::scenario::{Cluster, ContextComm, Layout};
use crate::units::grouped;

/// Names of the modules, by which their parameters are put in Megatron's order.
pub(super) const QKV: &str = "self_attention.linear_qkv";
pub(super) const QUERY_NORM: &str = "self_attention.q_layernorm";
pub(super) const KEY_NORM: &str = "self_attention.k_layernorm";
pub(super) const PROJECTION: &str = "self_attention.linear_proj";
pub(super) const FC1: &str = "mlp.linear_fc1";
pub(super) const FC2: &str = "mlp.linear_fc2";
pub(super) const INPUT_NORM: &str = "input_layernorm";
pub(super) const MLP_NORM: &str = "pre_mlp_layernorm";

/// Whether each GPU has some of a layer's inputs (`RowParallelLinear`), so that its outputs are sums; the others have some of the
/// outputs, and the gradient of the input is a sum.
pub(super) fn is_row_parallel(name: &str) -> bool {
    [PROJECTION, FC2].contains(&name)
}

/// How a rank is given its part of a model.
#[derive(Clone, Copy)]
pub(super) struct Rank<'a> {
    /// The model's own name.
    pub name: &'a str,
    pub layout: Layout,
    pub length: u64,
    /// All GPUs.
    pub gpus: u64,
    /// What GPUs of a layer share evenly: heads, columns, rows.
    pub shared: &'a [u64],
}

impl Rank<'_> {
    /// Refuses a part of the model that Megatron-core has otherwise.
    pub fn refuse<T>(&self, what: &str) -> Result<T, Issue> {
        let message = format!("Megatron-core's {} is not modelled: {what}", self.name);
        Err(Issue::error(Field::Stack, message).with_fix(
            "choose transformers, or a plain llama, qwen2, qwen3, mixtral, qwen3_moe, gpt2 or deepseek_v2",
        ))
    }

    /// This rank's part of what the GPUs of a layer share.
    pub fn divided(&self, number: u64, what: &str) -> Result<u64, Issue> {
        let tensor = self.layout.tensor.max(1);
        if number.is_multiple_of(tensor) {
            return Ok(number / tensor);
        }
        let message =
            format!("{tensor} GPUs cannot share the {} {what}: Megatron gives each as many", grouped(number));
        Err(Issue::error(Field::TensorParallel, message).with_fix(self.smaller()))
    }

    /// The next smaller size that divides all that GPUs of a layer share, and the GPUs.
    fn smaller(&self) -> String {
        let divides = |size: &u64| {
            let together = Layout { tensor: *size, ..self.layout }.gpus();
            self.shared.iter().all(|number| number.is_multiple_of(*size))
                && self.gpus.is_multiple_of(together)
        };
        let size = (1..self.layout.tensor).rev().find(divides).unwrap_or(1);
        format!("use a tensor parallel size of {}", grouped(size))
    }
}

/// What of a model GPUs of a layer share evenly, as far as it is known before the parts are built.
fn shared_evenly(architecture: &Architecture) -> Vec<u64> {
    let mut numbers = vec![architecture.vocab];
    for block in &architecture.blocks {
        numbers.extend(block.mixer.attention().iter().flat_map(|own| [own.heads, own.kv_heads]));
        match &block.ffn {
            FeedForward::Dense(Mlp::Gated { gate: columns, .. } | Mlp::Plain { up: columns, .. }) => {
                numbers.push(columns.output);
            }
            FeedForward::Moe(moe) => numbers.push(moe.expert_width),
            FeedForward::Dense(_) | FeedForward::None => {}
        }
    }
    numbers
}

/// transformers' blocks as a rank of Megatron-core builds them.
pub(in crate::step::forward::stacks) fn architecture(
    architecture: &Architecture,
    member: &Member,
    batch: Batch,
    cluster: Cluster,
) -> Result<Architecture, Issue> {
    let gpt = is_gpt(architecture);
    settings(member, batch, cluster, gpt)?;
    let layout = cluster.layout;
    let (name, shared) = (architecture.model_type.as_ref(), shared_evenly(architecture));
    let rank = Rank { name, layout, length: batch.length, gpus: cluster.gpus, shared: &shared };
    outside_of_layers(architecture, rank)?;
    let router = routed(architecture, rank)?;
    norms_before_positions(architecture, rank)?;
    let part = stages(architecture, cluster)?;
    let mut own = architecture.clone();
    for block in &mut own.blocks {
        match &mut block.mixer {
            Mixer::Attention(own) if gpt => gpt::attention(own, rank)?,
            Mixer::Attention(own) => attention(own, rank)?,
            Mixer::Latent(own) => latent(own, rank)?,
            _ => return rank.refuse("layers without softmax attention"),
        }
        // the modules are made in this order
        block.layout = &[PROJECTION];
        match &mut block.ffn {
            FeedForward::Dense(mlp) if gpt => *mlp = gpt::plain(mlp, rank)?,
            FeedForward::Dense(mlp) => *mlp = dense(mlp, [FC1, FC2], rank)?,
            FeedForward::Moe(moe) => sparse(moe, (&block.mixer, router), rank, cluster)?,
            FeedForward::None => return rank.refuse("its feed-forward networks"),
        }
        let Wiring::PreNorm { attention, mlp } = &mut block.wiring else {
            return rank.refuse("its wiring");
        };
        for (norm, name) in [(attention, INPUT_NORM), (mlp, MLP_NORM)] {
            match gpt {
                true => norm.name = name,
                false => named(norm, name, rank)?,
            }
        }
    }
    own.order = of_rank(&architecture.order, part);
    let vocab = rank.divided(architecture.vocab, "rows of the vocabulary")?;
    own.vocab = vocab;
    own.embeddings.tokens.rows = if part.is_first { vocab } else { 0 };
    if !part.is_first {
        own.embeddings.positions = None;
    }
    own.head.linear.output = if part.is_last { vocab } else { 0 };
    if layout.pipeline > 1 {
        // the last stage has a copy of its own
        own.head.tied = false;
    }
    if !part.is_last {
        own.final_norm = None;
    }
    Ok(own)
}

/// Whether it is GPT-3's architecture, which transformers calls gpt2.
pub(super) fn is_gpt(architecture: &Architecture) -> bool {
    architecture.family.is_some_and(|family| family.modeling.code == Code::Gpt2)
}

/// Refuses what of a model lies outside of its layers and is not like llama's or GPT-3's.
fn outside_of_layers(architecture: &Architecture, rank: Rank<'_>) -> Result<(), Issue> {
    if architecture.encoder.is_some() || architecture.head.objective != Objective::CausalLm {
        return rank.refuse("an encoder");
    }
    let embeddings = &architecture.embeddings;
    let gpt = is_gpt(architecture);
    if embeddings.positions.is_some() != gpt || embeddings.scaled || embeddings.project_in.is_some() {
        return rank.refuse("its embedding");
    }
    if architecture.head.softcap || architecture.head.scaled || architecture.head.transform.is_some() {
        return rank.refuse("its head");
    }
    if !architecture.towers.is_empty() || !architecture.extra.is_empty() {
        return rank.refuse("parts beside its layers");
    }
    if !gpt && !matches!(&architecture.final_norm, Some(norm) if norm.kind == NormKind::Rms) {
        return rank.refuse("norms that are not llama's RMSNorm");
    }
    Ok(())
}

/// Refuses norms of queries and keys that are already turned by their positions.
fn norms_before_positions(architecture: &Architecture, rank: Rank<'_>) -> Result<(), Issue> {
    let norms = architecture.family.map(|family| family.modeling.head_norms);
    let has_norms = |block: &Block| block.mixer.attention().is_some_and(|own| own.qk_norm.is_some());
    if norms == Some(HeadNorms::AfterRotary) && architecture.blocks.iter().any(has_norms) {
        return rank.refuse("norms of queries and keys behind their positions");
    }
    Ok(())
}

/// The router of its experts. Refuses one that is not followed, and GPUs that are to share experts where there are none.
fn routed(architecture: &Architecture, rank: Rank<'_>) -> Result<Router, Issue> {
    let has_experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    if !has_experts && rank.layout.experts > 1 {
        let message = "there are no experts that GPUs could share";
        return Err(Issue::error(Field::ExpertParallel, message).with_fix("use a size of 1"));
    }
    let router = architecture.family.map_or(Router::Qwen, |family| family.modeling.router);
    match router {
        Router::SoftGroups | Router::Mixtral | Router::Qwen => Ok(router),
        _ if !has_experts => Ok(router),
        _ => rank.refuse("its router, unless it is softmax as deepseek_v2's, mixtral's or qwen3_moe's"),
    }
}

/// Gives a norm Megatron's name.
pub(super) fn named(norm: &mut Norm, name: &'static str, rank: Rank<'_>) -> Result<(), Issue> {
    if norm.kind != NormKind::Rms {
        return rank.refuse("norms that are not llama's RMSNorm");
    }
    norm.name = name;
    Ok(())
}

/// A rank's heads of softmax attention, whose queries, keys and values are one projection.
fn attention(attention: &mut Attention, rank: Rank<'_>) -> Result<(), Issue> {
    let layout = rank.layout;
    if attention.rotary != Rotary::Full {
        return rank.refuse("its positions");
    }
    if attention.softcap || attention.sinks || attention.gated || attention.clipped {
        return rank.refuse("what its attention has beyond llama's");
    }
    if let Some(norms) = &mut attention.qk_norm {
        for (norm, name) in [(&mut norms.q, QUERY_NORM), (&mut norms.k, KEY_NORM)] {
            // one for all heads, each of which is normed by itself
            if norm.width != attention.head_dim || norm.rows > 1 {
                return rank.refuse("norms of queries and keys that are no norms of their heads");
            }
            named(norm, name, rank)?;
        }
    }
    if attention.window.is_some_and(|window| window < rank.length) {
        return rank.refuse("a sliding window");
    }
    attention.window = None;
    if layout.has_transformer_engine() && (attention.head_dim > 128 || !attention.head_dim.is_multiple_of(8))
    {
        return rank.refuse("heads that cuDNN's attention is not followed with: a multiple of 8 up to 128");
    }
    let Projection::Separate { q, k, v } = &attention.projection else {
        return rank.refuse("its projections");
    };
    if attention.output.bias || q.bias != k.bias || q.bias != v.bias {
        return rank.refuse("biases other than those of queries, keys and values");
    }
    for (heads, what) in
        [(attention.heads, "heads of queries"), (attention.kv_heads, "heads of keys and values")]
    {
        let all = layout.tensor.saturating_mul(layout.context);
        let by_heads = layout.context > 1 && layout.context_comm == ContextComm::AllToAll;
        if by_heads && !heads.is_multiple_of(all) {
            let message = format!("{} GPUs cannot share the {} {what}", grouped(all), grouped(heads));
            let fix = "use a smaller context parallel size, as all-to-all divides heads once more, or --cp-comm-type p2p, which does not";
            return Err(Issue::error(Field::ContextParallel, message).with_fix(fix));
        }
    }
    attention.heads = rank.divided(attention.heads, "heads of queries")?;
    if attention.kv_heads < layout.tensor && layout.tensor.is_multiple_of(attention.kv_heads.max(1)) {
        // `get_query_key_value_tensors`, where `num_query_groups` are fewer than GPUs
        let message = format!(
            "of {} heads of keys and values among {} GPUs Megatron-core gathers what all projections made on each, which is not followed",
            grouped(attention.kv_heads),
            grouped(layout.tensor)
        );
        return Err(Issue::error(Field::TensorParallel, message).with_fix(rank.smaller()));
    }
    attention.kv_heads = rank.divided(attention.kv_heads, "heads of keys and values")?;
    let width = |heads: u64| heads.saturating_mul(attention.head_dim);
    let joint = width(attention.kv_heads).saturating_mul(2).saturating_add(width(attention.heads));
    attention.projection = Projection::Fused(Linear::new(QKV, q.input, joint).with_bias(q.bias));
    attention.output = Linear::new(PROJECTION, width(attention.heads), attention.output.output);
    Ok(())
}

/// A rank's columns of a feed-forward network, whose gate and up are one projection.
pub(super) fn dense(mlp: &Mlp, [fc1, fc2]: [&'static str; 2], rank: Rank<'_>) -> Result<Mlp, Issue> {
    let Mlp::Gated { gate, down, act, .. } = mlp else {
        return rank.refuse("its feed-forward networks");
    };
    if *act != Activation::Silu || gate.bias || down.bias {
        return rank.refuse("its feed-forward networks");
    }
    let columns = rank.divided(gate.output, "columns of the feed-forward networks")?;
    Ok(Mlp::GatedFused {
        gate_up: Linear::new(fc1, gate.input, columns.saturating_mul(2)),
        down: Linear::new(fc2, columns, down.output),
        act: *act,
    })
}
