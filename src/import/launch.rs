//! How many GPUs share the work and how: accelerate's YAML and options, `torchrun` and its like.

use super::deepspeed;
use super::reader::{Reader, Said, among};
use super::shipped;
use super::trainer::number_of_gpus;
use super::visible::{self, DEEPSPEEDS, VISIBLE};
use crate::scenario::{Float8, Float8Layers, Mask, Method, Precision, Stack, WrappedBy};

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
    "deepspeed_config.zero3*",
    "deepspeed_config.deepspeed_multinode_launcher",
    "gpu_ids",
    "dynamo_config.*",
    // of a table `fsdp_config`, or with `fsdp_` before them
    "auto_wrap_policy",
    "transformer_layer_cls_to_wrap",
    "cpu_ram_efficient_loading",
    "sync_module_states",
    "use_orig_params",
    "forward_prefetch",
    "backward_prefetch*",
    "limit_all_gathers",
    "final_state_dict_type",
    "min_num_params",
    "multi_gpu",
    "m",
    "module",
    "standalone",
    "master_port",
    "master_addr",
    "node_rank",
    "num_cpu_threads_per_process",
];

/// What a launcher's own file says.
pub(super) fn accelerate(reader: &mut Reader) {
    let kind = reader.take(&["distributed_type"]);
    let word = kind.as_ref().map(Said::text).unwrap_or_default();
    compiled(reader);
    // copies of shards are told there, or are none
    reader.quietly("replicas", "1");
    reader.quietly("cp", "1");
    of_arguments(reader);
    match (word.as_str(), kind) {
        ("NO", Some(said)) => reader.set("gpus", "1", &said.said),
        ("MULTI_GPU", Some(said)) => reader.set("shard", "ddp", &said.said),
        ("FSDP" | "DEEPSPEED", Some(said)) => reader.idle.push(said.said),
        (_, Some(said)) => reader.keep(
            "shard",
            &said.said,
            "of distributed types NO, MULTI_GPU, FSDP and DEEPSPEED are predicted",
        ),
        (_, None) => {}
    }
}

/// How many GPUs a machine has where so many machines have all of them, unless that is what is counted with already.
pub(super) fn on_machines(reader: &mut Reader, machines: Option<f64>, said: &str) {
    let cluster = reader.scenario.cluster;
    let Some(machines) = machines.filter(|machines| *machines >= 1.0).map(|machines| machines as u64) else {
        return;
    };
    let each = cluster.gpus / machines;
    // numbers that are no whole machines are counted as one, which has more then
    if cluster.gpus.is_multiple_of(machines) && (cluster.machines() != machines || each > cluster.per_node) {
        reader.set("gpus-per-node", &each.to_string(), said);
    }
}

/// The options and settings of a launcher wherever they stand: in a command line, among arguments, in a file of its own.
pub(super) fn of_arguments(reader: &mut Reader) {
    let why =
        "transformers' Trainer has accelerate wrap the model (utils/fsdp_utils.py `fsdp2_prepare_model`)";
    of_arguments_wrapped(reader, (WrappedBy::Accelerate, why));
}

