//! `headroom fit`: the table of models by methods.

use serde_json::Value;

use super::{fails, file, headroom, says};

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

/// The largest model is one of all that are meant, however few the table lists.
#[test]
fn fit_says_the_largest_model_of_the_catalogue() {
    let largest = |arguments: &[&str]| {
        let json = headroom(&[&["fit", "--memory", "12GB", "--json"], arguments].concat()).out;
        let table: Value = serde_json::from_str(&json).unwrap();
        let size = |method: &str| {
            let id = table["largest"][method]["fits"].as_str().expect("one fits");
            headroom::model::catalogue::find(id).expect("it is in the catalogue").parameters
        };
        (size("full"), size("lora"), size("qlora"))
    };
    let of_all = largest(&[]);
    // more of them are named so than are listed
    let (full, lora, qlora) = largest(&["--models", "qwen"]);
    assert!(full <= of_all.0 && lora <= of_all.1 && qlora < of_all.2);
    let text = says(&["fit", "--memory", "12GB", "--models", "llama 70b"]);
    let (models, all) =
        (headroom::model::catalogue::among("llama 70b").len(), headroom::model::catalogue::entries().len());
    assert!(text.contains(&format!("None of {models} models surely fits.")), "{text}");
    // of a single model the table says all
    let one = says(&["fit", "--memory", "12GB", "--model", "Qwen/Qwen3-8B"]);
    assert!(all > 300 && !one.contains(" models "), "{one}");
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

/// trl's KTO takes two answers at least: with one of them there would be no answer at all.
#[test]
fn fit_begins_with_as_many_as_the_trainer_takes() {
    let kto = ["fit", "--task", "kto", "--models", "qwen2.5-0.5b", "--memory", "24GB"];
    let cell = |flags: &[&str], method: &str| -> Value {
        let table = says(&[&kto[..], flags, &["--json"]].concat());
        serde_json::from_str::<Value>(&table).unwrap()["rows"][0]["methods"][method].clone()
    };
    for (flags, number) in [(&[][..], "batch"), (&["--longest"], "sequence"), (&["--largest-rank"], "rank")] {
        let found = cell(flags, "lora");
        assert!(found[number].as_u64() > Some(2), "{flags:?}: {found}");
        assert!(flags.is_empty() || found["batch"] == 2, "{flags:?}: {found}");
    }
    let longest = says(&[&kto[..], &["--longest"]].concat());
    assert!(longest.contains("2 sequences at a time, of no more tokens"), "{longest}");
    assert!(longest.contains(" and a multiple of 8, as others need a copy of the mask,"), "{longest}");
    let batches =
        says(&["batch", "--task", "kto", "--model", "Qwen/Qwen2.5-0.5B", "--effective", "7", "--json"]);
    let cards: Value = serde_json::from_str(&batches).unwrap();
    let reached = |card: &Value| card["batch"]["micro_batch"].as_u64().unwrap_or(2);
    assert!(cards["cards"].as_array().unwrap().iter().all(|card| reached(card) >= 2), "{cards}");
}

#[test]
fn fit_says_where_there_is_no_answer_for_any() {
    let out =
        says(&["fit", "--task", "dpo", "--models", "granite-4.1", "--memory", "24GB", "--stack", "unsloth"]);
    assert!(out.contains("There is no answer for any of them.") && !out.contains("None of them"), "{out}");
}
