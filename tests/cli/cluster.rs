//! What is said of several GPUs: on how many of them figures are the same, and of what parameters are.

use serde_json::Value;

use super::{headroom, says};

#[test]
fn figures_of_several_gpus_are_those_on_each() {
    let asked = ["estimate", "--model", "Qwen/Qwen3-0.6B", "--method", "full", "--gpus", "8"];
    let out = says(&asked);
    for part in ["FSDP2", "on each of 8 GPUs", "326 MiB to 1.45 GiB"] {
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
        run.err.contains("is not modelled under FSDP2: a limit of Headroom, not of the run (choose bf16 or fp16 mixed over fp32 weights"),
        "{}",
        run.err
    );
    let sharded = says(&["estimate", "--gpus", "8", "--shard", "fsdp2"]);
    assert!(sharded.contains("bnb_4bit_quant_storage"), "{sharded}");
}

/// Whatever else is refused of the run: no other setting helps where the model's own code is not followed.
#[test]
fn of_what_is_not_followed_the_model_is_said_first() {
    let asked = ["estimate", "--gpus", "8", "--shard", "zero3", "--precision", "fp32", "--method", "full"];
    let refused = |model: &str| headroom(&[&asked[..], &["--model", model]].concat()).err;
    let of_model = refused("facebook/opt-1.3b");
    assert!(
        of_model.contains(
            "the code of opt is not modelled under ZeRO-3 (DeepSpeed): a limit of Headroom, not of the run"
        ),
        "{of_model}"
    );
    let of_settings = refused("deepseek-ai/DeepSeek-R1");
    assert!(!of_settings.contains("the code of") && of_settings.contains("not modelled"), "{of_settings}");
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
    let told = "stages of layers on other GPUs each are followed of Megatron-core alone";
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

/// What NCCL takes is a range, by the communicators that a layout has: what `nvidia-smi` shows is one with it.
#[test]
fn nccl_is_a_range_by_the_communicators_of_the_layout() {
    let told = |layout: &[&str]| {
        let asked = ["estimate", "--model", "meta-llama/Llama-3.1-8B", "--method", "full", "--gpus", "16"];
        let json: Value = serde_json::from_str(&says(&[&asked[..], layout, &["--json"]].concat())).unwrap();
        let nccl = &json["nccl"];
        let number = nccl["communicators"].as_array().map(Vec::len);
        assert!(nccl["source"].as_str().is_some_and(|source| source.contains('/')), "{nccl}");
        for end in ["least", "most"] {
            let with = json["nvidia_smi_with_nccl"][end].as_u64();
            let without = json["nvidia_smi"].as_u64().zip(nccl[end].as_u64());
            assert_eq!(with, without.map(|(shown, nccl)| shown + nccl), "{end}");
        }
        (number, nccl["most"].as_u64())
    };
    let one = 1_485 << 20;
    assert_eq!(told(&["--gpu", "h100-sxm-80gb"]), (Some(1), Some(one)));
    assert_eq!(told(&["--gpu", "h100-sxm-80gb", "--replicas", "2"]), (Some(2), Some(2 * one)));
    let megatron = ["--stack", "megatron", "--gpu", "h100-sxm-80gb", "--tp", "4", "--pp", "2"];
    assert_eq!(told(&megatron), (Some(6), Some(6_000_000_000)));
    let alone: Value = serde_json::from_str(&says(&["estimate", "--json"])).unwrap();
    assert_eq!((alone.get("nccl"), alone.get("nvidia_smi_with_nccl")), (None, None));
}

/// What is offloaded is told apart from what every process reads before it has shards, for each process and for a machine, and beside the
/// known machine with most RAM.
#[test]
fn the_hosts_memory_is_a_number_beside_known_machines() {
    let asked = ["--method", "full", "--model", "meta-llama/Llama-3.1-70B", "--gpu", "h100-sxm-80gb"];
    let sharded = [&["estimate", "--gpus", "64", "--shard", "fsdp2"], &asked[..]].concat();
    let text = says(&sharded);
    for part in [
        "Warning: of the RAM of a machine with 8 such GPUs the run takes 2,103 GiB while all its processes read the model",
        "of known machines with 8 such GPUs aws p5.48xlarge has most: 2,048 GiB, too little",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json: Value = serde_json::from_str(&says(&[&sharded[..], &["--json"]].concat())).unwrap();
    let host = &json["host"];
    let each = 70_553_706_496_u64 * 4;
    assert_eq!((&host["read_by_each"], &host["read_by_machine"]), (&each.into(), &(8 * each).into()));
    assert_eq!((&host["offloaded_of_each"], &host["of_machine"]), (&0.into(), &0.into()));
    assert_eq!(host["roomiest_known_machine"]["has_enough"], false);
    let offloaded = [&sharded[..], &["--cpu-offload", "all", "--json"]].concat();
    let json: Value = serde_json::from_str(&says(&offloaded)).unwrap();
    let host = &json["host"];
    let own = host["offloaded_of_each"].as_u64().unwrap();
    assert!(own > each / 64 && own < each / 8 && host["read_by_each"] == each, "{host}");
    assert!(host["of_machine"].as_u64().unwrap() >= 8 * own, "{host}");
    // accelerate can have the first process alone read it
    let trl = says(&[&sharded[..], &["--stack", "trl"]].concat());
    assert!(trl.contains("while the first process reads the model ("), "{trl}");
    assert!(!trl.contains("Warning: of the RAM"), "{trl}");
}

/// Nobody rents a machine with one H100 and so much RAM: what needs it is behind all that can be had.
#[test]
fn offloading_that_no_known_machine_has_the_ram_for_is_not_first() {
    let asked = ["--method", "full", "--model", "meta-llama/Llama-3.1-70B", "--gpu", "h100-sxm-80gb"];
    let text = says(&[&["levers"], &asked[..]].concat());
    for part in [
        "of RAM, more than known machines have",
        "Of known machines with 1 × H100 SXM5 80GB, aws p5.4xlarge has most RAM: 256.0 GiB.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json: Value = serde_json::from_str(&says(&[&["levers", "--json"], &asked[..]].concat())).unwrap();
    let single = json["single"].as_array().unwrap();
    let holds = |lever: &&Value| lever["verdict"] == "fits" && lever["short_of_ram"].is_null();
    let short = single.iter().position(|lever| !lever["short_of_ram"].is_null()).expect("one is offloaded");
    assert!(!single[short..].iter().any(|lever| holds(&lever)), "{text}");
    assert_eq!(single[short]["short_of_ram"]["name"], "aws p5.4xlarge");
}

/// What FSDP2 keeps in the CPU's memory is less than what each process reads before.
#[test]
fn layouts_tell_what_is_offloaded_from_what_is_read() {
    let asked =
        ["layouts", "--model", "meta-llama/Llama-3.2-1B", "--method", "full", "--gpu", "a100-sxm-40gb"];
    let asked = [&asked[..], &["--gpus", "4"]].concat();
    let text = says(&asked);
    for part in [
        "\nNCCL's buffers are outside of what each GPU needs, 326 MiB to 5.59 GiB",
        "every process reads the whole model into the CPU's memory, 4.60 GiB each at most",
        "\nOf known machines with 8 × A100 SXM4 40GB, aws p4d.24xlarge has most RAM: 1,152 GiB",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json: Value = serde_json::from_str(&says(&[&asked[..], &["--json"]].concat())).unwrap();
    let ways = json["layouts"].as_array().unwrap();
    let offloads = |way: &&Value| way["layout"] == "FSDP2, in the CPU's memory";
    let way = ways.iter().find(offloads).expect("it is a way");
    let [kept, read] = ["on_host", "read_on_host"].map(|key| way[key].as_u64().unwrap());
    assert_eq!(read, 1_235_814_400 * 4);
    // a quarter of weights, gradients and two states in float32
    assert!(kept >= read && kept < read * 2, "{kept} of {read}");
    assert_eq!((&way["short_of_ram"], &way["nccl"]["most"]), (&Value::Null, &(1_485_u64 << 20).into()));
}

/// A loss that fuses the head needs less than all logits under every engine that runs it; Liger's stack has it by default.
#[test]
fn losses_that_fuse_the_head_are_answered_under_every_engine() {
    let needed = |more: &str| -> u64 {
        let asked = ["estimate", "--model", "Qwen/Qwen3-8B", "--gpus", "8", "--seq-length", "4096", "--json"];
        let more: Vec<&str> = more.split(' ').collect();
        let json: Value = serde_json::from_str(&says(&[&asked[..], &more].concat())).unwrap();
        json["needed"].as_u64().unwrap()
    };
    let full = "--method full --stack transformers";
    for (engine, losses) in [
        ("--shard fsdp2", &["cut", "liger"][..]),
        ("--shard fsdp2 --wrapped-by accelerate", &["cut", "liger"]),
        ("--shard fsdp2 --wrapped-by axolotl --precision amp-bf16-weights", &["cut", "liger"]),
        ("--shard ddp --precision bf16", &["cut", "liger"]),
        ("--shard zero2", &["cut", "liger"]),
        ("--shard zero3", &["liger"]),
    ] {
        let all = needed(&format!("{full} {engine} --batch-size 8"));
        for loss in losses {
            let fused = needed(&format!("{full} {engine} --batch-size 8 --loss {loss}"));
            assert!(fused < all, "{engine} {loss}: {fused} {all}");
        }
    }
    let liger = |loss: &str| needed(&format!("--method full --shard fsdp2 --stack liger --loss {loss}"));
    assert_eq!(liger("standard"), liger("liger"));
    assert!(liger("standard") < liger("full"));
}

/// What stops is said to stop, in the words in which it does.
#[test]
fn fused_losses_that_find_no_whole_head_are_refused() {
    let refused = |more: &str| -> Option<String> {
        let asked = ["estimate", "--gpus", "8", "--method", "lora", "--precision", "amp-bf16-weights"];
        let run = headroom(&[&asked[..], &more.split(' ').collect::<Vec<_>>()].concat());
        (run.status != Some(0)).then_some(run.err)
    };
    let accelerate = "--shard fsdp2 --wrapped-by accelerate --model";
    for (loss, stops) in [
        ("--loss liger", "got mixed torch.Tensor and DTensor"),
        ("--loss cut", "No `mesh_dim_names` found"),
        ("--stack liger", "got mixed torch.Tensor and DTensor"),
    ] {
        let err = refused(&format!("{accelerate} Qwen/Qwen3-8B {loss}")).expect("it is refused");
        assert!(err.contains(stops), "{loss}: {err}");
        // the embedding is the head, and whole
        assert_eq!(refused(&format!("{accelerate} Qwen/Qwen3-0.6B {loss}")), None, "{loss}");
    }
    let err = refused("--shard zero3 --model Qwen/Qwen3-8B --loss cut").expect("it is refused");
    assert!(err.contains("Cannot free a ZeRO-3 parameter while it is still active in submodules"), "{err}");
}

/// Adapters are merged in the CPU's memory where that is asked for, by one process; and a checkpoint is saved where that is.
#[test]
fn ram_is_counted_for_what_is_asked_for() {
    let run = [
        "estimate",
        "--model",
        "meta-llama/Llama-3.1-70B",
        "--method",
        "qlora",
        "--gpu",
        "a10g",
        "--gpus",
        "8",
    ];
    let sharded = says(&[&run[..], &["--shard", "fsdp2"]].concat());
    assert!(!sharded.contains("of the RAM of a machine"), "{sharded}");
    let small =
        ["estimate", "--model", "Qwen/Qwen2.5-7B", "--method", "lora", "--gpu", "h100-sxm-80gb", "--json"];
    let host = |flags: &[&str]| -> Value {
        serde_json::from_str::<Value>(&says(&[&small[..], flags].concat())).unwrap()["host"].clone()
    };
    for flags in [&[][..], &["--gpus", "2"], &["--merging", "gpu"]] {
        let host = host(flags);
        assert_eq!((&host["of_first"], &host["of_each"]), (&0.into(), &0.into()), "{flags:?}");
    }
    let merged = host(&["--merging", "cpu"]);
    assert!(merged["of_first"].as_u64() > Some(10 << 30) && merged["of_each"] == 0, "{merged}");
    let full = ["--method", "full", "--precision", "bf16"];
    let saved = |more: &[&str]| {
        let mut run = small.to_vec();
        run.splice(3..5, full);
        let json: Value = serde_json::from_str(&says(&[&run[..], more].concat())).unwrap();
        json["host"]["of_first"].as_u64().unwrap()
    };
    assert!(saved(&[]) == 0 && saved(&["--saving", "on"]) > 10 << 30);
}

/// What stops a run whose GPUs share each sequence is told, and what is followed has an answer that takes less the more they are.
#[test]
fn sequences_that_gpus_share_have_an_answer_under_accelerate() {
    let asked = |model: &str, length: &str, more: &str| {
        let base = format!("estimate --gpus 8 --shard fsdp2 --model {model} --seq-length {length} {more}");
        headroom(&base.split(' ').collect::<Vec<_>>())
    };
    let llama = "meta-llama/Llama-3.1-8B";
    let needed = |parts: u64| -> u64 {
        let more = format!("--wrapped-by accelerate --mask ones --cp {parts} --json");
        let json: Value = serde_json::from_str(&asked(llama, "32768", &more).out).unwrap();
        json["needed"].as_u64().unwrap()
    };
    let all = [1, 2, 4, 8].map(needed);
    assert!(all.is_sorted_by(|more, fewer| more > fewer), "{all:?}");
    let by_accelerate = |model: &str, length: &str, more: &str| {
        asked(model, length, &format!("--wrapped-by accelerate --cp 8{more}")).err
    };
    assert!(asked(llama, "32768", "--cp 8").err.contains("followed under FSDP2 as accelerate wraps it"));
    for (more, told) in [
        (" --attention eager", "supported only with SDPA attention"),
        (" --mask padded", "no mask but the causal one"),
        (" --mask none", "texts that share a row"),
        (" --stack liger", "beside attention that GPUs share"),
        (" --replicas 2", "cannot be divided into groups"),
        (" --cpu-offload all", "in the CPU's memory where GPUs share each sequence was not compared"),
        (" --method full --precision bf16", "bf16 (pure) where GPUs share each sequence was not compared"),
    ] {
        let err = by_accelerate(llama, "32768", more);
        assert!(err.contains(told), "{more}: {err}");
    }
    assert!(by_accelerate(llama, "32760", "").contains("no multiple of 16"));
    // the engine that full fine-tuning has anyway need not be said
    for parts in ["2", "8"] {
        let base = ["estimate", "--gpus", "8", "--method", "full", "--model", llama, "--seq-length", "32768"];
        let run = headroom(&[&base[..], &["--wrapped-by", "accelerate", "--cp", parts]].concat());
        assert!(matches!(run.status, Some(0 | 1)) && run.out.contains("FSDP2"), "{parts}: {}", run.err);
    }
    assert!(by_accelerate("google/gemma-2-2b", "32768", "").contains("see the whole text"));
    // text alone beside an idle tower, which was not compared with divided sequences
    let sees = by_accelerate("Qwen/Qwen2.5-VL-3B-Instruct", "32768", "");
    assert!(sees.contains("a model that sees where GPUs share each sequence was not compared"), "{sees}");
}

/// LoRA's default adapts the experts of a mixture: ZeRO-3 gathers them, or stops where its trace is not followed.
#[test]
fn adapters_on_experts_are_answered_under_zero3() {
    let run = |more: &str| {
        let asked = ["estimate", "--gpus", "8", "--method", "lora", "--shard", "zero3", "--model"];
        headroom(&[&asked[..], &more.split(' ').collect::<Vec<_>>()].concat())
    };
    for answered in [
        "Qwen/Qwen3-30B-A3B",
        "openai/gpt-oss-20b --stack trl",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct --lora-targets q_proj,k_proj,v_proj,o_proj",
        "zai-org/GLM-4.5-Air --lora-targets q_proj,k_proj,v_proj,o_proj",
        "zai-org/GLM-4.5-Air --max-live-parameters 100000000000",
    ] {
        let answer = run(answered);
        assert!(!answer.err.contains("error"), "{answered}: {}", answer.err);
    }
    let stopped = run("zai-org/GLM-4.5-Air");
    assert!(stopped.err.contains("tracing error at step"), "{}", stopped.err);
}
