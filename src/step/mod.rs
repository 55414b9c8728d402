//! The symbolic execution of a training step.
//!
//! - `heap`: storages, live bytes, event stream; `kernels`: the scratch space of CUDA kernels;
//! - `machine`: the state of a run; `tensor`: handles with Python's lifetimes; `repeat`: loops, one run on behalf of many;
//! - `autograd`: the graph and the engine; `ops`: the operations, each with its derivative;
//! - `params` and `forward`: the model on the machine and its forward pass;
//! - `gradient`: the door through which a gradient leaves; `optimizer`: its step; `ready`: a job that can be run;
//!   `iteration`: its rounds, act by act;
//! - `inductor`: a compiled graph's order and memory;
//! - `recording`: all of it, event by event; `schedule`: how much; `allocate`: what the allocator makes of it; `alive`: the tensors of a
//!   moment; `timeline`: how it goes up and down; `trace`: what comes and goes; `snapshot`: where everything lies; `requests`: which
//!   tensor asked for so much.

mod alive;
mod allocate;
mod autograd;
mod fake_quant;
mod float8;
mod forward;
mod gradient;
mod heap;
mod host;
mod inductor;
mod iteration;
mod kernels;
mod line;
mod machine;
mod ops;
mod optimizer;
mod parallel;
mod params;
mod pipeline;
mod ready;
mod recording;
mod repeat;
mod requests;
mod run;
mod schedule;
mod snapshot;
mod support;
mod tensor;
mod timeline;
mod trace;
mod what;

pub use alive::TensorGroup;
pub use allocate::{Allocation, Failure, Milestone, Replay};
pub use heap::record::Pass;
pub(crate) use parallel::is_engines;
pub use recording::Recording;
pub use requests::Request;
pub(crate) use run::{is_supported, run_stage, run_within};
pub use run::{largest_rank, run, run_job};
pub use snapshot::{Snapshot, SnapshotBlock, SnapshotEvent};
pub use timeline::{Happening, Moment};
pub use trace::Traced;
pub use what::{Dims, Rank, Role, Rows, Source, What};
