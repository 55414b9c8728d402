//! What is good to know of frozen weights that are a checkpoint's of AWQ: what transformers and peft do otherwise beside them.

use super::{Checkpointing, Method, Precision, Scenario};
use crate::issue::{Field, Issue, Severity};

/// Notes of a scenario.
pub(super) fn issues(scenario: &Scenario, issues: &mut Vec<Issue>) {
    let quantization = scenario.quantization;
    if scenario.method != Method::Qlora || !quantization.format.is_of_awq() {
        return;
    }
    let mut note = |field, message: &str| issues.push(Issue::new(Severity::Note, field, message));
    match scenario.precision {
        Precision::Bf16 => {
            note(
                Field::Precision,
                "AWQ's kernels compute in float16: transformers makes a bfloat16 model float16, and so it is predicted",
            );
        }
        Precision::AmpBf16Weights => {
            note(
                Field::Precision,
                "transformers makes a bfloat16 model over AWQ's weights float16: under bfloat16 autocast every product of many tokens has its \
                 opened weight twice, in either type",
            );
        }
        Precision::Fp32
        | Precision::Fp16
        | Precision::AmpBf16
        | Precision::AmpFp16
        | Precision::AmpFp16Weights => {}
    }
    if scenario.task.trains() && quantization.prepare && scenario.checkpointing != Checkpointing::Off {
        note(
            Field::Checkpointing,
            "prepare_model_for_kbit_training does not turn gradient checkpointing on over AWQ's weights, whatever it is told: \
             model.gradient_checkpointing_enable() or the trainer's gradient_checkpointing=True does",
        );
    }
}
