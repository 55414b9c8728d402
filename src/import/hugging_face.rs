//! Arguments of transformers, trl, peft and bitsandbytes, and of Unsloth, whose cells hand the same ones on.

use super::launch;
use super::names::optimizer;
use super::reader::{Reader, Said, among};
use crate::scenario::{Method, Precision, Stack};

/// What of these libraries a text has: only what is there has defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// `SFTConfig`, or the whole of trl's command.
    pub trl: bool,
    /// `SFTConfig` itself, whose defaults are others than those of `TrainingArguments` under trl's trainer.
    pub sft_config: bool,
    /// `TrainingArguments`, of which `SFTConfig` is one.
    pub arguments: bool,
    /// All classes of trl's command at once: `trl sft --config`, `sft.py`.
    pub command: bool,
    /// Whose arguments they are.
    pub trainer: Trainer,
    /// A model is loaded by the text itself.
    pub loads: bool,
    /// `LoraConfig`, or another way to adapters.
    pub adapters: bool,
    /// `FastLanguageModel`.
    pub unsloth: bool,
    /// `prepare_model_for_kbit_training` is called.
    pub prepares: bool,
}

/// Which of trl's trainers a text is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trainer {
    /// Fine-tuning on texts, as transformers' own trainer does too.
    #[default]
    Sft,
    /// `DPOConfig` and `DPOTrainer`.
    Dpo,
    /// One that is not read.
    Other,
}

impl Parts {
    fn has_trls_defaults(self) -> bool {
        self.sft_config || self.command || self.trainer == Trainer::Dpo
    }
}

const TRL: &str = "SFTConfig's default in trl 1.16";
const DPO: &str = "DPOConfig's default in trl 1.16";
const ARGUMENTS: &str = "TrainingArguments' default in transformers 5.17";
const MODEL: &str = "ModelConfig's default in trl 1.16";
const LORA: &str = "LoraConfig's default in peft 0.21";

/// What memory does not depend on, or no more than the answer says.
pub(super) const IDLE: &[&str] = &[
    "output_dir",
    "overwrite_output_dir",
    "run_name",
    "project",
    "trackio*",
    "seed",
    "data_seed",
    "learning_rate",
    "lr_scheduler*",
    "warmup*",
    "weight_decay",
    "adam_*",
    "num_train_epochs",
    "max_steps",
    "logging*",
    "log_*",
    "report_to",
    "save_*",
    "push_to_hub*",
    "hub_*",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
    "eval_*",
    "evaluation_strategy",
    "do_*",
    "dataset*",
    "data_*",
    "dataloader*",
    "streaming",
    "train_dataset",
    "processing_class",
    "tokenizer",
    "model",
    "args",
    "peft_config",
    "callbacks",
    "formatting_func",
    "data_collator",
    "compute_metrics",
    "lora_alpha",
    "LoraConfig.lora_alpha",
    "use_rslora",
    "task_type",
    "lora_task_type",
    "random_state",
    "loftq_config",
    "init_lora_weights",
    "inference_mode",
    "bias",
    "device_map*",
    "trust_remote_code",
    "token",
    "use_auth_token",
    "cache_dir",
    "revision",
    "model_revision",
    "low_cpu_mem_usage",
    "fix_tokenizer",
    "tf32",
    "disable_tqdm",
    "remove_unused_columns",
    "label_names",
    "shuffle_dataset",
    "chat_template*",
    "eos_token",
    "pad_token",
    "assistant_only_loss",
    "completion_only_loss",
    "truncation_mode",
    "ddp_timeout",
    "ddp_backend",
    "resume_from_checkpoint",
    "skip_memory_metrics",
    "include_*",
    "log_level*",
    "prediction_loss_only",
    "group_by_length",
    "length_column_name",
    "dataset_text_field",
    "ignore_data_skip",
    "use_cpu",
    "no_cuda",
    "per_device_eval_batch_size",
    "fp16_opt_level",
    "eval_packing",
    "bnb_4bit_quant_storage",
    "bnb_4bit_use_nested_quant",
    "max_lora_rank",
    "preprocessing*",
    "overwrite_cache",
    "validation_split_percentage",
    "train_file",
    "validation_file",
    "config_name",
    "tokenizer_name",
    "use_fast_tokenizer",
    "average_tokens_across_devices",
    "optim_args",
    "use_peft",
    "use_lora",
    "lora_enable",
    "fan_in_fan_out",
    "megatron_*",
    "peft_version",
    "qalora_group_size",
    "auto_mapping",
    "router_aux_loss_coef",
    "llm_int8*",
    "instance*",
    "max_samples*",
    "model_name_or_path",
    "dry_run",
    "local_rank",
    "model_init_kwargs.trust_remote_code",
    "model_init_kwargs.device_map*",
];

