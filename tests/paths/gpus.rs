//! The same on one of several GPUs.

use headroom::model::catalogue;
use headroom::scenario::{
    Checkpointing, Cluster, CpuOffload, DeepSpeed, Field, Method, ModelChoice, Optimizer, Overlap, Precision,
    ReduceDtype, Scenario, Sharding,
};
use headroom::{estimate, plan, share};

use crate::answer_alike;
use crate::drawn::answers;
use crate::refused::refuses;
/// Settings under which one of several GPUs keeps other things.
fn on_many() -> [Scenario; 14] {
    let sharded = |gpus| Cluster { gpus, sharding: Sharding::Fsdp2, ..Cluster::ONE };
    let replicated = |gpus| Cluster { gpus, sharding: Sharding::Ddp, ..Cluster::ONE };
    let small = DeepSpeed { reduce_bucket: 20_000_000, prefetch_bucket: 2_000_000, ..DeepSpeed::DEFAULT };
    let partitioned = |sharding, gpus| Cluster { gpus, sharding, deepspeed: small, ..Cluster::ONE };
    let mut overlapping = partitioned(Sharding::Zero1, 3);
    overlapping.deepspeed.overlap = Overlap::On;
    let base = Scenario {
        batch: 2,
        sequence: 256,
        method: Method::Full,
        precision: Precision::AmpBf16,
        cluster: sharded(8),
        ..Scenario::default()
    };
    [
        base.clone(),
        Scenario {
            checkpointing: Checkpointing::Off,
            accumulation: 3,
            cluster: Cluster { reshards: false, ..sharded(3) },
            ..base.clone()
        },
        Scenario {
            precision: Precision::Bf16,
            optimizer: Optimizer::AdamW,
            cluster: Cluster { reduce: ReduceDtype::Bf16, ..sharded(2) },
            ..base.clone()
        },
        Scenario { checkpointing: Checkpointing::Off, cluster: replicated(8), ..base.clone() },
        Scenario { accumulation: 2, precision: Precision::Bf16, cluster: replicated(2), ..base.clone() },
        Scenario {
            method: Method::Qlora,
            precision: Precision::AmpBf16Weights,
            cluster: replicated(4),
            ..base.clone()
        },
        Scenario { method: Method::Qlora, precision: Precision::Bf16, cluster: sharded(3), ..base.clone() },
        Scenario {
            precision: Precision::Bf16,
            cluster: Cluster { replicas: 2, reshards_root: false, ..sharded(6) },
            ..base.clone()
        },
        Scenario { accumulation: 2, cluster: Cluster { cpu: CpuOffload::All, ..sharded(4) }, ..base.clone() },
        Scenario { cluster: overlapping, accumulation: 2, ..base.clone() },
        Scenario { cluster: partitioned(Sharding::Zero2, 3), method: Method::Qlora, ..base.clone() },
        Scenario { cluster: partitioned(Sharding::Zero3, 2), method: Method::Qlora, ..base.clone() },
        Scenario { cluster: partitioned(Sharding::Zero2, 8), method: Method::Lora, ..base.clone() },
        Scenario { cluster: partitioned(Sharding::Zero3, 5), ..base },
    ]
}

