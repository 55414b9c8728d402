//! What a process does because there are others like it on other GPUs: the engines that replicate or shard a model.
//!
//! All ranks of an engine that is modelled here keep and do the same, but for a shard's padding, which the first rank has
//! none of: one rank is run on behalf of all, and it is the first. Collectives move what is in buffers and allocate nothing
//! that PyTorch's allocator sees; NCCL's own buffers lie outside of it.
//!
//! An engine is asked where something happens to it: a parameter is put on the machine ([`Parallel::kept`]), its gradient
//! is there ([`State::note_arrival`]), a forward pass, a unit of layers or a backward pass begins or ends, the optimizer is
//! about to step.

mod checkpoint;
mod contexts;
mod ddp;
mod fsdp2;
mod gather;
mod hooks;
mod megatron;
mod moments;
mod offload;
mod supported;
mod trainers;
mod zero;
mod zero3;

use std::ops::Range;

use super::heap::{Heap, NOTHING, StorageId};
use super::params::{Kept, ParamId, Params};
use super::what::{Rank, What};
use crate::dtype::Dtype;
use crate::job::{HeadKind, Member};
use crate::model::Architecture;
use crate::scenario::software::{HeadCode, Trainer};
use crate::scenario::{Checkpointing, Cluster, LossKernel, Method, Precision, Sharding};
use crate::units::Bytes;
use crate::work::Group;
use ddp::Ddp;
use fsdp2::Fsdp2;
pub(super) use fsdp2::{Gathered, Wrapper};
pub(super) use hooks::{Container, Module};
use megatron::Megatron;
pub(super) use megatron::{ParamKind, PartParam, TunedKernel};
pub(super) use moments::NO_GRADIENT;
pub(super) use offload::pinned;
pub(super) use supported::supported;
use zero::Zero;
use zero3::{Habits, Zero3};

/// Whether an engine made that for itself: buckets, shards' gradients, what it gathers.
pub fn is_engines(what: &What) -> bool {
    *what == ddp::BUCKET
        || fsdp2::OWN.contains(&what)
        || zero::OWN.contains(&what)
        || zero3::OWN.contains(&what)
        || megatron::OWN.contains(&what)
}

/// How a model that is wrapped comes to the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// It was there, or its shards are made where they stay.
    InPlace,
    /// It was loaded into the CPU's memory, and is moved unit by unit.
    FromCpu,
    /// Shards are cut out of one parameter of a checkpoint after the other (torchtune).
    FromCheckpoint,
    /// The same of the whole model, from the first process (axolotl under `cpu_ram_efficient_loading`).
    FromFirst,
}

/// A model on the machine, as an engine wraps it.
pub(super) struct Wrapped {
    /// Its parameters.
    pub params: Range<usize>,
    /// Those of each layer.
    pub layers: Vec<Range<ParamId>>,
    /// Those of each layer of what looks at pictures, where such layers are units, and whether they run: beside text alone they do not.
    pub tower: Vec<Range<ParamId>>,
    pub sees: bool,
    /// By layer: what of its adapters is a unit by itself, in the order in which it runs.
    pub adapters: Vec<Vec<ParamId>>,
    /// Those of them whose own modules are never called, so that no hook is around them.
    pub unhooked: Vec<ParamId>,
    /// The first and the last layer of each body that stands for several runs.
    pub repeated: Vec<(usize, usize)>,
    /// Of a model of Megatron-core: the parameters of each part that runs at a time, in the order of its modules, each as often
    /// as it is there.
    pub parts: Vec<Vec<PartParam>>,
    /// How it comes to the GPU.
    pub loading: Loading,
    /// Units that accelerate makes of what is in no layer, and when they are gathered.
    pub ends: Vec<(Gathered, Vec<ParamId>)>,
}

/// How a process works together with those on other GPUs.
#[derive(Default)]
pub(super) enum Parallel {
    /// There are none.
    #[default]
    Alone,
    /// Each has a part of every layer and does the same: transformers' own tensor parallelism, among so many.
    Tensor(u64),
    /// Each has the whole model: gradients are averaged.
    Ddp(Box<Ddp>),
    /// Each has a shard of every parameter: layers are gathered when they run.
    Fsdp2(Box<Fsdp2>),
    /// Each has the whole model, and masters and optimizer state of its partition: DeepSpeed's ZeRO-1 and ZeRO-2.
    Zero(Box<Zero>),
    /// Each has a partition of every parameter: modules are gathered when they run, DeepSpeed's ZeRO-3.
    Zero3(Box<Zero3>),
    /// Each has a part of the model, with buffers and masters of its own: Megatron-core, on one GPU too.
    Megatron(Box<Megatron>),
}

