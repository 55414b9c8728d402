//! What other projects' code for a family does: which of them was compared, and what its builders and models do for this
//! family alone.

/// The projects beside transformers whose code for a family was compared with PyTorch's allocator. litgpt builds what the
/// blocks say and asks no family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stacks {
    /// trl's trainers.
    pub trl: bool,
    /// Liger's kernels.
    pub liger: Option<Liger>,
    /// torchtune's models and recipes.
    pub torchtune: Option<Torchtune>,
    /// Unsloth's models.
    pub unsloth: Option<Unsloth>,
    /// axolotl's functions over projections and their adapters.
    pub axolotl: bool,
}

/// What Liger's patch puts in the place of a family's own code (liger-kernel 0.8.5 transformers/monkey_patch.py, applied to the
/// classes before the model is built, as axolotl and LLaMA-Factory do).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Liger {
    /// Whether its kernel runs RMS norms.
    pub norms: bool,
    /// Whether the gradient of a norm is written over the one that came; families whose norms stand behind a branch need that
    /// one for the residual (`in_place=False` of LigerRMSNormForGemma2, -Gemma3, -Olmo2, -Glm4 and EXAONE 4's).
    pub norms_in_place: bool,
    /// Whether its kernel rotates queries and keys.
    pub rotary: bool,
    /// Whether its kernel makes gated products; qwen3_vl's are left alone.
    pub gates: bool,
    /// Whether one function runs the experts (`LigerExperts`).
    pub experts: bool,
    /// Whether head and loss are one operation; else its cross entropy is given all logits (granite, whose logits are scaled).
    pub fused_loss: bool,
    /// How many times as many logits as hidden states its fused loss makes at once (`chunk_mem_const`).
    pub logits: u64,
}

/// How a family of torchtune's rotates queries and keys (torchtune 0.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TorchtuneRotary {
    /// Pairs of neighbours, in float32 (modules/position_embeddings.py, models/llama3_1/_position_embeddings.py).
    Pairs,
    /// qwen2: both halves, in the element type of the input (models/qwen2/_positional_embeddings.py).
    Halves,
    /// phi3: both halves, in float32 (models/phi3/_position_embeddings.py).
    Float32Halves,
}

impl TorchtuneRotary {
    /// Whether each cosine and sine stands in the table twice, once for each half.
    pub fn is_doubled(self) -> bool {
        match self {
            TorchtuneRotary::Pairs => false,
            TorchtuneRotary::Halves | TorchtuneRotary::Float32Halves => true,
        }
    }
}

/// What torchtune's builders of a family do (torchtune 0.6.1 models/*/_component_builders.py).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Torchtune {
    /// How queries and keys are rotated.
    pub rotary: TorchtuneRotary,
    /// Whether builders of models that know more positions than 16,384 or tie the head make one rotary embedding for all
    /// layers, with adapters too (Llama 3.1 and 3.2). The others make one a layer once there are adapters.
    pub shares_long_rotary: bool,
    /// Whether a builder is given the width of a head; the others divide the model's by the number of heads.
    pub takes_head_dim: bool,
    /// Whether queries, keys and values have biases.
    pub biases: bool,
    /// Whether the head can be the embedding's matrix.
    pub ties_head: bool,
    /// Whether there are builders for QLoRA.
    pub qlora: bool,
    /// How the names of checkpoints begin whose builder knows fewer positions than the checkpoint's config says, and how many.
    pub positions: Option<(&'static str, u64)>,
}

/// What Unsloth's code of a family does (unsloth 2026.10.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsloth {
    /// Whether its attention looks at a window where the config has one (models/mistral.py).
    pub looks_at_window: bool,
    /// Whether its tables of cosines and sines stay float32 (models/gemma.py `post_patch(…, downcast_rope = False)`).
    pub rotary_in_float32: bool,
}
