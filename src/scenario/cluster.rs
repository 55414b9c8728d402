//! GPUs that train one model together, and how they are used.

use super::choices::{
    ContextComm, CpuOffload, Overlap, ReduceDtype, ShardedLayers, Sharding, TransformerImpl, WrappedBy,
};
use super::stages::{Division, Split};
use crate::hardware::{GPUS_OF_A_MACHINE, machines_of};
use crate::issue::{Field, Issue};

/// GPUs that train one model together, each with a process (a rank) of its own, and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// How many.
    pub gpus: u64,
    /// How many of them one machine (a node) has at most: these are linked to each other, others wait for a network. Read where there are
    /// several.
    pub per_node: u64,
    /// What each of them keeps; read where there are several.
    pub sharding: Sharding,
    /// Whether FSDP2 wraps the model where there is one alone, too.
    pub shards_alone: bool,
    /// Whether DDP's gradients are parts of its buckets once they are reduced (`gradient_as_bucket_view`).
    pub bucket_views: bool,
    /// Whether a layer's gathered parameters go after its forward pass; read for [`Sharding::Fsdp2`].
    pub reshards: bool,
    /// Whether those of the root, which is what is in no layer, go too; read for [`Sharding::Fsdp2`].
    pub reshards_root: bool,
    /// What is sharded by itself beside the layers; read for [`Sharding::Fsdp2`] under torchtune.
    pub sharded: ShardedLayers,
    /// Who wraps the model; read for [`Sharding::Fsdp2`] where a loop runs transformers' modules.
    pub wrapped_by: WrappedBy,
    /// How many groups of GPUs have the model, each in shards; read for [`Sharding::Fsdp2`].
    pub replicas: u64,
    /// The element type in which gradients are reduced; read for [`Sharding::Fsdp2`].
    pub reduce: ReduceDtype,
    /// What lies in the CPU's memory; read where shards are.
    pub cpu: CpuOffload,
    /// The settings of DeepSpeed's ZeRO.
    pub deepspeed: DeepSpeed,
    /// How they divide the model; read for [`Stack::Megatron`](super::Stack::Megatron), and its tensor parallel size for
    /// [`Stack::Transformers`](super::Stack::Transformers) too.
    pub layout: Layout,
}

/// How GPUs divide a model among them, as Megatron-core does. Those that hold the same part of it are its data-parallel copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Among how many each layer is divided (`tensor_model_parallel_size`).
    pub tensor: u64,
    /// Among how many the layers are divided, each a stage (`pipeline_model_parallel_size`).
    pub pipeline: u64,
    /// How many layers of a stage are run at a time where stages are interleaved
    /// (`num_layers_per_virtual_pipeline_stage`); 0 where they are not.
    pub interleaved: u64,
    /// Which stages have another number of layers than the others.
    pub split: Split,
    /// Whose answer is wanted: stages are counted from 1, and 0 is the one that needs most.
    pub stage: u64,
    /// Whose layers it is made of.
    pub layers: TransformerImpl,
    /// Whether GPUs that share a layer also divide what lies between layers' products, by tokens (`sequence_parallel`).
    pub sequence: bool,
    /// Among how many GPUs each sequence is divided (`context_parallel_size`).
    pub context: u64,
    /// How these give each other keys and values.
    pub context_comm: ContextComm,
    /// Among how many of the GPUs that hold the same part its experts are divided (`expert_model_parallel_size`).
    pub experts: u64,
    /// Whether Transformer Engine's products add weights' gradients to the gradient buffer themselves
    /// (`gradient_accumulation_fusion`).
    pub fuses_gradients: bool,
}

impl Layout {
    /// The model is not divided.
    pub const WHOLE: Layout = Layout {
        tensor: 1,
        pipeline: 1,
        interleaved: 0,
        split: Split::EVEN,
        stage: 0,
        layers: TransformerImpl::Local,
        sequence: false,
        context: 1,
        context_comm: ContextComm::AllToAll,
        experts: 1,
        fuses_gradients: true,
    };

