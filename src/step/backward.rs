//! What each operation does in backward: which gradients it makes, in which order, and what it needs meanwhile.
//!
//! Source: the formulas of tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp of PyTorch 2.11;
//! the order of events was compared with the allocator's trace of the same operation.

use super::attention;
use super::autograd::{Grad, INPUTS, Input, Node};
use super::experts;
use super::forward::stacks::liger;
use super::forward::stacks::unsloth::functions;
use super::fused_loss;
use super::indexing;
use super::kernels;
use super::linear;
use super::loss;
use super::machine::{NOTHING, State, StorageId};
use super::norm;
use super::scan;
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
        /// Rows.
        rows: u64,
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
#[inline(never)]
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

/// models/bloom `bloom_gelu_back`.
#[inline(never)]
fn bloom_gelu(state: &mut State, grad: Grad) -> Grad {
    let numel = grad.numel;
    let new = |state: &mut State| state.alloc(numel, grad.dtype, "gelu");
    let free = |state: &mut State, ids: &[StorageId]| ids.iter().for_each(|id| state.release(*id));
    // tanh(0.79788456 * x * (1 + 0.044715 * x * x))
    let scaled = new(state);
    let small = new(state);
    let square = new(state);
    free(state, &[small]);
    let sum = new(state);
    free(state, &[square]);
    let product = new(state);
    free(state, &[scaled, sum]);
    let tanh = new(state);
    free(state, &[product]);
    // 0.5 * x * ((1 - tanh * tanh) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + tanh)
    let half = new(state);
    let square = new(state);
    let rest = new(state);
    free(state, &[square]);
    let small = new(state);
    let square = new(state);
    free(state, &[small]);
    let sum = new(state);
    free(state, &[square]);
    let inner = new(state);
    free(state, &[rest, sum]);
    let first = new(state);
    free(state, &[half, inner]);
    let one = new(state);
    let second = new(state);
    free(state, &[one]);
    let factor = new(state);
    free(state, &[first, second]);
    let result = new(state);
    free(state, &[tanh, factor]);
    Grad { storage: result, view: false, ..grad }
}

/// A further reference to a gradient.
fn share(state: &mut State, grad: Grad) -> Grad {
    state.retain(grad.storage);
    grad
}

/// A new gradient of the same shape and, unless it is an expanded view, layout as another.
fn like(state: &mut State, grad: Grad, operation: &'static str) -> Grad {
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
        Op::Sub => {
            let other = second.wants().then(|| like(state, grad, "neg"));
            [first.wants().then(|| share(state, grad)), other, None]
        }
        Op::CopySlice => copy_slice(state, [first, second], grad),
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
        Op::Power => {
            let base = like(state, grad, "pow");
            let scaled = like(state, grad, "mul");
            let result = like(state, grad, "mul");
            state.release(scaled.storage);
            state.release(base.storage);
            [Some(result), None, None]
        }
        Op::MinusRows => {
            let rows = second.wants().then(|| like(state, grad, "neg"));
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
        Op::Split => [Some(split(state, node, *grads)), None, None],
        Op::Pieces | Op::Fan => [None; INPUTS],
        Op::Expand => {
            let storage = state.alloc(first.numel, grad.dtype, "sum");
            [Some(Grad::new(storage, first.numel, grad.dtype, first.shape)), None, None]
        }
        Op::Embedding { rows } => {
            let dense = if grad.layout == Layout::Heads {
                state.alloc(grad.numel, grad.dtype, "contiguous")
            } else {
                NOTHING
            };
            let sorted = kernels::embedding_order(state, rows);
            let storage = state.alloc(first.numel, grad.dtype, "embedding");
            let width = grad.numel / rows.max(1);
            kernels::embedding_scratch(state, rows, width, first.numel / width.max(1));
            sorted.into_iter().for_each(|storage| state.release(storage));
            state.release(dense);
            [Some(Grad::new(storage, first.numel, grad.dtype, Layout::Tokens)), None, None]
        }
        Op::Linear(shape) => {
            let grad = linear::dense_gradient(state, grad);
            grads[0] = Some(grad);
            linear::backward(state, node, shape, grad)
        }
        Op::Linear4bit(shape, quantised) => linear::backward_4bit(state, node, shape, quantised, grad),
        Op::LayerNorm { rows } => norm::layer_norm_backward(state, node, rows, grad),
        Op::Bmm { second: layout } => {
            // both operands were views of tensors with more dimensions
            let view = true;
            let other =
                second.wants().then(|| Grad { layout, view, ..product(state, second.numel, grad.dtype) });
            let own = first.wants().then(|| Grad { view, ..product(state, first.numel, grad.dtype) });
            [own, other, None]
        }
        Op::Chunked => {
            let result = if grad.layout == Layout::Columns {
                Grad { layout: Layout::Heads, ..like(state, grad, "contiguous") }
            } else {
                Grad { view: true, ..share(state, grad) }
            };
            [Some(result), None, None]
        }
        Op::Unbatched { batch } => {
            let result = if grad.layout == Layout::Tokens && batch > 1 {
                Grad { layout: Layout::Heads, ..like(state, grad, "contiguous") }
            } else {
                Grad { view: true, layout: Layout::Heads, ..share(state, grad) }
            };
            [Some(result), None, None]
        }
        Op::Baddbmm => baddbmm(state, [second, third], grad),
        Op::Index { rows, width } => {
            [Some(indexing::index_backward(state, &first, grad, rows, width)), None, None]
        }
        Op::TopK => {
            let storage = state.alloc(first.numel, grad.dtype, "topk");
            [Some(Grad::new(storage, first.numel, grad.dtype, first.layout)), None, None]
        }
        Op::Sum => {
            let (numel, layout) = (first.numel, Layout::Expanded);
            [Some(Grad { numel, layout, view: true, ..share(state, grad) }), None, None]
        }
        Op::DivideRows => divide_rows(state, [first, second], grad),
        Op::Grouped { groups } => experts::grouped_backward(state, node, groups, grad),
        Op::GroupedLoop => experts::looped_backward(state, node, grad),
        Op::Permute => [Some(like(state, grad, "contiguous")), None, None],
        Op::Mm => {
            let other = second.wants().then(|| product(state, second.numel, grad.dtype));
            let own = first.wants().then(|| product(state, first.numel, grad.dtype));
            [own, other, None]
        }
        Op::Convolution => convolution(state, [first, second], grad),
        Op::IndexCopy => {
            let storage = state.alloc(first.numel, grad.dtype, "index_select");
            [Some(Grad::new(storage, first.numel, grad.dtype, first.layout)), None, None]
        }
        Op::Fold => experts::fold_backward(state, node, grad),
        Op::BloomGelu => [Some(bloom_gelu(state, grad)), None, None],
        Op::LigerLoss => fused_loss::liger_backward(state, node),
        Op::LigerNorm { width, in_place } => liger::norm_backward(state, node, (width, in_place), grad),
        Op::LigerGated => liger::gated_backward(state, node),
        Op::Unsloth(function) => functions::backward(state, node, function, grads),
        Op::CutLoss(shape) => fused_loss::cut_backward(state, node, shape),
        Op::Conv => depthwise(state, [first, second, third], grad),
        Op::Pad => {
            let storage = state.alloc(first.numel, grad.dtype, "pad");
            [Some(Grad::new(storage, first.numel, grad.dtype, grad.layout)), None, None]
        }
        Op::Steps => {
            let other = second.wants().then(|| product(state, second.numel, grad.dtype));
            let own = first.wants().then(|| Grad { view: true, ..product(state, first.numel, grad.dtype) });
            let own = own.map(|own| Grad { layout: Layout::Tokens, ..own });
            [own, other, None]
        }
        Op::Clamp => [Some(scan::clamp_backward(state, grad)), None, None],
        Op::Cumsum => [Some(scan::cumsum_backward(state, first.shape, grad)), None, None],
        Op::Solve { triangles } => scan::solve_backward(state, node, triangles, grad),
        Op::Attention(scores) => attention::backward(state, [first, second, third], scores),
        Op::Nll { numel } => loss::nll_backward(state, numel, first.dtype),
        Op::LogSoftmax => [Some(like(state, grad, "log_softmax")), None, None],
    }
}

