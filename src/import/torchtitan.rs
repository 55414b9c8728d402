//! torchtitan's TOML (0.2.2 and before, torchtitan/models/*/train_configs), over its defaults (config/job_config.py).

use serde_json::{Map, Value};

use super::launch::on_machines;
use super::names::TORCHTITAN;
use super::reader::{Reader, Said, among};
use super::trainer;
use crate::scenario::Stack;

const WHY: &str = "torchtitan's default (0.2.2)";

/// What its launcher starts on a machine (run_train.sh: NGPU).
const GPUS: u64 = 8;

const IDLE: &[&str] = &[
    "job*",
    "profiling*",
    "metrics*",
    "lr_scheduler*",
    "comm*",
    "debug*",
    "experimental*",
    "memory_estimation*",
    "fault_tolerance*",
    "checkpoint*",
    "validation*",
    "model.tokenizer*",
    "model.hf_assets_path",
    "model.print_after_conversion",
    "model.norm_type",
    "optimizer.lr",
    "optimizer.beta*",
    "optimizer.eps",
    "optimizer.weight_decay",
    "training.dataset*",
    "training.steps",
    "training.max_norm",
    "training.warmup_steps",
    "training.seed",
    "training.deterministic",
    "training.gc*",
    "training.dataloader*",
    "training.mixed_precision_reduce",
    "parallelism.pipeline_parallel_schedule*",
    "parallelism.context_parallel_*",
    "parallelism.enable_async_tensor_parallel",
    "parallelism.enable_compiled_autograd",
    "activation_checkpoint*",
    "compile.components",
    "compile.backend",
    "quantize*",
    "float8*",
];

/// Whether a file's settings are torchtitan's.
pub(super) fn is_file(members: &Map<String, Value>) -> bool {
    let has = |table: &str, names: &[&str]| {
        names.iter().any(|name| members.get(table).is_some_and(|table| table.get(name).is_some()))
    };
    let degrees = ["data_parallel_shard_degree", "data_parallel_replicate_degree", "tensor_parallel_degree"];
    has("parallelism", &degrees)
        || has("model", &["flavor"]) && has("training", &["local_batch_size", "batch_size", "seq_len"])
}

pub(super) fn read(reader: &mut Reader) {
    reader.quietly("task", "sft");
    trainer::usual_loop(reader);
    reader.set("stack", Stack::Torchtitan.slug(), "[model], [training], [parallelism]");
    reader.assume("method", "full", "torchtitan trains all weights");
    let mesh = [
        ("data_parallel_replicate_degree", 1),
        ("data_parallel_shard_degree", 0),
        ("tensor_parallel_degree", 1),
    ]
    .map(|(name, default)| degree(reader, name, default));
    gpus(reader, mesh);
    model(reader);
    reader.or_assume("batch-size", &["training.local_batch_size", "training.batch_size"], "8", WHY);
    reader.or_assume("seq-length", &["training.seq_len"], "2048", WHY);
    accumulation(reader);
    for (key, value) in
        [("mask", "none"), ("attention", "sdpa"), ("cpu-offload", "off"), ("clip-gradients", "on")]
    {
        reader.quietly(key, value);
    }
    precision(reader);
    optimizer(reader);
    checkpointing(reader);
    for (names, why) in [
        (
            &["compile.enable", "training.compile"][..],
            "compiled layers are not followed: the answer runs one operation after the other",
        ),
        (&["training.enable_cpu_offload"], "what torchtitan lays into the CPU's memory was not compared"),
        (&["optimizer.early_step_in_backward"], "an optimizer that steps in backward was not compared"),
        (
            &["model.converters", "float8.enable_float8_linear"],
            "8-bit products are not followed of torchtitan",
        ),
        (
            &["parallelism.disable_loss_parallel"],
            "logits that every GPU gathers are not followed of torchtitan",
        ),
        (&["activation_checkpoint.early_stop"], "checkpoints that stop early are not followed of torchtitan"),
        (
            &["activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"],
            "products that checkpoints by operation are told to run again are not followed",
        ),
        (&["validation.enable"], "validation is not followed of torchtitan"),
        (&["checkpoint.enable"], "what writing a checkpoint takes is not followed of torchtitan"),
    ] {
        reader.refuse(names, why);
    }
    let divided = ["context_parallel_degree", "pipeline_parallel_degree", "expert_parallel_degree"]
        .map(|name| format!("parallelism.{name}"));
    let names: Vec<&str> = divided.iter().map(String::as_str).collect();
    reader
        .divides(&names, "of torchtitan's ways to divide a model FSDP2 and tensor parallelism are followed");
    reader.pass(|name| among(IDLE, name));
}

