//! Linear layers: plain and quantised.

use super::four_bit::{Format, Quantised};
use super::matmul::multiplications;
use super::pointwise::add_backward;
use super::shape::INPUT;
pub(in crate::step) use super::shape::Shape;
use super::tuned::Tuned;
use crate::dtype::Dtype;
use crate::model::blocks::{Divided, LinearClass};
use crate::step::autograd::{Grad, INPUTS, Input, Node, Results, share};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::parallel::Module;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{DERIVATIVES, ENGINE, What, roles, torch};

static BIASED: What = What::own("add", "the layer's output with its bias", DERIVATIVES);
pub static CONVOLUTION: What = What::step("convolution", "the output of a convolution");
pub static CONVOLUTION_BIAS: What = What::own(
    "convolution (bias gradient)",
    "a convolution's bias gradient before it is handed to its parameter",
    ENGINE,
);
pub static CONVOLUTION_INPUT: What =
    What::own("convolution (input gradient)", "the gradient of a convolution's input", DERIVATIVES);
pub static CONVOLUTION_WEIGHT: What = What::own(
    "convolution (weight gradient)",
    "a convolution's weight gradient before it is handed to its parameter",
    ENGINE,
);
pub(super) static WEIGHT_GRADIENT: What =
    What::own("linear (weight gradient)", "a weight's gradient before it is handed to its parameter", ENGINE);

/// A linear layer on the machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Layer {
    pub name: &'static str,
    pub shape: Shape,
    pub weight: Weight,
    pub bias: Option<ParamId>,
    /// How it computes.
    pub class: LinearClass,
    /// What of it the GPU has.
    pub divided: Divided,
    pub adapter: Option<Adapter>,
    /// What another tuner of peft puts beside it in the place of an adapter.
    pub tuned: Option<Tuned>,
}

/// The weight of a linear layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) enum Weight {
    /// A parameter.
    Plain(ParamId),
    /// A frozen quantised weight.
    Quantised(Quantised),
}

impl Weight {
    /// The parameter, packed or not.
    pub fn id(self) -> ParamId {
        match self {
            Weight::Plain(id) => id,
            Weight::Quantised(quantised) => quantised.weight,
        }
    }
}

impl Layer {
    /// Whether its weight is quantised so that its bias is added by itself, or in place.
    pub fn adds_bias_apart(&self) -> bool {
        matches!(self.weight, Weight::Quantised(quantised) if quantised.format.adds_bias_apart())
    }

    /// Whether its weight is quantised so.
    pub fn is_of(&self, format: Format) -> bool {
        matches!(self.weight, Weight::Quantised(quantised) if quantised.format == format)
    }
}

/// A LoRA adapter.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Adapter {
    pub a: ParamId,
    pub b: ParamId,
    /// DoRA's length of each row of the adapted weight.
    pub magnitude: Option<ParamId>,
    pub rank: u64,
    pub dropout: bool,
    /// Whether peft wraps the layer; other stacks add the adapter's result to a 4-bit layer's as to any other's.
    pub peft: bool,
}

impl State {
    /// `F.linear(x, weight, bias)` where the weight is a tensor of its own, no parameter.
    pub fn linear_with(&mut self, x: &Value, shape: Shape, weight: &Value, bias: Option<ParamId>) -> Value {
        if self.parallel.gathers_modules() && bias.is_none() {
            return self.gathered_product(x, shape, weight);
        }
        // autocast casts arguments from the last to the first
        let bias = bias.map(|bias| self.cast_weight(bias, true));
        let weight = self.cast(weight, self.operand_dtype(weight.dtype));
        let x = self.cast_argument(x, self.operand_dtype(x.dtype), &INPUT);
        self.multiply_by(x, shape, weight, bias, LinearClass::Linear)
    }

    /// `F.linear(x, weight, bias)`, or gpt2's `addmm(bias, x, weight)`, with parameters.
    pub fn linear(
        &mut self,
        x: &Value,
        shape: Shape,
        weight: ParamId,
        bias: Option<ParamId>,
        class: LinearClass,
    ) -> Value {
        if self.parallel.gathers_modules() {
            return self.gathered_linear(x, shape, weight, bias);
        }
        if let Some(recipe) = self.params.get(weight).float8 {
            return self.linear_float8(x, shape, (weight, recipe), bias);
        }
        // autocast casts arguments from the last to the first
        let target = self.operand_dtype(x.dtype);
        let (bias, weight, x) = match class {
            LinearClass::Linear => {
                let bias = bias.map(|bias| self.cast_weight(bias, true));
                (bias, self.cast_weight(weight, true), self.cast_argument(x, target, &INPUT))
            }
            LinearClass::Conv1d => {
                let weight = self.cast_weight(weight, true);
                let x = self.cast_argument(x, target, &INPUT);
                (bias.map(|bias| self.cast_weight(bias, true)), weight, x)
            }
            // `x @ weight.T`: a view is no leaf, its copy is not cached
            LinearClass::Subclass => {
                (None, self.cast_weight(weight, false), self.cast_argument(x, target, &INPUT))
            }
        };
        self.multiply_by(x, shape, weight, bias, class)
    }

