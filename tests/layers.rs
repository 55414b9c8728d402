//! Each layer uses only those above it, in the order of ARCHITECTURE.md; and so do the files of a layer among themselves.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headroom::model::modeling::families;
use headroom::scenario::Stack;

/// Floors from the ground up, each with the names that stand on it.
type Order = Vec<Vec<String>>;

/// The part of ARCHITECTURE.md that says who uses whom.
fn documented() -> &'static str {
    let text = include_str!("../ARCHITECTURE.md").split("## Layers").nth(1);
    text.and_then(|text| text.split("\n## ").next()).expect("a section on layers")
}

/// The layers: folders and files of `src/`, a floor each, in the order of the table's first column.
fn layers() -> Order {
    let cells = documented().lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = cells.flat_map(|cell| quoted(&format!("`{cell}"), "")).map(|name| vec![name]);
    names.collect()
}

/// The folders that have an order, each with it: lines such as ``- `a/b/`: `c.rs`, `d.rs` and `e/`.``
fn orders() -> Vec<(String, Order)> {
    let lines = documented().lines().filter_map(|line| line.strip_prefix("- `")?.split_once("/`: "));
    let order = |folder: &str, line: &str| -> Order {
        without_notes(line).split(',').map(|floor| quoted(floor, folder)).collect()
    };
    lines.map(|(folder, line)| (folder.to_owned(), order(folder, line))).collect()
}

/// The modules that a text names in backticks. The folder's own file is `mod`, also where it lies beside the folder.
fn quoted(text: &str, folder: &str) -> Vec<String> {
    let files = text.split('`').skip(1).step_by(2);
    let name = |file: &str| file.trim_end_matches('/').trim_end_matches(".rs").to_owned();
    let own = folder.rsplit('/').next().unwrap_or_default();
    files.map(name).map(|name| if name == own { "mod".to_owned() } else { name }).collect()
}

/// A line without what it says in parentheses.
fn without_notes(line: &str) -> String {
    line.split('(').map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect()
}

/// Folders whose files have no order: the methods of one type, a file for each subject. ARCHITECTURE.md says why.
const ONE_THING: [&str; 3] = ["step/forward", "step/forward/families", "step/parallel"];

/// What puts the layers together.
const ROOTS: [&str; 3] = ["lib", "main", "bin"];

#[test]
fn no_layer_uses_one_that_stands_on_it() {
    let layers = layers();
    let mut upward = Vec::new();
    for file in sources(&src()) {
        let module = module(&file);
        let own = module.first().expect("it has a name");
        if ROOTS.contains(&own.as_str()) {
            continue;
        }
        let floor = floor(&layers, own).unwrap_or_else(|| panic!("{own}: name the layer in ARCHITECTURE.md"));
        for used in uses(&file) {
            // what is no layer is a name that `lib.rs` exports
            let other = used.first().and_then(|name| self::floor(&layers, name));
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
    for (folder, order) in &orders() {
        let path: Vec<String> = folder.split('/').map(str::to_owned).collect();
        for file in sources(&src()) {
            let module = module(&file);
            let Some(below) = module.strip_prefix(path.as_slice()) else { continue };
            let own = below.first().map_or("mod", String::as_str);
            // a folder's own file that is no floor lists what is in the folder
            let Some(floor) = floor(order, own) else {
                assert_eq!(own, "mod", "{folder}: ARCHITECTURE.md does not say where {own} stands");
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
    let orders = orders();
    for file in sources(&src()) {
        let module = module(&file);
        for depth in 1..module.len() {
            let folder = module[..depth].join("/");
            let named =
                orders.iter().any(|(known, _)| *known == folder) || ONE_THING.contains(&folder.as_str());
            assert!(
                named || ROOTS.contains(&folder.as_str()) || !holds_several(&folder),
                "{folder} has no order in ARCHITECTURE.md"
            );
        }
    }
}

/// Whether a folder holds more than one file beside its own: one alone stands on it or under it.
fn holds_several(folder: &str) -> bool {
    let files = std::fs::read_dir(src().join(folder)).expect("it is a folder");
    files.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name() != "mod.rs")).count() > 1
}

/// Whatever a line of ARCHITECTURE.md names is there.
#[test]
fn the_documented_order_names_what_there_is() {
    let orders = orders();
    assert!(orders.len() > 30 && layers().len() > 20, "{orders:?}");
    for (folder, order) in &orders {
        for name in order.iter().flatten().filter(|name| *name != "mod") {
            let path = src().join(folder).join(name);
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "{folder}/{name} is not there");
        }
    }
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

fn floor(order: &Order, name: &str) -> Option<usize> {
    order.iter().position(|floor| floor.iter().any(|known| known == name))
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
    // a file of tests, as those that stand below the code, may use whatever they hold it to
    if file.ends_with("tests.rs") {
        return Vec::new();
    }
    paths(&std::fs::read_to_string(file).expect("it can be read"), &module(file))
}

/// What a folder's own file uses of the files in the folder. What it only hands on it does not use.
fn children<'a>(file: &Path, order: &'a Order) -> impl Iterator<Item = String> + 'a {
    let source = std::fs::read_to_string(file).expect("it can be read");
    let code = source.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
    let names = order.iter().flatten().filter(move |name| {
        let path = format!("{name}::");
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let mut lines = lines.filter(|line| !line.starts_with("pub use "));
        lines.any(|line| {
            let before = line.find(&path).and_then(|start| line.get(..start));
            before
                .is_some_and(|text| !text.ends_with(|c: char| c.is_ascii_alphanumeric() || "_:".contains(c)))
        })
    });
    names.cloned()
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
