//! The families, one row each.

use super::bases::{
    BART, BERT, CHOSEN, COHERE, COMPILED_LLAMA, COMPILED_QWEN, ERNIE, EXPERTS, GEMMA, GEMMA_STACKS, GEMMA3,
    GEMMA4, GLM, GRANITE, GRANITE_MOE, GROUPS, INNER, KEPT, LIGER, LIGER_BEHIND, LIGER_EXPERTS,
    LIGER_GPT_OSS, LIGER_LOGITS, LIGER_QWEN2_VL, LIGER_QWEN3_VL, LIGER_UNROTATED, LLAMA, LLAMA_STACKS,
    LLAMA4, MAMBA, MISTRAL_STACKS, MOE, NO_PEFT, NOWHERE, PHI3_STACKS, PROJECTIONS, QWEN, QWEN2_STACKS,
    QWEN3_5, QWEN3_STACKS, ROBERTA, SPARSE, T5, TRL, TRL_AND_AXOLOTL, UMT5, WEIGHED, expert_layers, own,
};
use super::{
    Code, ExpertTurns, Family, FloatRotary, HeadNorms, Modeling, Peft, PositionIds, RotaryJoin, RotaryTables,
    Router, Stacks,
};

const fn row(model_types: &'static [&'static str], modeling: Modeling, stacks: Stacks) -> Family {
    Family { model_types, modeling, stacks }
}

/// Every family: a new one answers what transformers' code does and which other projects' code was compared, or says whose
/// answers are its own.
static FAMILIES: [Family; 104] = [
    row(&["llama"], COMPILED_LLAMA, LLAMA_STACKS),
    row(&["mistral"], COMPILED_LLAMA, MISTRAL_STACKS),
    row(&["phi3"], LLAMA, PHI3_STACKS),
    row(&["olmo"], Modeling { projects_first: true, ..LLAMA }, TRL),
    row(&["arcee", "jais2", "mistral3", "youtu"], LLAMA, TRL),
    row(&["olmo2"], LLAMA, LIGER_BEHIND),
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
    row(&["smollm3"], QWEN, Stacks { axolotl: true, ..LIGER }),
    row(&["vaultgemma"], Modeling { mask_arguments: true, ..GEMMA }, TRL),
    row(&["ministral"], QWEN, Stacks { trl: false, ..LIGER }),
    row(&["qwen2_vl_text", "qwen2_5_vl_text", "cwm"], QWEN, NOWHERE),
    row(&["lfm2"], QWEN, TRL),
    row(&["olmo3"], Modeling { rotary_tables: RotaryTables::ByKind, ..QWEN }, LIGER_BEHIND),
    row(&["xglm"], Modeling { mask_by_position: true, ..LLAMA }, NOWHERE),
    row(&["gemma"], GEMMA, GEMMA_STACKS),
    row(&["gemma2"], Modeling { mask_arguments: true, ..GEMMA }, Stacks { axolotl: true, ..LIGER_BEHIND }),
    row(&["gemma3_text"], GEMMA3, Stacks { axolotl: true, ..LIGER_BEHIND }),
    row(&["gemma3"], GEMMA3, LIGER_BEHIND),
    row(&["gemma4"], Modeling { replaces_placeholders: true, ..GEMMA4 }, TRL),
    row(&["gemma4_text"], GEMMA4, TRL),
    row(&["hyperclovax"], GRANITE, NOWHERE),
    row(&["granite"], GRANITE, Stacks { axolotl: true, ..LIGER_LOGITS }),
    row(&["granitemoe", "granitemoeshared"], GRANITE_MOE, NOWHERE),
    row(&["granitemoehybrid"], Modeling { mask_arguments: true, ..GRANITE_MOE }, NOWHERE),
    row(&["cohere"], Modeling { head_norms: HeadNorms::Last, ..COHERE }, TRL),
    row(&["cohere2"], Modeling { mask_arguments: true, ..COHERE }, TRL),
    row(&["ernie4_5"], ERNIE, TRL_AND_AXOLOTL),
    row(&["ernie4_5_moe"], Modeling { router: Router::Corrected, peft: EXPERTS, ..ERNIE }, TRL),
    row(&["glm"], GLM, TRL),
    row(&["glm4"], GLM, LIGER_UNROTATED),
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
    row(&["exaone4"], Modeling { head_norms: HeadNorms::Last, ..QWEN }, LIGER_BEHIND),
    // norms of heads behind the rotation
    row(&["hunyuan_v1_dense"], Modeling { head_norms: HeadNorms::AfterRotary, ..LLAMA }, LIGER),
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
        LIGER_EXPERTS,
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
        Stacks { axolotl: true, ..LIGER_EXPERTS },
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
    row(&["gpt_oss"], Modeling { router: Router::BestFirstInPlace, ..QWEN }, LIGER_GPT_OSS),
    row(&["llama4"], Modeling { packs: false, flash_attn: false, ..LLAMA4 }, NOWHERE),
    row(&["llama4_text"], LLAMA4, NOWHERE),
    row(&["internvl", "llava", "llava_next", "qwen2_vl", "qwen3_vl_moe"], INNER, TRL),
    row(&["qwen2_5_vl"], INNER, LIGER_QWEN2_VL),
    row(&["qwen3_vl"], INNER, LIGER_QWEN3_VL),
    row(&["mllama"], Modeling { projects_first: true, ..INNER }, NOWHERE),
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
            keeps_mixed: true,
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
