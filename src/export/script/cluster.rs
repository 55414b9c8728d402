//! What a file for several GPUs has beside that for one: a process for each GPU, the engine that they share the model by.

use super::python::{Call, boolean, literal};
use super::run::{NAME, Run};
use crate::export::deepspeed;
use crate::model::vision::VisionCode;
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, CpuOffload, Method, ReduceDtype, Sharding, Task};

/// The inputs that such a file says.
pub(super) const SAID: &[&str] = &[
    "gpus",
    "gpus-per-node",
    "shard",
    "shard-alone",
    "reshard-after-forward",
    "reshard-root",
    "replicas",
    "reduce-dtype",
    "cpu-offload",
    "reduce-bucket",
    "prefetch-bucket",
    "persistence-threshold",
    "max-live-parameters",
    "contiguous-gradients",
    "overlap-comm",
];

/// All of the model on the process's GPU.
const ITS_GPU: &str = "{\"\": GPU}";

/// How several GPUs share a model in a loop of one's own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// `DistributedDataParallel`.
    Ddp,
    /// `fully_shard`.
    Fsdp2,
    /// DeepSpeed at that stage of ZeRO.
    Zero(u64),
}

impl Run<'_> {
    /// How several GPUs share the model; none where there is one.
    pub fn engine(&self) -> Option<Engine> {
        let cluster = self.scenario.cluster;
        cluster.has_engine().then(|| match (cluster.sharding, deepspeed::stage(cluster)) {
            (_, Some(stage)) => Engine::Zero(stage),
            (Sharding::Fsdp2, None) => Engine::Fsdp2,
            (_, None) => Engine::Ddp,
        })
    }

    /// Whether the file asks which of a machine's GPUs is its process's.
    pub fn asks_for_its_gpu(&self) -> bool {
        let is_loop = self.scenario.software().trainer == Trainer::Loop;
        let has_trainer = matches!(self.scenario.task, Task::Classify | Task::Embed);
        self.engine().is_some() && is_loop && !has_trainer || self.device_map() == Some(ITS_GPU)
    }

    /// The line that says which GPU is the process's under a trainer, where the file asks for it.
    pub fn its_gpu(&self) -> String {
        let line = "GPU = int(os.environ[\"LOCAL_RANK\"])\n";
        if self.asks_for_its_gpu() { line.to_owned() } else { String::new() }
    }

    /// The command that starts a process for each GPU; none where there is one.
    pub fn command(&self) -> Option<String> {
        let cluster = self.scenario.cluster;
        let (machines, each) = (cluster.machines(), cluster.gpus.max(1) / cluster.machines());
        match cluster.has_engine() {
            false => None,
            true if machines > 1 => Some(format!(
                "torchrun --nnodes {machines} --nproc-per-node {each} --rdzv-backend c10d --rdzv-endpoint FIRST_MACHINE:29500 {NAME} (on each)"
            )),
            true => Some(format!("torchrun --nproc-per-node {each} {NAME}")),
        }
    }

    /// `device_map`: the process's GPU, but for shards, which are made of a model in the CPU's memory.
    pub fn device_map(&self) -> Option<&'static str> {
        match self.engine() {
            None => Some(self.device().map()),
            Some(Engine::Ddp | Engine::Zero(1 | 2)) => Some(ITS_GPU),
            Some(Engine::Fsdp2) if self.scenario.method == Method::Qlora => Some("\"cpu\""),
            // under ZeRO-3 each weight is divided as soon as it is read
            Some(Engine::Fsdp2 | Engine::Zero(_)) => None,
        }
    }

    /// A line that says what loading takes where each process reads the whole model.
    pub fn loading(&self) -> String {
        let each = self.scenario.loaded_by_each(self.architecture.parameters());
        let line = |each| {
            format!(
                "# every process reads the whole model into the CPU's memory before it is sharded: {each} each\n"
            )
        };
        each.map(line).unwrap_or_default()
    }

    /// Whether the Trainer's arguments come before the model: under ZeRO-3 weights are divided as they are read, once these say so.
    pub fn says_arguments_first(&self) -> bool {
        let has_trainer =
            self.scenario.software().trainer == Trainer::Trl || self.scenario.task == Task::Classify;
        self.engine() == Some(Engine::Zero(3)) && has_trainer
    }

    /// What the Trainer's arguments say of the engine, for a call with them.
    pub fn engine_arguments(&self, call: Call) -> Call {
        let cluster = self.scenario.cluster;
        match self.engine() {
            None | Some(Engine::Ddp) => call,
            Some(Engine::Fsdp2) => {
                let states = self.saved_states();
                let told = self.architecture.told_layers().map(|class| {
                    // the others that the model names are not all there
                    format!(", \"transformer_layer_cls_to_wrap\": [\"{class}\"]")
                });
                let own = format!(
                    "{{\"reshard_after_forward\": {}{states}{}}}",
                    boolean(cluster.reshards),
                    told.unwrap_or_default()
                );
                let mesh = (cluster.replicas > 1).then(|| {
                    Call::new("ParallelismConfig")
                        .keyword("dp_replicate_size", cluster.replicas)
                        .keyword("dp_shard_size", cluster.gpus / cluster.replicas)
                        .written(1)
                });
                call.keyword("fsdp", "True")
                    .keyword("fsdp_config", own)
                    .keyword_if("parallelism_config", mesh)
            }
            Some(Engine::Zero(_)) => {
                let level = if self.says_arguments_first() { 1 } else { 2 };
                let file = deepspeed::for_trainer(self.scenario);
                call.keyword_if("deepspeed", file.map(|file| literal(&file, level)))
            }
        }
    }
}

