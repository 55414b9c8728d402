//! What a choice comes to that not every model takes: refused as peft and PyTorch refuse it, or measured.
#![cfg(not(target_arch = "wasm32"))]

use headroom::check::check;
use headroom::issue::Severity;
use headroom::{estimate, plan, share};

#[track_caller]
fn refuses(link: &str, message: &str) {
    let shared = share::decode(link);
    assert_eq!(shared.notices, [], "{link}");
    let answer = estimate(&shared.scenarios[0]);
    let errors: Vec<_> = answer.errors().map(ToString::to_string).collect();
    assert!(
        answer.memory.is_none() && errors.len() == 1 && errors[0].contains(message),
        "{link}: {errors:?}"
    );
}

/// The warnings of a link that is answered.
#[track_caller]
fn warns(link: &str) -> Vec<String> {
    let answer = estimate(&share::decode(link).scenarios[0]);
    assert!(answer.memory.is_some(), "{link}: {:?}", answer.issues);
    let warnings = answer.issues.iter().filter(|issue| issue.severity == Severity::Warning);
    warnings.map(ToString::to_string).collect()
}

/// peft 0.21 on the null device: `NoMatchingPeftModuleError` for the first two lists, none for a name beside others.
#[test]
fn layers_that_the_model_lacks_are_refused_as_peft_refuses_them() {
    let layers = "(use all-linear, or layers of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj and lm_head)";
    refuses("t=query", &format!("no layer of llama is called query: peft refuses to start {layers}"));
    refuses("t=", &format!("no layer to adapt is named: peft refuses to start {layers}"));
    refuses("method=lora&t=gate_up_proj,c_attn", "no layer of llama is called gate_up_proj and c_attn");
    refuses(
        "m=openai-community/gpt2&method=lora&t=q_proj",
        "layers of c_attn, c_proj, attn.c_proj, mlp.c_proj",
    );
    refuses("m=state-spaces/mamba-130m-hf&method=lora&t=attention", "has none of the layers of");
    refuses(
        "m=mistralai/Mixtral-8x7B-v0.1&t=w1,w2,w3",
        "adapters on the experts of mixtral alone are not modelled",
    );
    refuses("t=q_proj,embed_tokens", "adapters on embed_tokens are not modelled");
    let passed_over = "no layer of llama is called query: peft passes over what it does not find";
    assert!(warns("t=q_proj,query").iter().any(|warning| warning.starts_with(passed_over)));
    for link in ["t=q_proj,v_proj", "method=full&t=query", "t=q_proj,lm_head", "m=google-t5/t5-base&t=q,v,wo"]
    {
        assert!(!warns(link).iter().any(|warning| warning.contains("is called")), "{link}");
    }
}

/// PyTorch 2.11 on the null device, with that one backend enabled: "RuntimeError: Invalid backend".
#[test]
fn where_the_only_kernel_cannot_run_pytorch_stops() {
    for link in [
        "attn=efficient",
        "attn=efficient&s=8192",
        "m=bigcode/starcoder2-3b&attn=efficient&s=4095",
        "attn=flash&mask=padded",
        "method=full&p=fp32&attn=flash",
        "attn=flash&gpu=t4",
        "attn=cudnn&gpu=t4",
        "m=google/gemma-2b&attn=cudnn&gpu=a100-sxm-80gb",
    ] {
        refuses(link, "PyTorch stops with \"Invalid backend\": SDPA, ");
    }
    for link in [
        "m=bigcode/starcoder2-3b&attn=efficient&s=4096",
        "m=openai-community/gpt2&s=1024&attn=efficient",
        "attn=flash",
        "attn=math&s=512",
        "attn=cudnn&gpu=a100-sxm-80gb",
        "m=google/gemma-2b&attn=cudnn&gpu=h100-sxm-80gb",
    ] {
        warns(link);
    }
}

/// A head that is tied to the embedding is adapted like any other layer, and cuDNN's kernel runs from compute capability
/// 8.0 on where it is the only one. Measured with PyTorch 2.11, transformers 5.17 and peft 0.21 on the null device.
#[test]
fn what_was_measured_of_such_choices_is_predicted() {
    let path = format!("{}/tests/fixtures/measurements/choices.json", env!("CARGO_MANIFEST_DIR"));
    let report = check(&std::fs::read_to_string(path).unwrap(), true).unwrap();
    assert_eq!(report.unsupported, []);
    assert_eq!(report.rows.len(), 14);
    for row in &report.rows {
        assert!(row.error_pct.abs() < 0.25, "{row:?}");
    }
    for part in report.parts.iter().filter(|part| part.phase == "model") {
        assert_eq!(part.measured, part.predicted, "{part:?}");
    }
}

