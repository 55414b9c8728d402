//! What Transformer Engine, Triton and TorchInductor keep or try beside a model, from the first pass on.

use super::{Megatron, ParamKind, PartParam, keep};
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::memory::Category;
use crate::step::heap::{BENCHMARK, BENCHMARK_BUFFER, Heap};
use crate::step::parallel::Wrapped;
use crate::step::params::Params;
use crate::step::what::{Source, What};

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

/// Streams on which Transformer Engine multiplies the experts of a layer (`get_num_cublas_streams`).
const STREAMS: u32 = 4;

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

impl Megatron {
    /// Finds the shapes of the matrices whose gradients Transformer Engine adds to the buffer itself.
    pub(super) fn expect_stand_ins(&mut self, params: &Params, model: &Wrapped) {
        if !(self.layout.has_transformer_engine() && self.layout.fuses_gradients) {
            return;
        }
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
}

/// Bytes of Transformer Engine's workspace of a stream.
fn workspace(heap: &Heap) -> u64 {
    if heap.device.capability >= 90 { (32 << 20) + 1024 } else { 4 << 20 }
}