impl Engine {
    /// What the loop needs installed beside what it needs on one GPU.
    pub fn package(self) -> Option<&'static str> {
        match self {
            Engine::Ddp | Engine::Fsdp2 => None,
            Engine::Zero(_) => Some("deepspeed==0.19.*"),
        }
    }

    /// What the loop imports.
    pub fn imports(self, cluster: Cluster) -> Vec<&'static str> {
        let mut lines = vec!["import torch.distributed as dist"];
        match self {
            Engine::Ddp => lines.push("from torch.nn.parallel import DistributedDataParallel"),
            Engine::Fsdp2 => {
                lines.push(
                    "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict",
                );
                if cluster.replicas > 1 {
                    lines.push("from torch.distributed.device_mesh import init_device_mesh");
                }
                lines.push(match cluster.cpu {
                    CpuOffload::Off => "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard",
                    CpuOffload::Optimizer | CpuOffload::All => {
                        "from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard"
                    }
                });
            }
            Engine::Zero(stage) => {
                lines.push("import deepspeed");
                if stage == 3 {
                    lines.push("from transformers.integrations import HfDeepSpeedConfig");
                }
            }
        }
        lines
    }

    /// Lines that join the other processes.
    pub fn join(self, run: &Run<'_>) -> String {
        let cluster = run.scenario.cluster;
        // FSDP2's clipping adds up norms where the gradients are
        let (device, own) = (run.device().name(), run.device().backend());
        let backend = match (self, cluster.cpu) {
            (Engine::Fsdp2, CpuOffload::Optimizer | CpuOffload::All) => format!("cpu:gloo,{device}:{own}"),
            _ => own.to_owned(),
        };
        let mut lines = format!(
            "GPU, RANK, WORLD = (int(os.environ[name]) for name in (\"LOCAL_RANK\", \"RANK\", \"WORLD_SIZE\"))\n\
             torch.{device}.set_device(GPU)\ndist.init_process_group(\"{backend}\")\n"
        );
        if let (Engine::Zero(stage), Some(zero)) = (self, deepspeed::zero_optimization(run.scenario)) {
            let clip = if run.scenario.training_loop.clips { "1.0" } else { "0.0" };
            let half = if run.scenario.precision.is_float16() { "fp16" } else { "bf16" };
            lines.push_str(&format!(
                "ZERO = {{\n    \"train_micro_batch_size_per_gpu\": BATCH,\n    \"gradient_accumulation_steps\": ACCUMULATION,\n    \
                 \"gradient_clipping\": {clip},\n    \"{half}\": {{\"enabled\": True}},\n    \"zero_allow_untested_optimizer\": True,\n    \
                 \"zero_optimization\": {},\n}}\n",
                literal(&zero, 1)
            ));
            if stage == 3 {
                lines.push_str("zero = HfDeepSpeedConfig(ZERO)  # weights are divided as they are read, as long as this is kept\n");
            }
        }
        lines
    }

    /// Lines that make the model the engine's.
    pub fn wrap(self, run: &Run<'_>) -> String {
        let (cluster, device) = (run.scenario.cluster, run.device().name());
        match self {
            Engine::Ddp => {
                let views = if cluster.bucket_views { ", gradient_as_bucket_view=True" } else { "" };
                format!("model = DistributedDataParallel(model, device_ids=[GPU]{views})\n")
            }
            Engine::Fsdp2 => {
                let half = run.compute();
                let reduce = match cluster.reduce {
                    ReduceDtype::Fp32 => "torch.float32",
                    ReduceDtype::Bf16 => half,
                };
                let policy = format!("MixedPrecisionPolicy(param_dtype={half}, reduce_dtype={reduce})");
                let mesh = (cluster.replicas > 1).then(|| {
                    let replicas = cluster.replicas;
                    format!("init_device_mesh(\"{device}\", ({replicas}, WORLD // {replicas}), mesh_dim_names=(\"replicate\", \"shard\"))")
                });
                let offload = (cluster.cpu != CpuOffload::Off).then_some("CPUOffloadPolicy()");
                let shared = Call::new("dict")
                    .keyword("mp_policy", policy)
                    .keyword_if("mesh", mesh)
                    .keyword_if("offload_policy", offload);
                let reshards = boolean(cluster.reshards);
                let root = match cluster.reshards_root {
                    true => format!(", reshard_after_forward={reshards}"),
                    false => String::new(),
                };
                // what embeds patches is named beside layers
                let code = run.architecture.vision().map(|(_, vision)| vision.code);
                let layers = match code.and_then(VisionCode::missing_layers) {
                    Some(_) => " and \"Embed\" not in type(module).__name__",
                    None => "",
                };
                format!(
                    "how = {}\nfor layer in [module for module in model.modules() if type(module).__name__ in model._no_split_modules{layers}]:\n    \
                     fully_shard(layer, reshard_after_forward={reshards}, **how)\nfully_shard(model{root}, **how)\n\
                     torch.{device}.empty_cache()  # the layers were there, one after the other, before their shards\n",
                    shared.written(0)
                )
            }
            // it wants the optimizer too
            Engine::Zero(_) => String::new(),
        }
    }

    /// Lines that save what was trained.
    pub fn save(self, method: Method) -> String {
        let adapts = method != Method::Full;
        let lines = match self {
            Engine::Ddp => "if RANK == 0:\n    model.module.save_pretrained(\"out\")\n".to_owned(),
            Engine::Fsdp2 => {
                let options = Call::new("StateDictOptions")
                    .keyword("full_state_dict", "True")
                    .keyword("cpu_offload", "True")
                    .keyword_if("ignore_frozen_params", adapts.then_some("True"));
                format!(
                    "state = get_model_state_dict(model, options={})\nif RANK == 0:\n    model.save_pretrained(\"out\", state_dict=state)\n",
                    options.written(0)
                )
            }
            Engine::Zero(3) => {
                let trained = if adapts { ", exclude_frozen_parameters=True" } else { "" };
                format!("engine.save_16bit_model(\"out\"{trained})\n")
            }
            Engine::Zero(_) => "if RANK == 0:\n    model.save_pretrained(\"out\")\n".to_owned(),
        };
        format!("{lines}dist.destroy_process_group()\n")
    }
}
