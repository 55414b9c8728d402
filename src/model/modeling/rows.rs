//! The families, one row each.

use super::{
    Code, ExpertLayers, ExpertTurns, Family, FloatRotary, HeadNorms, Modeling, Peft, PositionIds, RotaryJoin,
    RotaryTables, Router, Stacks, Torchtune, TorchtuneRotary, Unsloth,
};

const NO_PEFT: Peft = Peft { experts: false, refuses_out_proj: false, packs_projections: false };
const EXPERTS: Peft = Peft { experts: true, ..NO_PEFT };
const NO_OUT_PROJ: Peft = Peft { refuses_out_proj: true, ..NO_PEFT };

const fn expert_layers(names: [&'static str; 3], turns: ExpertTurns) -> Option<ExpertLayers> {
    Some(ExpertLayers { names, turns })
}

/// Of most families.
const PROJECTIONS: [&str; 3] = ["mlp.experts.gate_proj", "mlp.experts.up_proj", "mlp.experts.down_proj"];
const CHOSEN: Option<ExpertLayers> = expert_layers(PROJECTIONS, ExpertTurns::Chosen);
const WEIGHED: Option<ExpertLayers> = expert_layers(PROJECTIONS, ExpertTurns::Weighed);

/// llama's own answers.
const LLAMA: Modeling = Modeling {
    code: Code::Llama,
    head_norms: HeadNorms::Each,
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
};

/// What has code of its own: neither packed texts nor flash-attn were traced.
const fn own(code: Code) -> Modeling {
    Modeling { code, packs: false, flash_attn: false, ..LLAMA }
}

/// qwen2 and those that ask for their masks as it does.
const QWEN: Modeling = Modeling { mask_arguments: true, ..LLAMA };
const LLAMA4: Modeling = Modeling { head_norms: HeadNorms::AfterRotary, ..QWEN };
/// Experts whose weights peft adapts as they are.
const MOE: Modeling = Modeling { peft: EXPERTS, ..LLAMA };
/// deepseek_v3 and those that took its router.
const GROUPS: Modeling = Modeling { router: Router::Groups, ..MOE };
const GEMMA: Modeling = Modeling { scale_buffer: true, ..LLAMA };
const GEMMA3: Modeling = Modeling {
    head_norms: HeadNorms::Last,
    rotary_tables: RotaryTables::ByKind,
    mask_arguments: true,
    ..GEMMA
};
const GEMMA4: Modeling =
    Modeling { packs: true, scale_buffer: true, mask_arguments: true, ..own(Code::Gemma4) };
const GRANITE: Modeling = Modeling { scales_branches: true, ..LLAMA };
const GRANITE_MOE: Modeling = Modeling { router: Router::BestFirst, ..GRANITE };
const GLM: Modeling = Modeling { rotary_join: RotaryJoin::Replacing, ..LLAMA };
const COHERE: Modeling = Modeling { float_rotary: FloatRotary::CastFirst, ..LLAMA };
const ERNIE: Modeling = Modeling { float_rotary: FloatRotary::Pairs, ..LLAMA };
const KEPT: Modeling = Modeling { rotary_join: RotaryJoin::Kept, ..LLAMA };
const QWEN3_5: Modeling =
    Modeling { rotary_join: RotaryJoin::Replacing, rotary_tables: RotaryTables::Grid, ..QWEN };
/// Text models whose config is a part of another.
const INNER: Modeling = Modeling { own_cache: true, packs: false, ..LLAMA };
const MAMBA: Modeling = Modeling { peft: NO_OUT_PROJ, ..LLAMA };
const BERT: Modeling = Modeling { mask_by_position: true, ..own(Code::Bert) };
const ROBERTA: Modeling = Modeling { positions: PositionIds::Counted, ..BERT };
/// umt5: t5's, whose code for a bias in every layer is not written here.
const UMT5: Modeling = Modeling { kept_in_float32: Some(".DenseReluDense.wo"), flash_attn: false, ..LLAMA };
const T5: Modeling = Modeling { runs_encoder: true, ..UMT5 };
const BART: Modeling =
    Modeling { runs_encoder: true, caches_with_labels: false, logits_bias: true, ..own(Code::Bart) };
const SPARSE: Modeling =
    Modeling { router: Router::Groups, peft: EXPERTS, mask_arguments: true, ..own(Code::DeepseekSparse) };

/// No other project's code was compared.
const NOWHERE: Stacks = Stacks { trl: false, liger: false, torchtune: None, unsloth: None, axolotl: false };
/// trl's trainers were compared.
const TRL: Stacks = Stacks { trl: true, ..NOWHERE };
/// Liger's kernels too.
const LIGER: Stacks = Stacks { liger: true, ..TRL };

/// trl's trainers and axolotl's functions over adapters.
const TRL_AND_AXOLOTL: Stacks = Stacks { axolotl: true, ..TRL };

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

const LLAMA_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune { shares_long_rotary: true, ..PLAIN_TORCHTUNE }),
    unsloth: Some(PLAIN_UNSLOTH),
    axolotl: true,
    ..LIGER
};
const MISTRAL_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune { ties_head: false, ..PLAIN_TORCHTUNE }),
    unsloth: Some(Unsloth { looks_at_window: true, ..PLAIN_UNSLOTH }),
    axolotl: true,
    ..LIGER
};
const QWEN2_STACKS: Stacks = Stacks {
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
const QWEN3_STACKS: Stacks = Stacks { unsloth: Some(PLAIN_UNSLOTH), axolotl: true, ..LIGER };
const PHI3_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune {
        rotary: TorchtuneRotary::Float32Halves,
        ties_head: false,
        ..PLAIN_TORCHTUNE
    }),
    ..LIGER
};
const GEMMA_STACKS: Stacks = Stacks {
    torchtune: Some(Torchtune { takes_head_dim: true, ..PLAIN_TORCHTUNE }),
    unsloth: Some(Unsloth { rotary_in_float32: true, ..PLAIN_UNSLOTH }),
    axolotl: true,
    ..LIGER
};

