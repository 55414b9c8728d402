//! What a card that is not NVIDIA's has no use for: kernels that are not built for it, and another memory where there is one.

use crate::hardware::{Class, Vendor};
use crate::scenario::kernels::{self, OF_CUDA};
use crate::scenario::{Allocator, CpuOffload, Offloading, Scenario};

/// Whether the card that a scenario names can do what a change asks of it, and gains by it.
pub(super) fn has_use_for(before: &Scenario, after: &Scenario) -> bool {
    let Ok(gpu) = after.gpu() else { return true };
    let news = |of: fn(&Scenario) -> bool| of(after) && !of(before);
    // the processor's memory is the same one
    if gpu.class == Some(Class::Unified) && news(waits_on_cpu) {
        return false;
    }
    let is_for_triton = news(|scenario| scenario.asks_for_triton().is_some());
    let is_for_cudas_allocator = news(|scenario| scenario.allocator == Allocator::Expandable);
    let is_in_vain = match gpu.vendor {
        // kernels that Triton does not compile for it
        Vendor::Nvidia => is_for_triton && !kernels::runs_on(&gpu),
        // neither CUDA's allocator nor its managed memory
        Vendor::Amd | Vendor::Intel => {
            is_for_cudas_allocator
                || news(|scenario| scenario.optimizer.is_paged())
                || is_for_triton && gpu.is_gaudi()
        }
        Vendor::Google | Vendor::Apple => {
            is_for_cudas_allocator || news(waits_on_cpu) || OF_CUDA.into_iter().any(news)
        }
    };
    !is_in_vain
}

/// Whether something of a run waits in the CPU's memory.
fn waits_on_cpu(scenario: &Scenario) -> bool {
    scenario.savings.offloading == Offloading::On
        || scenario.cluster.cpu != CpuOffload::Off
        || scenario.optimizer.is_paged()
}
