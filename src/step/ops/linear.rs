//! Linear layers: plain, 4-bit, and with a LoRA adapter.

use super::four_bit;
use super::pointwise::{add_backward, cast_backward};
use crate::dtype::Dtype;
use crate::model::blocks::LinearClass;
use crate::step::autograd::{Edge, Grad, INPUTS, Input, Node, Results, only, share};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};

/// Features of a linear layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Shape {
    pub input: u64,
    pub output: u64,
}

impl Shape {
    /// Elements of the weight.
    pub fn weights(self) -> u64 {
        self.input.saturating_mul(self.output)
    }
}

/// How a 4-bit weight is dequantised.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Quantised {
    /// Element type of the computation (`bnb_4bit_compute_dtype`).
    pub compute: Dtype,
    /// Element type that the weight had before: what dequantising gives in backward.
    pub origin: Dtype,
    /// Element type that the forward product dequantises into: bitsandbytes 0.50 takes the computation's at once.
    pub opened: Dtype,
    /// Whether the block scales are quantised themselves.
    pub double: bool,
    /// Whether it is bitsandbytes' before 0.43.2: always dequantised, and the input is held.
    pub early: bool,
    /// Whether it is torchao's `NF4Tensor`.
    pub torchao: bool,
}

/// Weights of one 4-bit scale (bitsandbytes' default block size).
pub(in crate::step) const QUANT_BLOCK: u64 = 64;
/// Scales of one second-level scale under double quantisation (bitsandbytes' `quantize_blockwise` block size).
pub(in crate::step) const DOUBLE_QUANT_BLOCK: u64 = 256;

/// A linear layer on the machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Layer {
    pub name: &'static str,
    pub shape: Shape,
    pub weight: Weight,
    pub bias: Option<ParamId>,
    /// How it computes.
    pub class: LinearClass,
    pub adapter: Option<Adapter>,
}

/// The weight of a linear layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) enum Weight {
    /// A parameter.
    Plain(ParamId),
    /// A frozen 4-bit weight.
    Quantised(Quantised),
}

/// A LoRA adapter.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Adapter {
    pub a: ParamId,
    pub b: ParamId,
    pub rank: u64,
    pub dropout: bool,
    /// Whether peft wraps the layer; other stacks add the adapter's result to a 4-bit layer's as to any other's.
    pub peft: bool,
}

impl State {
    /// A parameter as an operation's argument under the running autocast: its storage (with a reference to give back)
    /// and the edge of its gradient.
    ///
    /// aten/src/ATen/autocast_mode.cpp `cached_cast`: float32 leaves that need a gradient are cast once and cached until
    /// autocast ends; frozen ones are cast at every use.
    pub fn weight_argument(&mut self, id: ParamId, caches: bool) -> (StorageId, Dtype, Edge) {
        let param = self.params.list[id as usize];
        let edge = if param.trainable && self.graph.enabled { Edge::Param(id) } else { Edge::None };
        let Some(target) = self.autocast.filter(|_| param.dtype == Dtype::F32) else {
            return (NOTHING, param.dtype, edge);
        };
        if let Some((storage, edge)) = param.cached {
            self.retain(storage);
            return (storage, target, edge);
        }
        let value = Value::plain(NOTHING, param.numel, param.dtype).at(edge);
        let node = self.node([&value], cast_backward);
        let bytes = param.numel.saturating_mul(target.bytes());
        let category = if self.recomputing {
            crate::memory::Category::Temporaries
        } else {
            crate::memory::Category::WeightCopies
        };
        let storage = self.alloc_as(category, bytes, target, "weight copy");
        self.note_shape(storage, (param.rows, param.numel / param.rows.max(1)));
        let edge = node.output(0);
        if caches && param.trainable && storage != NOTHING {
            self.retain(storage);
            self.params.list[id as usize].cached = Some((storage, edge));
            self.cast_cache.push(id);
        }
        (storage, target, edge)
    }

    /// Leaves autocast: its cache is dropped.
    pub fn clear_cast_cache(&mut self) {
        for id in std::mem::take(&mut self.cast_cache) {
            if let Some((storage, _)) = self.params.list[id as usize].cached.take() {
                self.release(storage);
            }
        }
    }

