//! What the modeling code of a family does beyond what its blocks say: whose code it is, in which order it works, what it
//! leaves to the script. One row per `model_type`, and none for what is not listed: a new family answers every question
//! here, or says whose answers are its own.
//!
//! Source: models/ of transformers 5.17, unless a field says otherwise.

/// Families whose modeling code differs in more than their blocks say: in the order of operations and in what its local
/// variables keep alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// How a family rotates queries and keys in float32 ([`super::blocks::Rotary::Float32`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub enum RotaryJoin {
    /// phi3: rotated and joined in one expression.
    Nested,
    /// glm, glm4_moe, gpt_neox: both rotated, then both joined, each result in place of its part.
    Replacing,
    /// nemotron: both rotated, then both joined.
    Together,
    /// phi, stablelm, persimmon: in the attention's own code, whose variables keep the parts until it returns.
    Kept,
}

/// For which layers and positions cosines and sines are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// One row: all that a family's code answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modeling {
    /// Whose code runs.
    pub code: Code,
    /// Where norms on queries and keys stand.
    pub head_norms: HeadNorms,
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
    /// Whether `from_pretrained` leaves a layer in float32 where weights are float16 (t5's `_keep_in_fp32_modules = ["wo"]`).
    pub float32_beside_fp16: bool,
    /// Whether texts that share a sequence are followed: some families make positions or masks of their own, which do not
    /// follow position ids that start anew.
    pub packs: bool,
    /// Whether it was traced with the package flash-attn.
    pub flash_attn: bool,
    /// Whether its encoder is run beside its decoder.
    pub runs_encoder: bool,
    /// Whether a branch is multiplied by a number before it is added (granite's `residual_multiplier`).
    pub scales_branches: bool,
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
}

const NO_PEFT: Peft = Peft { experts: false, refuses_out_proj: false, packs_projections: false };
const EXPERTS: Peft = Peft { experts: true, ..NO_PEFT };
const NO_OUT_PROJ: Peft = Peft { refuses_out_proj: true, ..NO_PEFT };

