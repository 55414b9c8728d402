//! The families of decoders that are llama with a difference, one description each.

use super::hybrid;
use super::variant::{
    BARE, EXPERTS, EXPERTS_FIRST, Experts, HEAD_NORMS, HeadWidth, Heads, LLAMA, MlpShape, Other, Others,
    PLAIN, Positions, Shared, Sparse, Turn, Variant, When, Windows, Wired,
};
use crate::model::blocks::{ExpertNames, NormKind};

const LAYER_NORM: NormKind = NormKind::LayerNorm { bias: true };

/// gemma's norms, activation key and embedding.
const GEMMA: Variant = Variant { norm: NormKind::RmsPlusOne, scaled: true, ..PLAIN };

/// Gemma's sandwich of norms.
const SANDWICH: Wired = Wired::Sandwich([
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
]);

/// glm4's.
const GLM4_SANDWICH: Wired = Wired::Sandwich([
    "input_layernorm",
    "post_self_attn_layernorm",
    "post_attention_layernorm",
    "post_mlp_layernorm",
]);

/// Norms after the halves (olmo2).
const OUTPUT_NORMS: Wired = Wired::Output(["post_attention_layernorm", "post_feedforward_layernorm"]);

/// gate and up in one layer.
const FUSED_MLP: MlpShape = MlpShape::Fused(["mlp.gate_up_proj", "mlp.down_proj"]);

/// up and down alone.
const PLAIN_MLP: MlpShape = MlpShape::Plain(["mlp.up_proj", "mlp.down_proj"]);

/// Jamba's and lfm2's names.
const FEED_FORWARD: MlpShape =
    MlpShape::Gated(["feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"]);

/// The one shared expert of qwen2_moe.
const SHARED_EXPERT: MlpShape = MlpShape::Gated([
    "mlp.shared_expert.gate_proj",
    "mlp.shared_expert.up_proj",
    "mlp.shared_expert.down_proj",
]);

/// olmo2: norms over all heads together, and after the halves.
const OLMO2: Variant = Variant {
    norm: NormKind::RmsCastLast,
    wired: OUTPUT_NORMS,
    turn: Turn::Float32,
    heads: Some(Heads { kind: NormKind::RmsCastLast, width: HeadWidth::All, ..HEAD_NORMS }),
    ..PLAIN
};

/// deepseek's experts: some dense layers first, then routed and shared ones.
const DEEPSEEK_EXPERTS: Experts =
    Experts { layers: Sparse::After, shared: Shared::Times("n_shared_experts"), ..EXPERTS };

/// deepseek_v2: latent attention and shared experts.
const DEEPSEEK_V2: Variant = Variant {
    latent: true,
    turn: Turn::Complex,
    experts: Some(DEEPSEEK_EXPERTS),
    layout: EXPERTS_FIRST,
    mlp_bias: When::Never,
    ..LLAMA
};

/// deepseek_v3: the same, rotated in neighbouring pairs.
const DEEPSEEK_V3: Variant = Variant { turn: Turn::Full, ..DEEPSEEK_V2 };

/// qwen2_moe's experts: routed ones, and a shared one behind a gate.
const QWEN2_EXPERTS: Experts = Experts {
    layers: Sparse::Stepped,
    shared: Shared::Width("shared_expert_intermediate_size"),
    shared_mlp: SHARED_EXPERT,
    shared_gate: Some("mlp.shared_expert_gate"),
    ..EXPERTS
};

