//! Pieces that the readers of several families share.

use std::collections::HashMap;
use std::hash::Hash;

use crate::model::architecture::{
    Architecture, Counted, Embeddings, Head, MROPE_POSITIONS, Objective, RotaryTables,
};
use crate::model::blocks::{
    Activation, Attention, AttentionCode, Block, Dropout, Linear, Norm, NormKind, Projection, Rotary,
};
use crate::model::blocks::{QueryScale, Table};
use crate::model::config::Config;
use crate::model::error::ModelError;
use crate::model::modeling;

/// `nn.LayerNorm` with a bias.
pub const LAYER_NORM: NormKind = NormKind::LayerNorm { bias: true };

/// Layers that are all alike.
pub fn repeated(depth: u64, block: Block) -> (Vec<Block>, Vec<u16>) {
    (vec![block], vec![0; depth as usize])
}

/// The distinct layers and their order, from what is particular to each: layers of which the same is said are made once.
pub fn stack<K: Copy + Eq + Hash>(
    layers: impl IntoIterator<Item = K>,
    mut make: impl FnMut(K) -> Result<Block, ModelError>,
) -> Result<(Vec<Block>, Vec<u16>), ModelError> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut by_key: HashMap<K, u16> = HashMap::new();
    let mut by_block: HashMap<Block, u16> = HashMap::new();
    let mut order = Vec::new();
    for key in layers {
        let kind = match by_key.get(&key) {
            Some(kind) => *kind,
            None => {
                let block = make(key)?;
                let next = u16::try_from(blocks.len()).unwrap_or(u16::MAX);
                let kind = *by_block.entry(block).or_insert_with_key(|block| {
                    blocks.push(block.clone());
                    next
                });
                by_key.insert(key, kind);
                kind
            }
        };
        order.push(kind);
    }
    Ok((blocks, order))
}

/// Causal attention with every head alike, without positions, norms or windows of its own.
pub fn attention(
    heads: u64,
    head_dim: u64,
    projection: Projection,
    output: Linear,
    code: AttentionCode,
) -> Attention {
    Attention {
        heads,
        kv_heads: heads,
        head_dim,
        projection,
        output,
        qk_norm: None,
        rotary: Rotary::None,
        window: None,
        softcap: false,
        causal: true,
        sinks: false,
        gated: false,
        query_scale: QueryScale::None,
        clipped: false,
        upcast: false,
        position_bias: None,
        dropout: Dropout::default(),
        code,
    }
}

/// The activation that a config names. Classes that are not transformers' own (internlm2, chatglm) have silu where no key says
/// otherwise.
///
/// # Errors
/// A [`ModelError`] where it is null, or no entry of transformers' `ACT2FN` that is modelled.
pub fn activation(config: &Config<'_>, key: &'static str) -> Result<Activation, ModelError> {
    match config.text(key)? {
        Some(name) => named_activation(key, name, config.model_type),
        None if config.is_left_out(key) => Ok(Activation::Silu),
        None => {
            Err(ModelError::new(format!("{key} is null or missing: the activation function is not known"))
                .with_fix("give the name of one, such as \"silu\" or \"gelu\""))
        }
    }
}

/// The activation of that name, which stands under that key.
///
/// # Errors
/// A [`ModelError`] where it is not modelled.
pub fn named_activation(key: &str, name: &str, model_type: &str) -> Result<Activation, ModelError> {
    match Activation::named(name) {
        Some(Activation::Xielu) if model_type != "apertus" => Err(ModelError::new(format!(
            "{key} is \"xielu\", whose parameters are modelled for apertus only"
        ))),
        Some(act) => Ok(act),
        None if name == "prelu" => Err(ModelError::new(format!(
            "{key} is \"prelu\", whose slope is a parameter that is not modelled"
        ))),
        None => {
            let name: String = name.chars().take(40).collect();
            Err(ModelError::new(format!(
                "{key} is {name:?}, which transformers has no activation function for"
            ))
            .with_fix("use a name of its ACT2FN, such as \"silu\", \"gelu\" or \"relu\""))
        }
    }
}

/// A dropout of the config; none where its class has no such key, whatever the file says.
pub fn dropout(config: &Config<'_>, key: &'static str) -> Result<Dropout, ModelError> {
    let probability = config.number(key)?;
    Ok(if config.knows(key) { Dropout::new(probability.unwrap_or(0.0)) } else { Dropout::default() })
}

/// Key and value heads: as many as query heads unless the config says otherwise.
pub fn kv_heads(config: &Config<'_>, heads: u64) -> Result<u64, ModelError> {
    config.size_or("num_key_value_heads", heads)
}