/// trl 1.16: DPO, KTO, GRPO and RLOO add how experts are balanced, reward models and distillation do not; ORPO and CPO do where a config
/// has the model return its routers' logits.
#[test]
fn experts_that_are_balanced_are_answered_in_trls_trainers() {
    let experts = |link: &str| format!("m=Qwen/Qwen3-30B-A3B&st=trl&mask=padded&s=1024&method=lora&{link}");
    for task in ["dpo", "kto&ref=precomputed", "grpo", "rloo", "orpo", "cpo", "simpo", "reward", "distil"] {
        let answer = estimate(&share::decode(&experts(&format!("task={task}"))).scenarios[0]);
        assert!(answer.memory.is_some(), "{task}: {:?}", answer.issues);
    }
    for link in ["task=dpo&gpus=8&shard=fsdp2", "task=grpo&gpus=8&shard=ddp", "task=kto&gpus=8&shard=zero2"] {
        let answer = estimate(&share::decode(&experts(link)).scenarios[0]);
        assert!(answer.memory.is_some(), "{link}: {:?}", answer.issues);
    }
    refuses(
        &experts("task=grpo&rollouts=transformers"),
        "answers that a mixture of experts generates while it trains are not modelled",
    );
    refuses(
        &experts("task=ppo"),
        "a mixture of experts whose routers are part of trl's loss was not compared in this task",
    );
    // a config that has every pass keep its routers' logits
    let text =
        std::fs::read_to_string(format!("{}/data/measurements/preference.json", env!("CARGO_MANIFEST_DIR")));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text.unwrap()).unwrap();
    let mut rows: Vec<_> =
        rows.into_iter().filter(|row| row["id"] == "reward-qwen3-moe-lora-b2-s1024").collect();
    rows[0]["case"]["config"]["output_router_logits"] = true.into();
    let report = check(&serde_json::to_string(&rows).unwrap(), false).unwrap();
    assert!(report.unsupported[0].reason.contains("output_router_logits"), "{:?}", report.unsupported);
}

