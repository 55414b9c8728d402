//! What the code of a family does beyond what its blocks say: transformers' modeling code ([`Modeling`]), and the code that
//! other projects have for the same family ([`Stacks`]). Together they are the family's row ([`Family`]), which its
//! [`Architecture`](super::Architecture) carries: code that runs a step asks the row, and never for a family by its name.
//!
//! Source: models/ of transformers 5.17, unless a field says otherwise.

mod bases;
mod lists;
mod rows;
mod stacks;

pub use lists::{
    answers_pictures, classifies_generically, gathers_adapted_experts, gives_token_types,
    has_norms_that_trainer_leaves, has_pooler, is_remote, is_torchtitans, lacks_sdpa, lies_idle,
    rewards_generically, scales_activations, shares_layers_by_plan, withholds_cache,
};
pub use rows::{families, of};
pub use stacks::{Liger, Stacks, Torchtune, TorchtuneRotary, Unsloth};

/// Families that are named first where another is not followed.
pub const USUAL: [&str; 6] = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"];

/// A row: what is to know of the code of one or more model types, beyond their blocks. `rows.rs` lists them; what has no row
/// is counted and not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Family {
    /// The `model_type`s whose row it is.
    pub model_types: &'static [&'static str],
    /// What transformers' modeling code does.
    pub modeling: Modeling,
    /// Which other projects' code was compared, and what that does.
    pub stacks: Stacks,
}

/// Families whose modeling code differs in more than their blocks say: in the order of operations and in what its local
/// variables keep alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// llama and everything written after its model.
    Llama,
    /// gpt2.
    Gpt2,
    /// gpt_bigcode: gpt2's with `nn.Linear`, mostly one head of keys and values, and a softmax in float32.
    GptBigCode,
    /// gpt_neo.
    GptNeo,
    /// gpt_neox: pythia, dolly, redpajama.
    GptNeox,
    /// gptj.
    GptJ,
    /// opt.
    Opt,
    /// bloom.
    Bloom,
    /// falcon 1 and 2.
    Falcon,
    /// phi 1 and 2.
    Phi,
    /// stablelm: llama's with layers of its own.
    StableLm,
    /// mpt.
    Mpt,
    /// bert and its encoders.
    Bert,
    /// The own code of qwen 1.
    Qwen,
    /// modernbert.
    ModernBert,
    /// gemma4.
    Gemma4,
    /// deepseek_v32 and glm_moe_dsa: an indexer chooses the tokens that are attended to.
    DeepseekSparse,
    /// openai-gpt: the first gpt.
    OpenAiGpt,
    /// biogpt.
    BioGpt,
    /// deberta-v2 and v3.
    Deberta,
    /// bart and what was written after it.
    Bart,
}

/// Where a family puts its norms on queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadNorms {
    /// Each with its own projection.
    Each,
    /// After all three projections.
    Last,
    /// After the rotary embedding.
    AfterRotary,
}

/// Whose router chooses the experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Router {
    /// mixtral: logits are cast before the softmax, weights stay in float32.
    Mixtral,
    /// qwen3_moe and those written after it.
    Qwen,
    /// olmoe, qwen2_moe: the same without dividing by the sum.
    Plain,
    /// deepseek_v3: sigmoid in float32, groups of experts, a correction.
    Groups,
    /// deepseek_v2: softmax in float32, groups of experts.
    SoftGroups,
    /// minimax_m2: sigmoid of logits cast to float32, a correction.
    Sigmoid,
    /// ernie4_5_moe: softmax in float32 outside autocast, a correction.
    Corrected,
    /// granitemoe: the best logits first, then their softmax in float32.
    BestFirst,
    /// gpt_oss: the best logits first, then their softmax.
    BestFirstInPlace,
    /// llama4: the sigmoid of the best logits; every expert is given every token, times 0 where it was not chosen.
    Every,
}

