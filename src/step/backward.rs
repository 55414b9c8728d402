//! What each operation does in backward: which gradients it makes, in which order, and what it needs meanwhile.
//!
//! Source: the formulas of tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp of PyTorch 2.11;
//! the order of events was compared with the allocator's trace of the same operation.

use super::attention::{self, Scores};
use super::autograd::{Grad, INPUTS, Node};
use super::kernels;
use super::linear;
use super::loss;
use super::machine::{NOTHING, State, StorageId};
use super::norm;
use super::tensor::Layout;
use crate::dtype::Dtype;

/// An operation, as far as its backward needs to know it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// The gradient is the input's as it is (adding a scalar, a clone).
    Pass,
    /// The last dimension split into heads, or heads joined into it: a view, of which the gradient is a copy where it
    /// does not lie token after token.
    Reshape,
    /// A transposition of sequence and heads: a view.
    Transpose,
    /// The sum of two tensors of one shape.
    Add,
    /// `x + b` where `b` is broadcast over the rows.
    AddRow,
    /// A change of element type.
    Cast,
    /// The product of two tensors of one shape; saves both.
    Mul,
    /// The product with a tensor without gradient; saves that.
    MulConstant,
    /// `x[rows, width] · r[rows, 1]`; saves both.
    MulRows,
    /// `w[width] · x[rows, width]`; saves both.
    MulWeight {
        /// Rows of `x`.
        rows: u64,
    },
    /// The product with or quotient by a number.
    Scale,
    /// `x.pow(n)`; saves x.
    Power,
    /// `x[rows, width] - r[rows, 1]`.
    MinusRows,
    /// The mean of each row.
    MeanRows,
    /// `rsqrt`; saves its result.
    Rsqrt,
    /// One kernel from the gradient and what was saved to the input's gradient.
    Pointwise,
    /// The negative.
    Negate,
    /// A slice; its gradient is the whole tensor's.
    Slice {
        /// Elements of the whole.
        whole: u64,
    },
    /// `cat` of two: gradients are views.
    Cat,
    /// `split` or `chunk`: the gradients of the pieces are joined.
    Split,
    /// `repeat_kv`: an expanded view that was copied.
    Expand,
    /// An embedding table's lookup.
    Embedding {
        /// Rows that are looked up.
        rows: u64,
    },
    /// A linear layer.
    Linear(linear::Shape),
    /// A 4-bit linear layer of bitsandbytes.
    Linear4bit(linear::Shape, linear::Quantised),
    /// Dropout's kernel; saves its mask.
    Dropout,
    /// The fused layer norm.
    LayerNorm {
        /// Rows.
        rows: u64,
    },
    /// A softmax over the last dimension; saves its result.
    Softmax,
    /// A batched matrix product; saves both.
    Bmm {
        /// Sequences of the batch: with one, a gradient that lies token after token needs no copy.
        batch: u64,
    },
    /// A fused attention kernel.
    Attention(Scores),
    /// The negative log likelihood.
    Nll {
        /// Elements of the log-probabilities.
        numel: u64,
    },
    /// log_softmax; saves its result.
    LogSoftmax,
}

/// The gradients of a node's inputs.
pub(super) type Results = [Option<Grad>; INPUTS];

/// Runs a node's backward on the gradients of its outputs, which stay the caller's.
pub(super) fn apply(state: &mut State, node: &Node, grads: Results) -> Results {
    let mut results = compute(state, node, grads);
    for (input, result) in node.inputs.iter().zip(&mut results) {
        // The engine's validate_outputs casts a gradient to its input's element type.
        if let Some(grad) = result
            && grad.dtype != input.dtype
        {
            let storage = state.alloc(grad.numel, input.dtype, "gradient cast");
            state.release(grad.storage);
            *grad = Grad { storage, dtype: input.dtype, view: false, ..*grad };
        }
    }
    results
}

/// A further reference to a gradient.
fn share(state: &mut State, grad: Grad) -> Grad {
    state.retain(grad.storage);
    grad
}

