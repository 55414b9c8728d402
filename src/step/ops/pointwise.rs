//! Element-wise operations.

use crate::dtype::Dtype;
use crate::step::autograd::{Edge, Grad, Node, Results, like, only, share};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{What, torch};

static GE: What = What::step("ge", "a comparison, one byte per element");
static LE: What = What::step("le", "a comparison, one byte per element");
static RSQRT: What = What::step("rsqrt", "one statistic per row: the reciprocal of the root");
static SLICE_CLONE: What = What::step("clone of the slice", "a copy of a slice");

/// The element type of an operation on two tensors.
pub(in crate::step) fn promoted(a: Dtype, b: Dtype) -> Dtype {
    match (a, b) {
        // neither holds what the other can
        (Dtype::F16, Dtype::Bf16) | (Dtype::Bf16, Dtype::F16) => Dtype::F32,
        _ if a == b || b.bytes() < a.bytes() => a,
        _ => b,
    }
}

impl State {
    /// A new tensor shaped and laid out like `value`.
    pub fn new_like(&mut self, value: &Value, dtype: Dtype, operation: &'static What, edge: Edge) -> Value {
        let storage = self.alloc_for(value.storage, value.numel, dtype, operation);
        let layout = if value.layout == Layout::Expanded { value.shape } else { value.layout };
        Value { storage, dtype, edge, layout, ..*value }
    }
}

