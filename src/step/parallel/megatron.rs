//! Megatron-core's buffers and optimizers: gradients of a model are summed up in one buffer, and float32 masters are stepped,
//! those of the whole model or, by the distributed optimizer, of this GPU's share.
//!
//! Source: megatron/core/distributed/param_and_grad_buffer.py and distributed_data_parallel.py,
//! megatron/core/optimizer/optimizer.py and distrib_optimizer.py of Megatron-core 0.16.1. The order of events was compared with
//! the allocator's trace.

use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::memory::Category;
use crate::scenario::{Cluster, Layout, ReduceDtype, Sharding};
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::parallel::Wrapped;
use crate::step::params::{ParamId, Params};
use crate::step::what::{Source, What};
use crate::work::Group;

const BUFFERS: Source = Source::At("Megatron-core, megatron/core/distributed/param_and_grad_buffer.py");
const OPTIMIZER: Source = Source::At("Megatron-core, megatron/core/optimizer");

static PARAMETERS: What = What::own(
    "parameter buffer",
    "all parameters of the model, or of a part of it that runs at a time, one behind the other",
    BUFFERS,
);
static GRADIENTS: What = What::own(
    "gradient buffer",
    "the sums of all parameters' gradients over the micro-batches, one behind the other: there from load to end",
    BUFFERS,
);
static CLONE: What = What::own("clone", "the parameter that a master is made of", OPTIMIZER);
static MASTER: What =
    What::own("fp32 master weights", "what this GPU steps of a parameter, in float32", OPTIMIZER);
static MASTER_GRADIENT: What =
    What::own("fp32 gradient", "the gradient of a master: a copy where the buffer is bfloat16", OPTIMIZER);
static FLAG: What = What::own("flag", "a number of the mixed-precision optimizer", OPTIMIZER);
static CLIPPED: What = What::own("clipped gradient", "a gradient times the factor that clips it", OPTIMIZER);
static MOMENT: What = What::own("moment", "Adam's mean of the gradients, or of their squares", OPTIMIZER);
static STAND_IN: What = What::own(
    "stand-in for weight gradients",
    "what autograd is handed for every weight of that shape, whose gradient is in the buffer already: there from the first backward pass on",
    Source::At("Transformer Engine, transformer_engine/pytorch/module/base.py, get_dummy_wgrad"),
);
static GROUPED_WORKSPACE: What = What::own(
    "cuBLAS workspaces of grouped products",
    "scratch space of each stream on which experts are multiplied: there from the first one on",
    Source::At("Transformer Engine, transformer_engine/pytorch/cpp_extensions/gemm.py, get_cublas_workspace"),
);
static BENCHMARK: What = What::own(
    "buffer of Triton's benchmark",
    "what clears the card's cache between the runs of a kernel whose settings are tried when it runs first",
    Source::At("Triton, triton/backends/nvidia/driver.py, get_empty_cache_for_benchmark"),
);
static INDUCTORS: What = What::own(
    "buffer of TorchInductor's benchmark",
    "what clears the card's cache between the runs of a compiled kernel whose settings are tried when it runs first",
    Source::At("PyTorch, torch/_inductor/runtime/benchmarking.py, InductorBenchmarker"),
);
static RESTORED: What = What::own(
    "copy for a benchmark",
    "what a kernel changes in place, which is restored between the runs that try its settings",
    Source::At("Triton, triton/runtime/autotuner.py"),
);
static WORKSPACE: What = What::own(
    "cuBLAS workspace of Transformer Engine",
    "scratch space of its products: there from the first one on",
    Source::At("Transformer Engine, transformer_engine/pytorch/cpp_extensions/gemm.py"),
);
static ROOT: What =
    What::own("root of the second moment", "of every parameter, before the masters are stepped", OPTIMIZER);

/// What it keeps that a single GPU under other libraries does not.
pub(super) static OWN: [&What; 2] = [&GRADIENTS, &MASTER_GRADIENT];

/// Elements that a parameter of the buffer begins at a multiple of, and a bucket ends at (`_pad_start_of_param_if_needed`,
/// `_pad_end_of_bucket_if_needed`), under the distributed optimizer.
const PARAMETER_ALIGNMENT: u64 = 64;
const BUCKET_ALIGNMENT: u64 = 128;

/// Streams on which Transformer Engine multiplies the experts of a layer (`get_num_cublas_streams`).
const STREAMS: u32 = 4;

