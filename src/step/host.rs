//! What a process has of the CPU's memory for itself while it saves or merges.
//!
//! Source: safetensors 0.8 torch.py `save_file` (`_flatten_as_ptr` copies every tensor of a file before it is written); transformers 5.17
//! modeling_utils.py `save_pretrained` and trainer.py `save_model`; accelerate 1.15 `get_state_dict`; DeepSpeed 0.19.8
//! checkpoint/utils.py `clone_tensors_for_torch_save`; PyTorch serialization.py `_save`, which copies one storage at a time; peft 0.21
//! tuners/lora/layer.py `merge`; held against the pages of such processes that no file backs (`tools/spike_steps.py`).

use super::forward::Model;
use super::machine::Machine;
use super::params::Parameter;
use super::ready::Ready;
use crate::job::Act;
use crate::memory::{Category, Parts};
use crate::scenario::{CpuOffload, Sharding};
use crate::units::Bytes;

/// The largest file of weights (`max_shard_size="50GB"`).
const MOST_OF_A_FILE: u64 = 50_000_000_000;

/// Bytes for each weight of a layer whose adapter is merged in the CPU's memory: the product of A and B, the same with its scale, the
/// weight as it is added to and the sum, in 32 bits each.
const MERGED_AT_A_TIME: u64 = 16;

/// What merging takes of the first model, which is the one that is trained.
pub(super) fn merging(machine: &Machine, models: &[Model<'_>]) -> Bytes {
    let Some(model) = models.first() else { return Bytes::ZERO };
    let adapters = machine.with(|state| state.ledger.parts.get(Category::Adapters).0);
    let weights = model.mergeable.iter().map(|own| own.shape.weights().saturating_mul(u64::from(own.times)));
    let written = weights.fold(0, u64::saturating_add).saturating_mul(2);
    let largest = model.mergeable.iter().map(|own| own.shape.weights()).max();
    Bytes(largest.map_or(0, |largest| {
        written.saturating_add(adapters).saturating_add(largest.saturating_mul(MERGED_AT_A_TIME))
    }))
}

/// What a checkpoint takes of the first process, and of every other one: the copies of a file's weights, all of which are there before it
/// is written, or the weights that the engine has gathered or copied there, which are written as they are. Of the optimizer's state a
/// tensor at a time is there, unless it is gathered.
pub(super) fn saving(ready: &Ready<'_>, params: &[Parameter], resting: &Parts) -> [Bytes; 2] {
    let cluster = ready.cluster;
    let sum = |is_meant: fn(&Parameter) -> bool| {
        let each = params.iter().filter(|param| is_meant(param)).map(|Parameter { kept, times, .. }| {
            kept.numel.saturating_mul(kept.dtype.bytes()).saturating_mul(u64::from(*times))
        });
        each.fold(0, u64::saturating_add)
    };
    let (all, trained) = (sum(|_| true), sum(|param| param.trainable));
    let whole = |shards: u64| {
        let world = cluster.gpus / cluster.replicas.max(1) / cluster.layout.tensor.max(1);
        shards.saturating_mul(world)
    };
    let gathers = ready.round.iter().any(|act| matches!(act, Act::Save { gathers: true, .. }));
    // where they are in the CPU's memory they are AdamW's
    let states = match resting.get(Category::Optimizer) {
        Bytes::ZERO if cluster.cpu != CpuOffload::Off => trained.saturating_mul(2),
        states => states.0,
    };
    let [first, other] = match cluster.sharding {
        Sharding::Zero1 | Sharding::Zero2 if cluster.has_engine() => [all, all],
        Sharding::Zero3 if gathers => [whole(trained), 0],
        Sharding::Fsdp2 if gathers => [whole(all.max(states)), 0],
        _ if cluster.shards() => [0, 0],
        _ => [trained.min(MOST_OF_A_FILE), 0],
    };
    [Bytes(first), Bytes(other)]
}