/// The same of a project that says who wraps what FSDP2 shards, and why.
pub(super) fn of_arguments_wrapped(reader: &mut Reader, wrapper: (WrappedBy, &str)) {
    allocator(reader);
    let processes = reader.take(&["num_processes", "nproc_per_node", "num_gpus", "nproc-per-node"]);
    let counted = processes.as_ref().map(|processes| processes.said.clone());
    if let Some(said) = processes {
        let nodes = reader.take(&["nnodes", "num_nodes"]).map_or(Some(1.0), |nodes| {
            let number = nodes.number();
            if number.is_none() {
                reader.keep("gpus", &nodes.said, "this is no number of machines: one is taken");
            }
            number
        });
        let nodes = nodes.unwrap_or(1.0).max(1.0);
        // accelerate counts the processes of all machines, torchrun those of each
        let counts_all = said.said.starts_with("num_processes");
        match said.number() {
            Some(number) if counts_all => {
                reader.set("gpus", &number.to_string(), &said.said);
                if let Some(machines) = reader.named(&["num_machines"]).pop() {
                    on_machines(reader, machines.number(), &machines.said);
                }
            }
            Some(number) => {
                reader.set("gpus", &(number * nodes).to_string(), &said.said);
                on_machines(reader, Some(nodes), &said.said);
            }
            None => reader.keep("gpus", &said.said, "this is no number of GPUs"),
        }
    }
    if let (None, Some(said)) = (&counted, reader.take(&[VISIBLE, DEEPSPEEDS])) {
        match visible::count(&said.text()) {
            Some(number) => reader.set("gpus", &number.to_string(), &said.said),
            None => reader.keep("gpus", &said.said, "how many GPUs these are is not said"),
        }
    }
    shared_layers(reader);
    mixed(reader);
    fsdp(reader, wrapper, counted.as_deref());
    mesh(reader, counted.is_some());
    deepspeed::plugin(reader);
    if !reader.given(&["zero_optimization.stage"]).is_empty() {
        deepspeed::read(reader);
    }
    if let Some(said) = reader.take(&shipped::FILES) {
        if let Some(engine) = shipped::engine_by_name(&said.text()) {
            reader.assume("shard", engine, &format!("{}: by the file's name", said.said));
        }
        reader.leave(&said.said, "this is another file: read it too");
    }
    number_of_gpus(reader);
    // among arguments as in the file's own table
    let name = |name: &str| name.trim_start_matches("fsdp_config.").trim_start_matches("fsdp_").to_owned();
    reader.pass(|given| among(IDLE, &name(given)));
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

/// The other dimensions of accelerate's mesh (`ParallelismConfig`), in its own file, in options and in the call. Where no launcher says how
/// many GPUs there are, it does: all of them are in it (accelerate 1.15 parallelism_config.py `_validate_accelerator`).
fn mesh(reader: &mut Reader, are_counted: bool) {
    let names = |size: &str| {
        let prefixed = format!("parallelism_config_{size}");
        [format!("parallelism_config.{prefixed}"), prefixed, format!("ParallelismConfig.{size}")]
    };
    let why = "each GPU has its part of every sequence by DeepSpeed's Ulysses, which is not followed";
    shared_sequences(reader, &names("sp_size").each_ref().map(String::as_str), why);
    let rings = take_ring(reader, &names("cp_size"), &names("cp_comm_strategy"));
    let mut take = |size: &str| reader.take(&names(size).each_ref().map(String::as_str));
    let (copies, shards) = (take("dp_replicate_size"), take("dp_shard_size"));
    let number = |said: &Option<Said>| said.as_ref().and_then(Said::number).map_or(1, |number| number as u64);
    if !are_counted && (shards.is_some() || rings.is_some()) {
        let parts = reader.scenario.cluster.layout.tensor.max(1).saturating_mul(number(&rings));
        let gpus = number(&copies).saturating_mul(number(&shards)).saturating_mul(parts);
        let said: Vec<&str> =
            [&copies, &shards, &rings].into_iter().flatten().map(|said| said.said.as_str()).collect();
        reader.set("gpus", &gpus.to_string(), &said.join(", "));
    }
    match copies {
        Some(copies) if number(&Some(copies.clone())) > 1 && reader.scenario.cluster.is_fsdp2() => {
            reader.set("replicas", &copies.text(), &copies.said);
        }
        copies => reader.idle.extend(copies.map(|copies| copies.said)),
    }
    reader.idle.extend(shards.map(|shards| shards.said));
    // how those that share a sequence talk
    for rest in ["cp_backend", "sp_backend", "sp_seq_length_is_variable"] {
        let said = reader.take_each(&names(rest).each_ref().map(String::as_str));
        reader.idle.extend(said.into_iter().map(|said| said.said));
    }
}

/// Among how many GPUs PyTorch's ring divides each sequence, where there are several; how they talk is told beside it.
fn take_ring(reader: &mut Reader, sizes: &[String; 3], talks: &[String; 3]) -> Option<Said> {
    let [sizes, talks] = [sizes, talks].map(|names| names.each_ref().map(String::as_str));
    let (said, talk) = (reader.take(&sizes), reader.take(&talks));
    let Some(said) = said.filter(|said| said.number().is_none_or(|size| size > 1.0)) else {
        reader.idle.extend(talk.map(|talk| talk.said));
        return None;
    };
    reader.set("cp", &said.text(), &said.said);
    match talk {
        Some(talk) if talk.text() == "alltoall" => {
            let why = "keys and values are gathered of all GPUs at once here (allgather, the default): passing them on needs less";
            reader.leave(&talk.said, why);
        }
        talk => reader.idle.extend(talk.map(|talk| talk.said)),
    }
    if reader.scenario.software().runs_loop() && reader.scenario.mask == Mask::None {
        reader.assume("mask", "ones", "texts of one length, beside which collators give a mask of ones");
    }
    Some(said)
}

/// GPUs that share sequences, as these settings say: a run that has no answer where there are several.
pub(super) fn shared_sequences(reader: &mut Reader, names: &[&str], why: &str) {
    if let Some(size) = reader.divides(names, why) {
        reader.quietly("cp", &size.to_string());
    }
}

/// What accelerate compiles: all of the model, or with `use_regional_compilation` each layer and each module beside them.
fn compiled(reader: &mut Reader) {
    let regional = reader
        .take(&["dynamo_config.dynamo_use_regional_compilation", "dynamo_config.use_regional_compilation"]);
    let regional = regional.filter(|said| said.text().eq_ignore_ascii_case("true"));
    let backend = reader.take(&["dynamo_config.dynamo_backend", "dynamo_backend"]);
    let Some(backend) = backend else { return };
    match backend.text().to_ascii_lowercase().as_str() {
        "no" => reader.idle.push(backend.said),
        _ => reader.leave(
            &regional.map_or(backend.said, |said| said.said),
            "a step that accelerate compiles is not predicted: layer.compile() for each decoder layer is (compile: layers), and model.compile() (compile: model)",
        ),
    }
}

/// The variables that PyTorch's allocator reads.
pub(super) const ALLOCATOR: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// The variable with which Unsloth's vLLM gives its keys and values back while the model is trained.
pub(super) const STANDBY: &str = "UNSLOTH_VLLM_STANDBY";
/// The variable that switches off that Unsloth compiles layers.
pub(super) const UNCOMPILED: &str = "UNSLOTH_COMPILE_DISABLE";
/// What of a program's environment a run's memory depends on.
pub(super) const ENVIRONMENT: [&str; 5] = [ALLOCATOR[0], ALLOCATOR[1], STANDBY, UNCOMPILED, VISIBLE];

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
        Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => false,
    };
    match (said.text().as_str(), wide) {
        ("fp8", _) => float8(reader, &said.said, wide),
        ("bf16", true) => reader.set("precision", "amp-bf16", &said.said),
        ("bf16", false) => reader.set("precision", "amp-bf16-weights", &said.said),
        ("fp16", _) => reader.set("precision", "amp-fp16", &said.said),
        ("no" | "false", _) => reader.idle.push(said.said),
        _ => reader.keep(
            "precision",
            &said.said,
            "of mixed precisions bf16, fp16 and torchao's fp8 are predicted",
        ),
    }
}

