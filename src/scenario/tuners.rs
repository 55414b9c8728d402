//! What peft's tuners adapt of a family where nothing else is said, and how large they are by default.

use super::choices::{Method, Tuner};
use crate::model::Architecture;
use crate::units::grouped;

/// What (IA)³ adapts of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The layers that are adapted where nobody names others.
    pub targets: &'static [&'static str],
    /// Those whose input is scaled; of the others it is the output.
    pub feed_forward: &'static [&'static str],
}

/// peft's mappings for (IA)³ (0.21, utils/constants.py); none where it stops at a model of that type with "Please specify
/// `target_modules` in `peft_config`", or `feedforward_modules`.
pub fn scaled(architecture: &Architecture) -> Option<Scaled> {
    const fn of(targets: &'static [&'static str], feed_forward: &'static [&'static str]) -> Option<Scaled> {
        Some(Scaled { targets, feed_forward })
    }
    match architecture.model_type.as_str() {
        "t5" => of(&["k", "v", "wo"], &["wo"]),
        "mt5" => of(&["k", "v", "wi_1"], &[]),
        "gpt2" | "gpt_bigcode" => of(&["c_attn", "mlp.c_proj"], &["mlp.c_proj"]),
        "bloom" => of(&["query_key_value", "mlp.dense_4h_to_h"], &["mlp.dense_4h_to_h"]),
        "roberta" | "bert" => of(&["key", "value", "output.dense"], &["output.dense"]),
        "opt" => of(&["q_proj", "k_proj", "fc2"], &["fc2"]),
        "gptj" => of(&["q_proj", "v_proj", "fc_out"], &["fc_out"]),
        "gpt_neox" | "falcon" | "RefinedWeb" | "RefinedWebModel" => {
            of(&["query_key_value", "dense_4h_to_h"], &["dense_4h_to_h"])
        }
        "gpt_neo" => of(&["q_proj", "v_proj", "c_proj"], &["c_proj"]),
        "bart" => of(&["q_proj", "v_proj", "fc2"], &["fc2"]),
        "llama" | "mistral" => of(&["k_proj", "v_proj", "down_proj"], &["down_proj"]),
        "mixtral" => of(&["k_proj", "v_proj", "w2"], &["w2"]),
        "deberta-v2" => of(&["key_proj", "value_proj", "output.dense"], &["output.dense"]),
        "deberta" => of(&["in_proj", "output.dense"], &["output.dense"]),
        "phi" => of(&["q_proj", "v_proj", "fc2"], &["fc2"]),
        "llama4" | "gemma" | "gemma2" | "gemma3_text" | "qwen2" | "qwen3" => {
            of(&["q_proj", "v_proj", "down_proj"], &["down_proj"])
        }
        _ => None,
    }
}

/// Whether peft puts a prefix of the family's into a cache that has layers for windows (peft 0.21, peft_model.py `get_prompt`).
pub fn slides_prefix(architecture: &Architecture) -> bool {
    ["gemma2", "gemma3", "gemma4"].iter().any(|family| architecture.model_type.starts_with(family))
}

impl Tuner {
    /// Its rank where nobody says another: what its own configuration has, LoRA's as most people set it.
    pub const fn usual_rank(self) -> u64 {
        match self {
            Tuner::Lora | Tuner::Dora | Tuner::Ia3 => 16,
            Tuner::Vera => 256,
            Tuner::Loha | Tuner::Lokr => 8,
            Tuner::Oft => 32,
            // no default in peft: what its examples have
            Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => 20,
        }
    }

    /// What training it beside weights of a method is called: `QLoRA`, `VeRA over 4-bit weights`.
    pub fn of_method(self, method: Method) -> String {
        match (method, self) {
            (Method::Full, _) => method.label().to_owned(),
            (Method::Lora, _) => self.label().to_owned(),
            (Method::Qlora, Tuner::Lora | Tuner::Dora) => format!("Q{self}"),
            (Method::Qlora, other) => format!("{other} over 4-bit weights"),
        }
    }