/// What changes memory in a way that is not followed.
const REFUSED: &[(&[&str], &str)] = &[
    (&["load_in_8bit", "load_in_fp8", "quantization_bit"], "8-bit weights are not predicted"),
    (
        &["label_smoothing_factor"],
        "Trainer's smoothed loss keeps float32 copies of all logits, which is not predicted",
    ),
    (&["full_determinism"], "deterministic kernels take other workspaces, which is not predicted"),
    (&["lora_bias", "use_qalora", "layer_replication"], "adapters of this kind are not predicted"),
    (&["trainable_token_indices", "target_parameters"], "these adapters are not predicted"),
    (&["torch_compile", "torch_compile_backend", "torch_compile_mode"], "a compiled step is not predicted"),
    (&["use_dora"], "DoRA's magnitudes and their norms are not predicted"),
    (&["neftune_noise_alpha"], "the noise on the embeddings is not predicted"),
    (&["auto_find_batch_size"], "the batch is then whatever fits"),
    (&["torch_empty_cache_steps"], "an emptied cache is not predicted"),
    (
        &["LoraConfig.layers_to_transform", "layers_to_transform"],
        "adapters of some layers only are not predicted",
    ),
    (&["rank_pattern", "alpha_pattern"], "adapters of different ranks are not predicted"),
    (&["use_unsloth_gradient_checkpointing"], "this is not predicted"),
    (&["context_parallel_size", "parallelism_config"], "context parallelism is not read here"),
];