/// trl's `SFTTrainer` on one GPU, whose collator pads, with pictures under DDP, FSDP2 and ZeRO-1 and -2, and on text alone under all of them; its other
/// trainers on text alone on one GPU.
#[test]
fn pictures_under_trl_are_answered_and_what_was_not_compared_is_refused() {
    let pictured = |link: &str| format!("m=Qwen/Qwen2.5-VL-3B-Instruct&img=1&imh=448&imw=448&s=1024&{link}");
    for link in [
        "st=trl&mask=padded",
        "st=trl&mask=ones&method=full",
        "st=trl&mask=padded&img=0",
        "st=trl&mask=padded&img=0&task=dpo",
        "st=trl&mask=padded&img=0&task=kto&method=full",
        "st=trl&mask=padded&img=0&task=grpo",
        "st=trl&mask=padded&gpus=2&shard=ddp",
        "st=trl&mask=padded&gpus=2&shard=ddp&img=0",
        "st=trl&mask=padded&gpus=2&shard=zero2&img=0",
        "st=trl&mask=padded&gpus=2&shard=zero3&img=0&method=full",
        "st=trl&mask=ones&gpus=8&shard=fsdp2&img=0&method=qlora&p=amp-bf16-weights",
        "st=trl&mask=ones&gpus=2&shard=ddp&img=0&method=full",
        "gpus=8&shard=fsdp2&img=0&method=full&p=amp-bf16",
        "gpus=8&shard=fsdp2&img=0&p=amp-bf16-weights&wrap=accelerate",
        "gpus=8&shard=zero3&img=0&p=amp-bf16",
        "st=trl&mask=ones&method=full&gpus=8&shard=fsdp2",
        "st=trl&mask=padded&gpus=2&shard=zero2",
    ] {
        let answer = estimate(&share::decode(&pictured(link)).scenarios[0]);
        assert!(answer.memory.is_some(), "{link}: {:?}", answer.issues);
    }
    // which accelerate has to be told the layers of
    let told = "m=google/gemma-3-4b-it&img=1&s=1024&method=lora&st=trl&mask=padded&gpus=2&shard=fsdp2";
    let answer = estimate(&share::decode(told).scenarios[0]);
    assert!(answer.memory.is_some(), "{:?}", answer.issues);
    assert!(answer.issues.iter().any(|issue| issue.message.contains("cls_to_wrap: Gemma3DecoderLayer")));
    refuses(
        "m=llava-hf/llava-1.5-7b-hf&s=1024&st=trl&mask=padded&gpus=2&shard=fsdp2",
        "of which the model has no CLIPTextEmbeddings: it stops",
    );
    let refuses_of = refuses;
    let refuses = |link: &str, message: &str| refuses(&pictured(link), message);
    for link in [
        "task=dpo",
        "task=kto",
        "task=grpo",
        "task=grpo&rollouts=transformers",
        "task=grpo&rollouts=colocated",
        "task=rloo&ref=none",
        "task=rloo&rollouts=transformers&method=full",
    ] {
        let answer = estimate(&share::decode(&pictured(&format!("st=trl&mask=padded&{link}"))).scenarios[0]);
        assert!(answer.memory.is_some(), "{link}: {:?}", answer.issues);
    }
    refuses("st=trl&mask=padded&task=grpo&prompt=200", "a prompt of 200 tokens has no room for its pictures");
    refuses("st=trl&mask=padded&task=kto&ref=precomputed", "not supported for vision datasets");
    refuses("st=trl&mask=padded&task=distil", "distillation with pictures is not modelled");
    refuses("st=trl&mask=padded&task=orpo", "trl's trainers for this task take no pictures");
    refuses("st=trl&mask=padded&task=dpo&ref=precomputed", "not supported for vision datasets");
    refuses(
        "st=trl&mask=padded&task=dpo&gpus=2&shard=ddp",
        "learning from answers to texts with pictures of qwen2_5_vl on several GPUs",
    );
    refuses_of("m=google/gemma-3-4b-it&img=1&s=1024&st=trl&mask=padded&task=reward", "take no pictures");
    refuses_of(
        "m=google/gemma-4-26B-A4B-it&img=1&s=1024&st=trl&mask=padded&task=dpo",
        "of gemma4, which has experts, was never compared",
    );
    refuses(
        "st=trl&mask=padded&img=0&task=reward",
        "transformers has no qwen2_5_vl that classifies: AutoModelForSequenceClassification stops",
    );
    refuses(
        "st=trl&mask=padded&gpus=2&shard=zero2&img=0&task=dpo",
        "learning from answers with qwen2_5_vl on several GPUs with trl is not modelled",
    );
    refuses(
        "gpus=2&shard=ddp&img=0&method=full&p=amp-bf16",
        "text alone leaves the tower of qwen2_5_vl, which is trained, without gradients, and DDP stops in the second step",
    );
    refuses(
        "gpus=2&shard=ddp&img=0&method=lora&t=all-linear&p=amp-bf16",
        "text alone leaves the tower of qwen2_5_vl, whose layers have adapters, without gradients",
    );
    refuses(
        "st=trl&mask=padded&gpus=2&shard=zero3",
        "a step with pictures of qwen2_5_vl under ZeRO-3 (DeepSpeed) with trl is not modelled",
    );
    refuses("st=trl&mask=padding-free", "a step on packed texts of qwen2_5_vl with trl is not modelled");
    refuses("st=trl&mask=padded&offload=on", "activation offloading of qwen2_5_vl with trl is not modelled");
    refuses("st=unsloth", "pictures are followed with transformers and trl, not with Unsloth");
    let mllama = |link: &str| format!("m=meta-llama/Llama-3.2-11B-Vision&img=1&s=1024&{link}");
    assert!(estimate(&share::decode(&mllama("gc=on")).scenarios[0]).memory.is_some());
    refuses_of(&mllama("gc=reentrant"), "mllama with pictures stops under reentrant checkpoints");
    refuses_of(&mllama("st=trl&mask=padded"), "pictures of mllama are followed in a loop of one's own");
    let scout =
        |link: &str| format!("m=meta-llama/Llama-4-Scout-17B-16E-Instruct&method=lora&t=attention&{link}");
    let pictures = |link: &str| scout(&format!("img=1&{link}"));
    assert!(estimate(&share::decode(&pictures("p=amp-bf16")).scenarios[0]).memory.is_some());
    refuses_of(&pictures("p=fp16"), "llama4's processor makes pictures of bfloat16");
    // its routers return two tensors, of which peft asks the type
    assert!(estimate(&share::decode(&scout("p=bf16")).scenarios[0]).memory.is_some());
    refuses_of(&scout("t=all-linear"), "peft stops at adapters on llama4's routers");
}