const fn row(model_types: &'static [&'static str], modeling: Modeling, stacks: Stacks) -> Family {
    Family { model_types, modeling, stacks }
}

/// llama's layers and qwen's, whose compiled graphs are known.
const COMPILED_LLAMA: Modeling = Modeling { compiles: true, ..LLAMA };
const COMPILED_QWEN: Modeling = Modeling { compiles: true, ..QWEN };

/// Every family: a new one answers what transformers' code does and which other projects' code was compared, or says whose
/// answers are its own.
static FAMILIES: [Family; 98] = [
    row(&["llama"], COMPILED_LLAMA, LLAMA_STACKS),
    row(&["mistral"], COMPILED_LLAMA, MISTRAL_STACKS),
    row(&["phi3"], LLAMA, PHI3_STACKS),
    row(&["arcee", "olmo", "olmo2", "jais2", "mistral3", "youtu"], LLAMA, TRL),
    row(&["starcoder2"], Modeling { drops_by_function: true, ..LLAMA }, TRL),
    row(&["seed_oss"], Modeling { drops_by_function: true, ..LLAMA }, TRL_AND_AXOLOTL),
    row(
        &[
            "internlm",
            "internlm2",
            "minicpm",
            "ministral3",
            "qwen3_vl_text",
            "bitnet",
            "diffllama",
            "exaone",
            "codegen",
            "chatglm",
            "dbrx",
        ],
        LLAMA,
        NOWHERE,
    ),
    row(
        &["minicpm3"],
        Modeling { scale_buffer: true, scales_branches: true, scales_hidden: true, ..LLAMA },
        TRL,
    ),
    row(&["helium"], Modeling { rotary_join: RotaryJoin::Whole, ..LLAMA }, TRL),
    row(&["baichuan"], Modeling { peft: Peft { packs_projections: true, ..NO_PEFT }, ..LLAMA }, NOWHERE),
    row(&["qwen2"], COMPILED_QWEN, QWEN2_STACKS),
    row(&["qwen3"], COMPILED_QWEN, QWEN3_STACKS),
    row(&["smollm3"], QWEN, TRL_AND_AXOLOTL),
    row(&["vaultgemma"], Modeling { mask_arguments: true, ..GEMMA }, TRL),
    row(&["ministral", "qwen2_vl_text", "qwen2_5_vl_text", "cwm"], QWEN, NOWHERE),
    row(&["lfm2"], QWEN, TRL),
    row(&["olmo3"], Modeling { rotary_tables: RotaryTables::ByKind, ..QWEN }, TRL),
    row(&["xglm"], Modeling { mask_by_position: true, ..LLAMA }, NOWHERE),
    row(&["gemma"], GEMMA, GEMMA_STACKS),
    row(&["gemma2"], Modeling { mask_arguments: true, ..GEMMA }, Stacks { axolotl: true, ..LIGER }),
    row(&["gemma3_text"], GEMMA3, TRL_AND_AXOLOTL),
    row(&["gemma3"], GEMMA3, TRL),
    row(&["gemma4"], Modeling { replaces_placeholders: true, ..GEMMA4 }, TRL),
    row(&["gemma4_text"], GEMMA4, TRL),
    row(&["hyperclovax"], GRANITE, NOWHERE),
    row(&["granite"], GRANITE, TRL_AND_AXOLOTL),
    row(&["granitemoe", "granitemoeshared"], GRANITE_MOE, NOWHERE),
    row(&["granitemoehybrid"], Modeling { mask_arguments: true, ..GRANITE_MOE }, NOWHERE),
    row(&["cohere"], Modeling { head_norms: HeadNorms::Last, ..COHERE }, TRL),
    row(&["cohere2"], Modeling { mask_arguments: true, ..COHERE }, TRL),
    row(&["ernie4_5"], ERNIE, TRL_AND_AXOLOTL),
    row(&["ernie4_5_moe"], Modeling { router: Router::Corrected, peft: EXPERTS, ..ERNIE }, TRL),
    row(&["glm", "glm4"], GLM, TRL),
    row(
        &["glm4_moe"],
        Modeling {
            head_norms: HeadNorms::Last,
            rotary_join: RotaryJoin::Replacing,
            expert_layers: WEIGHED,
            ..GROUPS
        },
        TRL,
    ),
    row(&["deepseek_v3"], Modeling { expert_layers: WEIGHED, ..GROUPS }, TRL),
    row(&["glm4_moe_lite", "solar_open"], GROUPS, TRL),
    row(&["kimi_k2"], GROUPS, NOWHERE),
    row(&["dots1"], Modeling { mask_arguments: true, ..GROUPS }, NOWHERE),
    row(&["exaone_moe"], Modeling { head_norms: HeadNorms::Last, mask_arguments: true, ..GROUPS }, NOWHERE),
    row(&["deepseek_v32"], SPARSE, NOWHERE),
    row(&["glm_moe_dsa"], Modeling { shares_indexer_choice: true, ..SPARSE }, NOWHERE),
    row(&["deepseek_v2"], Modeling { router: Router::SoftGroups, ..MOE }, TRL),
    row(&["deepseek", "deepseek_v4", "mistral4", "phimoe"], LLAMA, NOWHERE),
    row(&["lfm2_moe"], QWEN, NOWHERE),
    row(&["nemotron"], Modeling { rotary_join: RotaryJoin::Together, ..LLAMA }, TRL),
    row(&["nemotron_h"], Modeling { router: Router::Groups, mask_arguments: true, ..MAMBA }, NOWHERE),
    row(&["apertus"], Modeling { head_norms: HeadNorms::Last, ..LLAMA }, TRL),
    row(&["exaone4"], Modeling { head_norms: HeadNorms::Last, ..QWEN }, TRL),
    // norms of heads behind the rotation
    row(&["hunyuan_v1_dense"], Modeling { head_norms: HeadNorms::AfterRotary, ..LLAMA }, TRL),
    row(&["nanochat"], Modeling { head_norms: HeadNorms::AfterRotary, norms_first: true, ..LLAMA }, TRL),
    row(
        &["phi"],
        Modeling { rotary_join: RotaryJoin::Kept, head_norms: HeadNorms::Last, ..own(Code::Phi) },
        TRL,
    ),
    row(&["persimmon"], KEPT, NOWHERE),
    row(&["stablelm"], Modeling { code: Code::StableLm, head_norms: HeadNorms::Last, ..KEPT }, TRL),
    row(
        &["mixtral"],
        Modeling {
            router: Router::Mixtral,
            cuts_experts: true,
            gathers_experts_whole: true,
            expert_layers: expert_layers(
                ["block_sparse_moe.experts.w1", "block_sparse_moe.experts.w3", "block_sparse_moe.experts.w2"],
                ExpertTurns::Chosen,
            ),
            ..MOE
        },
        TRL,
    ),
    row(
        &["olmoe"],
        Modeling {
            router: Router::Plain,
            cuts_experts: true,
            expert_layers: expert_layers(PROJECTIONS, ExpertTurns::All),
            ..MOE
        },
        TRL,
    ),
    row(
        &["qwen2_moe"],
        Modeling {
            router: Router::Plain,
            cuts_experts: true,
            gathers_experts_whole: true,
            expert_layers: CHOSEN,
            ..QWEN
        },
        TRL,
    ),
    row(
        &["qwen3_moe"],
        Modeling { cuts_experts: true, gathers_experts_whole: true, expert_layers: CHOSEN, ..MOE },
        TRL_AND_AXOLOTL,
    ),
    row(&["hunyuan_v1_moe"], Modeling { head_norms: HeadNorms::AfterRotary, ..MOE }, NOWHERE),
    row(&["flex_olmo"], MOE, TRL),
    row(
        &["mellum"],
        Modeling { rotary_tables: RotaryTables::ByKind, mask_arguments: true, flash_attn: false, ..MOE },
        TRL,
    ),
    row(&["qwen3_vl_moe_text"], LLAMA, NOWHERE),
    row(
        &["qwen3_next"],
        Modeling {
            rotary_join: RotaryJoin::Replacing,
            frees_queries_first: true,
            mask_arguments: true,
            ..MOE
        },
        TRL,
    ),
    row(&["qwen3_5", "qwen3_5_moe", "qwen3_5_text"], QWEN3_5, TRL),
    row(&["qwen3_5_moe_text"], QWEN3_5, NOWHERE),
    row(
        &["minimax_m2"],
        Modeling { router: Router::Sigmoid, rotary_join: RotaryJoin::Replacing, ..MOE },
        TRL,
    ),
    row(&["gpt_oss"], Modeling { router: Router::BestFirstInPlace, ..QWEN }, TRL),
    row(&["llama4"], Modeling { packs: false, flash_attn: false, ..LLAMA4 }, NOWHERE),
    row(&["llama4_text"], LLAMA4, NOWHERE),
    row(
        &["internvl", "llava", "llava_next", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"],
        INNER,
        TRL,
    ),
    row(&["mllama"], INNER, NOWHERE),
    row(&["jamba"], Modeling { casts_scan_arguments: false, ..QWEN }, NOWHERE),
    row(&["bamba"], QWEN, NOWHERE),
    row(&["mamba", "mamba2", "falcon_mamba"], MAMBA, NOWHERE),
    row(
        &["gpt2"],
        Modeling { mask_by_position: true, drops_attention_by_module: true, ..own(Code::Gpt2) },
        TRL,
    ),
    row(&["gpt_bigcode"], own(Code::GptBigCode), TRL),
    row(&["gpt_neo"], Modeling { drops_attention_by_module: true, ..own(Code::GptNeo) }, TRL),
    row(&["gpt_neox"], Modeling { rotary_join: RotaryJoin::Replacing, ..own(Code::GptNeox) }, TRL),
    row(&["gptj"], Modeling { drops_attention_by_module: true, ..own(Code::GptJ) }, TRL),
    row(&["opt"], Modeling { drops_by_function: true, ..own(Code::Opt) }, TRL),
    row(
        &["bloom"],
        Modeling { drops_attention_by_module: true, drops_by_function: true, ..own(Code::Bloom) },
        TRL,
    ),
    row(
        &["falcon"],
        Modeling { drops_attention_by_module: true, drops_by_function: true, ..own(Code::Falcon) },
        TRL,
    ),
    row(&["mpt"], own(Code::Mpt), TRL),
    row(&["qwen"], own(Code::Qwen), NOWHERE),
    row(&["openai-gpt"], Modeling { checkpoints: false, ..own(Code::OpenAiGpt) }, NOWHERE),
    row(&["biogpt"], own(Code::BioGpt), NOWHERE),
    row(&["deberta-v2"], Modeling { mask_by_position: true, ..own(Code::Deberta) }, NOWHERE),
    row(
        &["modernbert"],
        Modeling {
            float_rotary: FloatRotary::CastTwice,
            rotary_tables: RotaryTables::ByKind,
            casts_masked_loss: true,
            ..own(Code::ModernBert)
        },
        NOWHERE,
    ),
    row(&["eurobert"], Modeling { casts_masked_loss: true, ..LLAMA }, NOWHERE),
    row(&["bert", "ernie", "electra"], BERT, NOWHERE),
    row(&["roberta", "data2vec-text", "xlm-roberta", "camembert"], ROBERTA, NOWHERE),
    row(&["distilbert"], Modeling { attention_output_dropout: false, ..BERT }, NOWHERE),
    row(&["mpnet", "albert"], LLAMA, NOWHERE),
    row(&["t5", "mt5"], T5, NOWHERE),
    row(&["umt5"], UMT5, NOWHERE),
    row(&["bart", "mbart"], Modeling { positions: PositionIds::Shifted, ..BART }, NOWHERE),
    row(&["pegasus", "marian"], Modeling { positions: PositionIds::FixedSines, ..BART }, NOWHERE),
    row(&["blenderbot"], BART, NOWHERE),
    row(&["m2m_100"], Modeling { positions: PositionIds::CountedSines, logits_bias: false, ..BART }, NOWHERE),
];

/// The row of a model type; none where it has no row.
pub fn of(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_types.contains(&model_type))
}

