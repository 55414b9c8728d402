//! Which engine several GPUs share a training by where nobody says it.

use super::software::Software;
use super::{
    LoraTargets, LossKernel, Method, Precision, Reference, Scenario, Sharding, Stack, Task, VisionTower,
    WrappedBy,
};
use crate::model::Architecture;
use crate::model::blocks::{Param, ParamRole};

/// From how many percent of a card's memory on weights crowd it: activations, adapters and the context need the rest. A choice of ours, for the
/// engine that is shown first; whether it fits is the run's to say.
const CROWDED: u64 = 75;

impl Scenario {
    /// The engine that several GPUs keep shards by under that library, where they usually do: the one that leaves each the least, or the last
    /// where that one does not follow the run.
    pub(super) fn usual_shards(&self, stack: Stack) -> Option<Sharding> {
        let engines = Software::of(stack).divides_by();
        let usual = if self.is_left_to_the_last() { engines.last() } else { engines.first() };
        usual.copied().filter(|_| self.is_usually_sharded())
    }

    /// Whether the last of trl's engines alone follows it, if any does: trainers without a reference beside 4-bit weights, adapters in pure 16
    /// bits, a reference that scores the data beforehand, pictures, and bitsandbytes' optimizers, which step no DTensors.
    fn is_left_to_the_last(&self) -> bool {
        let in_4_bits = self.method == Method::Qlora;
        let is_pure = matches!(self.precision, Precision::Bf16 | Precision::Fp16);
        in_4_bits && matches!(self.task, Task::Orpo | Task::Cpo | Task::Simpo)
            || is_pure && self.method.has_adapters()
            || self.task.has_reference() && self.answers.reference == Reference::Precomputed
            || self.pictures.count > 0
            || self.optimizer.is_of_bitsandbytes()
    }

    /// Computes in 16-bit weights themselves where FSDP2 wraps them in a loop of one's own, which has no autocast over them that is followed.
    pub(crate) fn compute_in_its_weights(&mut self) {
        let is_in_a_loop = self.cluster.is_fsdp2() && self.wrapper() == WrappedBy::Loop;
        if is_in_a_loop && self.precision == Precision::AmpBf16Weights {
            self.precision = Precision::Bf16;
        }
    }

    /// Whether newer versions of trl stop at FSDP2's shards in the CPU's memory, which versions up to 1.6 have there: where the head, which
    /// their loss reads, is neither trained nor tied.
    pub(crate) fn offloads_by_an_older_trl(&self) -> bool {
        self.stack == Stack::Trl
            && self.task == Task::Sft
            && self.method.has_adapters()
            && self.cluster.is_many()
            && self.cluster.is_fsdp2()
            && self.savings.loss == LossKernel::Standard
            && self.architecture().is_ok_and(|architecture| !architecture.head.tied)
    }

    /// Whether several GPUs usually keep shards: of a model that is trained whole, of one that crowds each GPU beside its adapters, of one whose
    /// tower has adapters and nothing to look at, and under torchtune's recipes of any. Where all of them share each layer there is
    /// nothing left to shard.
    pub(super) fn is_usually_sharded(&self) -> bool {
        self.cluster.is_many()
            // sentence-transformers' models and encoders are small, and followed under DDP
            && self.task != Task::Embed
            && !self.trains_an_encoder()
            && self.divided().parts() != self.cluster.gpus
            && (self.method == Method::Full
                || matches!(self.stack, Stack::Torchtune | Stack::Torchtitan)
                || self.adapts_an_idle_tower()
                || self.weights_crowd_the_card())
    }

    /// Whether layers of a tower that nothing runs have adapters: DDP, which waits for their gradients in a loop of one's own, stops.
    fn adapts_an_idle_tower(&self) -> bool {
        let all = matches!(self.lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead);
        let is_idle = self.pictures.count == 0 && self.pictures.tower != VisionTower::Frozen;
        let sees = || self.architecture().is_ok_and(|architecture| !architecture.towers.is_empty());
        self.software().runs_loop() && self.method.has_adapters() && all && is_idle && sees()
    }

    /// Whether the weights alone, as they are loaded beside adapters, crowd the card: a copy on each leaves too little for the rest.
    fn weights_crowd_the_card(&self) -> bool {
        let (Ok(architecture), Ok(gpu)) = (self.architecture(), self.gpu()) else { return false };
        self.loaded_bits(&architecture) / 8 > gpu.memory.0 / 100 * CROWDED
    }

