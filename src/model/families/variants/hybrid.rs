//! Decoders of which most layers have no attention.

use super::bases::{FEED_FORWARD, GRANITE, GRANITE_EXPERTS, GRANITE_SHARED, QWEN2_EXPERTS};
use crate::model::blocks::{ExpertLayout, ExpertNames, NormKind};
use crate::model::families::hybrid;
use crate::model::families::variant::{
    BARE, EXPERTS, Experts, LLAMA, MlpShape, Other, Others, PLAIN, Positions, QK_NORMS, QkNorms, Rotation,
    SharedExperts, Sparse, Variant, When, Wired,
};

/// qwen3_next and qwen3_5: three layers of linear attention, one of gated attention.
const QWEN3_NEXT: Variant = Variant {
    qk_norms: Some(QkNorms { kind: NormKind::RmsPlusOne, ..QK_NORMS }),
    norm: NormKind::RmsPlusOne,
    rotation: Rotation::Partial(0.25),
    gated: true,
    other: Some(Other { layers: Others::Interval("linear_attention"), mixer: hybrid::delta_net }),
    layout: &["linear_attn.", "self_attn."],
    ..PLAIN
};

/// qwen3_5: the same with more and smaller projections.
const QWEN3_5: Variant = Variant {
    other: Some(Other { layers: Others::Interval("linear_attention"), mixer: hybrid::delta_net_apart }),
    layout: &[
        "linear_attn.dt_bias",
        "linear_attn.A_log",
        "linear_attn.conv1d",
        "linear_attn.norm",
        "linear_attn.out_proj",
        "linear_attn.",
        "self_attn.",
    ],
    ..QWEN3_NEXT
};

/// lfm2: short convolutions in most layers.
const LFM2: Variant = Variant {
    attention: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"],
    wired: Wired::Pre(["operator_norm", "ffn_norm"]),
    final_norm: "embedding_norm",
    qk_norms: Some(QkNorms { names: ["self_attn.q_layernorm", "self_attn.k_layernorm"], ..QK_NORMS }),
    mlp: MlpShape::Gated(["feed_forward.w1", "feed_forward.w3", "feed_forward.w2"]),
    width: hybrid::lfm2_width,
    activation: "",
    other: Some(Other { layers: Others::Unlisted("conv"), mixer: hybrid::short_conv }),
    ..BARE
};

/// The description of a model type, if it is one of these.
pub fn of(model_type: &str) -> Option<Variant> {
    Some(match model_type {
        "qwen3_next" => Variant { experts: Some(QWEN2_EXPERTS), ..QWEN3_NEXT },
        "qwen3_5_text" => QWEN3_5,
        "qwen3_5_moe_text" => {
            Variant { experts: Some(Experts { layers: Sparse::All, ..QWEN2_EXPERTS }), ..QWEN3_5 }
        }
        "jamba" => Variant {
            wired: Wired::Pre(["input_layernorm", "pre_ff_layernorm"]),
            final_norm: "final_layernorm",
            mlp: FEED_FORWARD,
            rotation: Rotation::Never,
            other: Some(Other { layers: Others::Periodic, mixer: hybrid::jamba }),
            experts: Some(Experts {
                width: "intermediate_size",
                layers: Sparse::Periodic,
                names: ExpertNames {
                    first: "feed_forward.experts.gate_up_proj",
                    last: "feed_forward.experts.down_proj",
                    layout: ExpertLayout::OutIn,
                },
                router: "feed_forward.router",
                router_is_linear: true,
                ..EXPERTS
            }),
            ..BARE
        },
        "lfm2" => LFM2,
        "granitemoehybrid" => Variant {
            mlp: GRANITE_SHARED,
            mlp_bias: When::Never,
            width: |config| config.size("shared_intermediate_size"),
            positions: Positions::Named,
            other: Some(Other { layers: Others::Typed("mamba"), mixer: hybrid::bamba }),
            experts: Some(Experts {
                layers: Sparse::IfAny,
                shared: SharedExperts::Width("shared_intermediate_size"),
                shared_mlp: GRANITE_SHARED,
                ..GRANITE_EXPERTS
            }),
            layout: &["input_layernorm", "post_attention_layernorm", "block_sparse_moe.", "shared_mlp."],
            ..GRANITE
        },
        "bamba" => Variant {
            wired: Wired::Pre(["input_layernorm", "pre_ff_layernorm"]),
            final_norm: "final_layernorm",
            mlp: FEED_FORWARD,
            rotation: Rotation::Partial(0.5),
            other: Some(Other { layers: Others::Unindexed, mixer: hybrid::bamba }),
            layout: &["feed_forward.", "input_layernorm", "pre_ff_layernorm"],
            ..LLAMA
        },
        "lfm2_moe" => Variant {
            experts: Some(Experts {
                layers: Sparse::AfterDense,
                names: ExpertNames {
                    first: "feed_forward.experts.gate_up_proj",
                    last: "feed_forward.experts.down_proj",
                    layout: ExpertLayout::OutIn,
                },
                router: "feed_forward.gate",
                ..EXPERTS
            }),
            width: |config| config.size("intermediate_size"),
            layout: &["conv.", "self_attn.", "feed_forward.experts", "feed_forward."],
            ..LFM2
        },
        _ => return None,
    })
}
