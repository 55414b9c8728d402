//! gemma4's text model: two kinds of attention with different heads, experts beside a dense network, inputs per layer.

use super::common::Common;
use super::layers::layers;
use super::parts::{decoder, stack};
use super::variant::{PLAIN, QK_NORMS, QkNorms, Variant, Windows, Wired};
use crate::model::architecture::Architecture;
use crate::model::blocks::Table;
use crate::model::blocks::{
    Block, ExpertLayout, ExpertNames, FeedForward, Linear, Mixer, Moe, Norm, NormKind, Projection, Submodule,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

const GEMMA4: Variant = Variant {
    norm: NormKind::RmsPower,
    scaled: true,
    wired: Wired::Sandwich([
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ]),
    activation: "hidden_activation",
    windows: Windows::AllBut(6),
    qk_norms: Some(QkNorms { kind: NormKind::RmsPower, ..QK_NORMS }),
    layout: &[
        "self_attn.q_proj",
        "self_attn.q_norm",
        "self_attn.k_norm",
        "self_attn.",
        "mlp.",
        "input_layernorm.",
        "post_attention_layernorm.",
        "pre_feedforward_layernorm.",
        "post_feedforward_layernorm.",
        "per_layer_input_gate",
        "per_layer_projection",
        "post_per_layer_input_norm",
        "router.scale",
        "router.per_expert_scale",
        "router.",
        "experts.",
    ],
    ..PLAIN
};

/// Reads the text config of a gemma4.
pub fn read(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let variant = GEMMA4;
    let facts = layers(config, &variant)?;
    let depth = facts.len() as u64;
    let near = Common::read(config, &variant)?;
    let far = Common {
        head_dim: config.size_or("global_head_dim", 512)?,
        kv_heads: match config.flag("attention_k_eq_v")? {
            true => config.size_or("num_global_key_value_heads", near.kv_heads)?,
            false => near.kv_heads,
        },
        ..near.clone()
    };
    let borrowing = depth.saturating_sub(config.optional("num_kv_shared_layers")?.unwrap_or(0));
    // What is particular to a layer: its facts, whether it is the last, whether it borrows keys and values.
    let own = |layer: u64| {
        (facts.get(layer as usize).copied().unwrap_or_default(), layer + 1 == depth, layer >= borrowing)
    };
    let layers = stack((0..depth).map(own), |(facts, last, borrows)| {
        // The last layer always sees everything.
        let sliding = facts.window.is_some() && !last;
        let common = if sliding { &near } else { &far };
        let mut attention = common.attention(config, &variant, facts)?;
        if !sliding {
            attention.window = None;
        }
        attention.projection = match attention.projection {
            Projection::Separate { q, .. } if borrows => Projection::QueriesOnly(q),
            Projection::Separate { q, k, .. } if !sliding && config.flag("attention_k_eq_v")? => {
                Projection::KeysAreValues { q, k }
            }
            other => other,
        };
        let double = borrows && borrowing > 0 && config.flag("use_double_wide_mlp")?;
        let width = config.size("intermediate_size")? * if double { 2 } else { 1 };
        let mlp = common.network(variant.mlp, width, false);
        let mut extra = Vec::new();
        let ffn = if config.flag("enable_moe_block")? {
            extra.extend(beside_experts(config, common.hidden)?);
            let moe = experts(config, common)?;
            FeedForward::Moe(Box::new(Moe { shared: Some(mlp), ..moe }))
        } else {
            FeedForward::Dense(mlp)
        };
        extra.extend(per_layer(config, common.hidden)?);
        if borrows && let Some(norms) = attention.qk_norm.take() {
            // Keys come normed from the layer that they are borrowed from: only the norm of the queries is left.
            extra.push(Submodule::Norm(norms.q));
        }
        Ok(Block {
            wiring: common.wiring(&variant),
            mixer: Mixer::Attention(attention),
            cross: None,
            ffn,
            residual_dropout: common.residual_dropout,
            extra,
            layout: variant.layout,
        })
    })?;
    let mut model = decoder(config, variant.embedding, layers, Norm::new("norm", near.hidden, variant.norm))?;
    model.embeddings.scaled = true;
    model.head.softcap = config.number("final_logit_softcapping")?.is_some();
    let own = config.optional("hidden_size_per_layer_input")?.unwrap_or(0);
    if own > 0 {
        let all = own * depth;
        let rows = config.size("vocab_size_per_layer_input")?;
        model.extra = vec![
            Submodule::Table(Table { name: "embed_tokens_per_layer", rows, width: all }),
            Submodule::Linear(Linear::new("per_layer_model_projection", near.hidden, all)),
            Submodule::Norm(Norm::new("per_layer_projection_norm", own, variant.norm)),
        ];
    }
    Ok(model)
}

fn experts(config: &Config<'_>, common: &Common) -> Result<Moe, ModelError> {
    let count = config.size("num_experts")?;
    let width = config.size("moe_intermediate_size")?;
    Ok(Moe {
        names: ExpertNames {
            first: "experts.gate_up_proj",
            last: "experts.down_proj",
            layout: ExpertLayout::OutIn,
        },
        router: Linear::new("router.proj", common.hidden, count),
        router_is_linear: true,
        correction: None,
        experts: count,
        top_k: config.size("top_k_experts")?,
        groups: [1, 1],
        expert_width: width,
        hidden: common.hidden,
        gated: true,
        expert_bias: false,
        act: common.act,
        shared: None,
        shared_gate: None,
        balanced: false,
        returns_routers: false,
        latent: None,
        layers: None,
    })
}

/// The router's scales and the norms of the experts' branch.
fn beside_experts(config: &Config<'_>, hidden: u64) -> Result<Vec<Submodule>, ModelError> {
    let norm = |name| Submodule::Norm(Norm::new(name, hidden, GEMMA4.norm));
    Ok(vec![
        Submodule::param("router.scale", &[hidden]),
        Submodule::param("router.per_expert_scale", &[config.size("num_experts")?]),
        norm("post_feedforward_layernorm_1"),
        norm("post_feedforward_layernorm_2"),
        norm("pre_feedforward_layernorm_2"),
    ])
}

/// What mixes a layer's own input in.
fn per_layer(config: &Config<'_>, hidden: u64) -> Result<Vec<Submodule>, ModelError> {
    let own = config.optional("hidden_size_per_layer_input")?.unwrap_or(0);
    if own == 0 {
        return Ok(Vec::new());
    }
    Ok(vec![
        Submodule::Linear(Linear::new("per_layer_input_gate", hidden, own)),
        Submodule::Linear(Linear::new("per_layer_projection", own, hidden)),
        Submodule::Norm(Norm::new("post_per_layer_input_norm", hidden, GEMMA4.norm)),
    ])
}
