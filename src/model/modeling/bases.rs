//! What rows begin with: the answers that several families have in common.

use super::{
    Code, ExpertLayers, ExpertTurns, FloatRotary, HeadNorms, Liger, Modeling, Peft, PositionIds, RotaryJoin,
    RotaryTables, Router, Stacks, Torchtune, TorchtuneRotary, Unsloth,
};

pub(super) const NO_PEFT: Peft = Peft { experts: false, refuses_out_proj: false, packs_projections: false };
pub(super) const EXPERTS: Peft = Peft { experts: true, ..NO_PEFT };
const NO_OUT_PROJ: Peft = Peft { refuses_out_proj: true, ..NO_PEFT };

pub(super) const fn expert_layers(names: [&'static str; 3], turns: ExpertTurns) -> Option<ExpertLayers> {
    Some(ExpertLayers { names, turns })
}

/// Of most families.
pub(super) const PROJECTIONS: [&str; 3] =
    ["mlp.experts.gate_proj", "mlp.experts.up_proj", "mlp.experts.down_proj"];
pub(super) const CHOSEN: Option<ExpertLayers> = expert_layers(PROJECTIONS, ExpertTurns::Chosen);
pub(super) const WEIGHED: Option<ExpertLayers> = expert_layers(PROJECTIONS, ExpertTurns::Weighed);

/// llama's own answers.
pub(super) const LLAMA: Modeling = Modeling {
    code: Code::Llama,
    head_norms: HeadNorms::Each,
    projects_first: false,
    norms_first: false,
    router: Router::Qwen,
    float_rotary: FloatRotary::Promoted,
    rotary_join: RotaryJoin::Nested,
    rotary_tables: RotaryTables::One,
    positions: PositionIds::Range,
    peft: NO_PEFT,
    drops_attention_by_module: false,
    drops_by_function: false,
    gathers_experts_whole: false,
    expert_layers: None,
    own_cache: false,
    caches_with_labels: true,
    checkpoints: true,
    kept_in_float32: None,
    mask_by_position: false,
    mask_arguments: false,
    packs: true,
    flash_attn: true,
    compiles: false,
    cuts_experts: false,
    runs_encoder: false,
    scales_branches: false,
    scales_hidden: false,
    scale_buffer: false,
    casts_masked_loss: false,
    attention_output_dropout: true,
    logits_bias: false,
    shares_indexer_choice: false,
    replaces_placeholders: false,
    casts_scan_arguments: true,
    frees_queries_first: false,
    keeps_mixed: false,
};

/// What has code of its own: neither packed texts nor flash-attn were traced.
pub(super) const fn own(code: Code) -> Modeling {
    Modeling { code, packs: false, flash_attn: false, ..LLAMA }
}

/// qwen2 and those that ask for their masks as it does.
pub(super) const QWEN: Modeling = Modeling { mask_arguments: true, ..LLAMA };
pub(super) const LLAMA4: Modeling =
    Modeling { head_norms: HeadNorms::AfterRotary, router: Router::Every, keeps_mixed: true, ..QWEN };
/// Experts whose weights peft adapts as they are.
pub(super) const MOE: Modeling = Modeling { peft: EXPERTS, ..LLAMA };
/// deepseek_v3 and those that took its router.
pub(super) const GROUPS: Modeling = Modeling { router: Router::Groups, ..MOE };
pub(super) const GEMMA: Modeling = Modeling { scale_buffer: true, ..LLAMA };
pub(super) const GEMMA3: Modeling = Modeling {
    head_norms: HeadNorms::Last,
    rotary_tables: RotaryTables::ByKind,
    mask_arguments: true,
    ..GEMMA
};
pub(super) const GEMMA4: Modeling =
    Modeling { packs: true, scale_buffer: true, mask_arguments: true, ..own(Code::Gemma4) };
pub(super) const GRANITE: Modeling = Modeling { scales_branches: true, ..LLAMA };
pub(super) const GRANITE_MOE: Modeling = Modeling { router: Router::BestFirst, ..GRANITE };
pub(super) const GLM: Modeling = Modeling { rotary_join: RotaryJoin::Replacing, ..LLAMA };
pub(super) const COHERE: Modeling = Modeling { float_rotary: FloatRotary::CastFirst, ..LLAMA };
pub(super) const ERNIE: Modeling = Modeling { float_rotary: FloatRotary::Pairs, ..LLAMA };
pub(super) const KEPT: Modeling = Modeling { rotary_join: RotaryJoin::Kept, ..LLAMA };
pub(super) const QWEN3_5: Modeling =
    Modeling { rotary_join: RotaryJoin::Replacing, rotary_tables: RotaryTables::Grid, ..QWEN };
/// Text models whose config is a part of another.
pub(super) const INNER: Modeling = Modeling { own_cache: true, packs: false, ..LLAMA };
pub(super) const MAMBA: Modeling = Modeling { peft: NO_OUT_PROJ, ..LLAMA };
pub(super) const BERT: Modeling = Modeling { mask_by_position: true, ..own(Code::Bert) };
pub(super) const ROBERTA: Modeling = Modeling { positions: PositionIds::Counted, ..BERT };
/// umt5: t5's, whose code for a bias in every layer is not written here.
pub(super) const UMT5: Modeling =
    Modeling { kept_in_float32: Some(".DenseReluDense.wo"), flash_attn: false, ..LLAMA };
pub(super) const T5: Modeling = Modeling { runs_encoder: true, ..UMT5 };
pub(super) const BART: Modeling =
    Modeling { runs_encoder: true, caches_with_labels: false, logits_bias: true, ..own(Code::Bart) };
pub(super) const SPARSE: Modeling =
    Modeling { router: Router::Groups, peft: EXPERTS, mask_arguments: true, ..own(Code::DeepseekSparse) };

/// No other project's code was compared.
pub(super) const NOWHERE: Stacks =
    Stacks { trl: false, liger: None, torchtune: None, unsloth: None, axolotl: false };
/// trl's trainers were compared.
pub(super) const TRL: Stacks = Stacks { trl: true, ..NOWHERE };
/// llama's patch of Liger's.
const LIGERS: Liger = Liger {
    norms: true,
    norms_in_place: true,
    rotary: true,
    gates: true,
    experts: false,
    fused_loss: true,
    logits: 1,
};
/// That of families with norms behind their branches.
const LIGERS_BEHIND: Liger = Liger { norms_in_place: false, ..LIGERS };
/// Liger's kernels too.
pub(super) const LIGER: Stacks = Stacks { liger: Some(LIGERS), ..TRL };
/// The same with experts as one function.
pub(super) const LIGER_EXPERTS: Stacks = Stacks { liger: Some(Liger { experts: true, ..LIGERS }), ..TRL };
/// gpt_oss, whose experts are left as they are.
pub(super) const LIGER_GPT_OSS: Stacks = Stacks { liger: Some(Liger { logits: 8, ..LIGERS }), ..TRL };
/// granite, whose logits are all made.
pub(super) const LIGER_LOGITS: Stacks = Stacks { liger: Some(Liger { fused_loss: false, ..LIGERS }), ..TRL };
/// qwen2_5_vl, whose patch names a rotary function that transformers 5.17 does not call.
pub(super) const LIGER_QWEN2_VL: Stacks = Stacks { liger: Some(Liger { rotary: false, ..LIGERS }), ..TRL };
/// qwen3_vl.
pub(super) const LIGER_QWEN3_VL: Stacks = Stacks { liger: Some(Liger { gates: false, ..LIGERS }), ..TRL };
/// The same with norms behind the branches.
pub(super) const LIGER_BEHIND: Stacks = Stacks { liger: Some(LIGERS_BEHIND), ..TRL };
/// glm4, whose rotary positions are left as they are.
pub(super) const LIGER_UNROTATED: Stacks =
    Stacks { liger: Some(Liger { rotary: false, ..LIGERS_BEHIND }), ..TRL };

/// trl's trainers and axolotl's functions over adapters.
pub(super) const TRL_AND_AXOLOTL: Stacks = Stacks { axolotl: true, ..TRL };

/// A decoder of torchtune's with nothing of its own.
const PLAIN_TORCHTUNE: Torchtune = Torchtune {
    rotary: TorchtuneRotary::Pairs,
    shares_long_rotary: false,
    takes_head_dim: false,
    biases: false,
    ties_head: true,
    qlora: true,
    positions: None,
};
const PLAIN_UNSLOTH: Unsloth = Unsloth { looks_at_window: false, rotary_in_float32: false };

pub(super) const LLAMA_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune { shares_long_rotary: true, ..PLAIN_TORCHTUNE }),
    unsloth: Some(PLAIN_UNSLOTH),
    axolotl: true,
    ..LIGER
};
pub(super) const MISTRAL_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune { ties_head: false, ..PLAIN_TORCHTUNE }),
    unsloth: Some(Unsloth { looks_at_window: true, ..PLAIN_UNSLOTH }),
    axolotl: true,
    ..LIGER
};
pub(super) const QWEN2_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune {
        rotary: TorchtuneRotary::Halves,
        biases: true,
        qlora: false,
        // models/qwen2/_model_builders.py; the configs of the larger ones say four times as many
        positions: Some(("Qwen/Qwen2-", 32_768)),
        ..PLAIN_TORCHTUNE
    }),
    unsloth: Some(PLAIN_UNSLOTH),
    axolotl: true,
    ..LIGER
};
/// torchtune 0.6.1 has no qwen3.
pub(super) const QWEN3_STACKS: Stacks = Stacks { unsloth: Some(PLAIN_UNSLOTH), axolotl: true, ..LIGER };
pub(super) const PHI3_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune {
        rotary: TorchtuneRotary::Float32Halves,
        ties_head: false,
        ..PLAIN_TORCHTUNE
    }),
    ..LIGER
};
pub(super) const GEMMA_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune { takes_head_dim: true, ..PLAIN_TORCHTUNE }),
    unsloth: Some(Unsloth { rotary_in_float32: true, ..PLAIN_UNSLOTH }),
    axolotl: true,
    ..LIGER
};

/// llama's layers and qwen's, whose compiled graphs are known.
pub(super) const COMPILED_LLAMA: Modeling = Modeling { compiles: true, ..LLAMA };
pub(super) const COMPILED_QWEN: Modeling = Modeling { compiles: true, ..QWEN };
