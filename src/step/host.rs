//! What a process has of the CPU's memory for itself while it saves or merges.
//!
//! Source: safetensors 0.8 torch.py `save_file` (`_flatten_as_ptr` copies every tensor of a file before it is written); transformers 5.17
//! modeling_utils.py `save_pretrained`; PyTorch serialization.py `_save`, which copies one storage at a time; peft 0.21
//! tuners/lora/layer.py `merge`; held against the pages of such processes that no file backs (`tools/spike_steps.py`).

use super::forward::Model;
use super::machine::Machine;
use crate::memory::{Category, HostSpikes};
use crate::units::Bytes;

/// The largest file of weights (`max_shard_size="50GB"`).
const MOST_OF_A_FILE: u64 = 50_000_000_000;

/// Bytes for each weight of a layer whose adapter is merged in the CPU's memory: the product of A and B, the same with its scale, the
/// weight as it is added to and the sum, in 32 bits each.
const MERGED_AT_A_TIME: u64 = 16;

/// Of the first model, which is the one that is trained.
pub(super) fn spikes(machine: &Machine, models: &[Model<'_>]) -> HostSpikes {
    let Some(model) = models.first() else { return HostSpikes::default() };
    let parts = machine.with(|state| state.ledger.parts);
    let adapters = parts.get(Category::Adapters).0;
    let saved = if model.member.adapts { adapters } else { parts.get(Category::Weights).0 };
    let weights = model.mergeable.iter().map(|own| own.shape.weights().saturating_mul(u64::from(own.times)));
    let written = weights.fold(0, u64::saturating_add).saturating_mul(2);
    let largest = model.mergeable.iter().map(|own| own.shape.weights()).max();
    let merging = largest.map_or(0, |largest| {
        written.saturating_add(adapters).saturating_add(largest.saturating_mul(MERGED_AT_A_TIME))
    });
    HostSpikes { saving: Bytes(saved.min(MOST_OF_A_FILE)), merging: Bytes(merging) }
}
