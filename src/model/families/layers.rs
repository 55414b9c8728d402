//! What differs from layer to layer: windows, positions, experts, other mixers.

use super::variant::{Others, Positions, Sparse, Variant, Windows};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// One layer's own facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerFacts {
    /// The window, if it sees one only.
    pub window: Option<u64>,
    /// Whether it has positions.
    pub positioned: bool,
    /// Whether it has experts.
    pub sparse: bool,
    /// Whether its mixer is not attention.
    pub other: bool,
    /// Whether latent attention has an indexer of its own.
    pub indexed: bool,
}

/// The facts of every layer.
pub fn layers(config: &Config<'_>, variant: &Variant) -> Result<Vec<LayerFacts>, ModelError> {
    let depth = config.depth("num_hidden_layers")?;
    let types = config.texts("layer_types")?;
    if let Some(types) = &types
        && types.len() as u64 != depth
    {
        return Err(ModelError::new(format!(
            "layer_types lists {} layers and num_hidden_layers is {depth}",
            types.len()
        )));
    }
    let is = |layer: u64, kinds: &[&str]| {
        let kind = types.as_ref().and_then(|types| types.get(layer as usize));
        kind.is_some_and(|kind| kinds.contains(kind))
    };
    let typed = types.is_some();
    let positions = positions(config, variant.positions)?;
    let sparse = match variant.experts {
        None => None,
        Some(experts) => Some(sparse(config, experts.layers, depth)?),
    };
    let others = match variant.other {
        None => None,
        Some(other) => Some(others(config, other.layers)?),
    };
    let windows = windows(config, variant.windows)?;
    let indexed = indexers(config, variant)?;
    Ok((0..depth)
        .map(|layer| {
            let listed = positions(layer);
            let by_family = match windows.kind {
                Windows::Never | Windows::Listed => false,
                Windows::All => true,
                Windows::After => layer >= windows.bound,
                Windows::AllButFrom(n) => !layer.is_multiple_of(n),
                Windows::Switched => windows.on,
                Windows::Late => windows.on && layer >= windows.bound,
                Windows::Early => windows.on && layer < windows.bound && layer.is_multiple_of(2),
                Windows::AllBut(_) => !(layer + 1).is_multiple_of(windows.bound),
                Windows::Unpositioned => windows.on && !listed,
                Windows::Chunked => listed,
            };
            let windowed = match windows.kind {
                Windows::Never => false,
                Windows::All | Windows::Switched => by_family,
                _ if typed => is(layer, &["sliding_attention", "chunked_attention"]),
                _ => by_family,
            };
            let window = windows.size.filter(|_| windowed);
            LayerFacts {
                window,
                positioned: match variant.positions {
                    Positions::Everywhere | Positions::Listed | Positions::Named => listed,
                    Positions::Windowed => window.is_some(),
                    Positions::WindowedIfAny => window.is_some() || windows.size.is_none(),
                },
                sparse: sparse.as_ref().is_some_and(|sparse| sparse(layer)),
                other: match &others {
                    None => false,
                    Some((kind, _)) if typed => is(layer, &[*kind, "linear_attention", "mamba"]),
                    Some((_, others)) => others(layer),
                },
                indexed: indexed(layer),
            }
        })
        .collect())
}

/// A question that is asked of every layer.
type Ask = Box<dyn Fn(u64) -> bool>;

struct Windowed {
    kind: Windows,
    size: Option<u64>,
    on: bool,
    bound: u64,
}

fn windows(config: &Config<'_>, kind: Windows) -> Result<Windowed, ModelError> {
    let size = match kind {
        Windows::Never => None,
        Windows::Chunked => config.optional("attention_chunk_size")?,
        _ => config.optional("sliding_window")?,
    };
    let (on, bound) = match kind {
        Windows::Never | Windows::All | Windows::Listed | Windows::Chunked | Windows::AllButFrom(_) => {
            (true, 0)
        }
        Windows::After => (true, config.count("max_window_layers")?),
        Windows::Switched | Windows::Unpositioned => (config.flag("use_sliding_window")?, 0),
        Windows::Late | Windows::Early => {
            (config.flag("use_sliding_window")?, config.count("max_window_layers")?)
        }
        Windows::AllBut(n) => (true, pattern(config, n)?),
    };
    Ok(Windowed { kind, size, on, bound })
}

/// Every how many layers one sees all: a number, or a text with a letter per layer (exaone4's `LLLG`).
fn pattern(config: &Config<'_>, otherwise: u64) -> Result<u64, ModelError> {
    match config.text("sliding_window_pattern") {
        Ok(Some(text)) if !text.is_empty() => Ok(text.chars().count() as u64),
        _ => Ok(config.optional("sliding_window_pattern")?.filter(|n| *n > 0).unwrap_or(otherwise)),
    }
}