/// Whether `find_unused_parameters` is on, as transformers' Trainer has it for a model of peft's and for one without checkpoints
/// (trainer.py `_build_accelerator_args`), and trl for every model that sees, whose tower a text alone leaves without gradients (trl 1.16
/// trainer/sft_trainer.py). A plain loop leaves it off, which is DDP's own default, and so does LLaMA-Factory for adapters
/// (hparams/parser.py).
fn finds_unused(member: &Member, architecture: &Architecture) -> bool {
    let is_told_not_to = member.adapts && member.loss == LossKernel::LogSoftmax;
    // `SentenceTransformer` is no `PreTrainedModel`
    let is_no_model = matches!(member.head, HeadKind::Embedding(_));
    let sees = !architecture.towers.is_empty() && member.checkpointing != Checkpointing::Reentrant;
    (member.software().head == HeadCode::Trl || member.runs_in_trainer)
        && !is_told_not_to
        && (member.adapts || member.checkpointing == Checkpointing::Off || sees || is_no_model)
}

/// Whether the optimizer is given two groups of parameters, as transformers' Trainer does with norms and biases, which are not decayed
/// (trainer.py `create_optimizer`). A plain loop gives it one.
fn groups_parameters(member: &Member) -> bool {
    member.is_prepared_by_trainer() && !member.adapts
}

/// Whether ZeRO-3 divides weights as they are read: where transformers knows of the engine by then, from the Trainer's arguments, and they
/// are not quantised (transformers 5.17 modeling_utils.py `needs_zero3_init`). A plain loop makes the model whole first here.
fn divides_read(member: &Member) -> bool {
    member.is_prepared_by_trainer() && member.method != Method::Qlora
}

/// Whether adapters stay float32 beside weights that ZeRO-3 divided. trl has peft leave them in the weights' type then
/// (`autocast_adapter_dtype=False`); its fine-tuning up to 1.6 did not, and neither LLaMA-Factory nor `get_peft_model` does by itself.
fn widens_adapters(member: &Member, learns_labels: bool) -> bool {
    let early = learns_labels && member.loss == LossKernel::Full;
    divides_read(member) && (early || member.loss == LossKernel::LogSoftmax || member.runs_in_trainer)
}

/// Whether accelerate wraps the model under FSDP2, as transformers' Trainer has it done.
pub(super) fn is_by_accelerate(cluster: Cluster, member: &Member) -> bool {
    Wrapper::of(cluster, member.software().trainer) == Wrapper::Accelerate
}

/// Whether a model that FSDP2 shards is loaded into the CPU's memory: quantised ones, and those that transformers' Trainer is given,
/// which leaves moving them to FSDP (transformers 5.17 trainer.py `place_model_on_device`).
pub(super) fn is_loaded_on_cpu(cluster: Cluster, member: &Member) -> bool {
    member.method == Method::Qlora || is_by_accelerate(cluster, member)
}

