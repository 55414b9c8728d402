//! DeepSpeed's settings: its own JSON, and accelerate's plugin for it.

use super::reader::{Reader, Said, among};
use super::trainer::{clips, number_of_gpus};
use crate::scenario::Method;

const IDLE: &[&str] = &[
    "steps_per_print",
    "wall_clock_breakdown",
    "scheduler*",
    "fp16.*",
    "bf16.*",
    "amp*",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "optimizer.params*",
    "zero_optimization.allgather_partitions",
    "zero_optimization.reduce_scatter",
    "zero_optimization.sub_group_size",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.cpu_offload_params",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.max_reuse_distance",
    "zero_optimization.ignore_unused_parameters",
    "activation_checkpointing*",
    "flops_profiler*",
    "dump_state",
    "tensorboard*",
    "wandb*",
    "csv_monitor*",
    "comms_logger*",
    "prescale_gradients",
    "compile.backend",
    "gradient_predivide_factor",
    "communication_data_type",
    "elasticity*",
    "data_types*",
    "checkpoint*",
    "zero_optimization.offload_optimizer.buffer_count",
    "zero_optimization.offload_optimizer.fast_init",
    "zero_optimization.offload_optimizer.pipeline*",
    "zero_optimization.offload_param.buffer_count",
    "zero_optimization.offload_param.buffer_size",
    "zero_optimization.offload_param.max_in_cpu",
    "$schema",
];

/// DeepSpeed's own JSON, whether it is a file or stands among arguments.
pub(super) fn read(reader: &mut Reader) {
    if let Some(said) = reader.take(&["zero_optimization.stage"]) {
        stage(reader, &said);
    }
    let hidden = reader.scenario.architecture().map_or(0, |model| model.hidden);
    let square = hidden.saturating_mul(hidden);
    // transformers/integrations/deepspeed.py `trainer_config_finalize`
    let sizes = [
        ("zero_optimization.reduce_bucket_size", "reduce-bucket", square),
        ("zero_optimization.stage3_prefetch_bucket_size", "prefetch-bucket", (0.9 * square as f64) as u64),
        (
            "zero_optimization.stage3_param_persistence_threshold",
            "persistence-threshold",
            hidden.saturating_mul(10),
        ),
    ];
    for (name, key, auto) in sizes {
        if let Some(said) = reader.take(&[name]) {
            if said.text() == "auto" {
                reader.set(key, &auto.to_string(), &format!("{}, for a hidden size of {hidden}", said.said));
            } else {
                whole(reader, key, &said);
            }
        }
    }
    // the second is the name that DeepSpeed's class has for it (runtime/zero/config.py)
    let names = ["zero_optimization.stage3_max_live_parameters", "zero_optimization.max_live_parameters"];
    if let Some(said) = reader.take(&names) {
        whole(reader, "max-live-parameters", &said);
    }
    reader.switches("contiguous-gradients", &["zero_optimization.contiguous_gradients"]);
    reader.switches("overlap-comm", &["zero_optimization.overlap_comm"]);
    let optimizer = reader.take(&["zero_optimization.offload_optimizer.device"]);
    let weights = reader.take(&["zero_optimization.offload_param.device"]);
    offload(reader, optimizer, weights);
    for place in ["offload_optimizer", "offload_param"] {
        let name = format!("zero_optimization.{place}.pin_memory");
        match reader.switch(&[&name]) {
            Some((true, said)) => reader.idle.push(said),
            Some((false, said)) => {
                reader.leave(&said, "what is not pinned takes less of the CPU's memory than is said")
            }
            None => {}
        }
    }
    if let Some(said) = reader.take(&["zero_optimization.offload_optimizer.ratio"]) {
        match said.number() {
            Some(1.0) => reader.idle.push(said.said),
            _ => reader
                .leave(&said.said, "an optimizer that is divided between both memories is not predicted"),
        }
    }
    reader
        .refuse(&["zero_optimization.cpu_offload"], "this older setting is not read: use offload_optimizer");
    match reader.switch(&["compile.disable"]) {
        Some((true, said)) => reader.idle.push(said),
        Some((false, said)) => reader.leave(&said, "a model that DeepSpeed compiles is not predicted"),
        None => {}
    }
    let divided = [
        "zero_optimization.zero_hpz_partition_size",
        "zero_optimization.mics_shard_size",
        "zero_optimization.zero_quantized_weights",
        "zero_optimization.zero_quantized_nontrainable_weights",
        "zero_optimization.zero_quantized_gradients",
    ];
    reader.divides(&divided, "what each GPU keeps or gathers is another with it, which is not predicted");
    counts(reader, "");
    let bf16 = reader.take(&["bf16.enabled"]);
    let bf16 = left_to_the_trainer(reader, bf16);
    let fp16 = reader.take(&["fp16.enabled"]);
    let fp16 = left_to_the_trainer(reader, fp16);
    match (bf16.as_ref().and_then(Said::switch), fp16.as_ref().and_then(Said::switch)) {
        (Some(true), _) => {
            let said = bf16.map(|said| said.said).unwrap_or_default();
            // the engine holds bfloat16 weights beside float32 masters of its own
            let slug = if reader.scenario.method == Method::Full { "amp-bf16" } else { "amp-bf16-weights" };
            reader.set("precision", slug, &said);
        }
        (_, Some(true)) => {
            let said = fp16.map(|said| said.said).unwrap_or_default();
            reader.set("precision", "amp-fp16", &said);
        }
        (_, _) => {
            for said in [bf16, fp16].into_iter().flatten() {
                match said.switch() {
                    Some(_) => reader.idle.push(said.said),
                    None => reader.keep("precision", &said.said, "this is neither on nor off"),
                }
            }
        }
    }
    if let Some(said) = reader.take(&["optimizer.type"]) {
        let word = said.text();
        match word.as_str() {
            "AdamW" | "Adam" => reader
                .leave(&said.said, "DeepSpeed's own FusedAdam is predicted as the optimizer that is chosen"),
            _ => reader.keep("optimizer", &said.said, "this optimizer is not predicted"),
        }
    }
    reader.pass(|name| among(IDLE, name));
}

