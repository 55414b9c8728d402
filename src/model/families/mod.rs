//! One reader per shape of family: from config keys to blocks.

use serde_json::Value;

use super::Architecture;
use crate::scenario::{Field, Issue};

/// Builds the architecture that a config describes.
///
/// # Errors
/// An [`Issue`] where the family is unknown or a key is missing.
pub fn read(_config: &Value) -> Result<Architecture, Issue> {
    Err(Issue::error(Field::Model, "no family is known yet"))
}
