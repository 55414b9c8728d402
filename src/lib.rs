//! Headroom predicts the GPU memory of a training step by executing it without data: tensors have a size and no
//! elements, operations allocate their output and keep what autograd would keep, in PyTorch's order.
//!
//! ```
//! use headroom::{estimate, scenario::Scenario};
//! let answer = estimate(&Scenario::default());
//! assert!(answer.memory.is_some(), "{:?}", answer.issues);
//! ```

// What Leptos makes of a page natively nests its types deeply.
#![cfg_attr(not(target_arch = "wasm32"), recursion_limit = "256")]

pub mod accuracy;
pub mod allocator;
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
pub mod dtype;
pub mod estimate;
pub mod explain;
pub mod export;
pub mod hardware;
pub mod issue;
pub mod memory;
pub mod model;
pub mod plan;
pub mod scenario;
mod search;
pub mod share;
pub mod step;
#[cfg(feature = "ui")]
pub mod ui;
pub mod units;

pub use estimate::{Estimate, estimate};
