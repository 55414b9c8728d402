//! Every way to use so many GPUs: which of them hold a run, which is fastest, and what stands in the way of the others.
//!
//! A way is a scenario: the engine of many GPUs, how the model is divided, recomputation. All of them train on as many sequences
//! in a step, in the micro-batch with which they are fastest of those that fit. Each is run like any other scenario.

mod enumerated;
mod ranking;
mod trying;
mod way;

pub(super) use enumerated::Divisions;
pub use enumerated::ways;
pub use ranking::{WayOrder, fewest_layouts, layouts, rank_ways, refusals};
pub use trying::tried;
pub(super) use way::name;
pub use way::{Way, WayOutcome};

#[cfg(test)]
mod tests;
