//! Calls of sentence-transformers beside its trainer: the model that is put together, and the loss.

use serde_json::Value;

use super::syntax::setting::Setting;
use super::syntax::{python, setting};

/// What became of a call.
#[derive(Default)]
pub(super) struct Taken {
    /// Whether it loads a model.
    pub loads: bool,
    /// Why it is left, where it is.
    pub left: Option<&'static str>,
}

/// The losses of rerankers that take a number for each pair, or one for each class (sentence-transformers 6.2, cross_encoder/losses/).
const OF_PAIRS: [&str; 3] = ["BinaryCrossEntropyLoss", "CrossEntropyLoss", "MSELoss"];

/// Takes a call of a script that trains a reranker, where it is one of those.
pub(super) fn takes_of_reranker(call: &python::Call, settings: &mut Vec<Setting>) -> Option<Taken> {
    let left = match call.name() {
        "CrossEncoder" => return Some(reranker(call, settings)),
        "SentenceTransformer" => "what embeds beside a reranker, to mine texts or to score, is not counted",
        "add_adapter" => "adapters of a CrossEncoder are not followed: all weights are taken as trained",
        name if OF_PAIRS.contains(&name) => return Some(Taken::default()),
        name if name.ends_with("Loss") => {
            "of a reranker's losses binary cross entropy, cross entropy and the squared error are predicted"
        }
        _ => return None,
    };
    Some(Taken { left: Some(left), ..Taken::default() })
}

/// The reranker's name, its labels, and where its texts are cut (cross_encoder/model.py).
fn reranker(call: &python::Call, settings: &mut Vec<Setting>) -> Taken {
    for (argument, value) in &call.named {
        if ["num_labels", "max_length"].contains(&argument.as_str()) && *value != Value::Null {
            setting::flatten("CrossEncoder", argument, value.clone(), settings);
        }
    }
    model(call, settings)
}

/// Takes a call, where it is one of those.
pub(super) fn takes(call: &python::Call, settings: &mut Vec<Setting>) -> Option<Taken> {
    let named = |name: &str| call.named.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    match call.name() {
        "SentenceTransformer" | "Transformer" => return Some(model(call, settings)),
        "Pooling" => {
            if let Some(pooling) = named("pooling_mode") {
                setting::flatten("", "pooling_mode", pooling, settings);
            }
        }
        "MultipleNegativesRankingLoss" => {
            setting::flatten("", "mini_batch_size", Value::from(0), settings);
        }
        // its default in sentence-transformers 6.2
        "CachedMultipleNegativesRankingLoss" => {
            let size = named("mini_batch_size").unwrap_or(Value::from(32));
            setting::flatten("", "mini_batch_size", size, settings);
        }
        name if name.ends_with("Loss") => {
            let left = Some("of the losses of embeddings those with in-batch negatives are predicted");
            return Some(Taken { left, ..Taken::default() });
        }
        _ => return None,
    }
    Some(Taken::default())
}

/// The model's name, and how transformers is asked for it.
fn model(call: &python::Call, settings: &mut Vec<Setting>) -> Taken {
    let name = call.values.first().filter(|value| value.is_string());
    if let Some(name) = name {
        setting::flatten(call.name(), "model_name_or_path", name.clone(), settings);
    }
    let mut loads = name.is_some();
    for (argument, value) in &call.named {
        match (argument.as_str(), value) {
            ("model_kwargs", Value::Object(own)) => {
                for (name, value) in own.iter().filter(|(name, _)| *name != "quantization_config") {
                    setting::flatten("from_pretrained", name, value.clone(), settings);
                }
            }
            ("model_name_or_path" | "max_seq_length", _) => {
                loads |= argument == "model_name_or_path";
                setting::flatten(call.name(), argument, value.clone(), settings);
            }
            // modules, devices, prompts, caches
            _ => {}
        }
    }
    Taken { loads, left: None }
}