/// Bytes of the buffer that Triton clears the card's cache with.
const BENCHMARK_BUFFER: u64 = 256 << 20;

/// A kernel whose settings are tried when it runs first: by Triton (`triton.autotune`), or by TorchInductor, which compiled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum TunedKernel {
    QueryPositions,
    KeysAndValues,
    Permute,
    Unpermute,
    UnpermuteBackward,
    PermuteBackward,
    SortWithChances,
    Sort,
    KeysAndValuesBackward,
    QueryPositionsBackward,
    LossMask,
    LossSums,
    LossQuotients,
    LossLabels,
    LossGradient,
}

impl TunedKernel {
    /// What is made to clear the card's cache, in bytes.
    fn buffer(self, device: &Device) -> (u64, &'static What) {
        match self {
            TunedKernel::QueryPositions
            | TunedKernel::KeysAndValues
            | TunedKernel::Permute
            | TunedKernel::Unpermute
            | TunedKernel::UnpermuteBackward
            | TunedKernel::PermuteBackward
            | TunedKernel::SortWithChances
            | TunedKernel::Sort
            | TunedKernel::KeysAndValuesBackward
            | TunedKernel::QueryPositionsBackward => (BENCHMARK_BUFFER, &BENCHMARK),
            TunedKernel::LossMask
            | TunedKernel::LossSums
            | TunedKernel::LossQuotients
            | TunedKernel::LossLabels
            | TunedKernel::LossGradient => (device.cache, &INDUCTORS),
        }
    }
}

/// What the GPUs with the same parameters have of them: those of experts have fewer copies than the rest of the model, and
/// buffers and an optimizer of their own.
#[derive(Default)]
struct Copied {
    /// GPUs that hold them.
    copies: u64,
    /// Bytes of the gradients' buffers, and of their parameters.
    buffers: (u64, u64),
    /// Elements of each master, in the order in which they are stepped: matrices, then vectors, which have no weight decay.
    masters: [Vec<u64>; 2],
}

impl Copied {
    fn by(copies: u64) -> Copied {
        Copied { copies: copies.max(1), ..Copied::default() }
    }

    /// What the first of the GPUs that hold the same part steps of a bucket's parameters.
    fn share(&mut self, own: &mut Vec<(u64, u64, bool)>, bucket: u64) {
        let end = bucket / self.copies.max(1);
        for (start, numel, is_matrix) in own.drain(..) {
            let stepped = end.saturating_sub(start).min(numel);
            if stepped > 0 {
                self.masters[usize::from(!is_matrix)].push(stepped);
            }
        }
    }
}

/// What Megatron-core keeps beside a model.
pub(in crate::step) struct Megatron {
    /// What GPUs have of all parameters but the experts', and of these.
    copied: [Copied; 2],
    /// How the model is divided.
    pub layout: Layout,
    /// Whether each of them steps a share (`use_distributed_optimizer`).
    distributed: bool,
    /// The element type of the gradient buffer.
    pub reduces: Dtype,
    /// Their gradients, where the buffer's are no float32.
    gradients: Vec<StorageId>,
    /// Buffers that the first forward pass leaves, by what they are for: the scores of attention (`GlobalMemoryBuffer`) and the
    /// rotary embedding of each part that runs at a time.
    pub scores: StorageId,
    pub rotary: Vec<StorageId>,
    /// The same of what the head's input is gathered in.
    pub gathered: StorageId,
    /// Shapes of matrices for which Transformer Engine has made no stand-in yet.
    stand_ins: Vec<(u64, u64)>,
    /// Whether Transformer Engine has its workspace, and those of grouped products.
    has_workspace: [bool; 2],
    /// Kernels whose settings Triton has tried.
    tuned: Vec<TunedKernel>,
    /// What modules hold from one micro-batch to the next, by layer.
    pub held: Vec<Held>,
}

/// What the modules of a layer hold from one micro-batch to the next.
#[derive(Clone, Copy)]
pub(in crate::step) struct Held {
    /// Whether latent attention has the tables of its positions.
    pub has_tables: bool,
    /// What the token dispatcher has as attributes: probabilities, which expert each token goes to, and the rows that come of it.
    pub dispatched: [StorageId; 3],
    /// Whether a recomputation made these: then their graph reaches to the layer's input.
    pub is_recomputed: bool,
    /// That input and its gradient, which a recomputation makes a leaf of.
    pub leaf: [StorageId; 2],
}

