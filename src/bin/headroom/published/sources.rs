//! What a project's own scripts say where its rows do not.

use super::Row;
use headroom::scenario::{LossKernel, Stack, WeightFormat};

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
    /// Tokens of a sequence where a row states none.
    pub sequence: Option<u64>,
    /// How the head and the loss are computed, where a row does not say.
    pub loss: LossKernel,
    /// Where all this stands, and nothing where it is as anywhere.
    pub because: &'static str,
}

/// swift/llm/utils/model.py `LoRATM`, as of December 2023.
const SWIFT_TARGETS: &[(&str, &[&str])] = &[
    ("Qwen-", &["c_attn"]),
    ("chatglm", &["query_key_value"]),
    // one layer in its own code, W_pack; the catalogue reads it as the three that llama has
    ("Baichuan", &["q_proj", "k_proj", "v_proj"]),
    ("Yi-", &["q_proj", "k_proj", "v_proj"]),
    ("zephyr", &["q_proj", "k_proj", "v_proj"]),
];

/// What is so where a project's scripts do not say otherwise: transformers' `Trainer`.
pub(super) const COMMON: Habits = Habits {
    stack: Stack::Transformers,
    lora_dropout: false,
    format: WeightFormat::Nf4,
    keeps_outputs: false,
    autocast: false,
    targets: &[],
    accumulation: 1,
    sequence: None,
    loss: LossKernel::Standard,
    because: "",
};

impl Habits {
    pub fn of(row: &Row) -> Habits {
        if row.source.starts_with("Lightning-AI/litgpt") {
            // The full fine-tunes of config_hub have a global batch of twice to 16 times the micro-batch.
            let accumulates = row.source.contains("config_hub") && row.method == "full";
            return Habits {
                stack: Stack::Litgpt,
                lora_dropout: true,
                format: WeightFormat::Nf4Early,
                keeps_outputs: true,
                accumulation: if accumulates { 2 } else { 1 },
                because: "litgpt/finetune/lora.py: lora_dropout 0.05 (0.1 in gemma's configurations), `logits` is a variable \
                          of the loop; pyproject.toml: bitsandbytes 0.42.0; config_hub: global batches of 2 to 16 micro-batches",
                ..COMMON
            };
        }
        if row.source.starts_with("modelscope/ms-swift") {
            return Habits {
                lora_dropout: true,
                format: WeightFormat::Nf4Early,
                autocast: true,
                targets: SWIFT_TARGETS,
                accumulation: 16 / row.batch.unwrap_or(1).clamp(1, 16),
                because: "swift/llm/utils/argument.py: lora_dropout_p 0.05, 16 micro-batches per step divided by the batch size, \
                          Trainer(bf16=True) over bfloat16 weights; swift/llm/utils/model.py LoRATM (December 2023); \
                          docs/source_en/LLM/Benchmark.md: bitsandbytes 0.41.3",
                ..COMMON
            };
        }
        if row.source.starts_with("pytorch/torchtune") {
            return Habits {
                stack: Stack::Torchtune,
                keeps_outputs: true,
                accumulation: 64,
                sequence: Some(512),
                loss: LossKernel::Full,
                because: "torchtune as of April 2024 (ff594c231): recipes/lora_finetune_single_device.py: `logits` is a variable \
                          of the loop, the loss is CrossEntropyLoss; datasets/_alpaca.py: max_seq_len 512; \
                          recipes/configs/llama2/: 64 micro-batches",
                ..COMMON
            };
        }
        if row.source.starts_with("QwenLM/Qwen") {
            return Habits { lora_dropout: true, because: "finetune.py: lora_dropout 0.05", ..COMMON };
        }
        COMMON
    }
}

/// What a project's scripts run otherwise than its rows say, where that cannot be expressed.
pub(super) fn contradiction(row: &Row) -> Option<&'static str> {
    // QwenLM/Qwen finetune/: of the whole model there is finetune_ds.sh only
    if row.source.starts_with("QwenLM/Qwen") && row.method == "full" {
        return Some(
            "the project's only script of that method runs DeepSpeed, of whose configuration the row says nothing",
        );
    }
    let many = row.gpus.is_some_and(|gpus| gpus > 1);
    if many && row.source.starts_with("AnswerDotAI/fsdp_qlora") {
        return Some(
            "tools/sharded.py reads it, with FSDP2 in the place of FSDP1: data/measurements/sharded.json",
        );
    }
    if many && row.notes.as_deref().is_some_and(|notes| notes.contains("the total over GPUs")) {
        return Some("the figure is the sum over all GPUs, and neither its unit nor its metric is stated");
    }
    // every row of the table adds a switch to those before it, of which the third is torch.compile
    if row.source.starts_with("pytorch/torchtune:README") {
        return Some(
            "a model that is compiled as a whole (torch.compile) is not modelled, nor flex attention over packed samples",
        );
    }
    // docs/source/tutorials/qlora_finetune.rst: 9.13 GB were reserved once the model was there, 9.29 GB in the end
    if row.source.contains("qlora_finetune.rst") {
        return Some("a peak of loading: torchao's quantisation at that time took more than training");
    }
    // pytorch/ao pull request 746: "Compile time ~4 min"
    if row.source.starts_with("pytorch/ao:torchao/optim") {
        return Some(
            "a model that is compiled as a whole (torch.compile) is not modelled, and the batch size is not stated",
        );
    }
    None
}
