//! What a card that is not NVIDIA's has no use for: kernels that are not built for it, and another memory where there is one.

use crate::hardware::{Class, Vendor};
use crate::issue::{Field, Issue};
use crate::scenario::triton;
use crate::scenario::{
    Allocator, AttentionKernel, CpuOffload, Method, Offloading, Optimizer, Scenario, Stack,
};

/// Whether the card that a scenario names can do what a change asks of it, and gains by it.
pub(super) fn has_use_for(before: &Scenario, after: &Scenario) -> bool {
    let Ok(gpu) = after.gpu() else { return true };
    let news = |of: fn(&Scenario) -> bool| of(after) && !of(before);
    // the processor's memory is the same one
    if gpu.class == Some(Class::Unified) && news(waits_on_cpu) {
        return false;
    }
    match gpu.vendor {
        // kernels that Triton does not compile for it
        Vendor::Nvidia => triton::runs_on(&gpu) || !news(|scenario| scenario.asks_for_triton().is_some()),
        // neither CUDA's allocator nor its managed memory
        Vendor::Amd | Vendor::Intel => {
            !news(|scenario| scenario.allocator == Allocator::Expandable)
                && !news(|scenario| is_paged(scenario.optimizer))
        }
        Vendor::Google | Vendor::Apple => {
            !news(|scenario| scenario.allocator == Allocator::Expandable) && !news(has_own_kernels)
        }
    }
}

/// What a card that runs neither CUDA nor Triton has no kernels for, in a run that asks for some.
pub(super) fn no_kernels(scenario: &Scenario) -> Option<Issue> {
    let gpu = scenario.gpu().ok()?;
    let lacks = matches!(gpu.vendor, Vendor::Google | Vendor::Apple) && has_own_kernels(scenario);
    let message = format!("this needs kernels of CUDA or Triton, which the {} does not run", gpu.name);
    lacks.then(|| {
        Issue::error(Field::Method, message)
            .with_fix("take LoRA over 16-bit weights, with optimizer and loss of PyTorch's own")
    })
}

/// Whether something of a run waits in the CPU's memory.
fn waits_on_cpu(scenario: &Scenario) -> bool {
    scenario.savings.offloading == Offloading::On
        || scenario.cluster.cpu != CpuOffload::Off
        || is_paged(scenario.optimizer)
}

fn is_paged(optimizer: Optimizer) -> bool {
    matches!(
        optimizer,
        Optimizer::PagedAdamW
            | Optimizer::PagedAdamW8bit
            | Optimizer::PagedAdEmaMix
            | Optimizer::PagedAdEmaMix8bit
    )
}

/// Whether a run needs kernels that are written in CUDA or Triton.
fn has_own_kernels(scenario: &Scenario) -> bool {
    scenario.method == Method::Qlora
        || scenario.optimizer.is_of_bitsandbytes()
        || scenario.attention == AttentionKernel::FlashAttn
        || scenario.stack == Stack::Megatron
        || scenario.asks_for_triton().is_some()
}
