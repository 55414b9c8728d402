//! What is good to know of several GPUs.

use crate::hardware::Vendor;
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Mixer, Rotary};
use crate::model::modeling::{Code, FloatRotary, Router, lies_idle};
use crate::scenario::keys::{Key, keys};
use crate::scenario::software::{HeadCode, Trainer};
use crate::scenario::{
    AttentionKernel, Checkpointing, Cluster, CpuOffload, Field, Issue, Lengths, LossKernel, Mask, Method,
    Optimizer, Scenario, Severity, Sharding, Stack, Task, TransformerImpl, WrappedBy,
};
use crate::units::{Between, grouped};

/// What has to be asked of bitsandbytes for its weights to be sharded.
const SHARDED_4BIT: &str = "4-bit weights are sharded where they are stored in the type of the computation \
                            (bnb_4bit_quant_storage) and loaded on the CPU (device_map=\"cpu\"); their \
                            scales are whole on each GPU";

/// Adds what is good to know of several GPUs.
pub(super) fn issues(scenario: &Scenario, architecture: Option<&Architecture>, issues: &mut Vec<Issue>) {
    if scenario.stack == Stack::Megatron {
        let message = match scenario.cluster.layout.layers {
            TransformerImpl::Local => {
                "these are Megatron-core's local layers with unfused attention, without sequence parallelism; Transformer \
                 Engine's keep less, and so do stages whose outputs are freed once they are sent \
                 (deallocate_pipeline_outputs)"
            }
            TransformerImpl::TransformerEngine => {
                "these are Transformer Engine's layers as Megatron-LM runs them by default; cuDNN's attention, fused rotary \
                 positions, SwiGLU and gradient accumulation (Apex), FusedAdam, stages' outputs freed once they are sent; \
                 communication is not overlapped with products, and no mask comes with the batch \
                 (--no-create-attention-mask-in-dataloader)"
            }
        };
        issues.push(Issue::new(Severity::Note, Field::Stack, message));
        issues.extend(architecture.and_then(filled_up));
        issues.extend(idle_stages(scenario));
        issues.extend(two_in_turns(scenario));
        if scenario.cluster.layout.has_transformer_engine()
            && scenario.gpu().ok().and_then(|gpu| gpu.capability).is_some_and(|own| own.major < 8)
        {
            let message = "cuDNN's attention under Transformer Engine asks for Ampere or newer";
            issues
                .push(Issue::error(Field::TransformerImpl, message).with_fix("choose Megatron's own layers"));
        }
        issues.extend(architecture.and_then(|architecture| written_out(scenario, architecture)));
    }
    issues.extend(nothing_to_offload(scenario));
    issues.extend(without_effect(scenario));
    issues.extend(alone_without_offload(scenario));
    if scenario.cluster.is_many() {
        if scenario.gpu().is_ok_and(|gpu| gpu.vendor == Vendor::Apple) {
            let message = "PyTorch has no collectives for Apple's GPUs: several Macs do not train one model";
            issues.push(Issue::error(Field::Gpus, message).with_fix("use one"));
        }
        issues.push(of_nccl(scenario));
        issues.extend(uneven_machines(scenario.cluster));
        let parts = scenario.divided().tensor;
        if scenario.stack == Stack::Transformers && parts > 1 {
            let alone = if parts == scenario.cluster.gpus {
                "; norms, and an embedding that is not the head, are no DTensors: AdamW over all in one go and clip_grad_norm_ stop (\"got \
                 mixed torch.Tensor and DTensor\"), so that both are followed as two groups; transformers' Trainer steps one by one \
                 (adamw-for-loop)"
            } else {
                "; clip_grad_norm_ stops over two meshes and is followed as two norms, and accelerate 1.15 stops at transformers 5.17 \
                 here (it looks for ReplicateParallel): this is fully_shard over the first dimension of a mesh"
            };
            let message = format!(
                "{} GPUs share each layer by transformers' own plan (tp_plan=\"auto\"); they share the head, whose logits are gathered \
                 whole on each{alone}",
                grouped(parts)
            );
            issues.push(Issue::new(Severity::Note, Field::TensorParallel, message));
        }
    }
    if scenario.cluster.has_engine() {
        let is_float16 = scenario.precision.is_float16();
        let half = if is_float16 { "float16" } else { "bfloat16" };
        match scenario.cluster.sharding {
            Sharding::Ddp | Sharding::Distributed => {}
            Sharding::Fsdp2 => {
                let Cluster { gpus, replicas, .. } = scenario.cluster;
                if !scenario.cluster.has_whole_replicas() {
                    let message =
                        format!("{} GPUs are not {} replicas of shards", grouped(gpus), grouped(replicas));
                    let fix =
                        "use a number that divides the GPUs and leaves each replica two of them or more";
                    issues.push(Issue::error(Field::Replicas, message).with_fix(fix));
                }
                let after =
                    if scenario.cluster.reshards { "resharded after forward" } else { "kept after forward" };
                let message = match (scenario.software().trainer, scenario.wrapper()) {
                    (Trainer::Trl, _) | (Trainer::Loop, WrappedBy::Accelerate) => format!(
                        "FSDP2 as accelerate runs it; fully_shard (fsdp_version: 2, TRANSFORMER_BASED_WRAP), {after}: trained shards \
                         are float32 under mixed precision, gradients are summed in {half} and kept whole until the last \
                         micro-batch, and the output head stays gathered from forward to backward"
                    ),
                    (Trainer::Torchtune, _) => format!(
                        "FSDP2 as torchtune's distributed recipes run it; fully_shard (torchtune.training.shard_model), {after}: without a \
                         policy of mixed precision, gathered, computed and summed in the weights' type, and reduced in every micro-batch"
                    ),
                    (Trainer::Torchtitan, _) => format!(
                        "FSDP2 as torchtitan runs it; fully_shard on the embedding, on every layer and on last norm and head together, {after}, \
                         but for the last, which stays gathered: float32 shards, gradients summed in float32 and reduced in every micro-batch"
                    ),
                    (Trainer::Loop, WrappedBy::Axolotl) => format!(
                        "FSDP2 as axolotl runs it; fully_shard (fsdp_version: 2, TRANSFORMER_BASED_WRAP, cpu_ram_efficient_loading), {after}, \
                         the root as the layers: shards, gradients and states have the type that the weights were loaded in, gradients are kept \
                         whole until the last micro-batch"
                    ),
                    (Trainer::Loop, WrappedBy::Loop) | (Trainer::Megatron, _) => format!(
                        "FSDP2 in a training loop of your own; fully_shard with MixedPrecisionPolicy(param_dtype=torch.{half}) on every layer and the model, \
                         {after}; what accelerate adds is followed with wrapped-by accelerate, and with trl as the training library"
                    ),
                };
                issues.push(Issue::new(Severity::Note, Field::Sharding, message));
                if scenario.method == Method::Qlora && scenario.stack != Stack::Torchtune {
                    issues.push(Issue::new(Severity::Note, Field::Method, SHARDED_4BIT));
                }
                issues.extend(architecture.and_then(|architecture| told_layers(scenario, architecture)));
            }
            Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => {
                let message = format!(
                    "DeepSpeed with {}: {{enabled: true}}; parameters and gradients are {half} and its masters float32, whatever \
                     the weights were loaded in; sizes that a configuration leaves out are DeepSpeed's own, which \"auto\" in one for \
                     transformers makes smaller",
                    if is_float16 { "fp16" } else { "bf16" }
                );
                issues.push(Issue::new(Severity::Note, Field::Sharding, message));
                issues.extend(stays_whole(scenario));
            }
        }
        issues.extend(architecture.and_then(|architecture| uneven_experts(scenario, architecture)));
        issues.extend(architecture.and_then(|architecture| recomputed_otherwise(scenario, architecture)));
        let others = not_compared(scenario, architecture);
        if !others.is_empty() {
            let message = format!("not compared with the engine's own code: {}", others.join(", "));
            issues.push(Issue::warning(Field::Sharding, message));
        }
    }
}

