//! axolotl's YAML (0.19, utils/schemas).

mod low_bits;
mod preferences;

use super::launch;
use super::names::AXOLOTL_KERNELS;
use super::reader::{Reader, Said, among};
use super::trainer::{self, PICTURES};
use crate::estimate::estimate;
use crate::scenario::{Method, Sharding, Stack, Task, WeightFormat, WrappedBy};

const WHY: &str = "axolotl's default (0.19)";

const IDLE: &[&str] = &[
    "base_model_config",
    "model_type",
    "tokenizer*",
    "hub_*",
    "datasets",
    "test_datasets",
    "dataset*",
    "val_set_size",
    "output_dir",
    "eval_*",
    "evals_per_epoch",
    "save_*",
    "saves_per_epoch",
    "wandb*",
    "mlflow*",
    "comet*",
    "use_wandb",
    "num_epochs",
    "max_steps",
    "lr_*",
    "learning_rate",
    "warmup*",
    "weight_decay",
    "adam_*",
    "tf32",
    "logging_steps",
    "loss_watchdog*",
    "special_tokens*",
    "tokens",
    "chat_template*",
    "train_on_inputs",
    "group_by_length",
    "resume_from_checkpoint",
    "auto_resume_from_checkpoints",
    "early_stopping_patience",
    "local_rank",
    "strict",
    "debug",
    "seed",
    "shuffle*",
    "lora_alpha",
    "peft_use_rslora",
    "trust_remote_code",
    "push_dataset_to_hub",
    "pretraining_dataset",
    "is_*_derived_model",
    "gpu_memory_limit",
    "excess_length_strategy",
    "sequence_len_overflow_handling",
    "lora_model_dir",
    "load_in_8bit_eval",
    "include_tokens_per_second",
    "revision_of_model",
    "peft_init_lora_weights",
    "loraplus*",
    "lora_on_cpu",
    "remove_unused_columns",
    "device_map",
    "bnb_config_kwargs.llm_int8*",
    "use_tensorboard",
    "roles_to_train",
    "train_on_eos",
    "default_system_message",
    "dataloader*",
    "liger_cross_entropy",
    "type_of_model",
    "sample_packing_*",
    "skip_prepare_dataset",
    "eot_tokens",
    "ddp_find_unused_parameters",
    "cosine_*",
    "eta_min",
    "lora_fan_in_fan_out",
    "experimental_skip_move_to_device",
];

const REFUSED: &[(&[&str], &str)] = &[
    (&["torch_compile"], "a compiled step is not predicted"),
    (&["neftune_noise_alpha", "noisy_embedding_alpha"], "the noise on the embeddings is not predicted"),
    (&["unfrozen_parameters"], "training of some layers only is not predicted"),
    (&["reward_model", "process_reward_model"], "reward models are not read from axolotl's files"),
    (
        &[
            "gptq",
            "relora",
            "qat.quantize_embedding",
            "quantization.weight_dtype",
            "tiled_mlp",
            "layer_offloading",
        ],
        "this is not predicted",
    ),
    (&["chunked_cross_entropy"], "axolotl's chunked loss is not predicted"),
];

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
    let Some(batch) = batch.filter(|_| reader.scenario.task == Task::Sft) else { return };
    let _ = reader.take(&["eval_batch_size"]);
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
        None => reader.assume("method", "full", "no adapter is named"),
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
        Some("muon") => ("muon", ", taken for torch.optim.Muon with torch.optim.AdamW beside it"),
        Some("ao_adamw_8bit") => ("adamw-8bit-torchao", ""),
        Some("ao_adamw_4bit") => ("adamw-4bit-torchao", ""),
        _ => return,
    };
    if let Some(said) = reader.take(&["optimizer"]) {
        reader.set("optimizer", slug, &format!("{}{taken}", said.said));
    }
}

