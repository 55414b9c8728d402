//! What is good to know of several GPUs.

use super::{Field, Issue, Scenario, Severity};
use crate::units::Bytes;

/// What NCCL took on each of two GPUs when torch.distributed made its first communicator, from 0.55 to 2.00 GiB
/// (stas00/ml-engineering@744d01e, debug). What it takes grows with channels and
/// communicators (NVIDIA/nccl#864, #1450).
pub(super) const NCCL: Bytes = Bytes::mib(1_485);

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