impl Held {
    const NOTHING: Held =
        Held { has_tables: false, dispatched: [NOTHING; 3], is_recomputed: false, leaf: [NOTHING; 2] };
}

fn multiple(number: u64, of: u64) -> u64 {
    number.div_ceil(of.max(1)).saturating_mul(of.max(1))
}

/// The smallest multiple of both.
fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

impl Megatron {
    /// Whether other GPUs have a part of every layer.
    pub fn is_divided(&self) -> bool {
        self.layout.tensor > 1
    }

    /// The GPUs that share a layer.
    pub fn parts(&self) -> u64 {
        self.layout.tensor
    }

    /// `get_dummy_wgrad` of every shape among the matrices of the model: what Transformer Engine hands autograd in the place of
    /// a weight's gradient, which it has added to the buffer itself. One is made in the first backward pass and stays.
    pub fn keep_stand_ins(&mut self, heap: &mut Heap) {
        for (rows, columns) in std::mem::take(&mut self.stand_ins) {
            keep(heap, rows.saturating_mul(columns), Dtype::Bf16, Category::Gradients, &STAND_IN);
        }
    }

    /// The workspace that Transformer Engine gives cuBLAS, from its first product on (`get_cublas_workspace`).
    pub fn keep_workspace(&mut self, heap: &mut Heap) {
        if !std::mem::replace(&mut self.has_workspace[0], true) {
            heap.persistent(workspace(heap), Dtype::U8, 1, Category::Workspace, &WORKSPACE);
        }
    }

    /// The same for each stream of grouped products, from the first one on.
    pub fn keep_grouped_workspaces(&mut self, heap: &mut Heap) {
        if !std::mem::replace(&mut self.has_workspace[1], true) {
            for _ in 0..STREAMS {
                heap.persistent(workspace(heap), Dtype::U8, 1, Category::Workspace, &GROUPED_WORKSPACE);
            }
        }
    }

    /// The settings of a kernel that runs for the first time are tried, with a copy of what it `restores` in place.
    pub fn tune(&mut self, heap: &mut Heap, kernel: TunedKernel, restores: u64) {
        if self.tuned.contains(&kernel) {
            return;
        }
        self.tuned.push(kernel);
        let (bytes, what) = kernel.buffer(&heap.device);
        let buffer = heap.alloc_as(Category::Temporaries, bytes, Dtype::U8, what);
        if restores > 0 {
            heap.scratch(restores, &RESTORED);
        }
        heap.release(buffer);
    }

    /// What the modules of the layer of that number hold.
    pub fn held(&mut self, layer: usize) -> &mut Held {
        if self.held.len() <= layer {
            self.held.resize(layer + 1, Held::NOTHING);
        }
        &mut self.held[layer]
    }

    /// Before there is a model.
    pub fn of(cluster: Cluster) -> Megatron {
        // those that share sequences are among them
        let copies = cluster.gpus / cluster.layout.parts().max(1);
        Megatron {
            copied: [Copied::by(copies), Copied::by(copies / cluster.layout.experts.max(1))],
            layout: cluster.layout,
            distributed: cluster.sharding == Sharding::Distributed,
            reduces: match cluster.reduce {
                ReduceDtype::Fp32 => Dtype::F32,
                ReduceDtype::Bf16 => Dtype::Bf16,
            },
            gradients: Vec::new(),
            scores: NOTHING,
            rotary: Vec::new(),
            gathered: NOTHING,
            stand_ins: Vec::new(),
            has_workspace: [false; 2],
            tuned: Vec::new(),
            held: Vec::new(),
        }
    }