impl Parallel {
    /// How the ranks of a cluster train a member of that architecture, towards the labels of its batches or something else, each on a card
    /// with so much memory.
    pub fn of(
        cluster: Cluster,
        trained: Option<(&Member, &Architecture)>,
        learns_labels: bool,
        card: Bytes,
    ) -> Parallel {
        let member = trained.map(|(member, _)| member);
        let trainer = member.map_or(Trainer::Loop, |member| member.software().trainer);
        // what shards and partitions are computed in, which their engine is told (`param_dtype`; `bf16` or `fp16`)
        let compute = match member.map(|member| member.precision) {
            Some(precision) if precision.is_float16() => Dtype::F16,
            // torchtune computes in what the weights are
            Some(Precision::Fp32) if trainer == Trainer::Torchtune => Dtype::F32,
            _ => Dtype::Bf16,
        };
        match cluster.sharding {
            _ if trainer == Trainer::Megatron => Parallel::Megatron(Box::new(Megatron::of(cluster))),
            _ if !cluster.has_engine() => Parallel::Alone,
            // refused by `supported`
            Sharding::Distributed => Parallel::Alone,
            _ if cluster.is_many() && cluster.layout.tensor == cluster.gpus => Parallel::Tensor(cluster.gpus),
            Sharding::Ddp => {
                let finds_unused = trained.is_some_and(|(member, own)| finds_unused(member, own));
                Parallel::Ddp(Box::new(Ddp::of(cluster, finds_unused)))
            }
            Sharding::Fsdp2 => Parallel::Fsdp2(Box::new(Fsdp2::of(cluster, compute, trainer))),
            Sharding::Zero1 | Sharding::Zero2 => {
                let decays_apart = member.is_some_and(groups_parameters);
                Parallel::Zero(Box::new(Zero::of(cluster, compute, decays_apart, card)))
            }
            Sharding::Zero3 => {
                let habits = member.map_or(Habits::default(), |member| Habits {
                    decays_apart: groups_parameters(member),
                    divides_read: divides_read(member),
                    widens_adapters: widens_adapters(member, learns_labels),
                });
                Parallel::Zero3(Box::new(Zero3::of(cluster, compute, habits)))
            }
        }
    }

    /// FSDP2, where that is the engine.
    fn fsdp2(&self) -> Option<&Fsdp2> {
        match self {
            Parallel::Fsdp2(fsdp) => Some(fsdp),
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Zero(_)
            | Parallel::Zero3(_)
            | Parallel::Megatron(_) => None,
        }
    }

    /// Whether a copy of what the model returned is handed on.
    pub fn copies_output(&self) -> bool {
        matches!(self, Parallel::Ddp(ddp) if ddp.finds_unused())
    }

    /// Whether the model is handed a dictionary of its own of what it is called with, as DDP does (`_to_kwargs`).
    pub fn copies_inputs(&self) -> bool {
        matches!(self, Parallel::Ddp(_))
    }

    /// ZeRO-3, where that is the engine.
    fn zero3(&self) -> Option<&Zero3> {
        match self {
            Parallel::Zero3(zero) => Some(zero),
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Fsdp2(_)
            | Parallel::Zero(_)
            | Parallel::Megatron(_) => None,
        }
    }

    /// Among how many GPUs each layer is divided.
    pub fn parts(&self) -> u64 {
        match self {
            Parallel::Alone | Parallel::Ddp(_) | Parallel::Zero(_) | Parallel::Zero3(_) => 1,
            Parallel::Tensor(parts) => *parts,
            Parallel::Fsdp2(fsdp) => fsdp.parts(),
            Parallel::Megatron(engine) => engine.parts(),
        }
    }

    /// Among how many GPUs each sequence is divided by PyTorch's context parallelism.
    pub fn contexts(&self) -> u64 {
        self.fsdp2().map_or(1, Fsdp2::contexts)
    }

    /// Whether parameters are DTensors where operations read them.
    pub fn has_dtensors(&self) -> bool {
        match self {
            Parallel::Alone
            | Parallel::Ddp(_)
            | Parallel::Zero(_)
            | Parallel::Zero3(_)
            | Parallel::Megatron(_) => false,
            Parallel::Tensor(_) => true,
            Parallel::Fsdp2(fsdp) => fsdp.parts() > 1,
        }
    }

    /// Whether some parameters are DTensors to the optimizer, and others are not.
    pub fn mixes_dtensors(&self) -> bool {
        matches!(self, Parallel::Tensor(_))
    }

    /// Elements of all ranks' shards that are as long as this rank's.
    pub fn all_of(&self, kept: Kept) -> u64 {
        kept.numel.saturating_mul(self.fsdp2().map_or(1, Fsdp2::world))
    }

    /// Counts what one parameter that is gathered by itself has all ranks send around.
    pub fn send_shards(&self, heap: &mut Heap, bytes: u64) {
        if let Some(fsdp) = self.fsdp2() {
            heap.send_around(Group::Data, bytes, fsdp.world());
        }
    }