/// Latent attention on cards for which cuDNN has none whose values are narrower than its keys: it was run.
fn written_out(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    let is_latent = architecture.blocks.iter().any(|block| matches!(block.mixer, Mixer::Latent(_)));
    let is_before_hopper =
        scenario.gpu().ok().and_then(|gpu| gpu.capability).is_some_and(|own| own.major < 9);
    if !(is_latent && is_before_hopper && scenario.cluster.layout.has_transformer_engine()) {
        return None;
    }
    let message = "before Hopper cuDNN has no attention whose values are narrower than its keys: Transformer Engine writes latent attention \
                   out there, with scores for each head, which is not followed";
    Some(Issue::error(Field::Gpu, message).with_fix("choose a Hopper or a newer card"))
}

/// A pipeline with fewer micro-batches than stages, of which the first keeps less than in any run that is worth its GPUs.
fn idle_stages(scenario: &Scenario) -> Option<Issue> {
    let (stages, batches) = (scenario.cluster.layout.pipeline, scenario.accumulation);
    let go = match batches {
        1 => "1 micro-batch of a step goes".to_owned(),
        more => format!("{} micro-batches of a step go", grouped(more)),
    };
    let message = format!(
        "{go} through {} stages, most of which wait: runs have as many micro-batches as stages or more, and the first stage keeps the activations of \
         as many",
        grouped(stages)
    );
    let fix = format!("accumulate the gradients of {} micro-batches or more", grouped(stages));
    (batches < stages).then(|| Issue::warning(Field::Accumulation, message).with_fix(fix))
}