pub(super) fn read(reader: &mut Reader, parts: Parts) {
    let model = reader.take(&[
        "model_name_or_path",
        "from_pretrained.model_name",
        "from_pretrained.pretrained_model_name_or_path",
        "SFTTrainer.model",
        "DPOTrainer.model",
    ]);
    if let Some(said) = &model {
        reader.model(said);
    }
    stack(reader, parts);
    method(reader, parts, model.is_some());
    precision(reader, parts);
    adapters(reader, parts);
    attention(reader, parts);
    if parts.arguments {
        arguments(reader, parts);
    }
    checkpointing(reader, parts);
    launch::of_arguments(reader);
    if let Some((true, said)) = reader.switch(&["fast_inference"]) {
        let why = "vLLM's weights and cache on the same card are not predicted";
        reader.leave(&said, why);
        reader.refuse(&["gpu_memory_utilization"], why);
    }
    if let Some(said) = reader.take(&["peft_type"]) {
        match said.text().to_ascii_uppercase().as_str() {
            "LORA" => reader.idle.push(said.said),
            _ => reader.leave(&said.said, "of peft's adapters LoRA's are predicted"),
        }
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    if let Some((true, said)) = reader.switch(&["use_cache"]) {
        reader.idle.push(said);
    }
    reader.pass(|name| among(IDLE, name) || ["gpu_memory_utilization", "fast_inference"].contains(&name));
}

fn stack(reader: &mut Reader, parts: Parts) {
    let liger = reader.switch(&["use_liger_kernel", "use_liger"]);
    if parts.unsloth {
        reader.set("stack", Stack::Unsloth.slug(), "FastLanguageModel");
    } else if let Some((true, said)) = liger {
        reader.set("stack", Stack::Liger.slug(), &said);
    } else if parts.trl {
        let (trainer, classes) = match parts.trainer {
            Trainer::Dpo => ("DPOTrainer", "DPOConfig, DPOTrainer"),
            Trainer::Sft | Trainer::Other => ("SFTTrainer", "SFTConfig, SFTTrainer"),
        };
        match parts.command {
            true => {
                reader.assume("stack", Stack::Trl.slug(), &format!("trl's command trains with {trainer}"))
            }
            false => reader.set("stack", Stack::Trl.slug(), classes),
        }
    } else if parts.arguments {
        reader.set("stack", Stack::Transformers.slug(), "TrainingArguments");
    }
    if parts.arguments || parts.unsloth {
        match parts.trainer {
            Trainer::Dpo => reader.assume("task", "dpo", "these are DPOTrainer's arguments"),
            Trainer::Sft => reader.assume("task", "sft", "no other trainer is named"),
            Trainer::Other => reader.assume("task", "sft", "the trainer that is named is not read"),
        }
        for (key, value) in [
            ("keep-outputs", "off"),
            ("set-to-none", "on"),
            ("use-cache", "off"),
            ("optimizer-step", "after-backward"),
            ("loss", "standard"),
        ] {
            quietly(reader, key, value);
        }
    }
}

/// Sets what the trainer always does: nobody has to be told.
pub(super) fn quietly(reader: &mut Reader, key: &str, value: &str) {
    if let Some(key) = crate::scenario::keys::Key::find(key) {
        // a value that is written here is one that the key reads
        let _ = key.read(&mut reader.scenario, value);
    }
}

fn method(reader: &mut Reader, parts: Parts, names_a_model: bool) {
    if parts.unsloth {
        return unsloths_method(reader);
    }
    let four_bit = reader.switch(&["load_in_4bit"]);
    // the last two are other scripts' names for it
    let adapters = match reader.switch(&["use_peft", "use_lora", "lora_enable"]) {
        Some((on, said)) => Some((on, said)),
        None if parts.adapters => Some((true, "LoraConfig".to_owned())),
        None if parts.command || parts.loads || (parts.arguments && names_a_model) => {
            Some((false, String::new()))
        }
        None => None,
    };
    match (adapters, &four_bit) {
        (Some((true, _)), Some((true, said))) => reader.set("method", Method::Qlora.slug(), said),
        (Some((true, said)), Some((false, _)) | None) => reader.set("method", Method::Lora.slug(), &said),
        (Some((false, _)), Some((true, said))) => {
            reader.leave(said, "4-bit weights are not trained themselves: no adapters are named");
            reader.assume("method", Method::Qlora.slug(), "4-bit weights need adapters");
        }
        (Some((false, said)), _) if !said.is_empty() => reader.set("method", Method::Full.slug(), &said),
        (Some((false, _)), _) => reader.assume("method", Method::Full.slug(), "no adapters are named"),
        (None, Some((true, said))) => reader.set("method", Method::Qlora.slug(), said),
        (None, _) if parts.arguments => {
            let method = reader.scenario.method.slug();
            reader.assume("method", method, "neither a model nor adapters are named: as it was");
        }
        (None, _) => {}
    }
}

/// `FastLanguageModel.from_pretrained` loads in 4 bits where nothing is said (unsloth/models/loader.py), and trains all weights
/// only with `full_finetuning`.
fn unsloths_method(reader: &mut Reader) {
    if let Some((true, said)) = reader.switch(&["full_finetuning"]) {
        reader.pass(|name| ["load_in_4bit", "load_in_8bit", "load_in_16bit", "load_in_fp8"].contains(&name));
        return reader.set("method", Method::Full.slug(), &said);
    }
    let four_bit = reader.switch(&["load_in_4bit"]);
    let wider = reader.given(&["load_in_8bit", "load_in_fp8"]);
    match (reader.switch(&["load_in_16bit"]), four_bit) {
        (Some((true, said)), _) | (_, Some((false, said))) => {
            reader.set("method", Method::Lora.slug(), &said)
        }
        (_, Some((true, said))) => reader.set("method", Method::Qlora.slug(), &said),
        (_, None) if !wider.is_empty() => {
            reader.assume("method", Method::Lora.slug(), "the weights are not loaded in 4 bits");
        }
        (_, None) => {
            reader.assume(
                "method",
                Method::Qlora.slug(),
                "load_in_4bit is from_pretrained's default in Unsloth",
            );
        }
    }
}

fn adapters(reader: &mut Reader, parts: Parts) {
    let (rank, dropout, why) = match (parts.command, parts.unsloth) {
        (true, _) => ("16", "0.05", MODEL),
        (false, true) => ("16", "0", "get_peft_model's default in Unsloth 2026.10"),
        (false, false) => ("8", "0", LORA),
    };
    if reader.scenario.method.has_adapters() && (parts.adapters || parts.command) {
        reader.or_assume("lora-rank", &["lora_r", "LoraConfig.r", "get_peft_model.r"], rank, why);
        reader.or_assume("lora-dropout", &["lora_dropout"], dropout, why);
        match reader.take(&[
            "lora_target_modules",
            "LoraConfig.target_modules",
            "get_peft_model.target_modules",
        ]) {
            Some(said) => reader.targets(&said),
            None if parts.unsloth => reader.assume("lora-targets", "all-linear", why),
            None => reader.assume("lora-targets", "qv", "peft's default for the family"),
        }
        match reader.take(&[
            "lora_modules_to_save",
            "LoraConfig.modules_to_save",
            "get_peft_model.modules_to_save",
        ]) {
            Some(said) => saved(reader, &said),
            None => reader.assume("train-embeddings", "off", why),
        }
        match reader.switch(&["autocast_adapter_dtype"]) {
            Some((on, said)) => reader.set("fp32-adapters", if on { "on" } else { "off" }, &said),
            None => quietly(reader, "fp32-adapters", "on"),
        }
        if let Some(said) = reader.take(&["LoraConfig.bias", "get_peft_model.bias"]) {
            if said.text() == "none" {
                reader.idle.push(said.said)
            } else {
                reader.leave(&said.said, "trained biases are not predicted")
            }
        }
    }
    if reader.scenario.method == Method::Qlora {
        four_bit(reader, parts);
    }
}

/// peft's `modules_to_save`.
pub(super) fn saved(reader: &mut Reader, said: &Said) {
    let words = said.words();
    let known = ["embed_tokens", "lm_head", "wte", "embed_in", "embed_out", "word_embeddings"];
    if words.iter().all(|word| known.contains(&word.as_str())) {
        let both = words.len() >= 2 || reader.scenario.architecture().is_ok_and(|model| model.head.tied);
        if !both {
            reader.leave(&said.said, "the embedding and the head are copied together here");
        }
        reader.set("train-embeddings", "on", &said.said);
    } else {
        reader.leave(&said.said, "only the embedding and the head are copied here");
    }
}

fn four_bit(reader: &mut Reader, parts: Parts) {
    if let Some(said) = reader.take(&["bnb_4bit_quant_type"]) {
        reader.set("weight-format", "nf4", &said.said);
    } else {
        quietly(reader, "weight-format", "nf4");
    }
    let names = ["bnb_4bit_use_double_quant", "use_bnb_nested_quant"];
    match (reader.take(&names), parts.unsloth) {
        (Some(said), _) => reader.set("double-quant", &said.text(), &said.said),
        (None, true) => reader.assume("double-quant", "on", "Unsloth's own quantisation"),
        (None, false) => reader.assume("double-quant", "off", "BitsAndBytesConfig's default"),
    }
    if parts.command && reader.scenario.precision != Precision::AmpBf16Weights {
        reader.leave(
            "dtype",
            "trl's command computes 4-bit products in the type of the weights: predicted in bfloat16",
        );
    } else if let Some(said) = reader.take(&["bnb_4bit_compute_dtype"]) {
        match element_type(&said.text()) {
            Some(Element::Fp32) => reader.leave(&said.said, "4-bit products are predicted in 16 bits"),
            Some(Element::Bf16 | Element::Fp16 | Element::Published) => reader.idle.push(said.said),
            None => reader.leave(&said.said, "this is no element type"),
        }
    } else if parts.loads && !parts.unsloth {
        reader.leave(
            "bnb_4bit_compute_dtype",
            "BitsAndBytesConfig computes in float32 where nothing is said; predicted in 16 bits",
        );
    }
    if !parts.trl && !parts.unsloth && (parts.loads || parts.prepares) {
        match parts.prepares {
            true => reader.set("kbit-prepare", "on", "prepare_model_for_kbit_training"),
            false => reader.assume("kbit-prepare", "off", "prepare_model_for_kbit_training is not called"),
        }
    }
}

/// An element type as these libraries name it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    Fp32,
    Bf16,
    Fp16,
    /// As the model was published.
    Published,
}

