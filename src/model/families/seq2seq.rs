//! Encoder-decoders: t5 and its like, bart and its like.

use super::parts;
use super::parts::{LAYER_NORM, activation, decoder, dropout, named_activation, repeated, stack};
use crate::model::architecture::{Architecture, ENCODER, Encoder, LAYERS, Objective};
use crate::model::blocks::Table;
use crate::model::blocks::{
    Activation, Attention, AttentionCode, Block, CrossAttention, Dropout, FeedForward, Linear, Mixer, Mlp,
    Norm, NormKind, Projection, Wiring,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads an encoder-decoder; none where the model type is not one.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    Some(match config.model_type {
        "t5" | "mt5" => t5(config, false),
        "umt5" => t5(config, true),
        "bart" => bart(config, BART),
        "mbart" => bart(config, Bart { before: true, final_norm: true, ..BART }),
        "pegasus" | "blenderbot" => bart(config, PEGASUS),
        "m2m_100" => bart(config, Bart { rows: None, ..PEGASUS }),
        "marian" => bart(config, Bart { rows: Some(0), embedding_norm: false, ..BART }),
        _ => return None,
    })
}

/// The position tables have two rows more than positions.
const BART: Bart = Bart { rows: Some(2), embedding_norm: true, before: false, final_norm: false };

const PEGASUS: Bart = Bart { rows: Some(0), embedding_norm: false, before: true, final_norm: true };

/// Attention between or within the halves.
struct QkNorms {
    hidden: u64,
    heads: u64,
    head_dim: u64,
    dropout: Dropout,
    bias: bool,
}

