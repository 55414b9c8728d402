//! Under which other choices an input makes a difference, and what it adds to the kind of a run.

use crate::scenario::{AttentionKernel, Checkpointing, Method, Scenario, Sharding, Stack};

/// The input makes a difference to every scenario.
pub(super) fn always(_: &Scenario) -> bool {
    true
}

pub(super) fn with_adapters(scenario: &Scenario) -> bool {
    scenario.method.has_adapters()
}

pub(super) fn on_many(scenario: &Scenario) -> bool {
    scenario.cluster.is_many()
}

pub(super) fn with_fsdp2(scenario: &Scenario) -> bool {
    on_many(scenario)
        && match scenario.cluster.sharding {
            Sharding::Ddp | Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => false,
            Sharding::Fsdp2 => true,
        }
}

pub(super) fn with_zero(scenario: &Scenario) -> bool {
    scenario.cluster.is_zero()
}

pub(super) fn with_zero3(scenario: &Scenario) -> bool {
    scenario.cluster.is_zero() && scenario.cluster.shards()
}

pub(super) fn with_4_bit(scenario: &Scenario) -> bool {
    scenario.method == Method::Qlora
}

/// Whether torchao, which always quantises the scales of the 4-bit weights, has no say in it.
pub(super) fn with_bitsandbytes(scenario: &Scenario) -> bool {
    with_4_bit(scenario) && scenario.stack != Stack::Torchtune
}

/// torchtune and trl prepare nothing, Unsloth in a way of its own.
pub(super) fn with_preparation(scenario: &Scenario) -> bool {
    with_4_bit(scenario)
        && match scenario.stack {
            Stack::Transformers | Stack::Liger | Stack::Litgpt => true,
            Stack::Torchtune | Stack::Unsloth | Stack::Trl => false,
        }
}

/// The adapters of torchtune and litgpt have the model's element type, those of trl beside 4-bit weights bfloat16.
pub(super) fn with_pefts_adapters(scenario: &Scenario) -> bool {
    with_adapters(scenario)
        && match scenario.stack {
            Stack::Transformers | Stack::Liger | Stack::Unsloth => true,
            Stack::Trl => scenario.method != Method::Qlora,
            Stack::Torchtune | Stack::Litgpt => false,
        }
}

/// The input tells no kinds of runs apart: it adds nothing to their key.
pub(super) fn any(_: &Scenario) -> &'static str {
    ""
}

pub(super) fn checkpointing_band(scenario: &Scenario) -> &'static str {
    match scenario.checkpointing {
        Checkpointing::Off => "kept",
        Checkpointing::NonReentrant | Checkpointing::Reentrant => "recomputed",
        Checkpointing::Offloaded => "recomputed-offloaded",
    }
}

pub(super) fn attention_band(scenario: &Scenario) -> &'static str {
    match scenario.attention {
        AttentionKernel::Eager => "eager",
        AttentionKernel::FlashAttn => "flash-attn",
        AttentionKernel::Sdpa
        | AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Math
        | AttentionKernel::Cudnn => "sdpa",
    }
}
