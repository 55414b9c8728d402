//! Decoders that began in fairseq: opt, xglm, biogpt.

use super::parts;
use super::parts::{LAYER_NORM, activation, decoder, dropout, repeated};
use crate::model::architecture::{Architecture, HeadTransform, LAYERS};
use crate::model::blocks::Table;
use crate::model::blocks::{
    Attention, AttentionCode, Block, FeedForward, Linear, Mixer, Mlp, Norm, NormKind, Projection, Wiring,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads one of them; none where the model type is not one.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    Some(match config.model_type {
        "opt" => opt(config),
        "xglm" => xglm(config),
        "biogpt" => biogpt(config),
        _ => return None,
    })
}

/// The keys and the ways in which they differ.
struct Layer {
    heads: &'static str,
    width: &'static str,
    activation: &'static str,
    dropout: &'static str,
    attention_dropout: &'static str,
    code: AttentionCode,
    bias: bool,
    norm: NormKind,
    before: bool,
}

impl Layer {
    fn block(&self, config: &Config<'_>) -> Result<Block, ModelError> {
        let hidden = config.size("hidden_size")?;
        let heads = config.size(self.heads)?;
        let inner = config.size(self.width)?;
        let linear = |name, input, output| Linear::new(name, input, output).with_bias(self.bias);
        let [attention, mlp] =
            ["self_attn_layer_norm", "final_layer_norm"].map(|name| Norm::new(name, hidden, self.norm));
        let projection = Projection::Separate {
            q: linear("self_attn.q_proj", hidden, hidden),
            k: linear("self_attn.k_proj", hidden, hidden),
            v: linear("self_attn.v_proj", hidden, hidden),
        };
        let output = linear("self_attn.out_proj", hidden, hidden);
        Ok(Block {
            wiring: if self.before {
                Wiring::PreNorm { attention, mlp }
            } else {
                Wiring::PostNorm { attention, mlp }
            },
            mixer: Mixer::Attention(Attention {
                dropout: dropout(config, self.attention_dropout)?,
                ..parts::attention(heads, parts::per_head(hidden, heads)?, projection, output, self.code)
            }),
            cross: None,
            ffn: FeedForward::Dense(Mlp::Plain {
                up: linear("fc1", hidden, inner),
                down: linear("fc2", inner, hidden),
                act: activation(config, self.activation)?,
            }),
            residual_dropout: dropout(config, self.dropout)?,
            extra: Vec::new(),
            layout: &[
                "self_attn.k_proj",
                "self_attn.v_proj",
                "self_attn.q_proj",
                "self_attn.out_proj",
                "self_attn_layer_norm",
                "fc",
            ],
        })
    }
}

/// opt: drops out inside its layers only; the position table has two rows more than positions.
fn opt(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let before = config.flag("do_layer_norm_before")?;
    let affine = config.flag("layer_norm_elementwise_affine")?;
    let norm = if affine { LAYER_NORM } else { NormKind::LayerNormBare };
    let layer = Layer {
        heads: "num_attention_heads",
        width: "ffn_dim",
        activation: "activation_function",
        dropout: "dropout",
        attention_dropout: "attention_dropout",
        code: AttentionCode::Opt,
        bias: config.flag("enable_bias")?,
        norm,
        before,
    };
    let block = layer.block(config)?;
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    let mut model = decoder(config, "embed_tokens", layers, Norm::new("final_layer_norm", hidden, norm))?;
    let rows = config.size("max_position_embeddings")? + 2;
    model.embeddings.positions = Some(Table { name: "embed_positions", rows, width: hidden });
    model.layout =
        &["embed_tokens", "embed_positions", "project_out", "project_in", "final_layer_norm", LAYERS];
    if !before || config.flag("_remove_final_layer_norm")? {
        model.final_norm = None;
    }
    let width = config.size_or("word_embed_proj_dim", hidden)?;
    if width != hidden {
        model.embeddings.tokens.width = width;
        model.embeddings.project_in = Some(Linear::new("project_in", width, hidden));
        model.head.transform = Some(HeadTransform::Project(Linear::new("project_out", hidden, width)));
        model.head.linear.input = width;
    }
    Ok(model)
}

/// xglm: positions are computed, not learned.
fn xglm(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let layer = Layer {
        heads: "attention_heads",
        width: "ffn_dim",
        activation: "activation_function",
        dropout: "dropout",
        attention_dropout: "attention_dropout",
        code: AttentionCode::Unmodelled("xglm"),
        bias: true,
        norm: LAYER_NORM,
        before: true,
    };
    let block = layer.block(config)?;
    let layers = repeated(config.depth("num_layers")?, block);
    let mut model = decoder(config, "embed_tokens", layers, Norm::new("layer_norm", hidden, LAYER_NORM))?;
    model.embeddings.scaled = config.flag("scale_embedding")?;
    model.embeddings.dropout = dropout(config, "dropout")?;
    Ok(model)
}

/// biogpt: opt's positions, another head.
fn biogpt(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let layer = Layer {
        heads: "num_attention_heads",
        width: "intermediate_size",
        activation: "hidden_act",
        dropout: "hidden_dropout_prob",
        attention_dropout: "attention_probs_dropout_prob",
        code: AttentionCode::Standard,
        bias: true,
        norm: LAYER_NORM,
        before: true,
    };
    let block = layer.block(config)?;
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    let mut model = decoder(config, "embed_tokens", layers, Norm::new("layer_norm", hidden, LAYER_NORM))?;
    let rows = config.size("max_position_embeddings")? + 2;
    model.embeddings.positions = Some(Table { name: "embed_positions", rows, width: hidden });
    // the code multiplies by 1 where the config says not to
    model.embeddings.scaled = true;
    model.embeddings.dropout = dropout(config, "hidden_dropout_prob")?;
    model.inner_dropout = dropout(config, "activation_dropout")?;
    model.head.linear.name = "output_projection";
    Ok(model)
}
