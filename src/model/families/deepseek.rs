//! deepseek_v4: compressed attention, hyper-connections between layers. Counted, not run.

use super::common::Common;
use super::parts::{decoder, stack};
use super::variant::{EXPERTS, Experts, PLAIN, SharedExperts};
use crate::model::architecture::Architecture;
use crate::model::blocks::{
    Block, Dropout, FeedForward, Linear, LinearClass, Mixer, Module, Norm, NormKind, Submodule,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads a deepseek_v4; none where the model type is another.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    (config.model_type == "deepseek_v4").then(|| v4(config))
}

/// What a layer attends to besides its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Compression {
    /// Nothing.
    None,
    /// Blocks of tokens that an indexer chooses.
    Sparse,
    /// All blocks of tokens, each of them long.
    Heavy,
}

fn v4(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let depth = config.depth("num_hidden_layers")?;
    let common = Common::read(config, &PLAIN)?;
    let kinds = compressions(config, depth)?;
    let experts = FeedForward::Moe(Box::new(
        common.experts(config, &Experts { shared: SharedExperts::One, ..EXPERTS })?,
    ));
    let kinds = (0..depth).map(|layer| kinds.get(layer as usize).copied().unwrap_or(Compression::None));
    let layers = stack(kinds, |kind| {
        let mut extra = hyper(config, common.hidden, ["attn_hc.fn", "attn_hc.base", "attn_hc.scale"])?;
        extra.extend(hyper(config, common.hidden, ["ffn_hc.fn", "ffn_hc.base", "ffn_hc.scale"])?);
        Ok(Block {
            wiring: common.wiring(&PLAIN),
            mixer: Mixer::Module(attention(config, &common, kind)?),
            cross: None,
            ffn: experts.clone(),
            residual_dropout: Dropout::default(),
            extra,
            layout: &["self_attn.", "mlp.", "input_layernorm", "post_attention_layernorm"],
        })
    })?;
    let mut model = decoder(config, "embed_tokens", layers, rms("norm", common.hidden))?;
    let streams = config.size("hc_mult")?;
    model.extra = vec![
        Submodule::param("hc_head.hc_fn", &[streams, streams * common.hidden]),
        Submodule::param("hc_head.hc_base", &[streams]),
        Submodule::param("hc_head.hc_scale", &[1]),
    ];
    Ok(model)
}

fn rms(name: &'static str, width: u64) -> Norm {
    Norm::new(name, width, NormKind::Rms)
}

fn compressions(config: &Config<'_>, depth: u64) -> Result<Vec<Compression>, ModelError> {
    if let Some(types) = config.texts("layer_types")? {
        return Ok(types
            .iter()
            .map(|kind| match *kind {
                "compressed_sparse_attention" => Compression::Sparse,
                "heavily_compressed_attention" => Compression::Heavy,
                _ => Compression::None,
            })
            .collect());
    }
    if let Some(ratios) = config.sizes("compress_ratios")? {
        let known = |ratio: &u64| match ratio {
            0 => Some(Compression::None),
            4 => Some(Compression::Sparse),
            128 => Some(Compression::Heavy),
            _ => None,
        };
        let kinds: Option<Vec<Compression>> = ratios.iter().map(known).collect();
        return kinds.ok_or_else(|| ModelError::new("compress_ratios has ratios other than 0, 4 and 128"));
    }
    let alternate =
        |layer| if layer < 2 || layer % 2 == 0 { Compression::Heavy } else { Compression::Sparse };
    Ok((0..depth).map(alternate).collect())
}

/// A connection that mixes the streams of the residual.
fn hyper(config: &Config<'_>, hidden: u64, names: [&'static str; 3]) -> Result<Vec<Submodule>, ModelError> {
    let streams = config.size("hc_mult")?;
    let mix = (2 + streams).saturating_mul(streams);
    let [weights, base, scale] = names;
    Ok(vec![
        Submodule::param(weights, &[mix, streams * hidden]),
        Submodule::param(base, &[mix]),
        Submodule::param(scale, &[3]),
    ])
}

fn attention(config: &Config<'_>, common: &Common, kind: Compression) -> Result<Module, ModelError> {
    let (hidden, heads, dim) = (common.hidden, common.heads, common.head_dim);
    let rank = config.size("q_lora_rank")?;
    let groups = config.size("o_groups")?;
    let out = groups * config.size("o_lora_rank")?;
    let linear = |name, input, output| Submodule::Linear(Linear::new(name, input, output));
    let mut submodules = vec![
        Submodule::param("self_attn.sinks", &[heads]),
        linear("self_attn.q_a_proj", hidden, rank),
        Submodule::Norm(rms("self_attn.q_a_norm", rank)),
        linear("self_attn.q_b_proj", rank, heads * dim),
        linear("self_attn.kv_proj", hidden, dim),
        Submodule::Norm(rms("self_attn.kv_norm", dim)),
        Submodule::Linear(
            Linear::new("self_attn.o_a_proj", heads * dim / groups, out).with_class(LinearClass::Subclass),
        ),
        linear("self_attn.o_b_proj", out, hidden),
    ];
    let (rate, width) = match kind {
        Compression::None => {
            return Ok(Module { what: "attention with sinks and low-rank output", submodules });
        }
        Compression::Sparse => (4, 2 * dim),
        Compression::Heavy => (128, dim),
    };
    submodules.extend([
        Submodule::param("self_attn.compressor.position_bias", &[rate, width]),
        linear("self_attn.compressor.kv_proj", hidden, width),
        linear("self_attn.compressor.gate_proj", hidden, width),
        Submodule::Norm(rms("self_attn.compressor.kv_norm", dim)),
    ]);
    if kind == Compression::Sparse {
        let index_heads = config.size("index_n_heads")?;
        let index = config.size("index_head_dim")?;
        submodules.extend([
            Submodule::param("self_attn.compressor.indexer.position_bias", &[rate, 2 * index]),
            linear("self_attn.compressor.indexer.kv_proj", hidden, 2 * index),
            linear("self_attn.compressor.indexer.gate_proj", hidden, 2 * index),
            Submodule::Norm(rms("self_attn.compressor.indexer.kv_norm", index)),
            linear("self_attn.compressor.indexer.q_b_proj", rank, index_heads * index),
            linear("self_attn.compressor.indexer.scorer.weights_proj", hidden, index_heads),
        ]);
    }
    Ok(Module { what: "compressed attention", submodules })
}
