//! Decoders with experts.

use super::bases::{
    DEEPSEEK_EXPERTS, DEEPSEEK_V2, DEEPSEEK_V3, ERNIE, FEED_FORWARD, GRANITE, GRANITE_EXPERTS,
    GRANITE_SHARED, HUNYUAN_QK_NORMS, LAYER_NORM, OLMO2, QWEN2_EXPERTS,
};
use crate::model::blocks::{ExpertLayout, ExpertNames, NormKind, QueryScale};
use crate::model::families::variant::{
    BARE, EXPERTS, EXPERTS_FIRST, Experts, HeadWidth, MlpShape, PLAIN, Positions, QK_NORMS, QkNorms,
    Rotation, SharedExperts, Sparse, Variant, When, Windows,
};

/// The description of a model type, if it is one of these.
pub fn of(model_type: &str) -> Option<Variant> {
    Some(match model_type {
        "mixtral" => Variant {
            windows: Windows::All,
            experts: Some(Experts { width: "intermediate_size", ..EXPERTS }),
            ..BARE
        },
        "granitemoe" => Variant {
            experts: Some(GRANITE_EXPERTS),
            layout: &["self_attn.", "input_layernorm", "post_attention_layernorm"],
            mlp_bias: When::Never,
            ..GRANITE
        },
        "ernie4_5_moe" => Variant {
            experts: Some(Experts {
                layers: Sparse::Range,
                correction: Some("mlp.gate.moe_statics.e_score_correction_bias"),
                shared: SharedExperts::Times("moe_num_shared_experts"),
                ..EXPERTS
            }),
            ..ERNIE
        },
        "qwen2_moe" => Variant {
            qkv_bias: When::Key("qkv_bias"),
            windows: Windows::Early,
            experts: Some(QWEN2_EXPERTS),
            ..BARE
        },
        "qwen3_moe" => Variant {
            qk_norms: Some(QK_NORMS),
            windows: Windows::Switched,
            experts: Some(Experts { layers: Sparse::Stepped, ..EXPERTS }),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        // JetBrains' Mellum 2: qwen3_moe with windows, and rotary embeddings by kind of layer
        "mellum" => Variant {
            qk_norms: Some(QK_NORMS),
            windows: Windows::Listed,
            experts: Some(Experts { layers: Sparse::AfterFirst(0), ..EXPERTS }),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        "qwen3_vl_moe_text" => Variant {
            qk_norms: Some(QK_NORMS),
            experts: Some(Experts { layers: Sparse::Stepped, ..EXPERTS }),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        "phimoe" => Variant {
            norm: LAYER_NORM,
            windows: Windows::All,
            experts: Some(Experts { width: "intermediate_size", router: "mlp.router", ..EXPERTS }),
            head_bias: When::Key("lm_head_bias"),
            ..PLAIN
        },
        "gpt_oss" => Variant {
            norm: NormKind::RmsCastLast,
            rotation: Rotation::Halves,
            windows: Windows::AllBut(2),
            sinks: true,
            experts: Some(Experts {
                width: "intermediate_size",
                names: ExpertNames {
                    first: "mlp.experts.gate_up_proj",
                    last: "mlp.experts.down_proj",
                    layout: ExpertLayout::InOut,
                },
                router: "mlp.router",
                bias: true,
                ..EXPERTS
            }),
            ..PLAIN
        },
        "olmoe" => Variant {
            qk_norms: Some(QkNorms { width: HeadWidth::All, ..QK_NORMS }),
            experts: Some(Experts { width: "intermediate_size", ..EXPERTS }),
            ..PLAIN
        },
        "glm4_moe" => Variant {
            output_bias: When::Never,
            rotation: Rotation::Partial(0.5),
            qk_norms: Some(QkNorms { when: When::Key("use_qk_norm"), ..QK_NORMS }),
            experts: Some(DEEPSEEK_EXPERTS),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        "glm4_moe_lite" => Variant {
            experts: Some(Experts { layers: Sparse::AfterFirst(1), ..DEEPSEEK_EXPERTS }),
            ..DEEPSEEK_V3
        },
        "deepseek_v2" => DEEPSEEK_V2,
        "deepseek_v3" | "kimi_k2" | "deepseek_v32" | "glm_moe_dsa" => DEEPSEEK_V3,
        // deepseek's first mixture, from before latent attention.
        "deepseek" => Variant { latent: false, rotation: Rotation::Full, ..DEEPSEEK_V2 },
        "llama4_text" => Variant {
            norm: NormKind::RmsTyped,
            mlp: FEED_FORWARD,
            width: |config| config.size("intermediate_size_mlp"),
            rotation: Rotation::Complex,
            positions: Positions::Listed,
            windows: Windows::Chunked,
            qk_norms: Some(QkNorms {
                when: When::Key("use_qk_norm"),
                kind: NormKind::RmsPlain,
                rotated: true,
                ..QK_NORMS
            }),
            query_scale: QueryScale::Float,
            experts: Some(Experts {
                width: "intermediate_size",
                layers: Sparse::Interleaved,
                names: ExpertNames {
                    first: "feed_forward.experts.gate_up_proj",
                    last: "feed_forward.experts.down_proj",
                    layout: ExpertLayout::InOut,
                },
                router: "feed_forward.router",
                shared: SharedExperts::One,
                shared_mlp: MlpShape::Gated([
                    "feed_forward.shared_expert.gate_proj",
                    "feed_forward.shared_expert.up_proj",
                    "feed_forward.shared_expert.down_proj",
                ]),
                ..EXPERTS
            }),
            layout: &["self_attn.", "feed_forward.experts", "feed_forward.router"],
            ..PLAIN
        },
        "exaone_moe" => Variant {
            qk_norms: Some(QK_NORMS),
            windows: Windows::AllBut(4),
            positions: Positions::WindowedIfAny,
            experts: Some(Experts { shared: SharedExperts::Times("num_shared_experts"), ..DEEPSEEK_EXPERTS }),
            layout: EXPERTS_FIRST,
            ..BARE
        },
        "granitemoeshared" => Variant {
            experts: Some(Experts {
                shared: SharedExperts::Width("shared_intermediate_size"),
                shared_mlp: GRANITE_SHARED,
                ..GRANITE_EXPERTS
            }),
            layout: &["self_attn.", "input_layernorm", "post_attention_layernorm"],
            mlp_bias: When::Never,
            ..GRANITE
        },
        "dots1" => Variant {
            qk_norms: Some(QK_NORMS),
            windows: Windows::After,
            experts: Some(DEEPSEEK_EXPERTS),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        "hunyuan_v1_moe" => Variant {
            qk_norms: Some(HUNYUAN_QK_NORMS),
            experts: Some(Experts {
                width: "intermediate_size",
                router: "mlp.gate.wg",
                router_is_linear: true,
                shared: SharedExperts::One,
                shared_mlp: MlpShape::Gated([
                    "mlp.shared_mlp.gate_proj",
                    "mlp.shared_mlp.up_proj",
                    "mlp.shared_mlp.down_proj",
                ]),
                ..EXPERTS
            }),
            ..PLAIN
        },
        "mistral4" => DEEPSEEK_V3,
        "solar_open" => Variant {
            output_bias: When::Never,
            experts: Some(Experts { layers: Sparse::All, ..DEEPSEEK_EXPERTS }),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        "minimax_m2" => Variant {
            qk_norms: Some(QkNorms { width: HeadWidth::All, ..QK_NORMS }),
            rotation: Rotation::PartialOf("rotary_dim"),
            experts: Some(Experts { width: "intermediate_size", ..EXPERTS }),
            ..BARE
        },
        "flex_olmo" => Variant { experts: Some(Experts { width: "intermediate_size", ..EXPERTS }), ..OLMO2 },
        _ => return None,
    })
}
