//! Decoders whose shape nothing else has: dbrx, and the own code of qwen 1 and chatglm.

use super::parts;
use super::parts::{LAYER_NORM, activation, decoder, dropout, repeated};
use crate::model::architecture::Architecture;
use crate::model::blocks::{
    Activation, Attention, AttentionCode, Block, Dropout, ExpertLayout, ExpertNames, FeedForward, Linear,
    Mixer, Mlp, Moe, Norm, NormKind, Projection, Rotary, Wiring,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads one of them; none where the model type is not one.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    Some(match config.model_type {
        "dbrx" => dbrx(config),
        "qwen" => qwen(config),
        "chatglm" => chatglm(config),
        _ => return None,
    })
}

/// dbrx: LayerNorm without bias, experts whose matrices lie in three flat tensors.
fn dbrx(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("d_model")?;
    let heads = config.size("n_heads")?;
    let own = config.nested("attn_config", "dbrx_attention")?;
    let ffn = config.nested("ffn_config", "dbrx_ffn")?;
    let kv_heads = own.size_or("kv_n_heads", 1)?;
    let head_dim = parts::per_head(hidden, heads)?;
    let experts = ffn.size_or("moe_num_experts", 4)?;
    let norm = |name| Norm::new(name, hidden, NormKind::LayerNorm { bias: false });
    let projection =
        Projection::Fused(Linear::new("norm_attn_norm.attn.Wqkv", hidden, hidden + 2 * kv_heads * head_dim));
    let output = Linear::new("norm_attn_norm.attn.out_proj", hidden, hidden);
    let block = Block {
        wiring: Wiring::PreNorm {
            attention: norm("norm_attn_norm.norm_1"),
            mlp: norm("norm_attn_norm.norm_2"),
        },
        mixer: Mixer::Attention(Attention {
            kv_heads,
            rotary: Rotary::Full,
            dropout: dropout(&own, "attn_pdrop")?,
            ..parts::attention(heads, head_dim, projection, output, AttentionCode::Standard)
        }),
        cross: None,
        ffn: FeedForward::Moe(Box::new(Moe {
            names: ExpertNames {
                first: "ffn.experts.mlp.w1",
                last: "ffn.experts.mlp.w2",
                layout: ExpertLayout::Flat("ffn.experts.mlp.v1"),
            },
            router: Linear::new("ffn.router.layer", hidden, experts),
            router_is_linear: true,
            correction: None,
            experts,
            top_k: ffn.size_or("moe_top_k", 1)?,
            groups: [1, 1],
            expert_width: ffn.size_or("ffn_hidden_size", 3584)?,
            hidden,
            gated: true,
            expert_bias: false,
            act: Activation::Silu,
            shared: None,
            shared_gate: None,
            balanced: false,
            returns_routers: false,
            latent: None,
            layers: None,
        })),
        residual_dropout: dropout(config, "resid_pdrop")?,
        extra: Vec::new(),
        layout: &["norm_attn_norm.norm_1", "norm_attn_norm.attn.", "norm_attn_norm.norm_2"],
    };
    let layers = repeated(config.depth("n_layers")?, block);
    let mut model = decoder(config, "wte", layers, norm("norm_f"))?;
    model.embeddings.dropout = dropout(config, "emb_pdrop")?;
    Ok(model)
}

/// qwen 1 (not 1.5): its own code. The feed-forward width is half of what the config says.
fn qwen(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let head_dim = parts::head_dim(config, "kv_channels", hidden, heads)?;
    let width = config.size("intermediate_size")? / 2;
    let bias = !config.optional_flag("no_bias")?.unwrap_or(true);
    let norm = |name| Norm::new(name, hidden, NormKind::Rms);
    let projected = heads * head_dim;
    let projection = Projection::Fused(Linear::new("attn.c_attn", hidden, 3 * projected).with_bias(true));
    let output = Linear::new("attn.c_proj", projected, hidden).with_bias(bias);
    let linear = |name, input, output| Linear::new(name, input, output).with_bias(bias);
    let block = Block {
        wiring: Wiring::PreNorm { attention: norm("ln_1"), mlp: norm("ln_2") },
        mixer: Mixer::Attention(Attention {
            rotary: Rotary::Full,
            dropout: dropout(config, "attn_dropout_prob")?,
            ..parts::attention(heads, head_dim, projection, output, AttentionCode::Standard)
        }),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Gated {
            gate: linear("mlp.w2", hidden, width),
            up: linear("mlp.w1", hidden, width),
            down: linear("mlp.c_proj", width, hidden),
            act: Activation::Silu,
        }),
        residual_dropout: Dropout::default(),
        extra: Vec::new(),
        layout: &["ln_1", "attn.", "ln_2", "mlp.w1"],
    };
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    let mut model = decoder(config, "wte", layers, norm("ln_f"))?;
    model.embeddings.dropout = dropout(config, "emb_dropout_prob")?;
    Ok(model)
}

/// chatglm 2 and 3: their own code.
fn chatglm(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let head_dim = parts::head_dim(config, "kv_channels", hidden, heads)?;
    let width = config.size("ffn_hidden_size")?;
    let kv_heads =
        if config.flag("multi_query_attention")? { config.size("multi_query_group_num")? } else { heads };
    let bias = config.flag("add_bias_linear")?;
    let qkv_bias = bias || config.flag("add_qkv_bias")?;
    let rms = config.optional_flag("rmsnorm")?.unwrap_or(true);
    let norm = |name| Norm::new(name, hidden, if rms { NormKind::Rms } else { LAYER_NORM });
    let queries = heads * head_dim;
    let projection = Projection::Fused(
        Linear::new("self_attention.query_key_value", hidden, queries + 2 * kv_heads * head_dim)
            .with_bias(qkv_bias),
    );
    let output = Linear::new("self_attention.dense", queries, hidden).with_bias(bias);
    let block = Block {
        wiring: Wiring::PreNorm { attention: norm("input_layernorm"), mlp: norm("post_attention_layernorm") },
        mixer: Mixer::Attention(Attention {
            kv_heads,
            rotary: Rotary::Interleaved { dim: head_dim / 2 },
            dropout: dropout(config, "attention_dropout")?,
            ..parts::attention(heads, head_dim, projection, output, AttentionCode::Standard)
        }),
        cross: None,
        ffn: FeedForward::Dense(Mlp::GatedFused {
            gate_up: Linear::new("mlp.dense_h_to_4h", hidden, 2 * width).with_bias(bias),
            down: Linear::new("mlp.dense_4h_to_h", width, hidden).with_bias(bias),
            act: activation(config, "hidden_act")?,
        }),
        residual_dropout: dropout(config, "hidden_dropout")?,
        extra: Vec::new(),
        layout: &["input_layernorm", "self_attention.", "post_attention_layernorm"],
    };
    let layers = repeated(config.depth("num_layers")?, block);
    let mut model = decoder(config, "embedding.word_embeddings", layers, norm("encoder.final_layernorm"))?;
    model.head.linear.name = "output_layer";
    if !config.optional_flag("post_layer_norm")?.unwrap_or(true) {
        model.final_norm = None;
    }
    Ok(model)
}