/// A new gradient of the same shape and layout as another.
fn like(state: &mut State, grad: Grad, operation: &'static str) -> Grad {
    let storage = state.alloc(grad.numel, grad.dtype, operation);
    Grad { storage, view: false, ..grad }
}

fn compute(state: &mut State, node: &Node, grads: Results) -> Results {
    let [first, second, third] = node.inputs;
    let Some(grad) = grads[0] else {
        return match node.op {
            Op::Split => [Some(split(state, node, grads)), None, None],
            _ => [None; INPUTS],
        };
    };
    match node.op {
        Op::Pass => [Some(share(state, grad)), None, None],
        Op::Reshape => {
            let result = match grad.layout {
                Layout::Tokens => Grad { view: true, ..share(state, grad) },
                Layout::Heads => Grad { layout: Layout::Tokens, ..like(state, grad, "contiguous") },
            };
            [Some(result), None, None]
        }
        Op::Transpose => [Some(Grad { view: true, ..share(state, grad) }), None, None],
        Op::Add => {
            let mut results = [None; INPUTS];
            for (input, result) in [first, second].into_iter().zip(&mut results) {
                if input.wants() {
                    *result = Some(share(state, grad));
                }
            }
            results
        }
        Op::AddRow => {
            let row = second.wants().then(|| sum_rows(state, grad, second.numel));
            [first.wants().then(|| share(state, grad)), row, None]
        }
        Op::Cast => {
            let storage = state.alloc(grad.numel, first.dtype, "cast");
            [Some(Grad { storage, dtype: first.dtype, view: false, ..grad }), None, None]
        }
        Op::Mul => {
            let other = second.wants().then(|| like(state, grad, "mul"));
            let own = first.wants().then(|| like(state, grad, "mul"));
            [own, other, None]
        }
        Op::Softmax => {
            // softmax_backward_cuda_out: the result, then `tmp = grad * output`
            let storage = state.alloc(grad.numel, first.dtype, "softmax");
            state.scratch(grad.numel.saturating_mul(grad.dtype.bytes()), "softmax (grad · output)");
            [Some(Grad::new(storage, grad.numel, first.dtype, grad.layout)), None, None]
        }
        Op::MulConstant | Op::Scale | Op::Pointwise | Op::Negate | Op::Dropout => {
            [Some(like(state, grad, name_of(node.op))), None, None]
        }
        Op::MulRows => {
            let other = second.wants().then(|| like(state, grad, "mul"));
            let own = first.wants().then(|| like(state, grad, "mul"));
            let other = other.map(|other| {
                let storage = state.alloc(second.numel, other.dtype, "sum");
                state.release(other.storage);
                Grad { storage, numel: second.numel, ..other }
            });
            [own, other, None]
        }
        Op::MulWeight { rows } => {
            let other = second.wants().then(|| like(state, grad, "mul"));
            let own = first.wants().then(|| like(state, grad, "mul"));
            let own = own.map(|own| {
                let sum = sum_rows_of(state, own, first.numel, rows);
                state.release(own.storage);
                sum
            });
            [own, other, None]
        }
        Op::Power => {
            let base = like(state, grad, "pow");
            let scaled = like(state, grad, "mul");
            let result = like(state, grad, "mul");
            state.release(scaled.storage);
            state.release(base.storage);
            [Some(result), None, None]
        }
        Op::MinusRows => {
            let rows = second.wants().then(|| {
                let negative = like(state, grad, "neg");
                let storage = state.alloc(second.numel, grad.dtype, "sum");
                state.release(negative.storage);
                Grad { storage, numel: second.numel, ..negative }
            });
            [first.wants().then(|| share(state, grad)), rows, None]
        }
        Op::MeanRows => {
            let storage = state.alloc(first.numel, grad.dtype, "mean");
            [Some(Grad::new(storage, first.numel, grad.dtype, first.layout)), None, None]
        }
        Op::Rsqrt => {
            let cube = like(state, grad, "pow");
            let scaled = like(state, grad, "mul");
            let result = like(state, grad, "mul");
            state.release(scaled.storage);
            state.release(cube.storage);
            [Some(result), None, None]
        }
        Op::Slice { whole } => {
            let storage = state.alloc(whole, grad.dtype, "slice");
            [Some(Grad::new(storage, whole, grad.dtype, first.shape)), None, None]
        }
        Op::Cat => {
            let mut results = [None; INPUTS];
            for (input, result) in node.inputs.iter().zip(&mut results) {
                if input.wants() {
                    *result = Some(Grad { numel: input.numel, view: true, ..share(state, grad) });
                }
            }
            results
        }
        Op::Split => [Some(split(state, node, grads)), None, None],
        Op::Expand => {
            let storage = state.alloc(first.numel, grad.dtype, "sum");
            [Some(Grad::new(storage, first.numel, grad.dtype, first.shape)), None, None]
        }
        Op::Embedding { rows } => {
            let sorted = kernels::embedding_order(state, rows);
            let storage = state.alloc(first.numel, grad.dtype, "embedding");
            kernels::embedding_scratch(state, rows, grad.numel / rows.max(1));
            sorted.into_iter().for_each(|storage| state.release(storage));
            [Some(Grad::new(storage, first.numel, grad.dtype, Layout::Tokens)), None, None]
        }
        Op::Linear(shape) => linear::backward(state, node, shape, grad),
        Op::Linear4bit(shape, quantised) => linear::backward_4bit(state, node, shape, quantised, grad),
        Op::LayerNorm { rows } => norm::layer_norm_backward(state, node, rows, grad),
        Op::Bmm { batch } => {
            let copied = grad.layout == Layout::Tokens && batch > 1;
            let dense = if copied { like(state, grad, "contiguous") } else { share(state, grad) };
            let other = second.wants().then(|| product(state, second.numel, grad.dtype));
            let own = first.wants().then(|| product(state, first.numel, grad.dtype));
            state.release(dense.storage);
            [own, other, None]
        }
        Op::Attention(scores) => attention::backward(state, [first, second, third], scores, grad),
        Op::Nll { numel } => loss::nll_backward(state, numel, first.dtype),
        Op::LogSoftmax => [Some(like(state, grad, "log_softmax")), None, None],
    }
}

