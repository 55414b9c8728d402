//! `headroom serving` and `headroom contexts`: what is left for sequences.

use serde_json::Value;

use super::{headroom, says};

#[test]
fn serving_is_formats_by_what_is_left() {
    let asked = [
        "serving",
        "--model",
        "Qwen/Qwen3-8B",
        "--method",
        "full",
        "--precision",
        "bf16",
        "--gpu",
        "rtx-4090",
    ];
    let json: Value = serde_json::from_str(&says(&[&asked[..], &["--json"]].concat())).unwrap();
    assert_eq!(
        (json["schema"].as_str(), &json["vllm"]["percent"]),
        (Some("headroom-serving/2"), &Value::from(92))
    );
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 13);
    let half = rows.iter().find(|row| row["format"] == "half").unwrap();
    // 8,190,735,360 parameters
    assert_eq!(half["weights"], 16_381_470_720_u64);
    assert_eq!(
        (half["generate"]["verdict"].as_str(), &half["generate"]["least"]),
        (Some("fits"), &half["generate"]["most"])
    );
    let kept = |row: &Value, cache: &str| row[cache]["tokens"][0].as_u64().unwrap();
    assert_eq!(kept(half, "vllm_fp8_cache") / 32, kept(half, "vllm") / 16);
    let text = says(&asked);
    assert!(text.ends_with("vLLM has no answer of GGUF Q8_0, GGUF Q6_K, GGUF Q5_K_M, GGUF Q4_K_M: how it runs llama.cpp's formats is not followed\n"), "{text}");
    assert_eq!(
        (&half["starts"]["context"], &half["starts"]["at_own_context"]),
        (&40_960.into(), &"perhaps".into())
    );
    let longest = half["starts"]["longest_max_model_len"].as_u64().unwrap();
    assert!(
        (30_000..40_960).contains(&longest) && text.contains("starts at its context"),
        "{longest} {text}"
    );
    let tokens = |percent: &str| {
        let text = says(&[&asked[..], &["--vllm-percent", percent]].concat());
        assert!(text.contains(&format!("vLLM: {percent} % of the card")), "{text}");
        let line = text.lines().find(|line| line.starts_with("bf16")).unwrap().to_owned();
        line.contains("it stops")
    };
    assert!(tokens("60") && !tokens("95"));
    // two GPUs share the model, and a mixture of experts says whose kernels it is counted with
    let two = says(&[&asked[..], &["--gpus", "2"]].concat());
    assert!(two.contains("among the 2 GPUs (--tensor-parallel-size 2)"), "{two}");
    let json: Value =
        serde_json::from_str(&says(&[&asked[..], &["--gpus", "2", "--json"]].concat())).unwrap();
    let half_of_two = json["rows"].as_array().unwrap().iter().find(|row| row["format"] == "half").unwrap();
    assert_eq!((&json["vllm"]["gpus"], &half_of_two["weights"]), (&Value::from(2), &half["weights"]));
    assert!(kept(half_of_two, "vllm") > 2 * kept(half, "vllm"));
    let mixture = ["serving", "--task", "generate", "--model", "Qwen/Qwen3-30B-A3B", "--gpu"];
    let kernels = "Experts are counted in Triton's or Marlin's kernels (--moe-backend)";
    for (card, is_said) in [("h100-sxm-80gb", true), ("a100-sxm-80gb", false)] {
        assert_eq!(says(&[&mixture[..], &[card]].concat()).contains(kernels), is_said, "{card}");
    }
    let of = |model| says(&["serving", "--task", "generate", "--model", model, "--gpu", "a100-sxm-80gb"]);
    assert!(of("google-bert/bert-base-uncased").contains("an encoder keeps no keys and values"));
    // on one GPU too
    let cut = "vLLM has no answer of FP8 (128 × 128), GPTQ (4 bits, 128), AWQ (4 bits, 128): a GPU would have 10,944 columns";
    assert!(of("deepseek-ai/DeepSeek-V2-Lite").contains(cut), "{}", of("deepseek-ai/DeepSeek-V2-Lite"));
}

/// Guide 002's table for inference: models, formats and sequences at once, as `estimate` has each cell.
#[test]
fn serving_is_models_by_formats_by_sequences() {
    let asked = ["serving", "--task", "generate", "--gpu", "rtx-4090"];
    let models = ["--models", "qwen3 0.6b", "--models", "llama-3.2-1b"];
    let text = says(&[&asked[..], &models[..]].concat());
    let head: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(head[head.len() - 3..], ["1", "8", "32"], "{text}");
    let json: Value = serde_json::from_str(&says(&[&asked[..], &models[..], &["--json"]].concat())).unwrap();
    assert_eq!(json["schema"], "headroom-serving-batches/1");
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["model"].as_str().unwrap().starts_with("meta-llama/")));
    let cell = |format: &str, at: usize| {
        let is_own = |row: &&Value| row["model"] == "Qwen/Qwen3-0.6B" && row["format"] == format;
        rows.iter().find(is_own).unwrap()["cells"][at].clone()
    };
    assert_eq!([0, 1, 2].map(|at| cell("half", at)["batch"].as_u64().unwrap()), [1, 8, 32]);
    for (format, batch, at, flags) in [
        ("half", "32", 2, &["--method", "full", "--precision", "bf16"][..]),
        ("int8", "8", 1, &["--method", "qlora", "--weight-format", "int8", "--precision", "bf16"]),
        ("nf4", "1", 0, &["--method", "qlora", "--precision", "bf16"]),
    ] {
        let own = ["estimate", "--task", "generate", "--gpu", "rtx-4090", "--model", "Qwen/Qwen3-0.6B"];
        let own = [&own[..], flags, &["--batch-size", batch, "--json"]].concat();
        let own: Value = serde_json::from_str(&says(&own)).unwrap();
        // the table counts tensors, the estimate the allocator's blocks
        let [needed, tensors] =
            [own["needed"].as_f64().unwrap(), cell(format, at)["needed"].as_f64().unwrap()];
        assert!(tensors <= needed && needed < tensors * 1.03, "{format} {batch}: {tensors} {needed}");
    }
    let one = says(&[&asked[..], &["--model", "Qwen/Qwen3-0.6B", "--batches"]].concat());
    assert_eq!(one.lines().filter(|line| line.starts_with("Qwen/Qwen3-0.6B")).count(), 4, "{one}");
    let unknown = headroom(&["serving", "--models", "xyzzy"]);
    assert!(
        unknown.status == Some(2) && unknown.err.contains("no model is called \"xyzzy\""),
        "{}",
        unknown.err
    );
}

#[test]
fn contexts_are_batches_by_lengths() {
    let asked = ["contexts", "--model", "Qwen/Qwen3-0.6B", "--method", "full", "--precision", "bf16"];
    let text = says(&asked);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[2], ["Tokens", "1", "2", "4", "8", "16", "32", "64"], "{text}");
    // a prompt of 512 tokens with 512 new ones, and no longer than the model's positions
    assert_eq!(lines[3][0], "1,024", "{text}");
    assert_eq!(lines.last().expect("it has rows")[0], "32,768", "{text}");

    let json: Value = serde_json::from_str(&says(&[&asked[..], &["--json"]].concat())).unwrap();
    let needed = |row: usize, cell: usize| json["rows"][row]["cells"][cell]["needed"].as_u64().unwrap();
    assert!(needed(0, 0) < needed(0, 1) && needed(0, 0) < needed(1, 0), "{json}");
}
