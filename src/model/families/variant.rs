//! The words in which a family of decoders is described: what it has that llama has not, and under which names.

use crate::model::blocks::{
    AttentionCode, ExpertLayout, ExpertNames, Mixer, NormKind, QueryScale, Registration, Submodule,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

use super::common::Common;

/// A switch of a family: fixed, or read from the config.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// Off in every model of the family.
    Never,
    /// On in every model of the family.
    Always,
    /// As the key says.
    Key(&'static str),
}

impl When {
    /// Whether it is on.
    pub fn read(self, config: &Config<'_>) -> Result<bool, ModelError> {
        match self {
            When::Never => Ok(false),
            When::Always => Ok(true),
            When::Key(key) => config.flag(key),
        }
    }
}

/// How norms and residuals are wired, with the names of the norms.
#[derive(Clone, Copy, Debug)]
pub enum Wired {
    /// Before the halves.
    Pre([&'static str; 2]),
    /// After the halves, before the sums (olmo2).
    Output([&'static str; 2]),
    /// Before and after: before attention, after it, before the feed-forward, after it (gemma2).
    Sandwich([&'static str; 4]),
    /// One norm, both halves beside each other.
    Parallel(&'static str),
}

/// The shape of the dense feed-forward network, with the names of its layers.
#[derive(Clone, Copy, Debug)]
pub enum MlpShape {
    /// gate, up, down.
    Gated([&'static str; 3]),
    /// gate and up in one layer, down.
    Fused([&'static str; 2]),
    /// up, down.
    Plain([&'static str; 2]),
}

/// Which part of a head is rotated, and how. The number is the class default of the share.
#[derive(Clone, Copy, Debug)]
pub enum Rotation {
    /// All of it.
    Full,
    /// The share that `partial_rotary_factor` gives, joined with `cat`.
    Partial(f64),
    /// As many elements as that key says, joined with `cat`.
    PartialOf(&'static str),
    /// The share, in neighbouring pairs.
    Interleaved(f64),
    /// All of it, in float32.
    Float32,
    /// All of it, as complex numbers.
    Complex,
    /// All of it, by halves.
    Halves,
    /// Nothing.
    Never,
}

/// Which layers have positions at all.
#[derive(Clone, Copy, Debug)]
pub enum Positions {
    /// All.
    Everywhere,
    /// Those that `no_rope_layers` marks with 1, or all but every `no_rope_layer_interval`-th.
    Listed,
    /// All, where `position_embedding_type` is `rope` (granitemoehybrid).
    Named,
    /// Those with a window (cohere2).
    Windowed,
    /// Those with a window, and all where there is no window (exaone4).
    WindowedIfAny,
}

/// Which layers see a window only.
#[derive(Clone, Copy, Debug)]
pub enum Windows {
    /// None.
    Never,
    /// All, where `sliding_window` is given.
    All,
    /// All, where `use_sliding_window` is on as well.
    Switched,
    /// From `max_window_layers` on, where `use_sliding_window` is on (qwen2, qwen3).
    Late,
    /// Every other one before `max_window_layers`, where `use_sliding_window` is on (qwen2_moe).
    Early,
    /// Those of `layer_types`; else none (mellum).
    Listed,
    /// All but every n-th, unless `layer_types` or `sliding_window_pattern` says otherwise.
    AllBut(u64),
    /// Those without positions, where `use_sliding_window` is on (smollm3).
    Unpositioned,
    /// Those with positions; the window is `attention_chunk_size` (llama4).
    Chunked,
    /// From `max_window_layers` on (dots1).
    After,
    /// All but every n-th, beginning with the first (cwm).
    AllButFrom(u64),
}

/// How wide a norm on queries or keys is.
#[derive(Clone, Copy, Debug)]
pub enum HeadWidth {
    /// One head; all share it.
    Head,
    /// One head; each has its own.
    EachHead,
    /// All heads together.
    All,
}

/// Norms on queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct QkNorms {
    /// When they are there.
    pub when: When,
    /// Names of the two.
    pub names: [&'static str; 2],
    /// How they compute.
    pub kind: NormKind,
    /// How wide they are.
    pub width: HeadWidth,
    /// Whether only the layers that rotate queries and keys have them (llama4).
    pub rotated: bool,
}

/// Which layers have experts.
#[derive(Clone, Copy, Debug)]
pub enum Sparse {
    /// All.
    All,
    /// Every `decoder_sparse_step`-th but those of `mlp_only_layers` (qwen).
    Stepped,
    /// Those of `mlp_layer_types`; else all after the first `first_k_dense_replace` (deepseek).
    After,
    /// Those of `mlp_layer_types`; else all after the first n.
    AfterFirst(u64),
    /// From `moe_layer_start_index` to `moe_layer_end_index`, every `moe_layer_interval`-th (ernie4_5_moe).
    Range,
    /// Those of `moe_layers`; else every `interleave_moe_layer_step`-th (llama4).
    Interleaved,
    /// Every `expert_layer_period`-th from `expert_layer_offset` on (jamba).
    Periodic,
    /// All, where there are experts at all (granitemoehybrid).
    IfAny,
    /// All after the first `num_dense_layers` (lfm2_moe).
    AfterDense,
}

/// Experts that every token visits.
#[derive(Clone, Copy, Debug)]
pub enum SharedExperts {
    /// None.
    Never,
    /// One network whose width is that key.
    Width(&'static str),
    /// One network that many times as wide as an expert.
    Times(&'static str),
    /// One network as wide as an expert.
    One,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// The key of an expert's width.
    pub width: &'static str,
    /// Which layers.
    pub layers: Sparse,
    /// The expert tensors.
    pub names: ExpertNames,
    /// Name of the router.
    pub router: &'static str,
    /// Whether the router is an `nn.Linear`.
    pub router_is_linear: bool,
    /// Whether the router and the expert matrices have biases.
    pub bias: bool,
    /// A parameter that corrects the scores.
    pub correction: Option<&'static str>,
    /// Experts that every token visits.
    pub shared: SharedExperts,
    /// Their network, with names.
    pub shared_mlp: MlpShape,
    /// The gate in front of them.
    pub shared_gate: Option<&'static str>,
}

/// Which layers have another mixer than attention.
#[derive(Clone, Copy, Debug)]
pub enum Others {
    /// Those of `layer_types` that are called so; else all but every `full_attention_interval`-th.
    Interval(&'static str),
    /// Those of `layer_types` that are called so; else those not in `full_attn_idxs` (lfm2).
    Unlisted(&'static str),
    /// All but every `attn_layer_period`-th from `attn_layer_offset` on (jamba).
    Periodic,
    /// Those not in `attn_layer_indices` (bamba).
    Unindexed,
    /// Those of `layer_types` that are called so; else all (granitemoehybrid).
    Typed(&'static str),
}

/// Layers whose mixer is not attention.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    /// Which.
    pub layers: Others,
    /// What they have instead.
    pub mixer: fn(&Config<'_>, &Common) -> Result<Mixer, ModelError>,
}

/// What a family is, as its difference from llama.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Name of the token embedding.
    pub embedding: &'static str,
    /// The embedding is multiplied by a constant.
    pub scaled: bool,
    /// The key of the dropout on the embedding.
    pub embedding_dropout: &'static str,
    /// Names of the query, key, value and output projections.
    pub attention: [&'static str; 4],
    /// Name of the layer that makes queries, keys and values at once, where there is one.
    pub fused: Option<&'static str>,
    /// Whether attention is latent.
    pub latent: bool,
    /// Biases of the query, key and value projections.
    pub qkv_bias: When,
    /// Bias of the output projection.
    pub output_bias: When,
    /// The key of the dropout on the attention probabilities.
    pub attention_dropout: &'static str,
    /// Norms on queries and keys.
    pub qk_norms: Option<QkNorms>,
    /// Rotary embedding.
    pub rotation: Rotation,
    /// Layers with positions.
    pub positions: Positions,
    /// Sliding windows.
    pub windows: Windows,
    /// Whose attention runs.
    pub code: AttentionCode,
    /// Attention sinks.
    pub sinks: bool,
    /// The query projection makes a gate as well.
    pub gated: bool,
    /// Queries are multiplied by a number that grows with their position.
    pub query_scale: QueryScale,
    /// Layers without attention.
    pub other: Option<Other>,
    /// Every norm.
    pub norm: NormKind,
    /// Norms and residuals.
    pub wired: Wired,
    /// Other norms and residuals, where that key is on.
    pub rewired: Option<(&'static str, Wired)>,
    /// Name of the norm after the last layer.
    pub final_norm: &'static str,
    /// The dense feed-forward network.
    pub mlp: MlpShape,
    /// Biases of its layers.
    pub mlp_bias: When,
    /// Reads its width.
    pub width: fn(&Config<'_>) -> Result<u64, ModelError>,
    /// The key of its activation; empty where the code has silu (lfm2).
    pub activation: &'static str,
    /// Experts.
    pub experts: Option<Experts>,
    /// The key of the dropout on the residual branches.
    pub residual_dropout: &'static str,
    /// Bias of the head.
    pub head_bias: When,
    /// The logits are multiplied by a constant.
    pub head_scaled: bool,
    /// Further parameters of a layer.
    pub extra: fn(&Config<'_>, &Common) -> Result<Vec<Submodule>, ModelError>,
    /// Order of the modules in a layer.
    pub layout: Registration,
}

/// Llama itself.
pub const LLAMA: Variant = Variant {
    embedding: "embed_tokens",
    scaled: false,
    embedding_dropout: "embd_pdrop",
    attention: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"],
    fused: None,
    latent: false,
    qkv_bias: When::Key("attention_bias"),
    output_bias: When::Key("attention_bias"),
    attention_dropout: "attention_dropout",
    qk_norms: None,
    rotation: Rotation::Full,
    positions: Positions::Everywhere,
    windows: Windows::Never,
    code: AttentionCode::Standard,
    sinks: false,
    gated: false,
    query_scale: QueryScale::None,
    other: None,
    norm: NormKind::Rms,
    wired: Wired::Pre(["input_layernorm", "post_attention_layernorm"]),
    rewired: None,
    final_norm: "norm",
    mlp: MlpShape::Gated(["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]),
    mlp_bias: When::Key("mlp_bias"),
    width: |config| config.size("intermediate_size"),
    activation: "hidden_act",
    experts: None,
    residual_dropout: "resid_pdrop",
    head_bias: When::Never,
    head_scaled: false,
    extra: |_, _| Ok(Vec::new()),
    layout: &[],
};

/// Llama without a bias in its feed-forward network.
pub const PLAIN: Variant = Variant { mlp_bias: When::Never, ..LLAMA };

/// Llama without any bias.
pub const BARE: Variant = Variant { qkv_bias: When::Never, output_bias: When::Never, ..PLAIN };

/// Norms on queries and keys, head by head (qwen3).
pub const QK_NORMS: QkNorms = QkNorms {
    when: When::Always,
    names: ["self_attn.q_norm", "self_attn.k_norm"],
    kind: NormKind::Rms,
    width: HeadWidth::Head,
    rotated: false,
};

/// Experts under their usual names.
pub const EXPERTS: Experts = Experts {
    width: "moe_intermediate_size",
    layers: Sparse::All,
    names: ExpertNames {
        first: "mlp.experts.gate_up_proj",
        last: "mlp.experts.down_proj",
        layout: ExpertLayout::OutIn,
    },
    router: "mlp.gate",
    router_is_linear: false,
    bias: false,
    correction: None,
    shared: SharedExperts::Never,
    shared_mlp: MlpShape::Gated([
        "mlp.shared_experts.gate_proj",
        "mlp.shared_experts.up_proj",
        "mlp.shared_experts.down_proj",
    ]),
    shared_gate: None,
};

/// The experts are registered before the router.
pub const EXPERTS_FIRST: Registration = &["self_attn.", "mlp.experts", "mlp.gate."];
