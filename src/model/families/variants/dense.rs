//! Dense decoders.

use super::bases::{
    DEEPSEEK_V3, ERNIE, GEMMA, GRANITE, HUNYUAN_QK_NORMS, LAYER_NORM, OLMO2, OUTPUT_NORMS, SANDWICH,
};
use crate::model::blocks::{
    Activation, AttentionCode, Norm, NormKind, QueryScale, Submodule, XIELU_PARAMETERS,
};
use crate::model::families::variant::{
    BARE, HeadWidth, LLAMA, MlpShape, PLAIN, Positions, QK_NORMS, QkNorms, Rotation, Variant, When, Windows,
    Wired,
};

/// glm4's.
const GLM4_SANDWICH: Wired = Wired::Sandwich([
    "input_layernorm",
    "post_self_attn_layernorm",
    "post_attention_layernorm",
    "post_mlp_layernorm",
]);

/// gate and up in one layer.
const FUSED_MLP: MlpShape = MlpShape::Fused(["mlp.gate_up_proj", "mlp.down_proj"]);

/// up and down alone.
const PLAIN_MLP: MlpShape = MlpShape::Plain(["mlp.up_proj", "mlp.down_proj"]);

/// glm's: fused gate and up, neighbouring pairs rotated.
const GLM: Variant =
    Variant { output_bias: When::Never, mlp: FUSED_MLP, rotation: Rotation::Interleaved(0.5), ..PLAIN };

/// cohere's: one LayerNorm, both halves beside each other, scaled logits.
const COHERE: Variant = Variant {
    norm: NormKind::LayerNormPython,
    wired: Wired::Parallel("input_layernorm"),
    rotation: Rotation::Float32,
    head_scaled: true,
    ..PLAIN
};

/// gptj: one LayerNorm, both halves beside each other, a head with a bias.
const GPTJ: Variant = Variant {
    embedding: "wte",
    attention: ["attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj"],
    attention_dropout: "attn_pdrop",
    code: AttentionCode::Own,
    rotation: Rotation::PartialOf("rotary_dim"),
    norm: LAYER_NORM,
    wired: Wired::Parallel("ln_1"),
    final_norm: "ln_f",
    mlp: MlpShape::Plain(["mlp.fc_in", "mlp.fc_out"]),
    mlp_bias: When::Always,
    width: |config| config.size_or("n_inner", 4 * config.size("hidden_size")?),
    activation: "activation_function",
    head_bias: When::Always,
    layout: &["ln_1", "attn.k_proj", "attn.v_proj", "attn.q_proj", "attn.", "mlp."],
    ..BARE
};

