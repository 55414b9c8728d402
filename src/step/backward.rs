//! What each operation does in backward: which gradients it makes, in which order, and what it needs meanwhile.
//!
//! Source: the formulas of tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp of PyTorch 2.11;
//! the order of events was compared with the allocator's trace of the same operation.

mod rare;

use super::autograd::{Grad, INPUTS, Node};
use super::forward::stacks::fused_loss;
use super::forward::stacks::liger;
use super::forward::stacks::trl::log_probs;
use super::forward::stacks::unsloth::functions;
use super::heap::{NOTHING, StorageId};
use super::kernels;
use super::machine::State;
use super::ops::activations;
use super::ops::attention;
use super::ops::experts;
use super::ops::indexing;
use super::ops::linear;
use super::ops::loss;
use super::ops::norm;
use super::ops::scan;
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
    /// The difference of two tensors of one shape.
    Sub,
    /// A slice filled with the second input, in place (`CopySlices` around `CopyBackwards`).
    CopySlice,
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
    MulWeight,
    /// The product with or quotient by a number.
    Scale,
    /// `x.pow(n)`; saves x.
    Power,
    /// `erf`; saves x.
    Erf,
    /// `expm1`; saves its result.
    Expm1,
    /// `sqrt`; saves its result.
    Sqrt,
    /// The smaller of x and a number; saves x.
    Minimum,
    /// `where(condition, a, b)`; saves the condition.
    Where,
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
    /// The same into any number of pieces; the engine runs it itself.
    Pieces,
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
        /// Whether its input is one head of several, and its gradient a slice of theirs.
        one_head: bool,
        /// Whether that input is copied for the kernel.
        strided: bool,
    },
    /// A softmax over the last dimension; saves its result.
    Softmax,
    /// A batched matrix product; saves both.
    Bmm {
        /// How the second operand's gradient lies.
        second: Layout,
    },
    /// A batch of matrices as heads of a batch of sequences: a view. A gradient that lies token after token is copied
    /// unless there is one sequence only.
    Unbatched {
        /// Sequences.
        batch: u64,
    },
    /// `baddbmm` with a factor: a batched matrix product added to something without gradient.
    Baddbmm,
    /// `x[index]`; saves the index.
    Index {
        /// Indices.
        rows: u64,
        /// Elements that each picks.
        width: u64,
    },
    /// `topk`; saves its indices.
    TopK,
    /// A sum over a dimension: its gradient is an expanded view.
    Sum,
    /// `x /= r` of rows, in place: saves a copy of x, and r.
    DivideRows,
    /// `masked_fill` with a number; saves the mask.
    MaskedFill,
    /// `grouped_mm`: a product of consecutive rows with a matrix each; saves both.
    Grouped {
        /// Matrices.
        groups: u64,
    },
    /// The same one matrix after the other; saves both.
    GroupedLoop,
    /// A permutation of dimensions and a view: the gradient is copied.
    Permute,
    /// A product of two matrices; saves both.
    Mm,
    /// A convolution over single tokens with a parameter; saves its input.
    Convolution,
    /// `index_copy` into zeros; saves the index.
    IndexCopy,
    /// `baddbmm` of low-rank factors with a frozen weight; saves both.
    Fold,
    /// bloom's own autograd function; saves its input.
    BloomGelu,
    /// A depthwise convolution; saves its input.
    Conv,
    /// A sequence cut into chunks: a view, of which a gradient whose matrices are transposed is copied.
    Chunked,
    /// `F.pad` with zeros, or a copy where there is nothing to pad.
    Pad,
    /// A trained matrix times transposed tokens, folded into one product: saves both.
    Steps,
    /// A product with something that is the same for all channels; saves both.
    MulChannels,
    /// `stack`: each piece's gradient is a view; the engine runs it itself.
    Fan,
    /// `clamp` between two numbers; saves its input.
    Clamp,
    /// A running sum.
    Cumsum,
    /// `torch.linalg.solve_triangular` of so many elements of triangles; saves them and its result.
    Solve {
        /// Elements of all triangles.
        triangles: u64,
    },
    /// A fused attention kernel; which of the graph's scores are its.
    Attention(u32),
    /// The negative log likelihood.
    Nll {
        /// Elements of the log-probabilities.
        numel: u64,
    },
    /// log_softmax; saves its result.
    LogSoftmax,
    /// `x[mask]`; saves the mask.
    RowsWhere {
        /// Rows that it picks.
        rows: u64,
        /// Elements of a row.
        width: u64,
    },
    /// `masked_scatter` into zeros; saves the mask.
    ScatteredWhere,
    /// The log-probabilities of labels, tile by tile; saves its input, the labels and two numbers for each row.
    LogProbs {
        /// The head.
        shape: linear::Shape,
        /// Element type of the logits.
        compute: Dtype,
        /// Element type of the head's weight.
        stored: Dtype,
    },
    /// Liger's head and loss; saves the gradients.
    LigerLoss,
    /// Liger's RMS norm; saves its input and a number for each row.
    LigerNorm {
        /// Elements of a row.
        width: u64,
        /// Whether the gradient is written over the one that came.
        in_place: bool,
    },
    /// Liger's gated product; saves both factors and writes their gradients over them.
    LigerGated,
    /// A function of Unsloth's.
    Unsloth(functions::Function),
    /// Apple's head and loss; saves its input and a number for each row and each token of the vocabulary.
    CutLoss(linear::Shape),
}

