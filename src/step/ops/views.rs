//! Views, and the copies that PyTorch makes where a view will not do.

use super::indexing::topk_backward;
use super::pointwise::promoted;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, fresh, like, only, share_view};
use crate::step::heap::NOTHING;
use crate::step::machine::{Machine, State};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static FLATTEN: What = What::step("flatten", "joined again, the next projection's input");
static REPEAT_KV: What =
    What::own("repeat_kv", "keys or values copied for every query head", Source::Modeling);
static STACK: What = What::step("stack", "parts joined in the order that the next operation needs");

impl<'m> Tensor<'m> {
    /// `x.view(batch, sequence, heads, head)`.
    pub fn split_heads(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], reshape_backward);
            state.retain(x.storage);
            Value { edge: node.output(0), ..*x }
        })
    }

    /// `x.reshape(-1, width)`: rows of all sequences.
    pub fn flattened(&self) -> Tensor<'m> {
        let mut rows = self.split_heads();
        rows.value.flat = true;
        rows
    }

    /// `x.view(batch, sequence, width)` of rows.
    pub fn unflattened(&self) -> Tensor<'m> {
        let mut tokens = self.split_heads();
        tokens.value.flat = false;
        tokens
    }

    /// `x.transpose(1, 2)` of what [`Tensor::split_heads`] made.
    pub fn heads_first(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], transpose_backward);
            state.retain(x.storage);
            // of a single token both orders are one
            let single = state.length == 1 && x.layout == Layout::Tokens;
            let layout = if single { Layout::Either } else { x.layout };
            Value { edge: node.output(0), shape: Layout::Heads, layout, ..*x }
        })
    }

    /// The same, known to be of so many heads.
    pub fn of_heads(mut self, heads: u64) -> Tensor<'m> {
        if heads == 1 && matches!(self.value.layout, Layout::Tokens | Layout::Heads) {
            self.value.layout = Layout::Either;
        }
        self
    }

    /// Both: `x.view(batch, sequence, heads, head).transpose(1, 2)`.
    pub fn to_heads(&self) -> Tensor<'m> {
        self.split_heads().heads_first()
    }

    /// `x.transpose(1, 2).contiguous().reshape(batch, sequence, heads · head)`.
    pub fn to_tokens(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], transpose_backward);
            let edge = node.output(0);
            match x.layout {
                Layout::Heads if state.length == 1 => {
                    state.retain(x.storage);
                    Value { edge, shape: Layout::Tokens, layout: Layout::Tokens, ..*x }
                }
                Layout::Tokens | Layout::Either => {
                    state.retain(x.storage);
                    Value { edge, shape: Layout::Tokens, ..*x }
                }
                Layout::Heads | Layout::Columns | Layout::Expanded => {
                    let like = Value { layout: Layout::Tokens, shape: Layout::Tokens, ..*x };
                    state.new_like(&like, x.dtype, &torch::CONTIGUOUS, edge)
                }
            }
        })
    }

    /// A slice of `numel` elements (over the last dimension): a view, the tensor itself if that is all of it.
    pub fn slice(&self, numel: u64) -> Tensor<'m> {
        if numel == self.value.numel {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], slice_backward);
            state.retain(x.storage);
            Value { edge: node.output(0), numel, ..*x }
        })
    }

    /// Chunks of `numels` elements over the last dimension: views of one node (`split`, `chunk`).
    pub fn split<const N: usize>(&self, numels: [u64; N]) -> [Tensor<'m>; N] {
        let node = self.machine.with(|state| state.split_node(N as u8, [&self.value], split_backward));
        std::array::from_fn(|index| {
            self.with(|value| {
                value.numel = numels[index];
                value.edge = node.output(index as u8);
            })
        })
    }

    /// `torch.cat((x, other), dim=-1)`: lies in the order of its shape.
    pub fn cat(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node([x, y], cat_backward);
            let whole = Value { numel: x.numel.saturating_add(y.numel), layout: x.dense_layout(), ..*x };
            state.new_like(&whole, promoted(x.dtype, y.dtype), &torch::CAT, node.output(0))
        })
    }

    /// Heads as a batch of matrices, `reshape(batch · heads, sequence, head)`: a copy where they do not lie one after the
    /// other and there is more than one sequence.
    pub fn dense_heads(&self, batch: u64) -> Tensor<'m> {
        self.apply(|state, x| state.dense(x, batch))
    }

    /// `broadcast_to` over the heads of a group, then `flatten`: a copy that lies token after token.
    pub fn broadcast(&self, times: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], expand_backward);
            let whole = Value { numel: x.numel.saturating_mul(times), ..*x };
            state.new_like(&whole, x.dtype, &FLATTEN, node.output(0))
        })
    }

    /// `x.expand(…)` to so many elements: a view, the tensor itself if it has as many.
    pub fn expanded_to(&self, numel: u64) -> Tensor<'m> {
        if numel == self.value.numel {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], expand_backward);
            state.retain(x.storage);
            Value { numel, edge: node.output(0), ..*x }
        })
    }

    /// `x.max(dim=-1, keepdim=True).values` of so many rows.
    pub fn highest_of_rows(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], topk_backward);
            let values = Value { numel: rows, ..*x };
            let values = state.new_like(&values, x.dtype, &torch::MAX, node.output(0));
            let indices = state.alloc_for(x.storage, rows, Dtype::I64, &torch::MAX_INDICES);
            state.save(node, indices);
            state.release(indices);
            values
        })
    }

    /// `repeat_kv` of a single head: a view.
    pub fn expanded_heads(&self, times: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], expand_backward);
            state.retain(x.storage);
            let numel = x.numel.saturating_mul(times);
            Value { numel, edge: node.output(0), layout: Layout::Expanded, ..*x }
        })
    }

    /// transformers' `repeat_kv`: each head copied `times` times; the same tensor for 1.
    pub fn repeat_heads(&self, times: u64) -> Tensor<'m> {
        if times <= 1 {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], expand_backward);
            let whole = Value { numel: x.numel.saturating_mul(times), layout: x.shape, ..*x };
            state.new_like(&whole, x.dtype, &REPEAT_KV, node.output(0))
        })
    }

    /// `split` along the sequence into chunks of so many elements: views of one node.
    pub fn chunks(&self, numels: &[u64]) -> Vec<Tensor<'m>> {
        let outputs = u8::try_from(numels.len()).unwrap_or(u8::MAX);
        let node = self.machine.with(|state| state.chunks_node(outputs, &self.value));
        let chunk = |(index, numel): (u8, &u64)| {
            self.with(|value| {
                value.numel = *numel;
                value.edge = node.output(index);
            })
        };
        (0..outputs).zip(numels).map(chunk).collect()
    }
}