/// How a family rotates queries and keys in float32 ([`super::blocks::Rotary::Float32`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FloatRotary {
    /// olmo: cosines and sines are float32 and promote the products.
    Promoted,
    /// cohere: queries and keys are cast before anything else.
    CastFirst,
    /// ernie4_5: cosines and sines are float32 and repeated for each pair of neighbours; each operand is cast.
    Pairs,
    /// modernbert: queries and keys are cast twice, once for each product.
    CastTwice,
}

/// How a family rotates a part of each head ([`super::blocks::Rotary::Partial`], [`super::blocks::Rotary::Interleaved`]) and
/// joins it with the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RotaryJoin {
    /// phi3: rotated and joined in one expression.
    Nested,
    /// glm, glm4_moe, gpt_neox: both rotated, then both joined, each result in place of its part.
    Replacing,
    /// nemotron: both rotated, then both joined.
    Together,
    /// helium: all of each head is rotated, and nothing joined.
    Whole,
    /// phi, stablelm, persimmon: in the attention's own code, whose variables keep the parts until it returns.
    Kept,
}

/// For which layers and positions cosines and sines are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RotaryTables {
    /// One pair for all layers.
    One,
    /// gemma3, mellum, modernbert: one pair for layers that see a window only, one for the others.
    ByKind,
    /// qwen3_5: positions in time, height and width, which it makes for a text too.
    Grid,
}

/// How positions are found where they are not rotary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PositionIds {
    /// One row of a table for each position, the same for all sequences.
    Range,
    /// bart, mbart: counted from 2; the encoder looks a row up for each token of the batch.
    Shifted,
    /// roberta: counted from the token ids, because padding has none.
    Counted,
    /// m2m_100: counted likewise; the table holds sines and is a buffer.
    CountedSines,
    /// pegasus, marian: the table holds sines and is not trained.
    FixedSines,
}

/// What peft adapts in a family beside its linear layers, and what it refuses (peft 0.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peft {
    /// The three-dimensional weights of experts, and the router, in place of the linear layers that they were before
    /// transformers 5 (utils/transformers_weight_conversion.py).
    pub experts: bool,
    /// Refuses `out_proj`, whose weight the state space reads itself (tuners/tuners_utils.py,
    /// `_check_lora_target_modules_mamba`).
    pub refuses_out_proj: bool,
    /// Meets one layer of queries, keys and values in the family's own code where its description has the three that
    /// transformers' class of the same tensors has (baichuan's `W_pack`): adapters on it were compared with nothing.
    pub packs_projections: bool,
}

/// The experts of a family as transformers 4.57 had them: each with three linear layers of its own (models/*/modeling_*.py).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertLayers {
    /// Paths of the layers: the gate, what it is multiplied with, and the last one.
    pub names: [&'static str; 3],
    /// How they run.
    pub turns: ExpertTurns,
}

/// How experts that are layers run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpertTurns {
    /// qwen3_moe, qwen2_moe, mixtral: those that were chosen by any token.
    Chosen,
    /// olmoe: all.
    All,
    /// deepseek_v3: all, their weights and their sum as the router has them, in float32; the router is no linear layer.
    Weighed,
}

/// Families whose experts were linear layers, each by itself, in transformers 4.57 (`nn.ModuleList` in its
/// models/*/modeling_*.py), which bitsandbytes quantised; three-dimensional parameters since 5.
const EXPERTS_WERE_LAYERS: [&str; 14] = [
    "deepseek_v2",
    "deepseek_v3",
    "dots1",
    "ernie4_5_moe",
    "flex_olmo",
    "glm4_moe",
    "hunyuan_v1_moe",
    "jamba",
    "mixtral",
    "olmoe",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_next",
];

/// Whether experts of that family were quantised before transformers 5.
pub(crate) fn quantised_experts_before_5(model_type: &str) -> bool {
    EXPERTS_WERE_LAYERS.contains(&model_type)
}

