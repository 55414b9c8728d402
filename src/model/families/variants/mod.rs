//! The families of decoders that are llama with a difference, one description each.

mod bases;
mod dense;
mod experts;
mod hybrid;

use super::llama;
use super::variant::Variant;
use crate::model::architecture::Architecture;
use crate::model::config::Config;
use crate::model::error::ModelError;

/// The description of a model type, if it is llama with a difference.
pub fn of(model_type: &str) -> Option<Variant> {
    dense::of(model_type).or_else(|| experts::of(model_type)).or_else(|| hybrid::of(model_type))
}

/// The architecture that a config gives with the description of its model type, if there is one.
pub fn read(config: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    of(config.model_type).map(|variant| llama::read(config, &variant))
}
