//! Reading a `config.json`.

use super::Architecture;
use crate::scenario::{Field, Issue};

/// Reads the text of a `config.json`.
///
/// # Errors
/// An [`Issue`] that says what is missing, of the wrong type, or unsupported.
pub fn parse(text: &str) -> Result<Architecture, Issue> {
    let value: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| Issue::error(Field::Model, format!("this is not JSON: {error}")))?;
    super::families::read(&value)
}
