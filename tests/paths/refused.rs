//! What is not followed has no figure, and says so.

use headroom::estimate;
use headroom::model::blocks::{FeedForward, Mlp};
use headroom::scenario::{Field, Method, ModelChoice, Scenario};
use headroom::share;
use headroom::step;
use headroom::step::Recording;

/// What GPUs cannot share by transformers' own plan, or was not compared, is refused where it is said.
#[test]
fn what_gpus_cannot_share_is_refused() {
    let base = "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&gpus=8&tp=4&shard=fsdp2";
    refuses(
        base,
        &[
            ("", None),
            ("gpus=6", Some(Field::TensorParallel)),
            ("m=Qwen/Qwen2.5-7B-Instruct&gpus=16&tp=8", Some(Field::TensorParallel)),
            ("m=openai-community/gpt2", Some(Field::TensorParallel)),
            ("shard=ddp", Some(Field::Sharding)),
            ("shard=zero3", Some(Field::Sharding)),
            ("tp=8", Some(Field::Sharding)),
            ("gpus=16&replicas=2", Some(Field::Replicas)),
            ("method=lora", Some(Field::Method)),
            ("cpu=all", Some(Field::CpuOffload)),
            ("mask=padded", Some(Field::Mask)),
            ("o=sgd", Some(Field::Optimizer)),
            ("p=fp32", Some(Field::Precision)),
            ("st=trl", Some(Field::TensorParallel)),
        ],
    );
}

/// Of trl up to 1.6 is refused what was not compared.
#[test]
fn what_earlier_trl_does_not_do_is_refused() {
    let base = "m=Qwen/Qwen3-0.6B&st=trl&method=lora&p=amp-bf16-weights&mask=ones&loss=full&s=300";
    refuses(
        base,
        &[
            ("", None),
            ("mask=padding-free&b=2", None),
            ("gpus=4&shard=zero3&method=qlora", None),
            ("gpus=4&shard=zero3", None),
            ("m=Qwen/Qwen3-30B-A3B", None),
            ("ad=dora", Some(Field::Adapter)),
            ("offload=on", Some(Field::Offloading)),
            ("eval=loss", Some(Field::Evaluation)),
            ("m=Qwen/Qwen2.5-VL-3B-Instruct", Some(Field::Loss)),
            ("task=grpo", Some(Field::Loss)),
        ],
    );
}

/// Under DDP adapters of other kinds are as on one GPU, where that was measured.
#[test]
fn what_was_not_compared_of_adapters_on_several_gpus_is_refused() {
    let base = "m=Qwen/Qwen3-0.6B&method=lora&p=amp-bf16-weights&s=300&gpus=4&shard=ddp";
    refuses(
        base,
        &[
            ("", None),
            ("ad=dora", None),
            ("ad=ia3", None),
            ("ad=oft", None),
            ("ad=prompt", None),
            ("method=qlora&q=int8&prep=off", None),
            ("ad=vera", Some(Field::Adapter)),
            ("ad=dora&shard=fsdp2", Some(Field::Adapter)),
            ("method=qlora&q=int8&prep=off&shard=zero2", Some(Field::WeightFormat)),
        ],
    );
}

/// Liger's kernels of layers are followed in trl's trainers that keep their head beside them.
#[test]
fn what_was_not_compared_with_ligers_layers_is_refused() {
    let base = "m=Qwen/Qwen3-0.6B&st=trl&method=full&p=amp-bf16&mask=padded&s=300&liger=on";
    refuses(
        base,
        &[
            ("", None),
            ("task=dpo", None),
            ("task=kto&b=2", None),
            ("task=grpo&b=2", None),
            ("method=qlora", None),
            ("gpus=4&shard=ddp", None),
            ("task=orpo", Some(Field::LigerLayers)),
            ("task=reward", Some(Field::LigerLayers)),
            ("loss=full", Some(Field::LigerLayers)),
            ("eval=loss", Some(Field::LigerLayers)),
            ("task=grpo&b=2&roll=transformers", Some(Field::LigerLayers)),
            ("m=allenai/OLMo-2-1124-7B", Some(Field::LigerLayers)),
            ("m=microsoft/phi-2", Some(Field::LigerLayers)),
        ],
    );
}

