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

#[cfg(test)]
mod tests {
    use crate::memory::HostSpikes;
    use crate::scenario::{CustomModel, ModelChoice, Scenario};
    use crate::{estimate, share};

    /// Elements of Llama 3.2 1B.
    const ALL: u64 = 1_235_814_400;

    fn host(link: &str) -> HostSpikes {
        let link = format!("v=1&gpu=80GB&m=meta-llama/Llama-3.2-1B&{link}");
        let answer = estimate(&share::decode(&link).scenarios[0]);
        answer.memory.unwrap_or_else(|| panic!("{link}: {:?}", answer.issues)).host
    }

    /// What the first process takes and what each other one does.
    #[test]
    fn a_checkpoint_copies_what_the_engine_has_it_write() {
        for (link, saving) in [
            // `save_file` copies all tensors of a file
            ("method=full&p=bf16", [2 * ALL, 0]),
            ("method=full&p=amp-bf16", [4 * ALL, 0]),
            ("method=full&p=bf16&gpus=4", [2 * ALL, 0]),
            // `clone_tensors_for_torch_save`, on all ranks
            ("method=full&gpus=4&shard=zero1", [2 * ALL; 2]),
            ("method=full&gpus=4&shard=zero2", [2 * ALL; 2]),
            // every rank its own, or the first `stage3_gather_16bit_weights_on_model_save`
            ("method=full&gpus=4&shard=zero3", [0, 0]),
            ("method=full&gpus=4&shard=zero3&save=full", [2 * ALL, 0]),
            // float32 weights, then AdamW's states one after the other
            ("method=full&p=amp-bf16&gpus=4&shard=fsdp2", [0, 0]),
            ("method=full&p=amp-bf16&gpus=4&shard=fsdp2&save=full", [8 * ALL, 0]),
            ("method=full&p=amp-bf16&gpus=4&shard=fsdp2&save=full&cpu=all", [8 * ALL, 0]),
            // SGD has no state: the weights are more
            ("method=full&p=amp-bf16&gpus=4&shard=fsdp2&save=full&o=sgd", [4 * ALL, 0]),
            // of adapters there is little, in float32 beside weights of 16 bits
            ("method=lora&p=bf16&t=all-linear&r=16", [4 * 11_272_192, 0]),
            // files of 50 GB at most
            ("m=meta-llama/Llama-3.1-70B&method=full&p=bf16", [50_000_000_000, 0]),
        ] {
            let HostSpikes { saving: first, saving_each: other, .. } = host(link);
            // counts of steps are blocks of the allocator here, and numbers there
            let is_near = first.0.abs_diff(saving[0]) < 1 << 20;
            assert!(is_near && other.0 == saving[1], "{link}: {first:?} {other:?}");
        }
    }

    /// docs/spikes.md: 2 bytes for each weight of a layer that is merged, the adapters, 16 bytes for each of the largest layer.
    #[test]
    fn merging_takes_what_is_written_to() {
        let (q, k, gate) = (2048 * 2048, 512 * 2048, 8192 * 2048);
        // 16 × (inputs + outputs) of each in float32
        let all = 16 * (2 * q + 2 * k + 3 * gate);
        let adapters = 16 * 16 * 4 * (2 * 4096 + 2 * 2560 + 3 * 10_240);
        let lora = host("method=lora&p=amp-bf16&t=all-linear&r=16");
        assert_eq!(lora.merging.0, 2 * all + adapters + 16 * gate);
        let few = host("method=lora&p=amp-bf16&t=qv&r=16");
        assert_eq!(few.merging.0, 2 * 16 * (q + k) + 16 * 16 * 4 * (4096 + 2560) + 16 * q);
        assert_eq!(host("method=full&p=bf16").merging.0, 0);
    }

    /// Bytes of activations in the CPU's memory of a Llama with so many layers, 2 × 512 tokens of 256 elements.
    fn offloaded(layers: u64, settings: &str) -> u64 {
        let config = format!(
            r#"{{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": {layers}, "num_attention_heads": 4, "num_key_value_heads": 2,
                "intermediate_size": 768, "vocab_size": 1024, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
                "hidden_act": "silu", "tie_word_embeddings": false}}"#
        );
        let shared = share::decode(&format!("v=1&method=full&p=bf16&b=2&s=512&gpu=a100-sxm-80gb&{settings}"));
        assert!(shared.notices.is_empty(), "{:?}", shared.notices);
        let model = ModelChoice::Custom(CustomModel::read("own", &config).expect("it is read").into());
        let answer = estimate(&Scenario { model, ..shared.scenarios[0].clone() });
        answer.memory.unwrap_or_else(|| panic!("{settings}: {:?}", answer.issues)).offloaded.0
    }

    /// What one more layer has there.
    fn of_layer(settings: &str) -> u64 {
        let [fewer, more] = [3, 5].map(|layers| offloaded(layers, settings));
        (more - fewer) / 2
    }

    #[test]
    fn a_checkpointed_layers_input_waits_in_the_cpus_memory() {
        let hidden = 2 * 512 * 256 * 2;
        assert_eq!(of_layer("st=trl&offload=on&gc=on"), hidden);
        assert_eq!(of_layer("st=torchtune&offload=on&gc=on"), hidden);
        assert_eq!(offloaded(3, "st=trl&offload=off&gc=on"), 0);
    }
}