/// The size of a head under its key: its share of the hidden size unless the config says otherwise.
pub fn head_dim(config: &Config<'_>, key: &'static str, hidden: u64, heads: u64) -> Result<u64, ModelError> {
    match config.optional(key)? {
        Some(_) => config.size(key),
        None => per_head(hidden, heads),
    }
}

/// A head's share of the hidden size.
///
/// # Errors
/// A [`ModelError`] where there are more heads than elements: a head would have none.
pub fn per_head(hidden: u64, heads: u64) -> Result<u64, ModelError> {
    match hidden.checked_div(heads) {
        Some(0) | None => Err(too_many_heads(hidden, heads)),
        Some(share) => Ok(share),
    }
}

fn too_many_heads(hidden: u64, heads: u64) -> ModelError {
    ModelError::new(format!("{heads} attention heads do not fit into a hidden size of {hidden}"))
        .with_fix("each head needs at least one element of it, and usually has 64 to 256")
}

/// The share of a head that is rotated, wherever the config keeps it: there is a frequency for each pair, also where the
/// last one is half of one (`torch.arange(0, dim, 2)`).
pub fn rotated(
    config: &Config<'_>,
    head_dim: u64,
    key: &'static str,
    otherwise: f64,
) -> Result<u64, ModelError> {
    let mut share = config.number(key)?;
    for nest in ["rope_parameters", "rope_scaling"] {
        if share.is_none() && config.has(nest) {
            share = config.nested(nest, config.model_type)?.number(key)?;
        }
    }
    let dim = (head_dim as f64 * share.unwrap_or(otherwise)) as u64;
    Ok(dim.saturating_add(dim % 2).min(head_dim))
}

/// Whose table of sines and cosines layers read, and how many positions it has, as a config says it: its own words, or those of
/// `rope_parameters`, in which each kind of layer may have its own.
fn rotary_tables(config: &Config<'_>) -> RotaryTables {
    let mut tables = RotaryTables {
        apart: config.knows("rope_local_base_freq") || config.model_type.starts_with("gemma3"),
        times: 1,
    };
    for nest in ["rope_parameters", "rope_scaling"] {
        let Ok(said) = config.nested(nest, config.model_type) else { continue };
        tables.apart |= said.has("sliding_attention");
        let own =
            said.nested("full_attention", config.model_type).ok().filter(|_| said.has("full_attention"));
        let said = own.unwrap_or(said);
        let kind = ["rope_type", "type"].into_iter().find_map(|key| said.text(key).ok().flatten());
        let factor = said.number("factor").ok().flatten().unwrap_or(1.0);
        tables.times = match kind {
            _ if said.has("mrope_section") => MROPE_POSITIONS,
            Some("linear" | "dynamic") => factor.clamp(1.0, 1024.0) as u64,
            _ => tables.times,
        };
    }
    tables
}

/// A causal language model around a stack of layers, with nothing but a token embedding and a head.
pub fn decoder(
    config: &Config<'_>,
    tokens: &'static str,
    (blocks, order): (Vec<Block>, Vec<u16>),
    final_norm: Norm,
) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let vocab = config.size("vocab_size")?;
    Ok(Architecture {
        model_type: config.model_type.to_owned(),
        family: modeling::of(config.model_type),
        hidden,
        vocab,
        max_positions: config.optional("max_position_embeddings").ok().flatten(),
        rotary_tables: rotary_tables(config),
        embeddings: Embeddings {
            tokens: Table { name: tokens, rows: vocab, width: hidden },
            positions: None,
            token_types: None,
            norm: None,
            project_in: None,
            scaled: false,
            dropout: Dropout::default(),
        },
        encoder: None,
        blocks,
        order,
        final_norm: Some(final_norm),
        inner_dropout: Dropout::default(),
        extra: Vec::new(),
        head: Head {
            linear: Linear::new("lm_head", hidden, vocab),
            tied: config.flag("tie_word_embeddings")?,
            transform: None,
            softcap: false,
            scaled: false,
            objective: Objective::CausalLm,
        },
        classifier: None,
        towers: Vec::new(),
        layout: &[],
        notes: Vec::new(),
        counted: Counted::default(),
    })
}

#[cfg(test)]
mod tests {
    use crate::model::read::parse;

    #[track_caller]
    fn refused(act: &str, message: &str) {
        let config = format!(
            r#"{{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 128, "vocab_size": 256, "hidden_act": {act}}}"#
        );
        let issue = parse(&config).expect_err("it is no activation").to_string();
        assert!(issue.contains(message), "{issue}");
    }

    #[test]
    fn an_activation_is_never_taken_for_another() {
        refused("null", "hidden_act is null");
        refused("\"gelu_pytorch\"", "no activation function for");
        refused("\"prelu\"", "whose slope is a parameter");
        refused("\"xielu\"", "modelled for apertus only");
        refused("7", "hidden_act is 7");
    }
}