/// What stands beside a step is no part of what was compared there.
#[test]
fn torchtitan_and_unsloths_grpo_are_refused_where_they_were_not_compared() {
    let titan = |link: &str| {
        format!(
            "v=1&m=meta-llama/Llama-3.1-8B&st=torchtitan&method=full&p=amp-bf16&gpus=8&shard=fsdp2&o=adamw-fused&gpu=h100-sxm&{link}"
        )
    };
    assert!(estimate(&share::decode(&titan("gc=on")).scenarios[0]).memory.is_some());
    refuses(&titan("len=1512~300"), "torchtitan's batches are rows of one text without end");
    refuses(&titan("mask=padded"), "torchtitan's batches are rows of one text without end");
    refuses(
        &titan(
            "m=own(hidden_act:gelu,hidden_size:512,intermediate_size:1024,model_type:llama,num_attention_heads:8,num_hidden_layers:2,\
             tie_word_embeddings:!f,vocab_size:1000)",
        ),
        "llama under torchtitan is not modelled: its feed-forward networks have silu",
    );
    let rewards = |link: &str| {
        format!("task=grpo&st=unsloth&m=Qwen/Qwen2.5-1.5B-Instruct&b=4&p=amp-bf16-weights&method=lora&{link}")
    };
    assert!(estimate(&share::decode(&rewards("")).scenarios[0]).memory.is_some());
    refuses(&rewards("eval=loss"), "the evaluation of this task is not modelled");
    refuses(&rewards("save=on"), "the checkpoints of this task are not modelled");
    // its searches begin with two answers, and a sequence that GPUs share is a multiple of their number
    let of = |link: &str| {
        let scenario = share::decode(link).scenarios.remove(0);
        let architecture = scenario.architecture().expect("it is known");
        let gpu = scenario.gpu().expect("it is known");
        (scenario, architecture, gpu)
    };
    let (scenario, architecture, gpu) = of(&rewards("gpu=24GiB"));
    let batch = plan::largest_batch(&architecture, &scenario, &gpu).expect("it runs");
    assert!(batch.is_some_and(|batch| batch.number >= 2));
    let (scenario, architecture, gpu) = of(&titan("gc=on&tp=4"));
    let longest = plan::longest_sequence(&architecture, &scenario, &gpu).expect("it runs");
    assert!(longest.is_some_and(|longest| longest.number.is_multiple_of(4)));
}

#[test]
fn generation_is_refused_where_it_was_not_compared() {
    let refuses = |link: &str, message: &str| refuses(&format!("task=generate&method=full&{link}"), message);
    refuses("p=bf16&m=bigscience/bloom-560m", "generating with bloom is not modelled");
    // with alibi's bias
    refuses("p=bf16&m=tiiuae/falcon-rw-1b", "generating with falcon is not modelled");
    refuses("p=bf16&m=meta-llama/Llama-3.2-11B-Vision", "generating with mllama is not modelled");
    refuses("p=bf16&m=google/gemma-3-4b-it&img=1", "pictures are followed in training alone");
    refuses("p=bf16&m=state-spaces/mamba-130m-hf", "generating with mamba is not modelled");
    refuses("p=amp-bf16", "generation is modelled without autocast");
    refuses("p=bf16&st=torchtune", "generation is modelled with transformers, not with torchtune");
    refuses("p=bf16&gpus=2", "generation on several GPUs is not modelled");
    refuses("p=bf16&shard=fsdp2&alone=on", "generation under FSDP2 on one GPU is not modelled");
    refuses("p=bf16&kv=static&m=mistralai/Mistral-7B-v0.1", "whose layers see a window only");
    refuses("p=bf16&kv=static&m=Qwen/Qwen3.5-9B", "whose layers keep states");
}