    /// Each layer is divided among so many GPUs, and nothing else.
    pub const fn of_tensors(tensor: u64) -> Layout {
        Layout { tensor, ..Layout::WHOLE }
    }

    /// GPUs that share a micro-batch.
    pub const fn gpus(&self) -> u64 {
        self.parts().saturating_mul(self.context)
    }

    /// GPUs that hold the model once.
    pub const fn parts(&self) -> u64 {
        self.tensor.saturating_mul(self.pipeline)
    }

    /// How so many layers are divided among its stages.
    ///
    /// # Errors
    /// What Megatron-core stops at ([`Division::of`]).
    pub fn division(&self, layers: u64) -> Result<Division, Issue> {
        Division::of(layers, self.pipeline, self.interleaved, self.split)
    }

    /// Among how many GPUs the tokens between layers' products are divided: 1 where each has all.
    pub const fn shares_tokens(&self) -> u64 {
        if self.sequence && self.tensor > 1 { self.tensor } else { 1 }
    }

    /// Into how many equal parts a sequence is divided. A causal mask gives each GPU of a sequence two of them, one from either end.
    pub(crate) const fn sequence_parts(&self) -> u64 {
        let parts = if self.context > 1 { self.context.saturating_mul(2) } else { 1 };
        parts.saturating_mul(self.shares_tokens())
    }

    /// Whether its layers are Transformer Engine's.
    pub const fn has_transformer_engine(&self) -> bool {
        match self.layers {
            TransformerImpl::Local => false,
            TransformerImpl::TransformerEngine => true,
        }
    }
}

/// What a configuration of DeepSpeed says of ZeRO (`zero_optimization`), its sizes in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeepSpeed {
    /// How many are reduced at a time (`reduce_bucket_size`).
    pub reduce_bucket: u64,
    /// How many are gathered ahead under ZeRO-3 (`stage3_prefetch_bucket_size`).
    pub prefetch_bucket: u64,
    /// Up to how many a parameter is kept whole under ZeRO-3 (`stage3_param_persistence_threshold`).
    pub persistence: u64,
    /// How many may be gathered at a time under ZeRO-3 (`stage3_max_live_parameters`).
    pub live: u64,
    /// Whether gradients are copied into one buffer as they come (`contiguous_gradients`).
    pub contiguous: bool,
    /// Whether they are reduced while backward goes on (`overlap_comm`).
    pub overlap: Overlap,
}

impl DeepSpeed {
    /// What DeepSpeed does where a configuration says nothing (deepspeed/runtime/zero/config.py `DeepSpeedZeroConfig`), which
    /// is what accelerate's plugin leaves it to do.
    pub const DEFAULT: DeepSpeed = DeepSpeed {
        reduce_bucket: 500_000_000,
        prefetch_bucket: 50_000_000,
        persistence: 100_000,
        live: 1_000_000_000,
        contiguous: true,
        overlap: Overlap::Auto,
    };
}

impl Cluster {
    /// A single GPU.
    pub const ONE: Cluster = Cluster {
        gpus: 1,
        per_node: GPUS_OF_A_MACHINE,
        sharding: Sharding::Ddp,
        shards_alone: false,
        bucket_views: false,
        reshards: true,
        reshards_root: true,
        sharded: ShardedLayers::Layers,
        wrapped_by: WrappedBy::Loop,
        replicas: 1,
        reduce: ReduceDtype::Fp32,
        cpu: CpuOffload::Off,
        deepspeed: DeepSpeed::DEFAULT,
        layout: Layout::WHOLE,
    };

    /// Takes another number of GPUs; replicas that these cannot be divided into become one.
    pub fn set_gpus(&mut self, gpus: u64) {
        self.gpus = gpus;
        if !self.has_whole_replicas() {
            self.replicas = 1;
        }
    }

