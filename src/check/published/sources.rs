//! What a project's own scripts say where its rows do not.

use super::Row;
use crate::scenario::{Stack, WeightFormat};

/// How a project runs its training.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Whose modules.
    pub stack: Stack,
    /// Whether `lora_dropout` is above 0.
    pub lora_dropout: bool,
    /// Which 4-bit layers.
    pub format: WeightFormat,
    /// Whether the loop holds its output until it has the next.
    pub keeps_outputs: bool,
    /// Whether `Trainer` runs bfloat16 weights under autocast although the row names the weights alone.
    pub autocast: bool,
    /// LoRA's targets where a row states none, by what the model's name contains.
    pub targets: &'static [(&'static str, &'static [&'static str])],
    /// Micro-batches per step.
    pub accumulation: u64,
}

/// swift/llm/utils/model.py `LoRATM`, as of December 2023.
const SWIFT_TARGETS: &[(&str, &[&str])] = &[
    ("Qwen-", &["c_attn"]),
    ("chatglm", &["query_key_value"]),
    ("Baichuan", &["W_pack"]),
    ("Yi-", &["q_proj", "k_proj", "v_proj"]),
    ("zephyr", &["q_proj", "k_proj", "v_proj"]),
];

impl Habits {
    pub fn of(row: &Row) -> Habits {
        let common = Habits {
            stack: Stack::Transformers,
            lora_dropout: false,
            format: WeightFormat::Nf4,
            keeps_outputs: false,
            autocast: false,
            targets: &[],
            accumulation: 1,
        };
        if row.source.starts_with("Lightning-AI/litgpt") {
            // litgpt/finetune/lora.py: lora_dropout 0.05 (0.1 in gemma's configurations), `logits` is a variable of the
            // loop; pyproject.toml pinned bitsandbytes 0.42.0. The full fine-tunes of config_hub have a global batch of
            // twice to 16 times the micro-batch.
            let accumulates = row.source.contains("config_hub") && row.method == "full";
            return Habits {
                stack: Stack::Litgpt,
                lora_dropout: true,
                format: WeightFormat::Nf4Early,
                keeps_outputs: true,
                autocast: false,
                targets: &[],
                accumulation: if accumulates { 2 } else { 1 },
            };
        }
        if row.source.starts_with("modelscope/ms-swift") {
            // swift/llm/utils/argument.py: lora_dropout_p 0.05, 16 micro-batches per step (divided by the batch size), and
            // Trainer(bf16=True) over bfloat16 weights; docs/source_en/LLM/Benchmark.md: bitsandbytes 0.41.3.
            let accumulation = 16 / row.batch.unwrap_or(1).clamp(1, 16);
            return Habits {
                lora_dropout: true,
                format: WeightFormat::Nf4Early,
                autocast: true,
                targets: SWIFT_TARGETS,
                accumulation,
                ..common
            };
        }
        if row.source.starts_with("QwenLM/Qwen") {
            // finetune.py: lora_dropout 0.05
            return Habits { lora_dropout: true, ..common };
        }
        common
    }
}

/// What a project's scripts run otherwise than its rows say, where that cannot be expressed.
pub(super) fn contradiction(row: &Row) -> Option<&'static str> {
    // QwenLM/Qwen finetune/: of the whole model there is finetune_ds.sh only
    let qwen = row.source.starts_with("QwenLM/Qwen") && row.method == "full";
    qwen.then_some("the project's only script of that method runs DeepSpeed, which is not modelled")
}