/// With metrics each GPU is given the logits of all of them; what was not measured is refused.
#[test]
fn evaluation_on_several_gpus() {
    let needed = |link: &str| {
        let link = format!("m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&eval=metrics&evb=2&evn=2&{link}");
        let answer = estimate(&share::decode(&link).scenarios[0]);
        answer.memory.unwrap_or_else(|| panic!("{link}: {:?}", answer.issues)).needed()
    };
    for engine in ["ddp", "zero1", "zero2", "zero3", "fsdp2&wrap=accelerate", "fsdp2&st=trl", "zero3&st=trl"]
    {
        let [few, many] = [2, 8].map(|gpus| needed(&format!("shard={engine}&gpus={gpus}")));
        assert!(many > few, "{engine}: {few:?} and {many:?}");
    }
    refuses("shard=fsdp2&gpus=8&p=amp-bf16&eval=loss", "whose model accelerate wraps");
    refuses("shard=zero3&gpus=8&cpu=all&p=amp-bf16&eval=loss", "beside what is in the CPU's memory");
}

/// transformers' Trainer classifies under every engine, sentence-transformers' embeds under DDP; what stops or was not measured is refused.
#[test]
fn classification_and_embeddings_on_several_gpus() {
    let runs = |link: &str| {
        let link = format!("m=Qwen/Qwen2.5-0.5B&p=amp-bf16&gpus=8&{link}");
        let answer = estimate(&share::decode(&link).scenarios[0]);
        let own = answer.memory.unwrap_or_else(|| panic!("{link}: {:?}", answer.issues)).needed();
        let text = headroom::export::script(&share::decode(&link).scenarios[0]);
        (own, text.unwrap_or_else(|issue| panic!("{link}: {issue}")))
    };
    let words = ["device_map={\"\": GPU}", "\"stage\": 1", "\"stage\": 2", "\"stage\": 3", "fsdp=True"];
    let engines = ["ddp", "zero1", "zero2", "zero3", "fsdp2&wrap=accelerate"];
    let found = engines.map(|engine| runs(&format!("task=classify&method=full&shard={engine}")));
    for ((_, text), word) in found.iter().zip(words) {
        assert!(text.contains(word), "{word}: {text}");
    }
    let [ddp, zero1, zero2, zero3, fsdp2] = found.map(|(own, _)| own);
    assert!(ddp > zero1 && zero1 >= zero2 && zero2 > fsdp2 && ddp > zero3);
    let (_, text) = runs("task=embed&method=full&shard=ddp");
    assert!(text.contains("GPU = int(os.environ[\"LOCAL_RANK\"])"), "{text}");
    for engine in ["ddp", "zero2", "fsdp2&wrap=accelerate"] {
        runs(&format!("task=classify&method=lora&shard={engine}"));
    }
    let refuses = |link: &str, message: &str| refuses(&format!("p=amp-bf16&gpus=8&{link}"), message);
    refuses(
        "task=classify&method=lora&shard=zero3",
        "DeepSpeed's third stage puts all that is trained into one buffer",
    );
    refuses("task=classify&method=qlora&shard=zero2", "4-bit weights that GPUs share");
    refuses("task=classify&method=full&shard=fsdp2&wrap=loop", "whose model accelerate wraps");
    refuses("task=classify&method=full&shard=zero2&cpu=optimizer", "beside what is in the CPU's memory");
    refuses("task=embed&method=full&shard=zero2", "under DDP alone");
}

