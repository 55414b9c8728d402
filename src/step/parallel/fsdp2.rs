//! PyTorch's FSDP2, `fully_shard` on every layer and on the model: each rank keeps a shard of every parameter; a unit's are
//! gathered before it runs, in forward and in backward, and its gradients are reduced and scattered when it has run.
//!
//! Source: torch/distributed/fsdp/_fully_shard of PyTorch 2.11: `_fsdp_state.py` (hooks), `_fsdp_param_group.py` (units),
//! `_fsdp_collectives.py` (buffers), `_fsdp_param.py` (shards). The order of events was compared with the allocator's trace.

mod adapters;
mod ends;
mod gathering;
mod loading;
mod reducing;
mod wrapper;

use crate::dtype::Dtype;
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, CpuOffload, ReduceDtype};
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::parallel::Wrapped;
use crate::step::params::{Kept, ParamId, Params};
use crate::step::what::{Rank, Source, What};
use adapters::Adapters;
pub(in crate::step) use ends::Gathered;
use gathering::{GATHER_INPUT, GATHER_OUTPUT, GATHERED};
use reducing::SHARDED;
pub(in crate::step) use wrapper::Wrapper;

const COLLECTIVES: Source = Source::At("PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py");
const PARAM: Source = Source::At("PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_param.py");
const CHUNKS: Source = Source::At("PyTorch, aten/src/ATen/native/cuda/TensorShape.cu");

/// What it keeps that a single GPU does not.
pub(super) static OWN: [&What; 4] = [&GATHER_INPUT, &GATHER_OUTPUT, &GATHERED, &SHARDED];

/// What FSDP2 keeps beside the shards.
pub(in crate::step) struct Fsdp2 {
    /// The element type that parameters are gathered in (`param_dtype` of its MixedPrecisionPolicy).
    compute: Dtype,
    /// The ranks that have one model in shards.
    world: u64,
    /// How many times they are there: with others, a mesh of two dimensions.
    replicas: u64,
    /// Among how many GPUs each layer is divided before it is sharded.
    parts: u64,
    /// How many GPUs share each sequence.
    contexts: u64,
    /// `reshard_after_forward` of the layers and of the root.
    reshards: bool,
    reshards_root: bool,
    /// `reduce_dtype`.
    reduce: Dtype,
    /// Who wrapped the model.
    wrapper: Wrapper,
    /// How often the output head was called for a chunk of the logits, since its last backward.
    head_calls: u64,
    /// When each of the units after the layers' is gathered; the root is not among them.
    ends: Vec<Gathered>,
    /// Whether 4-bit weights are torchao's, whose tensors are sharded one by one.
    packs_bytes: bool,
    /// Whether shards, their gradients and the optimizer are on the CPU (`CPUOffloadPolicy`).
    offloads: bool,
    /// The layers, in the order of the model's; those of its tower, which run before them; then those at its ends; the root, which has all
    /// other parameters, last. Behind it a model that only scores, which is one unit (trl's `prepare_fsdp`).
    units: Vec<Unit>,
    /// The root's place among them.
    root: usize,
    /// How many layers of the model's tower are among them.
    tower: usize,
    /// The layer that runs last.
    last_layer: Option<usize>,
    /// The units that adapters are by themselves, behind the root.
    adapters: Adapters,
    /// Whether there is such a model.
    has_reference: bool,
    /// Forward passes of the model that is trained since its last backward pass.
    passes: u64,
    /// By parameter: its unit.
    owners: Vec<u32>,
    /// What was gathered for the unit that ran last in forward, until the next has been gathered (`AllGatherState`).
    kept: StorageId,
    /// What was gathered ahead in backward, for which unit, and where that is a body's for the one before all of its runs.
    ahead: StorageId,
    ahead_of: [Option<usize>; 2],
    /// The input of the last reduction, until the next one begins (`ReduceScatterState`).
    reduced: StorageId,
}

/// Parameters that are gathered together (`FSDPParamGroup`).
struct Unit {
    params: Vec<ParamId>,
    /// Elements of each on this rank.
    shards: Vec<u64>,
    /// How many parameters each stands for when they are gathered: 1 where a layer is, whose turn is taken as often.
    times: Vec<u32>,
    /// The unit that ran before it in forward.
    before: Option<usize>,
    /// Of the first unit of a body that runs on behalf of others, the one that ran before all of them: what the last of the runs gathers
    /// ahead is that one's.
    before_all: Option<usize>,
    /// The whole parameters, while they are there.
    gathered: Vec<StorageId>,
    /// The gradient of all its shards, and the parameters that it is of: those that nothing runs have none.
    grad: StorageId,
    arrived: Vec<ParamId>,
    /// What was added up across replicas, until backward is over (`AllReduceState`).
    all_reduced: StorageId,
}