/// A size of its mesh, and the words that say it; what is not said is the default, -1 is what is left.
fn degree(reader: &mut Reader, name: &str, default: u64) -> (u64, Option<String>) {
    match reader.take(&[&format!("parallelism.{name}"), &format!("training.{name}")]) {
        Some(said) => {
            (said.number().filter(|size| *size >= 1.0).map_or(0, |size| size as u64), Some(said.said.clone()))
        }
        None => (default, None),
    }
}

/// The mesh: so many replicas of so many shards, layers among so many GPUs.
fn gpus(reader: &mut Reader, mesh: [(u64, Option<String>); 3]) {
    let [(replicas, said_replicas), (shards, _), (tensor, said_tensor)] = mesh;
    let (replicas, tensor) = (replicas.max(1), tensor.max(1));
    let before = reader.scenario.cluster.gpus;
    // of the command that starts it
    let nodes = reader.take(&["nnodes"]).map_or(Some(1.0), |nodes| nodes.number());
    let launched = reader.take(&["nproc_per_node"]);
    let counted = launched.as_ref().and_then(Said::number).zip(nodes);
    let words = launched.map(|said| said.said).unwrap_or_default();
    match (shards, counted) {
        (1.., _) => {
            let all = shards.saturating_mul(replicas).saturating_mul(tensor).to_string();
            let said = format!("{shards} shards in {replicas} replicas, layers among {tensor}");
            reader.set("gpus", &all, &said);
        }
        (0, Some((each, nodes))) => reader.set("gpus", &(each * nodes).to_string(), &words),
        (0, None) if before > 1 => {
            reader.assume("gpus", &before.to_string(), "the file does not say how many: as it was");
        }
        (0, None) => reader.assume("gpus", &GPUS.to_string(), "a machine of run_train.sh's (NGPU)"),
    }
    if counted.is_some() {
        on_machines(reader, nodes, &words);
    }
    reader.quietly("shard", "fsdp2");
    for (key, size, said) in [("replicas", replicas, said_replicas), ("tp", tensor, said_tensor)] {
        match said {
            Some(said) => reader.set(key, &size.to_string(), &said),
            None => reader.quietly(key, &size.to_string()),
        }
    }
    match reader.take(&["parallelism.fsdp_reshard_after_forward"]) {
        Some(said) => match said.text().as_str() {
            "default" => reader.set("reshard-after-forward", "on", &said.said),
            "never" => reader.set("reshard-after-forward", "off", &said.said),
            _ => reader.keep(
                "reshard-after-forward",
                &said.said,
                "\"always\" lets the head go after forward, too, which is not followed",
            ),
        },
        None => reader.quietly("reshard-after-forward", "on"),
    }
}

fn model(reader: &mut Reader) {
    let name = reader.take(&["model.name"]);
    let is_llama = name.as_ref().is_none_or(|said| said.text() == "llama3");
    let flavor = reader.take(&["model.flavor"]);
    let said: Vec<String> = [&name, &flavor].into_iter().flatten().map(|said| said.said.clone()).collect();
    let said = said.join(", ");
    let known = flavor.and_then(|flavor| TORCHTITAN.iter().find(|(name, _)| *name == flavor.text()));
    match known.filter(|_| is_llama) {
        Some((_, model)) => reader.set("model", model, &said),
        None => reader.keep("model", &said, "of torchtitan's models Llama 3's 8B, 70B and 405B are known"),
    }
}

