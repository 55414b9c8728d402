//! What is told of settings of several GPUs.

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
fn settings_of_another_engine_are_told() {
    let base = "m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&gpus=4";
    let vain = |rest: &str| -> Vec<String> {
        let told = told(&format!("{base}&{rest}"), Severity::Warning);
        told.into_iter().filter(|told| told.starts_with("without effect")).collect()
    };
    let of_zero = vain("shard=zero3&replicas=2&reshard=off");
    let named = "without effect under ZeRO-3 (DeepSpeed): reshard-after-forward (Off), replicas (2)";
    assert_eq!(of_zero, [named]);
    assert_eq!(vain("shard=fsdp2&zbucket=1000").len(), 1);
    for none in ["shard=fsdp2&replicas=2&reshard=off", "shard=zero3&zbucket=1000", "shard=ddp"] {
        assert_eq!(vain(none), Vec::<String>::new(), "{none}");
    }
    // a single GPU has no engine that others could lack
    assert!(!told("gpus=1&replicas=2", Severity::Warning).iter().any(|told| told.contains("without effect")));
}

#[test]
fn a_pipeline_of_fewer_micro_batches_than_stages_is_told() {
    let idle = |batches: u64| {
        let link = format!(
            "m=meta-llama/Llama-3.1-8B&st=megatron&method=full&p=amp-bf16-weights&gpus=8&pp=4&ga={batches}"
        );
        told(&link, Severity::Warning).into_iter().any(|told| told.contains("through 4 stages"))
    };
    assert_eq!([1, 3, 4, 8].map(idle), [true, true, false, false]);
}

#[test]
fn what_was_not_compared_on_several_gpus_is_one_warning() {
    let measured = "m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&gpus=8&shard=ddp";
    assert_eq!(told(measured, Severity::Warning), [""; 0]);
    let other = format!("{measured}&o=adamw-8bit&out=on&drop=0.1");
    let begun = "not compared with the engine's own code: ";
    assert_eq!(told(&other, Severity::Warning), [format!("{begun}AdamW 8-bit, dropout, kept outputs")]);
    assert_eq!(told(&other.replace("gpus=8", "gpus=1"), Severity::Warning), [""; 0]);
    // llama4's text was measured under FSDP2 alone
    let experts = |engine: &str| {
        let model = "own(head_dim:128,hidden_size:5120,intermediate_size:8192,intermediate_size_mlp:16384,model_type:llama4_text,num_attention_heads:40,num_hidden_layers:4,num_key_value_heads:8,vocab_size:202048)";
        told(&format!("m={model}&method=lora&t=attention&p=bf16&gpus=8&shard={engine}"), Severity::Warning)
            .contains(&format!("{begun}experts that are given every token"))
    };
    assert_eq!(["zero2", "ddp", "fsdp2"].map(experts), [true, true, false]);
    // cuDNN's attention is what Transformer Engine was compared with
    let megatron = "m=meta-llama/Llama-3.1-8B&method=full&o=adamw&attn=cudnn&st=megatron&gpus=8&shard=dist-opt&timpl=transformer-engine";
    assert_eq!(told(megatron, Severity::Warning), [""; 0]);
}

#[test]
fn positions_in_float32_stop_recomputation_under_fsdp2() {
    let stops = |link: &str| share::decode(link).scenarios[0].stops();
    for model in ["allenai/OLMo-2-0425-1B", "baidu/ERNIE-4.5-0.3B-PT"] {
        let base = format!("m={model}&method=full&p=amp-bf16&gpus=8");
        assert!(stops(&format!("{base}&shard=fsdp2")), "{model}");
        for runs in ["&shard=fsdp2&gc=off", "&shard=zero3", "&shard=ddp"] {
            assert!(!stops(&format!("{base}{runs}")), "{model}{runs}");
        }
    }
    assert!(!stops("m=CohereLabs/c4ai-command-r7b-12-2024&method=full&p=amp-bf16&gpus=8&shard=fsdp2"));
}

#[test]
fn experts_that_do_not_divide_are_told() {
    let told = |rest: &str| {
        told(&format!("m=mistralai/Mixtral-8x7B-v0.1&method=lora&p=bf16&{rest}"), Severity::Warning)
    };
    assert_eq!(
        told("gpus=16&shard=fsdp2"),
        [
            "FSDP2 cuts experts between one and the next: of 8 among 16 GPUs one keeps 1, and 8 of them have none"
        ]
    );
    for even in
        ["gpus=8&shard=fsdp2", "gpus=16&shard=fsdp2&replicas=2", "gpus=16&shard=zero2", "gpus=16&shard=ddp"]
    {
        assert_eq!(told(even), [""; 0], "{even}");
    }
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
fn latent_attention_under_transformer_engine_asks_for_hopper() {
    let base = "m=deepseek-ai/DeepSeek-V2&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine&attn=cudnn\
                &gpus=64&xp=8&shard=dist-opt";
    let errors = |gpu: &str| told(&format!("{base}&gpu={gpu}"), Severity::Error);
    assert_eq!(errors("h100-sxm-80gb"), [""; 0]);
    let own = errors("a100-sxm-80gb");
    assert!(own.iter().any(|message| message.starts_with("before Hopper")), "{own:?}");
    let notes = told(base, Severity::Note);
    assert!(notes.iter().any(|note| note.starts_with("each expert is given as many tokens")), "{notes:?}");
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
