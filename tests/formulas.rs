//! The tables of `docs/formulas.md` are what the step computes.
#![cfg(not(target_arch = "wasm32"))]

use headroom::memory::Category;
use headroom::scenario::{CustomModel, ModelChoice, Scenario};
use headroom::{estimate, share};
use serde_json::{Map, Value};

const DOCUMENT: &str = include_str!("../docs/formulas.md");

/// The rows of the table under a heading, cell by cell, without the line under its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = DOCUMENT.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
    let lines =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let row = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    lines.map(row).filter(|row| !row[0].starts_with("---")).collect()
}

/// What the title of the document promises, of each of its sections.
#[test]
fn every_term_has_its_source_its_assumption_and_its_known_error() {
    let sections: Vec<&str> = DOCUMENT.split("\n## ").skip(1).collect();
    assert!(sections.len() > 25, "{}", sections.len());
    for section in sections {
        for label in ["**Source", "**Assumes**", "**Known error**"] {
            let name = section.lines().next().unwrap_or_default();
            assert!(section.contains(label), "{name} has no {label}");
        }
    }
}

/// The value of `16H+4Q+6aS+8` for these symbols.
fn value(formula: &str, symbols: &[(char, u64)]) -> u64 {
    let term = |term: &str| {
        let digits = term.find(|c: char| !c.is_ascii_digit()).unwrap_or(term.len());
        let factor: u64 = term[..digits].parse().expect("a term begins with a number");
        let of =
            |symbol: char| symbols.iter().find(|(name, _)| *name == symbol).expect("a symbol of the page").1;
        term[digits..].chars().map(of).product::<u64>() * factor
    };
    formula.split('+').map(term).sum()
}

/// The config of a model of the catalogue.
fn config(id: &str) -> Map<String, Value> {
    let path = format!("{}/data/models/{}.json", env!("CARGO_MANIFEST_DIR"), id.replace('/', "__"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// What the symbols of the page stand for.
fn symbols(config: &Map<String, Value>) -> [(char, u64); 7] {
    let number = |names: &[&str]| names.iter().find_map(|name| config.get(*name)?.as_u64());
    let hidden = number(&["hidden_size", "n_embd"]).expect("a hidden size");
    let heads = number(&["num_attention_heads", "n_head"]).expect("heads");
    let head = number(&["head_dim"]).unwrap_or(hidden / heads);
    let key_heads = number(&["num_key_value_heads"]).unwrap_or(heads);
    let inner = number(&["intermediate_size", "n_inner"]).unwrap_or(4 * hidden);
    [
        ('H', hidden),
        ('I', inner),
        ('Q', heads * head),
        ('K', key_heads * head),
        ('a', heads),
        ('k', key_heads),
        ('S', SEQUENCE),
    ]
}

/// What a model with so many layers keeps in the forward pass.
fn saved(config: &Map<String, Value>, layers: u64, settings: &str) -> u64 {
    let mut config = config.clone();
    config.remove("layer_types");
    for depth in ["num_hidden_layers", "n_layer"] {
        if config.contains_key(depth) {
            config.insert(depth.to_owned(), layers.into());
        }
    }
    let model = CustomModel::read("own", &Value::Object(config).to_string()).unwrap();
    let shared = share::decode(&format!(
        "v=1&method=full&o=sgd&gc=off&b={BATCH}&s={SEQUENCE}&gpu=a100-sxm-80gb&{settings}"
    ));
    assert!(shared.notices.is_empty(), "{:?}", shared.notices);
    let scenario = Scenario { model: ModelChoice::Custom(model.into()), ..shared.scenarios[0].clone() };
    let memory = estimate(&scenario).memory.expect("an answer");
    memory.peak().1.parts.get(Category::Activations).0
}

const BATCH: u64 = 4;
const SEQUENCE: u64 = 1024;

/// A model with two more layers keeps twice what a row says more.
#[test]
fn a_layer_keeps_what_the_table_says() {
    let rows = table("Saved activations");
    assert!(rows.len() > 5);
    let mut wrong = Vec::new();
    for row in &rows[1..] {
        let config = config(row[1]);
        let symbols = symbols(&config);
        for (formula, settings) in row[2..].iter().zip(["p=bf16", "p=bf16&attn=eager", "p=amp-bf16"]) {
            let more = saved(&config, 6, settings) - saved(&config, 4, settings);
            let wanted = 2 * BATCH * SEQUENCE * value(formula, &symbols);
            let each = more as f64 / (2 * BATCH * SEQUENCE) as f64;
            if more.abs_diff(wanted) > wanted / 10_000 {
                wrong.push(format!("{} under {settings}: {formula}, and it is {each}", row[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Bytes of state for each trained element, to two decimals.
#[test]
fn an_optimizer_keeps_what_the_table_says() {
    let rows = table("Optimizer state");
    assert!(rows.len() > 10);
    for row in &rows[1..] {
        let optimizer = row[0].trim_matches('`');
        for (wanted, precision) in row[1..3].iter().zip(["fp32", "bf16"]) {
            let link = format!("v=1&m=meta-llama/Llama-3.2-1B&method=full&p={precision}&o={optimizer}&s=128");
            let shared = share::decode(&link);
            assert!(shared.notices.is_empty(), "{:?}", shared.notices);
            let scenario = &shared.scenarios[0];
            let parameters = scenario.architecture().unwrap().parameters();
            let memory = estimate(scenario).memory.expect("an answer");
            let state = memory.peak().1.parts.get(Category::Optimizer).0 as f64 / parameters as f64;
            let wanted: f64 = wanted.parse().unwrap();
            assert!((state - wanted).abs() < 0.006, "{optimizer}, {precision}: {state} and not {wanted}");
        }
    }
}
