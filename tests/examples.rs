//! The examples that people copy do what they say.
#![cfg(not(target_arch = "wasm32"))]

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs an example, which is built beside the tests.
#[track_caller]
fn run(example: &str, link: &str) -> Output {
    let mut path: PathBuf = std::env::current_exe().expect("a test is a file");
    path.pop();
    path.set_file_name("examples");
    let path = path.join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    Command::new(&path).arg(link).output().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_gate_fails_what_does_not_fit_and_says_what_would() {
    let gate = run("gate", "#v=1&gpu=rtx-3060-12gb");
    assert_eq!(gate.status.code(), Some(1));
    let said = text(&gate.stdout);
    assert!(
        said.contains("does not fit") && said.contains("Loss kernel: Liger fused makes it fit"),
        "{said}"
    );
    assert_eq!(run("gate", "#v=1&gpu=rtx-4090").status.code(), Some(0));
    assert_eq!(run("gate", "#v=1&m=no-such-model").status.code(), Some(2));
}

#[test]
fn the_sweep_has_a_line_for_every_value() {
    let said = text(&run("sweep", "#v=1&m=Qwen/Qwen2.5-0.5B").stdout);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((lines.len(), lines[0]), (21, "sequence,batch,needed_bytes,verdict"), "{said}");
    let needed: Vec<u64> = lines[1..]
        .iter()
        .map(|line| line.split(',').nth(2).and_then(|bytes| bytes.parse().ok()).expect("bytes"))
        .collect();
    assert!(needed[..4].is_sorted() && needed[19] > needed[0], "{said}");
}