    /// The product of what has the types that it is computed in, and lets go of its arguments.
    fn multiply_by(
        &mut self,
        x: Value,
        shape: Shape,
        weight: Value,
        bias: Option<Value>,
        class: LinearClass,
    ) -> Value {
        let with_bias = bias.is_some();
        let bias = bias.unwrap_or(Input::NONE);
        let node = self.row_node([&x, &weight, &bias], linear_backward);
        // saved variables are named in alphabetical order: mat2 is the weight, before self; with a bias it is behind mat1
        let keeps_input = weight.requires_grad();
        if keeps_input && with_bias {
            self.save_view(node, &x);
        }
        if x.requires_grad() {
            // `weight.t()` but for gpt2's, which lies as it is multiplied
            self.save_view(node, &if class == LinearClass::Conv1d { weight } else { weight.transposed() });
        }
        if keeps_input && !with_bias {
            self.save_view(node, &x);
        }
        let rows = x.numel / shape.input.max(1);
        let numel = rows.saturating_mul(shape.output);
        self.read_operand(weight.bytes());
        let storage = self.alloc_product(numel, shape.input, x.dtype, &torch::LINEAR);
        self.take_rows(storage, x.storage, x.numel / shape.input.max(1));
        for argument in [x, weight, bias] {
            self.release(argument.storage);
        }
        Value { flat: x.flat, ..Value::plain(storage, numel, x.dtype) }.at(node.output(0))
    }

    /// Whether a layer's own weight is trained.
    pub fn trains(&self, layer: &Layer) -> bool {
        match layer.weight {
            Weight::Plain(id) => self.params.list.get(id as usize).is_some_and(|param| param.trainable),
            Weight::Quantised(_) => false,
        }
    }

    /// A depthwise convolution over channels that lie token after token: the input is copied for it. The output has `more`
    /// elements than the input: the padding.
    pub fn convolved(&mut self, x: &Value, weight: ParamId, bias: Option<ParamId>, more: u64) -> Value {
        // its parameters are the convolution's, whose own code does not run
        [Some(weight), bias].into_iter().flatten().for_each(|id| self.read_outside(id));
        let target = self.operand_dtype(x.dtype);
        let bias = bias.map_or(Input::NONE, |bias| self.cast_weight(bias, true));
        let weight = self.cast_weight(weight, true);
        let x = self.cast_as(x, target, &INPUT);
        let node = self.node([&x, &weight, &bias], convolution_backward);
        self.save_view(node, &x);
        let kept = if weight.storage == NOTHING { self.viewed(&weight) } else { weight };
        self.save(node, kept.storage);
        let dense = self.alloc_for(x.storage, x.numel, x.dtype, &torch::CONTIGUOUS);
        let whole = Value { numel: x.numel.saturating_add(more), layout: Layout::Heads, ..x };
        let output = self.new_like(&whole, x.dtype, &CONVOLUTION, node.output(0));
        self.release(dense);
        for argument in [x, weight, bias] {
            self.release(argument.storage);
        }
        output
    }

    /// `x + bias` as an operation of its own.
    fn add_parameter_row(&mut self, x: &Value, bias: ParamId) -> Value {
        let bias = self.weight(bias);
        let node = self.row_node([x, &bias], add_backward);
        let dtype = if bias.dtype.bytes() > x.dtype.bytes() { bias.dtype } else { x.dtype };
        let sum = self.new_like(x, dtype, &BIASED, node.output(0));
        self.release(bias.storage);
        sum
    }
}

