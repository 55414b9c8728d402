//! The symbolic execution of a training step.
//!
//! - `machine`: storages, event stream; `ledger`: live bytes; `tensor`: handles with Python's lifetimes; `repeat`: one run on
//!   behalf of many;
//! - `autograd` and `backward`: the graph, the engine, the derivative of every operation;
//! - `pointwise`, `views`, `linear`, `norm`, `attention`, `indexing`, `experts`, `scan`, `loss`, `fused_loss`: the operations;
//!   `kernels`, `splits`: scratch space of CUDA kernels;
//! - `params` and `forward`: the model on the machine and its forward pass;
//! - `optimizer` and `iteration`: the step and the loop around it; `replay`: all of it, event by event, `plan`: how much,
//!   `allocate`: what the allocator makes of it.

mod activations;
mod allocate;
mod attention;
mod autograd;
mod backward;
mod experts;
mod forward;
mod four_bit;
mod fused_loss;
mod indexing;
mod iteration;
mod kernels;
mod ledger;
mod linear;
mod log_probs;
mod loss;
mod machine;
mod norm;
mod optimizer;
mod params;
mod plan;
mod pointwise;
mod repeat;
mod replay;
mod scan;
mod splits;
mod support;
mod tensor;
mod torchao;
mod views;

pub use allocate::{Allocation, Failure, Instant, Replay};
pub use iteration::run;
pub use replay::{Happening, Moment, Recording, TensorGroup, Traced};
