//! Operations of state spaces and linear attention that nothing else needs: running sums, padding, triangular systems,
//! chunks of a sequence.

use super::pointwise::promoted;
use super::pointwise::sub_backward;
use super::views::{slice_backward, transpose_backward};
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, INPUTS, Node, Results, fresh, like, only, share_view};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{What, torch};

static CUMSUM: What = What::step("cumsum", "running sums");
static FLIP: What = What::step("flip", "in the other order");
static SOFTPLUS: What = What::step("softplus", "the output of softplus");
static PAD: What = What::step("pad", "filled up with zeros");
static SOLVE: What = What::step("solve_triangular", "the solution of a triangular system");
static SOLVE_POINTERS: What =
    What::step("solve_triangular (pointers)", "where the matrices of a triangular system lie");

impl<'m> Tensor<'m> {
    /// `unsqueeze`, `squeeze` or a view that splits a dimension: its gradient is a view too.
    pub fn viewed(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], transpose_backward);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// A view whose gradient has to be copied.
    pub fn permuted(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], permute_backward);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x.reshape(…)` into chunks of the sequence: a view.
    pub fn chunked(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], chunked_backward);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x.transpose(1, 2)` back from `[batch, channels, sequence]`: a view.
    pub fn tokens_first(&self) -> Tensor<'m> {
        let mut view = self.viewed();
        view.value.shape = Layout::Tokens;
        view
    }

    /// `x.to(torch.float32, memory_format=torch.contiguous_format)`: the same tensor if it is float32.
    pub fn dense_float(&self) -> Tensor<'m> {
        let mut float = self.to(Dtype::F32);
        if self.value.dtype != Dtype::F32 {
            float.value.layout = float.value.shape;
        }
        float
    }

    /// `x[:, :, index]` of `numel` elements: a view, also where that is all of it.
    pub fn selected(&self, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], slice_backward);
            state.retain(x.storage);
            Value { edge: node.output(0), numel, ..*x }
        })
    }

    /// `F.pad` of the sequence to `numel` elements; without padding a copy that lies as x does.
    pub fn padded_to(&self, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, grad| {
                let layout = grad.layout;
                only(fresh(state, grad, (node.inputs[0].numel, layout), &PAD))
            });
            let layout = if numel == x.numel { x.layout } else { x.shape };
            let whole = Value { numel, layout, ..*x };
            state.new_like(&whole, x.dtype, &PAD, node.output(0))
        })
    }

    /// `F.softplus(x)`. autocast runs it in float32.
    pub fn softplus(&self) -> Tensor<'m> {
        let autocast = self.machine.with(|state| state.autocast.is_some());
        self.to(if autocast { Dtype::F32 } else { self.value.dtype }).keeping_input(&SOFTPLUS)
    }

    /// `x.cumsum(dim)`, from a copy where x is not contiguous.
    pub fn cumsum(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], cumsum_backward);
            let dense = Value { layout: x.shape, ..*x };
            let result = state.new_like(&dense, x.dtype, &CUMSUM, node.output(0));
            if x.layout != x.shape {
                state.scratch(x.bytes(), &torch::CONTIGUOUS);
            }
            result
        })
    }

    /// `x - other`, both broadcast to `numel` elements.
    pub fn minus_to(&self, other: &Tensor<'m>, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node([x, y], sub_backward);
            let whole = Value { numel, ..*x };
            state.new_like(&whole, promoted(x.dtype, y.dtype), &torch::SUB, node.output(0))
        })
    }

    /// `torch.linalg.solve_triangular(x, right, upper=False, unitriangular=True)` of `matrices` triangles.
    ///
    /// Source: aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp `triangular_solve_kernel`.
    pub fn solved(&self, right: &Tensor<'m>, matrices: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let b = &right.value;
            let node = state.node([x, b], solve_backward);
            let dense = Value { layout: Layout::Heads, shape: Layout::Heads, ..*b };
            let result = state.new_like(&dense, b.dtype, &SOLVE, node.output(0));
            pointers(state, matrices);
            state.save(node, x.storage);
            state.save(node, result.storage);
            result
        })
    }
}

/// The arrays of pointers that cuBLAS is given for more matrices than are solved one by one.
fn pointers(state: &mut State, matrices: u64) {
    const ONE_BY_ONE: u64 = 8;
    if matrices <= ONE_BY_ONE {
        return;
    }
    let bytes = matrices.saturating_mul(8);
    let first = state.alloc(matrices, Dtype::I64, &SOLVE_POINTERS);
    state.scratch(bytes, &SOLVE_POINTERS);
    state.release(first);
}

/// The length of the chunks of the gated delta rule (models/qwen3_next `torch_chunk_gated_delta_rule`).
pub(in crate::step) const DELTA_CHUNK: u64 = 64;

/// linalg_solve_triangular_backward: the right side's gradient, then the triangles'.
fn solve_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [a, b, _] = node.inputs;
    let triangles = a.numel;
    let mut results: Results = [None; INPUTS];
    let right = state.alloc_for(b.storage, b.numel, grad.dtype, &SOLVE);
    pointers(state, triangles / (DELTA_CHUNK * DELTA_CHUNK));
    if a.wants() {
        let product = state.alloc(triangles, grad.dtype, &torch::MATMUL);
        let negative = state.alloc(triangles, grad.dtype, &torch::NEG);
        state.release(product);
        let lower = state.alloc(triangles, grad.dtype, &torch::TRIL);
        state.release(negative);
        results[0] = Some(Grad::new(lower, triangles, grad.dtype, Layout::Heads));
    }
    if b.wants() {
        results[1] = Some(Grad::new(right, b.numel, grad.dtype, Layout::Columns));
    } else {
        state.release(right);
    }
    results
}

/// cumsum_backward: `grad.flip(dim).cumsum(dim).flip(dim)`, from a copy where the gradient is not contiguous.
fn cumsum_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let new = |state: &mut State, name| state.alloc_for(grad.storage, grad.numel, grad.dtype, name);
    let flipped = new(state, &FLIP);
    let summed = new(state, &CUMSUM);
    if grad.layout != node.inputs[0].shape {
        state.scratch(grad.numel.saturating_mul(grad.dtype.bytes()), &torch::CONTIGUOUS);
    }
    let storage = new(state, &FLIP);
    state.release(summed);
    state.release(flipped);
    only(Grad { storage, view: false, ..*grad })
}

/// A permutation of dimensions and a view: the gradient is copied.
pub(in crate::step) fn permute_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    only(like(state, grad, &torch::CONTIGUOUS))
}

/// Heads cut into chunks: a view unless the gradient lies transposed.
fn chunked_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    only(if grad.layout == Layout::Columns {
        Grad { layout: Layout::Heads, ..like(state, grad, &torch::CONTIGUOUS) }
    } else {
        share_view(state, grad)
    })
}