/// The description of a model type, if it is one of these.
pub fn of(model_type: &str) -> Option<Variant> {
    Some(match model_type {
        "llama" | "internlm2" | "baichuan" => LLAMA,
        "mistral" => Variant { windows: Windows::All, ..BARE },
        "qwen2" | "qwen2_vl_text" | "qwen2_5_vl_text" => {
            Variant { qkv_bias: When::Always, windows: Windows::Late, ..BARE }
        }
        "qwen3" => Variant { qk_norms: Some(QK_NORMS), windows: Windows::Late, ..PLAIN },
        "gemma" => GEMMA,
        "gemma2" => {
            Variant { wired: SANDWICH, activation: "hidden_activation", windows: Windows::AllBut(2), ..GEMMA }
        }
        "internlm" => Variant { qkv_bias: When::Key("bias"), output_bias: When::Key("bias"), ..PLAIN },
        "minicpm" => Variant { scaled: true, ..LLAMA },
        "ministral3" => Variant { windows: Windows::All, query_scale: QueryScale::Plain, ..BARE },
        "smollm3" => Variant { positions: Positions::Listed, windows: Windows::Unpositioned, ..LLAMA },
        "arcee" => Variant { mlp: PLAIN_MLP, ..LLAMA },
        "granite" => GRANITE,
        "nemotron" => Variant {
            norm: NormKind::LayerNormPlusOne,
            mlp: PLAIN_MLP,
            rotation: Rotation::Partial(0.5),
            ..LLAMA
        },
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
        "ernie4_5" => ERNIE,
        "qwen3_vl_text" => Variant { qk_norms: Some(QK_NORMS), ..PLAIN },
        "olmo" => Variant { norm: NormKind::LayerNormPlain, rotation: Rotation::Float32, ..PLAIN },
        "olmo2" => OLMO2,
        "olmo3" => Variant { windows: Windows::AllBut(4), ..OLMO2 },
        "gemma3_text" => Variant {
            wired: SANDWICH,
            activation: "hidden_activation",
            windows: Windows::AllBut(6),
            qk_norms: Some(QkNorms { kind: NormKind::RmsPlusOne, ..QK_NORMS }),
            ..GEMMA
        },
        "cohere" => Variant {
            qk_norms: Some(QkNorms {
                when: When::Key("use_qk_norm"),
                kind: NormKind::LayerNormPython,
                width: HeadWidth::EachHead,
                ..QK_NORMS
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
        "phi3" => Variant {
            fused: Some("self_attn.qkv_proj"),
            mlp: FUSED_MLP,
            // its config has `embd_pdrop`, which its code does not read
            embedding_dropout: "",
            rotation: Rotation::Partial(1.0),
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
            qk_norms: Some(QkNorms {
                when: When::Key("qk_layernorm"),
                names: ["self_attn.q_layernorm", "self_attn.k_layernorm"],
                kind: LAYER_NORM,
                width: HeadWidth::Head,
                rotated: false,
            }),
            wired: Wired::Parallel("input_layernorm"),
            mlp: MlpShape::Plain(["mlp.fc1", "mlp.fc2"]),
            rotation: Rotation::Partial(0.5),
            ..LLAMA
        },
        "ministral" => Variant { windows: Windows::All, ..BARE },
        "cwm" => Variant { windows: Windows::AllButFrom(4), mlp_bias: When::Key("mlp_bias"), ..BARE },
        "seed_oss" => Variant {
            output_bias: When::Key("attention_out_bias"),
            residual_dropout: "residual_dropout",
            ..LLAMA
        },
        "hyperclovax" => Variant {
            rewired: Some((
                "use_post_norm",
                Wired::Sandwich(["input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2"]),
            )),
            layout: &["self_attn.", "mlp.", "input_layernorm", "post_attention_layernorm"],
            ..GRANITE
        },
        "jais2" => Variant { norm: LAYER_NORM, mlp: PLAIN_MLP, ..LLAMA },
        "apertus" => Variant {
            qk_norms: Some(QK_NORMS),
            wired: Wired::Pre(["attention_layernorm", "feedforward_layernorm"]),
            mlp: PLAIN_MLP,
            // xIELU has two parameters of its own
            extra: |_, common| {
                let own = common.act == Activation::Xielu;
                let names = XIELU_PARAMETERS.iter().filter(|_| own);
                Ok(names.map(|name| Submodule::param(name, &[1])).collect())
            },
            layout: &["self_attn.", "mlp."],
            ..PLAIN
        },
        "helium" => Variant {
            norm: NormKind::RmsFloat,
            output_bias: When::Never,
            rotation: Rotation::Interleaved(1.0),
            ..LLAMA
        },
        "bitnet" => Variant {
            extra: |config, common| {
                let rms = |name, width| Submodule::Norm(Norm::new(name, width, NormKind::Rms));
                let inner = config.size("intermediate_size")?;
                Ok(vec![rms("self_attn.attn_sub_norm", common.hidden), rms("mlp.ffn_sub_norm", inner)])
            },
            layout: &["self_attn.", "mlp."],
            ..PLAIN
        },
        "diffllama" => Variant {
            code: AttentionCode::Unmodelled("diffllama"),
            extra: |_, common| {
                let names = [
                    "self_attn.lambda_q1",
                    "self_attn.lambda_k1",
                    "self_attn.lambda_q2",
                    "self_attn.lambda_k2",
                ];
                Ok(names.map(|name| Submodule::param(name, &[common.head_dim])).to_vec())
            },
            layout: &["self_attn.lambda", "self_attn."],
            ..PLAIN
        },
        "vaultgemma" => Variant {
            wired: Wired::Pre(["input_layernorm", "pre_feedforward_layernorm"]),
            activation: "hidden_activation",
            windows: Windows::AllBut(2),
            ..GEMMA
        },
        // exaone 3's own code; transformers has exaone 4
        "exaone" => Variant {
            embedding: "wte",
            attention: [
                "attn.attention.q_proj",
                "attn.attention.k_proj",
                "attn.attention.v_proj",
                "attn.attention.out_proj",
            ],
            wired: Wired::Pre(["ln_1", "ln_2"]),
            final_norm: "ln_f",
            mlp: MlpShape::Gated(["mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"]),
            activation: "activation_function",
            layout: &["ln_1", "attn.", "ln_2"],
            ..BARE
        },
        "exaone4" => Variant {
            wired: OUTPUT_NORMS,
            qk_norms: Some(QK_NORMS),
            windows: Windows::AllBut(4),
            positions: Positions::WindowedIfAny,
            ..BARE
        },
        "stablelm" => Variant {
            qkv_bias: When::Key("use_qkv_bias"),
            norm: LAYER_NORM,
            rewired: Some(("use_parallel_residual", Wired::Parallel("input_layernorm"))),
            qk_norms: Some(QkNorms {
                when: When::Key("qk_layernorm"),
                names: ["self_attn.q_layernorm.norms", "self_attn.k_layernorm.norms"],
                kind: NormKind::LayerNorm { bias: false },
                width: HeadWidth::EachHead,
                rotated: false,
            }),
            rotation: Rotation::Partial(0.25),
            residual_dropout: "hidden_dropout",
            ..BARE
        },
        "persimmon" => Variant {
            fused: Some("self_attn.query_key_value"),
            attention: ["", "", "", "self_attn.dense"],
            qkv_bias: When::Always,
            output_bias: When::Always,
            mlp_bias: When::Always,
            norm: LAYER_NORM,
            qk_norms: Some(QkNorms {
                when: When::Key("qk_layernorm"),
                names: ["self_attn.q_layernorm", "self_attn.k_layernorm"],
                kind: LAYER_NORM,
                width: HeadWidth::Head,
                rotated: false,
            }),
            final_norm: "final_layernorm",
            mlp: MlpShape::Plain(["mlp.dense_h_to_4h", "mlp.dense_4h_to_h"]),
            rotation: Rotation::Partial(0.5),
            residual_dropout: "hidden_dropout",
            ..LLAMA
        },
        "hunyuan_v1_dense" => Variant { qk_norms: Some(HUNYUAN_QK_NORMS), ..PLAIN },
        "youtu" | "minicpm3" => Variant {
            experts: None,
            layout: &[],
            mlp_bias: When::Key("mlp_bias"),
            scaled: model_type == "minicpm3",
            ..DEEPSEEK_V3
        },
        "nanochat" => Variant {
            norm: NormKind::RmsPlain,
            qk_norms: Some(QkNorms { kind: NormKind::RmsPlain, ..QK_NORMS }),
            mlp: MlpShape::Plain(["mlp.fc1", "mlp.fc2"]),
            ..PLAIN
        },
        "gptj" => GPTJ,
        "codegen" => Variant {
            fused: Some("attn.qkv_proj"),
            code: AttentionCode::Unmodelled("codegen"),
            layout: &["ln_1", "attn.", "mlp."],
            ..GPTJ
        },
        _ => return None,
    })
}
