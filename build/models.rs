//! Packs the catalogue: `data/models/*.json` reduced to the keys that a reader of the model layer names, one line per
//! model in the order of `data/models.csv`, and the class defaults of transformers.
//!
//! A key is kept if it occurs as a text literal in `src/model`, so that there is no list to keep up to date; a test
//! parses every file whole and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::write;

#[path = "../src/model/python_json.rs"]
mod python_json;

/// Writes `catalogue.txt`, `defaults.json` and `aliases.txt` into the folder.
pub fn pack(out: &Path) {
    for path in ["data", "src/model"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let defaults: Value =
        serde_json::from_str(&read("data/defaults.json")).expect("data/defaults.json is JSON");
    let sieve = Sieve { words: words(Path::new("src/model")), defaults: defaults.clone() };
    write(out, "catalogue.txt", &catalogue(&sieve).concat());
    write(out, "defaults.json", &Value::Object(told(&defaults)).to_string());
    write(out, "aliases.txt", &aliases());
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

/// The sizes whose absence is told to the user, under all their names: they are kept even where they are the default.
const STRUCTURE: &[&str] = &[
    "hidden_size",
    "n_embd",
    "n_embed",
    "d_model",
    "dim",
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "intermediate_size",
    "vocab_size",
];

/// What decides a config: the sources' words and the class defaults.
struct Sieve {
    words: BTreeSet<String>,
    defaults: Value,
}

impl Sieve {
    /// The members of a config that somebody reads and that are not the default of its class.
    fn kept(&self, object: &Map<String, Value>) -> Map<String, Value> {
        let model_type = object.get("model_type").and_then(Value::as_str);
        let defaults = model_type.and_then(|name| self.defaults.get(name));
        let keep = |(key, value): (&String, &Value)| {
            let value = match value {
                Value::Object(inner) => Value::Object(self.kept(inner)),
                other => other.clone(),
            };
            let default = defaults.and_then(|defaults| defaults.get(key));
            let needless = match &value {
                Value::Null => default.is_none() && defaults.is_some(),
                // An empty config nests the defaults of its class; any other empty object says nothing.
                Value::Object(inner) => inner.is_empty() && !key.ends_with("_config"),
                other => default == Some(other) && !STRUCTURE.contains(&key.as_str()),
            };
            (self.words.contains(key) && !needless).then(|| (key.clone(), value))
        };
        object.iter().filter_map(keep).collect()
    }
}

/// The defaults that differ from what a reader takes an absent key for: off, 0. A dropout of 0 tells that there is one.
fn told(defaults: &Value) -> Map<String, Value> {
    // Keys whose absence is read as on.
    let on = [
        "multi_query",
        "no_bias",
        "position_biased_input",
        "post_layer_norm",
        "rmsnorm",
        "tie_word_embeddings",
    ];
    let tells = |key: &String, value: &Value| match value {
        Value::Bool(false) => on.contains(&key.as_str()),
        Value::Number(number) => {
            let is_dropout = key.contains("dropout") || key.ends_with("pdrop");
            is_dropout || !(number.is_f64() && number.as_f64() == Some(0.0))
        }
        _ => true,
    };
    let row = |row: &Value| {
        let members = row.as_object().into_iter().flatten().filter(|(key, value)| tells(key, value));
        Value::Object(members.map(|(key, value)| (key.clone(), value.clone())).collect())
    };
    let rows = defaults.as_object().expect("data/defaults.json is an object").iter();
    rows.map(|(name, value)| (name.clone(), row(value))).collect()
}

/// The name that a model has if nothing else is said: the last part of its id.
fn plain_name(id: &str) -> String {
    id.rsplit('/').next().unwrap_or(id).replace(['-', '_'], " ")
}

/// Every model, the most popular first, one line each: id, name, family, licence, gated, release, context, parameters,
/// config; tabs between.
fn catalogue(sieve: &Sieve) -> Vec<String> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for entry in fs::read_dir("data/models").expect("data/models is there") {
        let path = entry.expect("data/models is readable").path();
        let id = path.file_stem().and_then(|stem| stem.to_str()).map(|stem| stem.replacen("__", "/", 1));
        files.insert(id.expect("file names are text"), path);
    }
    let mut models = Vec::new();
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
        let config = Value::Object(sieve.kept(object));
        models.push(format!("{id}\t{}\t{config}\n", facts.join("\t")));
    };
    for row in rows {
        let id = row[column("id")].as_str();
        let path = files.remove(id).unwrap_or_else(|| panic!("data/models has no file for {id}"));
        let mut facts = columns.map(|index| row[index].as_str());
        if facts[0] == plain_name(id) {
            facts[0] = "";
        }
        line(id, &facts, &path);
    }
    // A file without a row is a model all the same; the rest is not known of it.
    for (id, path) in files {
        line(&id, &[""; 7], &path);
    }
    models
}

/// One line per alias: its id, the id of the model of the same shape, and its own longest context, empty where that is not known.
fn aliases() -> String {
    let table = read("data/aliases.csv");
    csv(&table).skip(1).map(|row| format!("{}\t{}\t{}\n", row[1], row[0], row[2])).collect()
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
