//! `packages/record`: the recorder runs, and what it writes is read by the command, as a file and as a link.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

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
