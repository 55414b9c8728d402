//! How many GPUs share the work and how: accelerate's YAML and options, DeepSpeed's JSON, `torchrun` and its like.

use super::reader::{Reader, Said, among};
use super::trainer::clips;
use crate::scenario::{Method, Precision, Stack};

const IDLE: &[&str] = &[
    "compute_environment",
    "debug",
    "downcast_bf16",
    "enable_cpu_affinity",
    "machine_rank",
    "main_*",
    "num_machines",
    "rdzv*",
    "same_network",
    "tpu_*",
    "use_cpu",
    "deepspeed_multinode_launcher",
    "zero3_init_flag",
    "zero3_save_16bit_model",
    "deepspeed_config.zero3*",
    "deepspeed_config.deepspeed_multinode_launcher",
    "gpu_ids",
    "dynamo_backend",
    "fsdp_config.fsdp_auto_wrap_policy",
    "fsdp_config.auto_wrap_policy",
    "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
    "fsdp_config.transformer_layer_cls_to_wrap",
    "fsdp_config.fsdp_cpu_ram_efficient_loading",
    "fsdp_config.cpu_ram_efficient_loading",
    "fsdp_config.fsdp_sync_module_states",
    "fsdp_config.sync_module_states",
    "fsdp_config.fsdp_use_orig_params",
    "fsdp_config.use_orig_params",
    "fsdp_config.fsdp_forward_prefetch",
    "fsdp_config.fsdp_backward_prefetch*",
    "fsdp_config.backward_prefetch",
    "fsdp_config.fsdp_limit_all_gathers",
    "fsdp_config.limit_all_gathers",
    "fsdp_config.fsdp_state_dict_type",
    "fsdp_config.state_dict_type",
    "fsdp_config.final_state_dict_type",
    "fsdp_config.fsdp_min_num_params",
    "multi_gpu",
    "m",
    "module",
    "standalone",
    "master_port",
    "master_addr",
    "node_rank",
    "num_cpu_threads_per_process",
];