/// trl's fused head reads a head that no unit of FSDP2 gathers where it lies: over shards in the CPU's memory trl stops. What was compared has an
/// answer, and so has what is advised.
#[test]
fn what_trl_stops_at_over_shards_in_the_cpus_memory_is_refused() {
    let base = "m=meta-llama/Llama-3.1-8B&st=trl&method=qlora&p=amp-bf16-weights&gpus=2&shard=fsdp2&cpu=all&mask=ones&s=1024";
    let tied = "m=meta-llama/Llama-3.2-1B";
    let cases = [
        ("".to_owned(), Some(Field::CpuOffload)),
        ("method=lora".to_owned(), Some(Field::CpuOffload)),
        ("task=dpo".to_owned(), Some(Field::CpuOffload)),
        ("cpu=off".to_owned(), None),
        ("loss=full".to_owned(), None),
        ("st=transformers&wrap=accelerate".to_owned(), None),
        ("method=full".to_owned(), None),
        ("task=orpo&method=lora".to_owned(), None),
        (tied.to_owned(), None),
        (format!("{tied}&task=dpo"), None),
        (format!("{tied}&task=dpo&method=full"), Some(Field::CpuOffload)),
        (format!("{tied}&task=kto"), Some(Field::CpuOffload)),
        (format!("{tied}&save=full"), None),
    ];
    let cases: Vec<_> = cases.iter().map(|(link, field)| (link.as_str(), *field)).collect();
    refuses(base, &cases);
}

/// What was not compared beside latent attention and experts of Megatron-core is refused where it is said.
#[test]
fn what_was_not_compared_beside_experts_is_refused() {
    let base = "m=deepseek-ai/DeepSeek-V2&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine\
                &attn=cudnn&gpu=b200&gpus=64&xp=8&shard=dist-opt&gc=on&s=256";
    refuses(
        base,
        &[
            ("", None),
            ("pp=2&ga=4", None),
            ("xp=7", Some(Field::ExpertParallel)),
            ("xp=64", Some(Field::ExpertParallel)),
            ("m=meta-llama/Llama-3.1-8B", Some(Field::ExpertParallel)),
            ("tp=2", Some(Field::TensorParallel)),
            ("cp=2&cpcomm=a2a", Some(Field::ContextParallel)),
            ("timpl=local&attn=eager", Some(Field::TransformerImpl)),
            // experts that are given what the router chose, beside ordinary attention
            ("m=mistralai/Mixtral-8x7B-v0.1", None),
            ("m=mistralai/Mixtral-8x7B-v0.1&gpu=a100-sxm-80gb", None),
            ("m=mistralai/Mixtral-8x7B-v0.1&tp=2&sp=on", None),
            ("m=mistralai/Mixtral-8x7B-v0.1&tp=2&sp=off", Some(Field::SequenceParallel)),
            ("m=mistralai/Mixtral-8x7B-v0.1&xp=16&pp=2", Some(Field::ExpertParallel)),
            ("m=mistralai/Mixtral-8x7B-v0.1&timpl=local&attn=eager", Some(Field::TransformerImpl)),
            ("m=Qwen/Qwen3-30B-A3B&cp=2&cpcomm=p2p", None),
            ("m=Qwen/Qwen1.5-MoE-A2.7B", Some(Field::Stack)),
            ("m=deepseek-ai/DeepSeek-V3", Some(Field::Stack)),
            ("gpu=a100-sxm-80gb", Some(Field::Gpu)),
        ],
    );
}

/// Of attention's biases and norms Megatron-core has those of Qwen's, and of its ring as many GPUs as were run.
#[test]
fn what_megatrons_attention_has_nowhere_is_refused() {
    let base = "m=Qwen/Qwen3-8B&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine&attn=cudnn\
                &gpus=8&tp=2&shard=dist-opt&gc=on&s=4096";
    refuses(
        base,
        &[
            ("", None),
            ("timpl=local&attn=eager", None),
            ("m=Qwen/Qwen2.5-7B-Instruct", None),
            ("m=Qwen/Qwen2.5-7B-Instruct&tp=8", Some(Field::TensorParallel)),
            ("m=allenai/OLMo-2-1124-7B", Some(Field::Stack)),
            ("cp=4&cpcomm=p2p", None),
            ("cp=512&cpcomm=p2p&gpus=1024", Some(Field::ContextParallel)),
            ("cp=4&cpcomm=p2p&timpl=local&attn=eager", Some(Field::ContextParallel)),
            // all-to-all divides heads once more, the ring does not
            ("gpus=32&cp=16&cpcomm=a2a", Some(Field::ContextParallel)),
            ("gpus=32&cp=16&cpcomm=p2p", None),
        ],
    );
}

