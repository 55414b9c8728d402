//! Many GPUs.

use super::{Field, Issue, ReduceDtype, Scenario, Severity, Sharding};

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

/// What NCCL took on each of two GPUs when torch.distributed made its first communicator, from 0.55 to 2.00 GiB
/// (stas00/ml-engineering@744d01e, debug). What it takes grows with channels and
/// communicators (NVIDIA/nccl#864, #1450).
const NCCL: &str = "1.45 GiB";

/// Adds what is good to know of several GPUs.
pub(super) fn issues(scenario: &Scenario, issues: &mut Vec<Issue>) {
    if scenario.cluster.is_many() {
        let message = format!(
            "NCCL's buffers lie outside PyTorch's allocator and are not counted: {NCCL} on each GPU were seen of one \
             communicator"
        );
        issues.push(Issue::new(Severity::Note, Field::Gpus, message));
    }
}
