//! What ways to need less go with, and with what not.

use crate::model::Architecture;

use super::{
    Checkpointing, Compile, Field, Issue, LoraTargets, LossKernel, Method, Offloading, Optimizer, Precision,
    Scenario, Severity, Sharding, Stack, StepTime,
};

/// Adds what is wrong with the savings of a scenario.
pub(super) fn issues(scenario: &Scenario, architecture: Option<&Architecture>, issues: &mut Vec<Issue>) {
    if scenario.savings.loss == LossKernel::Cut && has_wide_states(scenario) {
        let message = "cut cross entropy takes 16-bit hidden states only, and these are 32-bit";
        let fix = "load the model in bfloat16, without prepare_model_for_kbit_training";
        issues.push(Issue::error(Field::Loss, message).with_fix(fix));
    }
    if scenario.trains_in_float8() {
        float8(scenario, issues);
    }
    if scenario.compile != Compile::Off && scenario.task.trains() {
        let message = "the first run of a shape tries several settings of each compiled kernel in its first step, with a buffer as large as the card's second-level cache (up to 60 MiB) \
                       beside it; what is predicted are the runs after it, which find them in inductor's cache. How many multiprocessors the card has is taken from its generation's largest";
        issues.push(Issue::new(Severity::Note, Field::Compile, message));
    }
    if scenario.trains_quantization_aware() {
        quantization_aware(scenario, issues);
    }
    if scenario.optimizer.steps_in_backward() {
        steps_by_itself(scenario, issues);
    } else if scenario.savings.step == StepTime::InBackward {
        step_in_backward(scenario, issues);
    }
    if scenario.optimizer.is_on_cpu() && scenario.training_loop.clips {
        let message = "torchao's optimizer has copied each gradient to the CPU's memory before it is clipped: it steps with what was not clipped";
        issues.push(Issue::new(Severity::Note, Field::ClipGradients, message));
    }
    if scenario.optimizer == Optimizer::AdamWCpuOffloadGradients {
        let message = "a gradient's memory is free again when its copy to the CPU's memory is through (record_stream): predicted are copies that \
                       keep up with backward. Where they do not, further gradients wait on the GPU";
        issues.push(Issue::new(Severity::Note, Field::Optimizer, message));
    }
    if scenario.projects() {
        tied_head(scenario, architecture, issues);
    }
    if scenario.savings.offloading == Offloading::On {
        offloading(scenario, architecture, issues);
    }
}

/// What is thought of FP8 training, and is otherwise.
fn float8(scenario: &Scenario, issues: &mut Vec<Issue>) {
    let mut note = |field, message: &str| issues.push(Issue::new(Severity::Note, field, message));
    note(
        Field::Float8,
        "FP8 training is made for speed, which torch.compile brings and is not followed here. Nothing in 8 bits outlives its layer: weights, \
         gradients, optimizer states and saved activations stay in their types, and each product makes float32 copies of its operands. What it saves are \
         autocast's copies of the converted weights, and half of what FSDP2 gathers where that is in 8 bits",
    );
    if scenario.method.has_adapters() {
        note(
            Field::Float8,
            "Float8Linear computes the gradients of frozen weights too, and drops them: LoRA gets slower",
        );
    }
    if scenario.wraps_float8_weights() {
        note(
            Field::Float8Gather,
            "wrapping makes new parameters of the weights: where the optimizer was made before, as transformers' Trainer makes it on one GPU, \
             they are not trained",
        );
    }
}

/// What is thought of quantisation-aware training, and is otherwise.
fn quantization_aware(scenario: &Scenario, issues: &mut Vec<Issue>) {
    let what = if scenario.qat.scheme.rounds_inputs() { "weight and its input" } else { "weight" };
    let message = format!(
        "weights, gradients and optimizer states are as large as ever, and more is kept: every stage of a layer's {what} that a \
         gradient passes on the way to what is rounded. Memory is saved once the model is quantised, not while it is trained"
    );
    issues.push(Issue::new(Severity::Note, Field::Qat, message));
}