/// DeepSpeed as accelerate's file has it.
pub(super) fn plugin(reader: &mut Reader) {
    let of = |name: &str| [format!("deepspeed_config.{name}"), name.to_owned()];
    if let Some(said) = reader.take(&["deepspeed_config.zero_stage", "zero_stage"]) {
        stage(reader, &said);
    }
    let [inside, alone] = of("offload_optimizer_device");
    let optimizer = reader.take(&[&inside, &alone]);
    let [inside, alone] = of("offload_param_device");
    let weights = reader.take(&[&inside, &alone]);
    offload(reader, optimizer, weights);
    for name in ["offload_optimizer_nvme_path", "offload_param_nvme_path"] {
        let [inside, alone] = of(name);
        reader.refuse(&[&inside, &alone], "what DeepSpeed keeps on a disk is not predicted");
    }
    counts(reader, "deepspeed_config.");
    reader.refuse(&["use_deepspeed"], "the stage of ZeRO is in another file, or in --zero_stage");
}

/// What DeepSpeed keeps in the host's memory, by the devices that it names.
fn offload(reader: &mut Reader, optimizer: Option<Said>, weights: Option<Said>) {
    let is_cpu = |said: &Option<Said>| said.as_ref().is_some_and(|said| said.text() == "cpu");
    let is_followed = |said: &Said| ["cpu", "none"].contains(&said.text().as_str());
    if [&optimizer, &weights].into_iter().flatten().any(|said| !is_followed(said)) {
        for said in [optimizer, weights].into_iter().flatten() {
            let why = if is_followed(&said) {
                "nothing is predicted in the CPU's memory while the other is on another device"
            } else {
                "of the devices that DeepSpeed may offload to, the CPU is predicted"
            };
            reader.leave(&said.said, why);
        }
        return;
    }
    let value = match (is_cpu(&weights), is_cpu(&optimizer)) {
        (true, true) => Some("all"),
        (true, false) => None,
        (false, true) => Some("optimizer"),
        (false, false) => Some("off"),
    };
    let said =
        [weights, optimizer].into_iter().flatten().map(|said| said.said).collect::<Vec<_>>().join(", ");
    let Some(value) = value else {
        let why = "parameters in the CPU's memory whose optimizer is on the GPUs are not predicted";
        return reader.leave(&said, why);
    };
    if !said.is_empty() {
        reader.set("cpu-offload", value, &said);
    }
}

