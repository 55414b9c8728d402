//! A model of the user's own.

use std::sync::Arc;

use super::{CustomModel, Issue};
use crate::model::config::{Parsed, parse_with_essence};

impl CustomModel {
    /// Reads the text of a `config.json` and keeps the part of it that decides sizes.
    ///
    /// # Errors
    /// As [`parse_with_essence`].
    pub fn read(name: &str, text: &str) -> Result<CustomModel, Issue> {
        let Parsed { architecture, essence } = parse_with_essence(text)?;
        Ok(CustomModel { name: name.to_owned(), config: essence, architecture: Arc::new(architecture) })
    }
}
