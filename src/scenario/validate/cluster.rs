//! What is good to know of several GPUs.

use crate::hardware::NCCL;
use crate::model::Architecture;
use crate::model::blocks::FeedForward;
use crate::scenario::software::{Software, Trainer};
use crate::scenario::{
    AttentionKernel, Cluster, CpuOffload, Field, Issue, Lengths, LossKernel, Mask, Method, Optimizer,
    Precision, Scenario, Severity, Sharding, Stack, TransformerImpl,
};
use crate::units::grouped;

/// What has to be asked of bitsandbytes for its weights to be sharded.
const SHARDED_4BIT: &str = "4-bit weights are sharded where they are stored in the type of the computation \
                            (bnb_4bit_quant_storage=torch.bfloat16) and loaded on the CPU (device_map=\"cpu\"); their \
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
                "these are Transformer Engine's layers as Megatron-LM runs them by default: cuDNN's attention, fused rotary \
                 positions, SwiGLU and gradient accumulation (Apex), FusedAdam, stages' outputs freed once they are sent; \
                 communication is not overlapped with products, and no mask comes with the batch \
                 (--no-create-attention-mask-in-dataloader)"
            }
        };
        issues.push(Issue::new(Severity::Note, Field::Stack, message));
        if scenario.cluster.layout.has_transformer_engine()
            && scenario.gpu().ok().and_then(|gpu| gpu.capability).is_some_and(|own| own.major < 8)
        {
            let message = "cuDNN's attention under Transformer Engine asks for Ampere or newer";
            issues
                .push(Issue::error(Field::TransformerImpl, message).with_fix("choose Megatron's own layers"));
        }
    }
    issues.extend(nothing_to_offload(scenario));
    if scenario.cluster.is_many() {
        let message = format!(
            "NCCL's buffers lie outside PyTorch's allocator and are not counted: {NCCL} on each GPU were seen of one \
             communicator"
        );
        issues.push(Issue::new(Severity::Note, Field::Gpus, message));
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
                let message = match Software::of(scenario.stack).trainer {
                    Trainer::Trl => format!(
                        "this is fully_shard as accelerate calls it (fsdp_version: 2, TRANSFORMER_BASED_WRAP), {after}: trained shards \
                         are float32 under mixed precision, gradients are summed in bfloat16 and kept whole until the last \
                         micro-batch, and the output head stays gathered from forward to backward"
                    ),
                    Trainer::Loop | Trainer::Torchtune | Trainer::Megatron => format!(
                        "this is fully_shard with MixedPrecisionPolicy(param_dtype=torch.bfloat16) on every layer and the model, \
                         {after}; accelerate adds autocast, which --stack trl follows"
                    ),
                };
                issues.push(Issue::new(Severity::Note, Field::Sharding, message));
                if scenario.method == Method::Qlora {
                    issues.push(Issue::new(Severity::Note, Field::Method, SHARDED_4BIT));
                }
            }
            Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => {
                let message = "this is DeepSpeed with bf16: {enabled: true}: parameters and gradients are bfloat16 and its \
                               masters float32, whatever the weights were loaded in; sizes that a configuration leaves out \
                               are DeepSpeed's own, which \"auto\" in one for transformers makes smaller";
                issues.push(Issue::new(Severity::Note, Field::Sharding, message));
            }
        }
        let others = not_compared(scenario, architecture);
        if !others.is_empty() {
            let message =
                format!("not compared with the engine's own code on several GPUs: {}", others.join(", "));
            issues.push(Issue::warning(Field::Sharding, message));
        }
    }
}

/// What CPU offload comes to where there are no shards: only FSDP2's and DeepSpeed's are laid into the CPU's memory.
fn nothing_to_offload(scenario: &Scenario) -> Option<Issue> {
    let Cluster { cpu, sharding, .. } = scenario.cluster;
    if cpu == CpuOffload::Off || scenario.cluster.is_fsdp2() || scenario.cluster.is_zero() {
        return None;
    }
    let (who, fix) = match scenario.cluster.is_many() {
        true => (sharding.label(), "choose fsdp2 or one of DeepSpeed's stages"),
        false => ("a single GPU", "choose several GPUs under fsdp2 or DeepSpeed"),
    };
    let message =
        format!("{who} has no shards to lay into the CPU's memory: the figures are without CPU offload");
    Some(Issue::warning(Field::CpuOffload, message).with_fix(fix))
}

