//! Element-wise operations, casts and dropout.

use crate::dtype::Dtype;
use crate::step::autograd::{Edge, Input};
use crate::step::backward::Op;
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};

/// The element type of an operation on two tensors.
pub(in crate::step) fn promoted(a: Dtype, b: Dtype) -> Dtype {
    if a == b || b.bytes() < a.bytes() { a } else { b }
}

impl State {
    /// A new tensor shaped and laid out like `value`.
    pub fn new_like(&mut self, value: &Value, dtype: Dtype, operation: &'static str, edge: Edge) -> Value {
        let storage = self.alloc(value.numel, dtype, operation);
        Value { storage, dtype, edge, ..*value }
    }

    /// A change of element type; the same tensor where there is none to make.
    pub fn cast(&mut self, value: &Value, dtype: Dtype) -> Value {
        if value.dtype == dtype {
            self.retain(value.storage);
            return *value;
        }
        let node = self.node(Op::Cast, [value.into(), Input::NONE, Input::NONE]);
        self.new_like(value, dtype, "cast", node.output(0))
    }
}

impl<'m> Tensor<'m> {
    pub fn apply(&self, run: impl FnOnce(&mut State, &Value) -> Value) -> Tensor<'m> {
        let value = run(&mut self.machine.state.borrow_mut(), &self.value);
        Tensor { machine: self.machine, value }
    }

    /// `x.to(dtype)`.
    pub fn to(&self, dtype: Dtype) -> Tensor<'m> {
        self.apply(|state, x| state.cast(x, dtype))
    }

    /// `x.clone()`.
    pub fn copied(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Pass, [x.into(), Input::NONE, Input::NONE]);
            state.new_like(x, x.dtype, "clone", node.output(0))
        })
    }

    /// `x + other`, of one shape.
    pub fn add(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node(Op::Add, [x.into(), y.into(), Input::NONE]);
            state.new_like(x, promoted(x.dtype, y.dtype), "add", node.output(0))
        })
    }

    /// `x + row`, where the row (a position embedding, a mask) is broadcast over x.
    pub fn add_row(&self, row: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &row.value;
            let node = state.node(Op::AddRow, [x.into(), y.into(), Input::NONE]);
            state.new_like(x, promoted(x.dtype, y.dtype), "add", node.output(0))
        })
    }

    /// `x += bias`, where the bias is the same for every sequence.
    pub fn biased_in_place(&self, bias: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Add, [x.into(), (&bias.value).into(), Input::NONE]);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x + bias`, where the bias is the same for every sequence.
    pub fn biased(&self, bias: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &bias.value;
            let node = state.node(Op::Add, [x.into(), y.into(), Input::NONE]);
            state.new_like(x, promoted(x.dtype, y.dtype), "add", node.output(0))
        })
    }

    /// `x - other`, of one shape.
    pub fn minus(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node(Op::Sub, [x.into(), y.into(), Input::NONE]);
            state.new_like(x, promoted(x.dtype, y.dtype), "sub", node.output(0))
        })
    }

    /// `whole[..., slice].copy_(x)` of a tensor that is this one, where nobody needs the old contents.
    pub fn slice_filled(&self, x: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, whole| {
            let inputs = [whole.into(), (&x.value).into(), Input::NONE];
            let node = state.node(Op::CopySlice, inputs);
            state.retain(whole.storage);
            whole.at(node.output(0))
        })
    }

    /// `x += other`.
    pub fn add_in_place(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Add, [x.into(), (&other.value).into(), Input::NONE]);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x + number`.
    pub fn add_number(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Pass, [x.into(), Input::NONE, Input::NONE]);
            state.new_like(x, x.dtype, "add", node.output(0))
        })
    }

    /// `x += number`.
    pub fn add_number_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Pass, [x.into(), Input::NONE, Input::NONE]);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x * number` or `x / number`: the number is no tensor that checkpointing would see.
    pub fn scale(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Scale, [x.into(), Input::NONE, Input::NONE]);
            state.new_like(x, x.dtype, "mul", node.output(0))
        })
    }

    /// `x *= number`, where nobody needs the old x.
    pub fn scale_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Scale, [x.into(), Input::NONE, Input::NONE]);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x * buffer`, broadcast over x.
    pub fn times_buffer(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Scale, [x.into(), Input::NONE, Input::NONE]);
            state.save(node, NOTHING);
            state.new_like(x, x.dtype, "mul", node.output(0))
        })
    }

    /// `x *= buffer` of a single element.
    pub fn times_buffer_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Scale, [x.into(), Input::NONE, Input::NONE]);
            state.save(node, NOTHING);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x[rows, width] /= r[rows, 1]`: autograd copies x first.
    pub fn divide_rows_in_place(&self, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let r = &rows.value;
            let inputs = [Input::from(x), r.into(), Input::NONE];
            let wanted = state.graph.enabled && (x.requires_grad() || r.requires_grad());
            let copy =
                if wanted && r.requires_grad() { state.alloc(x.numel, x.dtype, "clone") } else { NOTHING };
            let node = state.node(Op::DivideRows, inputs);
            state.save_view(node, r);
            if r.requires_grad() {
                state.save(node, copy);
            }
            state.release(copy);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `torch.clamp_(x, min, max)`: autograd copies x first.
    pub fn limited_in_place(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let wanted = state.graph.is_recorded() && x.requires_grad();
            let copy = if wanted { state.alloc(x.numel, x.dtype, "clone") } else { NOTHING };
            let node = state.node(Op::Clamp, [x.into(), Input::NONE, Input::NONE]);
            state.save(node, copy);
            state.release(copy);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `x[rows, width] / r[rows, 1]`.
    pub fn divided_by_rows(&self, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let r = &rows.value;
            let node = state.node(Op::DivideRows, [x.into(), r.into(), Input::NONE]);
            state.save_view(node, r);
            if r.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, x.dtype, "div", node.output(0))
        })
    }

    /// `x.sum(-1, keepdim=True)` over rows of `width`. autocast makes its result float32.
    pub fn sum_rows(&self, width: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Sum, [x.into(), Input::NONE, Input::NONE]);
            let rows = Value { numel: x.numel / width.max(1), ..*x };
            let dtype = if state.autocast.is_some() { Dtype::F32 } else { x.dtype };
            state.new_like(&rows, dtype, "sum", node.output(0))
        })
    }

    /// `x.view(rows, count, width).sum(dim=1)`. autocast makes its result float32.
    pub fn sum_groups(&self, count: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Sum, [x.into(), Input::NONE, Input::NONE]);
            let summed = Value { numel: x.numel / count.max(1), ..*x };
            let dtype = if state.autocast.is_some() { Dtype::F32 } else { x.dtype };
            state.new_like(&summed, dtype, "sum", node.output(0))
        })
    }

    /// `x.masked_fill(mask, number)`.
    pub fn masked_fill(&self, mask: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::MaskedFill, [x.into(), Input::NONE, Input::NONE]);
            state.save(node, mask.value.storage);
            state.new_like(x, x.dtype, "masked_fill", node.output(0))
        })
    }

    /// `torch.where(mask, x, number)` with a mask that is there anyway.
    pub fn where_not(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::MaskedFill, [x.into(), Input::NONE, Input::NONE]);
            state.save(node, NOTHING);
            state.new_like(x, x.dtype, "where", node.output(0))
        })
    }

    /// `x.masked_fill_(mask, number)`.
    pub fn masked_fill_in_place(&self, mask: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::MaskedFill, [x.into(), Input::NONE, Input::NONE]);
            state.save(node, mask.value.storage);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// An autograd function written in Python that saves its input and computes without recording: `run` is given what
    /// makes a tensor like the input.
    pub fn by_function(
        &self,
        op: Op,
        run: impl FnOnce(&dyn Fn(&'static str) -> Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        let like = |operation| {
            let value = self.machine.state.borrow_mut().new_like(
                &self.value,
                self.value.dtype,
                operation,
                Edge::None,
            );
            Tensor { machine: self.machine, value }
        };
        let result = run(&like);
        let mut state = self.machine.state.borrow_mut();
        let node = state.node(op, [(&self.value).into(), Input::NONE, Input::NONE]);
        state.save_view(node, &self.value);
        drop(state);
        result.with(|value| value.edge = node.output(0))
    }

    /// `-x`.
    pub fn negate(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Negate, [x.into(), Input::NONE, Input::NONE]);
            // the slice of a tensor that lies head after head is as dense as its shape says
            let dense = Value { layout: x.shape, ..*x };
            state.new_like(&dense, x.dtype, "neg", node.output(0))
        })
    }

    /// `x * other`, of one shape, both with or without gradient.
    pub fn mul(&self, other: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node(Op::Mul, [x.into(), y.into(), Input::NONE]);
            if x.requires_grad() {
                state.save_view(node, y);
            }
            if y.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, promoted(x.dtype, y.dtype), "mul", node.output(0))
        })
    }

    /// `x * constant`, where the constant (rotary cos and sin) has no gradient and is broadcast over x.
    pub fn mul_constant(&self, constant: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &constant.value;
            let node = state.node(Op::MulConstant, [x.into(), Input::NONE, Input::NONE]);
            state.save_view(node, y);
            state.new_like(x, promoted(x.dtype, y.dtype), "mul", node.output(0))
        })
    }

    /// `x[rows, width] * r[rows, 1]`.
    pub fn mul_rows(&self, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let r = &rows.value;
            let node = state.node(Op::MulRows, [x.into(), r.into(), Input::NONE]);
            if x.requires_grad() {
                state.save_view(node, r);
            }
            if r.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, promoted(x.dtype, r.dtype), "mul", node.output(0))
        })
    }

    /// `x.pow(n)` for n above 1. autocast runs it in float32.
    pub fn power(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let x = state.cast(x, if state.autocast.is_some() { Dtype::F32 } else { x.dtype });
            let node = state.node(Op::Power, [(&x).into(), Input::NONE, Input::NONE]);
            state.save_view(node, &x);
            let result = state.new_like(&x, x.dtype, "pow", node.output(0));
            state.release(x.storage);
            result
        })
    }

    /// `x.mean(-1, keepdim=True)` over rows of `width`.
    pub fn mean_rows(&self, width: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::MeanRows, [x.into(), Input::NONE, Input::NONE]);
            let rows = Value { numel: x.numel / width.max(1), ..*x };
            state.new_like(&rows, x.dtype, "mean", node.output(0))
        })
    }

    /// `torch.rsqrt(x)`.
    pub fn rsqrt(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Rsqrt, [x.into(), Input::NONE, Input::NONE]);
            let result = state.new_like(x, x.dtype, "rsqrt", node.output(0));
            state.save_view(node, &result);
            result
        })
    }

    /// An activation that is one kernel and keeps its input (silu, gelu).
    pub fn keeping_input(&self, operation: &'static str) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Pointwise, [x.into(), Input::NONE, Input::NONE]);
            state.save_view(node, x);
            state.new_like(x, x.dtype, operation, node.output(0))
        })
    }

    /// An activation that is one kernel and keeps its output (tanh, relu, sigmoid).
    pub fn keeping_output(&self, operation: &'static str) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Pointwise, [x.into(), Input::NONE, Input::NONE]);
            let result = state.new_like(x, x.dtype, operation, node.output(0));
            state.save_view(node, &result);
            result
        })
    }

    /// `nn.functional.dropout` in training; the same tensor at probability 0.
    pub fn dropout(&self, active: bool) -> Tensor<'m> {
        if !active {
            return self.clone();
        }
        self.apply(|state, x| {
            // native_dropout draws its mask first only where the output does not exist yet
            let node = state.node(Op::Dropout, [x.into(), Input::NONE, Input::NONE]);
            let mask = state.alloc(x.numel, Dtype::Bool, "dropout mask");
            let result = state.new_like(x, x.dtype, "dropout", node.output(0));
            state.save(node, mask);
            state.release(mask);
            result
        })
    }

    /// `softmax(x, -1)`. autocast asks for a result of float32.
    pub fn softmax(&self) -> Tensor<'m> {
        let autocast = self.machine.state.borrow().autocast.is_some();
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

    fn softmax_into(&self, dtype: Dtype) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Softmax, [x.into(), Input::NONE, Input::NONE]);
            let result = state.new_like(x, dtype, "softmax", node.output(0));
            state.save_view(node, &result);
            result
        })
    }
}
