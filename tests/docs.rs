//! What the documents say in numbers is what the program does.
#![cfg(not(target_arch = "wasm32"))]

use headroom::estimate;
use headroom::model::catalogue;
use headroom::scenario::{ModelChoice, Scenario};

/// The document's text, line breaks as spaces.
fn text(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The only place that says how large the catalogue is.
#[test]
fn the_readme_counts_the_catalogue() {
    let entries = catalogue::entries();
    let answers = |id: &str| {
        let model = ModelChoice::Catalogue(id.to_owned());
        estimate(&Scenario { model, ..Scenario::default() }).memory.is_some()
    };
    let answered = entries.iter().filter(|entry| answers(entry.id)).count();
    let sentence = format!(
        "It counts the parameters of all {} models of its catalogue, and predicts the training step of {answered} of them",
        entries.len()
    );
    assert!(text("README.md").contains(&sentence), "README.md does not say: {sentence}");
}