impl<'m> Tensor<'m> {
    pub fn apply(&self, run: impl FnOnce(&mut State, &Value) -> Value) -> Tensor<'m> {
        self.machine.tensor(|state| run(state, &self.value))
    }

    /// `x.clone()`.
    pub fn copied(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            state.new_like(x, x.dtype, &torch::CLONE, node.output(0))
        })
    }

    /// `x.clone()` of rows of that width, which are fewer than those of the tensor that they are a slice of.
    pub fn copied_rows(&self, width: u64) -> Tensor<'m> {
        let copy = self.copied();
        let (storage, rows) = (copy.value.storage, copy.value.numel / width.max(1));
        self.machine.with(|state| state.take_rows(storage, self.value.storage, rows));
        copy
    }

    /// `x + other`, of one shape.
    pub fn add(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.add_as(other, &torch::ADD)
    }

    /// The same of which more is known.
    pub fn add_as(&self, other: &Tensor<'m>, what: &'static What) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node([x, y], add_backward);
            state.new_like(x, promoted(x.dtype, y.dtype), what, node.output(0))
        })
    }

    /// `x + y` of values without a name: Python lets go of the left one first.
    pub fn into_sum(self, other: Tensor<'m>) -> Tensor<'m> {
        let sum = self.add(&other);
        drop((self, other));
        sum
    }

    /// `x - y` of such.
    pub fn into_difference(self, other: Tensor<'m>) -> Tensor<'m> {
        let difference = self.minus(&other);
        drop((self, other));
        difference
    }

    /// `x * y` of such.
    pub fn into_product(self, other: Tensor<'m>) -> Tensor<'m> {
        let product = self.mul(&other);
        drop((self, other));
        product
    }

    /// `x + row`, where the row (a position embedding, a mask) is broadcast over x.
    pub fn add_row(&self, row: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &row.value;
            let node = state.row_node([x, y], add_backward);
            state.new_like(x, promoted(x.dtype, y.dtype), &torch::ADD, node.output(0))
        })
    }

    /// `x += bias`, where the bias is the same for every sequence.
    pub fn biased_in_place(&self, bias: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x, &bias.value], add_backward);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x + bias`, where the bias is the same for every sequence.
    pub fn biased(&self, bias: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &bias.value;
            let node = state.node([x, y], add_backward);
            state.new_like(x, promoted(x.dtype, y.dtype), &torch::ADD, node.output(0))
        })
    }

    /// `x - other`, of one shape.
    pub fn minus(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.minus_as(other, &torch::SUB)
    }

    /// `x - other`, of one shape or broadcast over x, of which more is known.
    pub fn minus_as(&self, other: &Tensor<'m>, what: &'static What) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node([x, y], sub_backward);
            state.new_like(x, promoted(x.dtype, y.dtype), what, node.output(0))
        })
    }

    /// `whole[..., slice].copy_(x)` of a tensor that is this one, where nobody needs the old contents.
    pub fn slice_filled(&self, x: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, whole| {
            let node = state.node([whole, &x.value], copy_slice_backward);
            state.retain(whole.storage);
            whole.at(node.output(0))
        })
    }

    /// `x += other`.
    pub fn add_in_place(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x, &other.value], add_backward);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x + number`.
    pub fn add_number(&self) -> Tensor<'m> {
        self.add_number_as(&torch::ADD)
    }

    /// `x + number`, or a tensor without gradient that is broadcast over x, of which more is known.
    pub fn add_number_as(&self, what: &'static What) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            state.new_like(x, x.dtype, what, node.output(0))
        })
    }

    /// `x += number`.
    pub fn add_number_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x * number` or `x / number`: the number is no tensor that checkpointing would see.
    pub fn scale(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.new_like(x, x.dtype, &torch::MUL, node.output(0))
        })
    }

    /// `x *= number`, where nobody needs the old x.
    pub fn scale_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x * buffer`, broadcast over x.
    pub fn times_buffer(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.save(node, NOTHING);
            state.new_like(x, x.dtype, &torch::MUL, node.output(0))
        })
    }

    /// `x *= buffer` of a single element.
    pub fn times_buffer_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.save(node, NOTHING);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x[rows, width] /= r[rows, 1]`: autograd copies x first.
    pub fn divide_rows_in_place(&self, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let r = &rows.value;
            let copy = if state.graph.enabled && r.requires_grad() {
                state.alloc_for(x.storage, x.numel, x.dtype, &torch::CLONE)
            } else {
                NOTHING
            };
            let node = state.node([x, r], div_rows_backward);
            state.save_view(node, r);
            state.save(node, copy);
            state.release(copy);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `torch.clamp_(x, min, max)`: autograd copies x first.
    pub fn limited_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let wanted = state.graph.is_recorded() && x.requires_grad();
            let copy =
                if wanted { state.alloc_for(x.storage, x.numel, x.dtype, &torch::CLONE) } else { NOTHING };
            let node = state.node([x], clamp_backward);
            state.save(node, copy);
            state.release(copy);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `torch.clamp(x, min, max)`; saves x.
    pub fn limited(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], clamp_backward);
            state.save(node, x.storage);
            state.new_like(x, x.dtype, &torch::CLAMP, node.output(0))
        })
    }

    /// `x[rows, width] / r[rows, 1]`.
    pub fn divided_by_rows(&self, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let r = &rows.value;
            let node = state.node([x, r], div_rows_backward);
            state.save_view(node, r);
            if r.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, x.dtype, &torch::DIV, node.output(0))
        })
    }

    /// `x.masked_fill(mask, number)`.
    pub fn masked_fill(&self, mask: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.save(node, mask.value.storage);
            state.new_like(x, x.dtype, &torch::MASKED_FILL, node.output(0))
        })
    }

    /// `torch.where(mask, x, number)` with a mask that is there anyway.
    pub fn where_not(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.save(node, NOTHING);
            state.new_like(x, x.dtype, &torch::WHERE, node.output(0))
        })
    }

    /// `x.masked_fill_(mask, number)`.
    pub fn masked_fill_in_place(&self, mask: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.save(node, mask.value.storage);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// An autograd function written in Python that saves its input and computes without recording: `run` is given what
    /// makes a tensor like the input.
    pub fn by_function(
        &self,
        run: impl FnOnce(&dyn Fn(&'static What) -> Tensor<'m>) -> Tensor<'m>,
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> Tensor<'m> {
        let like = |operation| self.apply(|state, x| state.new_like(x, x.dtype, operation, Edge::None));
        let result = run(&like);
        let node = self.machine.with(|state| {
            let node = state.node([&self.value], derivative);
            state.save_view(node, &self.value);
            node
        });
        result.with(|value| value.edge = node.output(0))
    }

    /// `-x`.
    pub fn negate(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &torch::NEG)));
            // the slice of a tensor that lies head after head is as dense as its shape says
            let dense = Value { layout: x.dense_layout(), ..*x };
            state.new_like(&dense, x.dtype, &torch::NEG, node.output(0))
        })
    }

    /// `x * other`, of one shape, both with or without gradient.
    pub fn mul(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node([x, y], mul_backward);
            if x.requires_grad() {
                state.save_view(node, y);
            }
            if y.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, promoted(x.dtype, y.dtype), &torch::MUL, node.output(0))
        })
    }

    /// `number * x` of a single number.
    pub fn times_number(&self, number: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let number = &number.value;
            let node = state.node([number, x], mul_backward);
            if number.requires_grad() {
                state.save_view(node, x);
            }
            if x.requires_grad() {
                state.save_view(node, number);
            }
            state.new_like(x, promoted(number.dtype, x.dtype), &torch::MUL, node.output(0))
        })
    }

    /// `x * constant`, where the constant (rotary cos and sin) has no gradient and is broadcast over x.
    pub fn mul_constant(&self, constant: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &constant.value;
            let node = state.node([x], scale_backward);
            state.save_view(node, y);
            state.new_like(x, promoted(x.dtype, y.dtype), &torch::MUL, node.output(0))
        })
    }

    /// `x[rows, width] * r[rows, 1]`.
    pub fn mul_rows(&self, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let r = &rows.value;
            let node = state.node([x, r], mul_backward);
            if x.requires_grad() {
                state.save_view(node, r);
            }
            if r.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, promoted(x.dtype, r.dtype), &torch::MUL, node.output(0))
        })
    }

    /// `x.pow(n)` for n above 1. autocast runs it in float32.
    pub fn power(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let x = state.cast(x, if state.autocast.is_some() { Dtype::F32 } else { x.dtype });
            let node = state.node([&x], pow_backward);
            state.save_view(node, &x);
            let result = state.new_like(&x, x.dtype, &torch::POW, node.output(0));
            state.release(x.storage);
            result
        })
    }

    /// `torch.rsqrt(x)`.
    pub fn rsqrt(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pow_backward);
            let result = state.new_like(x, x.dtype, &RSQRT, node.output(0));
            state.save_view(node, &result);
            result
        })
    }

    /// An activation that is one kernel and keeps its input (silu, gelu).
    pub fn keeping_input(&self, operation: &'static What) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.save_view(node, x);
            state.new_like(x, x.dtype, operation, node.output(0))
        })
    }

    /// An activation that is one kernel and keeps its output (tanh, relu, sigmoid).
    pub fn keeping_output(&self, operation: &'static What) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            let result = state.new_like(x, x.dtype, operation, node.output(0));
            state.save_view(node, &result);
            result
        })
    }
}

/// The gradient as it is: of an added number, a clone.
pub(in crate::step) fn pass_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    only(share(state, grad))
}

/// `grad` to both.
pub(in crate::step) fn add_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, _] = node.inputs;
    let own = first.wants().then(|| share(state, grad));
    let other = second.wants().then(|| share(state, grad));
    [own, other, None]
}

/// The second operand's gradient is the negative.
pub(in crate::step) fn sub_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, _] = node.inputs;
    let other = second.wants().then(|| like(state, grad, &torch::NEG));
    [first.wants().then(|| share(state, grad)), other, None]
}

/// A slice filled in place (`CopySlices` around `CopyBackwards`): what was there before gets zeros, what came gets its part.
fn copy_slice_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, _] = node.inputs;
    let whole = Grad { layout: first.layout, ..like(state, grad, &torch::CLONE) };
    let slice = state.alloc_for(second.storage, second.numel, grad.dtype, &SLICE_CLONE);
    let own = if first.wants() {
        state.scratch(second.numel.saturating_mul(grad.dtype.bytes()), &torch::ZEROS);
        Some(whole)
    } else {
        state.release(whole.storage);
        None
    };
    [own, Some(Grad::new(slice, second.numel, grad.dtype, second.shape)), None]
}

/// The gradient times the other factor, the second factor's first.
pub(in crate::step) fn mul_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, _] = node.inputs;
    let other = second.wants().then(|| like(state, grad, &torch::MUL));
    let own = first.wants().then(|| like(state, grad, &torch::MUL));
    [own, other, None]
}

/// One kernel from the gradient and what was saved, if anything, to the input's gradient.
pub(in crate::step) fn scale_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    only(like(state, grad, &torch::MUL))
}

/// pow_backward and rsqrt_backward: the power that is one lower (rsqrt: the cube), its multiple, the product with the gradient.
fn pow_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    let base = like(state, grad, &torch::POW);
    let scaled = like(state, grad, &torch::MUL);
    let result = like(state, grad, &torch::MUL);
    state.release(scaled.storage);
    state.release(base.storage);
    only(result)
}

/// `grad / other` and, for the second operand, `-grad * ((self / other) / other)`.
fn div_rows_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, _] = node.inputs;
    let other = second.wants().then(|| {
        let negative = like(state, grad, &torch::NEG);
        let quotient = like(state, grad, &torch::DIV);
        let again = like(state, grad, &torch::DIV);
        let result = like(state, grad, &torch::MUL);
        [again, quotient, negative].into_iter().for_each(|grad| state.release(grad.storage));
        result
    });
    let own = first.wants().then(|| like(state, grad, &torch::DIV));
    [own, other, None]
}

/// clamp_backward of two bounds: `where(self >= min && self <= max, grad, 0)`.
pub(in crate::step) fn clamp_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    masked_by_bounds(state, grad, &[&GE, &LE])
}

/// The same of a lower bound alone.
pub(in crate::step) fn clamp_below_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    masked_by_bounds(state, grad, &[&GE])
}

fn masked_by_bounds(state: &mut State, grad: &Grad, bounds: &[&'static What]) -> Results {
    let zero = state.alloc(1, grad.dtype, &torch::ZERO);
    let mask = |bound: &&'static What| state.alloc_for(grad.storage, grad.numel, Dtype::Bool, bound);
    let masks: Vec<_> = bounds.iter().map(mask).collect();
    let storage = state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::WHERE);
    masks.into_iter().rev().chain([zero]).for_each(|mask| state.release(mask));
    only(Grad { storage, view: false, ..*grad })
}
