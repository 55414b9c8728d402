//! Headroom predicts the GPU memory of a training step by executing it without data: tensors have a size and no
//! elements, operations allocate their output and keep what autograd would keep, in PyTorch's order.
//!
//! A [`Scenario`](scenario::Scenario) says what runs; [`estimate()`] answers it in microseconds, by the bytes of tensors:
//!
//! ```
//! use headroom::scenario::{Method, ModelChoice, Optimizer, Precision, Scenario};
//! use headroom::{estimate, memory::Category, units::Bytes};
//!
//! let scenario = Scenario {
//!     model: ModelChoice::Catalogue("meta-llama/Llama-3.2-1B".into()),
//!     method: Method::Full,
//!     precision: Precision::Bf16,
//!     optimizer: Optimizer::AdamWFused,
//!     ..Scenario::default()
//! };
//! let memory = estimate(&scenario).memory.expect("the family is known");
//! let (phase, peak) = memory.peak();
//! assert_eq!(peak.parts.get(Category::Optimizer), Bytes(4_943_332_352));
//! assert_eq!(peak.parts.total(), peak.bytes);
//! println!("{} in the {}", peak.bytes, phase.label());
//! ```
//!
//! What cannot be answered is an [`Issue`](issue::Issue), which says where, what is wrong, and what would be right:
//!
//! ```
//! use headroom::{estimate, scenario::{ModelChoice, Scenario}};
//!
//! let scenario = Scenario { model: ModelChoice::Catalogue("gpt-2".into()), ..Scenario::default() };
//! let answer = estimate(&scenario);
//! assert!(answer.memory.is_none());
//! let error = answer.errors().next().expect("a reason");
//! assert!(error.to_string().starts_with("no model is called \"gpt-2\" (perhaps openai-community/gpt2"));
//! ```
//!
//! What the allocator makes of that on a card, which is what the page and the command show, is
//! [`export::Answer::of`]: the peak as `torch.cuda.max_memory_allocated()` counts it, what is reserved, and the verdict.

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
pub mod job;
pub mod memory;
pub mod model;
pub mod plan;
pub mod scenario;
mod search;
pub mod share;
pub mod step;
mod text;
#[cfg(feature = "ui")]
pub mod ui;
pub mod units;

pub use estimate::{Estimate, estimate};