const DEEPSPEED_IDLE: &[&str] = &[
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
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.cpu_offload_params",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.ignore_unused_parameters",
    "activation_checkpointing*",
    "flops_profiler*",
    "dump_state",
    "tensorboard*",
    "wandb*",
    "csv_monitor*",
    "comms_logger*",
    "prescale_gradients",
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

/// What a launcher's own file says.
pub(super) fn accelerate(reader: &mut Reader) {
    let kind = reader.take(&["distributed_type"]);
    let word = kind.as_ref().map(Said::text).unwrap_or_default();
    of_arguments(reader);
    match (word.as_str(), kind) {
        ("NO", Some(said)) => reader.set("gpus", "1", &said.said),
        ("MULTI_GPU", Some(said)) => reader.set("shard", "ddp", &said.said),
        ("FSDP" | "DEEPSPEED", Some(said)) => reader.idle.push(said.said),
        (_, Some(said)) => {
            reader.leave(&said.said, "of distributed types NO, MULTI_GPU, FSDP and DEEPSPEED are predicted")
        }
        (_, None) => {}
    }
    for name in ["megatron_lm_config.megatron_lm_tp_degree", "fp8_config.backend"] {
        reader.refuse(&[name], "this is not read here");
    }
}

/// The options and settings of a launcher wherever they stand: in a command line, among arguments, in a file of its own.
pub(super) fn of_arguments(reader: &mut Reader) {
    allocator(reader);
    if let Some(said) = reader.take(&["num_processes", "nproc_per_node", "num_gpus", "nproc-per-node"]) {
        let nodes =
            reader.take(&["nnodes", "num_nodes"]).and_then(|said| said.number()).unwrap_or(1.0).max(1.0);
        // accelerate counts the processes of all machines, torchrun those of each
        let each = if said.said.starts_with("num_processes") { 1.0 } else { nodes };
        match said.number() {
            Some(number) => reader.set("gpus", &(number * each).to_string(), &said.said),
            None => reader.leave(&said.said, "this is no number of GPUs"),
        }
    }
    shared_layers(reader);
    mixed(reader);
    fsdp(reader);
    plugin(reader);
    if !reader.given(&["zero_optimization.stage"]).is_empty() {
        deepspeed(reader);
    }
    let other = [
        "deepspeed",
        "deepspeed_config_file",
        "deepspeed_config.deepspeed_config_file",
        "config_file",
        "accelerate_config",
    ];
    if let Some(said) = reader.take(&other) {
        reader.leave(&said.said, "this is another file: read it too");
    }
    reader.pass(|name| among(IDLE, name));
}

/// Among how many GPUs transformers divides each layer: all of them where a plan says no number.
fn shared_layers(reader: &mut Reader) {
    let names = [
        "parallelism_config.parallelism_config_tp_size",
        "ParallelismConfig.tp_size",
        "DistributedConfig.tp_size",
        "tp_size",
    ];
    let plan = reader.take(&["DistributedConfig.tp_plan", "tp_plan"]);
    match (reader.take(&names), plan) {
        (Some(said), plan) => {
            reader.set("tp", &said.text(), &said.said);
            reader.idle.extend(plan.map(|plan| plan.said));
        }
        (None, Some(plan)) if plan.text() == "auto" && reader.scenario.cluster.is_many() => {
            let gpus = reader.scenario.cluster.gpus.to_string();
            reader.set("tp", &gpus, &plan.said);
        }
        (None, Some(plan)) if plan.text() == "auto" => {
            reader
                .leave(&plan.said, "how many GPUs share the layers is not known here: give --gpus and --tp");
        }
        (None, Some(plan)) => {
            reader.leave(&plan.said, "of plans the model's own is predicted (tp_plan=\"auto\")")
        }
        (None, None) => {}
    }
}

/// The variables that PyTorch's allocator reads.
pub(super) const ALLOCATOR: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// What one of them says, set before a command, in trl's `env:`, or in `os.environ`.
pub(super) fn allocator(reader: &mut Reader) {
    let all: Vec<String> =
        ALLOCATOR.iter().flat_map(|name| [(*name).to_owned(), format!("env.{name}")]).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let Some(said) = reader.take(&all) else { return };
    let text = said.text().to_ascii_lowercase();
    let (known, other): (Vec<&str>, Vec<&str>) =
        text.split(',').map(str::trim).partition(|part| part.starts_with("expandable_segments"));
    if let Some(part) = known.first() {
        reader.set("allocator", if part.ends_with("true") { "expandable" } else { "native" }, &said.said);
    }
    if other.iter().any(|part| !part.is_empty()) {
        reader.leave(&said.said, "of the allocator's options expandable_segments is predicted");
    }
}

/// accelerate's mixed precision over the weights that the model has.
fn mixed(reader: &mut Reader) {
    let Some(said) = reader.take(&["mixed_precision"]) else { return };
    let wide = match reader.scenario.precision {
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => true,
        Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights => false,
    };
    match (said.text().as_str(), wide) {
        ("bf16", true) => reader.set("precision", "amp-bf16", &said.said),
        ("bf16", false) => reader.set("precision", "amp-bf16-weights", &said.said),
        ("fp16", _) => reader.set("precision", "amp-fp16", &said.said),
        ("no" | "false", _) => reader.idle.push(said.said),
        _ => reader.leave(&said.said, "of mixed precisions bf16 and fp16 are predicted"),
    }
}

fn fsdp(reader: &mut Reader) {
    let flags = reader.take(&["fsdp", "use_fsdp"]);
    let version = reader.take(&["fsdp_config.fsdp_version", "fsdp_version", "fsdp_config.version"]);
    let strategy = reader.take(&[
        "fsdp_config.fsdp_sharding_strategy",
        "fsdp_sharding_strategy",
        "fsdp_config.sharding_strategy",
    ]);
    let reshards = reader.take(&[
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp_reshard_after_forward",
        "fsdp_config.reshard_after_forward",
    ]);
    if let Some(said) = reader.take(&[
        "fsdp_config.fsdp_activation_checkpointing",
        "fsdp_activation_checkpointing",
        "fsdp_config.activation_checkpointing",
    ]) {
        match said.switch() {
            Some(true) => reader.set("gradient-checkpointing", "on", &said.said),
            Some(false) | None => reader.idle.push(said.said),
        }
    }
    let on = flags.as_ref().is_some_and(|said| said.switch() != Some(false) && !said.text().is_empty());
    if !on && version.is_none() && strategy.is_none() && reshards.is_none() {
        return;
    }
    let said = version
        .as_ref()
        .or(strategy.as_ref())
        .or(flags.as_ref())
        .or(reshards.as_ref())
        .map(|said| said.said.clone())
        .unwrap_or_default();
    // `fsdp=True` and `fsdp="full_shard"` are of transformers 5, whose default is the second (`_process_fsdp_args`); a list is axolotl's
    let is_second = match &version {
        Some(version) => version.text() == "2",
        None => flags.as_ref().is_some_and(|said| !said.said.contains("use_fsdp") && !said.value.is_array()),
    };
    if !is_second {
        reader.leave(
            &said,
            "FSDP of the first version is predicted as FSDP2, which shards parameter by parameter",
        );
    }
    let words = [flags.as_ref().map(Said::text), strategy.as_ref().map(Said::text)];
    let words = words.into_iter().flatten().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    if words.contains("no_shard")
        || words.split_whitespace().any(|word| word == "3" || word == "no") && strategy.is_some()
    {
        reader.set("shard", "ddp", &said);
        return;
    }
    reader.set("shard", "fsdp2", &said);
    if words.contains("hybrid") {
        reader.leave(
            &said,
            "sharding within a node and copies beside it are not read here: sharded over all GPUs",
        );
    }
    match reshards {
        Some(said) => match (said.switch(), said.text().to_ascii_lowercase().as_str()) {
            (Some(on), _) => reader.set("reshard-after-forward", if on { "on" } else { "off" }, &said.said),
            (None, "full_shard") => reader.set("reshard-after-forward", "on", &said.said),
            (None, "shard_grad_op") => reader.set("reshard-after-forward", "off", &said.said),
            (None, _) => reader.leave(&said.said, "this is neither on nor off"),
        },
        None if words.contains("shard_grad_op") => reader.set("reshard-after-forward", "off", &said),
        None => reader.assume("reshard-after-forward", "on", "accelerate's default"),
    }
    if reader.scenario.precision == Precision::AmpBf16Weights {
        match (reader.scenario.method, reader.scenario.stack) {
            (Method::Full, _) => {
                // accelerate/utils/fsdp_utils.py `fsdp2_prepare_model`
                let why = "FSDP2 under mixed precision: accelerate makes what is trained float32 before it is sharded";
                reader.set("precision", "amp-bf16", why);
            }
            (Method::Lora, stack) if stack != Stack::Trl => {
                let why = "frozen bfloat16 weights in FSDP2's shards are predicted under trl alone";
                reader.assume("precision", "amp-bf16", why);
            }
            (Method::Lora | Method::Qlora, _) => {}
        }
    }
    match reader.switch(&[
        "fsdp_config.fsdp_offload_params",
        "fsdp_offload_params",
        "fsdp_config.offload_params",
        // transformers 5's own
        "fsdp_config.cpu_offload",
    ]) {
        Some((on, said)) => reader.set("cpu-offload", if on { "all" } else { "off" }, &said),
        None if words.contains("offload") => {
            reader.set("cpu-offload", "all", &flags.map_or(said, |flags| flags.said));
        }
        None => reader.assume("cpu-offload", "off", "accelerate's default"),
    }
}

/// DeepSpeed as accelerate's file has it.
fn plugin(reader: &mut Reader) {
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
    for said in [&optimizer, &weights].into_iter().flatten() {
        if !["cpu", "none"].contains(&said.text().as_str()) {
            return reader
                .leave(&said.said, "of the devices that DeepSpeed may offload to, the CPU is predicted");
        }
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
        Some(_) | None => reader.leave(&said.said, "ZeRO has the stages 0 to 3"),
    }
}

/// DeepSpeed's own JSON, whether it is a file or stands among arguments.
pub(super) fn deepspeed(reader: &mut Reader) {
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
    if let Some(said) = reader.take(&["zero_optimization.stage3_max_live_parameters"]) {
        whole(reader, "max-live-parameters", &said);
    }
    if let Some((on, said)) = reader.switch(&["zero_optimization.contiguous_gradients"]) {
        reader.set("contiguous-gradients", if on { "on" } else { "off" }, &said);
    }
    if let Some((on, said)) = reader.switch(&["zero_optimization.overlap_comm"]) {
        reader.set("overlap-comm", if on { "on" } else { "off" }, &said);
    }
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
    for name in [
        "zero_optimization.zero_hpz_partition_size",
        "zero_optimization.zero_quantized_weights",
        "zero_optimization.zero_quantized_gradients",
        "zero_optimization.mics_shard_size",
    ] {
        reader.refuse(&[name], "this is not predicted");
    }
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
                    None => reader.leave(&said.said, "this is neither on nor off"),
                }
            }
        }
    }
    if let Some(said) = reader.take(&["optimizer.type"]) {
        let word = said.text();
        match word.as_str() {
            "AdamW" | "Adam" => reader
                .leave(&said.said, "DeepSpeed's own FusedAdam is predicted as the optimizer that is chosen"),
            _ => reader.leave(&said.said, "this optimizer is not predicted"),
        }
    }
    reader.pass(|name| among(DEEPSPEED_IDLE, name));
}

/// A size in elements, which JSON may write as `5e8`.
fn whole(reader: &mut Reader, key: &str, said: &Said) {
    match said.number() {
        Some(number) if number >= 0.0 => reader.set(key, &(number as u64).to_string(), &said.said),
        Some(_) | None => reader.leave(&said.said, "this is no number of elements"),
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