impl Unit {
    /// Of these parameters, which have been gathered by nobody.
    fn of(params: &Params, ids: Vec<ParamId>) -> Unit {
        Unit {
            shards: ids.iter().map(|id| params.get(*id).kept.numel).collect(),
            times: vec![1; ids.len()],
            params: ids,
            before: None,
            before_all: None,
            gathered: Vec::new(),
            grad: NOTHING,
            arrived: Vec::new(),
            all_reduced: NOTHING,
        }
    }
}

impl Fsdp2 {
    /// Before there is a model, which that trainer wraps.
    pub fn of(cluster: Cluster, compute: Dtype, trainer: Trainer) -> Fsdp2 {
        let wrapper = Wrapper::of(cluster, trainer);
        Fsdp2 {
            compute,
            world: (cluster.gpus / cluster.replicas.max(1) / cluster.layout.tensor.max(1)).max(1),
            replicas: cluster.replicas.max(1),
            parts: cluster.layout.tensor.max(1),
            contexts: cluster.layout.context.max(1),
            reshards: cluster.reshards,
            reshards_root: cluster.reshards
                && match wrapper {
                    Wrapper::Loop => cluster.reshards_root,
                    // the root is left to PyTorch, which keeps it
                    Wrapper::Accelerate | Wrapper::Torchtitan => false,
                    // the same is said of all units
                    Wrapper::Torchtune | Wrapper::Axolotl => true,
                },
            reduce: match (wrapper, cluster.reduce) {
                // torchtitan knows no other (`mixed_precision_reduce`)
                (Wrapper::Loop, ReduceDtype::Fp32) | (Wrapper::Torchtitan, _) => Dtype::F32,
                // accelerate's policy has one type for all, and torchtune has no policy
                (Wrapper::Loop, ReduceDtype::Bf16)
                | (Wrapper::Accelerate | Wrapper::Torchtune | Wrapper::Axolotl, _) => compute,
            },
            wrapper,
            head_calls: 0,
            packs_bytes: wrapper == Wrapper::Torchtune,
            ends: Vec::new(),
            offloads: match cluster.cpu {
                CpuOffload::Off | CpuOffload::Optimizer => false,
                CpuOffload::All => true,
            },
            units: Vec::new(),
            has_reference: false,
            passes: 0,
            owners: Vec::new(),
            kept: NOTHING,
            ahead: NOTHING,
            ahead_of: [None; 2],
            root: 0,
            tower: 0,
            last_layer: None,
            adapters: Adapters::default(),
            reduced: NOTHING,
        }
    }

    /// Whose code wrapped the model.
    pub fn wrapper(&self) -> Wrapper {
        self.wrapper
    }

    /// The ranks that have one model in shards.
    pub fn world(&self) -> u64 {
        self.world
    }

    /// The GPUs that share each sequence, which are among those that have the shards.
    pub fn contexts(&self) -> u64 {
        self.contexts
    }

    /// The GPUs that share a layer.
    pub fn parts(&self) -> u64 {
        self.parts
    }

    fn is_replicated(&self) -> bool {
        self.replicas > 1
    }

    /// The numbers that a 4-bit weight of so many elements is packed in, and what this rank keeps of them: of torchao's its bytes, of
    /// bitsandbytes' a column of what its numbers are stored as.
    pub fn packed(&self, numel: u64) -> (u64, Kept) {
        if self.packs_bytes {
            let bytes = numel.div_ceil(2);
            return (bytes, Kept { numel: bytes.div_ceil(self.world), rows: 1, dtype: Dtype::U8 });
        }
        let column = (numel.div_ceil(4), 1);
        (column.0, self.shard(column, Rank::None, self.compute))
    }

    /// The element type that operations read parameters in.
    pub fn compute(&self) -> Dtype {
        self.compute
    }