/// The gradients of a node's inputs.
pub(super) type Results = [Option<Grad>; INPUTS];

/// The engine's validate_outputs: a gradient is summed to its input's size, then cast to its element type.
pub(super) fn validate(state: &mut State, node: &Node, results: &mut Results) {
    for (input, result) in node.inputs.iter().zip(results) {
        let Some(grad) = result else { continue };
        if grad.numel > input.numel {
            let storage = state.alloc(input.numel, grad.dtype, "sum");
            // what lies head after head is summed over stretches of memory
            if sums_columns(node.op) && grad.layout != Layout::Heads {
                let rows = grad.numel / input.numel.max(1);
                kernels::column_sum_scratch(state, rows, input.numel, grad.dtype);
            }
            state.release(grad.storage);
            *grad = Grad::new(storage, input.numel, grad.dtype, grad.layout);
        }
        if grad.dtype != input.dtype {
            let storage = state.alloc(grad.numel, input.dtype, "gradient cast");
            state.release(grad.storage);
            let layout = dense(grad.layout);
            *grad = Grad { storage, dtype: input.dtype, view: false, layout, ..*grad };
        }
    }
}

/// Whether what is broadcast in an operation is a row for all rows, rather than a number for each row.
fn sums_columns(op: Op) -> bool {
    matches!(op, Op::AddRow | Op::MulWeight | Op::MulChannels | Op::Linear(_))
}

/// A further reference to a gradient.
fn share(state: &mut State, grad: Grad) -> Grad {
    state.retain(grad.storage);
    grad
}

/// A new gradient of the same shape and, unless it is an expanded view, layout as another.
pub(super) fn like(state: &mut State, grad: Grad, operation: &'static str) -> Grad {
    let storage = state.alloc(grad.numel, grad.dtype, operation);
    Grad { storage, view: false, layout: dense(grad.layout), ..grad }
}

fn dense(layout: Layout) -> Layout {
    if layout == Layout::Expanded { Layout::Tokens } else { layout }
}

