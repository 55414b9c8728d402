//! The decoders from before llama: gpt2, gpt_bigcode, gpt_neo, gpt_neox, bloom, falcon, mpt.

use super::parts;
use super::parts::{LAYER_NORM, activation, decoder, dropout, per_head, repeated, rotated};
use crate::model::architecture::Architecture;
use crate::model::blocks::Table;
use crate::model::blocks::{
    Activation, Attention, AttentionCode, Block, FeedForward, Linear, LinearClass, Mixer, Mlp, Norm,
    NormKind, Projection, Rotary, Wiring,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads a decoder from before llama; none where the model type is not one.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    Some(match config.model_type {
        "gpt2" => gpt2(config, LinearClass::Conv1d),
        "gpt-sw3" => gpt2(&config.like("gpt2"), LinearClass::Conv1d),
        "openai-gpt" => openai_gpt(config),
        "gpt_bigcode" => gpt_bigcode(config),
        "gpt_neo" => gpt_neo(config),
        "gpt_neox" => gpt_neox(config),
        "bloom" => bloom(config),
        "falcon" => falcon(config),
        // the names of falcon's own code, from before transformers had it
        "RefinedWeb" | "RefinedWebModel" => falcon(&config.like("falcon")),
        "mpt" => mpt(config),
        _ => return None,
    })
}

/// Multi-head attention with every head alike and one projection for q, k and v.
fn fused(
    hidden: u64,
    heads: u64,
    qkv: Linear,
    output: Linear,
    code: AttentionCode,
) -> Result<Attention, ModelError> {
    Ok(parts::attention(heads, per_head(hidden, heads)?, Projection::Fused(qkv), output, code))
}

/// gpt2 and its like (cerebras, dialogpt, distilgpt2).
fn gpt2(config: &Config<'_>, class: LinearClass) -> Result<Architecture, ModelError> {
    gpt2_with(config, class, activation(config, "activation_function")?)
}

/// The same with that activation.
fn gpt2_with(config: &Config<'_>, class: LinearClass, act: Activation) -> Result<Architecture, ModelError> {
    let hidden = config.size("n_embd")?;
    let heads = config.size("n_head")?;
    let inner = config.size_or("n_inner", 4 * hidden)?;
    let conv = |name, input, output| Linear::new(name, input, output).with_bias(true).with_class(class);
    // Megatron's GPT may have fewer heads of keys and values (num_query_groups); transformers' code knows no such key
    let groups = match config.model_type {
        "gpt2" => config.size_or("num_query_groups", heads)?,
        _ => heads,
    };
    let joint = hidden.saturating_add(per_head(hidden, heads)?.saturating_mul(groups).saturating_mul(2));
    let attention = Attention {
        kv_heads: groups,
        // gpt_bigcode's and openai-gpt's code does not read it
        upcast: config.model_type == "gpt2" && config.flag("reorder_and_upcast_attn")?,
        dropout: dropout(config, "attn_pdrop")?,
        ..fused(
            hidden,
            heads,
            conv("attn.c_attn", hidden, joint),
            conv("attn.c_proj", hidden, hidden),
            AttentionCode::Gpt2,
        )?
    };
    let block = Block {
        wiring: Wiring::PreNorm {
            attention: Norm::new("ln_1", hidden, LAYER_NORM),
            mlp: Norm::new("ln_2", hidden, LAYER_NORM),
        },
        mixer: Mixer::Attention(attention),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Plain {
            up: conv("mlp.c_fc", hidden, inner),
            down: conv("mlp.c_proj", inner, hidden),
            act,
        }),
        residual_dropout: dropout(config, "resid_pdrop")?,
        extra: Vec::new(),
        layout: &["ln_1", "attn.", "ln_2", "mlp."],
    };
    let layers = repeated(config.depth("n_layer")?, block);
    let mut model = decoder(config, "wte", layers, Norm::new("ln_f", hidden, LAYER_NORM))?;
    model.embeddings.positions =
        Some(Table { name: "wpe", rows: config.size("n_positions")?, width: hidden });
    model.embeddings.dropout = dropout(config, "embd_pdrop")?;
    Ok(model)
}

/// openai-gpt: gpt2 with its norms after the halves.
fn openai_gpt(config: &Config<'_>) -> Result<Architecture, ModelError> {
    // its own table of activations says gelu and means gelu_new
    let act = match config.text("afn")? {
        Some("gelu") => Activation::GeluNew,
        _ => activation(config, "afn")?,
    };
    let mut model = gpt2_with(config, LinearClass::Conv1d, act)?;
    for block in &mut model.blocks {
        if let Wiring::PreNorm { attention, mlp } = block.wiring.clone() {
            block.wiring = Wiring::PostNorm { attention, mlp };
        }
        block.layout = &["attn.", "ln_1", "mlp."];
    }
    model.final_norm = None;
    model.embeddings.tokens.name = "tokens_embed";
    if let Some(table) = &mut model.embeddings.positions {
        table.name = "positions_embed";
    }
    Ok(model)
}

