//! `headroom fit`, `headroom need` and `headroom levers`: what can be trained, on which card, and what to change.

use serde_json::Value;

use super::{fails, file, headroom, headroom_with, says};

/// What `fit` says of its cells for a scenario that leaves everything but the length open.
fn headroom_conditions(sequence: u64) -> String {
    headroom::plan::conditions(
        &headroom::scenario::Scenario { sequence, ..Default::default() },
        headroom::plan::Measure::Batch,
    )
}

#[test]
fn fit_takes_words_for_models_and_says_the_longest_sequence() {
    let text = says(&["fit", "--memory", "24GB", "--models", "qwen3 <2b", "--longest", "--gpu", "rtx-4090"]);
    assert!(text.starts_with("Longest sequence in 24.0 GiB"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("Qwen/Qwen3-0.6B")) && !text.contains("Qwen3-8B"),
        "{text}"
    );
    fails(
        &["fit", "--models", "xyzzy"],
        "error: no model is called \"xyzzy\"; write parts of names and sizes, as in \"coder 7b\" and \"llama <10b\"\n",
    );
    // the models are said once
    let both = headroom(&["fit", "--model", "Qwen/Qwen3-8B", "--models", "llama"]);
    assert!(both.status == Some(2) && both.err.contains("cannot be used with"), "{}", both.err);
}

