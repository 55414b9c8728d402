//! Indexing, sorting and choosing: operations whose indices are tensors of their own.

use crate::dtype::Dtype;
use crate::step::autograd::{Edge, Grad, Node, Results, fresh, only, share};
use crate::step::heap::NOTHING;
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{What, torch};

static EMPTY: What = What::step("empty", "room for what is written next");
static INDEX_PUT: What = What::step("index_put", "with some rows replaced");
static SORT_ORDER: What = What::step("sort (order)", "the order of what was sorted");

impl<'m> Tensor<'m> {
    /// `x[index]` over the first dimension: `rows` rows of `width` elements. The index is kept.
    pub fn rows_at(&self, index: &Tensor<'m>, rows: u64, width: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node =
                state.node([x], move |state, node, grad| index_backward(state, node, grad, rows, width));
            state.save(node, index.value.storage);
            let numel = rows.saturating_mul(width);
            let picked = Value { numel, ..*x };
            state.new_like(&picked, x.dtype, &torch::INDEX, node.output(0))
        })
    }

    /// `x[first, second, None]`: one element for each pair of indices, which are kept.
    pub fn pairs_at(&self, positions: &Tensor<'m>, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, node, grad| pairs_backward(state, node, grad, rows));
            state.save(node, positions.value.storage);
            let picked = Value { numel: rows, ..*x };
            state.new_like(&picked, x.dtype, &torch::INDEX, node.output(0))
        })
    }

    /// `x.nonzero()` of `found` elements that are not zero, `dimensions` indices for each.
    pub fn true_at(&self, found: u64, dimensions: u64) -> Tensor<'m> {
        let (numel, found) = (self.value.numel, found.saturating_mul(dimensions).div_ceil(2));
        let storage = self.machine.with(|state| kernels::true_positions(state, numel, found));
        Tensor { machine: self.machine, value: Value::plain(storage, found.saturating_mul(2), Dtype::I64) }
    }

    /// `x.index_add_(0, index, rows)`: the index is kept, and so are the rows, of which backward needs the shape alone.
    pub fn rows_added(&self, index: &Tensor<'m>, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x, &rows.value], index_add_backward);
            if rows.value.requires_grad() {
                state.save(node, index.value.storage);
                state.save_view(node, &rows.value);
            }
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x[mask]`: the `rows` rows of `width` where the mask is true. The mask is kept.
    pub fn rows_where(&self, mask: &Tensor<'m>, rows: u64, width: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state
                .node([x], move |state, node, grad| rows_where_backward(state, node, grad, (rows, width)));
            state.save(node, mask.value.storage);
            let positions = kernels::true_positions(state, mask.value.numel, rows);
            let picked = Value { numel: rows.saturating_mul(width), ..*x };
            let value = state.new_like(&picked, x.dtype, &torch::INDEX, node.output(0));
            state.release(positions);
            value
        })
    }

    /// `x[mask] = rows` of the rows where the mask is true. The mask is kept.
    pub fn rows_put(&self, mask: &Tensor<'m>, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let (positions, count) =
                (mask.value.numel, rows.value.numel / (x.numel / mask.value.numel.max(1)).max(1));
            let node = state.node([x, &rows.value], move |state, node, grad| {
                rows_put_backward(state, node, grad, (positions, count))
            });
            state.save(node, mask.value.storage);
            let found = kernels::true_positions(state, positions, count);
            state.release(found);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// flash-attn's `index_put_first_axis`: zeros, of which as many rows as x has are x's. The index is kept.
    pub fn placed_at(&self, index: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], index_copy_backward);
            state.save(node, index.value.storage);
            state.new_like(x, x.dtype, &INDEX_PUT, node.output(0))
        })
    }

    /// `x[..., [n], :]`: a copy of `numel` elements, by an index of one element.
    pub fn picked(&self, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let index = state.alloc(1, Dtype::I64, &torch::INDEX);
            let node = state.node([x], move |state, node, grad| index_backward(state, node, grad, 1, numel));
            state.save(node, index);
            let picked = Value { numel, ..*x };
            let value = state.new_like(&picked, x.dtype, &torch::INDEX, node.output(0));
            state.release(index);
            value
        })
    }

    /// `torch.topk(x, k)` of rows of `width`: values and indices.
    pub fn top(&self, k: u64, width: u64) -> [Tensor<'m>; 2] {
        let x = self.value;
        self.machine.tensors(|state| {
            let numel = (x.numel / width.max(1)).saturating_mul(k);
            let node = state.node([&x], topk_backward);
            let values = Value { numel, ..x };
            let values = state.new_like(&values, x.dtype, &torch::TOPK, node.output(0));
            let indices = state.alloc_for(x.storage, numel, Dtype::I64, &torch::TOPK_INDICES);
            state.save(node, indices);
            [values, Value::plain(indices, numel, Dtype::I64)]
        })
    }

    /// `x.gather(1, index)`: keeps both.
    pub fn gathered(&self, index: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], topk_backward);
            state.save(node, index.value.storage);
            state.save(node, x.storage);
            let picked = Value { numel: index.value.numel, ..*x };
            state.new_like(&picked, x.dtype, &torch::GATHER, node.output(0))
        })
    }

    /// `torch.sort(x)` of one dimension of integers: values and the order.
    pub fn sorted(&self) -> [Tensor<'m>; 2] {
        let x = self.value;
        self.machine.tensors(|state| {
            let values = state.new_like(&x, x.dtype, &torch::SORT, Edge::None);
            let order = state.alloc_for(x.storage, x.numel, Dtype::I64, &SORT_ORDER);
            kernels::sort_scratch(state, x.numel);
            [values, Value::plain(order, x.numel, Dtype::I64)]
        })
    }

    /// `x.new_empty(…)` of x's element type, laid out as its shape says.
    pub fn empty_like(&self, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let empty = Value { numel, layout: x.shape, ..*x };
            state.new_like(&empty, empty.dtype, &EMPTY, Edge::None)
        })
    }

    /// A new tensor of `numel` elements without gradient.
    pub fn fresh(&self, numel: u64, dtype: Dtype, operation: &'static What) -> Tensor<'m> {
        let storage = self.machine.with(|state| state.alloc_for(self.value.storage, numel, dtype, operation));
        Tensor { machine: self.machine, value: Value::plain(storage, numel, dtype) }
    }
}

/// index_backward: zeros, into which `index_put_(accumulate=True)` adds.
fn index_backward(state: &mut State, node: &Node, grad: &Grad, rows: u64, width: u64) -> Results {
    let whole = node.inputs[0];
    let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &torch::INDEX_ZEROS);
    kernels::index_put_scratch(state, rows, whole.numel / width.max(1));
    only(Grad::new(storage, whole.numel, grad.dtype, whole.layout))
}

/// index_backward of two indices: zeros, into which `index_put_(accumulate=True)` adds.
fn pairs_backward(state: &mut State, node: &Node, grad: &Grad, rows: u64) -> Results {
    let whole = node.inputs[0];
    let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &torch::INDEX_ZEROS);
    kernels::index_put_pairs_scratch(state, rows, whole.numel, NOTHING);
    only(Grad::new(storage, whole.numel, grad.dtype, whole.layout))
}

/// index_add_backward: the sum's gradient is that of what was there before, and rows of it that of what was added.
fn index_add_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [whole, rows, _] = node.inputs;
    let other = rows.wants().then(|| fresh(state, grad, (rows.numel, rows.layout), &torch::INDEX_SELECT));
    let own = whole.wants().then(|| share(state, grad));
    [own, other, None]
}

/// index_backward of a boolean index: zeros, into which `index_put_(accumulate=True)` adds.
fn rows_where_backward(state: &mut State, node: &Node, grad: &Grad, (rows, width): (u64, u64)) -> Results {
    let whole = node.inputs[0];
    let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &torch::INDEX_ZEROS);
    let positions = whole.numel / width.max(1);
    let found = kernels::true_positions(state, positions, rows);
    kernels::index_put_pairs_scratch(state, rows, positions, found);
    only(Grad::new(storage, whole.numel, grad.dtype, whole.layout))
}

/// index_put_backward: zeros in the place of what was overwritten, and what came gets its rows.
fn rows_put_backward(
    state: &mut State,
    node: &Node,
    grad: &mut Grad,
    (positions, count): (u64, u64),
) -> Results {
    let [whole, rows, _] = node.inputs;
    let own = whole.wants().then(|| {
        let zeros = state.alloc_for(rows.storage, rows.numel, grad.dtype, &torch::ZEROS);
        let own = fresh(state, grad, (whole.numel, whole.layout), &INDEX_PUT);
        let found = kernels::true_positions(state, positions, count);
        state.release(found);
        state.release(zeros);
        own
    });
    let other = rows.wants().then(|| {
        let found = kernels::true_positions(state, positions, count);
        let storage = state.alloc_for(rows.storage, rows.numel, grad.dtype, &torch::INDEX);
        state.release(found);
        Grad::new(storage, rows.numel, grad.dtype, Layout::Tokens)
    });
    [own, other, None]
}

/// value_selecting_reduction_backward and gather_backward: zeros, of which what was chosen gets its part.
pub(in crate::step) fn topk_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let whole = node.inputs[0];
    only(fresh(state, grad, (whole.numel, whole.layout), &torch::TOPK))
}

/// `grad.index_select(…)`.
pub(in crate::step) fn index_copy_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let part = node.inputs[0];
    only(fresh(state, grad, (part.numel, part.layout), &torch::INDEX_SELECT))
}
