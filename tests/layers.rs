//! Each layer uses only those above it, in the order of ARCHITECTURE.md.
#![cfg(not(target_arch = "wasm32"))]

use std::path::{Path, PathBuf};

/// Folders and files of `src/`, from the ground up.
const LAYERS: [&str; 21] = [
    "text",
    "units",
    "dtype",
    "search",
    "issue",
    "memory",
    "hardware",
    "model",
    "scenario",
    "job",
    "allocator",
    "step",
    "estimate",
    "accuracy",
    "plan",
    "explain",
    "share",
    "export",
    "check",
    "cli",
    "ui",
];

/// What puts the layers together.
const ROOTS: [&str; 3] = ["lib", "main", "bin"];

#[test]
fn no_layer_uses_one_that_stands_on_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut upward = Vec::new();
    for file in sources(&src) {
        let path = file.strip_prefix(&src).expect("it lies in src").display().to_string();
        let own = path.split(['/', '\\', '.']).next().expect("a path has a beginning");
        if ROOTS.contains(&own) {
            continue;
        }
        let floor =
            floor(own).unwrap_or_else(|| panic!("{path}: name the layer in LAYERS and ARCHITECTURE.md"));
        for used in uses(&std::fs::read_to_string(&file).expect("it can be read")) {
            // what is no layer is a name that `lib.rs` exports
            if self::floor(&used).is_some_and(|other| other > floor) {
                upward.push(format!("{path} uses {used}"));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:#?}");
}

#[test]
fn the_order_is_the_one_that_is_documented() {
    let text = include_str!("../ARCHITECTURE.md");
    let table = text
        .split("## Layers")
        .nth(1)
        .and_then(|text| text.split("\n## ").next())
        .expect("a table of layers");
    let place = |layer: &&str| {
        let names = [format!("`{layer}.rs`"), format!("`{layer}/`")];
        names
            .iter()
            .find_map(|name| table.find(name.as_str()))
            .unwrap_or_else(|| panic!("{layer} has no line"))
    };
    let places: Vec<_> = LAYERS.iter().map(place).collect();
    assert!(places.is_sorted(), "ARCHITECTURE.md lists the layers in another order: {places:?}");
}

/// What a family's code does stands in `model/modeling.rs`. Which families a stack other than transformers has is that
/// stack's own affair.
#[test]
fn no_family_is_asked_for_by_name_in_a_step() {
    let step = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/step");
    for file in sources(&step) {
        if file.components().any(|part| part.as_os_str() == "stacks") {
            continue;
        }
        let source = std::fs::read_to_string(&file).expect("it can be read");
        for (number, line) in source.lines().enumerate() {
            let asks = ["==", "!=", "match", "starts_with", "contains", "as_str"];
            let asked = line.contains("model_type") && asks.iter().any(|way| line.contains(way));
            assert!(!asked, "{}:{}: {line}", file.display(), number + 1);
        }
    }
}

fn floor(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The modules of the crate that a source names outside its comments and its tests.
fn uses(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    assert!(!code.contains("crate::{"), "name the modules one by one: {source}");
    let named = lines.flat_map(|line| line.split("crate::").skip(1));
    named.map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()).collect()
}
