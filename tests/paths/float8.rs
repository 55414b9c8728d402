//! Products in 8-bit floats: one layer stands for many, and what does not go with them is refused.

use headroom::scenario::Field;

use crate::{answer_alike, refuses};

#[test]
fn one_layer_stands_for_many_in_8_bits() {
    let each = [
        "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&f8=tensorwise&gc=off",
        "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&f8=rowwise&gc=on&ga=3",
        "m=Qwen/Qwen2.5-7B&method=lora&f8=rowwise-gw-hp&gc=reentrant&f8l=body",
        "m=Qwen/Qwen3-8B&method=lora&r=8&p=bf16&f8=rowwise&f8l=large&gc=off",
        "m=mistralai/Mixtral-8x7B-v0.1&method=lora&r=16&p=bf16&f8=tensorwise&gc=on&f8p=on",
        "m=google-t5/t5-base&method=full&p=bf16&f8=rowwise&gc=off",
        "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&f8=tensorwise&f8g=on&gpus=8&shard=fsdp2&gc=on",
        "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&f8=tensorwise&f8g=on&gpus=8&shard=fsdp2&gc=on&s=2048",
        "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&f8=rowwise&gpus=8&shard=fsdp2&gc=off",
        "m=meta-llama/Llama-3.1-8B&method=lora&f8=tensorwise&gpus=4&shard=ddp&gc=on",
    ];
    answer_alike(each.map(|settings| format!("gpu=h100-sxm-80gb&s=128&{settings}")));
}

#[test]
fn what_does_not_go_with_8_bits_is_refused() {
    refuses(
        "m=meta-llama/Llama-3.1-8B&method=lora&p=bf16&f8=tensorwise&gpu=rtx-4090&s=64",
        &[
            ("", None),
            ("gpu=rtx-3090", Some(Field::Float8)),
            ("method=qlora", Some(Field::Method)),
            ("ad=dora", Some(Field::Adapter)),
            ("emb=on", Some(Field::Adapter)),
            ("st=trl", Some(Field::Stack)),
            ("task=dpo&st=trl", Some(Field::Task)),
            ("offload=on", Some(Field::Offloading)),
            ("m=Qwen/Qwen2.5-VL-3B-Instruct", Some(Field::Float8)),
            ("gpus=2&shard=zero2", Some(Field::Sharding)),
            ("gpus=2&shard=fsdp2", Some(Field::Method)),
            ("merge=gpu", Some(Field::Merging)),
            ("task=classify", Some(Field::Task)),
            ("m=tiiuae/falcon-7b", Some(Field::Float8)),
            ("m=facebook/opt-350m", Some(Field::Float8)),
            // 16 has to divide the tokens that the weight's gradient is summed over
            ("s=63", Some(Field::Float8Padding)),
            ("s=63&b=16", None),
            ("s=63&f8p=on", None),
            ("s=63&f8=rowwise", Some(Field::Float8Padding)),
            ("s=63&f8=rowwise-gw-hp", None),
            ("mask=padding-free&attn=flash-attn", None),
            ("mask=padded&len=40~20", Some(Field::Float8Padding)),
            // each expert has as many rows as the router sends it
            ("m=allenai/OLMoE-1B-7B-0924&exl=layers&method=full&f8l=body", Some(Field::Float8Padding)),
            ("m=allenai/OLMoE-1B-7B-0924&exl=layers&method=full&f8l=body&f8p=on", None),
            // and both dimensions of a weight
            ("r=8", None),
            ("r=8&f8l=body", Some(Field::Float8Layers)),
            ("f8l=all", None),
            ("f8=rowwise-gw-hp&f8l=large", Some(Field::Float8Layers)),
            ("f8=rowwise&f8g=on", Some(Field::Float8Gather)),
            ("m=meta-llama/Llama-3.2-1B&method=full&f8l=all&f8g=on", Some(Field::Float8Layers)),
            ("method=full&f8g=on&save=on&m=meta-llama/Llama-3.2-1B", Some(Field::Saving)),
        ],
    );
}
