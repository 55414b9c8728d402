//! Each layer uses only those above it, in the order of ARCHITECTURE.md; and so do the files of a layer among themselves.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headroom::model::modeling::families;
use headroom::scenario::Stack;

/// Folders and files of `src/`, from the ground up.
const LAYERS: [&str; 28] = [
    "text",
    "glossary",
    "units",
    "dtype",
    "search",
    "issue",
    "work",
    "memory",
    "hardware",
    "model",
    "scenario",
    "job",
    "allocator",
    "step",
    "estimate",
    "accuracy",
    "rules",
    "plan",
    "trace",
    "explain",
    "oom",
    "share",
    "import",
    "export",
    "foreign",
    "check",
    "cli",
    "ui",
];

/// What is in a folder, from the ground up. `mod` is the folder's own file, where it holds more than a list of what is in
/// the folder. Files that know each other share a floor, with `|` between them.
const INSIDE: [(&str, &[&str]); 41] = [
    (
        "import",
        &[
            "syntax",
            "names",
            "understood",
            "reader",
            "hugging_face|launch",
            "axolotl",
            "llama_factory",
            "torchtune",
            "trainer_toml",
        ],
    ),
    ("import/syntax", &["setting", "python", "shell", "yaml"]),
    ("hardware", &["kinds", "memory", "gpu", "catalogue", "rent"]),
    (
        "model",
        &[
            "error",
            "python_json",
            "blocks",
            "modeling",
            "architecture",
            "config",
            "families",
            "read",
            "dimensions",
            "catalogue",
        ],
    ),
    ("model/modeling", &["stacks", "mod", "rows"]),
    ("model/blocks", &["param", "basic", "attention", "feed_forward", "mixer", "block"]),
    (
        "scenario",
        &[
            "choices",
            "software",
            "count",
            "lengths",
            "modules",
            "mod",
            "compact",
            "custom",
            "recurrent",
            "savings",
            "cluster",
            "validate",
            "keys",
            "serde",
            "defaults",
        ],
    ),
    ("scenario/keys", &["invalid", "key", "nearest", "words", "values", "matters", "table", "mod"]),
    (
        "plan",
        &[
            "fit", "on_card", "verdict", "speeds", "time", "answer", "contexts", "gpus", "solve", "batches",
            "table", "need", "levers",
        ],
    ),
    (
        "check",
        &[
            "error",
            "measurement",
            "parts",
            "summary",
            "verdicts",
            "trainer",
            "ranks",
            "megatron",
            "truth",
            "proof",
            "reading",
            "time",
            "mod",
        ],
    ),
    (
        "model/families",
        &[
            "parts",
            "common",
            "variant",
            "layers",
            "latent",
            "llama",
            "hybrid",
            "variants",
            "deepseek",
            "gemma4",
            "tower",
            "multimodal",
            "classic",
            "custom",
            "fairseq",
            "encoder",
            "seq2seq",
            "mod",
        ],
    ),
    ("model/families/variants", &["bases", "dense", "experts", "hybrid", "mod"]),
    ("model/catalogue", &["entries", "search", "mod"]),
    ("oom", &["message", "suspect", "finding", "guess", "mod"]),
    (
        "step",
        &[
            "what",
            "device",
            "heap",
            "kernels",
            "machine|tensor|params|gradient|autograd|parallel",
            "repeat",
            "ops",
            "optimizer",
            "forward",
            "support",
            "line",
            "ready",
            "iteration",
            "pipeline",
            "schedule",
            "run",
            "replay",
            "allocate",
            "snapshot",
            "requests",
        ],
    ),
    (
        "step/ops",
        &[
            "casts",
            "dropout",
            "pointwise",
            "reductions",
            "indexing",
            "views",
            "scan",
            "autocast",
            "embedding",
            "matmul",
            "attention",
            "shape",
            "four_bit",
            "linear",
            "gathered_linear",
            "activations",
            "experts",
            "norm",
            "loss",
        ],
    ),
    ("explain", &["mod", "notes"]),
    ("share", &["query", "mod"]),
    ("export", &["mod", "levers", "pace", "sheet", "memory_viz", "script", "configuration"]),
    ("export/configuration", &["lines", "mod|trl|axolotl|llama_factory|torchtune|launch"]),
    ("export/script", &["python", "run", "parts", "generate", "transformers", "trl", "unsloth", "mod"]),
    (
        "cli",
        &[
            "table",
            "output",
            "import|input",
            "params",
            "estimate",
            "fit",
            "levers",
            "need",
            "contexts",
            "oom",
            "script",
            "export",
            "time",
            "rules",
            "batch",
            "check",
            "mod",
        ],
    ),
    (
        "ui",
        &[
            "browser",
            "format",
            "markup",
            "scale",
            "theme",
            "part",
            "view",
            "detail",
            "question",
            "desk",
            "history",
            "summary",
            "verdict",
            "proof",
            "chart",
            "hub",
            "way",
            "state",
            "controls",
            "keyboard",
            "picks",
            "presets",
            "sync",
            "own",
            "panel",
            "app",
            "prerender",
        ],
    ),
    ("ui/browser", &["mod", "files", "keys"]),
    ("ui/chart", &["ticks", "backend", "pen", "stack", "card", "curve", "scatter", "timeline"]),
    (
        "ui/controls",
        &["term", "name", "messages", "text", "switch", "select", "slider", "combobox", "table", "toast"],
    ),
    ("ui/own", &["bring", "remote", "snapshot", "file|configuration", "dimensions", "dialog", "mod"]),
    (
        "ui/panel",
        &[
            "breakdown",
            "chart",
            "proof",
            "accuracy",
            "levers",
            "oom",
            "rows",
            "need",
            "ranks",
            "answer",
            "curves",
            "compare",
            "fit",
            "control",
            "time",
            "thumb",
            "plan",
            "readout",
            "overlay",
            "timeline",
            "views",
            "panels",
            "verdict",
            "configure",
            "sentence",
            "take",
            "header",
            "footer",
        ],
    ),
    ("step/heap", &["ledger", "mod|record|repeat"]),
    ("step/what", &["mod", "roles", "torch"]),
    ("step/autograd", &["mod|derivative|checkpoint|offload", "engine"]),
    ("step/ops/attention", &["arguments", "splits", "choice", "math", "fused", "mod"]),
    ("step/ops/four_bit", &["kernel", "mod", "bitsandbytes", "torchao"]),
    ("step/optimizer", &["recipe", "mod"]),
    (
        "step/forward/stacks",
        &["common", "fused_loss", "liger", "litgpt", "megatron", "torchtune", "trl", "unsloth", "mod"],
    ),
    ("plan/levers", &["mod|rules|room"]),
    ("allocator", &["free_list", "mod", "expandable"]),
    ("step/forward/stacks/megatron", &["build", "functions", "mod", "loss"]),
    ("step/forward/stacks/torchtune", &["positions", "build", "mod"]),
    ("step/forward/stacks/trl", &["log_probs", "comparison", "mod", "answers", "odds"]),
    ("step/forward/stacks/unsloth", &["functions", "mod", "buffers", "loss"]),
];