    /// `F.linear(x, weight)` where the weight is a tensor of its own, no parameter.
    pub fn linear_with(&mut self, x: &Value, shape: Shape, weight: &Value) -> Value {
        let target = self.autocast;
        let weight = self.cast(weight, target.filter(|_| weight.dtype == Dtype::F32).unwrap_or(weight.dtype));
        let x = self.cast(x, target.filter(|_| x.dtype == Dtype::F32).unwrap_or(x.dtype));
        let node = self.row_node([&x, &weight], linear_backward);
        if x.requires_grad() {
            self.save_view(node, &weight.transposed());
        }
        if weight.requires_grad() {
            self.save_view(node, &x);
        }
        let numel = (x.numel / shape.input.max(1)).saturating_mul(shape.output);
        let storage = self.alloc_product(numel, x.dtype, "linear");
        self.release(x.storage);
        self.release(weight.storage);
        Value { flat: x.flat, ..Value::plain(storage, numel, x.dtype) }.at(node.output(0))
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
        // autocast casts arguments from the last to the first
        let target = self.autocast.filter(|_| x.dtype == Dtype::F32).unwrap_or(x.dtype);
        let (bias, (weight, dtype, weight_edge), x) = match class {
            LinearClass::Linear => {
                let bias = bias.map(|bias| self.weight_argument(bias, true));
                (bias, self.weight_argument(weight, true), self.cast(x, target))
            }
            LinearClass::Conv1d => {
                let weight = self.weight_argument(weight, true);
                let x = self.cast(x, target);
                (bias.map(|bias| self.weight_argument(bias, true)), weight, x)
            }
            // `x @ weight.T`: a view is no leaf, its copy is not cached
            LinearClass::Subclass => (None, self.weight_argument(weight, false), self.cast(x, target)),
        };
        let with_bias = bias.is_some();
        let (bias_storage, bias_edge) =
            bias.map_or((NOTHING, Edge::None), |(storage, _, edge)| (storage, edge));
        let matrix = Value::plain(weight, shape.weights(), dtype).at(weight_edge);
        let row = Value::plain(bias_storage, shape.output, dtype).at(bias_edge);
        let node = self.row_node([&x, &matrix, &row], linear_backward);
        // saved variables are named in alphabetical order: mat2 is the weight, before self; with a bias it is behind mat1
        let keeps_input = weight_edge != Edge::None;
        if keeps_input && with_bias {
            self.save_view(node, &x);
        }
        if x.requires_grad() {
            // `weight.t()` but for gpt2's, which lies as it is multiplied
            let weight = Value::plain(weight, shape.weights(), dtype);
            self.save_view(node, &if class == LinearClass::Conv1d { weight } else { weight.transposed() });
        }
        if keeps_input && !with_bias {
            self.save_view(node, &x);
        }
        let rows = x.numel / shape.input.max(1);
        let numel = rows.saturating_mul(shape.output);
        let storage = self.alloc_product(numel, x.dtype, "linear");
        for argument in [x.storage, weight, bias_storage] {
            self.release(argument);
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
        let target = self.autocast.filter(|_| x.dtype == Dtype::F32).unwrap_or(x.dtype);
        let bias = bias.map(|bias| (bias, self.weight_argument(bias, true)));
        let (copy, dtype, edge) = self.weight_argument(weight, true);
        let x = self.cast(x, target);
        let numel = self.params.list[weight as usize].numel;
        let bias_input = bias.map_or(Input::NONE, |(id, (storage, dtype, edge))| {
            let numel = self.params.list[id as usize].numel;
            Value::plain(storage, numel, dtype).at(edge)
        });
        let weight = Value::plain(copy, numel, dtype).at(edge);
        let node = self.node([&x, &weight, &bias_input], convolution_backward);
        self.save_view(node, &x);
        self.save(node, copy);
        let dense = self.alloc(x.numel, x.dtype, "contiguous");
        let whole = Value { numel: x.numel.saturating_add(more), layout: Layout::Heads, ..x };
        let output = self.new_like(&whole, x.dtype, "convolution", node.output(0));
        self.release(dense);
        self.release(x.storage);
        self.release(copy);
        self.release(bias.map_or(NOTHING, |(_, (storage, ..))| storage));
        output
    }

    /// `x + bias` as an operation of its own.
    fn add_parameter_row(&mut self, x: &Value, bias: ParamId) -> Value {
        let input = self.parameter_input(bias);
        let node = self.row_node([x, &input], add_backward);
        let dtype = if input.dtype.bytes() > x.dtype.bytes() { input.dtype } else { x.dtype };
        self.new_like(x, dtype, "add", node.output(0))
    }

    /// bitsandbytes' `Linear4bit`: the weight is dequantised for the product, again in backward.
    ///
    /// Source: bitsandbytes 0.50 nn/modules.py `Linear4bit.forward`, autograd/_functions.py `MatMul4Bit`.
    pub fn linear_4bit(&mut self, x: &Value, shape: Shape, quantised: Quantised) -> Value {
        if quantised.torchao {
            return self.linear_nf4(x, shape, quantised.origin);
        }
        let input_dtype = x.dtype;
        let x = self.cast(x, quantised.compute);
        let node =
            self.node([&x], move |state, node, grad| backward_4bit(state, node, grad, shape, quantised));
        if quantised.early {
            self.hold(node, x.storage);
        }
        let rows = x.numel / shape.input.max(1);
        let numel = rows.saturating_mul(shape.output);
        let fused = !quantised.early && four_bit::is_fused(self.device, quantised.compute, rows, shape);
        let storage = if fused {
            self.alloc_product(numel, quantised.compute, "linear (4-bit)")
        } else {
            let weight = self.dequantised(shape, quantised, true);
            let storage = self.alloc_product(numel, quantised.compute, "linear (4-bit)");
            weight.into_iter().for_each(|storage| self.release(storage));
            storage
        };
        let output = Value { flat: x.flat, ..Value::plain(storage, numel, quantised.compute) };
        let output = output.at(node.output(0));
        let result = self.cast(&output, input_dtype);
        self.release(output.storage);
        self.release(x.storage);
        result
    }

    /// The dequantised weight and the scales that making it takes; the order is that of freeing.
    fn dequantised(&mut self, shape: Shape, quantised: Quantised, forward: bool) -> [StorageId; 3] {
        let numel = shape.weights();
        let scales = numel.div_ceil(QUANT_BLOCK);
        let mut first = NOTHING;
        let mut second = NOTHING;
        if quantised.double {
            first = self.alloc(scales, Dtype::F32, "scales");
            if forward {
                second = self.alloc(scales, Dtype::F32, "scales");
            }
        }
        let dtype = if forward { quantised.opened } else { quantised.origin };
        let mut weight = self.alloc(numel, dtype, "dequantised weight");
        if dtype != quantised.compute {
            if !forward {
                self.release(std::mem::replace(&mut first, NOTHING));
            }
            let cast = self.alloc(numel, quantised.compute, "cast");
            self.release(weight);
            weight = cast;
        }
        [second, first, weight]
    }
}

impl<'m> Tensor<'m> {
    /// `F.linear(x, weight.float())` of a router.
    pub fn through_float(&self, layer: &Layer) -> Tensor<'m> {
        let machine = self.machine;
        machine.within(layer.name, || {
            let Weight::Plain(weight) = layer.weight else { return self.base(layer) };
            let mut state = machine.state.borrow_mut();
            let weight = state.parameter_value(weight);
            let float = state.cast(&weight, Dtype::F32);
            let value = state.linear_with(&self.value, layer.shape, &float);
            state.release(float.storage);
            drop(state);
            Tensor { machine, value }
        })
    }