/// What is advised in the place of a size that does not divide a model is answered.
#[test]
fn what_is_advised_in_the_place_of_a_size_is_answered() {
    let said = "m=Qwen/Qwen2.5-7B-Instruct&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine&attn=cudnn\
                &gpus=8&tp=8&sp=on&gc=on&s=1536";
    let mut scenario = share::decode(said).scenarios.remove(0);
    let issue = estimate(&scenario).errors().next().cloned().expect("28 heads are not shared by 8");
    assert_eq!(issue.fix.as_deref(), Some("use a tensor parallel size of 4"), "{issue}");
    scenario.cluster.layout.tensor = 4;
    assert!(estimate(&scenario).memory.is_some(), "{:?}", estimate(&scenario).issues);
    // a size that divides the heads and not the GPUs is none
    scenario.change(|scenario| scenario.cluster.gpus = 6);
    scenario.cluster.layout.tensor = 6;
    let issue = estimate(&scenario).errors().next().cloned().expect("28 heads are not shared by 6");
    assert_eq!(issue.fix.as_deref(), Some("use a tensor parallel size of 2"), "{issue}");
    // all-to-all has another way beside it
    let said = "m=meta-llama/Llama-3.1-8B&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine&attn=cudnn\
                &gpus=16&tp=8&cp=2&sp=on&gc=on&s=8192&cpcomm=a2a";
    let refused = estimate(&share::decode(said).scenarios.remove(0));
    let issue = refused.errors().next().expect("8 heads are not shared by 16");
    assert!(issue.fix.as_deref().is_some_and(|fix| fix.contains("p2p")), "{issue}");
    assert!(estimate(&share::decode(&said.replace("a2a", "p2p")).scenarios.remove(0)).memory.is_some());
}

/// Who wraps a model for FSDP2 makes no difference to other engines; with layers that GPUs share accelerate stops.
#[test]
fn who_wraps_a_model_is_asked_under_fsdp2_alone() {
    let of = |said: &str| {
        let link = format!("m=Qwen/Qwen3-0.6B&method=lora&p=bf16&gpus=8&{said}");
        estimate(&share::decode(&link).scenarios.remove(0)).memory
    };
    for shard in ["ddp", "zero1", "zero2", "zero3"] {
        let own = of(&format!("shard={shard}"));
        assert!(own.is_some(), "{shard}");
        for wrapper in ["axolotl", "accelerate"] {
            assert_eq!(of(&format!("shard={shard}&wrap={wrapper}")), own, "{shard} {wrapper}");
        }
    }
    let shared = "m=Qwen/Qwen3-8B&method=full&p=amp-bf16&gpus=8&shard=fsdp2&wrap=accelerate&tp=2";
    let answer = estimate(&share::decode(shared).scenarios.remove(0));
    assert_eq!(answer.errors().next().map(|issue| issue.field), Some(Field::TensorParallel));
}

/// What is advised leads to an answer, or says what it is that is refused.
#[test]
fn what_is_advised_on_several_gpus_is_answered() {
    let first = |said: &str| {
        let answer = estimate(&share::decode(said).scenarios.remove(0));
        let issue = answer.errors().next().cloned();
        issue.unwrap_or_else(|| panic!("{said} is answered"))
    };
    let answered = |said: &str| {
        let answer = estimate(&share::decode(said).scenarios.remove(0));
        assert!(answer.memory.is_some(), "{said}: {:?}", answer.issues);
    };
    let experts = first("m=Qwen/Qwen3-30B-A3B&method=full&p=amp-bf16&gpus=8&xp=8&shard=fsdp2");
    assert_eq!(experts.field, Field::ExpertParallel);
    answered("m=Qwen/Qwen3-30B-A3B&method=full&p=amp-bf16&gpus=8&shard=fsdp2");
    let sequences = first("m=meta-llama/Llama-3.1-8B&method=full&gpus=8&cp=4&shard=fsdp2");
    assert_eq!(sequences.field, Field::ContextParallel);
    assert!(sequences.message.contains("followed under FSDP2 as accelerate wraps it"), "{sequences}");
    answered(
        "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&gpus=8&cp=4&shard=fsdp2&wrap=accelerate&mask=ones",
    );
    let vision = "m=Qwen/Qwen2.5-VL-7B-Instruct&method=lora&gpus=4&shard=ddp";
    let issue = first(vision);
    assert!(issue.fix.as_deref().is_some_and(|fix| fix.contains("freeze the tower")), "{issue}");
    answered(&format!("{vision}&vt=frozen"));
    answered(&format!("{vision}&t=qv"));
    let fused = "m=meta-llama/Llama-3.1-8B&method=full&st=liger&p=amp-bf16&gpus=8&shard=fsdp2";
    answered(fused);
    answered(&format!("{fused}&loss=liger"));
    answered("m=google/gemma-3-27b-it&method=full&p=amp-bf16&gpus=8&shard=fsdp2");
    answered("m=google/gemma-2-9b&method=full&p=amp-bf16&gpus=8&shard=fsdp2");
}

