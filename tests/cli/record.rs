//! `packages/record`: the recorder runs, and what it writes is read by the command, as a file and as a link.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{headroom, says};

/// Where the recorder leaves its files of one test, and what it said.
struct Recorded {
    folder: PathBuf,
    said: String,
}

/// Runs the recorder over `tests/fixtures/record/train.py`, whose torch is a stand-in of a page: Python is all that this needs.
fn record(test: &str, arguments: &[&str], model: &str) -> Recorded {
    record_with(test, arguments, model, "8")
}

/// The same where the script left so many MiB in PyTorch's cache before it trained.
fn record_with(test: &str, arguments: &[&str], model: &str, cached_mib: &str) -> Recorded {
    record_run(test, arguments, model, (cached_mib, "{}"))
}

/// The same of a run that the JSON describes, as `train.py` reads it.
fn record_run(test: &str, arguments: &[&str], model: &str, (cached_mib, run): (&str, &str)) -> Recorded {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    let fixtures = root.join("tests/fixtures/record");
    let Output { status, stderr, .. } = Command::new("python3")
        .arg(root.join("packages/record/headroom_record.py"))
        .args(arguments)
        .arg(fixtures.join("train.py"))
        .arg(model)
        .current_dir(&folder)
        .env("PYTHONPATH", &fixtures)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CACHED_MIB", cached_mib)
        .env("RUN", run)
        .env_remove("RANK")
        .output()
        .expect("python3 is there");
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{said}");
    Recorded { folder, said }
}

impl Recorded {
    fn file(&self) -> String {
        self.folder.join("headroom-record.json").to_str().unwrap().to_owned()
    }

    fn link(&self) -> &str {
        self.said.lines().find_map(|line| line.split_once("page: ")).expect("a link").1
    }
}