    /// Runs a linear layer with whatever it carries.
    pub fn through(&self, layer: &Layer) -> Tensor<'m> {
        let machine = self.machine;
        machine.within(layer.name, || match layer.adapter {
            None => self.base(layer),
            Some(adapter) => self.adapted(layer, adapter),
        })
    }

    pub fn base(&self, layer: &Layer) -> Tensor<'m> {
        let machine = self.machine;
        let mut state = machine.state.borrow_mut();
        let value = match layer.weight {
            Weight::Plain(weight) => {
                let value = state.linear(&self.value, layer.shape, weight, layer.bias, layer.class);
                match (layer.class, layer.bias) {
                    (LinearClass::Subclass, Some(bias)) => {
                        let sum = state.add_parameter_row(&value, bias);
                        state.release(value.storage);
                        sum
                    }
                    _ => value,
                }
            }
            Weight::Quantised(quantised) => state.linear_4bit(&self.value, layer.shape, quantised),
        };
        Tensor { machine, value }
    }

    /// `F.linear(x, weight)` with a parameter.
    pub fn parameter_product(&self, shape: Shape, weight: ParamId) -> Tensor<'m> {
        let class = LinearClass::Linear;
        let value = self.machine.state.borrow_mut().linear(&self.value, shape, weight, None, class);
        Tensor { machine: self.machine, value }
    }

    /// peft 0.21 tuners/lora/layer.py `Linear.forward` and tuners/lora/bnb.py `Linear4bit.forward`.
    fn adapted(&self, layer: &Layer, adapter: Adapter) -> Tensor<'m> {
        let machine = self.machine;
        let (autocast, adapter_dtype) = {
            let state = machine.state.borrow();
            (state.autocast.is_some(), state.params.list[adapter.a as usize].dtype)
        };
        let down = Shape { input: layer.shape.input, output: adapter.rank };
        let up = Shape { input: adapter.rank, output: layer.shape.output };
        let base = self.base(layer);
        match (layer.weight, adapter.peft) {
            (Weight::Plain(_), _) | (Weight::Quantised(_), false) => {
                let dtype = base.value.dtype;
                let x = self.to(adapter_dtype);
                let delta = {
                    let dropped = x.dropout(adapter.dropout);
                    let low = dropped.parameter_product(down, adapter.a);
                    drop(dropped);
                    let high = low.parameter_product(up, adapter.b);
                    drop(low);
                    high.scale()
                };
                let sum = base.add(&delta);
                drop(delta);
                drop(base);
                sum.to(dtype)
            }
            (Weight::Quantised(_), true) => {
                let base = {
                    let copy = base.copied();
                    drop(base);
                    copy
                };
                let dtype = base.value.dtype;
                let x = if autocast { self.clone() } else { self.to(adapter_dtype) };
                let delta = {
                    let dropped = x.dropout(adapter.dropout);
                    let low = dropped.parameter_product(down, adapter.a);
                    drop(dropped);
                    let high = low.parameter_product(up, adapter.b);
                    drop(low);
                    high.scale()
                };
                let delta = if autocast {
                    delta
                } else {
                    let cast = delta.to(dtype);
                    drop(delta);
                    cast
                };
                let sum = base.add(&delta);
                drop(base);
                drop(x);
                drop(delta);
                sum
            }
        }
    }
}

