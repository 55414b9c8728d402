//! Packs the catalogue: `data/models/*.json` reduced to the keys that a reader of the model layer names, one line per
//! model in the order of `data/models.csv`, and the class defaults of transformers.
//!
//! A key is kept if it occurs as a text literal in `src/model`, so that there is no list to keep up to date; a test
//! parses every file whole and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

#[path = "../src/model/python_json.rs"]
mod python_json;

/// Writes `catalogue.txt`, `aliases.txt` and `defaults.json` into `out`.
pub fn pack(out: &Path) {
    for path in ["data", "src/model"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let words = words(Path::new("src/model"));
    let write = |name: &str, text: String| fs::write(out.join(name), text).expect("OUT_DIR is writable");
    let defaults: Value =
        serde_json::from_str(&read("data/defaults.json")).expect("data/defaults.json is JSON");
    write("defaults.json", defaults.to_string());
    write("catalogue.txt", catalogue(&words));
    write("aliases.txt", aliases());
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every text literal of the sources below a folder.
fn words(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder is readable").path();
        if path.is_dir() {
            found.extend(words(&path));
        } else {
            found.extend(read(&path).split('"').map(str::to_owned));
        }
    }
    found
}

/// The members of a config that somebody reads.
fn kept(object: &Map<String, Value>, words: &BTreeSet<String>) -> Map<String, Value> {
    let keep = |(key, value): (&String, &Value)| {
        let value = match value {
            Value::Object(inner) => Value::Object(kept(inner, words)),
            other => other.clone(),
        };
        words.contains(key).then(|| (key.clone(), value))
    };
    object.iter().filter_map(keep).collect()
}

/// One line per model: id, name, family, licence, gated, release, context, parameters, config; tabs between.
fn catalogue(words: &BTreeSet<String>) -> String {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for entry in fs::read_dir("data/models").expect("data/models is there") {
        let path = entry.expect("data/models is readable").path();
        let id = path.file_stem().and_then(|stem| stem.to_str()).map(|stem| stem.replacen("__", "/", 1));
        files.insert(id.expect("file names are text"), path);
    }
    let mut lines = String::new();
    let table = read("data/models.csv");
    let mut rows = csv(&table);
    let header = rows.next().expect("data/models.csv has a header");
    let column =
        |name: &str| header.iter().position(|title| title == name).expect("data/models.csv has the column");
    let columns = ["name", "family", "licence", "gated", "release", "context", "parameters"].map(column);
    let mut line = |id: &str, facts: &[&str], path: &Path| {
        let text = read(path);
        let value: Value = serde_json::from_str(&python_json::without_python_numbers(&text))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let object = value.as_object().unwrap_or_else(|| panic!("{}: not an object", path.display()));
        let config = Value::Object(kept(object, words));
        lines.push_str(&format!("{id}\t{}\t{config}\n", facts.join("\t")));
    };
    for row in rows {
        let id = row[column("id")].as_str();
        let path = files.remove(id).unwrap_or_else(|| panic!("data/models has no file for {id}"));
        line(id, &columns.map(|index| row[index].as_str()), &path);
    }
    // A file without a row is a model all the same; the rest is not known of it.
    for (id, path) in files {
        line(&id, &[""; 7], &path);
    }
    lines
}

/// One line per alias: its id and the id of the model of the same shape.
fn aliases() -> String {
    let table = read("data/aliases.csv");
    csv(&table).skip(1).map(|row| format!("{}\t{}\n", row[1], row[0])).collect()
}

/// Rows of a table with commas and quoted fields; quotes inside fields are lost, which no field that is read has.
fn csv(text: &str) -> impl Iterator<Item = Vec<String>> {
    text.lines().map(|line| {
        let mut fields = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                other => fields.last_mut().expect("there is always a field").push(other),
            }
        }
        fields
    })
}