/// Folders whose files have no order: the methods of one type, a file for each subject. ARCHITECTURE.md says why.
const ONE_THING: [&str; 3] = ["step/forward", "step/forward/families", "step/parallel"];

/// What puts the layers together.
const ROOTS: [&str; 3] = ["lib", "main", "bin"];

#[test]
fn no_layer_uses_one_that_stands_on_it() {
    let mut upward = Vec::new();
    for file in sources(&src()) {
        let module = module(&file);
        let own = module.first().expect("it has a name");
        if ROOTS.contains(&own.as_str()) {
            continue;
        }
        let floor = floor(&LAYERS, own)
            .unwrap_or_else(|| panic!("{own}: name the layer in LAYERS and ARCHITECTURE.md"));
        for used in uses(&file) {
            // what is no layer is a name that `lib.rs` exports
            let other = used.first().and_then(|name| self::floor(&LAYERS, name));
            if other.is_some_and(|other| other > floor) {
                upward.push(format!("{} uses {}", file.display(), used.join("::")));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:#?}");
}

#[test]
fn no_file_uses_one_that_stands_on_it() {
    let mut upward = Vec::new();
    for (folder, order) in INSIDE {
        let path: Vec<String> = folder.split('/').map(str::to_owned).collect();
        for file in sources(&src()) {
            let module = module(&file);
            let Some(below) = module.strip_prefix(path.as_slice()) else { continue };
            let own = below.first().map_or("mod", String::as_str);
            // a folder's own file that is no floor lists what is in the folder
            let Some(floor) = floor(order, own) else {
                assert_eq!(own, "mod", "{folder}: name {own} in INSIDE");
                continue;
            };
            let mut used = uses(&file);
            if own == "mod" {
                used.extend(children(&file, order).map(|name| [path.as_slice(), &[name]].concat()));
            }
            for used in used {
                let Some(rest) = used.strip_prefix(path.as_slice()) else { continue };
                let named = rest.first().and_then(|name| self::floor(order, name));
                // what the folder has and no file of it is called by is its own file's, or a name that it hands on
                let other = named.or_else(|| self::floor(order, "mod")).unwrap_or(usize::MAX);
                if other > floor {
                    upward.push(format!("{} uses {}", file.display(), used.join("::")));
                }
            }
        }
    }
    assert!(upward.is_empty(), "{upward:#?}");
}

#[test]
fn every_folder_has_an_order_or_is_one_thing() {
    for file in sources(&src()) {
        let module = module(&file);
        for depth in 1..module.len() {
            let folder = module[..depth].join("/");
            let named =
                INSIDE.iter().any(|(known, _)| *known == folder) || ONE_THING.contains(&folder.as_str());
            assert!(
                named || ROOTS.contains(&folder.as_str()) || !holds_several(&folder),
                "{folder} has no order in INSIDE"
            );
        }
    }
}

/// Whether a folder holds more than one file beside its own: one alone stands on it or under it.
fn holds_several(folder: &str) -> bool {
    let files = std::fs::read_dir(src().join(folder)).expect("it is a folder");
    files.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name() != "mod.rs")).count() > 1
}

#[test]
fn the_order_is_the_one_that_is_documented() {
    let text = include_str!("../ARCHITECTURE.md");
    let table = text
        .split("## Layers")
        .nth(1)
        .and_then(|text| text.split("\n## ").next())
        .expect("a table of layers");
    assert_listed_in_order(table, "the layers", &LAYERS);
    for (folder, order) in INSIDE {
        let line = table
            .lines()
            .find(|line| line.starts_with(&format!("- `{folder}/`:")))
            .unwrap_or_else(|| panic!("{folder} has no line"));
        let files: Vec<_> =
            order.iter().flat_map(|names| names.split('|')).filter(|name| *name != "mod").collect();
        assert_listed_in_order(line, folder, &files);
    }
}

#[track_caller]
fn assert_listed_in_order(text: &str, what: &str, order: &[&str]) {
    let place = |name: &&str| {
        let names = [format!("`{name}.rs`"), format!("`{name}/`")];
        names
            .iter()
            .filter_map(|name| text.find(name.as_str()))
            .min()
            .unwrap_or_else(|| panic!("{what}: {name} is not there"))
    };
    let places: Vec<_> = order.iter().map(place).collect();
    assert!(places.is_sorted(), "ARCHITECTURE.md lists {what} in another order: {places:?}");
}

/// What a family's code does stands in its row (`model/modeling/rows.rs`), for every stack: a step asks the row. Its
/// `model_type` is for messages.
#[test]
fn no_family_is_asked_for_by_name_in_a_step() {
    let names: Vec<&str> = families().flat_map(|family| family.model_types).copied().collect();
    assert!(names.contains(&"llama"), "{names:?}");
    for file in sources(&src().join("step")) {
        let source = std::fs::read_to_string(&file).expect("it can be read");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let place = || format!("{}:{}: {line}", file.display(), number + 1);
            let line = line.split("//").next().unwrap_or_default();
            let asks = ["==", "!=", "match", "starts_with", "contains", "as_str"];
            assert!(
                !line.contains("model_type") || !asks.iter().any(|way| line.contains(way)),
                "{}",
                place()
            );
            let named = names.iter().find(|name| line.contains(&format!("\"{name}\"")));
            assert_eq!(named, None, "{}", place());
        }
    }
}