/// Two stages that take turns, which Megatron-LM's checks allow only where what they send overlaps what they compute.
fn two_in_turns(scenario: &Scenario) -> Option<Issue> {
    let layout = scenario.cluster.layout;
    let message = "Megatron-LM interleaves two stages only where what they send overlaps what they compute (megatron/training/arguments.py), which is not \
                   followed: this is what Megatron-core's own schedule takes";
    let is_so = layout.pipeline == 2 && layout.interleaved > 0;
    is_so.then(|| {
        Issue::warning(Field::Interleaved, message)
            .with_fix("choose more stages, or run a stage's layers at once")
    })
}

/// How experts are given tokens under Megatron-core: as many to each, or what the router chose, taken to be as many too.
fn filled_up(architecture: &Architecture) -> Option<Issue> {
    let has_experts = architecture.has_experts();
    let is_padded = architecture.family.is_some_and(|family| family.modeling.router == Router::SoftGroups);
    let message = if is_padded {
        "each expert is given as many tokens (--moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity); without, a GPU \
         whose experts are chosen more often needs more. Tokens go by all-to-all (--moe-token-dispatcher-type alltoall), experts are \
         grouped products (--moe-grouped-gemm), tokens are permuted by one kernel (--moe-permute-fusion), a loss balances each \
         sequence (seq_aux_loss)"
    } else {
        "experts are given what the router chose, taken to be as many tokens for each, as the loss that balances them (aux_loss) aims at; \
         a GPU whose experts are chosen more often needs more. Tokens go by all-to-all (--moe-token-dispatcher-type alltoall), experts \
         are grouped products (--moe-grouped-gemm), tokens are permuted and sorted by kernels (--moe-permute-fusion), as \
         Megatron-Bridge sets it for Qwen3-MoE. GPUs that share a layer share each expert too, as without --expert-tensor-parallel-size"
    };
    has_experts.then(|| Issue::new(Severity::Note, Field::ExpertParallel, message))
}

/// What reentrant checkpoints beside adapters leave on each GPU under ZeRO-3.
fn stays_whole(scenario: &Scenario) -> Option<Issue> {
    let is_so = scenario.cluster.has_engine()
        && scenario.cluster.sharding == Sharding::Zero3
        && scenario.method.has_adapters()
        && scenario.task.trains()
        && scenario.checkpoints() == Checkpointing::Reentrant;
    let why = if scenario.checkpointing == Checkpointing::Reentrant {
        "beside adapters under ZeRO-3 a reentrant checkpoint"
    } else {
        "beside adapters trl makes checkpointing reentrant under ZeRO-3, which"
    };
    let message = format!(
        "{why} leaves the frozen weights gathered that it runs a layer again with, until backward is over: each GPU has the whole model by then \
         (DeepSpeed 0.19.8)"
    );
    let fix = if scenario.checkpointing == Checkpointing::Reentrant {
        "choose checkpoints that are not reentrant"
    } else {
        "train with transformers' Trainer, whose checkpoints are not reentrant"
    };
    is_so.then(|| Issue::new(Severity::Note, Field::Checkpointing, message).with_fix(fix))
}