/// Families whose model for sequence classification, which reward models are, is transformers' generic one
/// (modeling_layers.py `GenericForSequenceClassification`, transformers 5.17).
const GENERIC_CLASSIFICATION: [&str; 29] = [
    "arcee",
    "deepseek_v2",
    "deepseek_v3",
    "exaone4",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm",
    "glm4",
    "gpt_oss",
    "llama",
    "ministral",
    "mistral",
    "mixtral",
    "nemotron",
    "olmo",
    "olmo2",
    "olmo3",
    "phi",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "seed_oss",
    "smollm3",
    "stablelm",
    "starcoder2",
];

/// Whether what classifies the texts of that family is its layers and a matrix with a row for each label.
pub fn classifies_generically(model_type: &str) -> bool {
    GENERIC_CLASSIFICATION.contains(&model_type)
}

/// Families that see whose reward model is the same generic one, of all the model but its head.
const SEEING_REWARD: [&str; 2] = ["gemma3", "qwen3_5"];

/// Whether a reward model of that family is its layers and a matrix of one row.
pub fn rewards_generically(model_type: &str) -> bool {
    classifies_generically(model_type) || SEEING_REWARD.contains(&model_type)
}

/// Families whose encoder ends with a pooler of its own, unless it is told to leave it out.
const POOLING: [&str; 6] = ["bert", "ernie", "roberta", "data2vec-text", "xlm-roberta", "camembert"];