/// Products in 8 bits, which run under autocast to bfloat16: torchao's, with accelerate's own settings where none are said
/// (accelerate 1.15 utils/dataclasses.py `AORecipeKwargs`).
fn float8(reader: &mut Reader, said: &str, wide: bool) {
    match reader.take(&["fp8_config.backend", "fp8_config.fp8_backend", "fp8_backend"]) {
        Some(backend) if backend.text().eq_ignore_ascii_case("ao") => reader.idle.push(backend.said),
        Some(backend) => {
            let both = format!("{said}, {}", backend.said);
            return reader
                .leave(&both, "of FP8's backends torchao (AO) is followed: it is predicted without FP8");
        }
        None => {
            return reader.leave(said, "which of FP8's backends runs is not said: torchao (AO) is followed, and it is predicted without FP8");
        }
    }
    reader.set("precision", if wide { "amp-bf16" } else { "amp-bf16-weights" }, said);
    reader.set("float8", Float8::Tensorwise.slug(), said);
    reader.quietly("float8-layers", Float8Layers::Inner.slug());
    for (key, name) in
        [("float8-padding", "pad_inner_dim"), ("float8-gather", "enable_fsdp_float8_all_gather")]
    {
        let names = [format!("fp8_config.{name}"), format!("fp8_config.fp8_{name}"), format!("fp8_{name}")];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        reader.or_assume(key, &names, "on", "accelerate's default");
    }
}

