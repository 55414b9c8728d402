//! axolotl's YAML (0.19, utils/schemas).

mod gpus;
mod kernels;
mod known;
mod low_bits;
mod preferences;

use super::evaluation::OF_OTHER_TASKS;
use super::launch;
use super::names::MUON;
use super::reader::{Reader, Said, among};
use super::trainer::{self, PICTURES};
use crate::scenario::{Method, Task, WeightFormat, WrappedBy};
use gpus::{loading, of_mesh, shares, wrapper};
use kernels::{kernels, stack};
use known::{IDLE, REFUSED};

const WHY: &str = "axolotl's default (0.19)";

/// What the command `axolotl train config.yml --micro-batch-size 4` puts over a file that is not there: what it leaves out stays as it was.
pub(super) fn overrides(reader: &mut Reader) {
    let (before, assumed) = (reader.scenario.clone(), reader.assumed.clone());
    read_over(reader, true);
    reader.keep_what_is_taken(&before, assumed);
}

/// An evaluation of as many sequences as a micro-batch has, the default, needs no more than training. One of more is followed
/// (core/builders/base.py).
fn evaluation(reader: &mut Reader) {
    let has = |name: &str| reader.named(&[name]).iter().any(|said| said.number() != Some(0.0));
    let evaluates = has("val_set_size") || has("test_datasets");
    let is_larger = |said: &Said| said.number().is_some_and(|number| number > reader.scenario.batch as f64);
    let batch = reader.named(&["eval_batch_size"]).pop().filter(|said| evaluates && is_larger(said));
    let Some(batch) = batch else { return };
    let _ = reader.take(&["eval_batch_size"]);
    if reader.scenario.task != Task::Sft {
        return reader.leave(&batch.said, OF_OTHER_TASKS);
    }
    if let Some(issue) = reader.objection("evaluation", "loss") {
        return reader.leave(&batch.said, &issue);
    }
    reader.set("evaluation", "loss", &batch.said);
    reader.set("eval-batch-size", &batch.text(), &batch.said);
}

pub(super) fn read(reader: &mut Reader) {
    read_over(reader, false);
}

/// Reads settings; `over_another` file what they leave out is in there.
fn read_over(reader: &mut Reader, over_another: bool) {
    trainer::usual_loop(reader);
    if let Some(said) = reader.take(&["base_model"]) {
        reader.model(&said);
    }
    if !preferences::task(reader) {
        stack(reader);
    }
    let four_bit = reader.switch(&["load_in_4bit"]);
    let eight_bit = reader.switch(&["load_in_8bit"]).filter(|(on, _)| *on);
    match reader.take(&["adapter"]) {
        Some(said) => match (said.text().as_str(), &four_bit, &eight_bit) {
            ("qlora", ..) | ("lora", Some((true, _)), _) => {
                reader.set("method", "qlora", &said.said);
                reader.quietly("weight-format", "nf4");
            }
            ("lora", _, Some((_, eight))) => {
                reader.set("method", "qlora", &format!("{}, {eight}", said.said));
                reader.set("weight-format", "int8", eight);
            }
            ("lora", ..) => reader.set("method", "lora", &said.said),
            _ => reader.keep("method", &said.said, "of adapters lora and qlora are predicted"),
        },
        None if over_another => {}
        None => no_adapter(reader),
    }
    if reader.scenario.method.has_adapters() {
        adapters(reader);
    }
    precision(reader);
    low_bits::float8(reader);
    low_bits::qat(reader);
    reader.or_assume("batch-size", &["micro_batch_size"], "1", WHY);
    reader.or_assume("gradient-accumulation", &["gradient_accumulation_steps"], "1", WHY);
    reader.or_assume("seq-length", &["sequence_len"], "512", WHY);
    if reader.scenario.task == Task::Sft {
        filling(reader);
    }
    own_optimizer(reader);
    trainer::optimization(reader, &["optimizer"], "adamw-fused", WHY);
    checkpointing(reader);
    attention(reader);
    reader.assume(
        "allocator",
        "expandable",
        "axolotl sets PYTORCH_CUDA_ALLOC_CONF itself (utils/__init__.py)",
    );
    of_mesh(reader);
    let wrapper = wrapper(reader);
    let first_loads = match wrapper.0 {
        WrappedBy::Axolotl => reader
            .switch(&["fsdp_config.cpu_ram_efficient_loading", "fsdp_config.fsdp_cpu_ram_efficient_loading"]),
        WrappedBy::Accelerate | WrappedBy::Loop => None,
    };
    let by_first = reader.gives_any("fsdp_config.")
        && !reader.named(&["fsdp_version"]).iter().any(|version| version.text() == "2");
    launch::of_arguments_wrapped(reader, wrapper);
    if reader.scenario.wrapper() == WrappedBy::Axolotl {
        loading(reader, first_loads);
    } else {
        reader.idle.extend(first_loads.map(|(_, said)| said));
    }
    kernels(reader, by_first);
    if reader.scenario.task.is_of_preferences() {
        preferences::settings(reader);
    } else if reader.scenario.task.is_online() {
        preferences::answers(reader);
    }
    shares(reader);
    evaluation(reader);
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    // a processor makes numbers of pictures
    let sees = reader.scenario.sees();
    if let Some(said) = reader.take(&["processor_type"]) {
        if sees { reader.leave(&said.said, PICTURES) } else { reader.idle.push(said.said) }
    }
    for said in reader.take_each(&["image_size", "image_resize_algorithm"]) {
        reader.leave(&said.said, PICTURES);
    }
    reader.pass(|name| among(IDLE, name));
}