/// Stages that interleave have layers of the whole depth: with the fix that is named the run is answered.
#[test]
fn what_is_said_to_make_stages_alike_does() {
    let base = "m=deepseek-ai/DeepSeek-V2&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine\
                &attn=cudnn&gpu=b200&gpus=64&xp=8&shard=dist-opt&gc=on&s=256&ga=4";
    let mut scenario = share::decode(&format!("{base}&pp=2")).scenarios.remove(0);
    scenario.cluster.layout.interleaved = 5;
    let refused = estimate(&scenario);
    let issue = refused.errors().next().expect("it is refused");
    assert_eq!(issue.fix.as_deref(), Some("run the layers of a stage at once"), "{issue}");
    scenario.cluster.layout.interleaved = 0;
    assert!(estimate(&scenario).memory.is_some());
}

/// Changes of a scenario, each with what it is refused for; those without are answered.
#[track_caller]
pub fn refuses(base: &str, changes: &[(&str, Option<Field>)]) {
    for (link, field) in changes {
        let names = |link: &str| {
            link.split('&').filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())).collect::<Vec<_>>()
        };
        let changed = names(link);
        let kept = base.split('&').filter(|pair| !changed.contains(&names(pair)[0]));
        let said = kept.chain([*link]).collect::<Vec<_>>().join("&");
        let answer = estimate(&share::decode(&said).scenarios.remove(0));
        assert_eq!(answer.errors().next().map(|issue| issue.field), *field, "{said}: {:?}", answer.issues);
        assert_eq!(answer.memory.is_some(), field.is_none(), "{said}");
    }
}

/// A part of a model that no code here runs must stop the run, however it came past the checks.
#[test]
fn what_is_not_modelled_has_no_figure() {
    let model = ModelChoice::Catalogue("Qwen/Qwen-1_8B".to_owned());
    let scenario = Scenario { model, method: Method::Full, ..Scenario::default() };
    let mut architecture = (*scenario.architecture().expect("it is in the catalogue")).clone();
    let gpu = scenario.gpu().expect("the default card is known");
    assert!(step::run(&architecture, &scenario, &gpu).is_ok());
    for block in &mut architecture.blocks {
        let FeedForward::Dense(Mlp::Gated { up, down, act, .. }) = &block.ffn else { continue };
        let plain = Mlp::Plain { up: up.clone(), down: down.clone(), act: *act };
        block.ffn = FeedForward::Dense(plain);
    }
    let run = step::run(&architecture, &scenario, &gpu).map(|memory| memory.peak().1.bytes);
    let recording = Recording::of(&architecture, &scenario, &gpu).map(|_| ());
    for issue in [run.err(), recording.err()] {
        let issue = issue.expect("the run is poisoned");
        assert!(issue.message.contains("is not modelled"), "{}", issue.message);
    }
}

/// Sizes saturate where they are beyond counting; then there is no figure.
#[test]
fn what_is_beyond_counting_has_no_figure() {
    let scenario = share::decode("b=16777216&r=65537&gc=off&mask=padding-free").scenarios.remove(0);
    let answer = estimate(&scenario);
    assert!(answer.memory.is_none());
    assert!(answer.errors().any(|issue| issue.message.contains("too large")), "{:?}", answer.issues);
}
