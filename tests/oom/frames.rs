//! Messages that are told by where their traceback stands: in an engine that serves, in DeepSpeed, in a loader.

use super::*;

/// The sampler's warm-up of gpt-oss-120b on an H100 (vllm-project/vllm, issue 27508), and engines as they load and record graphs: serving is no
/// training, whatever scenario is looked at.
#[test]
fn an_engines_message_is_no_trainings() {
    let frame = |path: &str, function: &str| {
        format!(
            "(EngineCore_DP0 pid=8884)   File \"/opt/lib/python3.13/site-packages/{path}\", line 86, in {function}\n"
        )
    };
    let text = |frames: &[(&str, &str)], asked: &str, capacity: &str, allocated: &str| {
        let lines: String = frames.iter().map(|(path, function)| frame(path, function)).collect();
        format!(
            "{lines}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} MiB. GPU 0 has a total capacity of {capacity} GiB of which 140.75 MiB is \
             free. Of the allocated memory {allocated} GiB is allocated by PyTorch, and 331.08 MiB is reserved by PyTorch but unallocated."
        )
    };
    let runner = "vllm/v1/worker/gpu_model_runner.py";
    let sampler = text(
        &[(runner, "_dummy_sampler_run"), ("vllm/v1/sample/sampler.py", "forward")],
        "786.00",
        "79.11",
        "68.83",
    );
    let loads = text(
        &[(runner, "load_model"), ("vllm/model_executor/layers/linear.py", "create_weights")],
        "224.00",
        "23.64",
        "12.93",
    );
    let graphs =
        text(&[("sglang/srt/model_executor/cuda_graph_runner.py", "capture")], "786.00", "79.11", "68.83");
    for link in
        ["", "task=generate&m=Qwen/Qwen2.5-0.5B", "m=meta-llama/Llama-3.1-8B&method=full&gpu=rtx-4090"]
    {
        for (text, engine, at, size) in [
            (&sampler, Engine::Vllm, At::Sampler, "logits: 1,024 sequences × 201,088 × 4 bytes (float32)"),
            (&loads, Engine::Vllm, At::Weights, "gate_up_proj: 28,672 × 4,096 × 2 bytes (bfloat16)"),
            (&graphs, Engine::Sglang, At::Graphs, ""),
        ] {
            let decoded = decode(text, &linked(link)).expect("a message");
            let serving = decoded.message.serving.expect("an engine");
            assert_eq!((serving.engine, serving.at), (engine, Some(at)), "{text}");
            assert!(
                decoded.suspects.is_empty() && decoded.likely.is_empty() && decoded.guesses.is_empty(),
                "{decoded:?}"
            );
            assert!(decoded.offers.is_empty() && decoded.card.is_empty(), "{:?}", decoded.offers);
            assert!(decoded.verdict.is_none() && remedies(&decoded).is_ok_and(|found| found.is_empty()));
            let said = said(&decoded);
            let is_of_own = link.contains("Qwen");
            assert!(said.contains(size) || is_of_own, "{link}: {said}");
            assert!(
                !said.contains("per_device_train_batch_size") && !said.contains("This scenario is not"),
                "{said}"
            );
            let helps =
                if engine == Engine::Vllm { "gpu_memory_utilization" } else { "--mem-fraction-static" };
            assert!(said.contains(helps), "{said}");
        }
    }
    let own = decode(&sampler, &linked("m=openai/gpt-oss-120b")).expect("a message");
    assert!(
        said(&own).contains("1,024 sequences × 201,088 × 4 bytes (float32), as of openai/gpt-oss-120b."),
        "{}",
        said(&own)
    );
    let warmed = "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.";
    let decoded = decode(warmed, &Scenario::default()).expect("vLLM's own sentence");
    assert!(said(&decoded).contains("Of 256 sequences at once"), "{}", said(&decoded));
    // a training whose card has a vLLM beside it
    let training = sampler
        .replace("gpu_model_runner.py", "trainer.py")
        .replace("vllm/v1/", "trl/")
        .replace("vllm/", "trl/")
        .replace("(EngineCore_DP0 pid=8884)", "");
    assert_eq!(decode(&training, &Scenario::default()).expect("a message").message.serving, None);
}

/// People copy a traceback's last lines, and torchrun writes ranks before each.
#[test]
fn a_traceback_is_read_without_its_header() {
    let lines = "[rank1]:   File \"/opt/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py\", line 210, in foreach_all_gather\n\
                 [rank1]:     all_gather_output = torch.empty(\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 1 has a \
                 total capacity of 79.15 GiB of which 1.04 GiB is free. Of the allocated memory 74.93 GiB is allocated by PyTorch, and 1.61 GiB is reserved \
                 by PyTorch but unallocated.";
    let scenario =
        linked("m=meta-llama/Llama-3.1-70B&method=full&p=amp-bf16&gpu=a100-sxm-80gb&gpus=8&shard=fsdp2");
    let short = decode(lines, &scenario).expect("a message");
    let whole =
        decode(&format!("Traceback (most recent call last):\n{lines}"), &scenario).expect("a message");
    assert_eq!(short.suspects, whole.suspects);
    assert!(
        short.suspects[0].line.what.contains("gather") && short.suspects[0].place == Some(Place::Gather),
        "{:?}",
        short.suspects[0]
    );
}