/// Settings of engines, which other engines do not have.
const OF_ENGINES: [Field; 21] = [
    Field::BucketViews,
    Field::Reshards,
    Field::ReshardsRoot,
    Field::ShardedLayers,
    Field::WrappedBy,
    Field::Replicas,
    Field::ReduceDtype,
    Field::SequenceParallel,
    Field::ContextComm,
    Field::GradientFusion,
    Field::Interleaved,
    Field::FirstStage,
    Field::LastStage,
    Field::CountsEmbedding,
    Field::CountsLoss,
    Field::ReduceBucket,
    Field::PrefetchBucket,
    Field::Persistence,
    Field::LiveParameters,
    Field::ContiguousGradients,
    Field::OverlapComm,
];

/// Those that were asked for where several GPUs run another engine: they change nothing there.
fn without_effect(scenario: &Scenario) -> Option<Issue> {
    if !scenario.cluster.is_many() {
        return None;
    }
    let usual = [Scenario::default(), scenario.defaults()];
    let asked = |key: &Key| {
        OF_ENGINES.contains(&key.field)
            && !key.matters(scenario)
            && !usual.iter().any(|usual| key.is_same(scenario, usual))
    };
    let asked: Vec<&Key> = keys().filter(|key| asked(key)).collect();
    let field = asked.first()?.field;
    let named: Vec<String> =
        asked.iter().map(|key| format!("{} ({})", key.name, key.words(scenario))).collect();
    let engine = match scenario.stack {
        Stack::Megatron => Stack::Megatron.label(),
        _ => scenario.cluster.sharding.label(),
    };
    let message = format!("without effect under {engine}: {}", named.join(", "));
    Some(Issue::warning(field, message).with_fix("leave them out, or choose the engine that has them"))
}

/// What CPU offload comes to where there are no shards: only FSDP2's and DeepSpeed's are laid into the CPU's memory.
fn nothing_to_offload(scenario: &Scenario) -> Option<Issue> {
    let Cluster { cpu, sharding, .. } = scenario.cluster;
    if cpu == CpuOffload::Off || scenario.cluster.is_fsdp2() || scenario.cluster.is_zero() {
        return None;
    }
    let (who, fix) = match scenario.cluster.is_many() {
        true => (sharding.label(), "choose fsdp2 or one of DeepSpeed's stages"),
        false => ("a single GPU", "choose one of DeepSpeed's stages, or several GPUs"),
    };
    let message =
        format!("{who} has no shards to lay into the CPU's memory: the figures are without CPU offload");
    Some(Issue::warning(Field::CpuOffload, message).with_fix(fix))
}

/// DeepSpeed on a single GPU that keeps everything there, which is answered for without it.
fn alone_without_offload(scenario: &Scenario) -> Option<Issue> {
    let Cluster { cpu, sharding, .. } = scenario.cluster;
    let is_zero = matches!(sharding, Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3);
    (is_zero && cpu == CpuOffload::Off && scenario.offloads_alone()).then(|| {
        let message = "DeepSpeed on a single GPU is followed where it lays something into the CPU's memory: these figures are without it";
        Issue::warning(Field::Sharding, message).with_fix("offload something, or choose DDP")
    })
}

/// Positions in float32 that FSDP2's policy makes bfloat16 on the way into a layer (`cast_forward_inputs`), but not when the layer is
/// recomputed, at which torch.utils.checkpoint stops: it was run.
pub(super) fn recomputed_otherwise(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    let gives_float32 = architecture.family.is_some_and(|family| match family.modeling.float_rotary {
        FloatRotary::Promoted | FloatRotary::Pairs => true,
        // cosines and sines are of the weights' type
        FloatRotary::CastFirst | FloatRotary::CastTwice => false,
    });
    let in_float32 = gives_float32
        && architecture.blocks.iter().any(
            |block| matches!(&block.mixer, Mixer::Attention(attention) if attention.rotary == Rotary::Float32),
        );
    let by_loop = scenario.software().trainer == Trainer::Loop && scenario.wrapper() == WrappedBy::Loop;
    let recomputes = scenario.checkpointing == Checkpointing::NonReentrant && scenario.task.trains();
    if !(in_float32 && by_loop && recomputes && scenario.cluster.is_fsdp2()) {
        return None;
    }
    let message = format!(
        "{} computes its rotary embedding in float32, which FSDP2 casts in forward and not when a layer is recomputed: PyTorch stops in the \
         first backward pass (CheckpointError)",
        architecture.model_type
    );
    let fix = "choose no gradient checkpointing, or ZeRO-3";
    Some(Issue::warning(Field::Checkpointing, message).with_fix(fix))
}

