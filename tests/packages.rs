//! The types of the packages for Python and JavaScript are written from the table of keys:
//! `HEADROOM_BLESS=1 cargo test --test packages` after a key or a choice was added.
#![cfg(not(target_arch = "wasm32"))]

use std::fmt::Write;

use headroom::scenario::Choice;
use headroom::scenario::keys::{ValueKind, keys};

const WRITTEN: &str =
    "written from the table of keys, `src/scenario/keys/table.rs`, by `cargo test --test packages`";

fn choices(choices: &[Choice], separator: &str) -> String {
    choices.iter().map(|choice| format!("{:?}", choice.slug)).collect::<Vec<_>>().join(separator)
}

fn python(kind: ValueKind) -> String {
    match kind {
        ValueKind::Model => "Union[str, Dict[str, Any]]".to_owned(),
        ValueKind::Choice(all) => format!("Literal[{}]", choices(all, ", ")),
        ValueKind::Count(_) => "int".to_owned(),
        ValueKind::Switch => "bool".to_owned(),
        ValueKind::Dropout => "Union[float, Literal[\"config\"]]".to_owned(),
        ValueKind::Teacher | ValueKind::Targets | ValueKind::Lengths | ValueKind::Gpu => "str".to_owned(),
    }
}

fn javascript(kind: ValueKind) -> String {
    match kind {
        ValueKind::Model => "string | { name: string; config: object }".to_owned(),
        ValueKind::Choice(all) => choices(all, " | "),
        ValueKind::Count(_) => "number".to_owned(),
        ValueKind::Switch => "boolean".to_owned(),
        ValueKind::Dropout => "number | \"config\"".to_owned(),
        ValueKind::Teacher | ValueKind::Targets | ValueKind::Lengths | ValueKind::Gpu => "string".to_owned(),
    }
}

/// The file is what the table of keys says, or becomes it where that is asked for.
#[track_caller]
fn written(path: &str, text: &str) {
    let path = format!("{}/packages/{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("HEADROOM_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "{path} is not what the keys say; HEADROOM_BLESS=1 cargo test --test packages writes it"
    );
}

#[test]
fn python_knows_every_key() {
    let mut text = format!("\"\"\"The keys of a scenario, {WRITTEN}.\"\"\"\n\n");
    text.push_str("from typing import Any, Dict, Literal, TypedDict, Union\n\n\n");
    text.push_str("class Scenario(TypedDict, total=False):\n    \"\"\"What a user can choose; what is left out takes its default.\"\"\"\n");
    for key in keys() {
        let name = key.name.replace('-', "_");
        write!(text, "\n    #: {}\n    {name}: {}\n", key.help, python(key.kind())).unwrap();
    }
    written("python/python/headroom/scenario.py", &text);
}

#[test]
fn javascript_knows_every_key() {
    let mut text = format!("// The keys of a scenario, {WRITTEN}.\n\n");
    text.push_str(
        "/** What a user can choose; what is left out takes its default. */\nexport interface Scenario {\n",
    );
    for key in keys() {
        writeln!(text, "  /** {} */\n  {:?}?: {};", key.help, key.name, javascript(key.kind())).unwrap();
    }
    text.push_str("}\n");
    written("npm/scenario.d.ts", &text);
}