/// Who wraps the model under FSDP2, and why that is said: a function of axolotl's own in the place of accelerate's
/// (monkeypatch/accelerate/fsdp2.py). How 4-bit weights come into it was not compared.
fn wrapper(reader: &Reader) -> (WrappedBy, &'static str) {
    let is_second = reader.named(launch::FSDP_VERSIONS).iter().any(|said| said.text() == "2");
    match (is_second, reader.scenario.method) {
        (true, Method::Qlora) => (
            WrappedBy::Accelerate,
            "axolotl 0.19 shards by a function of its own, which was not compared with 4-bit weights: predicted as accelerate's, which gathers \
             embedding and head by themselves, and adapters with their layer",
        ),
        (true, Method::Full | Method::Lora) => (
            WrappedBy::Axolotl,
            "fsdp_version 2: axolotl's own function wraps the model (monkeypatch/accelerate/fsdp2.py)",
        ),
        (false, _) => (
            WrappedBy::Accelerate,
            "the first FSDP is accelerate's to wrap, predicted as its second (utils/fsdp_utils.py `fsdp2_prepare_model`)",
        ),
    }
}

/// Whether the first process alone loads the model: each GPU has all of it before it is sharded otherwise (loaders/model.py `_build_model`).
fn loading(reader: &mut Reader, first_loads: Option<(bool, String)>) {
    const WHY: &str = "without cpu_ram_efficient_loading each GPU has the whole model before it is sharded, which is not predicted";
    match first_loads {
        Some((true, said)) => reader.idle.push(said),
        Some((false, said)) => reader.leave(&said, WHY),
        None => reader.leave("fsdp_config.cpu_ram_efficient_loading (off by default)", WHY),
    }
}

/// The GPUs of a mesh: those that share a copy of the model, times the copies (utils/schemas/config.py).
fn of_mesh(reader: &mut Reader) {
    let shards = reader.take(&["dp_shard_size"]);
    let copies = reader.take(&["dp_replicate_size"]);
    let number = |said: &Option<Said>| said.as_ref().and_then(Said::number).map_or(1, |number| number as u64);
    let said: Vec<String> = [&shards, &copies].into_iter().flatten().map(|said| said.said.clone()).collect();
    if !said.is_empty() {
        let gpus = number(&shards).saturating_mul(number(&copies));
        reader.set("gpus", &gpus.to_string(), &said.join(", "));
    }
    match copies.filter(|copies| copies.number().is_some_and(|number| number > 1.0)) {
        Some(copies) => reader.set("replicas", &copies.text(), &copies.said),
        None => reader.quietly("replicas", "1"),
    }
}

/// GPUs that share sequences, and those that share layers: by transformers' own plan, where nothing else is divided.
fn shares(reader: &mut Reader) {
    let sequences =
        "each GPU has its part of every sequence, which is not predicted: it is taken to have all";
    reader.divides(&["context_parallel_size", "sequence_parallel_degree"], sequences);
    let Some(said) = reader.take(&["tensor_parallel_size"]) else { return reader.quietly("tp", "1") };
    let cluster = reader.scenario.cluster;
    let size = said.number().map_or(0, |size| size as u64);
    match size {
        1 => reader.idle.push(said.said),
        _ if cluster.sharding != Sharding::Ddp || cluster.replicas > 1 => reader.keep(
            "tp",
            &said.said,
            "layers that GPUs share beside FSDP or DeepSpeed are not read from axolotl's files",
        ),
        _ => {
            if size > 0 && !(cluster.is_many() && cluster.gpus.is_multiple_of(size)) {
                reader.set("gpus", &said.text(), &said.said);
            }
            reader.set("tp", &said.text(), &said.said);
        }
    }
}

/// axolotl runs transformers' modules; its plugins put Liger's kernels or Apple's loss into them.
fn stack(reader: &mut Reader) {
    let names = ["liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_layer_norm"];
    let kernels: Vec<(bool, String)> = names.iter().filter_map(|name| reader.switch(&[name])).collect();
    let fused = reader.switch(&["liger_fused_linear_cross_entropy"]);
    // the plugin's own switch is on by default (integrations/cut_cross_entropy/args.py)
    let plugin = plugins(reader);
    let cut = match (reader.switch(&["cut_cross_entropy"]), plugin) {
        (Some(given), Some(plugin)) => {
            reader.idle.push(plugin);
            Some(given)
        }
        (Some(given), None) => Some(given),
        (None, plugin) => plugin.map(|said| (true, said)),
    };
    let on: Vec<String> = kernels.iter().filter(|(on, _)| *on).map(|(_, said)| said.clone()).collect();
    if on.is_empty() {
        reader.assume("stack", Stack::Transformers.slug(), "axolotl trains transformers' own modules");
    } else {
        if kernels.iter().any(|(on, _)| !on) {
            reader.leave(&on.join(", "), "Liger's kernels are predicted all together");
        }
        reader.set("stack", Stack::Liger.slug(), &on.join(", "));
    }
    match (fused, cut) {
        (_, Some((true, said))) => reader.set("loss", "cut", &said),
        (Some((true, said)), _) => reader.set("loss", "liger", &said),
        (Some((false, said)), _) => reader.set("loss", "full", &said),
        (None, Some((false, said))) => {
            reader.idle.push(said);
            reader.assume("loss", if on.is_empty() { "standard" } else { "full" }, "no other loss is named");
        }
        (None, _) if on.is_empty() => reader.quietly("loss", "standard"),
        (None, _) => reader.assume("loss", "full", "liger_fused_linear_cross_entropy is off by default"),
    }
}