/// What goes with a step of every parameter by itself.
fn step_in_backward(scenario: &Scenario, issues: &mut Vec<Issue>) {
    if scenario.accumulation > 1 {
        let message =
            "parameters that step in backward cannot wait for the gradients of further micro-batches";
        let fix = "set the accumulation to 1, or let the optimizer step after backward";
        issues.push(Issue::error(Field::Step, message).with_fix(fix));
    }
    if scenario.precision.is_scaled() {
        let message = "a gradient scaler looks at all gradients before any parameter steps";
        issues.push(Issue::error(Field::Step, message).with_fix("train in bfloat16"));
    }
    if scenario.training_loop.clips {
        let message = "gradients are not clipped: their norm would need all of them at once";
        issues.push(Issue::new(Severity::Note, Field::Step, message));
    }
}

/// What an optimizer does not do that steps in backward whatever is asked for.
fn steps_by_itself(scenario: &Scenario, issues: &mut Vec<Issue>) {
    if scenario.training_loop.clips {
        let message = format!("{} steps in backward: gradients are not clipped", scenario.optimizer.label());
        issues.push(Issue::new(Severity::Note, Field::ClipGradients, message));
    }
}

/// An output head without a weight of its own among the layers whose gradients are projected.
fn tied_head(scenario: &Scenario, architecture: Option<&Architecture>, issues: &mut Vec<Issue>) {
    let asked = scenario.lora.targets == LoraTargets::AllLinearAndHead;
    if asked && architecture.is_some_and(|architecture| architecture.head.tied) {
        let message = "the output head's weight is the embedding's, whose gradient is not projected";
        issues.push(Issue::new(Severity::Note, Field::LoraTargets, message));
    }
}

/// What goes with saved activations in the CPU's memory.
fn offloading(scenario: &Scenario, architecture: Option<&Architecture>, issues: &mut Vec<Issue>) {
    if architecture.is_some_and(|model| model.blocks.iter().any(|block| block.mixer.is_recurrent())) {
        let message = "offloading is not followed through the scan of a state space or of linear attention";
        issues.push(Issue::error(Field::Offloading, message).with_fix("keep activations on the GPU"));
    }
    if scenario.stack == Stack::Unsloth {
        let message =
            "Unsloth offloads in a way of its own: gradient checkpointing with layer inputs in CPU memory";
        let fix = "choose that, and keep activations on the GPU here";
        issues.push(Issue::error(Field::Offloading, message).with_fix(fix));
        return;
    }
    let is_zero3 = scenario.cluster.has_engine() && scenario.cluster.sharding == Sharding::Zero3;
    let is_whole = scenario.checkpointing == Checkpointing::Off;
    if scenario.stack == Stack::Trl && scenario.cluster.is_fsdp2() && is_whole {
        let message = "trl's offloading takes gathered weights for activations where layers save them, and copies them too: not followed \
                       under FSDP2 without gradient checkpointing";
        issues.push(Issue::error(Field::Offloading, message).with_fix("switch checkpointing on"));
    }
    if scenario.stack == Stack::Trl && is_zero3 && scenario.method == Method::Full {
        // the hooks give a weight back as another tensor
        let message = "DeepSpeed stops where a trained weight of ZeRO-3 comes back from trl's offloading (\"'Tensor' object has no \
                       attribute 'ds_status'\")";
        let fix = "choose ZeRO-2, or keep activations on the GPU";
        issues.push(Issue::error(Field::Offloading, message).with_fix(fix));
    } else if scenario.checkpoints().is_reentrant() {
        let message = "reentrant checkpointing saves its recomputed activations in backward, where offloading is not followed";
        // trl makes it so under ZeRO-3
        let fix = match scenario.checkpointing.is_reentrant() {
            true => "choose checkpointing with use_reentrant=False",
            false => "choose FSDP2 or ZeRO-2, or keep activations on the GPU",
        };
        issues.push(Issue::error(Field::Offloading, message).with_fix(fix));
    }
    if scenario.stack == Stack::Litgpt {
        let message = "litgpt does not offload activations";
        issues.push(Issue::error(Field::Offloading, message).with_fix("keep them on the GPU"));
    } else if scenario.stack == Stack::Torchtune {
        if scenario.checkpointing == Checkpointing::Off {
            let message = "torchtune offloads activations only together with checkpointing";
            let fix = "switch checkpointing on";
            issues.push(Issue::error(Field::Offloading, message).with_fix(fix));
        }
    } else if !matches!(scenario.stack, Stack::Transformers | Stack::Trl)
        || scenario.savings.loss != LossKernel::Standard
        || architecture.is_some_and(|model| model.encoder.is_some())
    {
        let message = "offloading was measured with decoders under transformers' own code and loss only";
        issues.push(Issue::warning(Field::Offloading, message));
    }
}