#[track_caller]
fn answer(scenario: &str) -> Value {
    let run = headroom(&["estimate", scenario, "--json"]);
    assert_eq!(run.status, Some(0), "{}", run.err);
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn what_the_recorder_writes_is_checked_and_opened() {
    let recorded = record("record-own", &[], "");
    let report: Value = serde_json::from_str(&says(&["check", &recorded.file(), "--json"])).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let metrics: Vec<_> = rows.iter().map(|row| row["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["allocated", "reserved"]);
    assert!(rows.iter().all(|row| row["error_pct"].as_f64().unwrap().abs() < 0.01), "{rows:?}");
    // a model of nobody's: the link carries its config
    let (of_file, of_link) = (answer(&recorded.file()), answer(recorded.link()));
    assert_eq!(of_file, of_link);
    let model = &of_file["scenario"]["model"];
    assert_eq!(
        (model["name"].as_str(), model["config"]["num_hidden_layers"].as_u64()),
        (Some("qwen3"), Some(6))
    );
    assert!(recorded.link().ends_with("&took=allocated:3836055552,reserved:4414504960,driver:5000000000"));
}

/// The catalogue's Qwen3-0.6B has 28 layers, and nobody's catalogue has the other.
#[test]
fn a_model_with_a_name_of_the_hub_is_the_one_that_ran() {
    for name in ["Qwen/Qwen3-0.6B", "someone/has-it"] {
        let recorded = record("record-named", &[], name);
        let (of_file, of_link) = (answer(&recorded.file()), answer(recorded.link()));
        assert_eq!(of_file, of_link);
        let model = &of_file["scenario"]["model"];
        assert_eq!(
            (model["name"].as_str(), model["config"]["num_hidden_layers"].as_u64()),
            (Some(name), Some(6))
        );
        let imported = headroom(&["import", &recorded.file(), "--json"]).out;
        let read: Value = serde_json::from_str(&imported).unwrap();
        assert_eq!(read["read"][0]["took"], "allocated:3836055552,reserved:4414504960,driver:5000000000");
    }
}

/// A model that is made in float32 on the card and cast there leaves its first weights in the cache.
#[test]
fn what_a_script_left_in_the_cache_is_said() {
    let notes = |cached_mib: &str| {
        let recorded = record_with(&format!("record-cached-{cached_mib}"), &[], "", cached_mib);
        let rows: Value = serde_json::from_str(&fs::read_to_string(recorded.file()).unwrap()).unwrap();
        let before = &rows[1]["before_first_forward"];
        let apart = before["reserved"].as_u64().unwrap() - before["allocated"].as_u64().unwrap();
        assert_eq!(apart >> 20, cached_mib.parse::<u64>().unwrap());
        rows[1]["notes"].to_string()
    };
    assert!(!notes("8").contains("in the cache"), "{}", notes("8"));
    assert!(notes("76").contains("76 MiB were reserved beyond what was allocated"), "{}", notes("76"));
}

/// The first row of a run of Qwen3-0.6B that the JSON describes.
fn row_of(test: &str, run: &Value) -> Value {
    let recorded = record_run(&format!("record-{test}"), &[], "Qwen/Qwen3-0.6B", ("8", &run.to_string()));
    let rows: Value = serde_json::from_str(&fs::read_to_string(recorded.file()).unwrap()).unwrap();
    rows[0].clone()
}

/// The trainer says the task, whoever's class stands over it; rows of pairs are half as many examples.
#[test]
fn a_trainers_task_is_recorded() {
    let trl = |name: &str| json!([["trl.trainer", name], ["mine", "MyTrainer"]]);
    let two = [("batch-size", json!(2)), ("stack", json!("trl"))];
    let one = [("batch-size", json!(1)), ("stack", json!("trl"))];
    for (name, args, task, wanted) in [
        ("SFTTrainer", json!({}), Value::Null, &two[..]),
        ("DPOTrainer", json!({}), json!("dpo"), &[&one[..], &[("reference", json!("scored"))]].concat()),
        (
            "DPOTrainer",
            json!({"precompute_ref_log_probs": true}),
            json!("dpo"),
            &[("reference", json!("precomputed"))],
        ),
        ("KTOTrainer", json!({}), json!("kto"), &two),
        ("CPOTrainer", json!({"loss_type": "simpo"}), json!("simpo"), &one),
        ("RewardTrainer", json!({}), json!("reward"), &one),
        (
            "GRPOTrainer",
            json!({"beta": 0.0}),
            json!("grpo"),
            &[
                &two[..],
                &[
                    ("prompt-length", json!(128)),
                    ("reference", json!("none")),
                    ("rollouts", json!("transformers")),
                ],
            ]
            .concat(),
        ),
        (
            "RLOOTrainer",
            json!({"beta": 0.05, "use_vllm": true, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3}),
            json!("rloo"),
            &[("reference", json!("scored")), ("rollouts", json!("server")), ("vllm-percent", json!(30))],
        ),
    ] {
        let inputs = json!({"prompt_ids": vec![vec![7; 128]; 2]});
        let row = row_of("task", &json!({"trainer": trl(name), "args": args, "inputs": inputs}));
        let scenario = &row["reading"]["scenario"];
        assert_eq!(scenario["task"], task, "{name}: {scenario}");
        for (key, value) in wanted {
            assert_eq!(&scenario[key], value, "{name} {key}");
        }
        assert_eq!(row["reading"]["not-predicted"], Value::Null, "{name}");
    }
    let masked =
        json!({"trainer": trl("DPOTrainer"), "inputs": {"completion_mask": [[0, 0, 0, 1], [0, 0, 1, 1]]}});
    assert_eq!(row_of("task", &masked)["reading"]["scenario"]["prompt-length"], 2);
    let unsloth = row_of("task", &json!({"trainer": [["unsloth_compiled_cache", "_UnslothDPOTrainer"]]}));
    assert_eq!(unsloth["reading"]["scenario"]["task"], "dpo");
}

/// What no scenario says is measured all the same, and is not held against a prediction of something else.
#[test]
fn what_is_not_seen_is_not_predicted() {
    for (run, reason) in [
        (
            json!({"trainer": [["trl.experimental.online_dpo", "OnlineDPOTrainer"]]}),
            "OnlineDPOTrainer of trl",
        ),
        (json!({"trainer": [["trl.trainer", "PPOTrainer"]]}), "PPO's round"),
        (
            json!({"trainer": [["sentence_transformers.trainer", "SentenceTransformerTrainer"]]}),
            "texts an example has",
        ),
        (json!({"optimizer": ["mine.optim", "AdamW8bit"]}), "mine.optim.AdamW8bit is not known"),
        (json!({"peft": {"peft_type": "PeftType.ADALORA", "r": 8}}), "ADALORA"),
        (
            json!({"quantised": {"quant_method": "hqq"}, "peft": {"peft_type": "PeftType.LORA", "r": 8}}),
            "by hqq",
        ),
        (json!({"quantised": {"quant_method": "gptq", "bits": 4}}), "without adapters"),
        (json!({"pictures": true}), "pictures"),
    ] {
        let row = row_of("refused", &run);
        let said = row["reading"]["not-predicted"].as_str().unwrap_or_default();
        assert!(said.contains(reason), "{run}: {said}");
        assert!(row["notes"][0].as_str().unwrap().starts_with("not predicted: "), "{row}");
    }
    let recorded = record_run("record-not", &[], "", ("8", r#"{"pictures": true}"#));
    let run = headroom(&["check", &recorded.file()]);
    assert!(run.status == Some(2) && run.out.contains("pictures were given"), "{}{}", run.out, run.err);
    assert!(says(&["check", &recorded.file(), "--readings"]).contains("pictures were given"));
}

/// Optimizers, adapters and stored weights by what they are, not by a name that others have too.
#[test]
fn optimizers_adapters_and_quantised_weights_are_named() {
    let tuned = |kind: &str, more: Value| {
        let mut settings = json!({"peft_type": format!("PeftType.{kind}"), "r": 8});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    for (run, wanted) in [
        (
            json!({"optimizer": ["torchao.optim.adam", "AdamW8bit"]}),
            json!({"optimizer": "adamw-8bit-torchao", "method": "full"}),
        ),
        (json!({"optimizer": ["bitsandbytes.optim.adamw", "AdamW8bit"]}), json!({"optimizer": "adamw-8bit"})),
        (
            json!({"peft": tuned("VERA", json!({"r": 256}))}),
            json!({"adapter": "vera", "lora-rank": 256, "lora-targets": "q_proj", "method": "lora"}),
        ),
        (
            json!({"peft": tuned("PREFIX_TUNING", json!({"num_virtual_tokens": 20, "prefix_projection": true}))}),
            json!({"adapter": "prefix-projected", "lora-rank": 20}),
        ),
        (
            json!({"peft": tuned("IA3", json!({})), "parameter": "Int8Params", "quantised": {"quant_method": "bitsandbytes", "load_in_8bit": true}}),
            json!({"adapter": "ia3", "method": "qlora", "weight-format": "int8"}),
        ),
        (
            json!({"peft": tuned("VERA", json!({})), "quantised": {"quant_method": "gptq", "bits": 8, "group_size": 32}}),
            json!({"method": "qlora", "weight-format": "gptq-8", "group-size": 32}),
        ),
        (
            json!({"peft": tuned("VERA", json!({})), "quantised": {"quant_method": "QuantizationMethod.AWQ", "bits": 4, "group_size": -1}}),
            json!({"weight-format": "awq-4", "group-size": "column"}),
        ),
    ] {
        let row = row_of("named", &run);
        let scenario = &row["reading"]["scenario"];
        for (key, value) in wanted.as_object().unwrap() {
            assert_eq!(&scenario[key], value, "{run}: {key} of {scenario}");
        }
        assert_eq!(row["reading"]["not-predicted"], Value::Null, "{run}");
    }
}

#[test]
fn a_snapshot_is_written_where_one_is_asked_for() {
    let recorded = record("record-snapshot", &["--snapshot", "run.pickle"], "");
    let calls: Value =
        serde_json::from_str(&fs::read_to_string(recorded.folder.join("run.pickle")).unwrap()).unwrap();
    assert_eq!(calls, serde_json::json!([{"context": null, "max_entries": 1_000_000}]));
    assert!(recorded.said.contains("run.pickle"), "{}", recorded.said);
}

#[test]
fn the_link_is_whole_where_the_page_is_named() {
    let recorded = record("record-page", &["--page", "https://example.org/headroom/"], "");
    assert!(recorded.said.contains(": https://example.org/headroom/#v=1&"), "{}", recorded.said);
}