impl<'m> Tensor<'m> {
    /// `F.linear(x, weight.float())` of a router.
    pub fn through_float(&self, layer: &Layer) -> Tensor<'m> {
        let machine = self.machine;
        machine.within(layer.name, &roles::PROJECTION, || {
            let Weight::Plain(weight) = layer.weight else { return self.base(layer) };
            machine.tensor(|state| {
                let weight = state.weight(weight);
                let float = state.cast(&weight, Dtype::F32);
                let value = state.linear_with(&self.value, layer.shape, &float, None);
                state.release(float.storage);
                state.release(weight.storage);
                value
            })
        })
    }

    /// `F.linear(x, self.weight)` in the code of the module whose parameter the weight is.
    pub fn through_own(&self, layer: &Layer) -> Tensor<'m> {
        self.machine.within(layer.name, &roles::PROJECTION, || self.base_as(layer))
    }

    pub fn base(&self, layer: &Layer) -> Tensor<'m> {
        let module = Module::of([Some(layer.weight.id()), layer.bias]);
        self.machine.module(module, self, |own| match layer.divided {
            Divided::Whole => own.base_as(layer),
            Divided::Columns => own.entering_parts().base_as(layer),
            Divided::Rows => own.base_as(layer).added_up(),
            Divided::Gathered => own.entering_parts().base_as(layer).gathered_parts(),
        })
    }

    fn base_as(&self, layer: &Layer) -> Tensor<'m> {
        let weight = layer.weight.id();
        if let Some(fake) = self.machine.with(|state| state.params.get(weight).fake) {
            return self.linear_faked(layer, (weight, fake));
        }
        self.apply(|state, x| match layer.weight {
            Weight::Plain(weight) => {
                let value = state.linear(x, layer.shape, weight, layer.bias, layer.class);
                match (layer.class, layer.bias) {
                    (LinearClass::Subclass, Some(bias)) => {
                        let sum = state.add_parameter_row(&value, bias);
                        state.release(value.storage);
                        sum
                    }
                    _ => value,
                }
            }
            Weight::Quantised(quantised) => state.linear_quantised(x, layer.shape, quantised, layer.bias),
        })
    }

    /// `F.linear(x, weight)` with a parameter.
    pub fn parameter_product(&self, shape: Shape, weight: ParamId) -> Tensor<'m> {
        let class = LinearClass::Linear;
        self.machine.module(Module::of([Some(weight), None]), self, |own| {
            own.apply(|state, x| state.linear(x, shape, weight, None, class))
        })
    }
}

/// The view that flattens a layer's output copies a gradient that is transposed.
pub(super) fn dense_gradient(state: &mut State, grad: Grad) -> Grad {
    let transposed = match grad.layout {
        Layout::Columns => true,
        // a product takes one transposed matrix as it is
        Layout::Heads => state.sequences > 1,
        Layout::Tokens | Layout::Expanded | Layout::Either => false,
    };
    if !transposed {
        return grad;
    }
    let storage = state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::CONTIGUOUS);
    state.release(grad.storage);
    Grad::new(storage, grad.numel, grad.dtype, Layout::Tokens)
}

/// MmBackward0 and AddmmBackward0: without a bias the weight's gradient comes first, with one the input's.
fn linear_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [x, weight, bias] = node.inputs;
    *grad = dense_gradient(state, *grad);
    let rows = multiplications([x.numel, weight.numel, grad.numel]) / weight.numel.max(1);
    let mut results: Results = [None; INPUTS];
    if weight.wants() && !bias.wants() {
        results[1] = Some(weight_grad(state, &weight, rows, grad.dtype));
    }
    if x.wants() {
        let product = (x.numel, grad.numel / rows.max(1));
        state.read_operand(weight.bytes());
        let storage = state.alloc_product_for(x.storage, product, grad.dtype, &torch::INPUT_GRADIENT);
        // of more than two dimensions it is a view of the product's
        results[0] = Some(Grad { view: !x.flat, ..Grad::new(storage, x.numel, grad.dtype, Layout::Tokens) });
    }
    if weight.wants() && bias.wants() {
        results[1] = Some(weight_grad(state, &weight, rows, grad.dtype));
    }
    if bias.wants() {
        results[2] = Some(share(state, grad));
    }
    results
}

fn weight_grad(state: &mut State, weight: &Input, rows: u64, dtype: Dtype) -> Grad {
    let numel = weight.numel;
    let storage = state.alloc_product(numel, rows, dtype, &WEIGHT_GRADIENT);
    Grad { view: true, ..Grad::new(storage, numel, dtype, Layout::Tokens) }
}

/// A depthwise convolution.
fn convolution_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, third] = node.inputs;
    let copy = state.alloc_for(first.storage, first.numel, first.dtype, &torch::CONTIGUOUS);
    let weight = second.wants().then(|| {
        let storage = state.alloc_for(second.storage, second.numel, grad.dtype, &CONVOLUTION_WEIGHT);
        Grad::new(storage, second.numel, grad.dtype, Layout::Tokens)
    });
    let own = first.wants().then(|| {
        let storage = state.alloc_for(first.storage, first.numel, grad.dtype, &CONVOLUTION_INPUT);
        Grad::new(storage, first.numel, grad.dtype, Layout::Heads)
    });
    let bias = third.wants().then(|| {
        let storage = state.alloc_for(third.storage, third.numel, grad.dtype, &CONVOLUTION_BIAS);
        Grad::new(storage, third.numel, grad.dtype, Layout::Tokens)
    });
    state.release(copy);
    [own, weight, bias]
}
