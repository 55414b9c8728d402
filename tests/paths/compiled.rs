//! What torch.compile compiles, layers one by one or a whole model: both paths answer alike, and what does not go with it is refused.

use headroom::scenario::Field;

use crate::{answer_alike, refuses};

#[test]
fn one_compiled_layer_stands_for_many() {
    let each = [
        "m=meta-llama/Llama-3.1-8B&gc=off",
        "m=meta-llama/Llama-3.1-8B&gc=on&ga=3&s=512",
        "m=meta-llama/Llama-3.2-1B&gc=off&b=4&s=2048",
        "m=meta-llama/Llama-3.2-1B&gc=on&b=4&s=2048&gpu=a100-sxm-80gb",
        "m=mistralai/Mistral-7B-v0.1&gc=off&s=1024",
        "m=Qwen/Qwen3-8B&gc=on&s=2048",
        "m=Qwen/Qwen2.5-7B&gc=off",
        "m=meta-llama/Llama-3.2-1B&gc=off&p=amp-bf16",
        "m=meta-llama/Llama-3.1-8B&gc=off&method=lora&ld=off",
        "m=meta-llama/Llama-3.1-8B&gc=on&method=lora&ld=off&t=qv&b=2",
    ];
    answer_alike(
        each.map(|settings| format!("gpu=h100-sxm-80gb&method=full&p=bf16&compile=layers&s=128&{settings}")),
    );
}

#[test]
fn a_compiled_model_is_one_graph_on_either_path() {
    let each = [
        "m=meta-llama/Llama-3.1-8B&gc=off&s=512",
        "m=meta-llama/Llama-3.1-8B&gc=on&ga=3&s=512",
        "m=meta-llama/Llama-3.2-1B&gc=off&b=8&s=2048",
        "m=meta-llama/Llama-3.2-1B&gc=on&b=4&s=1024",
        "m=meta-llama/Llama-3.2-1B&gc=off&b=2&s=1024&mask=ones&ga=2&o=adamw",
        "m=meta-llama/Llama-2-7b-hf&gc=off&s=1024&gpu=h100-sxm-80gb",
        "m=meta-llama/Llama-3.1-70B&gc=off&s=1024",
    ];
    answer_alike(
        each.map(|settings| format!("gpu=a100-sxm-80gb&method=full&p=bf16&compile=model&{settings}")),
    );
}

#[test]
fn what_does_not_go_with_a_compiled_model_is_refused() {
    refuses(
        "m=meta-llama/Llama-3.2-1B&method=full&p=bf16&compile=model&gpu=a100-sxm-80gb&s=512",
        &[
            ("", None),
            ("gc=off", None),
            ("gc=reentrant", Some(Field::Checkpointing)),
            ("gc=on&gpu=h100-sxm-80gb", Some(Field::Compile)),
            ("gc=on&mask=ones", Some(Field::Compile)),
            ("method=lora", Some(Field::Method)),
            ("p=amp-bf16", Some(Field::Precision)),
            ("m=meta-llama/Llama-2-7b-hf", Some(Field::Compile)),
            ("m=mistralai/Mistral-7B-v0.1", Some(Field::Compile)),
            ("m=Qwen/Qwen3-0.6B", Some(Field::Compile)),
            ("s=500&gc=off", Some(Field::Compile)),
        ],
    );
}

#[test]
fn what_does_not_go_with_compiled_layers_is_refused() {
    refuses(
        "m=meta-llama/Llama-3.2-1B&method=full&p=bf16&compile=layers&gpu=rtx-4090&s=64",
        &[
            ("", None),
            ("gc=off", None),
            ("gc=reentrant", Some(Field::Checkpointing)),
            ("method=lora&ld=off", None),
            ("method=lora&ld=off&t=attention", None),
            ("method=lora&ld=off&t=q_proj,v_proj", None),
            ("method=lora&ld=off&t=q_proj,up_proj", Some(Field::LoraTargets)),
            ("method=lora&ld=off&t=mlp", Some(Field::LoraTargets)),
            ("method=lora&ld=on", Some(Field::LoraDropout)),
            ("method=lora&ld=off&r=6", Some(Field::LoraRank)),
            ("method=lora&ld=off&ad=dora", Some(Field::Adapter)),
            ("method=lora&ld=off&a32=off", Some(Field::Fp32Adapters)),
            ("method=lora&ld=off&p=amp-bf16", Some(Field::Precision)),
            ("method=lora&ld=off&m=Qwen/Qwen3-0.6B", Some(Field::Compile)),
            ("method=qlora", Some(Field::Method)),
            ("p=amp-bf16", None),
            ("p=amp-bf16&m=Qwen/Qwen3-0.6B", Some(Field::Compile)),
            ("p=fp32", Some(Field::Precision)),
            ("f8=rowwise", Some(Field::Float8)),
            ("qat=int4", Some(Field::Qat)),
            ("st=trl", Some(Field::Stack)),
            ("st=liger", Some(Field::Stack)),
            ("attn=eager", Some(Field::Attention)),
            ("attn=flash", None),
            ("gpu=t4", Some(Field::Attention)),
            ("offload=on", Some(Field::Offloading)),
            ("step=in-backward&clip=off", Some(Field::Step)),
            ("cache=on&gc=off", Some(Field::UseCache)),
            ("mask=padded", Some(Field::Mask)),
            ("mask=padded&len=40~20", Some(Field::Lengths)),
            ("gpus=2&shard=fsdp2", Some(Field::Sharding)),
            ("task=dpo&st=trl", Some(Field::Task)),
            ("m=Qwen/Qwen3-0.6B", None),
            ("m=Qwen/Qwen2.5-0.5B", None),
            ("m=microsoft/Phi-3-mini-4k-instruct", Some(Field::Compile)),
            // inductor pads products over tokens that 8 does not divide
            ("s=63", Some(Field::Compile)),
            ("s=63&b=8", None),
            // with its window a mistral has a mask
            ("m=mistralai/Mistral-7B-v0.1&s=8192", Some(Field::Compile)),
        ],
    );
}