fn element_type(name: &str) -> Option<Element> {
    match name.trim_start_matches("torch.").trim_start_matches("jnp.") {
        "float32" | "fp32" | "float" => Some(Element::Fp32),
        "bfloat16" | "bf16" => Some(Element::Bf16),
        "float16" | "fp16" | "half" => Some(Element::Fp16),
        "auto" => Some(Element::Published),
        _ => None,
    }
}

/// Whether a switch is on, also where the text asks the card.
fn asked(reader: &mut Reader, name: &str) -> Option<(bool, String)> {
    let said = reader.take(&[name])?;
    let text = said.text();
    let supported = text.contains("is_bf16_supported") || text.contains("is_bfloat16_supported");
    let on = match (supported, text.trim_start().starts_with("not ")) {
        (true, negated) => Some(reader.scenario.has_bfloat16() != negated),
        (false, _) => said.switch(),
    };
    if on.is_none() {
        reader.leave(&said.said, "this is neither on nor off");
    }
    on.map(|on| (on, said.said))
}

fn precision(reader: &mut Reader, parts: Parts) {
    let said =
        reader.take(&["dtype", "torch_dtype", "model_init_kwargs.dtype", "model_init_kwargs.torch_dtype"]);
    let (fp16, bf16) = (asked(reader, "fp16"), asked(reader, "bf16"));
    if said.is_none() && !parts.arguments && !parts.loads {
        return;
    }
    let card = if reader.scenario.has_bfloat16() { Element::Bf16 } else { Element::Fp16 };
    let named = said.as_ref().and_then(|said| {
        let found = element_type(&said.text());
        if found.is_none() {
            reader.leave(&said.said, "this is no element type");
        }
        found
    });
    let weights = match named {
        Some(Element::Published) => Element::Bf16,
        Some(element) => element,
        None if parts.unsloth => card,
        None if parts.loads => Element::Bf16,
        None if parts.trl => Element::Fp32,
        None => Element::Bf16,
    };
    let is_on = |switch: &Option<(bool, String)>| switch.as_ref().is_some_and(|(on, _)| *on);
    let computes = match (is_on(&bf16), is_on(&fp16)) {
        (true, _) => Some(Element::Bf16),
        (false, true) => Some(Element::Fp16),
        (false, false) if parts.has_trls_defaults() && bf16.is_none() => Some(Element::Bf16),
        (false, false) => None,
    };
    let slug = match (weights, computes) {
        (Element::Fp32, None) => "fp32",
        (Element::Fp32, Some(Element::Bf16)) => "amp-bf16",
        (Element::Fp32, Some(_)) => "amp-fp16",
        (Element::Fp16, Some(Element::Fp16)) if parts.unsloth => "fp16",
        (Element::Bf16 | Element::Published, None) => "bf16",
        (Element::Bf16 | Element::Published, Some(Element::Bf16)) => "amp-bf16-weights",
        (Element::Fp16, None) => "fp16",
        (Element::Fp16, Some(_)) | (Element::Bf16 | Element::Published, Some(_)) => {
            let said = fp16.or(bf16).map(|(_, said)| said).unwrap_or_default();
            return reader
                .leave(&said, "mixed precision over weights of another 16-bit type is not predicted");
        }
    };
    let all: Vec<String> =
        [said.map(|said| said.said), fp16.map(|(_, said)| said), bf16.map(|(_, said)| said)]
            .into_iter()
            .flatten()
            .collect();
    let weights_are_said = named.is_some();
    let why = match (parts.command, parts.trl, parts.loads) {
        _ if parts.unsloth => "Unsloth loads in the type that the card computes in",
        (true, ..) => "trl's command loads in float32 and trains with bf16 where nothing is said",
        (false, true, false) => "SFTTrainer loads a model in float32, and SFTConfig trains with bf16",
        (false, _, true) => "transformers 5 loads weights as they were published: taken for bfloat16",
        (false, false, false) => "weights as they were published: taken for bfloat16",
    };
    if all.is_empty() {
        reader.assume("precision", slug, why)
    } else if weights_are_said {
        reader.set("precision", slug, &all.join(", "))
    } else {
        reader.set("precision", slug, &format!("{}; {why}", all.join(", ")))
    }
}

