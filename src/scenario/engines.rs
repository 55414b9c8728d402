//! Which engine several GPUs share a training by where nobody says it.

use super::software::Software;
use super::{LoraTargets, Method, Precision, Reference, Scenario, Sharding, Stack, Task, VisionTower};

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

    /// Whether several GPUs usually keep shards: of a model that is trained whole, of one that no GPU holds beside its adapters, of one whose
    /// tower has adapters and nothing to look at, and under torchtune's recipes of any. Where all of them share each layer there is
    /// nothing left to shard.
    pub(super) fn is_usually_sharded(&self) -> bool {
        self.cluster.is_many()
            && self.divided().parts() != self.cluster.gpus
            && (self.method == Method::Full
                || matches!(self.stack, Stack::Torchtune | Stack::Torchtitan)
                || self.adapts_an_idle_tower()
                || self.weights_exceed_the_card())
    }

    /// Whether layers of a tower that nothing runs have adapters: DDP, which waits for their gradients in a loop of one's own, stops.
    fn adapts_an_idle_tower(&self) -> bool {
        let all = matches!(self.lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead);
        let is_idle = self.pictures.count == 0 && self.pictures.tower != VisionTower::Frozen;
        let sees = || self.architecture().is_ok_and(|architecture| !architecture.towers.is_empty());
        self.software().runs_loop() && self.method.has_adapters() && all && is_idle && sees()
    }

    /// Whether the model's parameters alone, as its method loads them, take more than its card has.
    fn weights_exceed_the_card(&self) -> bool {
        let (Ok(architecture), Ok(gpu)) = (self.architecture(), self.gpu()) else { return false };
        let bits = match (self.method, self.quantization.format) {
            (Method::Full | Method::Lora, _) => 16,
            (Method::Qlora, format) => format.bits(),
        };
        architecture.parameters().saturating_mul(bits) / 8 > gpu.memory.0
    }
}