    /// The first rank's shard: of the first dimension as many rows as the largest chunk has (`_chunk_with_empty`).
    pub fn shard(&self, (rows, columns): (u64, u64), rank: Rank, dtype: Dtype) -> Kept {
        // a vector comes as one row, and its only dimension is the columns; an adapter's one row is its rank
        let is_vector = rows == 1 && rank == Rank::None;
        let (rows, columns) =
            if is_vector { (1, columns.div_ceil(self.world)) } else { (rows.div_ceil(self.world), columns) };
        Kept { numel: rows.saturating_mul(columns), rows, dtype }
    }

    /// `fully_shard` on every layer, then on the model; whether the layers that stand for others are given what they leave.
    pub fn wrap(&mut self, params: &Params, model: &Wrapped) -> bool {
        let layers = model.layers.len();
        let inner = layers + model.tower.len();
        let root = inner + model.ends.len();
        (self.root, self.last_layer) = (root, layers.checked_sub(1));
        self.tower = model.tower.len();
        let sees = model.sees && !model.tower.is_empty();
        let first = if sees { layers } else { 0 };
        self.owners = vec![root as u32; params.list.len()];
        let unit = |ids, before| Unit { before, ..Unit::of(params, ids) };
        for (index, layer) in model.layers.iter().chain(&model.tower).enumerate() {
            for id in layer.clone() {
                self.owners[id as usize] = index as u32;
            }
            let before = match index {
                _ if index == first || !sees && index >= layers => None,
                0 => inner.checked_sub(1),
                _ => Some(index - 1),
            };
            self.units.push(unit(layer.clone().collect(), before));
        }
        for (index, (gathered, own)) in model.ends.iter().enumerate() {
            for id in own {
                self.owners[*id as usize] = (inner + index) as u32;
            }
            if let (Gathered::ForTokens, Some(first)) = (gathered, self.units.get_mut(first)) {
                first.before = Some(inner + index);
            }
            self.ends.push(*gathered);
            let before = if *gathered == Gathered::ForChunks { self.last_layer } else { None };
            self.units.push(unit(own.clone(), before));
        }
        let own = |id: &ParamId| self.owners[*id as usize] as usize == root;
        let own = model.params.clone().map(|id| id as ParamId).filter(own).collect();
        let head = model.ends.iter().position(|(gathered, _)| *gathered == Gathered::ForChunks);
        self.units.push(unit(own, head.map(|place| inner + place).or(self.last_layer)));
        self.wrap_adapters(params, model);
        // of a body that runs again and again the last layer comes before the first
        let mut alike = true;
        for (first, last) in &model.repeated {
            let begins = self.begins_with(*first);
            let before = self.units[begins].before;
            alike &= before.is_some_and(|before| self.is_gathered_alike(params, [before, *last]));
            self.units[begins].before_all = before;
            self.units[begins].before = Some(*last);
        }
        alike
    }

    /// Whether the layers of the model's tower are units.
    pub fn has_tower(&self) -> bool {
        self.tower > 0
    }

    /// Whether shards are on the CPU.
    pub fn offloads(&self) -> bool {
        self.offloads
    }

    /// The unit of what is in no layer.
    pub fn root(&self) -> usize {
        self.root
    }

    pub fn is_gathered(&self, id: ParamId) -> bool {
        let owner = self.owners.get(id as usize).and_then(|owner| self.units.get(*owner as usize));
        owner.is_some_and(|unit| !unit.gathered.is_empty())
    }

    pub fn carried(&self) -> [StorageId; 3] {
        [self.kept, self.ahead, self.reduced]
    }

    /// `pre_forward`: gathers a unit. What was gathered for the one before goes when this one's parameters are copied out.
    pub fn enter(&mut self, heap: &mut Heap, params: &Params, unit: usize) {
        if !self.units[unit].gathered.is_empty() || self.units[unit].params.is_empty() {
            return;
        }
        let output = match self.ahead {
            // a layer that is recomputed comes to an adapter that was gathered for its backward
            ahead if ahead != NOTHING && self.ahead_of.contains(&Some(unit)) => {
                std::mem::replace(&mut self.ahead, NOTHING)
            }
            _ => self.gather(heap, params, unit),
        };
        self.copy_out(heap, params, unit);
        heap.release(std::mem::replace(&mut self.kept, output));
    }

