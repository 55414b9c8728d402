//! How Megatron's GPUs divide the model, and how many micro-batches go through it.

use super::WHY;
use crate::import::launch::on_machines;
use crate::import::reader::{Reader, Said};
use crate::scenario::Layout;

pub(super) fn read(reader: &mut Reader) {
    for (key, name) in [
        ("tp", "tensor_model_parallel_size"),
        ("pp", "pipeline_model_parallel_size"),
        ("cp", "context_parallel_size"),
        ("expert-parallel", "expert_model_parallel_size"),
    ] {
        reader.or_assume(key, &[name], "1", WHY);
    }
    reader.switches_or_off("sequence-parallel", &["sequence_parallel"], WHY);
    match reader.take(&["cp_comm_type"]) {
        Some(said) => {
            let first =
                said.words().first().map(|word| word.split(' ').next().unwrap_or_default().to_owned());
            reader.set("cp-comm-type", &first.unwrap_or_default(), &said.said);
        }
        None => reader.assume("cp-comm-type", "p2p", WHY),
    }
    stages(reader);
    gpus(reader);
    match reader.switch(&["use_distributed_optimizer"]) {
        Some((true, said)) => reader.set("shard", "dist-opt", &said),
        Some((false, said)) => reader.set("shard", "ddp", &said),
        None => reader.assume("shard", "ddp", WHY),
    }
    match reader.switch(&["grad_reduce_in_bf16"]) {
        Some((on, said)) => reader.set("reduce-dtype", if on { "bf16" } else { "fp32" }, &said),
        None => reader.assume("reduce-dtype", "fp32", "--bf16 adds gradients up in float32"),
    }
    batch(reader);
}

/// The layers of stages, and how many of them run at a time.
fn stages(reader: &mut Reader) {
    for (key, names) in [
        (
            "layers-in-first-stage",
            ["decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"],
        ),
        ("layers-in-last-stage", ["decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"]),
    ] {
        reader.or_assume(key, &names, "0", WHY);
    }
    for (key, name) in [
        ("account-for-embedding", "account_for_embedding_in_pipeline_split"),
        ("account-for-loss", "account_for_loss_in_pipeline_split"),
    ] {
        reader.switches_or_off(key, &[name], WHY);
    }
    let at_a_time = reader.take(&["num_layers_per_virtual_pipeline_stage"]);
    let names = ["num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"];
    match (at_a_time, reader.take(&names)) {
        (Some(said), other) => {
            reader.idle.extend(other.map(|other| other.said));
            reader.set("layers-per-virtual-stage", &said.text(), &said.said);
        }
        (None, Some(said)) => match said.number().and_then(|parts| of_a_part(reader, parts as u64)) {
            Some(layers) => reader.set("layers-per-virtual-stage", &layers.to_string(), &said.said),
            None => reader.keep(
                "layers-per-virtual-stage",
                &said.said,
                "a stage's layers are no multiple of this",
            ),
        },
        (None, None) => {
            reader.assume("layers-per-virtual-stage", "0", "stages are not interleaved by default")
        }
    }
    // whose answer is wanted is no setting of the run
    let layout = reader.scenario.cluster.layout;
    if layout.stage > layout.pipeline {
        reader.quietly("pipeline-stage", "0");
    }
}

/// How many layers a stage runs at a time that runs them in so many parts (megatron/training/arguments.py `validate_args`).
fn of_a_part(reader: &Reader, parts: u64) -> Option<u64> {
    let layers = reader.scenario.architecture().ok()?.order.len() as u64;
    let layout = Layout { interleaved: 0, ..reader.scenario.cluster.layout };
    let of_stage = layout.division(layers).ok()?.of_usual_stage();
    (parts > 0 && of_stage.is_multiple_of(parts)).then(|| of_stage / parts)
}

/// How many GPUs there are: as many on each machine, or as few as hold the model once.
fn gpus(reader: &mut Reader) {
    let nodes = reader.take(&["nnodes", "num_nodes", "nodes"]);
    let each = reader.take(&["nproc_per_node", "num_gpus", "gpus_per_node", "ntasks_per_node"]);
    let together = {
        let layout = reader.scenario.cluster.layout;
        layout.gpus().max(layout.parts().saturating_mul(layout.experts)).max(1)
    };
    let number = |said: &Option<Said>| said.as_ref().map_or(Some(1.0), Said::number);
    match (each, nodes) {
        (Some(each), nodes) => {
            let said = [Some(each.said.clone()), nodes.as_ref().map(|nodes| nodes.said.clone())];
            let said = said.into_iter().flatten().collect::<Vec<_>>().join(", ");
            match (each.number(), number(&nodes)) {
                (Some(each), Some(nodes)) => {
                    reader.set("gpus", &(each * nodes).to_string(), &said);
                    on_machines(reader, Some(nodes), &said);
                }
                _ => {
                    reader.keep("gpus", &said, "this is no number of GPUs");
                    fewest(reader, together);
                }
            }
        }
        (None, nodes) => {
            if let Some(said) = nodes {
                reader.leave(&said.said, "how many GPUs a machine has is not said");
            }
            fewest(reader, together);
        }
    }
}

/// The number of GPUs where it is not said: as it was where that holds the model, else as few as do.
fn fewest(reader: &mut Reader, together: u64) {
    let gpus = reader.scenario.cluster.gpus;
    if gpus > 1 && gpus.is_multiple_of(together) {
        reader.assume("gpus", &gpus.to_string(), "the arguments do not say how many: as it was");
    } else {
        reader.assume(
            "gpus",
            &together.to_string(),
            "the arguments do not say how many: the fewest that hold the model",
        );
    }
}

/// Micro-batches, of which as many go through the stages as make the whole batch.
fn batch(reader: &mut Reader) {
    // the second names are LLaMA-Factory's
    let sizes = ["micro_batch_size", "per_device_train_batch_size"];
    reader.or_assume("batch-size", &sizes, "1", "no --micro-batch-size is given");
    reader.or_assume("seq-length", &["seq_length", "cutoff_len"], "1024", "no --seq-length is given");
    let Some(said) = reader.take(&["global_batch_size"]) else {
        if let Some(said) = reader.take(&["gradient_accumulation_steps"]) {
            return reader.set("gradient-accumulation", &said.text(), &said.said);
        }
        return reader.assume("gradient-accumulation", "1", "a micro-batch of each copy by default");
    };
    let scenario = &reader.scenario;
    let together = scenario.cluster.layout.gpus().max(1);
    if scenario.cluster.gpus < together {
        let why = format!("the GPUs do not hold the model once: {together} share it");
        return reader.keep("gradient-accumulation", &said.said, &why);
    }
    let copies = scenario.cluster.gpus / together;
    let each = copies.saturating_mul(scenario.batch.max(1));
    match said.number() {
        Some(whole) if whole >= 1.0 && (whole as u64).is_multiple_of(each) => {
            let text =
                format!("{}, divided by {copies} copies and a micro-batch of {}", said.said, scenario.batch);
            reader.set("gradient-accumulation", &(whole as u64 / each).to_string(), &text);
        }
        _ => {
            let why = format!("this is no multiple of {each}, what the copies' micro-batches are together");
            reader.keep("gradient-accumulation", &said.said, &why);
        }
    }
}