/// Runs a node's backward on the gradients of its outputs, which stay the caller's.
pub(super) fn compute(state: &mut State, node: &Node, grads: &mut Results) -> Results {
    let [first, second, third] = node.inputs;
    let Some(grad) = grads[0] else {
        return match node.op {
            Op::Split => [Some(split(state, node, *grads)), None, None],
            _ => [None; INPUTS],
        };
    };
    match node.op {
        Op::Pass => [Some(share(state, grad)), None, None],
        Op::Reshape => {
            let result = if matches!(grad.layout, Layout::Tokens | Layout::Columns) {
                Grad { view: true, ..share(state, grad) }
            } else {
                Grad { layout: Layout::Tokens, ..like(state, grad, "contiguous") }
            };
            [Some(result), None, None]
        }
        Op::Transpose => [Some(Grad { view: true, ..share(state, grad) }), None, None],
        Op::Add | Op::AddRow => {
            let mut results = [None; INPUTS];
            for (input, result) in [first, second].into_iter().zip(&mut results) {
                if input.wants() {
                    *result = Some(share(state, grad));
                }
            }
            results
        }
        Op::Sub | Op::MinusRows => rare::difference(state, [first, second], grad),
        Op::CopySlice => rare::copy_slice(state, [first, second], grad),
        Op::Cast => {
            let storage = state.alloc(grad.numel, first.dtype, "cast");
            [Some(Grad { storage, dtype: first.dtype, view: false, ..grad }), None, None]
        }
        Op::Mul | Op::MulRows | Op::MulWeight | Op::MulChannels => {
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
        Op::MulConstant | Op::Scale | Op::Pointwise | Op::Negate | Op::Dropout | Op::MaskedFill => {
            [Some(like(state, grad, name_of(node.op))), None, None]
        }
        Op::Power | Op::Rsqrt => {
            // the power that is one lower (rsqrt: the cube), its multiple, the product with the gradient
            let base = like(state, grad, "pow");
            let scaled = like(state, grad, "mul");
            let result = like(state, grad, "mul");
            state.release(scaled.storage);
            state.release(base.storage);
            [Some(result), None, None]
        }
        Op::Erf => [Some(activations::erf_backward(state, grad)), None, None],
        Op::Expm1 => [Some(activations::expm1_backward(state, grad)), None, None],
        Op::Sqrt => [Some(activations::sqrt_backward(state, grad)), None, None],
        Op::Minimum => [Some(activations::minimum_backward(state, grad)), None, None],
        Op::Where => activations::where_backward(state, [first, second], grad),
        Op::MeanRows => fresh(state, grad, (first.numel, first.layout), "mean"),
        Op::Slice { whole } => fresh(state, grad, (whole, first.shape), "slice"),
        Op::Cat => {
            let mut results = [None; INPUTS];
            for (input, result) in node.inputs.iter().zip(&mut results) {
                if input.wants() {
                    *result = Some(Grad { numel: input.numel, view: true, ..share(state, grad) });
                }
            }
            results
        }
        Op::Split => [Some(split(state, node, *grads)), None, None],
        Op::Pieces | Op::Fan => [None; INPUTS],
        Op::Expand => fresh(state, grad, (first.numel, first.shape), "sum"),
        Op::Embedding { rows } => rare::embedding(state, &first, rows, grad),
        Op::Linear(shape) => {
            let grad = linear::dense_gradient(state, grad);
            grads[0] = Some(grad);
            linear::backward(state, node, shape, grad)
        }
        Op::Linear4bit(shape, quantised) => linear::backward_4bit(state, node, shape, quantised, grad),
        Op::LayerNorm { one_head, strided } => {
            norm::layer_norm_backward(state, node, (one_head, strided), grad)
        }
        Op::Bmm { second: layout } => rare::bmm(state, [first, second], layout, grad),
        Op::Chunked => rare::chunked(state, grad),
        Op::Unbatched { batch } => rare::unbatched(state, batch, grad),
        Op::Baddbmm => rare::baddbmm(state, [second, third], grad),
        Op::Index { rows, width } => {
            [Some(indexing::index_backward(state, &first, grad, rows, width)), None, None]
        }
        Op::TopK => fresh(state, grad, (first.numel, first.layout), "topk"),
        Op::Sum => {
            let (numel, layout) = (first.numel, Layout::Expanded);
            [Some(Grad { numel, layout, view: true, ..share(state, grad) }), None, None]
        }
        Op::DivideRows => rare::divide_rows(state, [first, second], grad),
        Op::Grouped { groups } => experts::grouped_backward(state, node, groups, grad),
        Op::GroupedLoop => experts::looped_backward(state, node, grad),
        Op::Permute => [Some(like(state, grad, "contiguous")), None, None],
        Op::Mm => rare::mm(state, [first, second], grad),
        Op::Convolution => rare::convolution(state, [first, second], grad),
        Op::IndexCopy => fresh(state, grad, (first.numel, first.layout), "index_select"),
        Op::Fold => experts::fold_backward(state, node, grad),
        Op::BloomGelu => [Some(rare::bloom_gelu(state, grad)), None, None],
        Op::LigerLoss => fused_loss::liger_backward(state, node),
        Op::LigerNorm { width, in_place } => liger::norm_backward(state, node, (width, in_place), grad),
        Op::LigerGated => liger::gated_backward(state, node),
        Op::Unsloth(function) => functions::backward(state, node, function, grads),
        Op::CutLoss(shape) => fused_loss::cut_backward(state, node, shape),
        Op::Conv => rare::depthwise(state, [first, second, third], grad),
        Op::Pad => fresh(state, grad, (first.numel, grad.layout), "pad"),
        Op::Steps => rare::steps(state, [first, second], grad),
        Op::Clamp => [Some(scan::clamp_backward(state, grad)), None, None],
        Op::Cumsum => [Some(scan::cumsum_backward(state, first.shape, grad)), None, None],
        Op::Solve { triangles } => scan::solve_backward(state, node, triangles, grad),
        Op::Attention(scores) => attention::backward(state, [first, second, third], scores),
        Op::Nll { numel } => loss::nll_backward(state, numel, first.dtype),
        Op::RowsWhere { rows, width } => {
            [Some(log_probs::rows_where_backward(state, &first, grad, (rows, width))), None, None]
        }
        Op::ScatteredWhere => [Some(log_probs::scattered_where_backward(state, &first, grad)), None, None],
        Op::LogProbs { shape, compute, stored } => log_probs::backward(state, node, shape, (compute, stored)),
        Op::LogSoftmax => [Some(like(state, grad, "log_softmax")), None, None],
    }
}

/// A new gradient of so many elements, laid out like that.
fn fresh(state: &mut State, grad: Grad, (numel, layout): (u64, Layout), operation: &'static str) -> Results {
    let storage = state.alloc(numel, grad.dtype, operation);
    [Some(Grad::new(storage, numel, grad.dtype, layout)), None, None]
}

fn name_of(op: Op) -> &'static str {
    match op {
        Op::Dropout => "dropout",
        Op::Negate => "neg",
        _ => "mul",
    }
}

fn product(state: &mut State, numel: u64, dtype: Dtype) -> Grad {
    Grad::new(state.alloc_product(numel, dtype, "matmul"), numel, dtype, Layout::Heads)
}

/// split's backward: the pieces' gradients (zeros for those without one) are joined into the whole's.
fn split(state: &mut State, node: &Node, grads: Results) -> Grad {
    let whole = node.inputs[0];
    let known = grads.iter().flatten().map(|grad| grad.numel).fold(0, u64::saturating_add);
    let zeros = whole.numel.saturating_sub(known);
    let zeros: StorageId = if zeros > 0 { state.alloc(zeros, whole.dtype, "zeros") } else { NOTHING };
    let storage = state.alloc(whole.numel, whole.dtype, "cat");
    state.release(zeros);
    Grad::new(storage, whole.numel, whole.dtype, whole.shape)
}
