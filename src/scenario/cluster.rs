//! Many GPUs.

use super::{ReduceDtype, Sharding};

/// GPUs that train one model together, each with a process (a rank) of its own, and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// How many.
    pub gpus: u64,
    /// What each of them keeps; read where there are several.
    pub sharding: Sharding,
    /// Whether a layer's gathered parameters go after its forward pass; read for [`Sharding::Fsdp2`].
    pub reshards: bool,
    /// The element type in which gradients are reduced; read for [`Sharding::Fsdp2`].
    pub reduce: ReduceDtype,
}

impl Cluster {
    /// A single GPU.
    pub const ONE: Cluster =
        Cluster { gpus: 1, sharding: Sharding::Ddp, reshards: true, reduce: ReduceDtype::Fp32 };

    /// Whether there are others.
    pub const fn is_many(&self) -> bool {
        self.gpus > 1
    }
}
