//! What a model is: an [`Architecture`] read from a real `config.json`, made of shared [`blocks`].

mod architecture;
pub mod blocks;
pub mod catalogue;
mod config;
pub mod dimensions;
mod error;
mod families;
pub mod modeling;
mod python_json;
pub mod read;
mod resizing;
pub mod stored;
mod tiles;
pub mod vision;

pub(crate) use architecture::MROPE_POSITIONS;
pub use architecture::{
    Architecture, Classifier, ENCODER, Embeddings, Encoder, Head, HeadTransform, LAYERS, Objective,
    RotaryTables, Tower,
};
pub use error::ModelError;
