//! Checks of a scenario that need no execution.

use super::{Field, Issue, Lengths, LossKernel, Method, Precision, Scenario, Severity};

/// The largest micro-batch, sequence length, accumulation and rank that are computed; above it a size is a typing error.
pub const LARGEST: u64 = 1 << 24;

pub(super) fn validate(scenario: &Scenario) -> Vec<Issue> {
    let mut issues = Vec::new();
    for (field, name, value) in [
        (Field::Batch, "micro-batch size", scenario.batch),
        (Field::Sequence, "sequence length", scenario.sequence),
        (Field::Accumulation, "gradient accumulation", scenario.accumulation),
        (Field::LoraRank, "LoRA rank", scenario.lora.rank),
    ] {
        if value == 0 || value > LARGEST {
            issues.push(
                Issue::error(field, format!("the {name} is {value}"))
                    .with_fix(format!("use a whole number from 1 to {LARGEST}")),
            );
        }
    }
    if scenario.savings.loss == LossKernel::Cut && has_wide_states(scenario) {
        let message = "cut cross entropy takes 16-bit hidden states only, and these are 32-bit";
        let fix = "load the model in bfloat16, without prepare_model_for_kbit_training";
        issues.push(Issue::error(Field::Loss, message).with_fix(fix));
    }
    if scenario.lengths != Lengths::Equal {
        let message = "sequences are of different lengths: the peak is that of a batch of the longest";
        issues.push(Issue::new(Severity::Note, Field::Sequence, message));
    }
    issues
}

/// Whether the last hidden states are float32, as the weights of the last norm are.
fn has_wide_states(scenario: &Scenario) -> bool {
    match scenario.precision {
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => true,
        Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights => {
            scenario.method == Method::Qlora && scenario.quantization.prepare
        }
    }
}