/// DeepSpeed's partitions: the one that is made where the traceback stands comes first, and without a scenario the size says how many parameters
/// were divided among how many.
#[test]
fn deepspeeds_partitions_are_known_by_their_frames() {
    let zero = "/usr/local/lib/python3.10/dist-packages/deepspeed/runtime/zero";
    let text = format!(
        "[rank0]:   File \"{zero}/stage_1_and_2.py\", line 402, in __init__\n[rank0]:     self.initialize_optimizer_states()\n\
         [rank0]:   File \"{zero}/stage_1_and_2.py\", line 697, in initialize_optimizer_states\n[rank0]:     single_grad_partition = torch.zeros(int(self.partition_size[i]),\n\
         [rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.74 GiB. GPU 0 has a total capacity of 79.33 GiB of which 2.51 GiB is free. Of the \
         allocated memory 74.80 GiB is allocated by PyTorch, and 1.13 GiB is reserved by PyTorch but unallocated."
    );
    let scenario =
        linked("m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&gpu=a100-sxm-80gb&gpus=8&shard=zero2");
    let found = decode(&text, &scenario).expect("a message");
    let first = &found.suspects[0];
    assert_eq!(
        (&*first.phase, first.place, &*first.line.what),
        ("loading", Some(Place::Flat), "flat gradient"),
        "{first:?}"
    );
    let unknown = decode(&text, &Scenario::default()).expect("a message");
    assert!(
        said(&unknown).contains("8,030,261,248 parameters / 8 GPUs × 4 bytes (float32)"),
        "{}",
        said(&unknown)
    );
    let third = text.replace("stage_1_and_2.py", "stage3.py").replace("initialize_optimizer_states", "_create_fp32_partitions").replace(
        "single_grad_partition = torch.zeros(int(self.partition_size[i]),",
        "self.fp32_partitioned_groups_flat.append(self.fp16_partitioned_groups_flat[i].to(self.device).clone().float().detach())",
    );
    for text in [&text, &third] {
        let found = decode(text, &Scenario::default()).expect("a message");
        assert!(found.guesses.iter().all(|guess| guess.kind != Kind::Logits), "{:?}", found.guesses);
        assert!(!found.findings.contains(&Finding::LikelyLogits));
    }
}

/// What a power of two of tokens explains is of no batch of 47, however much is allocated in a run of it.
#[test]
fn a_round_batch_explains_a_size_before_an_odd_one() {
    let text = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 37.09 GiB (GPU 0; 79.15 GiB total capacity; 45.20 GiB already allocated; 32.10 GiB \
                free; 45.60 GiB reserved in total by PyTorch)";
    let found = decode(text, &Scenario::default()).expect("a message");
    let Some(Finding::SizeOfLogits { formula, models }) = found.findings.first() else {
        panic!("{:?}", found.findings)
    };
    assert_eq!(formula, "65,536 tokens × 151,936 × 4 bytes (float32)");
    assert!(models.iter().any(|model| model.contains("Qwen")), "{models:?}");
    assert!(found.guesses.iter().all(|guess| !guess.formula.contains("96,256")), "{:?}", found.guesses);
}

/// transformers' `caching_allocator_warmup` asks for all weights in one piece.
#[test]
fn room_for_all_weights_is_known() {
    let text = |asked: &str| {
        format!(
            "Traceback (most recent call last):\n  File \"train.py\", line 20, in <module>\n    model = AutoModelForCausalLM.from_pretrained(\n  File \
             \"transformers/modeling_utils.py\", line 5000, in caching_allocator_warmup\n    _ = torch.empty(int(byte_count // factor), dtype=torch.float16, \
             device=device, requires_grad=False)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 11.76 GiB of \
             which 11.20 GiB is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
        )
    };
    for (link, asked, sum) in [
        (
            "m=meta-llama/Llama-3.1-8B&method=lora",
            "14.96",
            "8,030,261,248 parameters × 2 bytes (bfloat16), as of meta-llama/Llama-3.1-8B",
        ),
        ("m=Qwen/Qwen2.5-0.5B", "29.92", "8,030,261,248 parameters × 4 bytes (float32), as of Llama 3.1 8B"),
        ("m=meta-llama/Llama-3.1-8B", "7.48", "8,030,261,248 parameters × 2 bytes (bfloat16) / 2"),
    ] {
        let found = decode(&text(asked), &linked(link)).expect("a message");
        assert!(said(&found).contains(sum), "{link}: {}", said(&found));
        assert!(
            found.suspects.is_empty()
                && found.guesses.is_empty()
                && !found.findings.contains(&Finding::NotKnown)
        );
    }
}

/// A state of one of a small model's matrices, where the traceback names it.
#[test]
fn small_states_of_unknown_models_are_known() {
    let text = "Traceback (most recent call last):\n    self.optimizer.step(closure)\n    state[\"exp_avg_sq\"] = torch.zeros_like(\ntorch.OutOfMemoryError: CUDA out of \
                memory. Tried to allocate 48.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 38.38 MiB is free. Of the allocated memory 23.10 GiB is allocated by \
                PyTorch, and 45.61 MiB is reserved by PyTorch but unallocated.";
    let found = decode(text, &Scenario::default()).expect("a message");
    let is_llama = |guess: &headroom::oom::Guess| guess.formula.starts_with("8,192 × 3,072 × 2 bytes");
    assert!(found.guesses.iter().any(is_llama), "{:?}", found.guesses);
    assert!(found.guesses.iter().all(|guess| guess.kind == Kind::OptimizerState), "{:?}", found.guesses);
}
