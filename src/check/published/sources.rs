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
    /// Micro-batches per step.
    pub accumulation: u64,
}

impl Habits {
    pub fn of(row: &Row) -> Habits {
        let common = Habits {
            stack: Stack::Transformers,
            lora_dropout: false,
            format: WeightFormat::Nf4,
            keeps_outputs: false,
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
                accumulation: if accumulates { 2 } else { 1 },
            };
        }
        common
    }
}