/// A slice filled in place: what was there before gets zeros, what came gets its part.
#[inline(never)]
fn copy_slice(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
    let whole = Grad { layout: first.layout, ..like(state, grad, "clone") };
    let slice = state.alloc(second.numel, grad.dtype, "clone of the slice");
    let own = if first.wants() {
        state.scratch(second.numel.saturating_mul(grad.dtype.bytes()), "zeros");
        Some(whole)
    } else {
        state.release(whole.storage);
        None
    };
    [own, Some(Grad::new(slice, second.numel, grad.dtype, second.shape)), None]
}

/// `x /= r` of rows, in place.
#[inline(never)]
fn divide_rows(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
    let other = second.wants().then(|| {
        // -grad * ((self / other) / other)
        let negative = like(state, grad, "neg");
        let quotient = like(state, grad, "div");
        let again = like(state, grad, "div");
        let result = like(state, grad, "mul");
        [again, quotient, negative].into_iter().for_each(|grad| state.release(grad.storage));
        result
    });
    let own = first.wants().then(|| like(state, grad, "div"));
    [own, other, None]
}

/// `baddbmm` with a factor, which scales the gradients of both operands.
#[inline(never)]
fn baddbmm(state: &mut State, [second, third]: [Input; 2], grad: Grad) -> Results {
    let mut scaled = |input: Input| {
        let raw = product(state, input.numel, grad.dtype);
        let result = like(state, raw, "mul");
        state.release(raw.storage);
        result
    };
    let own = second.wants().then(|| scaled(second));
    let other = third.wants().then(|| scaled(third));
    [None, own, other]
}

/// A convolution over single tokens: its input and its gradient are copied.
#[inline(never)]
fn convolution(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
    let copies =
        [state.alloc(first.numel, grad.dtype, "contiguous"), like(state, grad, "contiguous").storage];
    let own = first.wants().then(|| product(state, first.numel, grad.dtype));
    let other = second.wants().then(|| product(state, second.numel, grad.dtype));
    copies.into_iter().for_each(|storage| state.release(storage));
    [own, other, None]
}

/// A depthwise convolution.
#[inline(never)]
fn depthwise(state: &mut State, [first, second, third]: [Input; 3], grad: Grad) -> Results {
    let copy = state.alloc(first.numel, first.dtype, "contiguous");
    let weight = second.wants().then(|| {
        let storage = state.alloc(second.numel, grad.dtype, "convolution (weight gradient)");
        Grad::new(storage, second.numel, grad.dtype, Layout::Tokens)
    });
    let own = first.wants().then(|| {
        let storage = state.alloc(first.numel, grad.dtype, "convolution (input gradient)");
        Grad::new(storage, first.numel, grad.dtype, Layout::Heads)
    });
    let bias = third.wants().then(|| {
        let storage = state.alloc(third.numel, grad.dtype, "convolution (bias gradient)");
        Grad::new(storage, third.numel, grad.dtype, Layout::Tokens)
    });
    state.release(copy);
    [own, weight, bias]
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