/// What lies outside of PyTorch's allocator for the GPUs to send each other something.
fn of_nccl(scenario: &Scenario) -> Issue {
    let Between { least, most } = scenario.nccl();
    let message = format!(
        "NCCL may take {least} to {most} more of each GPU; its buffers are outside of what is needed: {} ({}); an answer that only fits while they \
         take less is called close",
        scenario.communicators_in_words(),
        scenario.nccl_source()
    );
    Issue::new(Severity::Note, Field::Gpus, message)
}

/// More GPUs than a machine has that are not as many on each of several.
fn uneven_machines(cluster: Cluster) -> Option<Issue> {
    if cluster.machines() > 1 || cluster.gpus <= cluster.per_node {
        return None;
    }
    let message = format!(
        "{} GPUs are not as many on each of several machines of {}: they are counted as those of one machine",
        grouped(cluster.gpus),
        grouped(cluster.per_node)
    );
    let fix = format!("use a multiple of {}, or another number of GPUs per node", grouped(cluster.per_node));
    Some(Issue::warning(Field::GpusPerNode, message).with_fix(fix))
}

/// Experts that do not divide among the GPUs: FSDP2 cuts their tensor along the first dimension, which is their number
/// (torch/distributed/fsdp/_fully_shard/_fsdp_param.py `_init_sharded_param`).
fn uneven_experts(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    let Cluster { gpus, replicas, .. } = scenario.cluster;
    let shards = gpus / replicas.max(1);
    let experts = architecture.blocks.iter().find_map(|block| match &block.ffn {
        FeedForward::Moe(moe) => Some(moe.experts),
        FeedForward::Dense(_) | FeedForward::None => None,
    })?;
    if !scenario.cluster.is_fsdp2() || shards < 2 || experts.is_multiple_of(shards) {
        return None;
    }
    let (each, without) = (experts.div_ceil(shards), shards - experts.div_ceil(experts.div_ceil(shards)));
    let idle = match without {
        0 => "the last has fewer".to_owned(),
        without => format!("{} of them have none", grouped(without)),
    };
    let message = format!(
        "FSDP2 cuts experts between one and the next: of {} among {} GPUs one keeps {}, and {idle}",
        grouped(experts),
        grouped(shards),
        grouped(each)
    );
    let fix =
        "use a number of GPUs that divides the experts, replicas of shards, or ZeRO-3, which cuts anywhere";
    Some(Issue::warning(Field::Gpus, message).with_fix(fix))
}

/// Whether runs of several GPUs were measured with its loss: Megatron-core's fused ones were.
fn has_a_measured_loss(scenario: &Scenario) -> bool {
    match scenario.savings.loss {
        LossKernel::Standard => true,
        LossKernel::TransformerEngine | LossKernel::MegatronFused => scenario.stack == Stack::Megatron,
        LossKernel::Full | LossKernel::Liger | LossKernel::Cut
            if scenario.software().head == HeadCode::Transformers =>
        {
            true
        }
        LossKernel::Full | LossKernel::Axolotl | LossKernel::LogSoftmax => scenario.stack == Stack::Trl,
        LossKernel::FloatLogits | LossKernel::VocabularyChunks => scenario.cluster.is_fsdp2(),
        LossKernel::Liger | LossKernel::Cut | LossKernel::Chunked => false,
    }
}

/// Families that were measured under FSDP2 and not under DeepSpeed.
fn is_of_fsdp2(architecture: &Architecture) -> bool {
    let code = architecture.family.map(|family| family.modeling.code);
    matches!(code, Some(Code::Phi | Code::StableLm | Code::Gemma4))
        || ["minicpm3", "glm4_moe_lite"].contains(&architecture.model_type.as_str())
}