fn positions(config: &Config<'_>, positions: Positions) -> Result<Ask, ModelError> {
    Ok(match positions {
        Positions::Everywhere | Positions::Windowed | Positions::WindowedIfAny => Box::new(|_| true),
        Positions::Named => {
            let rotary = config.text("position_embedding_type")? == Some("rope");
            Box::new(move |_| rotary)
        }
        Positions::Listed => match config.sizes("no_rope_layers")?.filter(|list| !list.is_empty()) {
            Some(list) => Box::new(move |layer| list.get(layer as usize).is_none_or(|flag| *flag != 0)),
            None => {
                let interval = config.size("no_rope_layer_interval")?;
                Box::new(move |layer| !(layer + 1).is_multiple_of(interval))
            }
        },
    })
}

fn sparse(config: &Config<'_>, sparse: Sparse, depth: u64) -> Result<Ask, ModelError> {
    let listed = || -> Result<Option<Ask>, ModelError> {
        Ok(config.texts("mlp_layer_types")?.map(|types| -> Ask {
            let sparse: Vec<bool> = types.iter().map(|kind| *kind == "sparse").collect();
            Box::new(move |layer| sparse.get(layer as usize).copied().unwrap_or(true))
        }))
    };
    Ok(match sparse {
        Sparse::All => Box::new(|_| true),
        Sparse::Stepped => {
            let step = config.size_or("decoder_sparse_step", 1)?;
            let dense = config.sizes("mlp_only_layers")?.unwrap_or_default();
            let experts = config.count("num_experts")? > 0;
            Box::new(move |layer| experts && !dense.contains(&layer) && (layer + 1).is_multiple_of(step))
        }
        Sparse::After => match listed()? {
            Some(listed) => listed,
            None => {
                let first = config.optional("first_k_dense_replace")?.unwrap_or(0);
                Box::new(move |layer| layer >= first)
            }
        },
        Sparse::AfterFirst(n) => match listed()? {
            Some(listed) => listed,
            None => Box::new(move |layer| layer >= n),
        },
        Sparse::Range => {
            let start = config.optional("moe_layer_start_index")?.unwrap_or(0);
            // -1 stands for the last layer, and is the default.
            let end = config.number("moe_layer_end_index")?.filter(|end| *end >= 0.0);
            let end = end.map_or(depth, |end| end as u64);
            let interval = config.size_or("moe_layer_interval", 1)?;
            Box::new(move |layer| layer >= start && layer <= end && (layer + 1).is_multiple_of(interval))
        }
        Sparse::IfAny => {
            let experts = config.optional("num_local_experts")?.unwrap_or(0) > 0;
            Box::new(move |_| experts)
        }
        Sparse::AfterDense => {
            let first = config.count("num_dense_layers")?;
            Box::new(move |layer| layer >= first)
        }
        Sparse::Interleaved => match config.sizes("moe_layers")? {
            Some(list) => Box::new(move |layer| list.contains(&layer)),
            None => {
                let step = config.size("interleave_moe_layer_step")?;
                Box::new(move |layer| (layer + 1).is_multiple_of(step))
            }
        },
        Sparse::Periodic => {
            let period = config.size("expert_layer_period")?;
            let offset = config.count("expert_layer_offset")?;
            let experts = config.count("num_experts")? > 1;
            Box::new(move |layer| experts && layer % period == offset)
        }
    })
}

fn others(config: &Config<'_>, others: Others) -> Result<(&'static str, Ask), ModelError> {
    Ok(match others {
        Others::Interval(kind) => {
            let interval = config.size_or("full_attention_interval", 4)?;
            (kind, Box::new(move |layer| !(layer + 1).is_multiple_of(interval)))
        }
        Others::Unlisted(kind) => match config.sizes("full_attn_idxs")? {
            Some(list) => (kind, Box::new(move |layer| !list.contains(&layer))),
            None => (kind, Box::new(|_| false)),
        },
        Others::Periodic => {
            let period = config.size("attn_layer_period")?;
            let offset = config.count("attn_layer_offset")?;
            ("linear_attention", Box::new(move |layer| layer % period != offset))
        }
        Others::Unindexed => {
            let list = config.sizes("attn_layer_indices")?.unwrap_or_default();
            ("mamba", Box::new(move |layer| !list.contains(&layer)))
        }
        Others::Typed(kind) => (kind, Box::new(|_| true)),
    })
}

/// Which layers choose their tokens themselves (glm_moe_dsa shares the choice between some).
fn indexers(config: &Config<'_>, variant: &Variant) -> Result<Ask, ModelError> {
    if !variant.latent {
        return Ok(Box::new(|_| false));
    }
    if let Some(types) = config.texts("indexer_types")? {
        let full: Vec<bool> = types.iter().map(|kind| *kind == "full").collect();
        return Ok(Box::new(move |layer| full.get(layer as usize).copied().unwrap_or(true)));
    }
    let every = config.size_or("index_topk_freq", 1)?;
    let offset = config.size_or("index_skip_topk_offset", 2)?;
    Ok(Box::new(move |layer| (layer + 1).saturating_sub(offset).is_multiple_of(every)))
}
