//! One layer on behalf of many must say what all of them say: the fast path against every event of the step, in the first
//! iteration and in a later one, in every phase, by category.

#![cfg(not(target_arch = "wasm32"))]

mod compiled;
#[path = "../drawn/mod.rs"]
mod drawn;
mod float8;
mod gpus;
mod levels;
mod liger;
mod qat;
mod refused;
mod values;
mod whatever;

use headroom::model::catalogue;
use headroom::scenario::{
    AttentionKernel, Checkpointing, Field, Loop, Mask, Method, ModelChoice, Offloading, Optimizer, Precision,
    Savings, Scenario, Stack, StepTime,
};
use headroom::{estimate, share};

use drawn::{Draw, answers};
use refused::refuses;

/// Settings that change what a step keeps: every model of the catalogue is run with each.
fn variations() -> [Scenario; 18] {
    let base = Scenario {
        batch: 2,
        sequence: 256,
        method: Method::Full,
        checkpointing: Checkpointing::Off,
        precision: Precision::Bf16,
        ..Scenario::default()
    };
    let in_backward = Savings { step: StepTime::InBackward, ..base.savings };
    let offloaded = Savings { offloading: Offloading::On, ..base.savings };
    let unsloth = Scenario {
        stack: Stack::Unsloth,
        method: Method::Qlora,
        checkpointing: Checkpointing::Offloaded,
        ..base.clone()
    };
    let kept = Loop { keeps_outputs: true, grads_to_none: false, ..base.training_loop };
    [
        base.clone(),
        Scenario {
            checkpointing: Checkpointing::NonReentrant,
            precision: Precision::AmpBf16,
            optimizer: Optimizer::AdamW8bit,
            ..base.clone()
        },
        Scenario { attention: AttentionKernel::Eager, method: Method::Lora, accumulation: 4, ..base.clone() },
        Scenario {
            checkpointing: Checkpointing::Reentrant,
            attention: AttentionKernel::Eager,
            method: Method::Lora,
            training_loop: kept,
            ..base.clone()
        },
        Scenario {
            method: Method::Qlora,
            precision: Precision::AmpBf16Weights,
            dropout: Some(100),
            ..base.clone()
        },
        Scenario { savings: in_backward, optimizer: Optimizer::AdamW, ..base.clone() },
        Scenario {
            savings: in_backward,
            optimizer: Optimizer::AdamW8bit,
            checkpointing: Checkpointing::NonReentrant,
            ..base.clone()
        },
        Scenario { stack: Stack::Torchtune, method: Method::Lora, ..base.clone() },
        Scenario {
            stack: Stack::Torchtune,
            method: Method::Qlora,
            checkpointing: Checkpointing::NonReentrant,
            ..base.clone()
        },
        Scenario { savings: offloaded, checkpointing: Checkpointing::NonReentrant, ..base.clone() },
        Scenario { stack: Stack::Trl, precision: Precision::AmpBf16, ..base.clone() },
        Scenario {
            stack: Stack::Trl,
            method: Method::Qlora,
            mask: Mask::PaddingFree,
            checkpointing: Checkpointing::NonReentrant,
            accumulation: 4,
            ..base.clone()
        },
        Scenario { stack: Stack::Trl, method: Method::Lora, savings: offloaded, ..base.clone() },
        unsloth.clone(),
        Scenario { mask: Mask::PaddingFree, batch: 4, ..unsloth.clone() },
        Scenario { mask: Mask::PaddingFree, attention: AttentionKernel::FlashAttn, ..base.clone() },
        Scenario { checkpointing: Checkpointing::Reentrant, method: Method::Lora, ..unsloth.clone() },
        Scenario { checkpointing: Checkpointing::Off, accumulation: 4, ..unsloth },
    ]
}

