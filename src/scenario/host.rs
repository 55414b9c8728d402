//! What a run's processes have of the CPU's memory, each and all of a machine, beside what known machines with the card have.

use serde::{Deserialize, Serialize};

use super::{Merges, Method, Precision, Scenario, Stack, Task, WrappedBy};
use crate::hardware::{Host, roomiest};
use crate::memory::Memory;
use crate::units::Bytes;

/// What processes have of the CPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct HostNeed {
    /// What a process reads before it has shards of it, and lets go of then.
    pub loading: Bytes,
    /// Whether the first process alone may read it (`cpu_ram_efficient_loading`).
    pub loads_once: bool,
    /// What is kept there for a process as long as it trains: optimizer state, gradients and weights that the engine lays there or that are
    /// paged and find no room on the card, and the activations that wait.
    pub offloaded: Bytes,
    /// The most of the first process after loading.
    pub first: Bytes,
    /// The most of every other.
    pub each: Bytes,
    /// How many processes a machine has, one for each GPU.
    pub processes: u64,
}

impl HostNeed {
    /// Paged states that are smaller are not told.
    pub(crate) const LEAST_PAGED: Bytes = Bytes::mib(1024);

    /// What all processes of a machine read at once, if the first alone does not.
    pub fn machine_loading(&self) -> Bytes {
        Bytes(self.loading.0.saturating_mul(self.processes))
    }

    /// What all processes of the first machine have after loading.
    pub fn machine(&self) -> Bytes {
        self.first + Bytes(self.each.0.saturating_mul(self.processes.saturating_sub(1)))
    }

    /// The same run with at most so many processes in a machine.
    pub fn within(self, gpus: u64) -> HostNeed {
        HostNeed { processes: self.processes.min(gpus), ..self }
    }

    /// The least with which a machine runs it.
    pub fn least(&self) -> Bytes {
        let loading = if self.loads_once { self.loading } else { self.machine_loading() };
        loading.max(self.machine())
    }
}

impl Scenario {
    /// What the process of each GPU keeps in the CPU's memory while it trains: what the engine lays there, activations that wait, and of
    /// paged states what the card has no room for.
    pub(crate) fn kept_on_host(&self, memory: &Memory) -> Bytes {
        self.laid_on_host(memory) + memory.offloaded
    }

    /// The same without activations.
    fn laid_on_host(&self, memory: &Memory) -> Bytes {
        let card = self.gpu().map(|gpu| gpu.memory).unwrap_or_default();
        let room = card.saturating_sub(memory.needed());
        let paged = memory.paged.saturating_sub(room);
        // adapters' states are a few MB
        memory.on_host + if paged < HostNeed::LEAST_PAGED { Bytes::ZERO } else { paged }
    }

    /// What its processes have of the CPU's memory; of a model with so many parameters.
    pub(crate) fn host(&self, memory: &Memory, parameters: u64) -> HostNeed {
        let host = memory.host;
        let evaluation = self.evaluated_on_host(memory);
        let laid = self.laid_on_host(memory);
        let with = |saving: Bytes| {
            let saving = if self.saves() { saving } else { Bytes::ZERO };
            laid + memory.offloaded.max(evaluation).max(saving)
        };
        // one process merges, and has no optimizer then
        let merging = if self.merges() == Merges::Cpu { host.merging } else { Bytes::ZERO };
        HostNeed {
            loading: self.loaded_by_each(parameters).unwrap_or_default(),
            loads_once: self.may_load_once(),
            offloaded: self.kept_on_host(memory),
            first: with(host.saving).max(merging),
            each: with(host.saving_each),
            processes: self.of_a_machine(),
        }
    }

    /// Bytes of the CPU's memory for an evaluation's logits: of texts that are classified it is a number for each class, which is nothing.
    pub(crate) fn evaluated_on_host(&self, memory: &Memory) -> Bytes {
        if self.task == Task::Classify { Bytes::ZERO } else { memory.host.evaluation }
    }

    /// What each process reads into the CPU's memory where FSDP2 makes shards of a model that `from_pretrained` left there whole; none
    /// elsewhere. axolotl's is predicted with the first process alone reading it (`cpu_ram_efficient_loading`).
    pub(crate) fn loaded_by_each(&self, parameters: u64) -> Option<Bytes> {
        let by_hand = matches!(self.stack, Stack::Transformers | Stack::Liger | Stack::Trl)
            && self.wrapper() != WrappedBy::Axolotl;
        let width = match self.precision {
            Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => 4,
            Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => 2,
        };
        let reads = by_hand && self.cluster.is_fsdp2() && self.method != Method::Qlora;
        reads.then(|| Bytes(parameters.saturating_mul(width)))
    }

