//! Families by what one place alone asks of them.

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

/// Families that see whose answers to texts with pictures were learned from under trl and compared (DPO, KTO, GRPO, RLOO).
const SEEING_ANSWERS: [&str; 10] = [
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_5",
    "gemma3",
    "gemma4",
    "internvl",
    "llava",
    "llava_next",
    "mistral3",
];

/// Whether learning from answers to texts with pictures is followed of that family.
pub fn answers_pictures(model_type: &str) -> bool {
    SEEING_ANSWERS.contains(&model_type)
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

/// Families whose adapted experts were compared under ZeRO-3.
const ADAPTED_EXPERTS: [&str; 10] = [
    "qwen3_moe",
    "qwen2_moe",
    "olmoe",
    "mixtral",
    "granitemoe",
    "deepseek_v2",
    "ernie4_5_moe",
    "glm4_moe",
    "glm4_moe_lite",
    "qwen3_next",
];

/// Whether adapters on that family's experts were compared where ZeRO-3 gathers them.
pub fn gathers_adapted_experts(model_type: &str) -> bool {
    ADAPTED_EXPERTS.contains(&model_type)
}

/// Families whose layers torchtitan has as its Llama 3's (0.2.2 models/llama3), and that were compared.
const TORCHTITAN: [&str; 1] = ["llama"];

/// Whether torchtitan's Llama 3 is of that family's architecture.
pub fn is_torchtitans(model_type: &str) -> bool {
    TORCHTITAN.contains(&model_type)
}

/// Families that see whose text alone was compared on several GPUs, beside a tower that lies idle.
const IDLE_TOWERS: [&str; 4] = ["gemma3", "qwen2_5_vl", "qwen3_vl", "internvl"];

/// Whether text alone of that family was compared on several GPUs.
pub fn lies_idle(model_type: &str) -> bool {
    IDLE_TOWERS.contains(&model_type)
}

/// Families whose class in transformers 5.17 has no attention by `scaled_dot_product_attention` (`_supports_sdpa`): loading stops where it is
/// asked for.
const WITHOUT_SDPA: [&str; 15] = [
    "bloom",
    "codegen",
    "deberta-v2",
    "deepseek_v4",
    "falcon_mamba",
    "gpt_neo",
    "gpt_oss",
    "gptj",
    "mamba",
    "mamba2",
    "mpnet",
    "mpt",
    "openai-gpt",
    "rwkv",
    "xglm",
];

/// Whether that family's attention is written out in Python whatever is asked for.
pub fn lacks_sdpa(model_type: &str) -> bool {
    WITHOUT_SDPA.contains(&model_type)
}

/// Families that transformers 5.17 has no class for: their code is in the repositories themselves.
const REMOTE: [&str; 8] =
    ["baichuan", "chatglm", "deepseek", "internlm", "internlm2", "kimi_k2", "minicpm", "qwen"];

/// Whether that family's code comes with its weights.
pub fn is_remote(model_type: &str) -> bool {
    REMOTE.contains(&model_type)
}

/// Families around whose activations transformers puts the scales that AWQ found (5.17 integrations/awq.py `AWQ_SCALES_MAPPINGS`).
const SCALED_ACTIVATIONS: [&str; 7] =
    ["starcoder2", "falcon", "mpt", "gptj", "gpt_neox", "gpt_bigcode", "bloom"];

/// Whether activations of that family are scaled beside AWQ's weights.
pub fn scales_activations(model_type: &str) -> bool {
    SCALED_ACTIVATIONS.contains(&model_type)
}

/// Families whose output has no cache where `use_cache` is off, also where one was handed to the model.
const WITHHOLDING: [&str; 10] =
    ["gpt2", "mistral", "qwen2", "qwen3", "gemma", "phi3", "starcoder2", "smollm3", "ministral", "exaone4"];

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

/// Whether transformers' `Trainer`, which patches modules of a model that is there already, gives fewer of that family's norms Liger's kernel
/// than who patches the classes before (liger-kernel 0.8.5 transformers/monkey_patch.py).
pub fn has_norms_that_trainer_leaves(model_type: &str) -> bool {
    matches!(model_type, "olmo2" | "olmo3" | "hunyuan_v1_dense")
}