/// Optimizers that axolotl names otherwise than transformers (0.19, utils/schemas/enums.py `CustomSupportedOptimizers`).
fn own_optimizer(reader: &mut Reader) {
    let named = reader.named(&["optimizer"]);
    let (slug, taken) = match named.last().map(Said::text).as_deref() {
        Some("muon") => ("muon", MUON),
        Some("ao_adamw_8bit") => ("adamw-8bit-torchao", ""),
        Some("ao_adamw_4bit") => ("adamw-4bit-torchao", ""),
        _ => return,
    };
    if let Some(said) = reader.take(&["optimizer"]) {
        reader.set("optimizer", slug, &format!("{}{taken}", said.said));
    }
}

/// All weights are trained where `adapter` is not given, whatever is said of adapters beside (loaders/model.py).
fn no_adapter(reader: &mut Reader) {
    let given =
        ["lora_r", "lora_dropout", "lora_target_linear", "lora_target_modules", "lora_modules_to_save"];
    let given = reader.take_each(&given);
    let Some(first) = given.first() else { return reader.assume("method", "full", "no adapter is named") };
    let why =
        format!("axolotl makes adapters where `adapter` is given, and it is not: {} says none", first.said);
    reader.assume("method", "full", &why);
    for said in given {
        reader.leave(&said.said, "without `adapter` axolotl trains all weights and does not read this");
    }
}

fn adapters(reader: &mut Reader) {
    match reader.take(&["lora_r"]) {
        Some(said) => reader.set("lora-rank", &said.text(), &said.said),
        None => reader.leave("lora_r", "axolotl needs the rank of the adapters"),
    }
    trainer::decomposes(reader, &["peft_use_dora"]);
    reader.or_assume("lora-dropout", &["lora_dropout"], "0", WHY);
    let linear = reader.switch(&["lora_target_linear"]);
    match (linear, reader.take(&["lora_target_modules"])) {
        (Some((true, said)), _) => reader.set("lora-targets", "all-linear", &said),
        (_, Some(said)) => reader.targets(&said),
        (_, None) => reader.assume("lora-targets", "qv", "peft's default for the family"),
    }
    match reader.take(&["lora_modules_to_save"]) {
        Some(said) => trainer::saved(reader, &said),
        None => reader.assume("train-embeddings", "off", WHY),
    }
    if !reader.switches("fp32-adapters", &["peft_autocast_adapter_dtype"]) {
        reader.quietly("fp32-adapters", "on");
    }
    if reader.scenario.method == Method::Qlora {
        // axolotl/loaders/model.py: LLM.int8, or nf4 with double quantisation; prepare_model_for_kbit_training of its own, which leaves 16 bits
        if reader.scenario.quantization.format != WeightFormat::Int8 {
            reader.or_assume("double-quant", &["bnb_config_kwargs.bnb_4bit_use_double_quant"], "on", WHY);
        }
        reader.assume(
            "kbit-prepare",
            "off",
            "axolotl makes norms, embedding and head bfloat16 again after prepare_model_for_kbit_training",
        );
    }
}

