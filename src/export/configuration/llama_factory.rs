//! LLaMA-Factory's YAML.

use super::lines::Lines;
use super::{Run, Targets};
use crate::export::rate::learning_rate;
use crate::import::names::has_no_sdpa;
use crate::issue::{Field, Issue};
use crate::scenario::{
    AttentionKernel, Checkpointing, LossKernel, Mask, Method, Precision, Stack, Task, Tuner,
};

pub(super) fn write(run: &Run<'_>) -> Result<(String, String), Issue> {
    let scenario = run.scenario;
    let mut lines = Lines::default();
    lines.text("model_name_or_path", &run.model());
    lines.set(
        "flash_attn",
        match scenario.attention {
            AttentionKernel::Eager => "disabled",
            AttentionKernel::Sdpa if has_no_sdpa(scenario) => "disabled",
            AttentionKernel::FlashAttn => "fa2",
            AttentionKernel::Sdpa
            | AttentionKernel::Flash
            | AttentionKernel::Efficient
            | AttentionKernel::Math
            | AttentionKernel::Cudnn => "sdpa",
        },
    );
    match (scenario.stack, scenario.savings.loss) {
        // its switch for Liger's loss patches the layers too
        (Stack::Liger, _) | (Stack::Transformers, LossKernel::Liger) => {
            lines.set("enable_liger_kernel", true)
        }
        (Stack::Unsloth, _) => lines.set("use_unsloth", true),
        (
            Stack::Transformers
            | Stack::Trl
            | Stack::Torchtune
            | Stack::Torchtitan
            | Stack::Litgpt
            | Stack::Megatron,
            _,
        ) => {}
    }
    lines.about("data");
    let pairs = pairs(scenario.task);
    lines.set("stage", if pairs.is_some() { "dpo" } else { "sft" });
    if let Some(loss) = pairs {
        lines.set("pref_loss", loss);
    }
    lines.set("do_train", true);
    // its own demonstrations (data/dataset_info.json)
    lines.set("dataset", if pairs.is_some() { "dpo_en_demo" } else { "alpaca_en_demo" });
    lines.set("template", "default");
    lines.set("cutoff_len", scenario.sequence);
    match scenario.mask {
        Mask::None | Mask::Ones => lines.set("packing", true),
        Mask::Packed => lines.set("neat_packing", true),
        Mask::Padded | Mask::PaddingFree => lines.set("packing", false),
    }
    lines.about("what is trained");
    lines.set("finetuning_type", if scenario.method == Method::Full { "full" } else { "lora" });
    if scenario.method == Method::Qlora {
        lines.set("quantization_bit", 4);
        lines.set("quantization_method", "bnb");
        lines.set("double_quantization", scenario.quantization.double_quant);
    }
    if scenario.method.has_adapters() {
        let lora = scenario.lora;
        lines.set("lora_rank", lora.rank);
        lines.set("lora_alpha", lora.rank.saturating_mul(2));
        lines.set("lora_dropout", if lora.dropout { "0.05" } else { "0.0" });
        if lora.tuner == Tuner::Dora {
            lines.set("use_dora", true);
        }
        match run.targets() {
            Targets::All => lines.set("lora_target", "all"),
            Targets::Names(names) => lines.set("lora_target", names.join(",")),
            Targets::Default => {
                let issue =
                    Issue::error(Field::LoraTargets, "LLaMA-Factory has no line for peft's default layers");
                return Err(issue.with_fix("name them, q_proj,v_proj, or choose all linear layers"));
            }
        }
        if let Some(saved) = run.saved() {
            lines.set("additional_target", saved.join(","));
        }
    }
    lines.about("training");
    lines.set("per_device_train_batch_size", scenario.batch);
    lines.set("gradient_accumulation_steps", scenario.accumulation);
    lines.set("learning_rate", learning_rate(scenario));
    lines.set("num_train_epochs", 1);
    lines.set("optim", run.optim()?);
    run.projection(&mut lines);
    lines.set("max_grad_norm", if scenario.training_loop.clips { "1.0" } else { "0.0" });
    match scenario.precision {
        Precision::Bf16 => lines.set("pure_bf16", true),
        Precision::Fp32
        | Precision::Fp16
        | Precision::AmpBf16
        | Precision::AmpBf16Weights
        | Precision::AmpFp16
        | Precision::AmpFp16Weights => {
            let (bf16, fp16) = run.mixed();
            lines.set("bf16", bf16);
            lines.set("fp16", fp16);
        }
    }
    match scenario.checkpointing {
        Checkpointing::Off => lines.set("disable_gradient_checkpointing", true),
        Checkpointing::NonReentrant | Checkpointing::Alternate | Checkpointing::Operations => {
            lines.set("use_reentrant_gc", false)
        }
        Checkpointing::Reentrant | Checkpointing::Offloaded | Checkpointing::Selective => {
            lines.set("use_reentrant_gc", true)
        }
    }
    run.checkpoints(&mut lines);
    lines.set("output_dir", "out");
    lines.set("report_to", "none");
    let run_it = if scenario.cluster.has_engine() {
        "accelerate launch --config_file accelerate.yaml src/train.py"
    } else {
        "llamafactory-cli train"
    };
    Ok((format!("{}{run_it} llama-factory.yaml", run.variable(false)), lines.finish()))
}

/// What its trainer of pairs calls the loss of a task (`pref_loss`).
fn pairs(task: Task) -> Option<&'static str> {
    match task {
        Task::Dpo => Some("sigmoid"),
        Task::Orpo => Some("orpo"),
        Task::Simpo => Some("simpo"),
        Task::Sft
        | Task::Classify
        | Task::Embed
        | Task::Kto
        | Task::Cpo
        | Task::Reward
        | Task::Grpo
        | Task::Rloo
        | Task::Ppo
        | Task::Distil
        | Task::Generate => None,
    }
}
