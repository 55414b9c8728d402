//! A range of bytes.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A range of bytes, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Between {
    /// The least.
    pub least: Bytes,
    /// The most.
    pub most: Bytes,
}
