//! What both ways of rounding are made of: operations on rows that share a scale.

use super::{PRIMITIVES, QAT};
use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, chain, only};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::ops::pointwise::{clamp_below_backward, pass_backward};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{What, torch};

static EXTREME: What =
    What::own("amax or amin", "the largest or smallest of the weights that share a scale", QAT);
static IS_EXTREME: What =
    What::own("eq", "which weights are the largest or smallest of their group, one byte each", QAT);
static EXTREMES: What = What::own("sum", "how many weights of a group are its largest or smallest", QAT);
static WIDENED: What = What::own("cast", "which weights are extreme as 64-bit integers, to be summed", QAT);
static RECIPROCAL: What =
    What::own("reciprocal", "the scales' reciprocals, kept for the gradient", PRIMITIVES);
static SHIFTED: What = What::own(
    "add",
    "what is rounded, above its zero point: kept, as the bounds decide which gradients pass",
    PRIMITIVES,
);
static COPY: What = What::own("copy", "what was rounded in its own type", PRIMITIVES);
static ZERO: What = What::own("cast", "zero points in the type of what was rounded", PRIMITIVES);
static CENTRED: What = What::own("sub", "what was rounded, without its zero point", PRIMITIVES);
static ROUNDED: What =
    What::own("round", "rounded to what can be stored; kept, as the bounds decide which gradients pass", QAT);

impl<'m> Tensor<'m> {
    /// `torch.amax(x, dim=-1)` or `amin` of rows of that width, which keeps x and the result.
    pub(super) fn extreme_of_rows(&self, width: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], extreme_backward);
            state.save_view(node, x);
            let rows = Value { numel: x.numel / width.max(1), ..*x };
            let result = state.new_like(&rows, x.dtype, &EXTREME, node.output(0));
            if rows.numel == 1 {
                kernels::maximum_scratch(state, x.numel, x.dtype, Stream::Compute);
            }
            state.save_view(node, &result);
            result
        })
    }

    /// `_Round.apply(x)`: its gradient is passed on.
    pub(super) fn rounded(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            state.new_like(x, x.dtype, &ROUNDED, node.output(0))
        })
    }

    /// `_fake_quantize_affine` with a scale for each row, of which the zero point is of another type (`casts_zero`) or of its own.
    pub(super) fn rounded_by(&self, scale: &Tensor<'m>, casts_zero: bool) -> Tensor<'m> {
        let dtype = self.value.dtype;
        let stored = {
            let inverse = scale.viewed().inverted();
            let scaled = self.viewed().mul_rows(&inverse);
            drop(inverse);
            let rounded = scaled.rounded();
            drop(scaled);
            let shifted = rounded.add_number_as(&SHIFTED);
            drop(rounded);
            shifted.limited()
        };
        let copy = if stored.value.dtype == dtype { stored.copied() } else { stored.to_as(dtype, &COPY) };
        let zero = casts_zero.then(|| {
            let count = scale.value.numel;
            self.machine.tensor(|state| Value::plain(state.alloc(count, dtype, &ZERO), count, dtype))
        });
        let centred = copy.add_number_as(&CENTRED);
        drop((zero, copy));
        let wide = centred.mul_rows(&scale.viewed());
        drop(centred);
        let opened = wide.to(dtype);
        drop((wide, stored));
        opened
    }

    /// `1.0 / x`: its reciprocal, which autocast makes in 32 bits, times one.
    fn inverted(&self) -> Tensor<'m> {
        let autocast = self.machine.with(|state| state.autocast.is_some());
        let reciprocal = {
            let x = self.to(if autocast { Dtype::F32 } else { self.value.dtype });
            x.apply(|state, x| {
                // -grad * (result * result)
                let node = state.node([x], |state, _, grad| {
                    only(chain(state, grad, &[&torch::NEG, &torch::MUL, &torch::MUL]))
                });
                let result = state.new_like(x, x.dtype, &RECIPROCAL, node.output(0));
                state.save_view(node, &result);
                result
            })
        };
        reciprocal.scale()
    }

    /// `torch.clamp(x, min=…)`, which keeps x.
    pub(super) fn limited_below(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], clamp_below_backward);
            state.save(node, x.storage);
            state.new_like(x, x.dtype, &torch::CLAMP, node.output(0))
        })
    }
}

/// `scale_grad_by_count`: the gradient is shared among the elements that are as large as the result.
fn extreme_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let all = node.inputs[0];
    let mask = state.alloc_for(all.storage, all.numel, Dtype::Bool, &IS_EXTREME);
    let count = state.alloc_for(grad.storage, grad.numel, Dtype::I64, &EXTREMES);
    let widened = state.alloc_for(all.storage, all.numel, Dtype::I64, &WIDENED);
    if grad.numel == 1 {
        kernels::sum_scratch(state, all.numel, Dtype::I64);
    }
    state.release(widened);
    let shared = state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::DIV);
    let storage = state.alloc_for(all.storage, all.numel, grad.dtype, &torch::MUL);
    [shared, count, mask].into_iter().for_each(|made| state.release(made));
    only(Grad::new(storage, all.numel, grad.dtype, all.layout))
}