    /// Whether the replicas are of one size, and each is of two GPUs or more.
    pub fn has_whole_replicas(&self) -> bool {
        self.replicas <= 1 || self.replicas <= self.gpus / 2 && self.gpus.is_multiple_of(self.replicas)
    }

    /// On how many machines they are: on whole ones of [`Cluster::per_node`] each where that is what they are, else on as few as have no more
    /// each and are alike, up to four of them, else on one.
    pub fn machines(&self) -> u64 {
        machines_of(self.gpus, self.per_node)
    }

    /// How many of them are in one machine: all, as many as in the others, or as many as it has where these are no whole machines.
    pub fn of_a_machine(&self) -> u64 {
        match self.machines() {
            1 => self.gpus.min(self.per_node).max(1),
            machines => self.gpus / machines,
        }
    }

    /// Whether there are others.
    pub const fn is_many(&self) -> bool {
        self.gpus > 1
    }

    /// Whether an engine of several GPUs wraps the model: there are others, DeepSpeed lays into the CPU's memory what a single one need
    /// not hold, or FSDP2 is told to wrap it on one, too.
    pub const fn has_engine(&self) -> bool {
        let offloads = !matches!(self.cpu, CpuOffload::Off);
        let is_zero = matches!(self.sharding, Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3);
        self.is_many() || offloads && is_zero || self.is_fsdp2()
    }

    /// Where its engine is at work: for what is not modelled there.
    pub(crate) const fn place_in_words(&self) -> &'static str {
        match (self.is_many(), self.is_fsdp2()) {
            (true, _) => "on several GPUs",
            (false, true) => "under FSDP2 on one GPU",
            (false, false) => "under DeepSpeed",
        }
    }

    /// The input that brings its engine, and what does without.
    pub(crate) const fn without_engine(&self) -> (Field, &'static str) {
        match (self.is_many(), self.is_fsdp2()) {
            (true, _) => (Field::Gpus, "choose one GPU without offload"),
            (false, true) => (Field::ShardsAlone, "switch FSDP2 on one GPU off"),
            (false, false) => (Field::CpuOffload, "keep all on the GPU"),
        }
    }

    /// Whether each keeps a shard of every parameter.
    pub const fn shards(&self) -> bool {
        match self.sharding {
            Sharding::Ddp | Sharding::Zero1 | Sharding::Zero2 | Sharding::Distributed => false,
            Sharding::Fsdp2 => self.is_fsdp2(),
            Sharding::Zero3 => self.has_engine(),
        }
    }

    /// Whether FSDP2 wraps the model: several GPUs share its parameters, or a single one is told to wrap it.
    pub const fn is_fsdp2(&self) -> bool {
        match self.sharding {
            Sharding::Ddp | Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 | Sharding::Distributed => {
                false
            }
            Sharding::Fsdp2 => self.is_many() || self.shards_alone,
        }
    }

    /// Whether DeepSpeed's ZeRO shards what each keeps.
    pub const fn is_zero(&self) -> bool {
        match self.sharding {
            Sharding::Ddp | Sharding::Fsdp2 | Sharding::Distributed => false,
            Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => self.has_engine(),
        }
    }

    /// The most of it that its engine lays into the CPU's memory.
    pub const fn most_on_cpu(&self) -> CpuOffload {
        match self.sharding {
            Sharding::Ddp | Sharding::Distributed => CpuOffload::Off,
            Sharding::Fsdp2 if !self.is_fsdp2() => CpuOffload::Off,
            Sharding::Zero1 | Sharding::Zero2 => CpuOffload::Optimizer,
            Sharding::Fsdp2 | Sharding::Zero3 => CpuOffload::All,
        }
    }

    /// Whether ZeRO reduces gradients while backward goes on: by default its third stage does (`overlap_comm_valid`).
    pub const fn overlaps(&self) -> bool {
        match self.deepspeed.overlap {
            Overlap::Auto => matches!(self.sharding, Sharding::Zero3),
            Overlap::On => true,
            Overlap::Off => false,
        }
    }
}
