//! What several of the descriptions have in common.

use crate::model::blocks::{ExpertLayout, ExpertNames, NormKind};
use crate::model::families::variant::{
    EXPERTS, EXPERTS_FIRST, Experts, HeadWidth, LLAMA, MlpShape, PLAIN, QK_NORMS, QkNorms, Rotation,
    SharedExperts, Sparse, Variant, When, Wired,
};

pub(super) const LAYER_NORM: NormKind = NormKind::LayerNorm { bias: true };

/// Norms after the halves (olmo2).
pub(super) const OUTPUT_NORMS: Wired =
    Wired::Output(["post_attention_layernorm", "post_feedforward_layernorm"]);

/// Jamba's and lfm2's names.
pub(super) const FEED_FORWARD: MlpShape =
    MlpShape::Gated(["feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"]);

/// The one shared expert of qwen2_moe.
pub(super) const SHARED_EXPERT: MlpShape = MlpShape::Gated([
    "mlp.shared_expert.gate_proj",
    "mlp.shared_expert.up_proj",
    "mlp.shared_expert.down_proj",
]);

/// gemma's norms, activation key and embedding.
pub(super) const GEMMA: Variant = Variant { norm: NormKind::RmsPlusOne, scaled: true, ..PLAIN };

/// Gemma's sandwich of norms.
pub(super) const SANDWICH: Wired = Wired::Sandwich([
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
]);

/// olmo2: norms over all heads together, and after the halves.
pub(super) const OLMO2: Variant = Variant {
    norm: NormKind::RmsCastLast,
    wired: OUTPUT_NORMS,
    rotation: Rotation::Float32,
    qk_norms: Some(QkNorms { kind: NormKind::RmsCastLast, width: HeadWidth::All, ..QK_NORMS }),
    ..PLAIN
};

/// deepseek's experts: some dense layers first, then routed and shared ones.
pub(super) const DEEPSEEK_EXPERTS: Experts =
    Experts { layers: Sparse::After, shared: SharedExperts::Times("n_shared_experts"), ..EXPERTS };

/// deepseek_v2: latent attention and shared experts.
pub(super) const DEEPSEEK_V2: Variant = Variant {
    latent: true,
    rotation: Rotation::Complex,
    experts: Some(DEEPSEEK_EXPERTS),
    layout: EXPERTS_FIRST,
    mlp_bias: When::Never,
    ..LLAMA
};

/// deepseek_v3: the same, rotated in neighbouring pairs.
pub(super) const DEEPSEEK_V3: Variant = Variant { rotation: Rotation::Full, ..DEEPSEEK_V2 };

/// qwen2_moe's experts: routed ones, and a shared one behind a gate.
pub(super) const QWEN2_EXPERTS: Experts = Experts {
    layers: Sparse::Stepped,
    shared: SharedExperts::Width("shared_expert_intermediate_size"),
    shared_mlp: SHARED_EXPERT,
    shared_gate: Some("mlp.shared_expert_gate"),
    ..EXPERTS
};

/// granite's: llama with constants on embedding, residuals and logits.
pub(super) const GRANITE: Variant = Variant { scaled: true, head_scaled: true, ..LLAMA };

/// granitemoe's experts.
pub(super) const GRANITE_EXPERTS: Experts = Experts {
    width: "intermediate_size",
    names: ExpertNames {
        first: "block_sparse_moe.experts.gate_up_proj",
        last: "block_sparse_moe.experts.down_proj",
        layout: ExpertLayout::OutIn,
    },
    router: "block_sparse_moe.router",
    ..EXPERTS
};

/// Names of granite's shared network.
pub(super) const GRANITE_SHARED: MlpShape =
    MlpShape::Fused(["shared_mlp.input_linear", "shared_mlp.output_linear"]);

/// Names of hunyuan's norms on queries and keys.
pub(super) const HUNYUAN_QK_NORMS: QkNorms =
    QkNorms { names: ["self_attn.query_layernorm", "self_attn.key_layernorm"], ..QK_NORMS };

/// ernie4_5's: biases by one key, rotated in float32.
pub(super) const ERNIE: Variant = Variant {
    qkv_bias: When::Key("use_bias"),
    output_bias: When::Key("use_bias"),
    mlp_bias: When::Key("use_bias"),
    rotation: Rotation::Float32,
    ..LLAMA
};
