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

/// As derived, but kept out of what every page runs at its start: comparing architectures is a lot of code.
impl PartialEq for CustomModel {
    #[inline(never)]
    fn eq(&self, other: &CustomModel) -> bool {
        (&self.name, &self.config, &self.architecture) == (&other.name, &other.config, &other.architecture)
    }
}