    /// `post_forward`: the whole parameters go. With those of a model's root the last gathered output does, too.
    pub fn leave(&mut self, heap: &mut Heap, unit: usize) {
        self.head_calls += u64::from(Some(unit) == self.of_chunks());
        let goes =
            if unit == self.root() { self.reshards_root } else { self.reshards && !self.is_tail(unit) };
        if goes {
            self.reshard(heap, unit);
        }
        if unit == self.root() || Some(unit) == self.reference() {
            heap.release(std::mem::replace(&mut self.kept, NOTHING));
        }
    }

    /// `pre_backward`: gathers a unit unless that was done ahead, then the one that comes next.
    pub fn enter_backward(&mut self, heap: &mut Heap, params: &Params, unit: usize) {
        if self.units[unit].params.is_empty() {
            return;
        }
        self.unshard(heap, params, unit);
        // what a reentrant checkpoint was gathered in
        heap.release(std::mem::replace(&mut self.kept, NOTHING));
        if Some(unit) == self.of_chunks() {
            self.head_calls = self.head_calls.saturating_sub(1);
            // what comes next is itself
            if self.head_calls > 0 {
                return;
            }
        }
        let Some(next) = self.comes_next(unit) else { return };
        // the tail is there still, and so is a head whose gradient came first; a layer that runs on behalf of others is its own next
        let is_there = |next: usize| Some(next) == self.of_chunks() && !self.units[next].gathered.is_empty();
        if self.reshards && !self.is_tail(next) && !is_there(next) && !self.is_whole_again(next) {
            self.ahead = self.gather(heap, params, next);
            self.ahead_of = [Some(next), self.units[unit].before_all];
        }
    }

    /// Gathers a unit in backward, unless it is there or was gathered ahead.
    fn unshard(&mut self, heap: &mut Heap, params: &Params, unit: usize) {
        if !self.units[unit].gathered.is_empty() {
            return;
        }
        let output = match std::mem::replace(&mut self.ahead, NOTHING) {
            NOTHING => self.gather(heap, params, unit),
            ahead => ahead,
        };
        self.copy_out(heap, params, unit);
        heap.release(output);
    }

    /// The gradient of the last chunk of the logits is there, which comes first: the hooks of a head by itself are on it before the
    /// root's.
    pub fn enter_backward_of_chunks(&mut self, heap: &mut Heap, params: &Params) {
        if let Some(head) = self.of_chunks() {
            self.unshard(heap, params, head);
        }
        self.enter_backward(heap, params, self.root());
    }

    /// What the first unit of a pass takes for the one before it where the model ran before without gradients: the last one of that
    /// pass, which nobody calls for. The root is there then, where it has anything (`_backward_prefetch`).
    fn of_earlier_pass(&self) -> Option<usize> {
        (self.passes > 1 && self.units[self.root()].params.is_empty()).then_some(self.last_layer)?
    }

    /// `reshard`: the storages of the whole parameters are resized to nothing, whoever saved them.
    fn reshard(&mut self, heap: &mut Heap, unit: usize) {
        self.units[unit].gathered.drain(..).for_each(|storage| heap.release(storage));
    }

    /// The shards' gradients are views of their unit's.
    pub fn enter_step(&mut self, heap: &mut Heap, params: &mut Params) {
        for unit in &mut self.units {
            let grad = std::mem::replace(&mut unit.grad, NOTHING);
            if grad == NOTHING {
                continue;
            }
            for id in &std::mem::take(&mut unit.arrived) {
                heap.retain(grad);
                params.list[*id as usize].grad = grad;
            }
            heap.release(grad);
        }
    }
}

/// Bytes that a thread block copies.
const BLOCK_BYTES: u64 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_one_row_is_no_vector() {
        let fsdp = Fsdp2::of(Cluster { gpus: 8, ..Cluster::ONE }, Dtype::Bf16, Trainer::Loop);
        let shard = |shape, rank| {
            let Kept { numel, rows, .. } = fsdp.shard(shape, rank, Dtype::F32);
            (rows, numel)
        };
        assert_eq!(shard((1, 4096), Rank::None), (1, 512));
        // the first rank has the only row
        assert_eq!(shard((1, 4096), Rank::Rows(1)), (1, 4096));
        assert_eq!(shard((1, 4096), Rank::OneRow), (1, 4096));
        assert_eq!(shard((4096, 1), Rank::Columns(1)), (512, 512));
        assert_eq!(shard((16, 4096), Rank::Rows(16)), (2, 8192));
        assert_eq!(shard((4096, 100), Rank::None), (512, 51_200));
    }
}