/// All that transformers' modeling code of a family answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Modeling {
    /// Whose code runs.
    pub code: Code,
    /// Where norms on queries and keys stand.
    pub head_norms: HeadNorms,
    /// Whether queries, keys and values are all projected before the first of them is divided into heads.
    pub projects_first: bool,
    /// Whether the last norm runs before the layers, too.
    pub norms_first: bool,
    /// Whose router runs, where there are experts.
    pub router: Router,
    /// How queries and keys are rotated in float32, where they are.
    pub float_rotary: FloatRotary,
    /// How a rotated part is joined with the rest, where only a part is.
    pub rotary_join: RotaryJoin,
    /// Which cosines and sines are made.
    pub rotary_tables: RotaryTables,
    /// How other positions are found.
    pub positions: PositionIds,
    /// What peft does with it.
    pub peft: Peft,
    /// Whether attention's dropout is a module, or reads the probability of one; else it is an argument of a function.
    pub drops_attention_by_module: bool,
    /// Whether dropouts of its layers and embeddings are arguments of functions; else they are modules.
    pub drops_by_function: bool,
    /// Whether DeepSpeed's ZeRO-3 gathers its mixture of experts whole, router and all (0.19.8 runtime/zero/leaf_module_config.py).
    pub gathers_experts_whole: bool,
    /// How transformers 4.57 had its experts, where that was compared.
    pub expert_layers: Option<ExpertLayers>,
    /// Whether its text model reads `use_cache` of a config of its own, which trainers do not change: it fills a cache of
    /// keys and values whatever is asked for.
    pub own_cache: bool,
    /// Whether a cache is filled where there are labels and it is asked for; bart switches it off.
    pub caches_with_labels: bool,
    /// Whether its code has gradient checkpointing.
    pub checkpoints: bool,
    /// Whether its layers are given their mask by position; by name they are given all else but the hidden state.
    pub mask_by_position: bool,
    /// Whether its model's forward keeps what it asks for masks with in a dictionary: the first hidden state and the positions,
    /// which then go after the masks.
    pub mask_arguments: bool,
    /// How the path of a linear layer ends that `from_pretrained` leaves in float32 where weights are float16, and never makes
    /// 4-bit (`_keep_in_fp32_modules`).
    pub kept_in_float32: Option<&'static str>,
    /// Whether texts that share a sequence are followed: some families make positions or masks of their own, which do not
    /// follow position ids that start anew.
    pub packs: bool,
    /// Whether it was traced with the package flash-attn.
    pub flash_attn: bool,
    /// Whether the graphs are known that its layers are compiled to.
    pub compiles: bool,
    /// Whether its checkpoints were compared, whose files have the gate and up projections of each expert apart.
    pub cuts_experts: bool,
    /// Whether its encoder is run beside its decoder.
    pub runs_encoder: bool,
    /// Whether a branch is multiplied by a number before it is added (granite's `residual_multiplier`).
    pub scales_branches: bool,
    /// Whether the last hidden state is divided by a number before the head (minicpm3's `logits_scaling`).
    pub scales_hidden: bool,
    /// Whether the factor of scaled embeddings is a buffer (gemma's `embed_scale`).
    pub scale_buffer: bool,
    /// Whether the loss casts logits to float32 itself, where the loss is a masked language model's.
    pub casts_masked_loss: bool,
    /// Whether attention's output is dropped out before it is added, where norms come after the sum; distilbert's is not.
    pub attention_output_dropout: bool,
    /// Whether a buffer is added to the logits (bart's `final_logits_bias`).
    pub logits_bias: bool,
    /// Whether layers without an indexer use the choice of the last one that has one (glm_moe_dsa).
    pub shares_indexer_choice: bool,
    /// Whether token ids that stand for pictures, films and sounds are looked for and replaced (gemma4's outer model).
    pub replaces_placeholders: bool,
    /// Whether the arguments of mamba's kernel are cast before its slow path runs; jamba's are not.
    pub casts_scan_arguments: bool,
    /// Whether the gated delta rule lets queries and keys go before the gate (qwen3_next).
    pub frees_queries_first: bool,
    /// Whether a layer has a variable for what its attention made, to its end (modernbert, llama4).
    pub keeps_mixed: bool,
}
