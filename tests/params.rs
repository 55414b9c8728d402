//! Every model of the catalogue counts exactly.

use headroom::model::catalogue::{self, Entry};
use headroom::model::config;

/// The count of the config file as it lies in the folder, not as the build packs it.
#[track_caller]
fn counted(entry: &Entry) -> Result<u64, String> {
    let path = format!("{}/data/models/{}.json", env!("CARGO_MANIFEST_DIR"), entry.id.replace('/', "__"));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let whole = config::parse(&text).map_err(|issue| issue.to_string())?;
    let packed = entry.architecture().map_err(|issue| format!("packed: {issue}"))?;
    if whole != *packed {
        return Err("the packed config reads differently".to_owned());
    }
    Ok(whole.parameters())
}

#[test]
fn every_model_counts_exactly() {
    let mut wrong = Vec::new();
    for entry in catalogue::entries() {
        match counted(entry) {
            Ok(parameters) if parameters == entry.parameters => {}
            Ok(parameters) => wrong.push(format!(
                "{}: {} parameters of difference",
                entry.id,
                i128::from(parameters) - i128::from(entry.parameters)
            )),
            Err(message) => wrong.push(format!("{}: {message}", entry.id)),
        }
    }
    let all = catalogue::entries().len();
    assert!(all >= 250, "the catalogue has {all} models");
    assert!(wrong.is_empty(), "{} of {all} models:\n{}", wrong.len(), wrong.join("\n"));
}