/// The view that flattens a layer's output copies a gradient that is transposed.
fn dense_gradient(state: &mut State, grad: Grad) -> Grad {
    let transposed = match grad.layout {
        Layout::Columns => true,
        // a product takes one transposed matrix as it is
        Layout::Heads => state.sequences > 1,
        Layout::Tokens | Layout::Expanded | Layout::Either => false,
    };
    if !transposed {
        return grad;
    }
    let storage = state.alloc(grad.numel, grad.dtype, "contiguous");
    state.release(grad.storage);
    Grad::new(storage, grad.numel, grad.dtype, Layout::Tokens)
}

/// MmBackward0 and AddmmBackward0: without a bias the weight's gradient comes first, with one the input's.
fn linear_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [x, weight, bias] = node.inputs;
    *grad = dense_gradient(state, *grad);
    let mut results: Results = [None; INPUTS];
    if weight.wants() && !bias.wants() {
        results[1] = Some(weight_grad(state, &weight, grad.dtype));
    }
    if x.wants() {
        let storage = state.alloc_product(x.numel, grad.dtype, "linear (input gradient)");
        // of more than two dimensions it is a view of the product's
        results[0] = Some(Grad { view: !x.flat, ..Grad::new(storage, x.numel, grad.dtype, Layout::Tokens) });
    }
    if weight.wants() && bias.wants() {
        results[1] = Some(weight_grad(state, &weight, grad.dtype));
    }
    if bias.wants() {
        results[2] = Some(share(state, grad));
    }
    results
}

fn weight_grad(state: &mut State, weight: &Input, dtype: Dtype) -> Grad {
    let numel = weight.numel;
    let storage = state.alloc_product(numel, dtype, "linear (weight gradient)");
    Grad { view: true, ..Grad::new(storage, numel, dtype, Layout::Tokens) }
}

/// MatMul4Bit's backward: the weight is dequantised once more.
fn backward_4bit(state: &mut State, node: &Node, grad: &Grad, shape: Shape, quantised: Quantised) -> Results {
    let x = node.inputs[0];
    let [_, scales, weight] = state.dequantised(shape, quantised, false);
    state.release(scales);
    let storage = state.alloc_product(x.numel, grad.dtype, "linear (input gradient)");
    state.release(weight);
    only(Grad::new(storage, x.numel, grad.dtype, Layout::Tokens))
}

/// A depthwise convolution.
fn convolution_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, third] = node.inputs;
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