fn stage(reader: &mut Reader, said: &Said) {
    match said.number() {
        Some(0.0) => reader.set("shard", "ddp", &said.said),
        Some(1.0) => reader.set("shard", "zero1", &said.said),
        Some(2.0) => reader.set("shard", "zero2", &said.said),
        Some(3.0) => reader.set("shard", "zero3", &said.said),
        Some(_) | None => reader.keep("shard", &said.said, "ZeRO has the stages 0 to 3"),
    }
}

/// A size in elements, which JSON may write as `5e8`.
fn whole(reader: &mut Reader, key: &str, said: &Said) {
    match said.number() {
        Some(number) if number >= 0.0 => reader.set(key, &(number as u64).to_string(), &said.said),
        Some(_) | None => reader.keep(key, &said.said, "this is no number of elements"),
    }
}

/// Sizes of the batch and clipping, which DeepSpeed may leave to the trainer's arguments.
fn counts(reader: &mut Reader, table: &str) {
    let mut given = |name: &str| {
        let said = reader.take(&[&format!("{table}{name}")]);
        left_to_the_trainer(reader, said)
    };
    let (micro, steps) = (given("train_micro_batch_size_per_gpu"), given("gradient_accumulation_steps"));
    let whole = given("train_batch_size");
    for (key, said) in [("batch-size", &micro), ("gradient-accumulation", &steps)] {
        if let Some(said) = said {
            reader.set(key, &said.text(), &said.said);
        }
    }
    if let Some(whole) = whole {
        of_whole_batch(reader, &whole, micro.is_some(), steps.is_some());
    }
    let said = reader.take(&[&format!("{table}gradient_clipping")]);
    if let Some(said) = left_to_the_trainer(reader, said) {
        clips(reader, &said);
    }
}

/// What DeepSpeed makes of the batch of all GPUs: the one of micro-batch and accumulation that is not given, or the micro-batch
/// where neither is (deepspeed/runtime/config.py `_set_batch_related_parameters`).
fn of_whole_batch(reader: &mut Reader, whole: &Said, has_micro: bool, has_steps: bool) {
    if has_micro && has_steps {
        let of_each = reader.scenario.batch.saturating_mul(reader.scenario.accumulation).max(1);
        match whole.number().map(|number| number as u64) {
            Some(number)
                if !reader.has_taken("gpus") && number > of_each && number.is_multiple_of(of_each) =>
            {
                let said = format!("{}, divided by {of_each} of each GPU", whole.said);
                reader.set("gpus", &(number / of_each).to_string(), &said);
            }
            Some(_) | None => reader.idle.push(whole.said.clone()),
        }
        return;
    }
    number_of_gpus(reader);
    let gpus = reader.scenario.cluster.gpus.max(1);
    let (key, other, others_name) = match (has_micro, has_steps) {
        (true, _) => ("gradient-accumulation", reader.scenario.batch, "the micro-batch"),
        (false, true) => ("batch-size", reader.scenario.accumulation, "the accumulation"),
        (false, false) => ("batch-size", 1, "the accumulation"),
    };
    let divisor = gpus.saturating_mul(other.max(1));
    match whole.number() {
        Some(number) if number >= 1.0 && (number as u64).is_multiple_of(divisor) => {
            if !has_micro && !has_steps {
                reader.assume("gradient-accumulation", "1", "DeepSpeed's default");
            }
            let said = format!("{}, divided by {gpus} GPUs and {others_name} of {other}", whole.said);
            reader.set(key, &(number as u64 / divisor).to_string(), &said);
        }
        Some(_) | None => {
            let why = format!("this is no multiple of {gpus} GPUs and {others_name} of {other}");
            reader.leave(&whole.said, &why);
        }
    }
}

/// The setting where it is more than `"auto"`.
fn left_to_the_trainer(reader: &mut Reader, said: Option<Said>) -> Option<Said> {
    let said = said?;
    if said.text() != "auto" {
        return Some(said);
    }
    reader.idle.push(said.said);
    None
}