/// FSDP2 that wraps the model of a single GPU is no several GPUs, and is what can be switched off.
#[test]
fn what_an_engine_of_one_gpu_is_refused_for_speaks_of_one_gpu() {
    let alone = |link: &str| {
        let scenario =
            &share::decode(&format!("shard=fsdp2&alone=on&method=lora&p=bf16&{link}")).scenarios[0];
        let issues = estimate(scenario).issues;
        let told = issues.iter().find(|issue| issue.severity == Severity::Error);
        told.unwrap_or_else(|| panic!("{link} has an answer")).clone()
    };
    for link in [
        "task=classify",
        "task=embed",
        "task=distil&st=trl&teacher=Qwen/Qwen2.5-7B&m=Qwen/Qwen2.5-1.5B",
        "task=ppo&st=trl",
        "eval=metrics",
        "merge=gpu",
    ] {
        let told = alone(link);
        let words = told.to_string();
        assert!(
            words.contains("under FSDP2 on one GPU") && !words.contains("several GPUs"),
            "{link}: {words}"
        );
    }
    let told = alone("task=classify");
    assert_eq!(told.field, headroom::issue::Field::ShardsAlone);
    let scenario = &share::decode("shard=fsdp2&alone=on&method=lora&p=bf16&task=classify").scenarios[0];
    let repairs = headroom::plan::repairs(scenario);
    assert_eq!(repairs[0].changes[0].label, "FSDP2 on one GPU", "{repairs:?}");
    // what lies in the CPU's memory is DeepSpeed's
    let offloaded = &share::decode("shard=zero3&cpu=all&task=classify&method=lora&p=bf16").scenarios[0];
    let words = format!("{:?}", estimate(offloaded).issues);
    assert!(words.contains("under DeepSpeed is not modelled"), "{words}");
}

/// Models with pictures that are asked for text alone, linear attention and others whose cache was compared.
#[test]
fn generation_is_followed_of_what_was_compared() {
    for model in [
        "google/gemma-3-4b-it",
        "google/gemma-4-26B-A4B",
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "Qwen/Qwen3-VL-4B-Instruct",
        "mistralai/Ministral-3-3B-Instruct-2512",
        "llava-hf/llava-v1.6-mistral-7b-hf",
        "Qwen/Qwen3.5-9B",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "LiquidAI/LFM2-1.2B",
        "tiiuae/falcon-7b",
        "facebook/opt-1.3b",
        "bigcode/gpt_bigcode-santacoder",
    ] {
        warns(&format!("task=generate&method=full&p=bf16&s=1500&new=20&m={model}"));
    }
}

/// Losses of other versions and projects are followed of the trainers that have them, and refused of all others.
#[test]
fn losses_of_preferences_are_followed_where_they_are_run() {
    let of = |rest: &str| format!("v=1&m=Qwen/Qwen2.5-0.5B&mask=padded&st=trl&gpu=h100-sxm-80gb&{rest}");
    for rest in [
        "task=sft&method=lora&loss=full",
        "task=dpo&method=lora&loss=full",
        "task=kto&method=lora&b=2&loss=axolotl",
        "task=cpo&method=lora&loss=axolotl",
        "task=dpo&method=lora&loss=log-softmax",
        "task=orpo&method=lora&loss=log-softmax",
    ] {
        assert!(warns(&of(rest)).is_empty(), "{rest}");
    }
    // no other trainer of trl's makes all logits
    refuses(
        &of("task=grpo&method=lora&loss=full"),
        "all logits are modelled of trl's SFT, as it made them up to 1.6, and of its DPO, KTO, ORPO, CPO and SimPO",
    );
    refuses(&of("task=sft&method=lora&loss=axolotl"), "axolotl's kernels over all logits are modelled of");
    // LLaMA-Factory's trainer of pairs asks its reference in every step, and has no cross entropy beside
    for rest in ["task=dpo&method=lora&ref=precomputed", "task=cpo&method=lora", "task=kto&method=lora"] {
        refuses(
            &of(&format!("{rest}&loss=log-softmax")),
            "LLaMA-Factory's log-probabilities are modelled of its trainer of pairs",
        );
    }
    refuses(
        &of("task=dpo&method=full&p=amp-fp16&loss=log-softmax"),
        "float16 reference of LLaMA-Factory's full fine-tuning",
    );
    refuses(
        "v=1&method=lora&loss=log-softmax",
        "LLaMA-Factory's log-probabilities are modelled of its trainer of pairs",
    );
    // its adapters stay float32 over 4-bit weights, whose gradients fp16's scaler can divide
    let stops = |loss: &str| {
        let link = of(&format!("task=dpo&prep=off&p=amp-fp16&loss={loss}"));
        share::decode(&link).scenarios[0].stops()
    };
    assert!(stops("full") && !stops("log-softmax"));
}

