//! A model of the user's own.

use std::sync::Arc;

use super::{CustomModel, Field, Issue, compact};
use crate::model::read::{Parsed, parse_with_essence};

impl CustomModel {
    /// Reads the text of a `config.json` and keeps the part of it that decides sizes.
    ///
    /// # Errors
    /// Where the text is no config that can be read, and where a link could not carry the model.
    pub fn read(name: &str, text: &str) -> Result<CustomModel, Issue> {
        let Parsed { architecture, essence } = parse_with_essence(text)?;
        let config = serde_json::from_str(&essence).ok();
        let carried = compact::read(&compact::write(name, config.as_ref()));
        if let Err(problem) = carried {
            let message = format!("{problem}, no link could carry it");
            return Err(
                Issue::error(Field::Model, message).with_fix("give the config.json of a language model")
            );
        }
        Ok(CustomModel { name: name.to_owned(), config: essence, architecture: Arc::new(architecture) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{ModelChoice, Scenario};
    use crate::share;

    /// Of a key that is of no use as it is the reader takes the default; its link would have opened another model.
    #[test]
    fn what_is_taken_can_be_carried_by_a_link() {
        let config = |positions: &str| {
            format!(
                r#"{{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": {positions}}}"#
            )
        };
        let deep = config(&format!("{}1{}", "[".repeat(20), "]".repeat(20)));
        let issue = CustomModel::read("mine", &deep).unwrap_err().to_string();
        assert!(issue.starts_with("its config is nested too deeply, no link could carry it"), "{issue}");
        for positions in ["512", "[[512]]"] {
            let model = CustomModel::read("mine", &config(positions)).unwrap();
            let scenario = Scenario { model: ModelChoice::Custom(model.into()), ..Scenario::default() };
            assert_eq!(share::decode(&share::encode(std::slice::from_ref(&scenario))).scenarios, [scenario]);
        }
    }
}