#[test]
fn fit_says_the_largest_rank() {
    let out = says(&["fit", "--largest-rank", "--memory", "24GB", "--models", "qwen2.5-0.5b"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let mut lines = out.lines().map(words);
    assert_eq!(lines.next().unwrap_or_default(), "Largest rank in 24.0 GiB LoRA QLoRA");
    // above it no adapted layer gains anything
    assert!(lines.any(|line| line == "Qwen/Qwen2.5-0.5B 896 896"), "{out}");
    let both = headroom(&["fit", "--largest-rank", "--longest"]);
    assert!(both.status == Some(2) && both.err.contains("cannot be used with"), "{}", both.err);
    let json = says(&["fit", "--largest-rank", "--memory", "24GB", "--model", "Qwen/Qwen2.5-0.5B", "--json"]);
    let table: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(table["rows"][0]["methods"]["lora"]["rank"], 896);
    // and a page's link says it too
    let link = "m=meta-llama/Llama-3.1-8B&gpu=rtx-4090&table-cells=rank";
    assert!(says(&["fit", link]).starts_with("Largest rank in "));
}

#[test]
fn fit_shows_the_largest_batch() {
    let out =
        says(&["fit", "--memory", "24GB", "--model", "meta-llama/Llama-3.1-8B", "--seq-length", "1024"]);
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[2..4] == ["", &headroom_conditions(1024)], "{out}");
    let marks = [
        "c: close: nothing fits beyond doubt, and this with less to spare than the estimate may be off by",
        "e: with --allocator expandable",
    ];
    assert!(lines[4..].iter().all(|line| marks.contains(line)), "{out}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(lines[0]), "Largest micro-batch in 24.0 GiB Full fine-tuning LoRA QLoRA");
    assert!(words(lines[1]).starts_with("meta-llama/Llama-3.1-8B needs "), "{out}");

    let json = says(&[
        "fit",
        "--memory",
        "24GB",
        "--model",
        "meta-llama/Llama-3.1-8B",
        "--seq-length",
        "1024",
        "--json",
    ]);
    let table: Value = serde_json::from_str(&json).unwrap();
    // a card that is sold with 24 GB has 24 GiB
    assert_eq!(table["memory"], 24u64 << 30);
    let methods = &table["rows"][0]["methods"];
    assert!(methods["full"]["needed"].as_u64().unwrap() > 24 << 30);
    // The batch is the largest: the cell's own link fits, one sequence more does not.
    let cell = &methods["qlora"];
    let batch = cell["batch"].as_u64().unwrap();
    let link = cell["link"].as_str().unwrap();
    assert!(link.contains("&gpu=24GiB"), "{link}");
    let limit = |batch: u64| {
        headroom(&["estimate", link, "--batch-size", &batch.to_string(), "--fail-if-over", "24GiB"])
    };
    assert_eq!((limit(batch).status, limit(batch + 1).status), (Some(0), Some(1)));
}

/// A value that was asked for stays, also where it is what a link leaves out; what was not said is the library's.
#[test]
fn fit_takes_flags_at_their_word() {
    let lora = |flags: &[&str]| {
        let arguments = [
            "fit",
            "--memory",
            "80GB",
            "--model",
            "meta-llama/Llama-3.2-1B",
            "--stack",
            "unsloth",
            "--method",
            "lora",
        ];
        let json: Value = serde_json::from_str(&says(&[&arguments, flags, &["--json"]].concat())).unwrap();
        let link = json["rows"][0]["methods"]["lora"]["link"].as_str().unwrap().to_owned();
        headroom::share::decode(&link).scenarios.remove(0).optimizer.slug()
    };
    assert_eq!(lora(&[]), "adamw-8bit");
    assert_eq!(lora(&["--optimizer", "adamw-fused"]), "adamw-fused");
}

#[test]
fn fit_answers_for_the_model_that_is_named() {
    let config = file("fit.json", r#"{"model_type": "gpt2"}"#);
    let json = file("fit_scenario.json", r#"{"model": "openai-community/gpt2"}"#);
    let toml = file("fit_scenario.toml", "model = \"openai-community/gpt2\"\n");
    for (arguments, model) in [
        (&["--config", &config][..], "fit"),
        (&["--model", "7b"], "a model of 7 billion parameters"),
        (&["--model", "openai-community/gpt2"], "openai-community/gpt2"),
        (&["m=openai-community/gpt2"], "openai-community/gpt2"),
        (&["?model=openai-community/gpt2&b=2"], "openai-community/gpt2"),
        (&[&json], "openai-community/gpt2"),
        (&[&toml], "openai-community/gpt2"),
    ] {
        let out = says(&[&["fit", "--memory", "24GB"], arguments].concat());
        let lines: Vec<_> = out.lines().collect();
        // remarks stand below the one row
        assert!(lines.len() < 7 && lines[1].starts_with(model), "{arguments:?}: {out}");
    }
    // no model, no one row
    assert!(headroom(&["fit", "b=2"]).out.lines().count() > 40);
}

#[test]
fn fit_lists_the_popular_models_and_says_how_to_see_the_rest() {
    let run = headroom(&["fit"]);
    assert_eq!(run.status, Some(0));
    assert!(run.out.lines().count() > 40, "{}", run.out);
    assert!(run.err.ends_with(" more models with --all\n"), "{}", run.err);
}

#[test]
fn levers_say_what_to_change_and_what_it_saves() {
    let text = says(&["levers", "--gpu", "rtx-3060-12gb"]);
    assert!(text.contains("does not fit") && text.contains("Loss kernel: Default → Liger fused"), "{text}");
    let json: Value = serde_json::from_str(&says(&["levers", "--gpu", "rtx-3060-12gb", "--json"])).unwrap();
    let first = &json["single"][0];
    assert_eq!((first["cost"].as_str(), first["verdict"].as_str()), (Some("nothing"), Some("fits")));
    // what a lever saves is the difference of two estimates, and its link is the changed scenario
    let estimate: Value =
        serde_json::from_str(&says(&["estimate", first["link"].as_str().unwrap(), "--json"])).unwrap();
    assert_eq!(estimate["needed"], first["needed"]);
    let saved = json["needed"].as_u64().unwrap() - first["needed"].as_u64().unwrap();
    assert_eq!(first["saved"].as_u64(), Some(saved));
    let message =
        "error: no card is called \"nobody\" (use a card such as rtx-4090 or an amount such as 24GB)\n";
    fails(&["levers", "--gpu", "nobody"], message);
}

#[test]
fn need_lists_the_cards_that_do() {
    let text = says(&["need", "--model", "meta-llama/Llama-3.2-1B"]);
    let mut cards = text.lines().skip(3);
    assert!(
        cards.clone().any(|line| line.starts_with("A10G") && line.contains("$/h aws g5.xlarge")),
        "{text}"
    );
    assert!(
        cards.all(|line| {
            let notes = ["Prices", "The data set, ", "On its own card: Fewest GPUs"];
            let is_note = notes.iter().any(|note| line.starts_with(note));
            line.is_empty() || line.contains("fits: ") || line.contains(" × ") || is_note
        }),
        "{text}"
    );
    let json: Value = serde_json::from_str(&says(&["need", "--json"])).unwrap();
    let of_smallest = &json["cards"][0]["methods"];
    assert_eq!(of_smallest["qlora"]["verdict"].as_str(), Some("fits"));
    assert_eq!(of_smallest["full"]["verdict"].as_str(), Some("over"));
    // one does not hold all weights, so many do together
    let cards = json["cards"].as_array().unwrap();
    let card = cards.iter().find(|card| card["gpu"] == "rtx-4090").unwrap();
    let several = &card["methods"]["full"]["several"];
    let alone: Value =
        serde_json::from_str(&says(&["estimate", several["link"].as_str().unwrap(), "--json"])).unwrap();
    assert!(several["gpus"].as_u64() > Some(1), "{several}");
    assert_eq!(alone["needed"], several["needed"]);
}

#[test]
fn levers_and_need_say_how_many_gpus_hold_it() {
    let full = ["--method", "full", "--gpu", "a100-sxm-40gb"];
    let text = says(&[&["levers"], &full[..]].concat());
    assert!(
        text.contains("\nFewest GPUs that hold it, of one machine or machines of 8: 4 under FSDP2, "),
        "{text}"
    );
    for command in ["levers", "need"] {
        let json: Value = serde_json::from_str(&says(&[&[command, "--json"], &full[..]].concat())).unwrap();
        let fewest = &json["fewest_gpus"];
        let link = fewest["link"].as_str().unwrap();
        let estimate: Value = serde_json::from_str(&says(&["estimate", link, "--json"])).unwrap();
        assert_eq!((fewest["gpus"].as_u64(), &fewest["needed"]), (Some(4), &estimate["needed"]), "{command}");
    }
}

#[test]
fn the_fewest_gpus_are_told_with_the_engine_that_takes_them() {
    let full = ["levers", "--method", "full", "--model", "meta-llama/Llama-3.1-70B", "--gpu", "81GiB"];
    let text = says(&full);
    assert!(text.contains("machines of 8: 16 under ZeRO-3 (DeepSpeed), "), "{text}");
    let json: Value = serde_json::from_str(&says(&[&full[..], &["--json"]].concat())).unwrap();
    let link = json["fewest_gpus"]["link"].as_str().unwrap();
    let estimate: Value = serde_json::from_str(&says(&["estimate", link, "--json"])).unwrap();
    assert_eq!(
        (json["fewest_gpus"]["gpus"].as_u64(), &json["fewest_gpus"]["needed"]),
        (Some(16), &estimate["needed"])
    );
}

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

#[test]
fn need_takes_flags_at_their_word() {
    // values that fine-tuning has by default, and GRPO does not
    let grpo = ["--task", "grpo", "--model", "Qwen/Qwen3-0.6B", "--seq-length", "1024", "--method", "full"];
    let chosen = ["--reference", "scored", "--batch-size", "1", "--mask", "none"];
    let json = |flags: &[&str]| -> Value { serde_json::from_str(&says(flags)).unwrap() };
    for flags in [&grpo[..], &[&grpo[..], &chosen[..]].concat()] {
        let cards = json(&[&["need", "--json"], flags].concat());
        let card = cards["cards"].as_array().unwrap().iter().find(|card| card["gpu"] == "rtx-5090").unwrap();
        let estimate = json(&[&["estimate", "--json", "--gpu", "rtx-5090"], flags].concat());
        assert_eq!(card["methods"]["full"]["needed"], estimate["needed"], "{flags:?}");
    }
    // a link leaves nothing open
    let link = "task=grpo&m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&method=full&s=1024&gpu=rtx-5090";
    let cards = json(&["need", "--json", link]);
    let card = cards["cards"].as_array().unwrap().iter().find(|card| card["gpu"] == "rtx-5090").unwrap();
    assert_eq!(card["methods"]["full"]["needed"], json(&["estimate", "--json", link])["needed"]);
}

#[test]
fn fit_says_why_nothing_would_run() {
    let fit = |flags: &[&str]| says(&[&["fit", "--memory", "24GB"], flags].concat());
    let out = fit(&["--task", "dpo", "--model", "Qwen/Qwen3-0.6B", "--seq-length", "512"]);
    assert!(out.contains("a prompt of 512 tokens leaves nothing of the 512 to the answer"), "{out}");
    let out = fit(&["--task", "generate", "--model", "openai-community/gpt2", "--new-tokens", "4000"]);
    assert!(out.contains("an embedding for each of 1,024 positions"), "{out}");
}

#[test]
fn what_generates_has_no_column_of_adapters() {
    let generate = ["--task", "generate", "--model", "Qwen/Qwen3-0.6B", "--new-tokens", "1"];
    for command in [&["need"][..], &["fit", "--memory", "24GB"]] {
        let header = |flags: &[&str], name: &str| {
            let text = says(&[command, flags].concat());
            text.lines().any(|line| line.contains(name))
        };
        assert!(header(&generate, "Not quantised") && !header(&generate, "LoRA"), "{command:?}");
        assert!(header(&generate[2..4], "QLoRA") && !header(&generate[2..4], "Not quantised"), "{command:?}");
    }
}

#[test]
fn layouts_are_ranked_and_open() {
    let run = [
        "layouts",
        "--model",
        "HuggingFaceTB/SmolLM-360M",
        "--method",
        "full",
        "--gpu",
        "a100-sxm-40gb",
        "--gpus",
        "2",
    ];
    let out = says(&run);
    assert!(out.starts_with("HuggingFaceTB/SmolLM-360M on 2 × A100 SXM4 40GB: "), "{out}");
    assert!(out.contains("\nFSDP2, kept after forward ") && out.contains(" tokens/s ("), "{out}");
    assert!(out.contains("\nNo answer:\n"), "{out}");
    let json = says(&[&run[..], &["--json"]].concat());
    let found: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(found["gpus"], 2);
    let best = &found["layouts"][0];
    assert_eq!(best["verdict"], "fits");
    let link = best["link"].as_str().expect("a link");
    let estimate = says(&["estimate", link, "--json"]);
    let estimate: Value = serde_json::from_str(&estimate).expect("it is JSON");
    assert_eq!(estimate["needed"], best["needed"], "{estimate}");
}

#[test]
fn layouts_of_one_card_are_those_of_the_fewest_that_hold_it() {
    let json = says(&["layouts", "--method", "full", "--gpu", "a100-sxm-40gb", "--json"]);
    let found: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&found["gpus"], &found["layouts"][0]["verdict"]), (&Value::from(4), &Value::from("fits")));
    let out =
        headroom(&["layouts", "--stack", "unsloth", "--gpus", "4", "--model", "meta-llama/Llama-3.2-1B"]);
    assert_eq!(out.status, Some(2));
}

#[test]
fn lengths_say_what_runs_out_and_how_soon() {
    let texts = file("lengths.txt", "400x9990\n9000x10\n");
    let run = ["lengths", "--texts", &texts, "--batch-size", "4", "--seq-length", "8192", "--orders", "1"];
    let out = says(&run);
    for words in [
        "10,000 texts of 409 tokens",
        "10 of them are cut to the sequence length, 8,192",
        "for 10 of the texts",
        "of 1 orders",
    ] {
        assert!(out.contains(words), "{words} is not in\n{out}");
    }
    let json: Value = serde_json::from_str(&says(&[&run[..], &["--json"]].concat())).expect("JSON");
    assert_eq!((&json["schema"], &json["texts"]), (&"headroom-lengths/1".into(), &10_000.into()));
    assert_eq!(json["orders"].as_array().map(Vec::len), Some(1));
    // as a file, and as `-`
    let piped = headroom_with(&[&["lengths", "--texts", "-"], &run[3..]].concat(), "400x9990\n9000x10\n");
    assert_eq!((piped.out, piped.err.as_str()), (out, ""));
    let both = headroom(&["lengths", "--texts", "-", "-"]);
    assert!(both.status == Some(2) && both.err.contains("standard input is the scenario"), "{}", both.err);
    let words = file("words.txt", "512 many");
    let refused = headroom(&["lengths", "--texts", &words]);
    assert!(refused.status == Some(2) && refused.err.contains("\"many\" is no length"), "{}", refused.err);
}

#[test]
fn settings_are_ranked_and_each_link_answers_as_it_says() {
    let link = "m=meta-llama/Llama-3.1-8B&gpu=rtx-4090&b=4";
    let out = says(&["settings", link]);
    assert!(
        out.starts_with("meta-llama/Llama-3.1-8B on the GeForce RTX 4090: ") && out.contains("QLoRA, bf16"),
        "{out}"
    );
    let json: Value = serde_json::from_str(&says(&["settings", link, "--json"])).unwrap();
    let first = &json["settings"][0];
    let own = first["link"].as_str().unwrap();
    let answer: Value = serde_json::from_str(&says(&["estimate", own, "--json"])).unwrap();
    assert_eq!((&answer["needed"], first["verdict"].as_str()), (&first["needed"], Some("fits")));
    let least: Value = serde_json::from_str(&says(&["settings", link, "--by-memory", "--json"])).unwrap();
    assert!(least["settings"][0]["needed"].as_u64() <= first["needed"].as_u64());
    // nothing fits: the exit status says so, and the least is named
    let none = headroom(&["settings", "m=meta-llama/Llama-3.1-8B&gpu=4GB"]);
    assert!(none.status == Some(1) && none.out.contains("the least, QLoRA"), "{}", none.out);
    let generates = headroom(&["settings", "--task", "generate"]);
    assert!(generates.status == Some(2) && generates.err.contains("headroom serving"), "{}", generates.err);
}

#[test]
fn batch_reaches_what_is_asked_for_on_each_card() {
    let link = "m=meta-llama/Llama-3.1-8B&gpu=rtx-4090";
    let out = says(&["batch", link, "--effective", "64"]);
    let rows: Vec<_> = out.lines().skip_while(|line| !line.starts_with("Card")).skip(1).collect();
    assert!(rows.len() >= 9 && rows[0].starts_with("GeForce RTX 4090"), "{out}");
    let json: Value = serde_json::from_str(&says(&["batch", link, "--effective", "64", "--json"])).unwrap();
    let cards = json["cards"].as_array().unwrap();
    let reached = cards.iter().filter_map(|card| card["batch"]["effective"].as_u64()).collect::<Vec<_>>();
    assert!(reached.len() > 5 && reached.iter().all(|effective| *effective == 64), "{json}");
    // one more sequence than the largest does not run
    let own = &cards[0]["batch"];
    let largest = own["largest"].as_u64().unwrap();
    let status = |batch: u64| {
        headroom(&["estimate", link, "--batch-size", &batch.to_string(), "--fail-if-over", "24GiB"]).status
    };
    assert_eq!(status(largest + 1), Some(1), "{own}");
    // a prime is reached too
    let json: Value = serde_json::from_str(&says(&[
        "batch",
        "m=Qwen/Qwen2.5-0.5B&gpu=rtx-4090",
        "--effective",
        "7",
        "--json",
    ]))
    .unwrap();
    assert_eq!(json["cards"][0]["batch"]["effective"], 7, "{json}");
    let beyond = headroom(&["batch", "m=openai-community/gpt2&s=4096"]);
    assert!(beyond.status == Some(2) && beyond.err.contains("1,024"), "{}", beyond.err);
}

#[test]
fn levers_say_what_takes_more_and_why_nothing_would_run() {
    let out = says(&["levers", "--model", "gpt2", "--seq-length", "2048"]);
    assert!(out.contains("would not run\nIt would stop: ") && out.contains("1,024"), "{out}");
}

#[test]
fn layouts_say_what_the_nearest_comes_to() {
    let run = ["layouts", "--method", "full", "--gpu", "a100-sxm-40gb", "--gpus", "2"];
    let out = headroom(&run).out;
    assert!(
        out.contains(" do not fit; the nearest, ") && out.contains(" on each: does not fit (--all"),
        "{out}"
    );
}

#[test]
fn rules_of_thumb_say_what_they_are_about() {
    let about = "They are rules for training every weight";
    for (method, says_so) in [("full", false), ("lora", true), ("qlora", true)] {
        let out = says(&["rules", "--method", method]);
        assert_eq!(out.contains(about), says_so, "{method}: {out}");
    }
    // nvidia-smi says nothing of a DGX Spark's memory
    let spark = says(&["rules", "--gpu", "gb10"]);
    assert!(spark.contains("MemAvailable") && !spark.contains("memory.used"), "{spark}");
    // what generates has rules of its own
    let out = says(&["rules", "--task", "generate"]);
    assert!(
        !out.contains(about) && out.contains("Weights and a fifth") && out.contains("keys and values"),
        "{out}"
    );
}

#[test]
fn several_cards_have_a_price_together() {
    let out = says(&["need", "--method", "full"]);
    assert!(out.lines().any(|line| line.contains(" × ") && line.contains(" $/h together")), "{out}");
}

#[test]
fn a_card_that_others_have_has_no_share() {
    let out = says(&["estimate", "--used-mib", "30000"]);
    assert!(out.contains("The card has                                 0 B"), "{out}");
    assert!(out.contains("nothing of it is left") && !out.contains("0 %, more"), "{out}");
}

#[test]
fn what_the_data_set_costs_where_is_a_table() {
    let all = ["need", "--model", "meta-llama/Llama-3.1-8B", "--dataset-tokens", "50M"];
    let told = says(&[&all[..], &["--machines", "--csv"]].concat());
    let mut lines = told.lines();
    let header = lines.next().unwrap();
    for column in ["The data takes (h)", "And costs ($)", "And costs: at most"] {
        assert!(header.contains(column), "{header}");
    }
    let at = header.split(',').position(|column| column == "And costs ($)").unwrap();
    let costs = |line: &str| line.split(',').nth(at).and_then(|cell| cell.parse::<f64>().ok());
    let known: Vec<f64> = lines.filter_map(costs).collect();
    assert!(known.len() > 20 && known.is_sorted(), "{known:?}");
    // the sentence under the cards names the first of them
    let cards = says(&all);
    let sentence = cards
        .lines()
        .find(|line| line.starts_with("The data set, 50,000,000 tokens, costs least on one "))
        .unwrap();
    assert!(sentence.contains(&format!(": ${:.2} (", known[0])), "{sentence}");
    let json: Value = serde_json::from_str(&says(&[&all[..], &["--json"]].concat())).unwrap();
    let machines =
        json["cards"].as_array().unwrap().iter().flat_map(|card| card["machines"].as_array().unwrap());
    let least =
        machines.filter_map(|machine| machine["dollars"]["typical"].as_f64()).fold(f64::MAX, f64::min);
    assert!((least - known[0]).abs() < 0.006, "{least} {known:?}");
}