    /// Whether accelerate wraps the model, which can have the first process alone read it.
    pub(crate) fn may_load_once(&self) -> bool {
        self.cluster.is_fsdp2() && (self.stack == Stack::Trl || self.wrapper() == WrappedBy::Accelerate)
    }

    /// The known machine with most RAM that has as many of the card as one of its machines ([`roomiest`]).
    pub fn known_host(&self) -> Option<&'static Host> {
        roomiest(&self.card().ok()?.slug, self.cluster.of_a_machine())
    }

    /// How many of its GPUs are in one machine: no more than the roomiest has.
    fn of_a_machine(&self) -> u64 {
        let each = self.cluster.of_a_machine();
        self.known_host().map_or(each, |host| each.min(host.gpus)).max(1)
    }

    /// The machine with most RAM where even that has too little for what is offloaded, so much for each GPU.
    pub fn short_of_ram(&self, offloaded: Bytes) -> Option<&'static Host> {
        if offloaded == Bytes::ZERO {
            return None;
        }
        let together = Bytes(offloaded.0.saturating_mul(self.of_a_machine()));
        self.known_host().filter(|host| together > host.ram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{estimate, share};

    fn host(link: &str) -> (Scenario, HostNeed) {
        let scenario = share::decode(&format!("v=1&gpu=h100-sxm-80gb&{link}")).scenarios.remove(0);
        let memory = estimate(&scenario).memory.unwrap_or_else(|| panic!("{link}"));
        let need = scenario.host(&memory, memory.parameters.total);
        (scenario, need)
    }

    const ALL: u64 = 70_553_706_496;

    #[test]
    fn a_machine_has_what_its_processes_have() {
        let (scenario, need) = host("m=meta-llama/Llama-3.1-70B&method=full&p=amp-bf16&gpus=64&shard=fsdp2");
        let each = Bytes(ALL * 4);
        assert_eq!((need.loading, need.loads_once, need.processes), (each, false, 8));
        // 2,102 GiB, which aws p5.48xlarge has not; what is offloaded is nothing
        assert_eq!(need.least(), Bytes(ALL * 32));
        assert!(scenario.known_host().is_some_and(|host| need.least() > host.ram));
        assert_eq!((need.machine(), scenario.short_of_ram(need.offloaded)), (Bytes::ZERO, None));
        let (_, alone) = host("m=meta-llama/Llama-3.1-70B&method=full&p=amp-bf16&gpus=64&shard=fsdp2&st=trl");
        assert_eq!((alone.loads_once, alone.least()), (true, each));
    }

    #[test]
    fn two_machines_of_four_have_half_of_it_each() {
        let link = "m=meta-llama/Llama-3.1-70B&method=full&p=amp-bf16&gpus=8&shard=fsdp2";
        let ((_, one), (scenario, halves)) = (host(link), host(&format!("{link}&node=4")));
        assert_eq!((one.processes, halves.processes), (8, 4));
        assert_eq!(one.machine_loading(), halves.machine_loading() + halves.machine_loading());
        let most = |scenario: &Scenario| scenario.known_host().map(|host| host.gpus);
        assert_eq!(
            most(&scenario),
            Some(8),
            "no machine of four has a known RAM: {:?}",
            scenario.known_host()
        );
    }

    #[test]
    fn what_is_offloaded_is_beside_what_is_read() {
        let link = "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&gpus=2&shard=fsdp2&cpu=all";
        let (scenario, need) = host(link);
        assert!(
            need.offloaded > Bytes::ZERO && need.machine() >= need.offloaded + need.offloaded,
            "{need:?}"
        );
        assert_eq!(need.processes, 2);
        assert_eq!(scenario.short_of_ram(need.offloaded), None);
        // a machine with one H100 has 256 GiB
        let one = share::decode("v=1&gpu=h100-sxm-80gb").scenarios.remove(0);
        assert_eq!(one.short_of_ram(Bytes::gib(200.0)), None);
        assert_eq!(one.short_of_ram(Bytes::gib(300.0)).map(|host| host.ram), Some(Bytes::gib(256.0)));
        // of a card whose machines are not known nothing is said
        let unknown = share::decode("v=1&gpu=rtx-4090").scenarios.remove(0);
        assert_eq!(unknown.short_of_ram(Bytes::gib(9_000.0)), None);
    }
}
