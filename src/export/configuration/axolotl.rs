//! axolotl's YAML.

use super::lines::Lines;
use super::{Run, Targets};
use crate::export::fsdp::state_dict_type;
use crate::export::rate::learning_rate;
use crate::import::names::{AXOLOTL_KERNELS, attention};
use crate::issue::{Field, Issue};
use crate::scenario::{
    Checkpointing, CpuOffload, LossKernel, Mask, Method, Offloading, Precision, QatLayers, Reference,
    Scenario, Sharding, Stack, Task, Tuner, WrappedBy,
};

pub(super) fn write(run: &Run<'_>) -> Result<(String, String), Issue> {
    let scenario = run.scenario;
    let is_loops = scenario.software().runs_loop() && scenario.wrapper() != WrappedBy::Axolotl;
    if scenario.cluster.is_fsdp2() && is_loops && scenario.method != Method::Qlora {
        let message = "axolotl wraps the model for FSDP2 by a function of its own, over weights in the type that it computes in";
        let fix = "choose wrapped-by axolotl and bf16 mixed over bf16 weights, or another file";
        return Err(Issue::error(Field::WrappedBy, message).with_fix(fix));
    }
    let mut lines = Lines::default();
    lines.text("base_model", &run.model());
    if let Some((name, alpha)) = preference(scenario.task) {
        lines.set("rl", name);
        if let Some(alpha) = alpha {
            lines.set("cpo_alpha", alpha);
        }
        if scenario.task == Task::Dpo {
            lines.set("precompute_ref_log_probs", scenario.answers.reference == Reference::Precomputed);
        }
        lines.set("chat_template", "tokenizer_default_fallback_chatml");
        lines.set("remove_unused_columns", false);
    }
    let liger = scenario.stack == Stack::Liger;
    let (fused, cut) = match scenario.savings.loss {
        LossKernel::Standard => (liger, false),
        LossKernel::Liger => (true, false),
        LossKernel::Cut => (false, true),
        LossKernel::Full
        | LossKernel::Axolotl
        | LossKernel::LogSoftmax
        | LossKernel::FloatLogits
        | LossKernel::VocabularyChunks
        | LossKernel::Chunked
        | LossKernel::TransformerEngine
        | LossKernel::MegatronFused => (false, false),
    };
    let mut plugins = Vec::new();
    if liger || fused {
        plugins.push("axolotl.integrations.liger.LigerPlugin");
    }
    if cut {
        plugins.push("axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin");
    }
    if !plugins.is_empty() {
        lines.list("plugins", &plugins);
    }
    if liger || fused {
        for name in ["liger_rope", "liger_rms_norm", "liger_glu_activation"] {
            lines.set(name, liger);
        }
        lines.set("liger_fused_linear_cross_entropy", fused);
    }
    if cut {
        lines.set("cut_cross_entropy", true);
    }
    lines.set("attn_implementation", attention(scenario));
    lines.about("data");
    lines.set("datasets", data(scenario.task));
    lines.set("sequence_len", scenario.sequence);
    match scenario.mask {
        Mask::PaddingFree | Mask::Packed => lines.set("sample_packing", true),
        Mask::Padded => lines.set("sample_packing", false),
        // texts of a row's length each are the data's affair, and are padded where they are not
        Mask::None | Mask::Ones => {}
    }
    lines.about("what is trained");
    lines.set("load_in_4bit", scenario.method == Method::Qlora);
    match scenario.method {
        Method::Full => {}
        Method::Lora => lines.set("adapter", "lora"),
        Method::Qlora => lines.set("adapter", "qlora"),
    }
    if scenario.method.has_adapters() {
        let lora = scenario.lora;
        lines.set("lora_r", lora.rank);
        lines.set("lora_alpha", lora.rank.saturating_mul(2));
        lines.set("lora_dropout", if lora.dropout { "0.05" } else { "0.0" });
        if lora.tuner == Tuner::Dora {
            lines.set("peft_use_dora", true);
        }
        match run.targets() {
            Targets::Default => {}
            Targets::All => lines.set("lora_target_linear", true),
            Targets::Names(names) => lines.list("lora_target_modules", &names),
        }
        if let Some(saved) = run.saved() {
            lines.list("lora_modules_to_save", &saved);
        }
        // all of them are on where nothing is said of any
        for name in AXOLOTL_KERNELS {
            lines.set(name, lora.fused && name != "lora_embedding_kernel");
        }
        if !lora.fp32_adapters {
            lines.set("peft_autocast_adapter_dtype", false);
        }
        if scenario.method == Method::Qlora && !scenario.quantization.double_quant {
            lines.table("bnb_config_kwargs", |lines| lines.set("bnb_4bit_use_double_quant", false));
        }
    }
    lines.about("training");
    lines.set("micro_batch_size", scenario.batch);
    lines.set("gradient_accumulation_steps", scenario.accumulation);
    lines.set("num_epochs", 1);
    lines.set("learning_rate", learning_rate(scenario));
    lines.set("lr_scheduler", "cosine");
    lines.set("optimizer", run.optim()?);
    run.projection(&mut lines);
    lines.set("max_grad_norm", if scenario.training_loop.clips { "1.0" } else { "0.0" });
    let (bf16, fp16) = run.mixed();
    // bfloat16 without mixed precision had a word of its own, `full`, which the schema of 0.19 refuses
    lines.set("bf16", bf16 || scenario.precision == Precision::Bf16);
    lines.set("fp16", fp16);
    if scenario.trains_in_float8() {
        lines.set("fp8", true);
        lines.set("fp8_enable_fsdp_float8_all_gather", scenario.float8.gathers);
    }
    qat(scenario, &mut lines)?;
    let checkpoints = scenario.checkpointing != Checkpointing::Off;
    lines.set("gradient_checkpointing", checkpoints);
    if checkpoints {
        lines.table("gradient_checkpointing_kwargs", |lines| {
            lines.set("use_reentrant", scenario.checkpointing.is_reentrant());
        });
    }
    if scenario.savings.offloading == Offloading::On {
        lines.set("activation_offloading", true);
    }
    if scenario.cluster.is_fsdp2() {
        lines.set("fsdp_version", 2);
        lines.table("fsdp_config", |lines| {
            lines.set("auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
            if let Some(class) = run.architecture.told_layers() {
                lines.set("transformer_layer_cls_to_wrap", class);
            }
            lines.set("cpu_ram_efficient_loading", true);
            lines.set("offload_params", scenario.cluster.cpu == CpuOffload::All);
            lines.set("reshard_after_forward", scenario.cluster.reshards);
            lines.set("state_dict_type", state_dict_type(scenario.saves_whole()));
        });
        if scenario.cluster.replicas > 1 {
            lines.set("dp_shard_size", scenario.cluster.gpus / scenario.cluster.replicas);
            lines.set("dp_replicate_size", scenario.cluster.replicas);
        }
    }
    run.checkpoints(&mut lines);
    lines.set("output_dir", "out");
    let deepspeed = match scenario.cluster.sharding {
        Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 if scenario.cluster.has_engine() => {
            " --deepspeed deepspeed.json"
        }
        Sharding::Zero1
        | Sharding::Zero2
        | Sharding::Zero3
        | Sharding::Ddp
        | Sharding::Fsdp2
        | Sharding::Distributed => "",
    };
    Ok((format!("{}axolotl train axolotl.yaml{deepspeed}", run.variable(true)), lines.finish()))
}

/// What axolotl calls a task of preferences (`rl`), and `cpo_alpha` with it: the weight of the better answers' cross entropy.
fn preference(task: Task) -> Option<(&'static str, Option<u8>)> {
    match task {
        Task::Dpo => Some(("dpo", None)),
        Task::Kto => Some(("kto", None)),
        Task::Orpo => Some(("orpo", None)),
        Task::Cpo => Some(("simpo", Some(1))),
        Task::Simpo => Some(("simpo", Some(0))),
        Task::Sft
        | Task::Classify
        | Task::Embed
        | Task::Reward
        | Task::Grpo
        | Task::Rloo
        | Task::Ppo
        | Task::Distil
        | Task::Generate => None,
    }
}

/// Data of the Hub that axolotl's own examples have.
fn data(task: Task) -> &'static str {
    match task {
        _ if preference(task).is_none() => "[{path: tatsu-lab/alpaca, type: alpaca}]",
        Task::Kto => {
            "[{path: argilla/ultrafeedback-binarized-preferences-cleaned-kto, type: chatml.ultra, split: train}]"
        }
        Task::Orpo => {
            "[{path: argilla/ultrafeedback-binarized-preferences-cleaned, type: chat_template.argilla, split: train}]"
        }
        _ => {
            "[{path: argilla/ultrafeedback-binarized-preferences-cleaned, type: chat_template.argilla_chat, split: train}]"
        }
    }
}

/// torchao's quantisation-aware training, which axolotl prepares every linear layer for.
fn qat(scenario: &Scenario, lines: &mut Lines) -> Result<(), Issue> {
    if !scenario.trains_quantization_aware() {
        return Ok(());
    }
    let Some((weights, inputs)) = scenario.qat.scheme.of_axolotl() else {
        let message = "axolotl names each fake quantizer by itself, with other types of scales than torchao's configurations have";
        let fix = "choose one of its own schemes, or another file";
        return Err(Issue::error(Field::Qat, message).with_fix(fix));
    };
    if scenario.qat.layers != QatLayers::All {
        let message = "axolotl has no filter for the layers that round: the output head is among them";
        return Err(Issue::error(Field::QatLayers, message).with_fix("choose all layers, or another file"));
    }
    lines.table("qat", |lines| {
        if let Some(inputs) = inputs {
            lines.set("activation_dtype", inputs);
        }
        lines.set("weight_dtype", weights);
        if scenario.qat.scheme.has_groups() {
            lines.set("group_size", scenario.qat.group);
        }
    });
    Ok(())
}