/// The same on a rank of Megatron-core's pipelines: every stage, whatever is in flight.
#[test]
fn one_layer_stands_for_many_in_every_stage_of_a_pipeline() {
    let base = "st=megatron&method=full&o=adamw&p=amp-bf16-weights&attn=eager&b=2&s=256";
    let models = ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-2-7b-hf"];
    let layouts = [
        "gpus=1&shard=dist-opt&gc=off",
        "gpus=8&tp=2&shard=dist-opt&gc=on&ga=2",
        "gpus=4&tp=4&shard=ddp&reduce=bf16&gc=selective&ga=3",
        "gpus=16&tp=2&pp=4&shard=dist-opt&gc=off&ga=7",
        "gpus=8&tp=2&pp=4&shard=dist-opt&gc=on&ga=3&reduce=bf16",
        "gpus=8&tp=1&pp=4&vpp=2&shard=ddp&gc=selective&ga=8",
        "gpus=2&tp=1&pp=2&vpp=8&shard=dist-opt&gc=off&ga=2",
        // stages of different numbers of layers, of 32 and of 16
        "gpus=4&tp=1&pp=4&ppfirst=5&pplast=3&shard=ddp&gc=off&ga=7",
        "gpus=3&tp=1&pp=3&pplast=2&shard=dist-opt&gc=selective&ga=2",
        "gpus=2&tp=1&pp=2&ppfirst=4&vpp=2&shard=ddp&gc=off&ga=4",
    ];
    let fused = [
        "gpus=1&shard=dist-opt&gc=off",
        "gpus=8&tp=4&sp=on&shard=dist-opt&gc=on&ga=2&loss=te",
        "gpus=8&tp=2&sp=on&cp=2&shard=ddp&reduce=bf16&gc=selective&ga=3",
        "gpus=16&tp=2&sp=on&pp=4&shard=dist-opt&gc=off&ga=7&loss=te",
        "gpus=16&tp=2&sp=on&pp=4&stage=4&shard=dist-opt&gc=on&ga=7&loss=native",
        "gpus=8&tp=1&pp=4&vpp=2&shard=ddp&gc=on&ga=8",
        "gpus=2&tp=1&pp=2&ppembed=on&pploss=on&shard=ddp&gc=off&ga=3",
        // of which the first part is an embedding and the last one a head
        "gpus=2&tp=1&pp=2&ppembed=on&pploss=on&vpp=1&shard=ddp&gc=on&ga=2",
    ];
    let fused = fused.map(|layout| format!("{layout}&timpl=transformer-engine&attn=cudnn"));
    let layouts: Vec<String> = layouts.iter().map(|layout| (*layout).to_owned()).chain(fused).collect();
    let mut wrong = Vec::new();
    for (model, layout) in
        models.into_iter().flat_map(|model| layouts.iter().map(move |layout| (model, layout)))
    {
        let link = format!("m={model}&{base}&{layout}");
        let scenario = share::decode(&link).scenarios.remove(0);
        for stage in 0..=scenario.cluster.layout.pipeline {
            let mut scenario = scenario.clone();
            scenario.cluster.layout.stage = stage;
            let found = answers(&scenario);
            wrong.extend(found.unwrap_or_else(|| panic!("{link}: {:?}", estimate(&scenario).issues)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same where GPUs share each layer by transformers' own plan, alone and with FSDP2.
#[test]
fn one_layer_stands_for_many_where_gpus_share_it() {
    let base = "method=full&b=2&s=256";
    let models = ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen3-8B"];
    let layouts = [
        "gpus=8&tp=8&shard=ddp&gc=on&p=bf16",
        "gpus=2&tp=2&shard=ddp&gc=off&p=amp-bf16&o=adamw&ga=2",
        "gpus=4&tp=4&shard=ddp&gc=on&p=amp-bf16-weights&o=adamw-for-loop",
        "gpus=8&tp=2&shard=fsdp2&gc=on&p=amp-bf16",
        "gpus=12&tp=4&shard=fsdp2&reshard=off&gc=off&p=bf16&ga=3",
    ];
    let each = models.into_iter().flat_map(|model| layouts.map(|layout| (model, layout)));
    answer_alike(each.map(|(model, layout)| format!("m={model}&{base}&{layout}")));
}

/// The same where queries, keys and values have biases or norms, and where keys and values go round among GPUs.
#[test]
fn one_layer_stands_for_many_of_qwens_and_in_a_ring() {
    let base = "st=megatron&method=full&o=adamw&p=amp-bf16-weights&b=2&s=256";
    let models = ["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"];
    let local = [
        "attn=eager&gpus=8&tp=2&shard=dist-opt&gc=off&ga=2",
        "attn=eager&gpus=8&tp=4&pp=2&shard=ddp&gc=on&ga=3",
        "attn=eager&gpus=2&tp=1&pp=2&vpp=7&shard=dist-opt&gc=selective&ga=2",
    ];
    let fused = [
        "gpus=8&tp=4&sp=on&shard=dist-opt&gc=on&ga=2",
        "gpus=8&tp=2&sp=on&pp=4&stage=4&shard=dist-opt&gc=off&ga=5",
        "gpus=8&tp=2&sp=on&cp=4&cpcomm=p2p&shard=dist-opt&gc=selective&ga=2",
        "gpus=12&tp=1&cp=3&cpcomm=p2p&s=252&pp=2&shard=ddp&gc=off&ga=2",
        "gpus=8&tp=2&cp=2&cpcomm=a2a&pp=2&shard=ddp&gc=on&ga=2",
    ];
    let fused = fused.map(|layout| format!("{layout}&timpl=transformer-engine&attn=cudnn"));
    let layouts: Vec<String> = local.into_iter().map(str::to_owned).chain(fused).collect();
    let evenly = |model: &str, layout: &str| !layout.contains("vpp=7") || !model.contains("8B");
    let each = models.into_iter().flat_map(|model| layouts.iter().map(move |layout| (model, layout)));
    let each = each.filter(|(model, layout)| evenly(model, layout));
    answer_alike(each.map(|(model, layout)| format!("m={model}&{base}&{layout}")));
}

/// The same of experts that are given what the router chose.
#[test]
fn one_layer_stands_for_many_with_experts_under_megatron() {
    let base =
        "st=megatron&method=full&o=adamw&p=amp-bf16-weights&b=2&s=256&timpl=transformer-engine&attn=cudnn";
    let models = ["mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B"];
    let layouts = [
        "gpus=8&xp=8&shard=dist-opt&gc=off&ga=2",
        "gpus=8&xp=4&pp=2&stage=2&shard=ddp&gc=on&ga=3",
        "gpus=16&tp=2&sp=on&xp=8&shard=dist-opt&gc=on&ga=2",
        "gpus=16&cp=2&cpcomm=p2p&xp=2&pp=4&shard=dist-opt&gc=selective&ga=4",
    ];
    let each = models.into_iter().flat_map(|model| layouts.map(|layout| (model, layout)));
    answer_alike(each.map(|(model, layout)| format!("m={model}&{base}&{layout}")));
}

/// The longest sequence of GPUs that divide sequences is one that they can divide.
#[test]
fn sequences_that_gpus_divide_are_looked_for_among_those() {
    let base = "m=meta-llama/Llama-3.2-1B&st=megatron&method=full&o=adamw&p=amp-bf16-weights&b=1&gpus=2&shard=dist-opt\
                &timpl=transformer-engine&attn=cudnn&gc=on&gpu=rtx-4090";
    for (layout, parts) in [("tp=2&sp=on", 2), ("cp=2&cpcomm=p2p", 4)] {
        let scenario = share::decode(&format!("{base}&{layout}")).scenarios.remove(0);
        let (architecture, gpu) =
            (scenario.architecture().expect("it is known"), scenario.gpu().expect("it too"));
        let found = plan::longest_sequence(&architecture, &scenario, &gpu).expect("it is followed");
        let longest = found.expect("some sequence fits").number;
        assert!(longest > 1024 && longest.is_multiple_of(parts), "{layout}: {longest}");
        assert!(
            estimate(&Scenario { sequence: longest + 1, ..scenario }).memory.is_none(),
            "it cannot be divided"
        );
    }
}

/// The same of torchtune's distributed recipes, whatever they shard by itself.
#[test]
fn one_layer_stands_for_many_under_torchtunes_recipes() {
    let base = "m=meta-llama/Llama-3.1-8B&st=torchtune&shard=fsdp2&clip=off&o=adamw-fused&step=after-backward&b=2&s=256";
    let settings = [
        "gpus=8&method=full&p=bf16&gc=on",
        "gpus=2&method=full&p=fp32&gc=off&ga=3&apart=embedding",
        "gpus=4&method=full&p=bf16&gc=on&apart=embedding-and-head&cpu=all",
        "gpus=3&method=full&p=bf16&gc=off&apart=embedding-and-head&loss=full&ga=2",
        "gpus=8&method=lora&p=bf16&gc=on&apart=embedding-and-head&t=all-linear-and-head",
        "gpus=4&method=lora&p=bf16&gc=off&reshard=off",
        "gpus=4&method=qlora&p=bf16&gc=on&apart=embedding",
    ];
    answer_alike(settings.map(|settings| format!("{base}&{settings}")));
    refuses(
        &format!("{base}&gpus=8&method=full&p=bf16"),
        &[
            ("", None),
            ("shard=ddp", Some(Field::Sharding)),
            ("shard=zero2", Some(Field::Sharding)),
            ("replicas=2", Some(Field::Replicas)),
            ("m=meta-llama/Llama-3.2-1B-Instruct&apart=embedding", Some(Field::ShardedLayers)),
            ("o=adamw-8bit", Some(Field::Optimizer)),
            ("step=in-backward", Some(Field::Step)),
            ("method=qlora", None),
            ("method=qlora&cpu=all", Some(Field::CpuOffload)),
        ],
    );
}

/// The same where axolotl wraps the model, each factor of an adapter by itself.
#[test]
fn one_layer_stands_for_many_that_axolotl_wraps() {
    let base =
        "m=meta-llama/Llama-3.1-8B&shard=fsdp2&wrap=axolotl&p=amp-bf16-weights&o=adamw-fused&b=2&s=256";
    let settings = [
        "gpus=8&method=full&gc=on",
        "gpus=2&method=full&gc=off&ga=3",
        "gpus=4&method=full&gc=on&cpu=all",
        "gpus=8&method=lora&gc=on&t=all-linear",
        // without checkpoints the first layer run by itself is not given what holds its input: one for many is as measured
        "gpus=4&method=lora&gc=on&t=qv&ga=2",
        "gpus=4&method=lora&gc=on&reshard=off",
        "gpus=2&method=lora&gc=on&t=qv&cpu=all",
        "gpus=4&method=full&gc=reentrant&ga=2",
        "gpus=8&method=lora&gc=reentrant",
    ];
    answer_alike(settings.map(|settings| format!("{base}&{settings}")));
    refuses(
        &format!("{base}&gpus=8&method=lora"),
        &[
            ("", None),
            ("p=bf16", Some(Field::Precision)),
            ("p=bf16&method=full", None),
            ("p=amp-bf16", Some(Field::Precision)),
            ("method=qlora", Some(Field::Method)),
            ("t=all-linear-and-head", Some(Field::LoraTargets)),
            ("gc=offloaded", Some(Field::Checkpointing)),
            ("st=trl&p=amp-bf16", None),
        ],
    );
}

/// A reentrant checkpoint's second forward pass comes to what backward gathered ahead, the first layer's to what the layers that one stands
/// for gathered for it.
#[test]
fn one_layer_stands_for_many_under_reentrant_checkpoints() {
    let base = "shard=fsdp2&gc=reentrant&s=256&gpus=8";
    let settings = [
        "m=meta-llama/Llama-3.1-8B&method=full&p=bf16",
        "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&st=trl&ga=2",
        "m=meta-llama/Llama-3.1-8B&method=lora&p=amp-bf16-weights&st=trl&mask=padded",
        "m=google/gemma-3-4b-it&method=full&p=amp-bf16&st=trl&mask=padded",
        "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&wrap=accelerate&gpus=2",
    ];
    answer_alike(settings.map(|settings| format!("{base}&{settings}")));
}

/// The same under torchtitan, whose layers are of two kinds where every second one runs again; and what of it is refused.
#[test]
fn one_layer_stands_for_many_under_torchtitan() {
    let base = "st=torchtitan&shard=fsdp2&method=full&o=adamw-fused&b=2&s=256";
    let models = ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-2-7b-hf"];
    let settings = [
        "gpus=8&p=amp-bf16&gc=off",
        "gpus=4&p=bf16&gc=on&ga=2",
        "gpus=8&p=amp-bf16&gc=every-second",
        "gpus=8&replicas=2&p=amp-bf16&gc=operations&ga=2",
        "gpus=2&p=amp-bf16&gc=operations&reshard=off&o=adamw",
        "gpus=8&tp=2&p=amp-bf16&gc=operations&b=1",
        "gpus=8&tp=4&p=amp-bf16&gc=every-second&ga=3",
        "gpus=12&tp=4&p=bf16&gc=on",
    ];
    let each = models.into_iter().flat_map(|model| settings.map(|settings| (model, settings)));
    answer_alike(each.map(|(model, settings)| format!("m={model}&{base}&{settings}")));
    refuses(
        &format!("m=meta-llama/Llama-3.1-8B&{base}&gpus=8&p=amp-bf16"),
        &[
            ("", None),
            ("gpus=1", Some(Field::Sharding)),
            ("shard=ddp", Some(Field::Sharding)),
            ("gpus=2&tp=2", Some(Field::Sharding)),
            ("tp=2&replicas=2", Some(Field::TensorParallel)),
            ("tp=16&gpus=64", Some(Field::TensorParallel)),
            ("cp=2", Some(Field::ContextParallel)),
            ("cpu=all", Some(Field::CpuOffload)),
            ("method=lora", Some(Field::Method)),
            ("p=fp32", Some(Field::Precision)),
            ("attn=flash", Some(Field::Attention)),
            ("gc=reentrant", Some(Field::Checkpointing)),
            ("gc=selective", Some(Field::Checkpointing)),
            ("mask=padded", Some(Field::Mask)),
            ("loss=full", Some(Field::Loss)),
            ("o=sgd", Some(Field::Optimizer)),
            ("step=in-backward", Some(Field::Step)),
            ("m=Qwen/Qwen3-8B", Some(Field::Stack)),
            ("m=meta-llama/Llama-3.2-1B-Instruct", Some(Field::Stack)),
            ("st=transformers&gc=operations", Some(Field::Checkpointing)),
            ("st=torchtune&p=bf16&gc=every-second", Some(Field::Checkpointing)),
        ],
    );
}

/// The same where FSDP2 wraps the model on a single GPU, which has nothing to gather, and where replicas have the shards of a trainer. A link
/// that says nothing of a single GPU means what it always did.
#[test]
fn one_layer_stands_for_many_on_one_gpu_and_in_replicas() {
    let base = "m=meta-llama/Llama-3.1-8B&shard=fsdp2&o=adamw-fused&b=2&s=256";
    let settings = [
        "gpus=1&alone=on&method=full&p=amp-bf16&gc=on&ga=2",
        "gpus=1&alone=on&method=full&p=bf16&gc=off&reshard=off",
        "gpus=1&alone=on&method=lora&p=bf16&gc=on",
        "gpus=1&alone=on&method=full&p=amp-bf16&st=trl&mask=ones&gc=on",
        "gpus=1&alone=on&method=lora&p=amp-bf16-weights&wrap=accelerate&gc=reentrant&ga=2",
        "gpus=8&replicas=2&method=full&p=amp-bf16&st=trl&mask=ones&gc=on&ga=2",
        "gpus=8&replicas=4&method=lora&p=amp-bf16-weights&wrap=accelerate&gc=off",
        "gpus=6&replicas=3&method=full&p=amp-bf16-weights&wrap=axolotl&gc=on",
    ];
    answer_alike(settings.map(|settings| format!("{base}&{settings}")));
    refuses(
        &format!("{base}&gpus=1&alone=on&method=full&p=bf16"),
        &[
            ("", None),
            ("loss=vocabulary-chunks&m=Qwen/Qwen3-0.6B", None),
            ("wrap=axolotl", Some(Field::ShardsAlone)),
            ("st=torchtune", Some(Field::ShardsAlone)),
            ("cpu=all", Some(Field::CpuOffload)),
            ("f8=tensorwise&gpu=h100-sxm-80gb", Some(Field::Float8)),
            ("gpus=2&cpu=all", None),
        ],
    );
    let needs = |rest: &str| {
        let link = format!("{base}&method=full&p=bf16&{rest}");
        estimate(&share::decode(&link).scenarios[0]).memory.expect("it is predicted").needed()
    };
    assert_eq!(needs("gpus=1"), needs("shard=ddp"));
    assert!(needs("gpus=1&alone=on") > needs("gpus=1"));
    assert_eq!(needs("gpus=4&alone=on"), needs("gpus=4"));
}

/// The same on each of several GPUs: a unit of FSDP2 that runs on behalf of many hands on what it gathered ahead, and DDP's
/// buckets are those of all layers.
#[test]
fn one_layer_stands_for_many_on_each_of_several_gpus() {
    let settings = on_many();
    let mut wrong = Vec::new();
    let (mut sharded, mut replicated, mut partitioned) = (0, 0, 0);
    for (place, entry) in catalogue::entries().iter().enumerate() {
        let model = ModelChoice::Catalogue(entry.id.to_owned());
        for turn in [place, place + 4, place + 8] {
            let scenario = Scenario { model: model.clone(), ..settings[turn % settings.len()].clone() };
            if let Some(differences) = answers(&scenario) {
                match scenario.cluster.sharding {
                    Sharding::Fsdp2 => sharded += 1,
                    Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => partitioned += 1,
                    Sharding::Ddp => replicated += 1,
                    other => panic!("{other:?} is none of them"),
                }
                wrong.extend(differences);
            }
        }
    }
    let ran = format!("{sharded} sharded, {replicated} replicated and {partitioned} partitioned ones ran");
    assert!(sharded > 60 && replicated > 120 && partitioned > 60, "only {ran}");
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}