/// The plugins that are loaded: what is said of Apple's loss, where its plugin is among them. What others do is not known.
fn plugins(reader: &mut Reader) -> Option<String> {
    let mut cut = None;
    for plugin in reader.take(&["plugins"]).map(|said| said.words()).unwrap_or_default() {
        let said = format!("plugins: {}", crate::text::short(&plugin));
        match plugin.rsplit('.').next().unwrap_or_default() {
            "CutCrossEntropyPlugin" => cut = Some(said),
            // what it does is in its own settings
            "LigerPlugin" | "" => reader.idle.push(said),
            _ => reader.leave(&said, "this plugin is not known here"),
        }
    }
    cut
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
    if reader.scenario.method == crate::scenario::Method::Qlora {
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

/// axolotl's fused adapters, which it switches on where a file says nothing of any of them, unless it learns from preferences or rewards,
/// loads in 8 bits, runs code that the model brings or shards by the first version of FSDP, beside which it refuses them (utils/schemas/config.py
/// `check_auto_enable_lora_kernels`, `check_multigpu_lora_kernels`; that of the embedding does nothing where it has no adapter). It comes last:
/// whether they are followed is asked of all that the file says.
fn kernels(reader: &mut Reader, by_first: bool) {
    let given: Vec<(&str, bool, String)> = AXOLOTL_KERNELS
        .iter()
        .filter_map(|name| reader.switch(&[name]).map(|(on, said)| (*name, on, said)))
        .collect();
    if !reader.scenario.method.has_adapters() {
        return reader.idle.extend(given.into_iter().map(|(.., said)| said));
    }
    let is_on = |name: &&str| given.iter().any(|(own, on, _)| own == name && *on);
    let own_code = reader.named(&["trust_remote_code"]).iter().any(|said| said.switch() == Some(true));
    let quantised = reader.scenario.method == Method::Qlora;
    let in_8_bits = quantised && reader.scenario.quantization.format == WeightFormat::Int8;
    let by_first = by_first && reader.scenario.cluster.is_many();
    let by_default =
        given.is_empty() && !own_code && !in_8_bits && !by_first && reader.given(&["rl"]).is_empty();
    let said: Vec<&str> = given.iter().filter(|(_, on, _)| *on).map(|(.., said)| said.as_str()).collect();
    let said = match (by_default, said.is_empty()) {
        (true, _) => format!("{} (on by default)", AXOLOTL_KERNELS[..3].join(", ")),
        (false, false) => said.join(", "),
        (false, true) => return reader.quietly("fused-adapters", "off"),
    };
    if by_first {
        reader.quietly("fused-adapters", "off");
        let why = "axolotl refuses its fused adapters on several GPUs under FSDP of the first version (fsdp_version: 2 is another)";
        return reader.leave(&said, why);
    }
    let whole = by_default || AXOLOTL_KERNELS[..3].iter().all(is_on);
    let mut fused = reader.scenario.clone();
    fused.lora.fused = true;
    if whole && estimate(&fused).memory.is_some() {
        return reader.set("fused-adapters", "on", &said);
    }
    reader.quietly("fused-adapters", "off");
    let why = if whole { "this is not predicted with the rest" } else { "they are predicted all together" };
    reader
        .leave(&said, &format!("axolotl's fused adapters keep fewer tensors than is predicted here: {why}"));
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
