//! The GitHub Action's script, run as a runner runs it.
#![cfg(unix)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{file, headroom};

/// What the script says, writes into the summary and the output, and its status.
#[track_caller]
fn gate(test: &str, files: &str, gpu: &str) -> (String, String, String, Option<i32>) {
    let path = |name: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("action-{test}-{name}"));
    let (summary, out) = (path("summary"), path("output"));
    fs::write(&summary, "").unwrap();
    fs::write(&out, "").unwrap();
    let run = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/packages/action/gate.sh"))
        .env("FILES", files)
        .env("GPU", gpu)
        .env("HEADROOM", env!("CARGO_BIN_EXE_headroom"))
        .env("GITHUB_STEP_SUMMARY", &summary)
        .env("GITHUB_OUTPUT", &out)
        .output()
        .unwrap();
    let read = |path| fs::read_to_string(path).unwrap();
    (String::from_utf8(run.stdout).unwrap(), read(summary), read(out), run.status.code())
}

#[test]
fn what_fits_passes_and_what_does_not_fails_the_job() {
    let small = file("action small.toml", "model = \"Qwen/Qwen3-0.6B\"\n");
    let large = file("action-large.toml", "method = \"full\"\n");
    let (said, summary, out, status) = gate("small", &small, "");
    assert_eq!((said, out.as_str(), status), (format!("fits: {small}\n"), "fits=true\n", Some(0)));
    assert!(summary.contains("| Model | Qwen/Qwen3-0.6B |"), "{summary}");
    let (said, summary, out, status) = gate("both", &format!("{small}\n{large}\n"), "rtx-4090");
    assert_eq!((out.as_str(), status), ("fits=false\n", Some(1)));
    assert!(
        said.contains(&format!("::error file={large}::")) && said.contains("does not run on rtx-4090"),
        "{said}"
    );
    assert!(summary.contains("does not fit: meta-llama/Llama-3.1-8B on GeForce RTX 4090"), "{summary}");
}

#[test]
fn what_has_no_answer_fails_otherwise_than_what_does_not_fit() {
    let wrong = file("action-wrong.toml", "modell = \"gpt2\"\n");
    let (said, _, out, status) = gate("wrong", &wrong, "");
    assert_eq!((out.as_str(), status), ("fits=false\n", Some(2)));
    assert!(said.contains("has no answer") && said.contains("there is no key"), "{said}");
    assert_eq!(gate("none", "", "").3, Some(2));
    assert!(gate("pattern", "no-such-*.toml", "").0.contains("no file is called no-such-*.toml"));
    // text that a shell would run stays a name
    let (said, ..) = gate("hostile", "$(echo run); x", "");
    assert!(said.contains("no file is called $(echo run); x") || said.contains("has no answer"), "{said}");
}

#[test]
fn the_flag_is_for_other_machines_too() {
    let over = headroom(&["estimate", "--method", "full", "--fail-unless-fits", "--json"]);
    assert_eq!(
        (over.status, over.err.as_str()),
        (Some(1), "does not fit: meta-llama/Llama-3.1-8B on GeForce RTX 4090\n")
    );
    assert_eq!(headroom(&["estimate", "--fail-unless-fits"]).status, Some(0));
}