fn attention(reader: &mut Reader, parts: Parts) {
    let flash = reader.switch(&["use_flash_attention_2", "use_flash_attn"]);
    match reader.take(&["attn_implementation", "model_init_kwargs.attn_implementation"]) {
        Some(said) => match said.text().as_str() {
            word @ ("eager" | "sdpa") => reader.set("attention", word, &said.said),
            "flash_attention_2" => reader.set("attention", "flash-attention-2", &said.said),
            _ => reader.leave(
                &said.said,
                "of attention implementations eager, sdpa and flash_attention_2 are predicted",
            ),
        },
        None => match flash {
            Some((true, said)) => reader.set("attention", "flash-attention-2", &said),
            Some((false, _)) | None if parts.loads || parts.command => {
                reader.assume("attention", "sdpa", "transformers' default where the model has it");
            }
            Some((false, _)) | None => {}
        },
    }
}

fn arguments(reader: &mut Reader, parts: Parts) {
    let why = match (parts.trl, parts.trainer) {
        (true, Trainer::Dpo) => DPO,
        (true, Trainer::Sft | Trainer::Other) => TRL,
        (false, _) => ARGUMENTS,
    };
    reader.or_assume(
        "batch-size",
        &["per_device_train_batch_size", "per_gpu_train_batch_size"],
        "8",
        ARGUMENTS,
    );
    reader.or_assume("gradient-accumulation", &["gradient_accumulation_steps"], "1", ARGUMENTS);
    let short = reader.take(&["max_seq_length", "block_size", "model_max_length"]);
    match reader.take(&["max_length"]).or(short) {
        Some(said) => reader.set("seq-length", &said.text(), &said.said),
        None if parts.trl => reader.assume("seq-length", "1024", why),
        None => {
            let length = reader.scenario.sequence.to_string();
            reader.assume("seq-length", &length, "the arguments say nothing of it: as it was");
        }
    }
    match reader.take(&["optim"]) {
        Some(said) => {
            match optimizer(said.text().trim_start_matches("OptimizerNames.").to_ascii_lowercase().as_str()) {
                Some(found) => reader.set("optimizer", found.slug(), &said.said),
                None => reader.leave(&said.said, "this optimizer is not predicted"),
            }
        }
        None => reader.assume("optimizer", "adamw-fused", ARGUMENTS),
    }
    match reader.take(&["max_grad_norm"]) {
        Some(said) => clips(reader, &said),
        None => reader.assume("clip-gradients", "on", "max_grad_norm is 1.0 by default"),
    }
    match reader.switch(&["activation_offloading"]) {
        Some((on, said)) => reader.set("activation-offloading", if on { "on" } else { "off" }, &said),
        None => quietly(reader, "activation-offloading", "off"),
    }
    if parts.trainer == Trainer::Dpo {
        match reader.take(&["max_prompt_length"]) {
            Some(said) => reader.set("prompt-length", &said.text(), &said.said),
            None => {
                let length = reader.scenario.answers.prompt.to_string();
                reader.assume("prompt-length", &length, "DPOConfig says nothing of it: as it was");
            }
        }
        match reader.switch(&["precompute_ref_log_probs"]) {
            Some((on, said)) => reader.set("reference", if on { "precomputed" } else { "scored" }, &said),
            None => reader.assume("reference", "scored", DPO),
        }
        reader.pass(|name| {
            ["beta", "loss_type", "loss_weights", "sync_ref_model", "label_smoothing"].contains(&name)
        });
        reader.assume("mask", "padded", why);
    } else if parts.trl {
        filling(reader, why);
        if let Some(said) = reader.take(&["loss_type"]) {
            let usual = ["nll", "chunked_nll"].contains(&said.text().as_str());
            if usual {
                reader.idle.push(said.said)
            } else {
                reader.leave(&said.said, "of losses the negative log-likelihood is predicted")
            }
        }
    }
}

