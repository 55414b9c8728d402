//! Whose modeling code runs, and the parts of it that no other family shares.

mod bert;
mod bloom;
mod falcon;
mod opt;
pub(super) mod qwen;

/// Families whose modeling code differs in more than their blocks say: in the order of operations and in what its local
/// variables keep alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Code {
    /// llama and everything written after its model.
    Llama,
    Gpt2,
    GptNeox,
    Opt,
    Bloom,
    Falcon,
    Phi,
    Bert,
    /// The own code of qwen 1.
    Qwen,
}

impl Code {
    /// The code of a model type.
    pub fn of(model_type: &str) -> Code {
        match model_type {
            "gpt2" => Code::Gpt2,
            "gpt_neox" => Code::GptNeox,
            "opt" => Code::Opt,
            "bloom" => Code::Bloom,
            "falcon" | "RefinedWeb" | "RefinedWebModel" => Code::Falcon,
            "phi" => Code::Phi,
            "bert" => Code::Bert,
            "qwen" => Code::Qwen,
            _ => Code::Llama,
        }
    }
}