fn precision(reader: &mut Reader) {
    let bf16 = reader.take(&["bf16", "bfloat16"]);
    let fp16 = reader.switch(&["fp16", "float16"]);
    let card = reader.scenario.has_bfloat16();
    match (bf16, fp16) {
        (Some(said), fp16) if said.text() == "auto" => {
            let halves = fp16.is_some_and(|(on, _)| on) || !card;
            reader.set("precision", if halves { "fp16" } else { "amp-bf16-weights" }, &said.said);
        }
        (Some(said), _) if said.switch() == Some(true) => {
            reader.set("precision", "amp-bf16-weights", &said.said);
        }
        // the Trainer is told of no mixed precision (core/builders/base.py `_configure_precision_settings`)
        (Some(said), _) if said.text() == "full" => reader.set("precision", "bf16", &said.said),
        (_, Some((true, said))) => {
            trainer::autocast_to_float16(reader, &said);
        }
        (Some(said), _) => reader.set("precision", "fp32", &said.said),
        (None, _) => reader.assume("precision", "amp-bf16-weights", "bf16 is auto by default"),
    }
}

fn filling(reader: &mut Reader) {
    reader.pass(|name| ["pad_to_sequence_len", "eval_sample_packing", "pad_to_multiple_of"].contains(&name));
    let flattening = reader.switch(&["batch_flattening"]);
    match (reader.switch(&["sample_packing"]), flattening) {
        (Some((true, said)), _) | (_, Some((true, said))) => reader.set("mask", "padding-free", &said),
        (Some((false, said)), _) => reader.set("mask", "padded", &said),
        (None, _) => reader.assume("mask", "padded", "sample_packing is off by default"),
    }
}

fn checkpointing(reader: &mut Reader) {
    let reentrant = reader.switch(&["gradient_checkpointing_kwargs.use_reentrant"]);
    let offloads = reader.take(&["activation_offloading"]);
    match reader.take(&["gradient_checkpointing"]) {
        Some(said) => match (said.switch(), &reentrant) {
            (Some(true), Some((false, kwargs))) => {
                reader.set("gradient-checkpointing", "on", &format!("{}, {kwargs}", said.said));
            }
            (Some(true), Some((true, kwargs))) => {
                reader.set("gradient-checkpointing", "reentrant", &format!("{}, {kwargs}", said.said));
            }
            (Some(true), None) if reader.scenario.task.is_of_preferences() => {
                let why = format!(
                    "{}; with rl use_reentrant is off by default in axolotl (utils/config)",
                    said.said
                );
                reader.set("gradient-checkpointing", "on", &why);
            }
            (Some(true), None) => {
                let why = format!("{}; use_reentrant is on by default in axolotl (utils/config)", said.said);
                reader.set("gradient-checkpointing", "reentrant", &why);
            }
            (Some(false), _) => reader.set("gradient-checkpointing", "off", &said.said),
            (None, _) => reader.keep(
                "gradient-checkpointing",
                &said.said,
                "of offloaded checkpoints only Unsloth's are predicted",
            ),
        },
        None => reader.assume("gradient-checkpointing", "off", WHY),
    }
    match offloads {
        Some(said) => match said.switch() {
            Some(on) => reader.set("activation-offloading", if on { "on" } else { "off" }, &said.said),
            None => reader.leave(&said.said, "of ways to offload activations trl's is predicted"),
        },
        None => reader.quietly("activation-offloading", "off"),
    }
}

fn attention(reader: &mut Reader) {
    let flags =
        [("flash_attention", "flash-attention-2"), ("sdp_attention", "sdpa"), ("eager_attention", "eager")];
    let mut found = None;
    for (name, kernel) in flags {
        if let Some((true, said)) = reader.switch(&[name]) {
            found = Some((kernel, said));
        }
    }
    match (reader.take(&["attn_implementation", "attention"]), found) {
        (Some(said), _) => trainer::attention(reader, &said),
        (None, Some((kernel, said))) => reader.set("attention", kernel, &said),
        (None, None) => reader.assume("attention", "sdpa", "transformers' default where the model has it"),
    }
    for name in ["xformers_attention", "s2_attention", "flex_attention", "sage_attention"] {
        reader.refuse(&[name], "this attention is not predicted");
    }
}
