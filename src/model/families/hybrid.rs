//! Mixers other than attention, from a config: state spaces, linear attention, short convolutions.

use super::common::Common;
use super::parts::{decoder, repeated, stack};
use super::variant::{EXPERTS, Experts, MlpShape, PLAIN, Rotation, SharedExperts, Variant};
use crate::dtype::Dtype;
use crate::model::architecture::Architecture;
use crate::model::blocks::{
    BareParam, Block, Conv, DeltaNet, Dropout, ExpertLayout, ExpertNames, FeedForward, Linear, Mixer, Moe,
    Norm, NormKind, Scan, ShortConv, StateSpace, Wiring,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads a model without attention in most of its layers; none where the model type is not one.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    Some(match config.model_type {
        "mamba" | "falcon_mamba" => mamba(config),
        "mamba2" => mamba2(config),
        "nemotron_h" => nemotron_h(config),
        _ => return None,
    })
}

/// qwen3_next's linear attention: queries, keys, values and gate in one projection.
pub fn delta_net(config: &Config<'_>, common: &Common) -> Result<Mixer, ModelError> {
    delta(config, common, |hidden, keys, values, heads| {
        vec![
            Linear::new("linear_attn.in_proj_qkvz", hidden, 2 * keys + 2 * values),
            Linear::new("linear_attn.in_proj_ba", hidden, 2 * heads),
        ]
    })
}

/// qwen3_5's: the same in four projections, after norm and output.
pub fn delta_net_apart(config: &Config<'_>, common: &Common) -> Result<Mixer, ModelError> {
    delta(config, common, |hidden, keys, values, heads| {
        vec![
            Linear::new("linear_attn.in_proj_qkv", hidden, 2 * keys + values),
            Linear::new("linear_attn.in_proj_z", hidden, values),
            Linear::new("linear_attn.in_proj_b", hidden, heads),
            Linear::new("linear_attn.in_proj_a", hidden, heads),
        ]
    })
}

fn delta(
    config: &Config<'_>,
    common: &Common,
    inputs: impl Fn(u64, u64, u64, u64) -> Vec<Linear>,
) -> Result<Mixer, ModelError> {
    let key_heads = config.size("linear_num_key_heads")?;
    let value_heads = config.size("linear_num_value_heads")?;
    let key_dim = config.size("linear_key_head_dim")?;
    let value_dim = config.size("linear_value_head_dim")?;
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    Ok(Mixer::DeltaNet(DeltaNet {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        inputs: inputs(common.hidden, keys, values, value_heads),
        conv: Conv {
            name: "linear_attn.conv1d",
            channels: 2 * keys + values,
            kernel: config.size("linear_conv_kernel_dim")?,
            bias: false,
        },
        extra: vec![
            BareParam::new("linear_attn.dt_bias", &[value_heads]),
            BareParam::new("linear_attn.A_log", &[value_heads]),
        ],
        norm: Norm::new("linear_attn.norm", value_dim, NormKind::Rms),
        output: Linear::new("linear_attn.out_proj", values, common.hidden),
        kept_in: state_dtype(config, "mamba_ssm_dtype"),
    }))
}

/// In what a config has a server keep a state, where it says that.
fn state_dtype(config: &Config<'_>, key: &'static str) -> Option<Dtype> {
    match config.text(key).ok()?? {
        "float32" => Some(Dtype::F32),
        "float16" => Some(Dtype::F16),
        "bfloat16" => Some(Dtype::Bf16),
        _ => None,
    }
}

/// lfm2's short convolution.
pub fn short_conv(config: &Config<'_>, common: &Common) -> Result<Mixer, ModelError> {
    let hidden = common.hidden;
    let bias = config.flag("conv_bias")?;
    Ok(Mixer::ShortConv(ShortConv {
        conv: Conv { name: "conv.conv", channels: hidden, kernel: config.size("conv_L_cache")?, bias },
        input: Linear::new("conv.in_proj", hidden, 3 * hidden).with_bias(bias),
        output: Linear::new("conv.out_proj", hidden, hidden).with_bias(bias),
    }))
}

/// lfm2's width: two thirds of what the config says, rounded up, unless it is told not to adjust.
pub fn lfm2_width(config: &Config<'_>) -> Result<u64, ModelError> {
    let given = if config.has("block_ff_dim") {
        config.size("block_ff_dim")?
    } else {
        config.size("intermediate_size")?
    };
    if !config.flag("block_auto_adjust_ff_dim")? {
        return Ok(given);
    }
    let width = 2 * given / 3;
    match config.number("block_ffn_dim_multiplier")? {
        None => Ok(width),
        Some(factor) => {
            let multiple = config.size("block_multiple_of")?;
            let width = (factor * width as f64).clamp(1.0, 2f64.powi(31)) as u64;
            Ok(width.div_ceil(multiple) * multiple)
        }
    }
}

