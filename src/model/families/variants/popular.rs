//! The decoders that most people train: those that the page shows at once, so their code comes with its first part.

use super::{GEMMA, SANDWICH};
use crate::model::families::variant::{
    BARE, EXPERTS, Experts, HEAD_NORMS, LLAMA, PLAIN, Variant, When, Windows,
};

/// The description of a model type, if it is one of these.
pub fn of(model_type: &str) -> Option<Variant> {
    Some(match model_type {
        "llama" | "internlm2" | "baichuan" => LLAMA,
        "mistral" => Variant { windows: Windows::All, ..BARE },
        "qwen2" | "qwen2_vl_text" | "qwen2_5_vl_text" => {
            Variant { qkv_bias: When::Always, windows: Windows::Late, ..BARE }
        }
        "qwen3" => Variant { heads: Some(HEAD_NORMS), windows: Windows::Late, ..PLAIN },
        "gemma" => GEMMA,
        "gemma2" => {
            Variant { wired: SANDWICH, activation: "hidden_activation", windows: Windows::AllBut(2), ..GEMMA }
        }
        "mixtral" => Variant {
            windows: Windows::All,
            experts: Some(Experts { width: "intermediate_size", ..EXPERTS }),
            ..BARE
        },
        _ => return None,
    })
}