    /// `DistributedDataParallel(model)` of each part, then `get_megatron_optimizer`.
    pub fn wrap(&mut self, heap: &mut Heap, params: &mut Params, model: &Wrapped) {
        heap.module = "";
        for part in &model.parts {
            let (experts, others): (Vec<PartParam>, Vec<PartParam>) =
                part.iter().partition(|param| param.kind == ParamKind::Expert);
            self.make_buffers(heap, params, &others, 0);
            self.make_buffers(heap, params, &experts, 1);
        }
        if self.layout.has_transformer_engine() && self.layout.fuses_gradients {
            let is_fused = |param: &&PartParam| match param.kind {
                ParamKind::Expert | ParamKind::Multiplied => true,
                // they have gradients of their own
                ParamKind::LookedUp | ParamKind::Router => false,
            };
            let multiplied = model.parts.iter().flatten().filter(is_fused);
            for PartParam { id, .. } in multiplied {
                let param = params.get(*id);
                let shape = (param.rows, param.numel / param.rows.max(1));
                if param.rows > 1 && !self.stand_ins.contains(&shape) {
                    self.stand_ins.push(shape);
                }
            }
        }
        keep(heap, 1, Dtype::F32, Category::Optimizer, &FLAG);
        for numel in self.masters() {
            let clone = heap.alloc_as(
                Category::Temporaries,
                numel.saturating_mul(Dtype::Bf16.bytes()),
                Dtype::Bf16,
                &CLONE,
            );
            keep(heap, numel, Dtype::F32, Category::Optimizer, &MASTER);
            heap.release(clone);
        }
    }

    /// `_ParamAndGradBuffer`: parameters from the last to the first. The distributed optimizer moves them into a buffer too, and
    /// gives a matrix that two stages share a bucket of its own.
    fn make_buffers(&mut self, heap: &mut Heap, params: &mut Params, part: &[PartParam], kind: usize) {
        if part.is_empty() {
            return;
        }
        let copied = &mut self.copied[kind];
        let bucket_alignment = common_multiple(copied.copies, BUCKET_ALIGNMENT);
        let (mut end, mut bucket) = (0u64, 0u64);
        // parameters of the running bucket: where each lies in it
        let mut own: Vec<(u64, u64, bool)> = Vec::with_capacity(part.len());
        for PartParam { id, shared, .. } in part.iter().rev() {
            let param = &params.list[*id as usize];
            let (numel, is_matrix) = (param.numel, param.rows > 1);
            if numel == 0 {
                continue;
            }
            if !self.distributed {
                end = end.saturating_add(numel);
                continue;
            }
            end = multiple(end, PARAMETER_ALIGNMENT);
            if *shared && !own.is_empty() {
                end = bucket.saturating_add(multiple(end - bucket, bucket_alignment));
                copied.share(&mut own, end - bucket);
                bucket = end;
            }
            own.push((end - bucket, numel, is_matrix));
            end = end.saturating_add(numel);
            if *shared {
                end = bucket.saturating_add(multiple(end - bucket, bucket_alignment));
                copied.share(&mut own, end - bucket);
                bucket = end;
            }
        }
        if self.distributed {
            end = bucket.saturating_add(multiple(end - bucket, bucket_alignment));
            copied.share(&mut own, end - bucket);
            keep(heap, end, Dtype::Bf16, Category::Weights, &PARAMETERS);
        } else {
            for PartParam { id, .. } in part {
                let param = &params.list[*id as usize];
                if param.numel > 0 {
                    copied.masters[usize::from(param.rows <= 1)].push(param.numel);
                }
            }
        }
        keep(heap, end, self.reduces, Category::Gradients, &GRADIENTS);
        let (gradients, parameters) = &mut copied.buffers;
        *gradients = gradients.saturating_add(end.saturating_mul(self.reduces.bytes()));
        *parameters = parameters.saturating_add(end.saturating_mul(Dtype::Bf16.bytes()));
        if self.distributed {
            for PartParam { id, .. } in part.iter().rev() {
                let storage = std::mem::replace(&mut params.list[*id as usize].storage, NOTHING);
                heap.release(storage);
            }
        }
    }

    /// Elements of all masters, in the order in which they are made.
    fn masters(&self) -> Vec<u64> {
        self.copied.iter().flat_map(|copied| copied.masters.iter().flatten().copied()).collect()
    }

    /// Bytes of both moments of all masters.
    pub fn moments(&self) -> u64 {
        let numel = self.masters().into_iter().fold(0, u64::saturating_add);
        numel.saturating_mul(2 * Dtype::F32.bytes())
    }

    /// `_make_backward_post_hook`: a gradient is added to the buffer and goes.
    pub fn arrived(heap: &mut Heap, params: &mut Params, id: ParamId) {
        let grad = std::mem::replace(&mut params.list[id as usize].grad, NOTHING);
        heap.release(grad);
    }