/// The rank of a mamba's step: a sixteenth of the width where the config says `auto`.
fn step_rank(config: &Config<'_>, key: &'static str, hidden: u64) -> Result<u64, ModelError> {
    match config.text(key) {
        Ok(Some("auto") | None) => Ok(hidden.div_ceil(16)),
        _ => config.size(key),
    }
}

/// The dimensions of a mamba 1 layer.
struct Mamba {
    hidden: u64,
    inner: u64,
    state: u64,
    kernel: u64,
    rank: u64,
    bias: bool,
    conv_bias: bool,
}

impl Mamba {
    fn mixer(self, names: [&'static str; 7], norms: Vec<Norm>) -> Mixer {
        let [a_log, d, conv, input, x, dt, output] = names;
        let (hidden, inner) = (self.hidden, self.inner);
        Mixer::StateSpace(StateSpace {
            inner,
            state: self.state,
            input: Linear::new(input, hidden, 2 * inner).with_bias(self.bias),
            conv: Conv { name: conv, channels: inner, kernel: self.kernel, bias: self.conv_bias },
            scan: Scan::Mamba {
                x: Linear::new(x, inner, self.rank + 2 * self.state),
                dt: Linear::new(dt, self.rank, inner).with_bias(true),
                norms,
            },
            extra: vec![BareParam::new(a_log, &[inner, self.state]), BareParam::new(d, &[inner])],
            output: Linear::new(output, inner, hidden).with_bias(self.bias),
            kept_in: None,
        })
    }
}

/// jamba's mamba layers.
pub fn jamba(config: &Config<'_>, common: &Common) -> Result<Mixer, ModelError> {
    let hidden = common.hidden;
    let state = config.size("mamba_d_state")?;
    let rank = step_rank(config, "mamba_dt_rank", hidden)?;
    let mamba = Mamba {
        hidden,
        inner: config.size("mamba_expand")? * hidden,
        state,
        kernel: config.size("mamba_d_conv")?,
        rank,
        bias: config.flag("mamba_proj_bias")?,
        conv_bias: config.flag("mamba_conv_bias")?,
    };
    let rms = |name, width| Norm::new(name, width, NormKind::Rms);
    let names = [
        "mamba.A_log",
        "mamba.D",
        "mamba.conv1d",
        "mamba.in_proj",
        "mamba.x_proj",
        "mamba.dt_proj",
        "mamba.out_proj",
    ];
    let norms = vec![
        rms("mamba.dt_layernorm", rank),
        rms("mamba.b_layernorm", state),
        rms("mamba.c_layernorm", state),
    ];
    Ok(mamba.mixer(names, norms))
}

/// mamba and falcon_mamba: nothing but state spaces.
fn mamba(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let mamba = Mamba {
        hidden,
        inner: expanded(config, "expand", hidden)?,
        state: config.size("state_size")?,
        kernel: config.size("conv_kernel")?,
        rank: step_rank(config, "time_step_rank", hidden)?,
        bias: config.flag("use_bias")?,
        conv_bias: config.flag("use_conv_bias")?,
    };
    let names = [
        "mixer.A_log",
        "mixer.D",
        "mixer.conv1d",
        "mixer.in_proj",
        "mixer.x_proj",
        "mixer.dt_proj",
        "mixer.out_proj",
    ];
    let wide = config.flag("residual_in_fp32")?;
    // falcon_mamba's norms of step, B and C have no weights
    let norms = match config.model_type {
        "falcon_mamba" => [
            ("mixer.dt_layernorm", mamba.rank),
            ("mixer.b_layernorm", mamba.state),
            ("mixer.c_layernorm", mamba.state),
        ]
        .map(|(name, width)| Norm::new(name, width, NormKind::RmsPlain))
        .to_vec(),
        _ => Vec::new(),
    };
    let block = single("norm", hidden, wide, mamba.mixer(names, norms), FeedForward::None);
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    decoder(config, "embeddings", layers, Norm::new("norm_f", hidden, NormKind::Rms))
}

/// The width times a factor that may have a fraction.
fn expanded(config: &Config<'_>, key: &'static str, hidden: u64) -> Result<u64, ModelError> {
    let factor = config.number(key)?.unwrap_or(2.0);
    Ok((factor * hidden as f64).clamp(1.0, 2f64.powi(31)) as u64)
}

/// A layer that has one half only.
fn single(norm: &'static str, hidden: u64, wide: bool, mixer: Mixer, ffn: FeedForward) -> Block {
    Block {
        wiring: Wiring::Single { norm: Norm::new(norm, hidden, NormKind::Rms), wide },
        mixer,
        cross: None,
        ffn,
        residual_dropout: Dropout::default(),
        extra: Vec::new(),
        layout: &["norm.", "mixer.experts", "mixer.gate."],
    }
}

/// nemotron_h: every layer is a state space, an attention, a feed-forward network or a mixture of experts.
fn nemotron_h(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let kinds = nemotron_layers(config)?;
    let variant = Variant {
        attention: ["mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj"],
        activation: "mlp_hidden_act",
        rotation: Rotation::Never,
        mlp: MlpShape::Plain(["mixer.up_proj", "mixer.down_proj"]),
        ..PLAIN
    };
    let common = Common::read(config, &variant)?;
    let layers = stack(kinds, |kind| {
        let (mixer, ffn) = match kind {
            Kind::StateSpace => (mamba2_layer(config, hidden)?, FeedForward::None),
            Kind::Attention => {
                let attention = common.attention(config, &variant, Default::default())?;
                (Mixer::Attention(attention), FeedForward::None)
            }
            Kind::Mlp => {
                let bias = config.flag("mlp_bias")?;
                let mlp = common.network(variant.mlp, config.size("intermediate_size")?, bias);
                (Mixer::None, FeedForward::Dense(mlp))
            }
            Kind::Experts => (Mixer::None, FeedForward::Moe(Box::new(nemotron_experts(config, &common)?))),
        };
        Ok(single("norm", hidden, false, mixer, ffn))
    })?;
    decoder(config, "embeddings", layers, Norm::new("norm_f", hidden, NormKind::Rms))
}

/// What a layer of nemotron_h is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    StateSpace,
    Attention,
    Mlp,
    Experts,
}

