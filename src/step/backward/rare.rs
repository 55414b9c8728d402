//! Derivatives of operations that few families have, each a function of its own.

use super::{Results, like, product, share};
use crate::step::autograd::{Grad, Input};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::tensor::Layout;

/// A difference: the second operand's gradient is the negative.
pub(super) fn difference(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
    let other = second.wants().then(|| like(state, grad, "neg"));
    [first.wants().then(|| share(state, grad)), other, None]
}

/// The table's gradient: the ids are sorted, then rows are summed.
pub(super) fn embedding(state: &mut State, first: &Input, rows: u64, grad: Grad) -> Results {
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

/// A batched product of views of tensors with more dimensions.
pub(super) fn bmm(state: &mut State, [first, second]: [Input; 2], layout: Layout, grad: Grad) -> Results {
    let view = true;
    let other = second.wants().then(|| Grad { layout, view, ..product(state, second.numel, grad.dtype) });
    let own = first.wants().then(|| Grad { view, ..product(state, first.numel, grad.dtype) });
    [own, other, None]
}

/// Heads cut into chunks: a view unless the gradient lies transposed.
pub(super) fn chunked(state: &mut State, grad: Grad) -> Results {
    let result = if grad.layout == Layout::Columns {
        Grad { layout: Layout::Heads, ..like(state, grad, "contiguous") }
    } else {
        Grad { view: true, ..share(state, grad) }
    };
    [Some(result), None, None]
}

/// A batch of matrices as heads of a batch of sequences.
pub(super) fn unbatched(state: &mut State, batch: u64, grad: Grad) -> Results {
    let result = if grad.layout == Layout::Tokens && batch > 1 {
        Grad { layout: Layout::Heads, ..like(state, grad, "contiguous") }
    } else {
        Grad { view: true, layout: Layout::Heads, ..share(state, grad) }
    };
    [Some(result), None, None]
}

/// A product of two matrices.
pub(super) fn mm(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
    let other = second.wants().then(|| product(state, second.numel, grad.dtype));
    let own = first.wants().then(|| product(state, first.numel, grad.dtype));
    [own, other, None]
}

/// The product of a projection of steps, whose input is a view.
pub(super) fn steps(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
    let other = second.wants().then(|| product(state, second.numel, grad.dtype));
    let own = first.wants().then(|| Grad { view: true, ..product(state, first.numel, grad.dtype) });
    let own = own.map(|own| Grad { layout: Layout::Tokens, ..own });
    [own, other, None]
}

/// models/bloom `bloom_gelu_back`.
pub(super) fn bloom_gelu(state: &mut State, grad: Grad) -> Grad {
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

/// A slice filled in place: what was there before gets zeros, what came gets its part.
pub(super) fn copy_slice(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
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
pub(super) fn divide_rows(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
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
pub(super) fn baddbmm(state: &mut State, [second, third]: [Input; 2], grad: Grad) -> Results {
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
pub(super) fn convolution(state: &mut State, [first, second]: [Input; 2], grad: Grad) -> Results {
    let copies =
        [state.alloc(first.numel, grad.dtype, "contiguous"), like(state, grad, "contiguous").storage];
    let own = first.wants().then(|| product(state, first.numel, grad.dtype));
    let other = second.wants().then(|| product(state, second.numel, grad.dtype));
    copies.into_iter().for_each(|storage| state.release(storage));
    [own, other, None]
}

/// A depthwise convolution.
pub(super) fn depthwise(state: &mut State, [first, second, third]: [Input; 3], grad: Grad) -> Results {
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
