//! LLaMA-Factory's YAML (0.9.5, hparams/).

mod preferences;

use super::compiled;
use super::evaluation::evaluation;
use super::launch;
use super::low_rank;
use super::names::{MUON, TRAINING_ARGUMENTS};
use super::reader::{Reader, among};
use super::trainer::{self, PICTURES};
use crate::scenario::{Method, Sharding, Stack, Task, Tuner, VisionTower, WeightFormat};

const WHY: &str = "LLaMA-Factory's default (0.9.5)";

/// Settings that memory does not depend on.
pub(super) const IDLE: &[&str] = &[
    "template",
    "dataset*",
    "media_dir",
    "max_samples",
    "overwrite_cache",
    "preprocessing*",
    "dataloader*",
    "output_dir",
    "overwrite_output_dir",
    "logging*",
    "save_*",
    "plot_loss",
    "report_to",
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "lr_scheduler*",
    "warmup*",
    "weight_decay",
    "adam_*",
    "ddp_timeout",
    "resume_from_checkpoint",
    "val_size",
    "eval_*",
    "per_device_eval_batch_size",
    "do_train",
    "do_eval",
    "do_predict",
    "lora_alpha",
    "use_rslora",
    "loraplus*",
    "trust_remote_code",
    "streaming",
    "seed",
    "data_seed",
    "mask_history",
    "train_on_prompt",
    "run_name",
    "push_to_hub*",
    "hub_*",
    "infer_*",
    "buffer_size",
    "mix_strategy",
    "tool_format",
    "default_system",
    "enable_thinking",
    "cache_dir",
    "use_fast_tokenizer",
    "model_revision",
    "include_*",
    "disable_shuffling",
    "load_best_model_at_end",
    "use_swanlab",
    "swanlab*",
    "tokenized_path",
    "quantization_device_map",
    "low_cpu_mem_usage",
    "ray_*",
    "resources_per_worker*",
    "placement_strategy",
    "pissa_*",
    "create_new_adapter",
    "predict_with_generate",
    "lora_ga*",
    "group_by_length",
    "remove_unused_columns",
];

const REFUSED: &[(&[&str], &str)] = &[
    (
        &["ddp_find_unused_parameters"],
        "DDP then copies what the model returns, its logits among it, which is not predicted here",
    ),
    (&["use_badam"], "this optimizer is not predicted"),
    (
        &["freeze_language_model"],
        "a language model that is not trained under a tower that is, is not predicted",
    ),
    (
        &[
            "use_llama_pro",
            "mixture_of_depths",
            "shift_attn",
            "neftune_noise_alpha",
            "upcast_layernorm",
            "upcast_lmhead_output",
        ],
        "this is not predicted",
    ),
    (&["use_unsloth_gc"], "Unsloth's checkpointing under transformers' modules is not predicted"),
    (&["torch_compile", "compile"], "a compiled step is not predicted"),
    (&["ref_model", "reward_model"], "no such model is read of LLaMA-Factory's files"),
    (&["fp8", "use_mca", "use_hyper_parallel", "use_kt"], "this is not predicted"),
];