/// What a stack does stands in its row (`scenario/software.rs`) and in its own folder: what all stacks run asks the row. Which of
/// them several GPUs were compared with is the engines' own affair.
#[test]
fn no_stack_is_asked_for_by_name_in_a_step() {
    let own = ["step/forward/stacks/mod.rs", "step/parallel/supported.rs"];
    for file in sources(&src().join("step")) {
        if own.iter().any(|own| file.ends_with(own)) {
            continue;
        }
        let source = std::fs::read_to_string(&file).expect("it can be read");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let asked = line.replace("Field::Stack", "").contains("Stack::");
            assert!(!asked, "{}:{}: {line}", file.display(), number + 1);
        }
    }
}

/// A stack brings its own operations: neither PyTorch's nor autograd know of it.
#[test]
fn no_operation_asks_for_a_stack_by_name() {
    let names: Vec<&str> = Stack::ALL.iter().map(|stack| stack.slug()).collect();
    assert!(names.contains(&"liger"), "{names:?}");
    for folder in ["step/heap", "step/autograd", "step/ops"] {
        for file in sources(&src().join(folder)) {
            let source = std::fs::read_to_string(&file).expect("it can be read").to_lowercase();
            for (number, line) in source.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                let named = names.iter().find(|name| code.contains(**name));
                assert_eq!(named, None, "{}:{}: {line}", file.display(), number + 1);
            }
        }
    }
}