    /// The engine that has layers for units, which are gathered as a whole.
    pub fn units(&mut self) -> Option<&mut Fsdp2> {
        match self {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Zero(_)
            | Parallel::Zero3(_)
            | Parallel::Megatron(_) => None,
            Parallel::Fsdp2(fsdp) => Some(fsdp),
        }
    }

    /// Whether layers are units that are gathered as a whole.
    pub fn has_units(&self) -> bool {
        self.fsdp2().is_some()
    }

    /// Whether every module gathers its own parameters, and linear layers are DeepSpeed's.
    pub fn gathers_modules(&self) -> bool {
        self.zero3().is_some()
    }

    /// Whether ZeRO-3 lost its way: a module needed other parameters than come next in the pass that was recorded.
    pub fn is_lost(&self) -> bool {
        self.zero3().is_some_and(Zero3::is_lost)
    }

    /// Whether modules have hooks where the model's code is.
    pub fn hooks_modules(&self) -> bool {
        self.zero3().is_some_and(|zero| !zero.in_leaf)
    }

    /// The code of a module that is gathered whole begins or ends.
    pub fn pass_leaf(&mut self, begins: bool) {
        if let Parallel::Zero3(zero) = self {
            zero.in_leaf = begins;
        }
    }

    /// Whether parameters are loaded whole and partitioned then.
    pub fn partitions_loaded(&self) -> bool {
        self.zero3().is_some()
    }

    /// Whether parameters are partitioned as soon as they are there (`deepspeed.zero.Init`); whether their partitions stay on the GPU then.
    pub fn divides_read(&self) -> Option<bool> {
        self.zero3().and_then(Zero3::divides_read)
    }

    /// Whether accelerate made the units.
    pub fn has_units_by_accelerate(&self) -> bool {
        self.fsdp2().is_some_and(|fsdp| fsdp.wrapper() == Wrapper::Accelerate)
    }

    /// Whether a model is loaded into the CPU's memory, and moved and sharded unit by unit: a quantised one each rank would have to
    /// hold whole on the GPU (transformers' quantizers load it there unless `device_map="cpu"` says otherwise).
    pub fn shards_from_cpu(&self, member: &Member) -> bool {
        self.has_units() && (member.method == Method::Qlora || self.has_units_by_accelerate())
    }

    /// Whether what a rank keeps of the model is in the CPU's memory.
    pub fn keeps_on_host(&self) -> bool {
        self.fsdp2().is_some_and(Fsdp2::offloads)
    }

    /// Whether the optimizer steps a partition in the CPU's memory.
    pub fn steps_on_host(&self) -> bool {
        match self {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Fsdp2(_)
            | Parallel::Megatron(_) => false,
            Parallel::Zero(zero) => zero.offloads(),
            Parallel::Zero3(zero) => zero.offloads(),
        }
    }

    /// Bytes of the CPU's memory that a rank takes.
    pub fn on_host(&self, params: &Params) -> u64 {
        match self {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Ddp(_) | Parallel::Megatron(_) => 0,
            Parallel::Fsdp2(fsdp) => fsdp.on_host(params),
            Parallel::Zero(zero) => zero.on_host(),
            Parallel::Zero3(zero) => zero.on_host(params),
        }
    }

    /// The storage of a parameter that a module gathered.
    pub fn gathered(&self, id: ParamId) -> StorageId {
        self.zero3().map_or(NOTHING, |zero| zero.gathered(id))
    }

    /// Whether the engine has an element type of its own to compute in: no autocast.
    pub fn has_own_type(&self) -> bool {
        match self {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Ddp(_) => false,
            Parallel::Fsdp2(_) | Parallel::Zero(_) | Parallel::Zero3(_) | Parallel::Megatron(_) => true,
        }
    }

    /// Whether autocast is around a model whose layers are units: accelerate puts none around what it shards (accelerate 1.15
    /// accelerator.py `_prepare_fsdp2`).
    pub fn has_units_under_autocast(&self) -> bool {
        self.fsdp2().is_some_and(|fsdp| fsdp.wrapper() == Wrapper::Axolotl)
    }

    /// Whether adapters are units by themselves, whose stored element type their layer reads.
    pub fn has_units_of_adapters(&self) -> bool {
        self.fsdp2().is_some_and(|fsdp| fsdp.wrapper() == Wrapper::Axolotl)
    }