/// Every model of the catalogue with three of the settings above and one drawn from all of them: which ones follows from
/// its place, so that each setting meets models of all kinds.
#[test]
fn one_layer_stands_for_many() {
    let variations = variations();
    let mut wrong = Vec::new();
    let mut ran = 0;
    for (place, entry) in catalogue::entries().iter().enumerate() {
        let model = ModelChoice::Catalogue(entry.id.to_owned());
        let turns = (0..3).map(|turn| variations[(place + 5 * turn) % variations.len()].clone());
        let drawn = Draw::new(place as u64).scenario_of(model.clone());
        for variation in turns.chain([Scenario { batch: 2, sequence: 256, ..drawn }]) {
            let scenario = Scenario { model: model.clone(), ..variation };
            if let Some(differences) = answers(&scenario) {
                ran += 1;
                wrong.extend(differences);
            }
        }
    }
    assert!(ran > 400, "only {ran} scenarios ran");
    assert!(wrong.is_empty(), "{} of {ran}: {}", wrong.len(), wrong.join("\n"));
}

/// What these links open is answered, and alike whether one layer stands for many or each is run.
#[track_caller]
fn answer_alike(links: impl IntoIterator<Item = String>) {
    let differences = |link: String| {
        let scenario = share::decode(&link).scenarios.remove(0);
        answers(&scenario).unwrap_or_else(|| panic!("{link}: {:?}", estimate(&scenario).issues))
    };
    let wrong: Vec<String> = links.into_iter().flat_map(differences).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The hidden states of all layers stay while Unsloth runs its row of answers, whatever its checkpoints leave.
#[test]
fn reinforcement_under_unsloth() {
    let own =
        ["gc=offloaded", "gc=off&ref=none", "gc=reentrant&ga=3", "gc=offloaded&method=qlora&ref=none&ga=2"];
    answer_alike(own.map(|own| {
        format!("v=1&task=grpo&m=Qwen/Qwen2.5-0.5B&method=lora&p=amp-bf16-weights&st=unsloth&b=3&s=1024&prompt=128&{own}")
    }));
}

/// The same of experts that are layers of their own, as transformers 4 runs them.
#[test]
fn one_layer_stands_for_many_whose_experts_are_layers() {
    let base = "exl=layers&s=64&b=2";
    answer_alike(
        [
            "m=mistralai/Mixtral-8x7B-v0.1&method=qlora&gc=on",
            "m=mistralai/Mixtral-8x7B-v0.1&method=full&p=bf16&gc=off",
            "m=allenai/OLMoE-1B-7B-0924&method=lora&p=bf16&gc=off",
            "m=allenai/OLMoE-1B-7B-0924&method=qlora&gc=reentrant&prep=off&ga=2",
        ]
        .map(|settings| format!("{base}&{settings}")),
    );
    refuses(
        "m=Qwen/Qwen3-30B-A3B&method=qlora&exl=layers&s=64",
        &[
            ("", None),
            ("m=openai/gpt-oss-20b", Some(Field::Experts)),
            ("m=meta-llama/Llama-3.1-8B", None),
            ("st=trl", Some(Field::Experts)),
            ("gpus=2&shard=ddp", Some(Field::Experts)),
            ("task=classify", Some(Field::Experts)),
            ("task=generate", Some(Field::Experts)),
            ("q=int8", Some(Field::Experts)),
            ("ad=dora", Some(Field::Experts)),
            (
                "m=x(model_type:olmoe,hidden_size:64,num_attention_heads:4,num_hidden_layers:1,num_experts:1025)",
                Some(Field::Experts),
            ),
            ("m=deepseek-ai/DeepSeek-V3&p=bf16&prep=off", None),
            ("m=deepseek-ai/DeepSeek-V3", Some(Field::KbitPrepare)),
            ("m=deepseek-ai/DeepSeek-V3&p=amp-bf16&prep=off", Some(Field::KbitPrepare)),
        ],
    );
}

/// The same of checkpoints and of adapters that are merged, each in its phase.
#[test]
fn one_layer_stands_for_many_that_are_saved_and_merged() {
    let each = [
        "m=meta-llama/Llama-3.1-8B&method=qlora&save=on&merge=gpu",
        "m=meta-llama/Llama-3.1-8B&method=lora&p=bf16&merge=gpu&gc=off",
        "m=Qwen/Qwen3-8B&method=qlora&st=trl&merge=gpu&t=attention",
        "m=mistralai/Mixtral-8x7B-v0.1&method=full&p=bf16&save=on",
    ];
    answer_alike(each.map(|settings| format!("s=128&{settings}")));
}
/// The same with pictures: a tower's layers run one by one, what some of them make is added to the text's first layers, and a
/// frozen tower is recorded or not.
#[test]
fn one_layer_stands_for_many_with_pictures() {
    let models = [
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "Qwen/Qwen3-VL-2B-Instruct",
        "Qwen/Qwen3-VL-8B-Instruct",
        "google/gemma-3-4b-it",
        "mistralai/Ministral-3-3B-Instruct-2512",
        "Qwen/Qwen3-VL-30B-A3B-Instruct",
        "Qwen/Qwen3.5-9B",
        "google/gemma-4-26B-A4B",
    ];
    let settings = [
        "method=full&p=bf16&gc=off",
        "method=full&p=amp-bf16&gc=on&ga=3&vt=frozen",
        "method=lora&p=bf16&gc=on&vt=frozen",
        "method=lora&p=bf16&gc=reentrant&b=2",
        "method=lora&p=bf16&gc=off&t=q_proj,v_proj&mask=ones",
        "method=qlora&p=amp-bf16-weights&gc=on&b=2",
        "st=trl&method=full&p=amp-bf16-weights&gc=on&mask=padded&b=2",
        "st=trl&method=lora&p=amp-bf16-weights&gc=off&mask=ones&vt=frozen&ga=2",
    ];
    let mut wrong = Vec::new();
    // trl and reentrant checkpoints are refused of it
    let crossed =
        settings.iter().filter(|setting| !setting.contains("trl") && !setting.contains("reentrant"));
    let crossed = crossed.map(|setting| ("meta-llama/Llama-3.2-11B-Vision", setting));
    // trl is refused of it, and adapters on every linear layer
    let tiled = settings.iter().filter(|setting| !setting.contains("trl"));
    let tiled = tiled.filter(|setting| setting.contains("full") || setting.contains("t=q_proj"));
    let tiled = tiled.map(|setting| ("meta-llama/Llama-4-Scout-17B-16E-Instruct", setting));
    for (model, setting) in models
        .into_iter()
        .flat_map(|model| settings.iter().map(move |setting| (model, setting)))
        .chain(crossed)
        .chain(tiled)
    {
        let link = format!("m={model}&img=1&imh=300&imw=500&s=777&{setting}");
        let scenario = share::decode(&link).scenarios.remove(0);
        let found = answers(&scenario);
        wrong.extend(found.unwrap_or_else(|| panic!("{link}: {:?}", estimate(&scenario).issues)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// dbrx-base, from its config.json.
const DBRX: &str = "dbrx(attn_config:(clip_qkv:8,kv_n_heads:8),d_model:6144,emb_pdrop:0.0,ffn_config:(ffn_hidden_size:10752,\
                    moe_num_experts:16,moe_top_k:4),max_seq_len:32768,model_type:dbrx,n_heads:48,n_layers:40,resid_pdrop:0.0,\
                    tie_word_embeddings:!f,vocab_size:100352)";

/// Scenarios whose parts did not sum to their peak, or whose fast path said something else than their recording.
#[test]
fn what_once_differed_is_the_same() {
    for link in [
        // layers that are given what they do not return
        "m=microsoft/Phi-mini-MoE-instruct&method=full",
        "m=microsoft/Phi-mini-MoE-instruct&method=lora&ga=2",
        "m=microsoft/Phi-mini-MoE-instruct&method=lora&b=100&ga=2",
        "m=facebook/opt-350m&method=full&s=128",
        "m=facebook/opt-350m&method=lora&ga=8",
        "m=facebook/opt-350m&method=full&out=on",
        "m=nvidia/Nemotron-H-56B-Base-8K&q=nf4-early&prep=off",
        // a leaf that expected more gradients than it is given
        "m=google-t5/t5-base",
        "m=google-t5/t5-11b",
        "m=google/mt5-base",
        "m=google-t5/t5-large&r=8&p=bf16&o=adam&s=32768&mask=padded&drop=1",
        "m=google/flan-t5-large&dq=off&stn=off&cache=on",
        "m=google-t5/t5-large&s=8192",
        // attention probabilities that live until the next layer is through
        "m=tiiuae/falcon-rw-1b&attn=eager",
        "m=bigscience/bloom-7b1&loss=liger",
        "m=mosaicml/mpt-7b&drop=1",
        // a first layer through which no gradient flows
        "m=Qwen/Qwen3.5-397B-A17B&t=attention&gc=off",
        "m=Qwen/Qwen3-Next-80B-A3B-Instruct&t=q_proj&gc=off",
        // a dropout of the embeddings
        "m=Qwen/Qwen-1_8B&ga=3&drop=1",
        // inputs that early 4-bit products hold until the graph is gone
        "m=allenai/OLMo-2-0425-1B&q=nf4-early&prep=off&p=fp16&b=3&s=512&gc=off",
        "m=google-bert/bert-base-uncased&q=nf4-early&prep=off&p=fp16&out=on",
        // parameters that never have a gradient
        "m=ai21labs/Jamba-v0.1&method=lora&s=128&gc=off",
        // an optimizer's local that meets the next layer's first parameter
        "m=mistralai/Mistral-Nemo-Instruct-2407&method=lora&t=attention&prep=off&p=fp16&o=adafactor-torch",
        // lengths that vary about nothing
        "m=google/flan-t5-large&dq=off&len=0~2547&stn=off&cache=on",
        // experts whose matrices lie in flat tensors (dbrx's own config)
        &format!("m={DBRX}&method=full"),
        &format!("m={DBRX}&method=full&ga=8&s=4096"),
        &format!("m={DBRX}&method=lora&b=100&gc=reentrant&loss=chunked"),
        // log-probabilities of the batches of a round that are not run, and layers with a window that let go of the prompt
        "task=grpo&m=EleutherAI/pythia-14m&method=full&p=amp-bf16&b=2&s=200&ref=none&ga=5&mask=padded&st=trl&gpu=a100-sxm-80gb",
        "task=grpo&m=EleutherAI/pythia-14m&method=lora&p=amp-bf16&b=3&s=200&ref=scored&ga=8&mask=padded&st=trl&gpu=a100-sxm-80gb",
        "task=generate&m=google/gemma-2-2b&p=bf16&method=full&s=6000&new=100",
        // states that stay where they are beside keys and values that grow, and positions in three grids
        "task=generate&m=Qwen/Qwen3.5-9B&p=bf16&method=full&b=2&s=700&new=30",
        "task=generate&m=Qwen/Qwen3-Next-80B-A3B-Instruct&p=bf16&method=full&s=300&new=5",
        "task=generate&m=LiquidAI/LFM2-1.2B&p=bf16&method=full&b=3&s=300&new=40",
        "task=generate&m=google/gemma-3-4b-it&p=bf16&method=full&b=2&s=1500&new=30",
        "task=generate&m=google/gemma-4-31B-it&p=bf16&method=full&s=1500&new=30",
        "task=generate&m=Qwen/Qwen2.5-VL-3B-Instruct&p=bf16&method=full&b=2&s=500&new=30&kv=static",
        // a reference in one unit, which is gathered with all of its layers, and passes before the one that has a graph
        "task=dpo&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&b=2&s=300&mask=ones&st=trl&gpus=4&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=dpo&m=Qwen/Qwen3-8B&method=full&p=amp-bf16&ga=2&s=300&mask=ones&st=trl&gpus=3&shard=fsdp2&reshard=off&gpu=a100-sxm-80gb",
        "task=dpo&m=Qwen/Qwen3-8B&method=lora&p=amp-bf16&gc=off&s=300&mask=ones&st=trl&gpus=8&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=kto&m=TinyLlama/TinyLlama-1.1B-Chat-v1.0&method=full&p=amp-bf16&b=2&s=300&mask=ones&st=trl&gpus=4&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=kto&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&b=2&ga=3&gc=off&s=300&mask=ones&st=trl&gpus=4&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=kto&m=Qwen/Qwen3-8B&method=qlora&p=amp-bf16&b=2&s=300&mask=ones&st=trl&gpus=2&shard=fsdp2&gpu=a100-sxm-80gb",
        // a head that is called
        "task=orpo&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&b=2&s=300&mask=ones&st=trl&gpus=4&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=cpo&m=TinyLlama/TinyLlama-1.1B-Chat-v1.0&method=full&p=amp-bf16&ga=2&gc=off&s=300&mask=ones&st=trl&gpus=3&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=simpo&m=Qwen/Qwen3-8B&method=lora&p=amp-bf16&b=2&s=300&mask=ones&st=trl&gpus=8&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=orpo&m=Qwen/Qwen3-8B&method=lora&p=amp-bf16-weights&b=2&s=300&mask=ones&st=trl&gpus=2&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=reward&m=TinyLlama/TinyLlama-1.1B-Chat-v1.0&method=lora&p=amp-bf16&b=2&s=300&mask=ones&st=trl&gpus=4&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=reward&m=Qwen/Qwen3-8B&method=full&p=amp-bf16&b=2&ga=2&s=300&mask=ones&st=trl&gpus=4&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=grpo&m=Qwen/Qwen3-8B&method=full&p=amp-bf16&ref=scored&b=2&ga=2&s=300&prompt=100&mask=ones&st=trl&gpus=4&shard=fsdp2&gpu=a100-sxm-80gb",
        "task=rloo&m=Qwen/Qwen3-8B&method=qlora&p=amp-bf16&ref=scored&b=2&s=300&prompt=100&mask=ones&st=trl&gpus=2&shard=fsdp2&gpu=a100-sxm-80gb",
        // routers' logits of one pass among those without a graph, and towers beside a text alone
        "task=dpo&m=Qwen/Qwen3-30B-A3B&method=lora&p=amp-bf16-weights&gc=off&s=200&prompt=50&mask=padded&st=trl",
        "task=kto&m=Qwen/Qwen3-30B-A3B&method=lora&p=amp-bf16-weights&b=2&ga=2&s=200&prompt=50&mask=padded&st=trl",
        "task=grpo&m=Qwen/Qwen3-30B-A3B&method=full&p=amp-bf16-weights&ref=scored&b=2&ga=3&s=200&prompt=50&mask=padded&st=trl",
        "task=reward&m=Qwen/Qwen3-30B-A3B&method=full&p=amp-bf16-weights&gc=off&s=200&mask=padded&st=trl",
        "task=dpo&m=Qwen/Qwen2.5-VL-3B-Instruct&method=lora&p=amp-bf16-weights&b=2&s=200&prompt=50&mask=padded&st=trl",
        "task=rloo&m=google/gemma-3-4b-it&method=full&p=amp-bf16-weights&gc=off&b=2&s=200&prompt=50&mask=padded&st=trl",
        "task=reward&m=Qwen/Qwen3.5-9B&method=lora&p=amp-bf16-weights&ga=2&s=200&mask=padded&st=trl",
        // engines of two models, passes without gradients that invalidate a trace, and weights that stay until backward is over
        "m=Qwen/Qwen3-0.6B&method=lora&p=amp-bf16-weights&b=2&s=300&mask=ones&st=trl&gpus=4&shard=zero3&gpu=a100-sxm-80gb",
        "task=dpo&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&b=2&s=300&mask=ones&st=trl&gpus=4&shard=zero3&gpu=a100-sxm-80gb",
        "task=grpo&m=Qwen/Qwen3-0.6B&method=lora&p=amp-bf16&ref=scored&b=2&s=300&prompt=100&mask=ones&st=trl&gpus=2&shard=zero3&gpu=a100-sxm-80gb",
        // the first product of autograd's thread is inside a layer
        "m=Qwen/Qwen3-30B-A3B-Instruct-2507&method=lora&p=amp-fp16&s=128&gc=off&attn=math&loss=liger",
        // hidden states that become float32 in the first layer, whose products are bfloat16 among float16 weights
        "m=Qwen/Qwen2.5-7B&method=qlora&q=awq-4&p=amp-bf16-weights&prep=off&s=300&gc=off",
        "m=meta-llama/Llama-3.1-8B&method=qlora&q=awq-4&p=amp-bf16-weights&prep=off&s=100&gc=on",
        "m=Qwen/Qwen2.5-7B&method=qlora&q=awq-4-cuda&p=bf16&s=700&b=2&gc=off",
        "task=generate&m=Qwen/Qwen2.5-7B&method=qlora&q=awq-4-cuda&p=bf16&s=300&new=20",
    ] {
        for scenario in share::decode(link).scenarios {
            let differences = answers(&scenario);
            assert_eq!(differences, Some(Vec::new()), "{link}");
        }
    }
}

/// Loops over chunks and tokens run once on behalf of many, and are recorded in bundles where they are long.
#[test]
fn one_run_of_a_loop_stands_for_many() {
    let base = Scenario { batch: 2, ..Scenario::default() };
    let mut wrong = Vec::new();
    let mut ran = 0;
    for (id, sequences) in [
        ("Qwen/Qwen3.5-9B", [640, 12_900]),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", [1000, 16_384]),
        ("nvidia/Nemotron-H-56B-Base-8K", [3, 1000]),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", [1, 4096]),
        ("state-spaces/mamba-130m-hf", [1, 5]),
        ("state-spaces/mamba-130m-hf", [100, 2000]),
        ("tiiuae/falcon-mamba-7b", [4, 1000]),
        ("ai21labs/Jamba-v0.1", [3, 700]),
    ] {
        for sequence in sequences {
            for (checkpointing, method, precision) in [
                (Checkpointing::Off, Method::Full, Precision::Bf16),
                (Checkpointing::Off, Method::Lora, Precision::AmpBf16),
                (Checkpointing::NonReentrant, Method::Full, Precision::AmpBf16),
                (Checkpointing::NonReentrant, Method::Qlora, Precision::Bf16),
            ] {
                let model = ModelChoice::Catalogue(id.to_owned());
                let scenario = Scenario { model, checkpointing, method, precision, sequence, ..base.clone() };
                // 4-bit weights of the first kind of state spaces are refused
                if let Some(differences) = answers(&scenario) {
                    ran += 1;
                    wrong.extend(differences);
                }
            }
        }
    }
    assert_eq!(ran, 56, "scenarios that ran");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A sequence as long as any that is computed must not be run token by token.
#[test]
fn the_longest_sequence_is_answered_at_once() {
    let sequence = 1 << 24;
    for id in ["state-spaces/mamba-2.8b-hf", "ai21labs/Jamba-v0.1", "Qwen/Qwen3.5-397B-A17B"] {
        let scenario =
            Scenario { model: ModelChoice::Catalogue(id.to_owned()), sequence, ..Scenario::default() };
        let start = std::time::Instant::now();
        assert!(headroom::estimate(&Scenario { method: Method::Lora, ..scenario }).memory.is_some(), "{id}");
        assert!(start.elapsed() < std::time::Duration::from_secs(1), "{id} {:?}", start.elapsed());
    }
}
