//! Encoders with a masked-language-model head: bert and those made like it.

use super::classifier;
use super::llama;
use super::parts;
use super::parts::{LAYER_NORM, activation, decoder, dropout, repeated, stack};
use super::variant::LLAMA;
use crate::model::architecture::{Architecture, HeadTransform, LAYERS, Objective};
use crate::model::blocks::Table;
use crate::model::blocks::{
    Activation, Attention, AttentionCode, Block, Dropout, FeedForward, Linear, Mixer, Mlp, Norm, NormKind,
    Projection, Registration, Rotary, Submodule, Wiring,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// What an encoder like bert calls its parts.
#[derive(Clone, Copy, Debug)]
struct Names {
    /// Queries, keys, values, output.
    attention: [&'static str; 4],
    /// The norm after attention and the one after the feed-forward network.
    norms: [&'static str; 2],
    /// The two layers of the feed-forward network.
    mlp: [&'static str; 2],
    /// Words, positions, token types.
    tables: [&'static str; 3],
    /// The norm on the embeddings.
    embedding_norm: &'static str,
    /// Dense, norm and projection of the head.
    head: [&'static str; 3],
    /// Key of the head's activation; none where it is always gelu.
    head_act: Option<&'static str>,
    /// Keys of width, activation, dropout and attention dropout.
    keys: [&'static str; 4],
    /// Whose attention runs.
    code: AttentionCode,
    /// Order of a layer.
    layer: Registration,
    /// Order of the model.
    model: Registration,
}

const BERT: Names = Names {
    attention: [
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
    ],
    norms: ["attention.output.LayerNorm", "output.LayerNorm"],
    mlp: ["intermediate.dense", "output.dense"],
    tables: [
        "embeddings.word_embeddings",
        "embeddings.position_embeddings",
        "embeddings.token_type_embeddings",
    ],
    embedding_norm: "embeddings.LayerNorm",
    head: ["cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions"],
    head_act: Some("hidden_act"),
    keys: ["intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"],
    code: AttentionCode::Bert,
    layer: &["attention.self.", "attention.output.", "intermediate.", "output.dense"],
    model: &["embeddings.", LAYERS, "cls.predictions.bias"],
};

const ROBERTA: Names = Names {
    head: ["lm_head.dense", "lm_head.layer_norm", "lm_head"],
    head_act: None,
    model: &[
        "embeddings.word_embeddings",
        "embeddings.token_type_embeddings",
        "embeddings.LayerNorm",
        "embeddings.position_embeddings",
        LAYERS,
        "lm_head.bias",
    ],
    ..BERT
};

/// The head is registered first, and with it the words.
const XLM_ROBERTA: Names = Names {
    model: &[
        "lm_head.bias",
        "lm_head.",
        "embeddings.word_embeddings",
        "embeddings.token_type_embeddings",
        "embeddings.LayerNorm",
        "embeddings.position_embeddings",
    ],
    ..ROBERTA
};

const DISTILBERT: Names = Names {
    attention: ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"],
    norms: ["sa_layer_norm", "output_layer_norm"],
    mlp: ["ffn.lin1", "ffn.lin2"],
    head: ["vocab_transform", "vocab_layer_norm", "vocab_projector"],
    head_act: Some("activation"),
    keys: ["hidden_dim", "activation", "dropout", "attention_dropout"],
    layer: &["attention.", "sa_layer_norm", "ffn."],
    model: &["embeddings.", LAYERS],
    ..BERT
};

const DEBERTA_V2: Names = Names {
    attention: [
        "attention.self.query_proj",
        "attention.self.key_proj",
        "attention.self.value_proj",
        "attention.output.dense",
    ],
    code: AttentionCode::Own,
    model: &["embeddings.", LAYERS, "encoder.", "cls.predictions.bias"],
    ..BERT
};

const MPNET: Names = Names {
    attention: ["attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"],
    norms: ["attention.LayerNorm", "output.LayerNorm"],
    code: AttentionCode::Unmodelled("mpnet"),
    layer: &["attention.attn.", "attention.LayerNorm", "intermediate.", "output.dense"],
    model: &["embeddings.", LAYERS, "encoder.", "lm_head.bias"],
    ..ROBERTA
};

/// Reads an encoder; none where the model type is not one.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    let model = match config.model_type {
        "bert" => bert(config, &BERT),
        "ernie" => ernie(config),
        "roberta" | "data2vec-text" => bert(config, &ROBERTA).and_then(|model| behind_padding(config, model)),
        "xlm-roberta" | "camembert" => {
            bert(config, &XLM_ROBERTA).and_then(|model| behind_padding(config, model))
        }
        "distilbert" => bert(config, &DISTILBERT),
        "mpnet" => mpnet(config).and_then(|model| behind_padding(config, model)),
        "deberta-v2" => deberta_v2(config),
        "electra" => electra(config),
        "albert" => albert(config),
        "modernbert" => modernbert(config),
        "eurobert" => eurobert(config),
        _ => return None,
    };
    Some(model.and_then(|model| classifier::added(model, config)))
}

fn layer_norm(name: &'static str, width: u64) -> Norm {
    Norm::new(name, width, LAYER_NORM)
}

/// Whether the projection to the vocabulary is the words' table.
fn tied(config: &Config<'_>) -> Result<bool, ModelError> {
    Ok(config.optional_flag("tie_word_embeddings")?.unwrap_or(true))
}

fn block(config: &Config<'_>, names: &Names) -> Result<Block, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let [width, act, drop, attention_drop] = names.keys;
    let inner = config.size(width)?;
    let linear = |name, input, output| Linear::new(name, input, output).with_bias(true);
    let [q, k, v, output] = names.attention;
    let [up, down] = names.mlp;
    Ok(Block {
        wiring: Wiring::PostNorm {
            attention: layer_norm(names.norms[0], hidden),
            mlp: layer_norm(names.norms[1], hidden),
        },
        mixer: Mixer::Attention(Attention {
            causal: false,
            dropout: dropout(config, attention_drop)?,
            ..parts::attention(
                heads,
                parts::per_head(hidden, heads)?,
                Projection::Separate {
                    q: linear(q, hidden, hidden),
                    k: linear(k, hidden, hidden),
                    v: linear(v, hidden, hidden),
                },
                linear(output, hidden, hidden),
                names.code,
            )
        }),
        cross: None,
        ffn: FeedForward::Dense(Mlp::Plain {
            up: linear(up, hidden, inner),
            down: linear(down, inner, hidden),
            act: activation(config, act)?,
        }),
        residual_dropout: dropout(config, drop)?,
        extra: Vec::new(),
        layout: names.layer,
    })
}

fn bert(config: &Config<'_>, names: &Names) -> Result<Architecture, ModelError> {
    let block = block(config, names)?;
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    around(config, names, layers)
}

/// Embeddings and head around the layers.
fn around(
    config: &Config<'_>,
    names: &Names,
    layers: (Vec<Block>, Vec<u16>),
) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let [words, positions, types] = names.tables;
    let [dense, norm, projection] = names.head;
    let mut model = decoder(config, words, layers, layer_norm("", hidden))?;
    model.final_norm = None;
    let table = |name, rows| Table { name, rows, width: hidden };
    model.embeddings.positions = Some(table(positions, config.size("max_position_embeddings")?));
    model.embeddings.token_types =
        config.optional("type_vocab_size")?.filter(|rows| *rows > 0).map(|rows| table(types, rows));
    model.embeddings.norm = Some(layer_norm(names.embedding_norm, hidden));
    model.embeddings.dropout = dropout(config, names.keys[2])?;
    model.head.objective = Objective::MaskedLm;
    model.head.tied = tied(config)?;
    model.head.linear = Linear::new(projection, hidden, model.vocab).with_bias(true);
    model.head.transform = Some(HeadTransform::Dense {
        dense: Linear::new(dense, hidden, hidden).with_bias(true),
        act: match names.head_act {
            Some(key) => activation(config, key)?,
            None => Activation::Gelu,
        },
        norm: layer_norm(norm, hidden),
    });
    model.layout = names.model;
    Ok(model)
}

/// roberta and its kin number positions from behind the padding's number on, so that a text has as many fewer
/// (modeling_roberta.py `create_position_ids_from_input_ids`): 512 of 514.
fn behind_padding(config: &Config<'_>, mut model: Architecture) -> Result<Architecture, ModelError> {
    let first = config.optional("pad_token_id")?.unwrap_or(1).saturating_add(1);
    model.max_positions = model.max_positions.map(|positions| positions.saturating_sub(first));
    Ok(model)
}

/// ernie: bert, with task types if it is told so.
fn ernie(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let mut model = bert(config, &BERT)?;
    if config.flag("use_task_id")? {
        let rows = config.size("task_type_vocab_size")?;
        let table = Table { name: "embeddings.task_type_embeddings", rows, width: model.hidden };
        model.extra.push(Submodule::Table(table));
    }
    Ok(model)
}

/// mpnet: roberta without token types, with a bias by distance that all layers share.
fn mpnet(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let mut model = bert(config, &MPNET)?;
    model.embeddings.token_types = None;
    let buckets = config.size("relative_attention_num_buckets")?;
    let heads = config.size("num_attention_heads")?;
    model.extra.push(Submodule::Table(Table {
        name: "encoder.relative_attention_bias",
        rows: buckets,
        width: heads,
    }));
    Ok(model)
}

/// deberta-v2 and v3: attention to contents and to relative positions.
fn deberta_v2(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let relative = config.flag("relative_attention")?;
    let kinds = match config.text("pos_att_type") {
        Ok(text) => text.unwrap_or("").split('|').map(str::trim).collect::<Vec<_>>(),
        Err(_) => config.texts("pos_att_type")?.unwrap_or_default(),
    };
    let mut block = block(config, &DEBERTA_V2)?;
    if relative && !config.flag("share_att_key")? {
        for (kind, name) in [("c2p", "attention.self.pos_key_proj"), ("p2c", "attention.self.pos_query_proj")]
        {
            if kinds.contains(&kind) {
                block.extra.push(Submodule::Linear(Linear::new(name, hidden, hidden).with_bias(true)));
            }
        }
    }
    if let (true, Mixer::Attention(attention)) =
        (!relative || !["c2p", "p2c"].iter().all(|kind| kinds.contains(kind)), &mut block.mixer)
    {
        attention.code = AttentionCode::Unmodelled("deberta-v2 without both kinds of relative positions");
    }
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    let mut model = around(config, &DEBERTA_V2, layers)?;
    if !config.optional_flag("position_biased_input")?.unwrap_or(true) {
        model.embeddings.positions = None;
    }
    let width = config.size_or("embedding_size", hidden)?;
    if width != hidden {
        model.embeddings.tokens.width = width;
        for table in
            [&mut model.embeddings.positions, &mut model.embeddings.token_types].into_iter().flatten()
        {
            table.width = width;
        }
        model.embeddings.project_in = Some(Linear::new("embeddings.embed_proj", width, hidden));
    }
    if relative {
        // Buckets, where there are any; else all relative positions.
        let positions = |key| Ok(config.number(key)?.filter(|n| *n >= 1.0).map(|n| n.min(1e9) as u64));
        let size = match (positions("position_buckets")?, positions("max_relative_positions")?) {
            (Some(size), _) | (None, Some(size)) => size,
            (None, None) => config.size("max_position_embeddings")?,
        };
        model.extra.push(Submodule::Table(Table {
            name: "encoder.rel_embeddings",
            rows: 2 * size,
            width: hidden,
        }));
    }
    if config.text("norm_rel_ebd")?.is_some_and(|norm| norm.contains("layer_norm")) {
        model.extra.push(Submodule::Norm(layer_norm("encoder.LayerNorm", hidden)));
    }
    if let Some(kernel) = config.optional("conv_kernel_size")?.filter(|kernel| *kernel > 0) {
        let groups = config.size_or("conv_groups", 1)?;
        model.extra.push(Submodule::param("encoder.conv.conv.weight", &[hidden, hidden / groups, kernel]));
        model.extra.push(Submodule::param("encoder.conv.conv.bias", &[hidden]));
        model.extra.push(Submodule::Norm(layer_norm("encoder.conv.LayerNorm", hidden)));
    }
    Ok(model)
}

/// electra's generator: bert with narrow embeddings.
fn electra(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let mut model = bert(
        config,
        &Names {
            head: ["generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"],
            model: &[
                "embeddings.",
                "embeddings_project",
                LAYERS,
                "generator_predictions.LayerNorm",
                "generator_predictions.dense",
            ],
            ..BERT
        },
    )?;
    let width = config.size("embedding_size")?;
    let project = Linear::new("embeddings_project", width, model.hidden).with_bias(true);
    narrow(&mut model, width, project);
    Ok(model)
}

/// Embeddings of another width than the layers', with the projection between.
fn narrow(model: &mut Architecture, width: u64, projection: Linear) {
    let embeddings = &mut model.embeddings;
    embeddings.tokens.width = width;
    for table in [&mut embeddings.positions, &mut embeddings.token_types].into_iter().flatten() {
        table.width = width;
    }
    if let Some(norm) = &mut embeddings.norm {
        norm.width = width;
    }
    model.head.linear.input = width;
    if let Some(HeadTransform::Dense { dense, norm, .. }) = &mut model.head.transform {
        dense.output = width;
        norm.width = width;
    }
    if width != model.hidden {
        embeddings.project_in = Some(projection);
    }
}

/// albert: one group of layers that runs again and again. Its parameters are counted; that it runs more often is not
/// known to the step.
fn albert(config: &Config<'_>) -> Result<Architecture, ModelError> {
    const ALBERT: Names = Names {
        attention: ["attention.query", "attention.key", "attention.value", "attention.dense"],
        norms: ["attention.LayerNorm", "full_layer_layer_norm"],
        mlp: ["ffn", "ffn_output"],
        head: ["predictions.dense", "predictions.LayerNorm", "predictions"],
        code: AttentionCode::Unmodelled("albert"),
        layer: &[
            "full_layer_layer_norm",
            "attention.query",
            "attention.key",
            "attention.value",
            "attention.",
            "ffn.",
        ],
        model: &["embeddings.", "encoder.", LAYERS, "predictions.bias", "predictions.LayerNorm"],
        ..BERT
    };
    let block = block(config, &ALBERT)?;
    let groups = config.size_or("num_hidden_groups", 1)?;
    let inner = config.size_or("inner_group_num", 1)?;
    let layers = repeated(groups.saturating_mul(inner).min(config.depth("num_hidden_layers")?), block);
    let mut model = around(config, &ALBERT, layers)?;
    let width = config.size("embedding_size")?;
    let map = Linear::new("encoder.embedding_hidden_mapping_in", width, model.hidden).with_bias(true);
    narrow(&mut model, width, map.clone());
    // The mapping is there even where the widths are equal.
    model.embeddings.project_in = Some(map);
    Ok(model)
}

/// eurobert: llama that looks both ways.
fn eurobert(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let mut model = llama::read(config, &LLAMA)?;
    for block in &mut model.blocks {
        if let Mixer::Attention(attention) = &mut block.mixer {
            attention.causal = false;
        }
    }
    model.head.linear.bias = config.flag("mlp_bias")?;
    model.head.objective = Objective::MaskedLm;
    Ok(model)
}

/// modernbert: rotary, gated, windows on both sides in most layers.
fn modernbert(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_attention_heads")?;
    let inner = config.size("intermediate_size")?;
    let depth = config.depth("num_hidden_layers")?;
    let kind = NormKind::LayerNorm { bias: config.flag("norm_bias")? };
    let norm = |name| Norm::new(name, hidden, kind);
    let (bias, mlp_bias) = (config.flag("attention_bias")?, config.flag("mlp_bias")?);
    let attention_dropout = dropout(config, "attention_dropout")?;
    let window = config.size("local_attention")? / 2 + 1;
    let every = config.size_or("global_attn_every_n_layers", 3)?;
    let types = config.texts("layer_types")?;
    let act = activation(config, "hidden_activation")?;
    let local = |layer: u64| match &types {
        Some(types) => types.get(layer as usize).is_some_and(|kind| *kind == "sliding_attention"),
        None => !layer.is_multiple_of(every),
    };
    let layers = stack((0..depth).map(|layer| (local(layer), layer == 0)), |(local, first)| {
        let first =
            if first { Norm::new("attn_norm", hidden, NormKind::Identity) } else { norm("attn_norm") };
        Ok(Block {
            wiring: Wiring::PreNorm { attention: first, mlp: norm("mlp_norm") },
            mixer: Mixer::Attention(Attention {
                rotary: Rotary::Float32,
                window: local.then_some(window),
                causal: false,
                dropout: attention_dropout,
                ..parts::attention(
                    heads,
                    parts::per_head(hidden, heads)?,
                    Projection::Fused(Linear::new("attn.Wqkv", hidden, 3 * hidden).with_bias(bias)),
                    Linear::new("attn.Wo", hidden, hidden).with_bias(bias),
                    AttentionCode::Standard,
                )
            }),
            cross: None,
            ffn: FeedForward::Dense(Mlp::GatedFused {
                gate_up: Linear::new("mlp.Wi", hidden, 2 * inner).with_bias(mlp_bias),
                down: Linear::new("mlp.Wo", inner, hidden).with_bias(mlp_bias),
                act,
            }),
            residual_dropout: Dropout::default(),
            extra: Vec::new(),
            layout: &["attn_norm", "attn.", "mlp_norm"],
        })
    })?;
    let mut model = decoder(config, "embeddings.tok_embeddings", layers, norm("final_norm"))?;
    model.embeddings.norm = Some(norm("embeddings.norm"));
    model.embeddings.dropout = dropout(config, "embedding_dropout")?;
    model.head.objective = Objective::MaskedLm;
    model.head.tied = tied(config)?;
    model.head.linear = Linear::new("decoder", hidden, model.vocab).with_bias(config.flag("decoder_bias")?);
    model.head.transform = Some(HeadTransform::Dense {
        dense: Linear::new("head.dense", hidden, hidden).with_bias(config.flag("classifier_bias")?),
        act: activation(config, "classifier_activation")?,
        norm: norm("head.norm"),
    });
    Ok(model)
}
