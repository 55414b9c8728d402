//! Megatron-core's buffers and optimizers: gradients of a model are summed up in one buffer, and float32 masters are stepped,
//! those of the whole model or, by the distributed optimizer, of this GPU's share.
//!
//! Source: megatron/core/distributed/param_and_grad_buffer.py and distributed_data_parallel.py,
//! megatron/core/optimizer/optimizer.py and distrib_optimizer.py of Megatron-core 0.16.1. The order of events was compared with
//! the allocator's trace.

mod buffers;
mod kept;

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::{Cluster, Layout, ReduceDtype, Sharding};
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::parallel::Wrapped;
use crate::step::params::{ParamId, Params};
use crate::step::what::{Source, What};
use crate::work::Group;
use buffers::{Copied, GRADIENTS};
pub(in crate::step) use kept::TunedKernel;

const OPTIMIZER: Source = Source::At("Megatron-core, megatron/core/optimizer");

static CLONE: What = What::own("clone", "the parameter that a master is made of", OPTIMIZER);
static MASTER: What =
    What::own("fp32 master weights", "what this GPU steps of a parameter, in float32", OPTIMIZER);
static MASTER_GRADIENT: What =
    What::own("fp32 gradient", "the gradient of a master: a copy where the buffer is bfloat16", OPTIMIZER);
static FLAG: What = What::own("flag", "a number of the mixed-precision optimizer", OPTIMIZER);
static CLIPPED: What = What::own("clipped gradient", "a gradient times the factor that clips it", OPTIMIZER);
static MOMENT: What = What::own("moment", "Adam's mean of the gradients, or of their squares", OPTIMIZER);
static ROOT: What =
    What::own("root of the second moment", "of every parameter, before the masters are stepped", OPTIMIZER);

/// What it keeps that a single GPU under other libraries does not.
pub(super) static OWN: [&What; 2] = [&GRADIENTS, &MASTER_GRADIENT];

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

impl Megatron {
    /// Whether other GPUs have a part of every layer.
    pub fn is_divided(&self) -> bool {
        self.layout.tensor > 1
    }

    /// The GPUs that share a layer.
    pub fn parts(&self) -> u64 {
        self.layout.tensor
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
        self.expect_stand_ins(params, model);
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