/// Whether the last hidden states are float32, as the weights of the last norm are. FSDP2 gathers these in 16 bits, and DeepSpeed's engines
/// make them so.
fn has_wide_states(scenario: &Scenario) -> bool {
    let cluster = scenario.cluster;
    let prepares = scenario.method == Method::Qlora && scenario.quantization.makes_rest_float32();
    let has_engine = cluster.is_zero() || cluster.is_fsdp2() && !prepares;
    match scenario.precision {
        Precision::Fp32 => true,
        _ if has_engine && scenario.task.trains() => false,
        Precision::AmpBf16 | Precision::AmpFp16 => true,
        Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => prepares,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Severity;

    #[test]
    fn engines_that_compute_in_16_bits_have_no_wide_states() {
        let is_told = |link: &str| {
            let scenario = crate::share::decode(&format!("{link}&loss=cut")).scenarios.remove(0);
            scenario.validate().iter().any(|issue| issue.message.contains("16-bit hidden states"))
        };
        for wide in ["p=amp-bf16", "p=amp-bf16&gpus=4&shard=ddp", "p=fp32&gpus=4&shard=fsdp2"] {
            assert!(is_told(&format!("method=full&{wide}")), "{wide}");
        }
        for narrow in
            ["method=full&shard=fsdp2", "method=qlora&prep=off&shard=fsdp2", "method=full&shard=zero2"]
        {
            assert!(!is_told(&format!("{narrow}&p=amp-bf16&gpus=4")), "{narrow}");
        }
    }

    #[test]
    fn what_offloading_does_not_go_with_depends_on_the_engine() {
        let errors = |link: &str| {
            let scenario =
                crate::share::decode(&format!("{link}&st=trl&offload=on&p=amp-bf16-weights&gpus=4"))
                    .scenarios
                    .remove(0);
            let of_offloading =
                |issue: &Issue| issue.severity == Severity::Error && issue.field == Field::Offloading;
            scenario
                .validate()
                .into_iter()
                .filter(of_offloading)
                .map(|issue| issue.message.to_string())
                .collect::<Vec<_>>()
        };
        for free in ["shard=ddp", "shard=zero2&method=full", "shard=zero3&method=lora&gc=off"] {
            assert_eq!(errors(free), Vec::<String>::new(), "{free}");
        }
        // trl makes checkpoints reentrant there
        let again = errors("shard=zero3&method=lora");
        assert!(again.len() == 1 && again[0].contains("where offloading is not followed"), "{again:?}");
        let copied = errors("shard=fsdp2&method=lora&gc=off");
        assert!(copied.len() == 1 && copied[0].contains("gathered weights"), "{copied:?}");
        assert_eq!(errors("shard=fsdp2&method=lora"), Vec::<String>::new());
        let stops = errors("shard=zero3&method=full&gc=off");
        assert!(stops.len() == 1 && stops[0].contains("ds_status"), "{stops:?}");
    }
}