/// qwen3_next and qwen3_5: three layers of linear attention, one of gated attention.
const QWEN3_NEXT: Variant = Variant {
    heads: Some(Heads { kind: NormKind::RmsPlusOne, ..HEAD_NORMS }),
    norm: NormKind::RmsPlusOne,
    turn: Turn::Partial(0.25),
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

/// glm's: fused gate and up, neighbouring pairs rotated.
const GLM: Variant =
    Variant { output_bias: When::Never, mlp: FUSED_MLP, turn: Turn::Interleaved(0.5), ..PLAIN };

/// granite's: llama with constants on embedding, residuals and logits.
const GRANITE: Variant = Variant { scaled: true, head_scaled: true, ..LLAMA };

/// granitemoe's experts.
const GRANITE_EXPERTS: Experts = Experts {
    width: "intermediate_size",
    names: ExpertNames {
        first: "block_sparse_moe.experts.gate_up_proj",
        last: "block_sparse_moe.experts.down_proj",
        transposed: false,
    },
    router: "block_sparse_moe.router",
    ..EXPERTS
};

/// cohere's: one LayerNorm, both halves beside each other, scaled logits.
const COHERE: Variant = Variant {
    norm: NormKind::LayerNormPython,
    wired: Wired::Parallel("input_layernorm"),
    turn: Turn::Float32,
    head_scaled: true,
    ..PLAIN
};

/// The description of a model type, if it is llama with a difference.
pub fn of(model_type: &str) -> Option<Variant> {
    Some(match model_type {
        "llama" | "internlm2" | "baichuan" => LLAMA,
        "internlm" => Variant { qkv_bias: When::Key("bias"), output_bias: When::Key("bias"), ..PLAIN },
        "minicpm" => Variant { scaled: true, ..LLAMA },
        "mistral" => Variant { windows: Windows::All, ..BARE },
        "ministral3" => Variant { windows: Windows::All, ..BARE },
        "smollm3" => Variant { positions: Positions::Listed, windows: Windows::Unpositioned, ..LLAMA },
        "arcee" => Variant { mlp: PLAIN_MLP, ..LLAMA },
        "granite" => GRANITE,
        "granitemoe" => Variant {
            experts: Some(GRANITE_EXPERTS),
            layout: &["self_attn.", "input_layernorm", "post_attention_layernorm"],
            mlp_bias: When::Never,
            ..GRANITE
        },
        "nemotron" => {
            Variant { norm: NormKind::LayerNormPlusOne, mlp: PLAIN_MLP, turn: Turn::Partial(0.5), ..LLAMA }
        }
        "starcoder2" => Variant {
            qkv_bias: When::Key("use_bias"),
            output_bias: When::Key("use_bias"),
            mlp_bias: When::Key("use_bias"),
            norm: LAYER_NORM,
            mlp: MlpShape::Plain(["mlp.c_fc", "mlp.c_proj"]),
            windows: Windows::All,
            embedding_dropout: "embedding_dropout",
            residual_dropout: "residual_dropout",
            ..LLAMA
        },
        "ernie4_5" => ernie(),
        "ernie4_5_moe" => Variant {
            experts: Some(Experts {
                layers: Sparse::Range,
                correction: Some("mlp.gate.moe_statics.e_score_correction_bias"),
                shared: Shared::Times("moe_num_shared_experts"),
                ..EXPERTS
            }),
            ..ernie()
        },
        "qwen2" | "qwen2_vl_text" | "qwen2_5_vl_text" => {
            Variant { qkv_bias: When::Always, windows: Windows::Late, ..BARE }
        }
        "qwen2_moe" => Variant {
            qkv_bias: When::Key("qkv_bias"),
            windows: Windows::Early,
            experts: Some(QWEN2_EXPERTS),
            ..BARE
        },
        "qwen3" => Variant { heads: Some(HEAD_NORMS), windows: Windows::Late, ..PLAIN },
        "qwen3_moe" => Variant {
            heads: Some(HEAD_NORMS),
            windows: Windows::Switched,
            experts: Some(Experts { layers: Sparse::Stepped, ..EXPERTS }),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        "qwen3_next" => Variant { experts: Some(QWEN2_EXPERTS), ..QWEN3_NEXT },
        "qwen3_5_text" => QWEN3_5,
        "qwen3_5_moe_text" => {
            Variant { experts: Some(Experts { layers: Sparse::All, ..QWEN2_EXPERTS }), ..QWEN3_5 }
        }
        "qwen3_vl_text" => Variant { heads: Some(HEAD_NORMS), ..PLAIN },
        "qwen3_vl_moe_text" => Variant {
            heads: Some(HEAD_NORMS),
            experts: Some(Experts { layers: Sparse::Stepped, ..EXPERTS }),
            layout: EXPERTS_FIRST,
            ..PLAIN
        },
        "mixtral" => Variant {
            windows: Windows::All,
            experts: Some(Experts { width: "intermediate_size", ..EXPERTS }),
            ..BARE
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
            turn: Turn::Halves,
            windows: Windows::AllBut(2),
            sinks: true,
            experts: Some(Experts {
                width: "intermediate_size",
                names: ExpertNames {
                    first: "mlp.experts.gate_up_proj",
                    last: "mlp.experts.down_proj",
                    transposed: true,
                },
                router: "mlp.router",
                bias: true,
                ..EXPERTS
            }),
            ..PLAIN
        },
        "olmo" => Variant { norm: NormKind::LayerNormPlain, turn: Turn::Float32, ..PLAIN },
        "olmo2" => OLMO2,
        "olmo3" => Variant { windows: Windows::AllBut(4), ..OLMO2 },
        "olmoe" => Variant {
            heads: Some(Heads { width: HeadWidth::All, ..HEAD_NORMS }),
            experts: Some(Experts { width: "intermediate_size", ..EXPERTS }),
            ..PLAIN
        },
        "gemma" => GEMMA,
        "gemma2" => {
            Variant { wired: SANDWICH, activation: "hidden_activation", windows: Windows::AllBut(2), ..GEMMA }
        }
        "gemma3_text" => Variant {
            wired: SANDWICH,
            activation: "hidden_activation",
            windows: Windows::AllBut(6),
            heads: Some(Heads { kind: NormKind::RmsPlusOne, ..HEAD_NORMS }),
            ..GEMMA
        },
        "cohere" => Variant {
            heads: Some(Heads {
                when: When::Key("use_qk_norm"),
                kind: NormKind::LayerNormPython,
                width: HeadWidth::EachHead,
                ..HEAD_NORMS
            }),
            ..COHERE
        },
        "cohere2" => Variant { windows: Windows::AllBut(4), positions: Positions::Windowed, ..COHERE },
        "glm" => GLM,
        "glm4" => Variant {
            wired: GLM4_SANDWICH,
            layout: &["self_attn.", "mlp.", "input_layernorm", "post_attention_layernorm"],
            ..GLM
        },
        "glm4_moe" => Variant {
            output_bias: When::Never,
            turn: Turn::Partial(0.5),
            heads: Some(Heads { when: When::Key("use_qk_norm"), ..HEAD_NORMS }),
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
        "deepseek" => Variant { latent: false, turn: Turn::Full, ..DEEPSEEK_V2 },
        "llama4_text" => Variant {
            mlp: FEED_FORWARD,
            width: |config| config.size("intermediate_size_mlp"),
            turn: Turn::Complex,
            positions: Positions::Listed,
            windows: Windows::Chunked,
            heads: Some(Heads { when: When::Key("use_qk_norm"), kind: NormKind::RmsPlain, ..HEAD_NORMS }),
            experts: Some(Experts {
                width: "intermediate_size",
                layers: Sparse::Interleaved,
                names: ExpertNames {
                    first: "feed_forward.experts.gate_up_proj",
                    last: "feed_forward.experts.down_proj",
                    transposed: true,
                },
                router: "feed_forward.router",
                shared: Shared::One,
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
        "jamba" => Variant {
            wired: Wired::Pre(["input_layernorm", "pre_ff_layernorm"]),
            final_norm: "final_layernorm",
            mlp: FEED_FORWARD,
            turn: Turn::Never,
            other: Some(Other { layers: Others::Periodic, mixer: hybrid::jamba }),
            experts: Some(Experts {
                width: "intermediate_size",
                layers: Sparse::Periodic,
                names: ExpertNames {
                    first: "feed_forward.experts.gate_up_proj",
                    last: "feed_forward.experts.down_proj",
                    transposed: false,
                },
                router: "feed_forward.router",
                router_is_linear: true,
                ..EXPERTS
            }),
            ..BARE
        },
        "lfm2" => Variant {
            attention: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"],
            wired: Wired::Pre(["operator_norm", "ffn_norm"]),
            final_norm: "embedding_norm",
            heads: Some(Heads { names: ["self_attn.q_layernorm", "self_attn.k_layernorm"], ..HEAD_NORMS }),
            mlp: MlpShape::Gated(["feed_forward.w1", "feed_forward.w3", "feed_forward.w2"]),
            width: hybrid::lfm2_width,
            other: Some(Other { layers: Others::Unlisted("conv"), mixer: hybrid::short_conv }),
            ..BARE
        },
        "phi3" => Variant {
            fused: Some("self_attn.qkv_proj"),
            mlp: FUSED_MLP,
            turn: Turn::Partial(1.0),
            windows: Windows::All,
            layout: &["self_attn.o_proj", "self_attn.qkv_proj"],
            ..BARE
        },
        "phi" => Variant {
            qkv_bias: When::Always,
            output_bias: When::Always,
            mlp_bias: When::Always,
            head_bias: When::Always,
            attention: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"],
            final_norm: "final_layernorm",
            norm: LAYER_NORM,
            heads: Some(Heads {
                when: When::Key("qk_layernorm"),
                names: ["self_attn.q_layernorm", "self_attn.k_layernorm"],
                kind: LAYER_NORM,
                width: HeadWidth::Head,
            }),
            wired: Wired::Parallel("input_layernorm"),
            mlp: MlpShape::Plain(["mlp.fc1", "mlp.fc2"]),
            turn: Turn::Partial(0.5),
            ..LLAMA
        },
        _ => return None,
    })
}

/// ernie4_5's: biases by one key, rotated in float32.
fn ernie() -> Variant {
    Variant {
        qkv_bias: When::Key("use_bias"),
        output_bias: When::Key("use_bias"),
        mlp_bias: When::Key("use_bias"),
        turn: Turn::Float32,
        ..LLAMA
    }
}
