//! How the work is shared: accelerate's YAML and DeepSpeed's JSON.

use super::Run;
use super::lines::Lines;
use crate::export::deepspeed;
use crate::export::fsdp::state_dict_type;
use crate::export::script;
use crate::issue::{Field, Issue};
use crate::scenario::{CpuOffload, Sharding, Stack};

pub(super) fn accelerate(run: &Run<'_>) -> Result<(String, String), Issue> {
    let cluster = run.scenario.cluster;
    if matches!(run.scenario.stack, Stack::Megatron | Stack::Torchtune | Stack::Torchtitan) {
        let who = run.scenario.stack.label();
        let message = format!(
            "{who} is started by torchrun and divides the model itself: accelerate's launcher would not"
        );
        return Err(Issue::error(Field::Stack, message)
            .with_fix("choose transformers, trl or Liger, or another file"));
    }
    let machines = cluster.machines();
    if run.scenario.trains_in_float8() {
        let message = "the launcher's own FP8 goes with neither bf16=True of the script nor the loading that this file asks for";
        return Err(Issue::error(Field::Float8, message)
            .with_fix("choose the Python file, which converts the layers"));
    }
    if !run.scenario.task.trains() {
        let issue = Issue::error(Field::Task, "accelerate launches a training, and this model generates");
        return Err(issue.with_fix("choose the Python file"));
    }
    // what it launches is a script like that file
    if let Some(issue) = script(run.scenario).err().filter(|issue| issue.field == Field::Task) {
        return Err(issue);
    }
    let mut lines = Lines::default();
    lines.set("compute_environment", "LOCAL_MACHINE");
    lines.set("debug", false);
    let kind = match (cluster.has_engine(), cluster.sharding) {
        (false, _) => "'NO'",
        // Megatron's distributed optimizer has no answer outside of Megatron-core
        (true, Sharding::Ddp | Sharding::Distributed) => "MULTI_GPU",
        (true, Sharding::Fsdp2) => "FSDP",
        (true, Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3) => "DEEPSPEED",
    };
    lines.set("distributed_type", kind);
    if cluster.is_fsdp2() {
        lines.table("fsdp_config", |lines| {
            lines.set("fsdp_version", 2);
            lines.set("fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
            if let Some(class) = run.architecture.told_layers() {
                lines.set("fsdp_transformer_layer_cls_to_wrap", class);
            }
            lines.set("fsdp_cpu_ram_efficient_loading", true);
            lines.set("fsdp_offload_params", cluster.cpu == CpuOffload::All);
            lines.set("fsdp_reshard_after_forward", cluster.reshards);
            lines.set("fsdp_state_dict_type", state_dict_type(run.scenario.gathers_saved()));
        });
    }
    let contexts = run.scenario.contexts();
    if cluster.is_fsdp2() && (cluster.replicas > 1 || contexts > 1) {
        lines.table("parallelism_config", |lines| {
            lines.set("parallelism_config_dp_replicate_size", cluster.replicas);
            lines.set("parallelism_config_dp_shard_size", cluster.gpus / cluster.replicas / contexts);
            lines.set("parallelism_config_tp_size", 1);
            lines.set("parallelism_config_cp_size", contexts);
        });
    }
    if let Some(stage) = deepspeed::stage(cluster) {
        lines.table("deepspeed_config", |lines| {
            lines.set("deepspeed_multinode_launcher", "standard");
            let (optimizer, weights) = deepspeed::offload(cluster.cpu);
            lines.set("offload_optimizer_device", if optimizer { "cpu" } else { "none" });
            lines.set("offload_param_device", if weights { "cpu" } else { "none" });
            lines.set("zero3_init_flag", stage == 3);
            lines.set("zero3_save_16bit_model", stage == 3 && run.scenario.saves_whole());
            lines.set("zero_stage", stage);
        });
    }
    lines.set("downcast_bf16", "'no'");
    if machines > 1 {
        lines.about("machine_rank: 0 on the first machine, 1 on the next and so on; main_process_ip: the first machine's address");
    }
    lines.set("machine_rank", 0);
    if machines > 1 {
        lines.set("main_process_ip", "FIRST_MACHINE");
        lines.set("main_process_port", 29_500);
    }
    lines.set("main_training_function", "main");
    let (bf16, fp16) = run.mixed();
    lines.set(
        "mixed_precision",
        match (bf16, fp16) {
            (true, _) => "bf16",
            (false, true) => "fp16",
            (false, false) => "'no'",
        },
    );
    lines.set("num_machines", machines);
    lines.set("num_processes", cluster.gpus);
    lines.set("rdzv_backend", "static");
    lines.set("same_network", true);
    lines.set("use_cpu", false);
    // Headroom's own Python file says all of this itself, and is started by torchrun or by nothing
    let command = format!(
        "{}accelerate launch --config_file accelerate.yaml your_script.py  # which has a Trainer or an Accelerator",
        run.variable(false)
    );
    Ok((command, lines.finish()))
}

pub(super) fn deepspeed(run: &Run<'_>) -> Result<(String, String), Issue> {
    let Some(file) = deepspeed::for_trainer(run.scenario) else {
        let issue =
            Issue::error(Field::Sharding, "DeepSpeed's file says how ZeRO shards, and nothing is sharded so");
        return Err(issue.with_fix("choose several GPUs and ZeRO"));
    };
    Ok((String::new(), format!("{file:#}\n")))
}
