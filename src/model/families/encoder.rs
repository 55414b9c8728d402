//! Encoders with a masked-language-model head: bert and its like.

use super::parts::{LAYER_NORM, activation, decoder, dropout, stack};
use crate::model::blocks::{
    Attention, AttentionCode, Block, FeedForward, Linear, Mixer, Mlp, Norm, Projection, Rotary, Wiring,
};
use crate::model::config::Config;
use crate::model::{Architecture, HeadTransform, LAYERS, Objective, Table};
use crate::scenario::Issue;

/// bert.
pub fn bert(config: &Config<'_>) -> Result<Architecture, Issue> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let inner = config.size("intermediate_size")?;
    let drop = dropout(config, "hidden_dropout_prob")?;
    let linear = |name, input, output| Linear::new(name, input, output).with_bias(true);
    let norm = |name| Norm::new(name, hidden, LAYER_NORM);
    let block = Block {
        wiring: Wiring::PostNorm {
            attention: norm("attention.output.LayerNorm"),
            mlp: norm("output.LayerNorm"),
        },
        mixer: Mixer::Attention(Attention {
            heads,
            kv_heads: heads,
            head_dim: hidden / heads,
            projection: Projection::Separate {
                q: linear("attention.self.query", hidden, hidden),
                k: linear("attention.self.key", hidden, hidden),
                v: linear("attention.self.value", hidden, hidden),
            },
            output: linear("attention.output.dense", hidden, hidden),
            qk_norm: None,
            rotary: Rotary::None,
            window: None,
            softcap: false,
            causal: false,
            sinks: false,
            dropout: dropout(config, "attention_probs_dropout_prob")?,
            code: AttentionCode::Bert,
        }),
        ffn: FeedForward::Dense(Mlp::Plain {
            up: linear("intermediate.dense", hidden, inner),
            down: linear("output.dense", inner, hidden),
            act: activation(config, "hidden_act")?,
        }),
        residual_dropout: drop,
        layout: &["attention.self.", "attention.output."],
    };
    let layers = stack(config.depth("num_hidden_layers")?, |_| Ok(block.clone()))?;
    let mut model = decoder(config, "embeddings.word_embeddings", layers, norm(""))?;
    model.final_norm = None;
    let table = |name, rows| Some(Table { name, rows, width: hidden });
    model.embeddings.positions =
        table("embeddings.position_embeddings", config.size("max_position_embeddings")?);
    model.embeddings.token_types = table("embeddings.token_type_embeddings", config.size("type_vocab_size")?);
    model.embeddings.norm = Some(norm("embeddings.LayerNorm"));
    model.embeddings.dropout = drop;
    model.head.objective = Objective::MaskedLm;
    model.head.linear = linear("cls.predictions", hidden, model.vocab);
    model.head.transform = Some(HeadTransform::Dense {
        dense: linear("cls.predictions.transform.dense", hidden, hidden),
        norm: norm("cls.predictions.transform.LayerNorm"),
    });
    model.layout = &["embeddings.", LAYERS, "cls.predictions.bias"];
    Ok(model)
}
