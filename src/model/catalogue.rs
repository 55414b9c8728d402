//! The models that Headroom knows by name: a folder of real `config.json` files.

use std::sync::Arc;

use super::Architecture;
use crate::scenario::{Field, Issue};

/// The architecture of a model of the catalogue.
///
/// # Errors
/// An [`Issue`] where there is no such model.
pub fn architecture(id: &str) -> Result<Arc<Architecture>, Issue> {
    Err(Issue::error(Field::Model, format!("no model is called {id:?}")))
}

/// A llama-shaped architecture of about that many billion parameters.
///
/// # Errors
/// An [`Issue`] where the size is not a positive number that a shape can be found for.
pub fn architecture_of_size(billions: f64) -> Result<Arc<Architecture>, Issue> {
    Err(Issue::error(Field::Model, format!("no shape for {billions} billion parameters")))
}