/// Shards within each machine and copies from one to the next, which the first FSDP has as a strategy. Of the second accelerate reads none
/// (1.15 utils/dataclasses.py `FullyShardedDataParallelPlugin`).
fn hybrid(reader: &mut Reader, said: &str, is_second: bool) {
    let machines = reader.named(&["num_machines"]).pop().and_then(|said| said.number());
    match machines {
        _ if is_second => reader.misread(
            said,
            "the second FSDP has no strategies: dp_replicate_size asks for copies, and without it all GPUs share one",
        ),
        Some(machines) if machines > 1.0 => reader.set("replicas", &machines.to_string(), said),
        Some(_) => reader.quietly("replicas", "1"),
        None => reader.misread(
            said,
            "sharding within a machine and copies beside it: how many machines there are is not said here, and it is sharded over all GPUs",
        ),
    }
}

/// Where the version of FSDP is said.
pub(super) const FSDP_VERSIONS: &[&str] =
    &["fsdp_config.fsdp_version", "fsdp_version", "fsdp_config.version"];

fn fsdp(reader: &mut Reader, (wrapper, why): (WrappedBy, &str), processes: Option<&str>) {
    let flags = reader.take(&["fsdp", "use_fsdp"]);
    let version = reader.take(FSDP_VERSIONS);
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
    if let (Some(processes), true) = (processes, is_second && wrapper == WrappedBy::Accelerate) {
        // the launcher starts one process as it starts several
        let is_alone = reader.scenario.cluster.gpus == 1;
        if is_alone {
            reader.set("shard-alone", "on", processes);
        } else {
            reader.quietly("shard-alone", "off");
        }
    }
    if words.contains("hybrid") {
        hybrid(reader, strategy.as_ref().or(flags.as_ref()).map_or(&said, |said| &said.said), is_second);
    }
    match reshards {
        Some(said) => match (said.switch(), said.text().to_ascii_lowercase().as_str()) {
            (Some(on), _) => reader.set("reshard-after-forward", if on { "on" } else { "off" }, &said.said),
            (None, "full_shard") => reader.set("reshard-after-forward", "on", &said.said),
            (None, "shard_grad_op") => reader.set("reshard-after-forward", "off", &said.said),
            (None, _) => reader.keep("reshard-after-forward", &said.said, "this is neither on nor off"),
        },
        None if words.contains("shard_grad_op") => reader.set("reshard-after-forward", "off", &said),
        None => reader.assume("reshard-after-forward", "on", "accelerate's default"),
    }
    if reader.scenario.software().runs_loop() {
        reader.assume("wrapped-by", wrapper.slug(), why);
    }
    if reader.scenario.precision == Precision::AmpBf16Weights
        && (reader.scenario.method, reader.scenario.stack) == (Method::Full, Stack::Trl)
    {
        let why =
            "FSDP2 under mixed precision: accelerate makes what is trained float32 before it is sharded";
        reader.set("precision", "amp-bf16", why);
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
