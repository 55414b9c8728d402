//! Answer.AI's script for FSDP with QLoRA (AnswerDotAI/fsdp_qlora, train.py `main`), whose arguments have defaults.

use serde_json::json;

use super::super::reader::{Reader, among};
use crate::scenario::Method;

/// Where its defaults are from.
const SCRIPT: &str = "train.py";

/// What memory does not depend on.
const IDLE: &[&str] = &[
    "dataset",
    "dataset_samples",
    "low_memory",
    "lr_scheduler",
    "log_to",
    "master_*",
    "name",
    "project_name",
    "group",
    "entity",
    "grad_norm",
    "wd",
    "loading_workers",
    "max_steps",
    "save_model",
    "profile*",
    "lora_alpha",
];

pub(super) fn read(reader: &mut Reader) {
    let Some(said) = reader.take(&["train_type"]) else { return };
    let method = match said.text().as_str() {
        "full" => Some(Method::Full),
        "lora" | "custom_lora" => Some(Method::Lora),
        "qlora" | "custom_qlora" => Some(Method::Qlora),
        _ => None,
    };
    match method {
        Some(method) => reader.set("method", method.slug(), &said.said),
        None => {
            reader.keep("method", &said.said, "of its kinds of training full, lora and qlora are followed")
        }
    }
    for (name, value) in [
        ("batch_size", json!(1)),
        ("context_length", json!(512)),
        ("lora_rank", json!(64)),
        ("lora_dropout", json!(0.1)),
    ] {
        reader.add(SCRIPT, &[name], value);
    }
    match reader.take(&["lora_target_modules"]) {
        Some(said) if said.text() == "default" => reader.set("lora-targets", "qv", &said.said),
        Some(said) => reader.targets(&said),
        None => reader.assume("lora-targets", "all-linear", "train.py's default"),
    }
    sharding(reader);
    checkpointing(reader);
    match reader.take(&["precision"]) {
        Some(said) => {
            let slug = match said.text().as_str() {
                "bf16" => Some("bf16"),
                "bf16_autocast" => Some("amp-bf16"),
                "fp16_autocast" => Some("amp-fp16"),
                "bf16_buffers_autocast" => Some("amp-bf16-weights"),
                _ => None,
            };
            match slug {
                Some(slug) => reader.set("precision", slug, &said.said),
                None => reader.keep("precision", &said.said, "this precision of its is not followed"),
            }
        }
        None => reader.assume("precision", "bf16", "train.py's default"),
    }
    reader.switches_or_off("clip-gradients", &["apply_gradient_clipping"], "train.py's default");
    reader.refuse(&["use_activation_cpu_offload"], "its offloading of activations is not followed");
    reader.refuse(&["no_sync"], "gradients that are summed whole before they are divided are not followed");
    reader.pass(|name| among(IDLE, name));
}

/// FSDP of the first version, whose strategies have other names elsewhere.
fn sharding(reader: &mut Reader) {
    let strategy = reader.take(&["sharding_strategy"]);
    let word = strategy.as_ref().map_or_else(|| "full_shard".to_owned(), |said| said.text());
    let said = strategy.map_or_else(|| format!("{SCRIPT}(sharding_strategy=full_shard)"), |said| said.said);
    match word.as_str() {
        "full_shard" | "shard_grad_op" => {
            reader.set("shard", "fsdp2", &said);
            let reshards = if word == "full_shard" { "on" } else { "off" };
            reader.set("reshard-after-forward", reshards, &said);
            let why = "FSDP of the first version is predicted as FSDP2, which shards parameter by parameter";
            reader.leave(&said, why);
            let offload = reader.switch(&["use_cpu_offload"]);
            match offload {
                Some((on, said)) => reader.set("cpu-offload", if on { "all" } else { "off" }, &said),
                None => reader.assume("cpu-offload", "all", "train.py's default"),
            }
        }
        "ddp" => reader.set("shard", "ddp", &said),
        _ => {
            reader.keep("shard", &said, "shards within a machine and copies beside it are not followed here")
        }
    }
}

fn checkpointing(reader: &mut Reader) {
    let reentrant = reader.switch(&["reentrant_checkpointing"]);
    let on = if reentrant.as_ref().is_some_and(|(on, _)| *on) { "reentrant" } else { "on" };
    let said = reentrant.map(|(_, said)| said);
    match reader.switch(&["use_gradient_checkpointing"]) {
        Some((false, own)) => {
            reader.set("gradient-checkpointing", "off", &own);
            reader.idle.extend(said);
        }
        Some((true, own)) => {
            let all: Vec<String> = std::iter::once(own).chain(said).collect();
            reader.set("gradient-checkpointing", on, &all.join(", "));
        }
        None => match said {
            Some(said) => reader.set("gradient-checkpointing", on, &said),
            None => reader.assume("gradient-checkpointing", on, "train.py's default"),
        },
    }
}