impl QkNorms {
    fn attention(&self, names: [&'static str; 4], causal: bool, code: AttentionCode) -> Attention {
        let inner = self.heads * self.head_dim;
        let linear = |name, input, output| Linear::new(name, input, output).with_bias(self.bias);
        let [q, k, v, output] = names;
        let projection = Projection::Separate {
            q: linear(q, self.hidden, inner),
            k: linear(k, self.hidden, inner),
            v: linear(v, self.hidden, inner),
        };
        Attention {
            causal,
            dropout: self.dropout,
            ..parts::attention(
                self.heads,
                self.head_dim,
                projection,
                linear(output, inner, self.hidden),
                code,
            )
        }
    }
}

/// t5, mt5, flan-t5; with `everywhere`, every layer has its own bias by distance (umt5).
fn t5(config: &Config<'_>, everywhere: bool) -> Result<Architecture, ModelError> {
    let hidden = config.size("d_model")?;
    let heads = QkNorms {
        hidden,
        heads: config.size("num_heads")?,
        head_dim: config.size("d_kv")?,
        dropout: dropout(config, "dropout_rate")?,
        bias: false,
    };
    let depth = config.depth("num_layers")?;
    let decoder_depth = match config.optional("num_decoder_layers")? {
        Some(_) => config.depth("num_decoder_layers")?,
        None => depth,
    };
    let buckets = config.size("relative_attention_num_buckets")?;
    let norm = |name| Norm::new(name, hidden, NormKind::RmsLate);
    let layer = |first: bool, decodes: bool| -> Result<Block, ModelError> {
        let code = AttentionCode::Standard;
        let mut attention = heads.attention(
            [
                "layer.0.SelfAttention.q",
                "layer.0.SelfAttention.k",
                "layer.0.SelfAttention.v",
                "layer.0.SelfAttention.o",
            ],
            decodes,
            code,
        );
        if first || everywhere {
            attention.position_bias = Some(Table {
                name: "layer.0.SelfAttention.relative_attention_bias",
                rows: buckets,
                width: heads.heads,
            });
        }
        let names = [
            "layer.1.EncDecAttention.q",
            "layer.1.EncDecAttention.k",
            "layer.1.EncDecAttention.v",
            "layer.1.EncDecAttention.o",
        ];
        let cross = CrossAttention {
            norm: norm("layer.1.layer_norm"),
            attention: heads.attention(names, false, code),
        };
        let (mlp, mlp_norm) = if decodes {
            (t5_mlp(config, hidden, T5_DECODER)?, "layer.2.layer_norm")
        } else {
            (t5_mlp(config, hidden, T5_ENCODER)?, "layer.1.layer_norm")
        };
        Ok(Block {
            wiring: Wiring::PreNorm { attention: norm("layer.0.layer_norm"), mlp: norm(mlp_norm) },
            mixer: Mixer::Attention(attention),
            cross: decodes.then_some(cross),
            ffn: FeedForward::Dense(mlp),
            residual_dropout: heads.dropout,
            extra: Vec::new(),
            layout: &["layer.0.", "layer.1.", "layer.2."],
        })
    };
    let (blocks, order) = stack((0..depth).map(|index| index == 0), |first| layer(first, false))?;
    let layers = stack((0..decoder_depth).map(|index| index == 0), |first| layer(first, true))?;
    let mut model = decoder(config, "shared", layers, norm("decoder.final_layer_norm"))?;
    model.encoder = Some(Encoder {
        positions: None,
        norm: None,
        blocks,
        order,
        final_norm: Some(norm("encoder.final_layer_norm")),
        layout: &[],
    });
    model.embeddings.dropout = heads.dropout;
    model.head.objective = Objective::Seq2Seq;
    model.head.tied = config.optional_flag("tie_word_embeddings")?.unwrap_or(true);
    Ok(model)
}

/// Names of the layers of a t5's feed-forward network: without a gate, and with one.
type T5Mlp = (&'static str, [&'static str; 2], &'static str);

const T5_ENCODER: T5Mlp = (
    "layer.1.DenseReluDense.wi",
    ["layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1"],
    "layer.1.DenseReluDense.wo",
);

const T5_DECODER: T5Mlp = (
    "layer.2.DenseReluDense.wi",
    ["layer.2.DenseReluDense.wi_0", "layer.2.DenseReluDense.wi_1"],
    "layer.2.DenseReluDense.wo",
);

fn t5_mlp(config: &Config<'_>, hidden: u64, (plain, gated, down): T5Mlp) -> Result<Mlp, ModelError> {
    let inner = config.size("d_ff")?;
    let named = config.text("feed_forward_proj")?.unwrap_or("relu");
    let (gate, act) = match named.split_once('-') {
        Some(("gated", act)) => (true, act),
        Some(_) => return Err(ModelError::new(format!("feed_forward_proj {named:?} is not known"))),
        None => (false, named),
    };
    // "gated-gelu" stands for gelu_new (T5Config)
    let act = match (gate, act) {
        (true, "gelu") => Activation::GeluNew,
        _ => named_activation("feed_forward_proj", act, config.model_type)?,
    };
    let down = Linear::new(down, inner, hidden);
    Ok(if gate {
        let [gate, up] = gated;
        Mlp::Gated { gate: Linear::new(gate, hidden, inner), up: Linear::new(up, hidden, inner), down, act }
    } else {
        Mlp::Plain { up: Linear::new(plain, hidden, inner), down, act }
    })
}

/// What the models like bart differ in.
#[derive(Clone, Copy, Debug)]
struct Bart {
    /// Rows of the position tables beyond the positions; none where positions are not stored.
    rows: Option<u64>,
    /// A norm on the embeddings.
    embedding_norm: bool,
    /// Norms before the halves instead of after them.
    before: bool,
    /// A norm after the last layer.
    final_norm: bool,
}

/// bart and its like.
fn bart(config: &Config<'_>, kind: Bart) -> Result<Architecture, ModelError> {
    let hidden = config.size("d_model")?;
    let drop = dropout(config, "dropout")?;
    let norm = |name| Norm::new(name, hidden, LAYER_NORM);
    let act = activation(config, "activation_function")?;
    let layer = |heads_key, width_key, decodes: bool| -> Result<Block, ModelError> {
        let count = config.size(heads_key)?;
        let inner = config.size(width_key)?;
        let heads = QkNorms {
            hidden,
            heads: count,
            head_dim: parts::per_head(hidden, count)?,
            dropout: dropout(config, "attention_dropout")?,
            bias: true,
        };
        let own = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"];
        let other =
            ["encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj", "encoder_attn.out_proj"];
        Ok(Block {
            wiring: if kind.before {
                Wiring::PreNorm { attention: norm("self_attn_layer_norm"), mlp: norm("final_layer_norm") }
            } else {
                Wiring::PostNorm { attention: norm("self_attn_layer_norm"), mlp: norm("final_layer_norm") }
            },
            mixer: Mixer::Attention(heads.attention(own, decodes, AttentionCode::Standard)),
            cross: decodes.then(|| CrossAttention {
                norm: norm("encoder_attn_layer_norm"),
                attention: heads.attention(other, false, AttentionCode::Standard),
            }),
            ffn: FeedForward::Dense(Mlp::Plain {
                up: Linear::new("fc1", hidden, inner).with_bias(true),
                down: Linear::new("fc2", inner, hidden).with_bias(true),
                act,
            }),
            residual_dropout: drop,
            extra: Vec::new(),
            layout: &[
                "self_attn.k_proj",
                "self_attn.v_proj",
                "self_attn.q_proj",
                "self_attn.out_proj",
                "self_attn_layer_norm",
                "encoder_attn.k_proj",
                "encoder_attn.v_proj",
                "encoder_attn.q_proj",
                "encoder_attn.out_proj",
                "encoder_attn_layer_norm",
                "fc",
            ],
        })
    };
    let encoding = layer("encoder_attention_heads", "encoder_ffn_dim", false)?;
    let decoding = layer("decoder_attention_heads", "decoder_ffn_dim", true)?;
    let (blocks, order) = repeated(config.depth("encoder_layers")?, encoding);
    let layers = repeated(config.depth("decoder_layers")?, decoding);
    let positions = config.size("max_position_embeddings")?;
    let table = |name| kind.rows.map(|more| Table { name, rows: positions + more, width: hidden });
    let first = |name| kind.embedding_norm.then(|| norm(name));
    let last = |name| kind.final_norm.then(|| norm(name));
    let mut model = decoder(config, "shared", layers, norm(""))?;
    model.final_norm = last("decoder.layer_norm");
    model.encoder = Some(Encoder {
        positions: table("encoder.embed_positions"),
        norm: first("encoder.layernorm_embedding"),
        blocks,
        order,
        final_norm: last("encoder.layer_norm"),
        layout: &[],
    });
    model.embeddings.positions = table("decoder.embed_positions");
    model.embeddings.norm = first("decoder.layernorm_embedding");
    model.embeddings.dropout = drop;
    model.inner_dropout = dropout(config, "activation_dropout")?;
    model.head.objective = Objective::Seq2Seq;
    model.layout = &["shared", ENCODER, "decoder.embed_positions", LAYERS, "decoder.layernorm_embedding"];
    Ok(model)
}