/// `global_batch_size` over what all GPUs have at a time.
fn accumulation(reader: &mut Reader) {
    let Some(said) = reader.take(&["training.global_batch_size"]) else {
        return reader.assume("gradient-accumulation", "1", WHY);
    };
    let cluster = reader.scenario.cluster;
    let copies = cluster.gpus / cluster.layout.tensor.max(1);
    let at_once = reader.scenario.batch.saturating_mul(copies).max(1);
    match said.number() {
        Some(all) if all >= 1.0 && (all as u64).is_multiple_of(at_once) => {
            reader.set("gradient-accumulation", &(all as u64 / at_once).to_string(), &said.said);
        }
        Some(all) if all < 1.0 => reader.set("gradient-accumulation", "1", &said.said),
        _ => reader.keep(
            "gradient-accumulation",
            &said.said,
            "it is no multiple of what all GPUs have at a time",
        ),
    }
}

fn precision(reader: &mut Reader) {
    let param = reader.take(&["training.mixed_precision_param"]);
    if let Some(said) = param.filter(|said| said.text() != "bfloat16") {
        let why = "torchtitan is followed where it computes in bfloat16";
        return reader.keep("precision", &said.said, why);
    }
    match reader.take(&["training.dtype"]) {
        Some(said) if said.text() == "bfloat16" => reader.set("precision", "bf16", &said.said),
        Some(said) => reader.set("precision", "amp-bf16", &said.said),
        None => reader.assume("precision", "amp-bf16", WHY),
    }
}

fn optimizer(reader: &mut Reader) {
    let name = reader.take(&["optimizer.name"]);
    let way = reader.take(&["optimizer.implementation"]);
    let said: Vec<String> = [&name, &way].into_iter().flatten().map(|said| said.said.clone()).collect();
    let said = if said.is_empty() { WHY.to_owned() } else { said.join(", ") };
    let word = match (name.map(|said| said.text()).as_deref(), way.map(|said| said.text()).as_deref()) {
        (None | Some("AdamW"), None | Some("fused")) => "adamw-fused",
        (None | Some("AdamW"), Some("foreach")) => "adamw",
        (None | Some("AdamW"), Some("for-loop")) => "adamw-for-loop",
        (Some("Adam"), Some("foreach")) => "adam",
        (Some("Adam"), _) => {
            return reader.keep(
                "optimizer",
                &said,
                "of torchtitan's Adam the foreach implementation is known",
            );
        }
        _ => return reader.keep("optimizer", &said, "torchtitan 0.2.2 has Adam and AdamW"),
    };
    reader.set("optimizer", word, &said);
}

fn checkpointing(reader: &mut Reader) {
    let mode = reader.take(&["activation_checkpoint.mode"]);
    let option = reader.take(&["activation_checkpoint.selective_ac_option"]);
    let said: Vec<String> = [&mode, &option].into_iter().flatten().map(|said| said.said.clone()).collect();
    let said = said.join(", ");
    let mode = mode.map_or_else(|| "selective".to_owned(), |said| said.text());
    let option = option.map_or_else(|| "2".to_owned(), |said| said.text());
    let word = match (mode.as_str(), option.as_str()) {
        ("none", _) => "off",
        ("full", _) => "on",
        ("selective", "2") => "every-second",
        ("selective", "1") => "on",
        ("selective", "op") => "operations",
        _ => {
            let why = "selective checkpointing is followed of every second layer and by operation";
            return reader.keep("gradient-checkpointing", &said, why);
        }
    };
    if said.is_empty() {
        reader.assume("gradient-checkpointing", word, WHY);
    } else {
        reader.set("gradient-checkpointing", word, &said);
    }
}
