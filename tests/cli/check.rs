//! `headroom check`.

use std::fs;

use serde_json::Value;

use super::{fails, file, headroom, says};

#[test]
fn check_sets_measured_beside_predicted() {
    let out = says(&["check", "tests/fixtures/measurements/null_device.json"]);
    let lines: Vec<_> = out.lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[0]), ["id", "metric", "measured", "predicted", "error"]);
    assert_eq!(words(lines[1])[..3], ["full-bf16-llama-3.2-1b-b4-s2048", "allocated", "34,420,881,408"]);
    assert_eq!(words(lines[2])[..3], ["full-bf16-llama-3.2-1b-b4-s2048", "reserved", "35,972,448,256"]);
    assert_eq!(words(lines[8]), ["Absolute", "error", "count", "median", "mean", "p95", "worst"]);
    assert_eq!(*lines.last().unwrap(), "0 figures were not predicted");
}

/// What `packages/record` wrote beside a run of transformers' Trainer (LoRA on two layers, accumulation), on a device without kernels.
#[test]
fn check_reads_what_somebody_recorded() {
    let out = says(&["check", "tests/fixtures/measurements/recorded.json", "--json", "--fail-above", "0.01"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let metrics: Vec<_> = rows.iter().map(|row| row["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["allocated", "reserved"]);
    assert_eq!(rows[1]["measured"], 1_480_589_312);
}

#[test]
fn check_as_json_lists_what_it_cannot_express() {
    let out = says(&["check", "tests/fixtures/measurements/published.json", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let keys: Vec<_> = report.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["rows", "summary", "unsupported", "verdicts"]);
    let row = &report["rows"][0];
    assert_eq!(row["id"], "fitcheck-tinyllama-11b-chat-v10-nf4-r32-bs8-s1024-sdpa-phase316-alloc");
    assert_eq!((row["metric"].as_str(), row["measured"].as_u64()), (Some("allocated"), Some(6_953_794_560)));
    let error = row["error_pct"].as_f64().unwrap();
    let predicted = row["predicted"].as_u64().unwrap() as f64;
    assert!((predicted / 6_953_794_560.0 * 100.0 - 100.0 - error).abs() < 1e-9);
    let rows = report["rows"].as_array().unwrap().len();
    let unsupported = report["unsupported"].as_array().unwrap();
    assert_eq!(rows + unsupported.len(), 4);
    assert!(unsupported.iter().all(|row| !row["reason"].as_str().unwrap().is_empty()));
    assert_eq!(report["summary"]["allocated"]["count"].as_u64(), Some(rows as u64));
    assert_eq!(report["summary"]["unsupported"].as_u64(), Some(unsupported.len() as u64));
}

#[test]
fn check_says_what_a_row_was_read_as() {
    let out = says(&["check", "tests/fixtures/measurements/published.json", "--readings"]);
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    let reading = |id: &str| &rows.iter().find(|row| row["id"] == id).unwrap()["reading"];
    let litgpt = reading("litgpt-hub-llama-3-8b-lora");
    assert_eq!(litgpt["scenario"]["stack"], "litgpt");
    assert_eq!(
        (litgpt["metric"].as_str(), litgpt["bytes"].as_u64()),
        (Some("allocated"), Some(19_730_000_000))
    );
    assert!(litgpt["inferred"]["stack"].as_str().unwrap().contains("litgpt/finetune/lora.py"));
    let compiled = reading("torchtune-3.2-3b-flags-compile");
    assert!(compiled["not-predicted"].as_str().unwrap().contains("torch.compile"), "{compiled}");
}

/// A recorded run has no words beside its reading: that is what it was read as, without what is so by default.
#[test]
fn a_recorded_run_was_read_as_it_says() {
    let recorded = "tests/fixtures/measurements/recorded.json";
    let rows: Vec<Value> = serde_json::from_str(&says(&["check", recorded, "--readings"])).unwrap();
    let own: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(recorded).unwrap()).unwrap();
    assert_eq!(rows.len(), own.len());
    for (row, own) in rows.iter().zip(&own) {
        assert_eq!(row["reading"]["bytes"], own["reading"]["bytes"], "{row}");
        let (scenario, said) = (&row["reading"]["scenario"], &own["reading"]["scenario"]);
        assert_eq!(scenario["batch-size"], said["batch-size"], "{row}");
        assert!(scenario.as_object().unwrap().len() < said.as_object().unwrap().len(), "{row}");
    }
    let bare = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bare.json");
    std::fs::write(&bare, r#"[{"id": "a", "measured_bytes": 7, "reading": {"not-predicted": "packing"}}]"#)
        .unwrap();
    let said = says(&["check", bare.to_str().unwrap(), "--readings"]);
    assert!(said.contains("it has no kind, which says"), "{said}");
}

#[test]
fn check_by_part() {
    let out = says(&["check", "tests/fixtures/measurements/null_device.json", "--parts", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let parts = report["parts"].as_array().unwrap();
    for name in ["parameters", "trainable", "weights", "gradients", "optimizer"] {
        let of_name: Vec<_> = parts.iter().filter(|part| part["part"] == name).collect();
        assert!(!of_name.is_empty(), "{name}");
        for part in of_name {
            assert!(part["error_pct"].as_f64().unwrap().abs() < 1.0, "{part}");
        }
    }
}

#[test]
fn check_refuses_what_is_no_list_of_measurements() {
    let path = file("object.json", "{}");
    fails(&["check", &path], &format!("error: {path}: this is not an array of measurements\n"));
    fails(&["check", "missing.json"], "error: missing.json: No such file or directory (os error 2)\n");
    let strange = file("strange.json", "[{\"id\":\"a\",\"case\":{\"dtype\":\"int8\"}},7]");
    let run = headroom(&["check", &strange]);
    assert!(run.out.contains("Not predicted:\na: there is no config\nrow 2: "), "{}", run.out);
    for path in [strange, file("nothing.json", "[]")] {
        let run = headroom(&["check", &path]);
        assert_eq!(run.err, format!("error: {path}: no figure was predicted\n"));
        assert_eq!(run.status, Some(2));
    }
}

#[test]
fn check_refuses_wrong_types_row_by_row() {
    let text = fs::read_to_string("tests/fixtures/measurements/null_device.json").unwrap();
    let mut rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    rows.truncate(3);
    rows[0]["case"]["clip"] = "no".into();
    rows[1]["case"]["method"] = 3.into();
    let path = file("wrong_types.json", &Value::from(rows).to_string());
    let run = headroom(&["check", &path]);
    assert_eq!((run.err.as_str(), run.status), ("", Some(0)));
    for reason in [": clip is \"no\" where true or false belongs\n", ": method is 3 where a text belongs\n"] {
        assert!(run.out.contains(reason), "{}", run.out);
    }
    assert!(run.out.ends_with("2 figures were not predicted\n"), "{}", run.out);
}

#[test]
fn check_fails_above_a_limit() {
    let path = "tests/fixtures/measurements/null_device.json";
    let allowed = headroom(&["check", path, "--fail-above", "50"]);
    assert_eq!((allowed.err.as_str(), allowed.status), ("", Some(0)));
    let mut rows: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    rows.truncate(1);
    let half = rows[0]["measured"]["peak"]["overall"].as_u64().unwrap() / 2;
    rows[0]["measured"]["peak"]["overall"] = half.into();
    let wrong = file("halved.json", &Value::from(rows).to_string());
    let run = headroom(&["check", &wrong, "--fail-above", "5%"]);
    assert_eq!(run.status, Some(1));
    let said = "above: 1 of 2 figures are off by more than 5 %, the worst allocated of ";
    assert!(run.err.starts_with(said) && run.err.ends_with(" by +100.00 %\n"), "{}", run.err);
    assert!(run.out.contains("Absolute error"), "{}", run.out);
    assert_eq!(headroom(&["check", path, "--fail-above", "NaN"]).status, Some(2));
}
