//! Sums, means and softmax over rows.

use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, fresh, only, share_view};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{DERIVATIVES, What, torch};

static SOFTMAX: What = What::step("softmax", "softmax's output, which its own backward needs");
static SOFTMAX_PRODUCT: What = What::own(
    "softmax (grad · output)",
    "the gradient of probabilities times the probabilities, of which softmax's backward makes the gradient of the scores",
    DERIVATIVES,
);

impl<'m> Tensor<'m> {
    /// `x.sum(-1, keepdim=True)` over rows of `width`. autocast makes its result float32.
    pub fn sum_rows(&self, width: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], sum_backward);
            let rows = Value { numel: x.numel / width.max(1), ..*x };
            let dtype = if state.autocast.is_some() { Dtype::F32 } else { x.dtype };
            state.new_like(&rows, dtype, &torch::SUM, node.output(0))
        })
    }

    /// `x.view(rows, count, width).sum(dim=1)`. autocast makes its result float32.
    pub fn sum_groups(&self, count: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], sum_backward);
            let summed = Value { numel: x.numel / count.max(1), ..*x };
            let dtype = if state.autocast.is_some() { Dtype::F32 } else { x.dtype };
            state.new_like(&summed, dtype, &torch::SUM, node.output(0))
        })
    }

    /// `x.view(rows, count, width).sum(dim=1, dtype=torch.float32)`.
    pub fn sum_groups_float(&self, count: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], sum_backward);
            let summed = Value { numel: x.numel / count.max(1), ..*x };
            state.new_like(&summed, Dtype::F32, &torch::SUM, node.output(0))
        })
    }

    /// `x.mean(-1, keepdim=True)` over rows of `width`.
    pub fn mean_rows(&self, width: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, grad| {
                let rows = node.inputs[0];
                only(fresh(state, grad, (rows.numel, rows.layout), &torch::MEAN))
            });
            let rows = Value { numel: x.numel / width.max(1), ..*x };
            state.new_like(&rows, x.dtype, &torch::MEAN, node.output(0))
        })
    }

    /// `softmax(x, -1)`. autocast asks for a result of float32.
    pub fn softmax(&self) -> Tensor<'m> {
        let autocast = self.machine.with(|state| state.autocast.is_some());
        if autocast { self.softmax_float() } else { self.softmax_into(self.value.dtype) }
    }

    /// `softmax(x, -1, dtype=torch.float32)`: float16 is one kernel, other types are cast first
    /// (aten/src/ATen/native/SoftMax.cpp).
    pub fn softmax_float(&self) -> Tensor<'m> {
        match self.value.dtype {
            Dtype::F16 => self.softmax_into(Dtype::F32),
            _ => self.to(Dtype::F32).softmax_into(Dtype::F32),
        }
    }

    /// `softmax(x, -1, dtype=x.dtype)`: autocast leaves alone what says its type (ATen/autocast_mode.h `fp32_set_opt_dtype`).
    pub fn softmax_as_it_is(&self) -> Tensor<'m> {
        self.softmax_into(self.value.dtype)
    }

    fn softmax_into(&self, dtype: Dtype) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], softmax_backward);
            let result = state.new_like(x, dtype, &SOFTMAX, node.output(0));
            state.save_view(node, &result);
            result
        })
    }
}

/// A sum over a dimension: its gradient is an expanded view.
fn sum_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let numel = node.inputs[0].numel;
    only(Grad { numel, layout: Layout::Expanded, ..share_view(state, grad) })
}

/// softmax_backward_cuda_out: the result, then `tmp = grad * output`.
fn softmax_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let dtype = node.inputs[0].dtype;
    let storage = state.alloc_for(grad.storage, grad.numel, dtype, &SOFTMAX);
    let product = state.alloc_for(grad.storage, grad.numel, grad.dtype, &SOFTMAX_PRODUCT);
    state.release(product);
    only(Grad::new(storage, grad.numel, dtype, grad.layout))
}
