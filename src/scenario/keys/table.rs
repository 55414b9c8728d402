//! The table of keys, a file for each part.

mod batch;
mod cluster;
mod evaluation;
mod plan;
mod spikes;
mod step;
mod trained;

use super::key::Key;

/// The rows in the order in which they are written.
const TABLE: [&[Key]; 7] =
    [trained::KEYS, batch::KEYS, evaluation::KEYS, spikes::KEYS, step::KEYS, cluster::KEYS, plan::KEYS];

/// Every key, in the order in which they are written.
pub fn keys() -> impl Iterator<Item = &'static Key> + Clone {
    TABLE.into_iter().flatten()
}
