//! `headroom fit`, `headroom need` and `headroom levers`: what can be trained, on which card, and what to change.

use serde_json::Value;

use super::{fails, file, headroom, headroom_with, says};

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
    assert_eq!((&found["gpus"], &found["layouts"][0]["verdict"]), (&Value::from(3), &Value::from("fits")));
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
    let run = ["layouts", "--method", "full", "--gpu", "rtx-3060-12gb", "--gpus", "2"];
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

/// What a row changes is known to matter to the run: a change without a name is none.
#[test]
fn every_change_has_a_name() {
    for (task, method) in
        [("cpo", "qlora"), ("orpo", "qlora"), ("simpo", "qlora"), ("ppo", "qlora"), ("dpo", "qlora")]
    {
        let run = ["levers", "--task", task, "--method", method, "--model", "Qwen/Qwen2.5-0.5B", "--json"];
        let json: Value = serde_json::from_str(&says(&run)).unwrap();
        let changes = json["single"].as_array().unwrap();
        let names = |lever: &Value| lever["changes"].as_array().unwrap().is_empty();
        assert!(!changes.is_empty() && !changes.iter().any(names), "{task}: {json}");
        let label = |lever: &&Value| lever["changes"][0]["label"] == "Adapters in fp32";
        assert_eq!(changes.iter().find(label).is_some(), task != "dpo", "{task}: {json}");
    }
}