/// Whether the encoder of that family has a pooler.
pub fn has_pooler(model_type: &str) -> bool {
    POOLING.contains(&model_type)
}

/// Families whose plan of tensor parallelism (`base_model_tp_plan`) names queries, keys, values, gate and up as columns and the projections
/// behind them as rows, and whose layers were compared when GPUs share them.
const PLANNED: [&str; 10] =
    ["llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "granite", "seed_oss", "cwm"];

/// Whether GPUs can share layers of that family by its own plan.
pub fn shares_layers_by_plan(model_type: &str) -> bool {
    PLANNED.contains(&model_type)
}

/// Families whose output has no cache where `use_cache` is off, also where one was handed to the model.
const WITHHOLDING: [&str; 10] =
    ["gpt2", "mistral", "qwen2", "qwen3", "gemma", "phi3", "starcoder2", "smollm3", "ministral", "exaone4"];

/// Families around whose activations transformers puts the scales that AWQ found (5.17 integrations/awq.py `AWQ_SCALES_MAPPINGS`).
const SCALED_ACTIVATIONS: [&str; 7] =
    ["starcoder2", "falcon", "mpt", "gptj", "gpt_neox", "gpt_bigcode", "bloom"];

/// Whether activations of that family are scaled beside AWQ's weights.
pub fn scales_activations(model_type: &str) -> bool {
    SCALED_ACTIVATIONS.contains(&model_type)
}

/// Whether the output of that family has no cache where `use_cache` is off.
pub fn withholds_cache(model_type: &str) -> bool {
    WITHHOLDING.contains(&model_type)
}

/// Families whose tokenizers say of each token which of two texts it belongs to (`token_type_ids`).
const TYPED: [&str; 4] = ["bert", "ernie", "electra", "deberta-v2"];

/// Whether a batch of that family has types of tokens.
pub fn gives_token_types(model_type: &str) -> bool {
    TYPED.contains(&model_type)
}

/// All rows.
pub fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

#[cfg(test)]
mod tests {
    use super::families;
    use crate::model::catalogue;
    use crate::model::read::parse;

    #[test]
    fn every_family_of_the_catalogue_has_a_row() {
        for entry in catalogue::entries() {
            let architecture = entry.architecture().expect("it is read");
            assert!(architecture.family.is_some(), "{}", architecture.model_type);
        }
    }

    #[test]
    fn every_model_type_has_one_row() {
        let mut model_types: Vec<&str> = families().flat_map(|family| family.model_types).copied().collect();
        let rows = model_types.len();
        model_types.sort_unstable();
        model_types.dedup();
        assert_eq!(model_types.len(), rows);
    }

    #[test]
    fn what_is_not_known_has_none() {
        let config = r#"{"model_type": "nobody_knows", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}"#;
        assert_eq!(parse(config).expect("it is counted").family, None);
    }
}