/// What of a scenario no measured run of several GPUs had.
/// Whether every expert is given every token (llama4).
fn gives_all_tokens(architecture: &Architecture) -> bool {
    architecture.family.is_some_and(|family| family.modeling.router == Router::Every)
}

/// The layers that accelerate and axolotl are told to wrap, where those that a model names are not all there.
fn told_layers(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    let told = architecture.told_layers().filter(|_| scenario.is_under_trainer())?;
    let missing = architecture.vision()?.1.code.missing_layers()?;
    let message = format!(
        "{} names layers of the class {missing} and has none, at which accelerate stops (\"Could not find the transformer layer class\"); this is \
         a run that is told which to wrap (fsdp_config, transformer_layer_cls_to_wrap: {told}): the tower is the root's, whole on each GPU in each step",
        architecture.model_type
    );
    Some(Issue::new(Severity::Note, Field::Sharding, message))
}

fn not_compared(scenario: &Scenario, architecture: Option<&Architecture>) -> Vec<&'static str> {
    let habits = scenario.training_loop;
    let has = |is_part: fn(&Architecture) -> bool| architecture.is_some_and(is_part);
    let is_recurrent =
        |architecture: &Architecture| architecture.blocks.iter().any(|block| block.mixer.is_recurrent());
    let attention = match scenario.attention {
        AttentionKernel::Sdpa | AttentionKernel::Eager => None,
        AttentionKernel::Cudnn if scenario.cluster.layout.has_transformer_engine() => None,
        AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Math
        | AttentionKernel::Cudnn
        | AttentionKernel::FlashAttn => Some(scenario.attention.label()),
    };
    // over shards and partitions every optimizer that is answered was measured
    let is_adamw = matches!(scenario.optimizer, Optimizer::AdamW | Optimizer::AdamWFused);
    let is_whole = scenario.cluster.sharding == Sharding::Ddp && scenario.divided().tensor == 1;
    let optimizer = (is_whole && !is_adamw).then(|| scenario.optimizer.label());
    // collators of trl and axolotl bring a mask, and those that transformers' Trainer is given
    let is_usual = match scenario.mask {
        Mask::None => true,
        Mask::Ones | Mask::Padded => scenario.is_under_trainer(),
        Mask::Packed | Mask::PaddingFree => false,
    };
    let when = |is_so: bool, words: &'static str| is_so.then_some(words);
    let parts = [
        attention,
        optimizer,
        when(!is_usual, "a mask or packing"),
        when(scenario.dropout.is_some_and(|dropout| dropout > 0), "dropout"),
        when(scenario.lengths != Lengths::Equal, "varying lengths"),
        when(
            scenario.wrapper() == WrappedBy::Accelerate && has(Architecture::has_experts),
            "mixtures of experts under transformers' Trainer",
        ),
        when(
            scenario.cluster.sharding != Sharding::Fsdp2 && has(gives_all_tokens),
            "experts that are given every token",
        ),
        when(habits.keeps_outputs, "kept outputs"),
        when(habits.fills_cache, "a cache of keys and values"),
        when(!has_a_measured_loss(scenario), "this loss kernel"),
        when(
            scenario.stack == Stack::Trl && !scenario.cluster.is_many(),
            "trl under DeepSpeed on a single GPU",
        ),
        when(
            scenario.method == Method::Qlora && !scenario.cluster.is_many() && scenario.cluster.is_zero(),
            "4-bit weights under DeepSpeed on a single GPU",
        ),
        when(
            scenario.stack == Stack::Trl
                && scenario.cluster.cpu != CpuOffload::Off
                && !matches!(scenario.task, Task::Sft | Task::Dpo),
            "this trainer with its optimizer in the CPU's memory",
        ),
        when(
            scenario.method != Method::Full && scenario.lora.trains_embeddings,
            "a trained embedding beside adapters",
        ),
        when(has(is_recurrent), "state spaces and linear attention"),
        when(scenario.cluster.is_zero() && has(is_of_fsdp2), "this family under DeepSpeed"),
        when(
            has(|architecture| !architecture.towers.is_empty())
                && scenario.pictures.count == 0
                && (scenario.stack == Stack::Liger
                    || !has(|architecture| lies_idle(&architecture.model_type))),
            "a model with a tower on text alone",
        ),
        when(has(|architecture| architecture.encoder.is_some()), "encoder-decoders"),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
