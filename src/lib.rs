//! Headroom predicts the GPU memory of a training step by executing it without data: tensors have a size and no
//! elements, operations allocate their output and keep what autograd would keep, in PyTorch's order.
//!
//! A [`Scenario`](scenario::Scenario) says what runs, and [`Answer::of`](export::Answer::of) what that needs: the step is
//! executed, and its allocations are replayed through PyTorch's caching allocator under the card's capacity.
//!
//! ```
//! use headroom::export::Answer;
//! use headroom::scenario::{Checkpointing, GpuChoice, Method, ModelChoice, Optimizer, Precision, Scenario};
//! use headroom::plan::Verdict;
//!
//! let answer = Answer::of(Scenario {
//!     model: ModelChoice::Catalogue("meta-llama/Llama-3.2-1B".into()),
//!     method: Method::Full,
//!     precision: Precision::Bf16,
//!     optimizer: Optimizer::AdamW,
//!     checkpointing: Checkpointing::Off,
//!     batch: 4,
//!     sequence: 2048,
//!     gpu: GpuChoice::Catalogue("a100-sxm-40gb".into()),
//!     ..Scenario::default()
//! });
//! let memory = answer.estimate.memory.as_ref().expect("nothing stands in the way");
//! let (phase, peak) = memory.peak();
//! // PyTorch 2.11 and transformers 5.17 took 34,420,881,408 bytes (data/measurements/null-device.json)
//! assert!(peak.bytes.0.abs_diff(34_420_881_408) < 1 << 20, "{}", peak.bytes.0);
//! assert_eq!((phase.label(), peak.bytes.to_string().as_str()), ("backward pass", "32.1 GiB"));
//! assert_eq!(peak.parts.total(), peak.bytes);
//! assert_eq!(answer.verdict(), Some(Verdict::Fits));
//! ```
//!
//! [`estimate()`] answers in microseconds, by the bytes of tensors alone. What cannot be answered is an
//! [`Issue`](issue::Issue), which says where, what is wrong, and what would be right:
//!
//! ```
//! use headroom::issue::Field;
//! use headroom::{estimate, scenario::{ModelChoice, Scenario}};
//!
//! let scenario = Scenario { model: ModelChoice::Catalogue("gpt-2".into()), ..Scenario::default() };
//! let answer = estimate(&scenario);
//! assert!(answer.memory.is_none());
//! let error = answer.errors().next().expect("a reason");
//! assert_eq!(error.field, Field::Model);
//! assert!(error.to_string().starts_with("no model is called \"gpt-2\" (perhaps openai-community/gpt2"), "{error}");
//! ```
//!
//! Further ways in: [`plan`] answers what fits a card and what the largest batch is, [`share`] writes scenarios as links and
//! reads them, [`export`] writes answers as text, Markdown, CSV and JSON, [`explain`](explain::explain) names the tensors at
//! the peak, [`check`](mod@check) holds predictions against measurements, and [`model::read`] reads any `config.json`.
//!
//! # What may grow
//!
//! Enums of choices, fields, phases, parts and acts, a family's row, and the structs of answers are `#[non_exhaustive]`: a new optimizer or
//! a new part is no breaking change. [`Scenario`](scenario::Scenario) is not, because it could then not be written as above;
//! write it with `..Scenario::default()`, and a new setting changes nothing for you. The blocks of a model
//! ([`model::blocks`]) are matched on exhaustively inside, and may grow with a minor version.

// What Leptos makes of a page natively nests its types deeply.
#![cfg_attr(not(target_arch = "wasm32"), recursion_limit = "256")]

pub mod accuracy;
pub mod check;
// The command and the page are libraries to their own binaries only.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod dtype;
pub mod estimate;
pub mod explain;
pub mod export;
pub mod foreign;
pub mod glossary;
pub mod hardware;
pub mod import;
pub mod issue;
pub mod job;
pub mod memory;
pub mod model;
pub mod oom;
pub mod plan;
pub mod rules;
pub mod scenario;
mod search;
pub mod share;
pub mod step;
mod text;
pub mod trace;
#[cfg(feature = "ui")]
#[doc(hidden)]
pub mod ui;
pub mod units;
mod vllm;
pub mod work;

pub use estimate::{Estimate, estimate};
pub use headroom_allocator as allocator;