#[test]
fn paths_are_found_wherever_a_source_names_them() {
    let code = "use crate::a::{b, c::{self, d as e}};\npub use super::f::G; // crate::not\npub(in crate::v) fn x() { super::h::i(crate::j::K) }\n\
                mod y;\npub use y::Z;\n#[cfg(test)]\nmod tests { use crate::k; }";
    let found: BTreeSet<String> =
        paths(code, &["m".to_owned(), "n".to_owned()]).iter().map(|path| path.join("::")).collect();
    let wanted = ["a::b", "a::c", "a::c::d", "j::K", "m::f::G", "m::h::i"];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn floor(order: &[&str], name: &str) -> Option<usize> {
    order.iter().position(|known| known.split('|').any(|known| known == name))
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

/// The path of a file's module: `src/model/blocks/table.rs` is `model::blocks::table`.
fn module(file: &Path) -> Vec<String> {
    let path = file.strip_prefix(src()).expect("it lies in src").with_extension("");
    let names = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    names.filter(|name| name != "mod").collect()
}

/// The paths in the crate that a file names outside its comments and its tests.
fn uses(file: &Path) -> Vec<Vec<String>> {
    paths(&std::fs::read_to_string(file).expect("it can be read"), &module(file))
}

/// What a folder's own file uses of the files in the folder. What it only hands on it does not use.
fn children<'a>(file: &Path, names: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
    let source = std::fs::read_to_string(file).expect("it can be read");
    let code = source.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
    let names = names.iter().filter(move |name| {
        let path = format!("{name}::");
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let mut lines = lines.filter(|line| !line.starts_with("pub use "));
        lines.any(|line| {
            let before = line.find(&path).and_then(|start| line.get(..start));
            before
                .is_some_and(|text| !text.ends_with(|c: char| c.is_ascii_alphanumeric() || "_:".contains(c)))
        })
    });
    names.map(|name| (*name).to_owned())
}

/// What a source at that place names by `crate::` and `super::`, lists in braces taken apart.
fn paths(source: &str, module: &[String]) -> Vec<Vec<String>> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    let mut rest = code.as_str();
    while let Some(start) = ["crate::", "super::"].iter().filter_map(|root| rest.find(root)).min() {
        let before = rest.get(..start).unwrap_or_default();
        let named = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        rest = rest.get(start..).unwrap_or_default();
        let mut path = module.to_vec();
        while let Some(after) = rest.strip_prefix("super::") {
            path.pop();
            rest = after;
        }
        if let Some(after) = rest.strip_prefix("crate::") {
            path.clear();
            rest = after;
        }
        // who may see a name says nothing of what is used
        if !named && !before.ends_with("pub(in ") {
            rest = tree(rest, path, &mut found);
        }
    }
    found
}

/// Takes the tree of a path apart, `a::{b, c::d}`; gives back what follows.
fn tree<'a>(text: &'a str, mut path: Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let mut rest = text.trim_start();
    loop {
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner.trim_start();
            while !rest.starts_with('}') && !rest.is_empty() {
                rest = tree(rest, path.clone(), found).trim_start();
                rest = rest.split_once([',', '}']).map_or("", |(alias, _)| {
                    let after = rest.get(alias.len()..).unwrap_or_default();
                    after.strip_prefix(',').unwrap_or(after)
                });
                rest = rest.trim_start();
            }
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if !name.is_empty() && name != "self" {
            path.push(name.to_owned());
        }
        match after.strip_prefix("::") {
            Some(after) if !name.is_empty() => rest = after,
            _ => {
                found.push(path);
                return after;
            }
        }
    }
}