impl Machine {
    /// `torch.stack` of tensors of one shape, or `torch.cat` of single heads: head after head.
    pub fn stacked<'m>(&'m self, chunks: &[Tensor<'m>], numel: u64) -> Tensor<'m> {
        let edges = chunks.iter().map(|chunk| (chunk.value.edge, chunk.value.numel)).collect();
        let Some(first) = chunks.first() else { return self.unassigned() };
        first.apply(|state, x| {
            let node = state.fan(edges, x);
            let whole = Value { numel, layout: Layout::Heads, shape: Layout::Heads, ..*x };
            state.new_like(&whole, x.dtype, &STACK, node.output(0))
        })
    }
}

/// The last dimension split into heads, or heads joined into it: a view, of which the gradient is a copy where it does not
/// lie token after token.
pub(in crate::step) fn reshape_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    only(if matches!(grad.layout, Layout::Tokens | Layout::Columns | Layout::Either) {
        share_view(state, grad)
    } else {
        Grad { layout: Layout::Tokens, ..like(state, grad, &torch::CONTIGUOUS) }
    })
}

/// A transposition of sequence and heads: a view.
pub(in crate::step) fn transpose_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    only(share_view(state, grad))
}

/// A slice's gradient is the whole tensor's.
pub(in crate::step) fn slice_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let whole = node.inputs[0];
    let slice = fresh(state, grad, (whole.numel, whole.dense_layout()), &torch::SLICE);
    state.take_dims(slice.storage, whole.storage);
    only(slice)
}

/// The gradients of the chunks (zeros for those without one) are joined into the whole's.
fn split_backward(state: &mut State, node: &Node, grads: &Results) -> Results {
    let whole = node.inputs[0];
    let known = grads.iter().flatten().map(|grad| grad.numel).fold(0, u64::saturating_add);
    let zeros = whole.numel.saturating_sub(known);
    let zeros = if zeros > 0 { state.alloc(zeros, whole.dtype, &torch::ZEROS) } else { NOTHING };
    let storage = state.alloc_for(whole.storage, whole.numel, whole.dtype, &torch::CAT);
    state.release(zeros);
    only(Grad::new(storage, whole.numel, whole.dtype, whole.shape))
}

/// The gradients of the parts are views.
pub(in crate::step) fn cat_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    node.inputs.map(|input| input.wants().then(|| Grad { numel: input.numel, ..share_view(state, grad) }))
}

/// An expanded view, copied or not: a sum.
pub(in crate::step) fn expand_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let narrow = node.inputs[0];
    only(fresh(state, grad, (narrow.numel, narrow.dense_layout()), &torch::SUM))
}