/// Whether gradients are clipped.
pub(super) fn clips(reader: &mut Reader, said: &Said) {
    match said.number() {
        Some(norm) => reader.set("clip-gradients", if norm > 0.0 { "on" } else { "off" }, &said.said),
        None => reader.leave(&said.said, "this is no number"),
    }
}

/// How trl fills the batch.
fn filling(reader: &mut Reader, why: &str) {
    let strategy = reader.take(&["packing_strategy"]);
    let packing = reader.switch(&["packing"]);
    let padding_free = reader.switch(&["padding_free"]);
    if let Some((true, said)) = packing {
        match strategy {
            Some(strategy) if strategy.text() == "wrapped" => {
                reader.set("mask", "none", &format!("{said}, {}", strategy.said));
            }
            Some(strategy) => reader.set("mask", "padding-free", &format!("{said}, {}", strategy.said)),
            None => reader.set("mask", "padding-free", &said),
        }
    } else if let Some((true, said)) = padding_free {
        reader.set("mask", "padding-free", &said);
    } else if let Some((false, said)) = packing {
        reader.set("mask", "padded", &said);
    } else {
        reader.assume("mask", "padded", why);
    }
    if let Some(said) = reader.take(&["pad_to_multiple_of"]) {
        reader.idle.push(said.said);
    }
}