pub(super) fn read(reader: &mut Reader) {
    trainer::usual_loop(reader);
    if let Some(said) = reader.take(&["model_name_or_path"]) {
        reader.model(&said);
    }
    let is_of_pairs = preferences::task(reader);
    launch::of_arguments(reader);
    if !is_of_pairs {
        stack(reader);
    }
    method(reader);
    if reader.scenario.method.has_adapters() {
        adapters(reader);
    }
    precision(reader);
    reader.or_assume("batch-size", &["per_device_train_batch_size"], "8", TRAINING_ARGUMENTS);
    reader.or_assume("gradient-accumulation", &["gradient_accumulation_steps"], "1", TRAINING_ARGUMENTS);
    reader.or_assume("seq-length", &["cutoff_len", "model_max_length"], "2048", WHY);
    match (reader.switch(&["neat_packing"]), reader.switch(&["packing"])) {
        (neat, plain) if is_of_pairs => {
            for (on, said) in neat.into_iter().chain(plain) {
                if on { reader.leave(&said, "texts are not packed in pairs") } else { reader.idle.push(said) }
            }
            reader.assume("mask", "padded", "pairs are padded");
        }
        (Some((true, said)), _) => reader.set("mask", "packed", &said),
        (_, Some((true, said))) => reader.set("mask", "ones", &said),
        (_, Some((false, said))) => reader.set("mask", "padded", &said),
        (_, None) => reader.assume("mask", "padded", WHY),
    }
    trainer::optimization(reader, &["optim"], "adamw-fused", TRAINING_ARGUMENTS);
    if let Some((true, said)) = reader.switch(&["use_adam_mini"]) {
        reader.set("optimizer", "adam-mini", &said);
    }
    if let Some((true, said)) = reader.switch(&["use_muon"]) {
        let why = format!("{said}{MUON}");
        reader.set("optimizer", "muon", &why);
    }
    low_rank::of_llama_factory(reader);
    checkpointing(reader);
    match reader.take(&["flash_attn"]) {
        Some(said) => match said.text().as_str() {
            "fa2" | "true" => reader.set("attention", "flash-attention-2", &said.said),
            "sdpa" | "auto" => reader.set("attention", "sdpa", &said.said),
            "disabled" | "false" => reader.set("attention", "eager", &said.said),
            _ => reader.keep("attention", &said.said, "this attention is not predicted"),
        },
        None => reader.assume("attention", "sdpa", "flash_attn is auto by default"),
    }
    if is_of_pairs {
        preferences::settings(reader);
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    if reader.scenario.task == Task::Sft {
        evaluation(reader);
    }
    pictures(reader);
    // which of its layers are followed hangs on all that was read
    if reader.scenario.stack == Stack::Unsloth {
        compiled::by_unsloth(reader);
    }
    reader.pass(|name| among(IDLE, name));
}

/// Which part of a model that sees is trained (hparams/finetuning_args.py), and what of its pictures the file says.
fn pictures(reader: &mut Reader) {
    let sees = reader.scenario.sees();
    // model_utils/visual.py `patch_target_modules`, `get_forbidden_modules`
    let has_tower = reader.scenario.architecture().is_ok_and(|model| !model.towers.is_empty());
    match reader.switch(&["freeze_vision_tower"]) {
        Some((on, said)) if has_tower => {
            reader.set("vision-tower", if on { "frozen" } else { "trained" }, &said)
        }
        Some((_, said)) => reader.idle.push(said),
        None if has_tower => reader.assume("vision-tower", "frozen", "freeze_vision_tower is on by default"),
        None => {}
    }
    if let Some((on, said)) = reader.switch(&["freeze_multi_modal_projector"]) {
        let as_tower = on == (reader.scenario.pictures.tower == VisionTower::Frozen);
        // no adapters stand in it either way (model_utils/misc.py `find_all_linear_modules`)
        match as_tower || !has_tower || reader.scenario.method.has_adapters() {
            true => reader.idle.push(said),
            false => reader.leave(&said, "the projector is trained with the tower, or frozen with it"),
        }
    }
    let names = [
        "image_max_pixels",
        "image_min_pixels",
        "image_resolution",
        "image_do_pan_and_scan",
        "crop_to_patches",
    ];
    let videos = ["video_max_pixels", "video_min_pixels", "video_resolution", "video_fps", "video_maxlen"];
    for said in reader.take_each(&names).into_iter().chain(reader.take_each(&videos)) {
        if sees { reader.leave(&said.said, PICTURES) } else { reader.idle.push(said.said) }
    }
}

fn stack(reader: &mut Reader) {
    let unsloth = reader.switch(&["use_unsloth"]);
    let liger = reader.switch(&["enable_liger_kernel"]);
    match (unsloth, liger) {
        (Some((true, said)), _) => reader.set("stack", Stack::Unsloth.slug(), &said),
        (_, Some((true, said))) => reader.set("stack", Stack::Liger.slug(), &said),
        _ => reader.assume(
            "stack",
            Stack::Transformers.slug(),
            "LLaMA-Factory trains transformers' own modules",
        ),
    }
}

fn method(reader: &mut Reader) {
    let bits = reader.take(&["quantization_bit"]);
    if let Some(said) = reader.take(&["quantization_method"]) {
        let own = ["bnb", "bitsandbytes"].contains(&said.text().as_str());
        if own {
            reader.idle.push(said.said)
        } else {
            reader.keep("method", &said.said, "of quantisations bitsandbytes' is predicted")
        }
    }
    let said = reader.take(&["finetuning_type"]);
    let kind = said.as_ref().map_or_else(|| "lora".to_owned(), |said| said.text());
    let bits = bits.filter(|bits| {
        let known = ["4", "8"].contains(&bits.text().as_str());
        if !known {
            reader.keep("method", &bits.said, "of quantised weights those of 4 and 8 bits are predicted");
        }
        known
    });
    match (kind.as_str(), said) {
        ("full", Some(said)) => reader.set("method", Method::Full.slug(), &said.said),
        ("lora", said) if said.is_some() || bits.is_some() => {
            let method = if bits.is_some() { Method::Qlora } else { Method::Lora };
            let why: Vec<&str> = said.iter().chain(&bits).map(|said| said.said.as_str()).collect();
            reader.set("method", method.slug(), &why.join(", "));
        }
        ("oft", Some(said)) => {
            let method = if bits.is_some() { Method::Qlora } else { Method::Lora };
            reader.set("method", method.slug(), &said.said);
            reader.set("adapter", Tuner::Oft.slug(), &said.said);
        }
        (_, None) => reader.assume("method", Method::Lora.slug(), WHY),
        (_, Some(said)) => reader.keep("method", &said.said, "of methods full, lora and oft are predicted"),
    }
    if reader.scenario.method == Method::Qlora {
        match bits.filter(|bits| bits.text() == "8") {
            Some(bits) => reader.set("weight-format", "int8", &bits.said),
            None => reader.quietly("weight-format", "nf4"),
        }
    }
}

fn adapters(reader: &mut Reader) {
    let (dropout, target) = match reader.has_taken("adapter") {
        // hparams/finetuning_args.py: blocks of 32
        true => {
            reader.or_assume("lora-rank", &["oft_block_size"], "32", WHY);
            if let Some(said) = reader.take(&["oft_rank"]) {
                match said.number() == Some(0.0) {
                    true => reader.idle.push(said.said),
                    false => reader.leave(&said.said, "of OFT the size of its blocks is predicted"),
                }
            }
            ("module_dropout", "oft_target")
        }
        false => {
            reader.or_assume("lora-rank", &["lora_rank"], "8", WHY);
            trainer::decomposes(reader, &["use_dora"]);
            ("lora_dropout", "lora_target")
        }
    };
    reader.or_assume("lora-dropout", &[dropout], "0", WHY);
    match reader.take(&[target]) {
        Some(said) => reader.targets(&said),
        None => reader.assume("lora-targets", "all-linear", WHY),
    }
    match reader.take(&["additional_target"]) {
        Some(said) => trainer::saved(reader, &said),
        None => reader.assume("train-embeddings", "off", WHY),
    }
    if reader.scenario.method == Method::Qlora {
        if reader.scenario.quantization.format != WeightFormat::Int8 {
            reader.or_assume("double-quant", &["double_quantization"], "on", WHY);
            if let Some(said) = reader.take(&["quantization_type"]) {
                reader.set("weight-format", "nf4", &said.said);
            }
        }
        // model_utils/checkpointing.py `prepare_model_for_training`: norms become float32 under upcast_layernorm alone
        reader.assume("kbit-prepare", "off", "upcast_layernorm is off by default");
    }
}

/// Weights are loaded as they were published; those that are trained become float32 but under ZeRO-3 and pure_bf16
/// (model/adapter.py `init_adapter`).
fn precision(reader: &mut Reader) {
    let pure = reader.switch(&["pure_bf16"]);
    let (bf16, fp16) = (reader.switch(&["bf16"]), reader.switch(&["fp16"]));
    let is_full = reader.scenario.method == Method::Full;
    let zero3 = reader.scenario.cluster.sharding == Sharding::Zero3 && reader.scenario.cluster.has_engine();
    reader.quietly("fp32-adapters", "on");
    match (pure, bf16, fp16) {
        (Some((true, said)), ..) => {
            // peft makes adapters float32 all the same
            reader.set("precision", "bf16", &said);
        }
        (_, Some((true, said)), _) if is_full && !zero3 => {
            reader.set(
                "precision",
                "amp-bf16",
                &format!("{said}; trained weights become float32 (model/adapter.py)"),
            );
        }
        (_, Some((true, said)), _) => reader.set("precision", "amp-bf16-weights", &said),
        (.., Some((true, said))) if is_full => reader.set("precision", "amp-fp16", &said),
        (.., Some((true, said))) => {
            trainer::autocast_to_float16(reader, &said);
        }
        _ if is_full && !zero3 => {
            let why = "neither bf16 nor fp16 is on: trained weights become float32 (model/adapter.py)";
            reader.assume("precision", "fp32", why);
        }
        // model/loader.py loads with torch_dtype="auto"
        _ => {
            let why = "neither bf16 nor fp16 is on: weights as they were published, taken for bfloat16";
            reader.assume("precision", "bf16", why);
        }
    }
}

fn checkpointing(reader: &mut Reader) {
    let reentrant = reader.switch(&["use_reentrant_gc"]);
    reader.pass(|name| name == "gradient_checkpointing" || name.starts_with("gradient_checkpointing_kwargs"));
    let value = if matches!(reentrant, Some((false, _))) { "on" } else { "reentrant" };
    match reader.switch(&["disable_gradient_checkpointing"]) {
        Some((true, said)) => reader.set("gradient-checkpointing", "off", &said),
        Some((false, said)) => reader.set("gradient-checkpointing", value, &said),
        None => match reentrant {
            Some((_, said)) => reader.set("gradient-checkpointing", value, &said),
            None => reader.assume("gradient-checkpointing", value, WHY),
        },
    }
}
