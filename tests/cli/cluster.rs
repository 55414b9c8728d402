//! What is said of several GPUs: on how many of them figures are the same, and of what parameters are.

use serde_json::Value;

use super::{headroom, says};

#[test]
fn figures_of_several_gpus_are_those_on_each() {
    let asked = ["estimate", "--model", "Qwen/Qwen3-0.6B", "--method", "full", "--gpus", "8"];
    let out = says(&asked);
    for part in ["FSDP2", "on each of 8 GPUs", "NCCL's buffers are not counted"] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let needed = |more: &[&str]| {
        let json: Value = serde_json::from_str(&says(&[&asked[..], more, &["--json"]].concat())).unwrap();
        assert_eq!(json["on_each_of_gpus"], 8);
        json["needed"].as_u64().unwrap()
    };
    // a shard of everything, or all of it and a copy of the gradients
    assert!(needed(&[]) * 2 < needed(&["--shard", "ddp"]));
    assert!(needed(&[]) < needed(&["--reshard-after-forward", "off"]));
    let run = headroom(&["estimate", "--gpus", "8", "--shard", "fsdp2", "--precision", "fp32"]);
    assert_eq!(run.status, Some(2));
    assert!(
        run.err.contains("is not modelled under FSDP2 (choose bf16 or fp16 mixed over fp32 weights"),
        "{}",
        run.err
    );
    let sharded = says(&["estimate", "--gpus", "8", "--shard", "fsdp2"]);
    assert!(sharded.contains("bnb_4bit_quant_storage"), "{sharded}");
}

#[test]
fn the_stage_that_needs_most_is_named_beside_what_each_needs() {
    let asked = ["estimate", "--stack", "megatron", "--method", "full", "--gpus", "8", "--pp", "4"];
    let json: Value = serde_json::from_str(&says(&[&asked[..], &["--json"]].concat())).unwrap();
    let needed: Vec<u64> = serde_json::from_value(json["needed_in_stages"].clone()).unwrap();
    let most = needed.iter().max().unwrap();
    assert_eq!((needed.len(), json["needed"].as_u64()), (4, Some(*most)));
    let stage = json["stage"]["number"].as_u64().unwrap();
    assert_eq!((needed[stage as usize - 1], json["stage"]["of"].as_u64()), (*most, Some(4)));
    assert!(
        json["stage"]["holds"].as_str().unwrap().starts_with(&format!("stage {stage} of 4, which holds"))
    );
    // what stands in the way of an answer is not called idle
    let refused = headroom(&["estimate", "--gpus", "8", "--pp", "2"]);
    let told = "divides layers among GPUs, but neither sequences nor stages";
    assert!(refused.err.contains(told) && !refused.err.contains("makes no difference"), "{}", refused.err);
}

/// Where GPUs divide a model's modules, its parameters and those of a GPU are two figures, and a stage has some of the GPUs.
#[test]
fn what_parameters_are_of_is_said() {
    let model = ["estimate", "--model", "meta-llama/Llama-3.1-8B", "--method", "full", "--gpus", "8"];
    let json = |more: &[&str]| -> Value {
        serde_json::from_str(&says(&[&model[..], more, &["--json"]].concat())).unwrap()
    };
    let sharded = json(&["--shard", "fsdp2"]);
    assert_eq!(sharded["parameters"]["on_each_gpu"], Value::Null);
    let layers = json(&["--tp", "8"]);
    assert_eq!(layers["parameters"]["total"], sharded["parameters"]["total"]);
    assert_eq!(layers["parameters"]["trainable"], sharded["parameters"]["total"]);
    assert_eq!(layers["parameters"]["on_each_gpu"], 1_463_685_120_u64);
    let stages = ["--stack", "megatron", "--tp", "2", "--pp", "2"];
    let answer = json(&stages);
    assert_eq!(answer["on_each_of_gpus"], 4);
    assert_eq!(answer["parameters"]["total"], sharded["parameters"]["total"]);
    let text = says(&[&model[..], &stages].concat());
    assert!(
        text.contains("on each of 4 GPUs of stage") && text.contains("Parameters on each of these GPUs"),
        "{text}"
    );
    // nobody has a copy of what a GPU has
    let text = says(&[&model[..], &["--tp", "8"]].concat());
    assert!(text.contains("none (one copy of the model)") && !text.contains(" DDP\n"), "{text}");
}