/// gpt_bigcode: gpt2 with `nn.Linear` and, mostly, one head of keys and values.
fn gpt_bigcode(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let mut model = gpt2(config, LinearClass::Linear)?;
    if config.optional_flag("multi_query")?.unwrap_or(true) {
        for block in &mut model.blocks {
            if let Mixer::Attention(attention) = &mut block.mixer {
                attention.kv_heads = 1;
                if let Projection::Fused(linear) = &mut attention.projection {
                    linear.output = linear.input + 2 * attention.head_dim;
                }
            }
        }
    }
    for block in &mut model.blocks {
        if let Mixer::Attention(attention) = &mut block.mixer {
            attention.code = AttentionCode::Standard;
        }
    }
    Ok(model)
}

/// gpt_neo: local layers see a window only, for which their code changes what is in a mask of the same size as the others'.
/// Which ones they are (`attention_types`) makes no difference.
fn gpt_neo(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let inner = config.size_or("intermediate_size", 4 * hidden)?;
    let projection = Projection::Separate {
        q: Linear::new("attn.attention.q_proj", hidden, hidden),
        k: Linear::new("attn.attention.k_proj", hidden, hidden),
        v: Linear::new("attn.attention.v_proj", hidden, hidden),
    };
    let output = Linear::new("attn.attention.out_proj", hidden, hidden).with_bias(true);
    let attention = Attention {
        dropout: dropout(config, "attention_dropout")?,
        ..parts::attention(heads, per_head(hidden, heads)?, projection, output, AttentionCode::Own)
    };
    let block = Block {
        wiring: Wiring::PreNorm {
            attention: Norm::new("ln_1", hidden, LAYER_NORM),
            mlp: Norm::new("ln_2", hidden, LAYER_NORM),
        },
        mixer: Mixer::Attention(attention),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Plain {
            up: Linear::new("mlp.c_fc", hidden, inner).with_bias(true),
            down: Linear::new("mlp.c_proj", inner, hidden).with_bias(true),
            act: activation(config, "activation_function")?,
        }),
        residual_dropout: dropout(config, "resid_dropout")?,
        extra: Vec::new(),
        layout: &[
            "ln_1",
            "attn.attention.k_proj",
            "attn.attention.v_proj",
            "attn.attention.q_proj",
            "attn.",
            "ln_2",
        ],
    };
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    let mut model = decoder(config, "wte", layers, Norm::new("ln_f", hidden, LAYER_NORM))?;
    let rows = config.size("max_position_embeddings")?;
    model.embeddings.positions = Some(Table { name: "wpe", rows, width: hidden });
    model.embeddings.dropout = dropout(config, "embed_dropout")?;
    Ok(model)
}

/// mpt: alibi, no bias anywhere.
fn mpt(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("d_model")?;
    let heads = config.size("n_heads")?;
    let norm = |name| Norm::new(name, hidden, NormKind::LayerNorm { bias: false });
    let own = config.nested("attn_config", "mpt")?;
    let attention = Attention {
        rotary: Rotary::Alibi,
        clipped: own.number("clip_qkv")?.is_some_and(|limit| limit != 0.0),
        dropout: dropout(&own, "attn_pdrop")?,
        ..fused(
            hidden,
            heads,
            Linear::new("attn.Wqkv", hidden, 3 * hidden),
            Linear::new("attn.out_proj", hidden, hidden),
            AttentionCode::Own,
        )?
    };
    let block = Block {
        wiring: Wiring::PreNorm { attention: norm("norm_1"), mlp: norm("norm_2") },
        mixer: Mixer::Attention(attention),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Plain {
            up: Linear::new("ffn.up_proj", hidden, 4 * hidden),
            down: Linear::new("ffn.down_proj", 4 * hidden, hidden),
            act: Activation::Gelu,
        }),
        // its code reads neither `resid_pdrop` nor `emb_pdrop`
        residual_dropout: dropout(&own, "attn_pdrop")?,
        extra: Vec::new(),
        layout: &["norm_1", "attn.", "norm_2"],
    };
    let layers = repeated(config.depth("n_layers")?, block);
    decoder(config, "wte", layers, norm("norm_f"))
}

/// gpt_neox: pythia, dolly, redpajama.
fn gpt_neox(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let inner = config.size("intermediate_size")?;
    let bias = config.flag("attention_bias")?;
    let attention = Attention {
        rotary: Rotary::Partial { dim: neox_rotated(config, per_head(hidden, heads)?)? },
        dropout: dropout(config, "attention_dropout")?,
        ..fused(
            hidden,
            heads,
            Linear::new("attention.query_key_value", hidden, 3 * hidden).with_bias(bias),
            Linear::new("attention.dense", hidden, hidden).with_bias(bias),
            AttentionCode::Standard,
        )?
    };
    let [first, second] =
        ["input_layernorm", "post_attention_layernorm"].map(|name| Norm::new(name, hidden, LAYER_NORM));
    let block = Block {
        wiring: if config.flag("use_parallel_residual")? {
            Wiring::Parallel { attention: first, mlp: Some(second) }
        } else {
            Wiring::PreNorm { attention: first, mlp: second }
        },
        mixer: Mixer::Attention(attention),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Plain {
            up: Linear::new("mlp.dense_h_to_4h", hidden, inner).with_bias(true),
            down: Linear::new("mlp.dense_4h_to_h", inner, hidden).with_bias(true),
            act: activation(config, "hidden_act")?,
        }),
        residual_dropout: dropout(config, "hidden_dropout")?,
        extra: Vec::new(),
        layout: &["input_layernorm", "post_attention_layernorm"],
    };
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    let mut model = decoder(config, "embed_in", layers, Norm::new("final_layer_norm", hidden, LAYER_NORM))?;
    model.embeddings.dropout = dropout(config, "hidden_dropout")?;
    Ok(model)
}