#[test]
fn prime_rls_heads_run_under_fsdp2_in_a_loop_of_its_own() {
    let of =
        |rest: &str| format!("v=1&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&gpu=h100-sxm-80gb&s=1024&{rest}");
    for loss in ["float-logits", "vocabulary-chunks"] {
        let with = |rest: &str| of(&format!("{rest}&loss={loss}"));
        let sharded = share::decode(&with("gpus=8&shard=fsdp2"));
        assert!(estimate(&sharded.scenarios[0]).memory.is_some(), "{loss}");
        for rest in ["", "gpus=8&shard=ddp", "gpus=8&shard=zero3", "gpus=8&shard=fsdp2&wrap=accelerate"] {
            refuses(&with(rest), "prime-rl's heads are followed under FSDP2, in its own loop");
        }
        refuses(&with("gpus=8&shard=fsdp2&method=lora"), "over transformers' modules, all weights trained");
        refuses(&with("gpus=8&shard=fsdp2&task=dpo"), "prime-rl's heads are modelled of steps on texts");
        refuses(
            &with("gpus=8&shard=fsdp2&m=google/gemma-2-2b"),
            "prime-rl's heads multiply by a matrix alone",
        );
    }
}

/// The graph of a whole model is known where its code was compared, and is not scheduled of hundreds of layers: that takes seconds.
#[test]
fn whole_models_are_compiled_where_their_graphs_were_compared() {
    let whole = |link: &str| format!("v=1&method=full&p=bf16&compile=model&gc=off&gpu=a100-sxm-80gb&{link}");
    let own = |layers: u64, keys: u64| {
        whole(&format!(
            "m=own(hidden_size:512,intermediate_size:1024,model_type:llama,num_attention_heads:8,num_hidden_layers:{layers},\
             num_key_value_heads:{keys},vocab_size:32000)"
        ))
    };
    for link in [whole("m=meta-llama/Llama-3.1-8B"), whole("m=meta-llama/Llama-3.2-1B&gc=on"), own(126, 4)] {
        assert!(estimate(&share::decode(&link).scenarios[0]).memory.is_some(), "{link}");
    }
    for (link, message) in [
        (own(4_000, 4), "of more than 256 layers no graph is scheduled"),
        (own(1, 4), "one layer alone was not compared"),
        (own(4, 1), "with one head of keys inductor copies less"),
        (whole("m=Qwen/Qwen3-0.6B"), "not modelled"),
        (whole("m=meta-llama/Llama-3.1-8B&method=lora"), "where all weights are trained"),
        (whole("m=meta-llama/Llama-3.1-8B&gc=on&gpu=h100-sxm-80gb"), "memory-efficient kernel alone"),
    ] {
        refuses(&link, message);
    }
}

/// Layers that Unsloth compiles are followed for any number of tokens and any rank: what a slider passes changes no kind of answer.
#[test]
fn unsloths_layers_are_followed_at_every_step_of_a_slider() {
    let needs = |link: &str| {
        let link = format!(
            "m=Qwen/Qwen3-8B&method=qlora&st=unsloth&gc=offloaded&compile=layers&p=amp-bf16-weights&gpu=a100-sxm-80gb&{link}"
        );
        let answer = estimate(&share::decode(&format!("v=1&{link}")).scenarios[0]);
        answer.memory.unwrap_or_else(|| panic!("{link}: {:?}", answer.issues)).needed().0
    };
    for steps in [
        ["b=8&s=1023", "b=8&s=1024", "b=8&s=1025"],
        ["b=8&r=8", "b=8&r=12", "b=8&r=16"],
        ["b=7", "b=8", "b=9"],
    ] {
        let needed = steps.map(needs);
        assert!(needed.is_sorted(), "{steps:?}: {needed:?}");
    }
    for gpu in ["t4", "rtx-3090", "h100-sxm-80gb", "b200-sxm", "rtx-5090"] {
        let precision = if gpu == "t4" { "fp16" } else { "amp-bf16-weights" };
        for model in ["Qwen/Qwen2.5-7B", "Qwen/Qwen3-4B", "meta-llama/Llama-2-7b-hf"] {
            let link = format!(
                "v=1&m={model}&method=qlora&st=unsloth&gc=offloaded&compile=layers&p={precision}&s=512&gpu={gpu}"
            );
            let answer = estimate(&share::decode(&link).scenarios[0]);
            assert!(answer.memory.is_some(), "{link}: {:?}", answer.issues);
        }
    }
}
