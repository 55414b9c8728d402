//! Layers that round: one stands for many, and what does not go with them is refused.

use headroom::memory::{Category, Stage};
use headroom::scenario::Field;
use headroom::{estimate, share};

use crate::{answer_alike, refuses};

#[test]
fn one_layer_that_rounds_stands_for_many() {
    let each = [
        "m=meta-llama/Llama-3.1-8B&p=bf16&qat=int4&qatg=32&gc=off",
        "m=meta-llama/Llama-3.1-8B&p=bf16&qat=int8-int4&gc=off",
        "m=meta-llama/Llama-3.1-8B&p=amp-bf16&qat=int8-int4&gc=on&ga=3",
        "m=Qwen/Qwen2.5-1.5B&p=amp-bf16-weights&qat=int8-int4-axolotl&gc=reentrant",
        "m=Qwen/Qwen3-8B&p=bf16&qat=int4-axolotl&qatl=body&gc=on",
        "m=Qwen/Qwen3-8B&p=bf16&qat=fp8&gc=off&ga=4",
        "m=google/gemma-3-1b-it&p=amp-bf16&qat=fp8-axolotl&gc=on",
        "m=mistralai/Mistral-7B-v0.1&p=bf16&qat=fp8-int4&gc=off",
        "m=microsoft/phi-2&p=bf16&qat=int8-int4&gc=on",
        "m=google-t5/t5-base&p=bf16&qat=int8-int4&gc=off",
        "m=meta-llama/Llama-3.1-8B&p=bf16&qat=int8-int4&gc=on&step=in-backward",
    ];
    answer_alike(each.map(|settings| format!("method=full&gpu=h200-sxm&s=128&{settings}")));
}

#[test]
fn what_does_not_go_with_layers_that_round_is_refused() {
    refuses(
        "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&qat=int8-int4&gpu=h200-sxm&s=64",
        &[
            ("", None),
            ("method=lora", Some(Field::Method)),
            ("method=qlora", Some(Field::Method)),
            ("st=trl", Some(Field::Stack)),
            ("st=liger", None),
            ("st=liger&loss=cut", Some(Field::Loss)),
            ("loss=liger", Some(Field::Loss)),
            ("loss=chunked", Some(Field::Loss)),
            ("task=dpo&st=trl", Some(Field::Task)),
            ("offload=on", Some(Field::Offloading)),
            ("p=amp-fp16", Some(Field::Precision)),
            ("f8=tensorwise&gpu=h100-sxm-80gb", Some(Field::Qat)),
            ("gpus=2&shard=fsdp2", Some(Field::Sharding)),
            ("m=Qwen/Qwen2.5-VL-3B-Instruct", Some(Field::Qat)),
            ("m=allenai/OLMoE-1B-7B-0924", Some(Field::Qat)),
            ("m=facebook/opt-350m", Some(Field::Qat)),
            // 896 features are no multiple of 256
            ("m=Qwen/Qwen2.5-0.5B&qatg=256", Some(Field::QatGroup)),
            ("m=Qwen/Qwen2.5-0.5B&qatg=128", None),
            ("m=Qwen/Qwen2.5-0.5B&qatg=256&qat=fp8", None),
            ("task=classify", Some(Field::Task)),
        ],
    );
}

/// What the output head's weight is on the way to what is rounded is no part of the logits.
#[test]
fn a_head_that_rounds_makes_no_logits() {
    let parts = |layers: &str| {
        let link =
            format!("m=meta-llama/Llama-3.2-1B&method=full&p=bf16&qat=int4&qatl={layers}&gpu=h200-sxm&s=512");
        let answer = estimate(&share::decode(&link).scenarios[0]);
        let memory = answer.memory.unwrap_or_else(|| panic!("{link} has a figure"));
        let backward = memory.steady.phases.iter().find(|(phase, _)| phase.stage == Stage::Backward);
        backward.map(|(_, peak)| peak.parts).expect("it has a backward pass")
    };
    let [all, body] = ["all", "body"].map(parts);
    assert!(all.total() > body.total());
    assert!(all.get(Category::Logits) <= body.get(Category::Logits), "{all:?}");
}