fn nemotron_layers(config: &Config<'_>) -> Result<Vec<Kind>, ModelError> {
    let kinds: Option<Vec<Kind>> =
        match (config.texts("layers_block_type")?, config.text("hybrid_override_pattern")?) {
            (Some(types), _) => types
                .iter()
                .map(|kind| match *kind {
                    "mamba" | "linear_attention" => Some(Kind::StateSpace),
                    "attention" | "full_attention" => Some(Kind::Attention),
                    "mlp" => Some(Kind::Mlp),
                    "moe" => Some(Kind::Experts),
                    _ => None,
                })
                .collect(),
            (None, Some(pattern)) => pattern
                .chars()
                .map(|letter| match letter {
                    'M' => Some(Kind::StateSpace),
                    '*' => Some(Kind::Attention),
                    '-' => Some(Kind::Mlp),
                    'E' => Some(Kind::Experts),
                    _ => None,
                })
                .collect(),
            (None, None) => None,
        };
    match kinds {
        Some(kinds) if !kinds.is_empty() && kinds.len() <= 4096 => Ok(kinds),
        _ => Err(ModelError::new(
            "hybrid_override_pattern does not say what the layers of this nemotron_h are",
        )
        .with_fix("it is a text of the letters M, E, * and -, or layers_block_type lists them")),
    }
}

/// The dimensions of a mamba 2 layer.
struct Mamba2 {
    hidden: u64,
    heads: u64,
    inner: u64,
    groups: u64,
    norm_groups: u64,
    chunk: u64,
    state: u64,
    kernel: u64,
    bias: bool,
    conv_bias: bool,
    kept_in: Option<Dtype>,
}