    /// peft's class of its settings.
    pub const fn class(self) -> &'static str {
        match self {
            Tuner::Lora | Tuner::Dora => "LoraConfig",
            Tuner::Ia3 => "IA3Config",
            Tuner::Vera => "VeraConfig",
            Tuner::Loha => "LoHaConfig",
            Tuner::Lokr => "LoKrConfig",
            Tuner::Oft => "OFTConfig",
            Tuner::Prompt => "PromptTuningConfig",
            Tuner::PTuning => "PromptEncoderConfig",
            Tuner::Prefix | Tuner::PrefixProjected => "PrefixTuningConfig",
        }
    }

    /// The tuner whose settings a class of peft's has; LoRA's and prefix tuning's may say that they are another's.
    pub fn of_class(class: &str) -> Option<Tuner> {
        Tuner::ALL.iter().copied().find(|tuner| tuner.class() == class)
    }

    /// The tuner of a `peft_type`; LoRA's and prefix tuning's may say that they are another's.
    pub fn of_type(name: &str) -> Option<Tuner> {
        match name.to_uppercase().as_str() {
            "PROMPT_TUNING" => return Some(Tuner::Prompt),
            "P_TUNING" => return Some(Tuner::PTuning),
            "PREFIX_TUNING" => return Some(Tuner::Prefix),
            _ => {}
        }
        Tuner::ALL.iter().copied().find(|tuner| {
            tuner.class().strip_suffix("Config").is_some_and(|own| own.eq_ignore_ascii_case(name))
        })
    }

    /// The name of its size in its settings.
    pub const fn rank_name(self) -> &'static str {
        match self {
            Tuner::Oft => "oft_block_size",
            Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => "num_virtual_tokens",
            Tuner::Lora | Tuner::Dora | Tuner::Ia3 | Tuner::Vera | Tuner::Loha | Tuner::Lokr => "r",
        }
    }

    /// Whether it stands beside linear layers, of which target modules say which.
    pub const fn adapts_layers(self) -> bool {
        !self.lengthens() && !self.is_prefix()
    }

    /// Whether it puts virtual tokens before every text, which all layers are given.
    pub const fn lengthens(self) -> bool {
        matches!(self, Tuner::Prompt | Tuner::PTuning)
    }

    /// Whether it puts keys and values before those of every layer.
    pub const fn is_prefix(self) -> bool {
        matches!(self, Tuner::Prefix | Tuner::PrefixProjected)
    }

    /// A size of it in words: `rank 16`, `blocks of 32`, `20 virtual tokens`.
    pub fn sized(self, size: u64) -> String {
        let size = grouped(size);
        match self {
            _ if !self.adapts_layers() => format!("{size} virtual tokens"),
            Tuner::Oft => format!("blocks of {size}"),
            _ => format!("rank {size}"),
        }
    }

    /// What its size is in a sentence.
    pub const fn size_word(self) -> &'static str {
        match self {
            Tuner::Oft => "block size",
            _ if !self.adapts_layers() => "number of virtual tokens",
            _ => "rank",
        }
    }

    /// What its size is called and what it is, where it is no rank.
    pub const fn own_size(self) -> Option<(&'static str, &'static str)> {
        match self {
            Tuner::Oft => Some((
                "OFT block size",
                "The features that a block of OFT's turns together: oft_block_size in peft's settings, or the divisor of a layer's inputs nearest to it",
            )),
            Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => Some((
                "Virtual tokens",
                "How many virtual tokens are trained: num_virtual_tokens in peft's settings. They stand before every text, beside its own tokens",
            )),
            Tuner::Lora | Tuner::Dora | Tuner::Ia3 | Tuner::Vera | Tuner::Loha | Tuner::Lokr => None,
        }
    }

    /// Why no more than its largest rank is of use.
    pub const fn why_no_more(self) -> &'static str {
        match self {
            Tuner::Lora | Tuner::Dora | Tuner::Vera | Tuner::Loha => {
                "more is pointless: no change of an adapted layer has a higher rank than its smaller side"
            }
            Tuner::Lokr => "more changes nothing: from there on its second matrix is kept whole",
            Tuner::Oft => "more changes nothing: a block is no larger than a layer's input",
            Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => {
                "more does not go: with the text they are all the positions that the model has"
            }
            Tuner::Ia3 => "it has no rank",
        }
    }

    /// Whether it has a size that people choose.
    pub const fn has_rank(self) -> bool {
        match self {
            Tuner::Ia3 => false,
            Tuner::Lora
            | Tuner::Dora
            | Tuner::Vera
            | Tuner::Loha
            | Tuner::Lokr
            | Tuner::Oft
            | Tuner::Prompt
            | Tuner::PTuning
            | Tuner::Prefix
            | Tuner::PrefixProjected => true,
        }
    }

    /// Whether it has a dropout in front of its adapters.
    pub const fn has_dropout(self) -> bool {
        match self {
            Tuner::Lora | Tuner::Dora | Tuner::Vera => true,
            Tuner::Ia3
            | Tuner::Loha
            | Tuner::Lokr
            | Tuner::Oft
            | Tuner::Prompt
            | Tuner::PTuning
            | Tuner::Prefix
            | Tuner::PrefixProjected => false,
        }
    }
}
