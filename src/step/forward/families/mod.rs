//! Whose modeling code runs, and the parts of it that no other family shares.

mod bart;
mod bert;
mod biogpt;
mod bloom;
mod deberta;
mod delta_net;
mod falcon;
pub(super) mod gemma4;
mod gpt_neo;
mod gpt_oss;
mod gptj;
mod mamba;
mod mamba2;
mod modernbert;
mod mpt;
mod openai_gpt;
mod opt;
pub(super) mod qwen;
pub(super) mod single;
mod sparse;
mod t5;
mod t5_bias;

use crate::model::{Architecture, Objective};
use crate::scenario::{Checkpointing, Scenario, Stack};

/// Families whose modeling code differs in more than their blocks say: in the order of operations and in what its local
/// variables keep alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Code {
    /// llama and everything written after its model.
    Llama,
    Gpt2,
    /// gpt_bigcode: gpt2's with `nn.Linear`, mostly one head of keys and values, and a softmax in float32.
    Santa,
    GptNeo,
    GptNeox,
    GptJ,
    Opt,
    Bloom,
    Falcon,
    Phi,
    Mpt,
    Bert,
    /// The own code of qwen 1.
    Qwen,
    ModernBert,
    Gemma4,
    /// deepseek_v32 and glm_moe_dsa.
    Sparse,
    /// The first gpt.
    OpenAiGpt,
    BioGpt,
    /// deberta-v2 and v3.
    Deberta,
    /// bart and what was written after it.
    Bart,
}

impl Code {
    /// The code of a model type.
    pub fn of(model_type: &str) -> Code {
        match model_type {
            "gpt2" => Code::Gpt2,
            "gpt_bigcode" => Code::Santa,
            "gpt_neo" => Code::GptNeo,
            "gpt_neox" => Code::GptNeox,
            "gptj" => Code::GptJ,
            "opt" => Code::Opt,
            "bloom" => Code::Bloom,
            "falcon" | "RefinedWeb" | "RefinedWebModel" => Code::Falcon,
            "phi" => Code::Phi,
            "mpt" => Code::Mpt,
            "bert" | "ernie" | "roberta" | "data2vec-text" | "xlm-roberta" | "camembert" | "electra"
            | "distilbert" => Code::Bert,
            "modernbert" => Code::ModernBert,
            "gemma4" | "gemma4_text" => Code::Gemma4,
            "bart" | "mbart" | "pegasus" | "blenderbot" | "marian" | "m2m_100" => Code::Bart,
            "deberta-v2" => Code::Deberta,
            "openai-gpt" => Code::OpenAiGpt,
            "biogpt" => Code::BioGpt,
            "deepseek_v32" | "glm_moe_dsa" => Code::Sparse,
            "qwen" => Code::Qwen,
            _ => Code::Llama,
        }
    }
}

/// Where a family puts its norms on queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum HeadNorms {
    /// Each with its own projection.
    Each,
    /// After all three projections.
    Last,
    /// After the rotary embedding.
    Turned,
}

impl HeadNorms {
    /// Where a model type has them.
    pub fn of(model_type: &str) -> HeadNorms {
        match model_type {
            "apertus" | "chameleon" | "cohere" | "exaone4" | "exaone_moe" | "gemma3" | "gemma3_text"
            | "glm4_moe" => HeadNorms::Last,
            "nanochat" => HeadNorms::Turned,
            _ => HeadNorms::Each,
        }
    }
}

/// Whether peft adapts the three-dimensional weights of a family's experts, and its router, in place of the linear
/// layers that they were before transformers 5 (peft 0.21, utils/transformers_weight_conversion.py).
pub(in crate::step) fn adapts_experts(model_type: &str) -> bool {
    matches!(
        model_type,
        "afmoe"
            | "cohere2_moe"
            | "deepseek_v2"
            | "deepseek_v3"
            | "deepseek_v32"
            | "dots1"
            | "ernie4_5_moe"
            | "exaone_moe"
            | "flex_olmo"
            | "glm4_moe"
            | "glm4_moe_lite"
            | "glm_moe_dsa"
            | "hunyuan_v1_moe"
            | "kimi_k2"
            | "minimax"
            | "minimax_m2"
            | "mixtral"
            | "olmoe"
            | "qwen3_moe"
            | "qwen3_next"
            | "solar_open"
    )
}

/// Whether a model's forward fills a cache of keys and values: where it is asked to, and where nobody can tell the text
/// model not to, because it reads a config of its own (its `use_cache` is true by default, and trainers set the outer
/// one's).
pub(in crate::step) fn fills_cache(architecture: &Architecture, scenario: &Scenario) -> bool {
    let by_itself = matches!(
        architecture.model_type.as_str(),
        "mllama" | "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe"
    );
    (by_itself || scenario.training_loop.fills_cache)
        // trl's head asks for none whatever the config says
        && scenario.stack != Stack::Trl
        && scenario.checkpointing == Checkpointing::Off
        && match architecture.head.objective {
            Objective::CausalLm => true,
            Objective::MaskedLm => false,
            // bart switches it off where there are labels
            Objective::Seq2Seq => Code::of(&architecture.model_type) != Code::Bart,
        }
}
