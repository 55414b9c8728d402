//! Cards: how much memory a program can have of them, and which kernels run on them.

mod catalogue;
mod device;
mod gpu;
mod hosts;
mod kinds;
mod memory;
mod rent;

pub(crate) use catalogue::spelled;
pub use catalogue::{UnknownGpu, gpu, gpus, search, several};
pub(crate) use device::{Device, run_alike};
pub use gpu::{Gpu, sold_with};
pub(crate) use hosts::{GPUS_OF_A_MACHINE, machines_of};
pub use hosts::{Host, host, roomiest};
pub use kinds::{Basis, Class, ComputeCapability, NotACapability, Vendor};
pub(crate) use memory::nccl;
pub use rent::{Machine, cheapest, machines, rent};