/// llama's own answers.
const LLAMA: Modeling = Modeling {
    code: Code::Llama,
    head_norms: HeadNorms::Each,
    router: Router::Qwen,
    float_rotary: FloatRotary::Promoted,
    rotary_join: RotaryJoin::Nested,
    rotary_tables: RotaryTables::One,
    positions: PositionIds::Range,
    peft: NO_PEFT,
    own_cache: false,
    caches_with_labels: true,
    checkpoints: true,
    float32_beside_fp16: false,
    mask_by_position: false,
    mask_arguments: false,
    packs: true,
    flash_attn: true,
    runs_encoder: false,
    scales_branches: false,
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
const SEQ2SEQ: Modeling = Modeling { runs_encoder: true, float32_beside_fp16: true, ..LLAMA };
const BART: Modeling =
    Modeling { runs_encoder: true, caches_with_labels: false, logits_bias: true, ..own(Code::Bart) };
const SPARSE: Modeling =
    Modeling { router: Router::Groups, peft: EXPERTS, mask_arguments: true, ..own(Code::DeepseekSparse) };

/// The row of a model type; none where it has no row.
pub fn of(model_type: &str) -> Option<Modeling> {
    Some(match model_type {
        "llama" | "internlm" | "internlm2" | "minicpm" | "mistral" | "mistral3" | "ministral3" | "arcee"
        | "starcoder2" | "qwen3_vl_text" | "olmo" | "olmo2" | "phi3" | "seed_oss" | "hyperclovax"
        | "jais2" | "helium" | "bitnet" | "diffllama" | "exaone" | "hunyuan_v1_dense" | "youtu"
        | "minicpm3" | "codegen" | "chatglm" | "dbrx" => LLAMA,
        "baichuan" => Modeling { peft: Peft { packs_projections: true, ..NO_PEFT }, ..LLAMA },
        "ministral" | "smollm3" | "qwen2" | "qwen2_vl_text" | "qwen2_5_vl_text" | "qwen3" | "olmo3"
        | "cwm" | "vaultgemma" | "lfm2" => QWEN,
        "xglm" => Modeling { mask_by_position: true, ..LLAMA },
        "gemma" => GEMMA,
        "gemma2" => Modeling { mask_arguments: true, ..GEMMA },
        "gemma3" | "gemma3_text" => GEMMA3,
        "gemma4" => Modeling { replaces_placeholders: true, ..GEMMA4 },
        "gemma4_text" => GEMMA4,
        "granite" => GRANITE,
        "granitemoe" | "granitemoeshared" => GRANITE_MOE,
        "granitemoehybrid" => Modeling { mask_arguments: true, ..GRANITE_MOE },
        "cohere" => Modeling { head_norms: HeadNorms::Last, ..COHERE },
        "cohere2" => Modeling { mask_arguments: true, ..COHERE },
        "ernie4_5" => ERNIE,
        "ernie4_5_moe" => Modeling { router: Router::Corrected, peft: EXPERTS, ..ERNIE },
        "glm" | "glm4" => GLM,
        "glm4_moe" => Modeling { head_norms: HeadNorms::Last, rotary_join: RotaryJoin::Replacing, ..GROUPS },
        "glm4_moe_lite" | "deepseek_v3" | "kimi_k2" => GROUPS,
        "dots1" => Modeling { mask_arguments: true, ..GROUPS },
        "solar_open" => Modeling { rotary_join: RotaryJoin::Replacing, ..GROUPS },
        "exaone_moe" => Modeling { head_norms: HeadNorms::Last, mask_arguments: true, ..GROUPS },
        "deepseek_v32" => SPARSE,
        "glm_moe_dsa" => Modeling { shares_indexer_choice: true, ..SPARSE },
        "deepseek_v2" => Modeling { router: Router::SoftGroups, ..MOE },
        "deepseek" | "deepseek_v4" | "mistral4" | "phimoe" => LLAMA,
        "lfm2_moe" => QWEN,
        "nemotron" => Modeling { rotary_join: RotaryJoin::Together, ..LLAMA },
        "nemotron_h" => Modeling { router: Router::Groups, mask_arguments: true, ..MAMBA },
        "apertus" => Modeling { head_norms: HeadNorms::Last, ..LLAMA },
        "exaone4" => Modeling { head_norms: HeadNorms::Last, ..QWEN },
        "nanochat" => Modeling { head_norms: HeadNorms::AfterRotary, ..LLAMA },
        "phi" => Modeling { rotary_join: RotaryJoin::Kept, head_norms: HeadNorms::Last, ..own(Code::Phi) },
        "persimmon" => KEPT,
        "stablelm" => Modeling { code: Code::StableLm, head_norms: HeadNorms::Last, ..KEPT },
        "mixtral" => Modeling { router: Router::Mixtral, ..MOE },
        "olmoe" => Modeling { router: Router::Plain, ..MOE },
        "qwen2_moe" => Modeling { router: Router::Plain, ..QWEN },
        "qwen3_moe" | "hunyuan_v1_moe" | "flex_olmo" => MOE,
        "mellum" => {
            Modeling { rotary_tables: RotaryTables::ByKind, mask_arguments: true, flash_attn: false, ..MOE }
        }
        "qwen3_vl_moe_text" => LLAMA,
        "qwen3_next" => Modeling {
            rotary_join: RotaryJoin::Replacing,
            frees_queries_first: true,
            mask_arguments: true,
            ..MOE
        },
        "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" => QWEN3_5,
        "minimax_m2" => Modeling { router: Router::Sigmoid, rotary_join: RotaryJoin::Replacing, ..MOE },
        "gpt_oss" => Modeling { router: Router::BestFirstInPlace, ..QWEN },
        "llama4" => Modeling { packs: false, flash_attn: false, ..QWEN },
        "llama4_text" => QWEN,
        "mllama" | "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe" => INNER,
        "jamba" => Modeling { casts_scan_arguments: false, ..QWEN },
        "bamba" => QWEN,
        "mamba" | "mamba2" | "falcon_mamba" => MAMBA,
        "gpt2" => Modeling { mask_by_position: true, ..own(Code::Gpt2) },
        "gpt_bigcode" => own(Code::GptBigCode),
        "gpt_neo" => own(Code::GptNeo),
        "gpt_neox" => Modeling { rotary_join: RotaryJoin::Replacing, ..own(Code::GptNeox) },
        "gptj" => own(Code::GptJ),
        "opt" => own(Code::Opt),
        "bloom" => own(Code::Bloom),
        "falcon" => own(Code::Falcon),
        "mpt" => own(Code::Mpt),
        "qwen" => own(Code::Qwen),
        "openai-gpt" => Modeling { checkpoints: false, ..own(Code::OpenAiGpt) },
        "biogpt" => own(Code::BioGpt),
        "deberta-v2" => Modeling { mask_by_position: true, ..own(Code::Deberta) },
        "modernbert" => Modeling {
            float_rotary: FloatRotary::CastTwice,
            rotary_tables: RotaryTables::ByKind,
            casts_masked_loss: true,
            ..own(Code::ModernBert)
        },
        "eurobert" => Modeling { casts_masked_loss: true, ..LLAMA },
        "bert" | "ernie" | "electra" => BERT,
        "roberta" | "data2vec-text" | "xlm-roberta" | "camembert" => ROBERTA,
        "distilbert" => Modeling { attention_output_dropout: false, ..BERT },
        "mpnet" | "albert" => LLAMA,
        "t5" | "mt5" => SEQ2SEQ,
        "umt5" => LLAMA,
        "bart" | "mbart" => Modeling { positions: PositionIds::Shifted, ..BART },
        "pegasus" | "marian" => Modeling { positions: PositionIds::FixedSines, ..BART },
        "blenderbot" => BART,
        "m2m_100" => Modeling { positions: PositionIds::CountedSines, logits_bias: false, ..BART },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::model::catalogue;
    use crate::model::read::parse;

    #[test]
    fn every_family_of_the_catalogue_has_a_row() {
        for entry in catalogue::entries() {
            let architecture = entry.architecture().expect("it is read");
            assert!(architecture.modeling.is_some(), "{}", architecture.model_type);
        }
    }

    #[test]
    fn what_is_not_known_has_none() {
        let config = r#"{"model_type": "nobody_knows", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}"#;
        assert_eq!(parse(config).expect("it is counted").modeling, None);
    }
}