/// What of a scenario no measured run of several GPUs had.
fn not_compared(scenario: &Scenario, architecture: Option<&Architecture>) -> Vec<&'static str> {
    let habits = scenario.training_loop;
    let has = |is_part: fn(&Architecture) -> bool| architecture.is_some_and(is_part);
    let is_moe = |architecture: &Architecture| {
        architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)))
    };
    let is_recurrent =
        |architecture: &Architecture| architecture.blocks.iter().any(|block| block.mixer.is_recurrent());
    let attention = match scenario.attention {
        AttentionKernel::Sdpa | AttentionKernel::Eager => None,
        AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Math
        | AttentionKernel::Cudnn
        | AttentionKernel::FlashAttn => Some(scenario.attention.label()),
    };
    // over shards and partitions every optimizer that is answered was measured
    let is_adamw = matches!(scenario.optimizer, Optimizer::AdamW | Optimizer::AdamWFused);
    let is_whole = scenario.cluster.sharding == Sharding::Ddp;
    let optimizer = (is_whole && !is_adamw).then(|| scenario.optimizer.label());
    // trl's collators bring a mask
    let is_usual = match scenario.mask {
        Mask::None => true,
        Mask::Ones | Mask::Padded => scenario.stack == Stack::Trl,
        Mask::Packed | Mask::PaddingFree => false,
    };
    let when = |is_so: bool, words: &'static str| is_so.then_some(words);
    let parts = [
        attention,
        optimizer,
        when(!is_usual, "a mask or packing"),
        when(scenario.dropout.is_some_and(|dropout| dropout > 0), "dropout"),
        when(scenario.lengths != Lengths::Equal, "varying lengths"),
        when(habits.keeps_outputs, "kept outputs"),
        when(habits.fills_cache, "a cache of keys and values"),
        when(scenario.savings.loss != LossKernel::Standard, "this loss kernel"),
        when(scenario.precision == Precision::AmpFp16, "a gradient scaler"),
        when(
            scenario.method != Method::Full && scenario.lora.trains_embeddings,
            "a trained embedding beside adapters",
        ),
        when(has(is_moe), "mixtures of experts"),
        when(has(is_recurrent), "state spaces and linear attention"),
        when(has(|architecture| architecture.encoder.is_some()), "encoder-decoders"),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::keys::Key;
    use crate::share;

    #[track_caller]
    fn told(link: &str, severity: Severity) -> Vec<String> {
        let scenario = share::decode(link).scenarios.remove(0);
        let issues = scenario.validate().into_iter().filter(|issue| issue.severity == severity);
        issues.map(|issue| issue.message).collect()
    }

    #[test]
    fn what_was_not_compared_on_several_gpus_is_one_warning() {
        let measured = "m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&gpus=8&shard=ddp";
        assert_eq!(told(measured, Severity::Warning), [""; 0]);
        let other = format!("{measured}&o=adamw-8bit&out=on&drop=0.1");
        let begun = "not compared with the engine's own code on several GPUs: ";
        assert_eq!(told(&other, Severity::Warning), [format!("{begun}AdamW 8-bit, dropout, kept outputs")]);
        assert_eq!(told(&other.replace("gpus=8", "gpus=1"), Severity::Warning), [""; 0]);
    }

    #[test]
    fn cpu_offload_without_shards_is_warned_of() {
        let base = "m=Qwen/Qwen2.5-0.5B&method=full&p=bf16";
        let offload = Key::find("cpu-offload").expect("it is a key").link;
        let warned = |rest: &str| {
            let told = told(&format!("{base}&{offload}=all&{rest}"), Severity::Warning);
            told.into_iter().find(|message| message.contains("CPU offload"))
        };
        for (rest, who) in [("gpus=4&shard=ddp", "DDP"), ("gpus=1&shard=fsdp2", "a single GPU")] {
            let message = warned(rest).expect("it is warned of");
            assert!(message.starts_with(&format!("{who} has no shards")), "{message}");
        }
        assert_eq!((warned("gpus=4&shard=fsdp2"), warned("gpus=4&shard=zero3")), (None, None));
        assert_eq!(told(&format!("{base}&gpus=4&shard=ddp"), Severity::Warning), [""; 0]);
    }

    #[test]
    fn replicas_are_of_one_size() {
        let base = "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&shard=fsdp2";
        for (gpus, replicas) in [(8, 1), (8, 2), (8, 4), (6, 3)] {
            assert_eq!(told(&format!("{base}&gpus={gpus}&replicas={replicas}"), Severity::Error), [""; 0]);
        }
        assert_eq!(
            told(&format!("{base}&gpus=8&replicas=8"), Severity::Error),
            ["8 GPUs are not 8 replicas of shards"]
        );
        assert_eq!(
            told(&format!("{base}&gpus=8&replicas=3"), Severity::Error),
            ["8 GPUs are not 3 replicas of shards"]
        );
    }

    #[test]
    fn what_fsdp2_is_here_is_said() {
        let notes = told("m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&gpus=8&shard=fsdp2", Severity::Note);
        assert!(
            notes.iter().any(|note| note.contains("fully_shard") && note.contains("accelerate")),
            "{notes:?}"
        );
        let notes = told("m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&gpus=8&shard=ddp", Severity::Note);
        assert!(!notes.is_empty() && !notes.iter().any(|note| note.contains("fully_shard")), "{notes:?}");
    }
}
