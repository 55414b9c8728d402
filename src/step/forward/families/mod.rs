//! Whose modeling code runs, and the parts of it that no other family shares.

mod bart;
mod bert;
mod biogpt;
mod bloom;
mod deberta;
mod delta_net;
mod delta_step;
mod falcon;
pub(super) mod gemma4;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod llama4;
mod mamba;
mod mamba2;
mod modernbert;
mod mpt;
mod openai_gpt;
mod opt;
pub(super) mod qwen;
pub(super) mod single;
mod sparse;
mod stablelm;
mod t5;
mod t5_bias;

use crate::job::Member;
use crate::model::modeling::{Code, Modeling};
use crate::model::{Architecture, Objective};
use crate::scenario::Checkpointing;
use crate::scenario::software::HeadCode;

/// Whether the model's forward has the attention probabilities of a layer in a variable until the next one is through.
pub(in crate::step) fn keeps_weights(code: Code) -> bool {
    match code {
        Code::Bloom | Code::Falcon | Code::GptJ | Code::GptNeo | Code::Mpt => true,
        Code::Llama
        | Code::Gpt2
        | Code::GptBigCode
        | Code::GptNeox
        | Code::Opt
        | Code::Phi
        | Code::StableLm
        | Code::Bert
        | Code::Qwen
        | Code::ModernBert
        | Code::Gemma4
        | Code::DeepseekSparse
        | Code::OpenAiGpt
        | Code::BioGpt
        | Code::Deberta
        | Code::Bart => false,
    }
}

/// Whether the forward pass fills a KV cache: where the script asks for it, and where the text model reads `use_cache` of a
/// config that trainers do not change.
pub(in crate::step) fn fills_cache(modeling: Modeling, architecture: &Architecture, member: &Member) -> bool {
    (modeling.own_cache || member.fills_cache)
        // trl's head asks for none whatever the config says
        && (member.software().head != HeadCode::Trl
            || member.returns_states
            || member.is_called_whole)
        && member.checkpointing == Checkpointing::Off
        && match architecture.head.objective {
            Objective::CausalLm => true,
            Objective::MaskedLm => false,
            Objective::Seq2Seq => modeling.caches_with_labels,
        }
}