fn name_of(op: Op) -> &'static str {
    match op {
        Op::Dropout => "dropout",
        Op::Negate => "neg",
        _ => "mul",
    }
}

fn product(state: &mut State, numel: u64, dtype: Dtype) -> Grad {
    Grad::new(state.alloc(numel, dtype, "matmul"), numel, dtype, Layout::Heads)
}

/// split's backward: the pieces' gradients (zeros for those without one) are joined into the whole's.
fn split(state: &mut State, node: &Node, grads: Results) -> Grad {
    let whole = node.inputs[0];
    let known: u64 = grads.iter().flatten().map(|grad| grad.numel).sum();
    let zeros = whole.numel.saturating_sub(known);
    let zeros: StorageId = if zeros > 0 { state.alloc(zeros, whole.dtype, "zeros") } else { NOTHING };
    let storage = state.alloc(whole.numel, whole.dtype, "cat");
    state.release(zeros);
    Grad::new(storage, whole.numel, whole.dtype, Layout::Tokens)
}

/// The sum over all rows of a gradient: what a broadcast row vector gets.
pub(super) fn sum_rows(state: &mut State, grad: Grad, width: u64) -> Grad {
    let rows = grad.numel / width.max(1);
    sum_rows_of(state, grad, width, rows)
}

fn sum_rows_of(state: &mut State, grad: Grad, width: u64, rows: u64) -> Grad {
    let storage = state.alloc(width, grad.dtype, "sum");
    kernels::column_sum_scratch(state, rows, width, grad.dtype);
    Grad::new(storage, width, grad.dtype, Layout::Tokens)
}
