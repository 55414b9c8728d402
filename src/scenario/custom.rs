//! A model of the user's own.

use std::sync::Arc;

use serde_json::Value;

use super::{CustomModel, Field, Issue};
use crate::model::config;

/// The longest `config.json` that is read. Real ones have some hundred to a few thousand bytes, with label tables a
/// few ten thousand.
const LONGEST: usize = 1 << 18;

/// Keys that no size depends on; dropped so that links stay short.
const IRRELEVANT: [&str; 11] = [
    "_name_or_path",
    "auto_map",
    "bos_token_id",
    "eos_token_id",
    "id2label",
    "initializer_range",
    "label2id",
    "pad_token_id",
    "task_specific_params",
    "transformers_version",
    "use_cache",
];

impl CustomModel {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// An [`Issue`] on [`Field::Model`] that says what is missing or unsupported.
    pub fn read(name: &str, text: &str) -> Result<CustomModel, Issue> {
        if text.len() > LONGEST {
            return Err(Issue::error(Field::Model, format!("this config has {} bytes", text.len()))
                .with_fix(format!("a config.json has at most {LONGEST}")));
        }
        let value = serde_json::from_str(text)
            .map_err(|error| Issue::error(Field::Model, format!("this is not JSON: {error}")))?;
        CustomModel::from_json(name, value)
    }

    /// The same from JSON that is already parsed.
    ///
    /// # Errors
    /// As [`CustomModel::read`].
    pub fn from_json(name: &str, mut value: Value) -> Result<CustomModel, Issue> {
        drop_irrelevant(&mut value);
        let config = value.to_string();
        let architecture = Arc::new(config::parse(&config)?);
        Ok(CustomModel { name: name.to_owned(), config, architecture })
    }
}

fn drop_irrelevant(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|key, _| !IRRELEVANT.contains(&key.as_str()));
        map.values_mut().for_each(drop_irrelevant);
    }
}