    /// `optimizer.zero_grad()`.
    pub fn zero_grad(&mut self, heap: &mut Heap) {
        std::mem::take(&mut self.gradients).into_iter().for_each(|storage| heap.release(storage));
    }

    /// `MixedPrecisionOptimizer.step` over torch.optim.AdamW or Transformer Engine's FusedAdam, whose moments the first step makes.
    pub fn step(&mut self, heap: &mut Heap, clips: bool, is_first: bool) {
        heap.module = "";
        // gradients are scattered and what was stepped is gathered, or every GPU is given all of them
        for copied in &self.copied {
            let (gradients, parameters) = copied.buffers;
            let around = if self.distributed {
                gradients.saturating_add(parameters)
            } else {
                gradients.saturating_mul(2)
            };
            heap.send_around(Group::Data, around, copied.copies);
        }
        if self.reduces != Dtype::F32 {
            for numel in self.masters() {
                let bytes = numel.saturating_mul(Dtype::F32.bytes());
                self.gradients.push(heap.alloc_as(Category::Gradients, bytes, Dtype::F32, &MASTER_GRADIENT));
            }
        }
        // Transformer Engine's kernels scale what is clipped in place, and its FusedAdam needs no roots
        let fused = self.layout.has_transformer_engine();
        if clips && !fused {
            for numel in self.masters() {
                heap.scratch(numel.saturating_mul(Dtype::F32.bytes()), &CLIPPED);
            }
        }
        for group in self.copied.iter().flat_map(|copied| &copied.masters) {
            if is_first {
                for numel in group {
                    for _ in 0..2 {
                        keep(heap, *numel, Dtype::F32, Category::Optimizer, &MOMENT);
                    }
                }
            }
            if fused {
                continue;
            }
            let root = |numel: &u64| {
                let bytes = numel.saturating_mul(Dtype::F32.bytes());
                heap.alloc_as(Category::Temporaries, bytes, Dtype::F32, &ROOT)
            };
            let roots: Vec<StorageId> = group.iter().map(root).collect();
            roots.into_iter().rev().for_each(|storage| heap.release(storage));
        }
    }
}

/// Bytes of Transformer Engine's workspace of a stream.
fn workspace(heap: &Heap) -> u64 {
    if heap.device.capability >= 90 { (32 << 20) + 1024 } else { 4 << 20 }
}

/// What a parameter is to Megatron-core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum ParamKind {
    /// Rows of it are looked up.
    LookedUp,
    /// The products or the norms of a layer read it.
    Multiplied,
    /// The router's product reads it, which is PyTorch's own.
    Router,
    /// An expert's.
    Expert,
}

/// A parameter among those that a part has, in the order of its modules.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct PartParam {
    pub id: ParamId,
    /// Whether the first and the last stage both have it: a tied embedding.
    pub shared: bool,
    pub kind: ParamKind,
}

/// Something that stays until the end.
fn keep(heap: &mut Heap, numel: u64, dtype: Dtype, category: Category, what: &'static What) {
    heap.persistent(numel.saturating_mul(dtype.bytes()), dtype, 1, category, what);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_pad_end_of_bucket_if_needed`: `math.lcm(data_parallel_world_size, 128)`.
    #[test]
    fn buckets_end_where_every_copys_share_does() {
        for (copies, alignment) in
            [(1, 128), (3, 384), (63, 8064), (64, 128), (96, 384), (1000, 16_000), (1008, 8064)]
        {
            assert_eq!(common_multiple(copies, BUCKET_ALIGNMENT), alignment, "{copies}");
        }
    }

    /// `_build_model_gbuf_param_range_map` of distrib_optimizer.py: the first rank's part of a bucket of 1,024 elements, in which a matrix, a vector
    /// and a matrix lie, each at a multiple of 64.
    #[test]
    fn a_rank_steps_what_lies_in_its_part_of_a_bucket() {
        for (copies, matrices, vectors) in [
            (1, vec![300, 100], vec![500]),
            (2, vec![300], vec![192]),
            (4, vec![256], vec![]),
            (3, vec![300], vec![21]),
            (16, vec![64], vec![]),
        ] {
            let mut copied = Copied::by(copies);
            let mut own = vec![(0, 300, true), (320, 500, false), (832, 100, true)];
            copied.share(&mut own, 1024);
            assert_eq!(copied.masters, [matrices, vectors], "{copies}");
            assert!(own.is_empty());
        }
    }
}