    /// How often the optimizer steps: all parameters at once, or one tensor of partitions after the other.
    pub fn steps(&self) -> usize {
        self.zero3().map_or(1, Zero3::groups)
    }

    /// Elements of the one tensor that the optimizer steps in place of the parameters, where there is such.
    pub fn partition(&self) -> Option<u64> {
        match self {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Fsdp2(_)
            | Parallel::Megatron(_) => None,
            Parallel::Zero(zero) => Some(zero.partition()),
            Parallel::Zero3(zero) => Some(zero.group()),
        }
    }

    /// What a rank keeps of a parameter of that shape, with LoRA's rank in it, and the element type in which operations read it. `beside`:
    /// whether it stands beside the model's own, as adapters do.
    pub fn kept(&self, (rows, columns): (u64, u64), rank: Rank, dtype: Dtype, beside: bool) -> (Kept, Dtype) {
        match self {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Ddp(_) | Parallel::Megatron(_) => {
                (Kept { numel: rows.saturating_mul(columns), rows, dtype }, dtype)
            }
            Parallel::Fsdp2(fsdp) => (fsdp.shard((rows, columns), rank, dtype), fsdp.compute()),
            Parallel::Zero(zero) => {
                let dtype = if dtype == Dtype::U8 { dtype } else { zero.compute() };
                (Kept { numel: rows.saturating_mul(columns), rows, dtype }, dtype)
            }
            Parallel::Zero3(zero) => {
                let dtype = if beside { zero.dtype_beside(dtype) } else { zero.compute() };
                (zero.partition_of((rows, columns), dtype), dtype)
            }
        }
    }

    /// The numbers that a 4-bit weight of so many elements is packed in, and what a rank keeps of them. An engine that shards it takes it for a column of what
    /// its numbers are stored as (`bnb_4bit_quant_storage`): as long as they are of the type that it computes in, it cannot
    /// tell them from others.
    pub fn kept_packed(&self, numel: u64) -> (u64, Kept) {
        match self {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Zero(_)
            | Parallel::Megatron(_) => {
                let bytes = numel.div_ceil(2);
                (bytes, Kept { numel: bytes, rows: 1, dtype: Dtype::U8 })
            }
            Parallel::Fsdp2(fsdp) => fsdp.packed(numel),
            Parallel::Zero3(zero) => {
                let column = (numel.div_ceil(4), 1);
                (column.0, zero.partition_of(column, zero.compute()))
            }
        }
    }

    /// Whether a parameter is there for an operation to read.
    pub fn is_there(&self, id: ParamId) -> bool {
        match self {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Zero(_)
            | Parallel::Megatron(_) => true,
            Parallel::Fsdp2(fsdp) => fsdp.is_gathered(id),
            Parallel::Zero3(zero) => zero.is_gathered(id),
        }
    }

    /// What one repetition of a layer leaves to the next, beside what autograd does.
    pub fn carried(&self) -> [StorageId; 3] {
        self.fsdp2().map_or([NOTHING; 3], Fsdp2::carried)
    }

    /// Among how many GPUs the tokens between products are divided: 1 where each has all.
    pub fn shares_tokens(&self) -> u64 {
        match self {
            Parallel::Megatron(engine) => engine.layout.shares_tokens(),
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Fsdp2(_)
            | Parallel::Zero(_)
            | Parallel::Zero3(_) => 1,
        }
    }

    /// Whether a stage's outputs go once they are sent to the next.
    pub fn deallocates_outputs(&self) -> bool {
        matches!(self, Parallel::Megatron(engine) if engine.layout.has_transformer_engine())
    }

    /// Whether what it gathers ahead is by the order of earlier passes.
    pub fn gathers_ahead(&self) -> bool {
        matches!(self, Parallel::Zero3(_))
    }

    /// Whether a later iteration finds what the first one found: DDP's buckets are others from the second on, ZeRO-3 gathers
    /// ahead, and Megatron's first forward pass makes buffers that stay.
    pub fn repeats_itself(&self) -> bool {
        match self {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Fsdp2(_) | Parallel::Zero(_) => true,
            Parallel::Ddp(_) | Parallel::Zero3(_) | Parallel::Megatron(_) => false,
        }
    }
}