/// gpt_neox calls the share `rotary_pct`; newer files call it `partial_rotary_factor`.
fn neox_rotated(config: &Config<'_>, head_dim: u64) -> Result<u64, ModelError> {
    let key = if config.has("rotary_pct") { "rotary_pct" } else { "partial_rotary_factor" };
    rotated(config, head_dim, key, 0.25)
}

/// bloom.
fn bloom(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("n_embed")?;
    let heads = config.size("n_head")?;
    let linear = |name, input, output| Linear::new(name, input, output).with_bias(true);
    let attention = Attention {
        rotary: Rotary::Alibi,
        dropout: dropout(config, "attention_dropout")?,
        ..fused(
            hidden,
            heads,
            linear("self_attention.query_key_value", hidden, 3 * hidden),
            linear("self_attention.dense", hidden, hidden),
            AttentionCode::Bloom,
        )?
    };
    let block = Block {
        wiring: Wiring::PreNorm {
            attention: Norm::new("input_layernorm", hidden, LAYER_NORM),
            mlp: Norm::new("post_attention_layernorm", hidden, LAYER_NORM),
        },
        mixer: Mixer::Attention(attention),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Plain {
            up: linear("mlp.dense_h_to_4h", hidden, 4 * hidden),
            down: linear("mlp.dense_4h_to_h", 4 * hidden, hidden),
            act: Activation::BloomGelu,
        }),
        residual_dropout: dropout(config, "hidden_dropout")?,
        extra: Vec::new(),
        layout: &["input_layernorm", "self_attention.", "post_attention_layernorm"],
    };
    let layers = repeated(config.depth("n_layer")?, block);
    let mut model = decoder(config, "word_embeddings", layers, Norm::new("ln_f", hidden, LAYER_NORM))?;
    model.hidden = hidden;
    model.embeddings.norm = Some(Norm::new("word_embeddings_layernorm", hidden, LAYER_NORM));
    Ok(model)
}

/// falcon 1 and 2 (falcon 3 is a llama).
fn falcon(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let head_dim = per_head(hidden, heads)?;
    let inner = config.size_or("ffn_hidden_size", 4 * hidden)?;
    let bias = config.flag("bias")?;
    let newer = config.flag("new_decoder_architecture")?;
    let listed = config.size_or("num_kv_heads", heads)?;
    let (kv_heads, qkv) = match (newer, config.flag("multi_query")?) {
        (true, _) => (listed, (2 * listed + heads) * head_dim),
        (false, true) => (1, hidden + 2 * head_dim),
        (false, false) => (listed, 3 * hidden),
    };
    let linear = |name, input, output| {
        Linear::new(name, input, output).with_bias(bias).with_class(LinearClass::Subclass)
    };
    let attention = Attention {
        kv_heads,
        rotary: if config.flag("alibi")? { Rotary::Alibi } else { Rotary::Full },
        dropout: dropout(config, "attention_dropout")?,
        ..fused(
            hidden,
            heads,
            linear("self_attention.query_key_value", hidden, qkv),
            linear("self_attention.dense", hidden, hidden),
            if newer { AttentionCode::FalconGrouped } else { AttentionCode::Falcon },
        )?
    };
    let norm = |name| Norm::new(name, hidden, LAYER_NORM);
    let norms = config.optional("num_ln_in_parallel_attn")?.unwrap_or(if newer { 2 } else { 1 });
    let wiring = match (config.flag("parallel_attn")?, norms) {
        (false, _) => {
            Wiring::PreNorm { attention: norm("input_layernorm"), mlp: norm("post_attention_layernorm") }
        }
        (true, 2) => Wiring::Parallel { attention: norm("ln_attn"), mlp: Some(norm("ln_mlp")) },
        (true, _) => Wiring::Parallel { attention: norm("input_layernorm"), mlp: None },
    };
    let block = Block {
        wiring,
        mixer: Mixer::Attention(attention),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Plain {
            up: linear("mlp.dense_h_to_4h", hidden, inner),
            down: linear("mlp.dense_4h_to_h", inner, hidden),
            act: activation(config, "activation")?,
        }),
        residual_dropout: dropout(config, "hidden_dropout")?,
        extra: Vec::new(),
        layout: &["self_attention.", "mlp.", "post_attention_layernorm"],
    };
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    decoder(config, "word_embeddings", layers, Norm::new("ln_f", hidden, LAYER_NORM))
}