    /// Bits of the model's weights where its method trains adapters: each linear layer of a decoder in the format of the weights, the rest as
    /// it is computed in, or in float32 where it is loaded or prepared so.
    fn loaded_bits(&self, architecture: &Architecture) -> u64 {
        let rest = match (self.method, self.precision) {
            (Method::Qlora, _) if self.quantization.makes_rest_float32() => 32,
            (Method::Lora, Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16) => 32,
            (Method::Full | Method::Lora | Method::Qlora, _) => 16,
        };
        let packed = if self.method == Method::Qlora { self.quantization.format.bits() } else { rest };
        let mut packs: u64 = 0;
        for (block, count) in architecture.block_counts() {
            block.visit(&mut |param: Param| {
                if param.role == ParamRole::LinearWeight {
                    packs = packs.saturating_add(param.numel().saturating_mul(count));
                }
            });
        }
        let others = architecture.parameters().saturating_sub(packs);
        packs.saturating_mul(packed).saturating_add(others.saturating_mul(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{GpuChoice, ModelChoice};

    /// Tasks of which some engines are followed begin with one of these.
    #[test]
    fn tasks_begin_with_an_engine_that_is_followed() {
        for (task, model) in [
            (Task::Classify, "Qwen/Qwen3-0.6B"),
            (Task::Embed, "Qwen/Qwen3-0.6B"),
            (Task::Classify, "google-bert/bert-base-uncased"),
            (Task::Embed, "google-bert/bert-base-uncased"),
        ] {
            for method in [Method::Full, Method::Lora] {
                let mut scenario =
                    Scenario { model: ModelChoice::Catalogue(model.into()), ..Scenario::default() };
                scenario.change(|scenario| scenario.task = task);
                scenario.change(|scenario| scenario.method = method);
                scenario.change(|scenario| scenario.cluster.gpus = 8);
                let answer = crate::estimate(&scenario);
                assert!(answer.memory.is_some(), "{task:?} {method:?} {model}: {:?}", answer.issues);
            }
        }
    }

    /// What a user who says no engine is given, on the cards that have few gigabytes to spare and those that have many.
    #[test]
    fn copies_that_crowd_the_card_are_sharded() {
        let on = |model: &str, method, stack, gpus, gpu: &str| {
            let asked = Scenario {
                model: ModelChoice::Catalogue(model.into()),
                gpu: GpuChoice::Catalogue(gpu.into()),
                method,
                stack,
                cluster: crate::scenario::Cluster { gpus, ..crate::scenario::Cluster::ONE },
                ..Scenario::default()
            };
            let names = ["model", "gpu", "method", "stack", "gpus"];
            asked.filled(|key| names.contains(&key.name)).cluster.sharding
        };
        for (model, method, stack, gpus, gpu, sharding) in [
            // float32 weights, as trl loads them
            ("meta-llama/Llama-3.1-8B", Method::Lora, Stack::Trl, 2, "rtx-4090", Sharding::Fsdp2),
            ("Qwen/Qwen2.5-32B", Method::Lora, Stack::Trl, 8, "h100-sxm-80gb", Sharding::Fsdp2),
            ("meta-llama/Llama-3.1-8B", Method::Lora, Stack::Trl, 2, "a100-sxm-80gb", Sharding::Ddp),
            ("meta-llama/Llama-3.1-8B", Method::Lora, Stack::Transformers, 2, "rtx-4090", Sharding::Ddp),
            // head and embedding in float32 beside 4-bit layers
            ("meta-llama/Llama-3.1-70B", Method::Qlora, Stack::Trl, 4, "a100-pcie-40gb", Sharding::Fsdp2),
            ("meta-llama/Llama-3.1-70B", Method::Qlora, Stack::Trl, 4, "l40s", Sharding::Fsdp2),
            ("meta-llama/Llama-3.1-70B", Method::Qlora, Stack::Trl, 8, "h100-sxm-80gb", Sharding::Ddp),
            // experts are not packed
            ("mistralai/Mixtral-8x7B-v0.1", Method::Qlora, Stack::Trl, 8, "h100-sxm-80gb", Sharding::Fsdp2),
        ] {
            assert_eq!(
                on(model, method, stack, gpus, gpu),
                sharding,
                "{model} {method:?} {stack} {gpus} {gpu}"
            );
        }
    }
}