impl Mamba2 {
    fn mixer(self, names: [&'static str; 7]) -> Mixer {
        let [dt_bias, a_log, d, conv, input, norm, output] = names;
        let channels = self.inner.saturating_add((2 * self.groups).saturating_mul(self.state));
        let projected = self.inner.saturating_add(channels).saturating_add(self.heads);
        Mixer::StateSpace(StateSpace {
            inner: self.inner,
            state: self.state,
            input: Linear::new(input, self.hidden, projected).with_bias(self.bias),
            conv: Conv { name: conv, channels, kernel: self.kernel, bias: self.conv_bias },
            scan: Scan::Mamba2 {
                heads: self.heads,
                groups: self.groups,
                norm_groups: self.norm_groups,
                chunk: self.chunk,
                norm: Norm::new(norm, self.inner, NormKind::Rms),
            },
            extra: [dt_bias, a_log, d].map(|name| BareParam::new(name, &[self.heads])).to_vec(),
            output: Linear::new(output, self.inner, self.hidden).with_bias(self.bias),
            kept_in: self.kept_in,
        })
    }
}

const MAMBA2_MIXER: [&str; 7] = [
    "mixer.dt_bias",
    "mixer.A_log",
    "mixer.D",
    "mixer.conv1d",
    "mixer.in_proj",
    "mixer.norm",
    "mixer.out_proj",
];

fn mamba2_layer(config: &Config<'_>, hidden: u64) -> Result<Mixer, ModelError> {
    let heads = config.size("mamba_num_heads")?;
    let groups = config.size("n_groups")?;
    Ok(Mamba2 {
        hidden,
        heads,
        inner: heads * config.size("mamba_head_dim")?,
        groups,
        norm_groups: groups,
        chunk: config.size("chunk_size")?,
        state: config.size("ssm_state_size")?,
        kernel: config.size("conv_kernel")?,
        bias: config.flag("use_bias")?,
        conv_bias: config.flag("use_conv_bias")?,
        kept_in: state_dtype(config, "mamba_ssm_cache_dtype").or(Some(Dtype::F32)),
    }
    .mixer(MAMBA2_MIXER))
}

/// mamba2: nothing but state spaces of the second kind.
fn mamba2(config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = config.size("hidden_size")?;
    let heads = config.size("num_heads")?;
    let mixer = Mamba2 {
        hidden,
        heads,
        inner: expanded(config, "expand", hidden)?,
        groups: config.size("n_groups")?,
        norm_groups: 1,
        chunk: config.size("chunk_size")?,
        state: config.size("state_size")?,
        kernel: config.size("conv_kernel")?,
        bias: config.flag("use_bias")?,
        conv_bias: config.flag("use_conv_bias")?,
        kept_in: None,
    }
    .mixer(MAMBA2_MIXER);
    let wide = config.flag("residual_in_fp32")?;
    let block = single("norm", hidden, wide, mixer, FeedForward::None);
    let layers = repeated(config.depth("num_hidden_layers")?, block);
    decoder(config, "embeddings", layers, Norm::new("norm_f", hidden, NormKind::Rms))
}

/// bamba's and granitemoehybrid's state spaces.
pub fn bamba(config: &Config<'_>, common: &Common) -> Result<Mixer, ModelError> {
    let names = [
        "mamba.dt_bias",
        "mamba.A_log",
        "mamba.D",
        "mamba.conv1d",
        "mamba.in_proj",
        "mamba.norm",
        "mamba.out_proj",
    ];
    Ok(Mamba2 {
        hidden: common.hidden,
        heads: config.size("mamba_n_heads")?,
        inner: config.size("mamba_expand")? * common.hidden,
        groups: config.size("mamba_n_groups")?,
        norm_groups: 1,
        chunk: config.size("mamba_chunk_size")?,
        state: config.size("mamba_d_state")?,
        kernel: config.size("mamba_d_conv")?,
        bias: config.flag("mamba_proj_bias")?,
        conv_bias: config.flag("mamba_conv_bias")?,
        kept_in: None,
    }
    .mixer(names))
}

/// nemotron_h's experts have no gate; the shared one has a width of its own.
fn nemotron_experts(config: &Config<'_>, common: &Common) -> Result<Moe, ModelError> {
    let experts = Experts {
        names: ExpertNames {
            first: "mixer.experts.up_proj",
            last: "mixer.experts.down_proj",
            layout: ExpertLayout::OutIn,
        },
        router: "mixer.gate",
        shared: SharedExperts::Width("moe_shared_expert_intermediate_size"),
        shared_mlp: MlpShape::Plain(["mixer.shared_experts.up_proj", "mixer.shared_experts.down_proj"]),
        ..EXPERTS
    };
    let moe = common.experts(config, &experts)?;
    let (hidden, latent) = match config.optional("moe_latent_size")? {
        None => (moe.hidden, None),
        Some(size) => {
            let bias = config.flag("mlp_bias")?;
            let down = Linear::new("mixer.fc1_latent_proj", common.hidden, size).with_bias(bias);
            let up = Linear::new("mixer.fc2_latent_proj", size, common.hidden).with_bias(bias);
            (size, Some([down, up]))
        }
    };
    Ok(Moe { gated: false, hidden, latent, ..moe })
}