fn checkpointing(reader: &mut Reader, parts: Parts) {
    if let Some(said) = reader.take(&["use_gradient_checkpointing"]) {
        let value = match (said.text().as_str(), said.switch()) {
            ("unsloth", _) => Some("offloaded"),
            (_, Some(true)) => Some("on"),
            (_, Some(false)) => Some("off"),
            (_, None) => None,
        };
        match value {
            Some(value) => reader.set("gradient-checkpointing", value, &said.said),
            None => reader.leave(&said.said, "this is neither on nor off"),
        }
        if parts.unsloth {
            reader.pass(|name| {
                name == "gradient_checkpointing" || name.starts_with("gradient_checkpointing_kwargs")
            });
            return;
        }
    } else if parts.unsloth {
        reader.pass(|name| {
            name == "gradient_checkpointing" || name.starts_with("gradient_checkpointing_kwargs")
        });
        return reader.assume(
            "gradient-checkpointing",
            "offloaded",
            "get_peft_model's default in Unsloth 2026.10",
        );
    }
    let reentrant = reader.switch(&["gradient_checkpointing_kwargs.use_reentrant"]);
    let value = match &reentrant {
        Some((true, _)) => "reentrant",
        Some((false, _)) | None => "on",
    };
    match reader.switch(&["gradient_checkpointing"]) {
        Some((true, said)) => {
            let kwargs = reentrant.map(|(_, said)| format!(", {said}")).unwrap_or_default();
            reader.set("gradient-checkpointing", value, &format!("{said}{kwargs}"));
        }
        Some((false, said)) => reader.set("gradient-checkpointing", "off", &said),
        None if parts.has_trls_defaults() => reader.assume("gradient-checkpointing", value, TRL),
        None if parts.prepares => {
            reader.assume("gradient-checkpointing", value, "prepare_model_for_kbit_training switches it on")
        }
        None if parts.arguments => reader.assume("gradient-checkpointing", "off", ARGUMENTS),
        None => {}
    }
}
