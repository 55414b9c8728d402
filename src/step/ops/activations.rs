//! Activation functions, operation by operation as transformers' activations.py writes them, and the derivatives that
//! nothing else needs.
//!
//! Sources: transformers 5.17 activations.py; tools/autograd/derivatives.yaml of PyTorch 2.11. What autocast runs in
//! float32 is listed in aten/src/ATen/autocast_mode.h: `pow`, `softplus` and `expm1` are, `erf`, `tanh` and `sigmoid` not.

use super::pointwise::mul_backward;
use super::pointwise::promoted;
use crate::dtype::Dtype;
use crate::model::blocks::{Activation, XIELU_PARAMETERS};
use crate::step::autograd::{Grad, INPUTS, Node, Results, chain, like, only};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::parallel::{Container, Module};
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;
use crate::step::what::{What, roles, torch};

static ERF: What = What::step("erf", "the error function's output");
static EXPM1: What = What::step("expm1", "an exponential less one, which its own backward needs");
static GT: What = What::step("gt", "a comparison, one byte per element");
static GELU: What =
    What::step("gelu", "its output, a factor of the next product or the next projection's input");
static RELU6: What =
    What::step("relu6", "its output, a factor of the next product or the next projection's input");
static HARDSWISH: What =
    What::step("hardswish", "its output, a factor of the next product or the next projection's input");
static LEAKY_RELU: What =
    What::step("leaky_relu", "its output, a factor of the next product or the next projection's input");
static MISH: What =
    What::step("mish", "its output, a factor of the next product or the next projection's input");
static SQRT: What = What::step("sqrt", "a square root, which its own backward needs");
static MINIMUM: What = What::step("minimum", "the smaller of two");

/// Those of xIELU among a layer's parameters by name.
fn xielu_parameters(own: &[(&'static str, ParamId)]) -> [Option<ParamId>; 2] {
    XIELU_PARAMETERS.map(|name| own.iter().find(|(own, _)| *own == name).map(|(_, id)| *id))
}

impl<'m> Tensor<'m> {
    /// Runs an activation function; `parameters` are those of its layer by name, some of which may be the function's.
    pub(in crate::step) fn activated(
        &self,
        act: Activation,
        parameters: &[(&'static str, ParamId)],
    ) -> Tensor<'m> {
        let module = match act {
            Activation::Xielu => Module::of(xielu_parameters(parameters)),
            _ => Module::Container(Container::Activation, 0),
        };
        self.machine.module(module, self, |own| own.activated_as(act, parameters))
    }

    fn activated_as(&self, act: Activation, own: &[(&'static str, ParamId)]) -> Tensor<'m> {
        self.machine.serving(&roles::ACTIVATION, || match act {
            Activation::Silu => self.keeping_input(&torch::SILU),
            Activation::Gelu | Activation::GeluTanh => self.keeping_input(&GELU),
            Activation::Hardswish => self.keeping_input(&HARDSWISH),
            Activation::LeakyRelu => self.keeping_input(&LEAKY_RELU),
            Activation::Mish => self.keeping_input(&MISH),
            Activation::Relu6 => self.keeping_input(&RELU6),
            Activation::Relu => self.keeping_output(&torch::RELU),
            Activation::Sigmoid => self.keeping_output(&torch::SIGMOID),
            Activation::Tanh => self.keeping_output(&torch::TANH),
            Activation::Linear => self.clone(),
            Activation::Relu2 => {
                let positive = self.keeping_output(&torch::RELU);
                positive.power()
            }
            Activation::SqrtSoftplus => {
                let positive = self.softplus();
                positive.sqrt()
            }
            Activation::GeluClipped => {
                let gelu = self.keeping_input(&GELU);
                gelu.limited()
            }
            Activation::GeluNew => {
                let half = self.scale();
                let tanh = {
                    let sum = {
                        let cubed = {
                            let cube = self.power();
                            cube.scale()
                        };
                        self.add(&cubed)
                    };
                    let scaled = sum.scale();
                    drop(sum);
                    scaled.keeping_output(&torch::TANH)
                };
                half.times_one_plus(tanh)
            }
            Activation::GeluFast => {
                let half = self.scale();
                let tanh = {
                    let product = {
                        let scaled = self.scale();
                        let shifted = {
                            let square = {
                                let small = self.scale();
                                small.mul(self)
                            };
                            square.add_number()
                        };
                        scaled.into_product(shifted)
                    };
                    product.keeping_output(&torch::TANH)
                };
                half.times_one_plus(tanh)
            }
            Activation::GeluPython => {
                let half = self.scale();
                let erf = {
                    let scaled = self.scale();
                    scaled.erf()
                };
                half.times_one_plus(erf)
            }
            Activation::QuickGelu => {
                let open = {
                    let scaled = self.scale();
                    scaled.keeping_output(&torch::SIGMOID)
                };
                self.mul(&open)
            }
            Activation::Laplace => {
                let centred = {
                    let shifted = self.add_number();
                    shifted.scale()
                };
                let shifted = {
                    let erf = centred.erf();
                    erf.add_number()
                };
                shifted.scale()
            }
            Activation::Xielu => self.xielu(own),
            Activation::BloomGelu => self.bloom_gelu(),
        })
    }

    /// `self * (1 + other)`.
    fn times_one_plus(self, other: Tensor<'m>) -> Tensor<'m> {
        let shifted = other.add_number();
        drop(other);
        self.into_product(shifted)
    }

    /// `_xielu_python`: `where(x > 0, alpha_p * x * x + beta * x, (expm1(min(x, eps)) - x) * alpha_n + beta * x)`.
    fn xielu(&self, own: &[(&'static str, ParamId)]) -> Tensor<'m> {
        let [positive, negative] =
            xielu_parameters(own).map(|id| id.map(|id| self.machine.weight(id).softplus()));
        let negative = negative.map(|factor| factor.add_number());
        // `support` lets no layer through that lacks its parameters
        let (Some(positive), Some(negative)) = (positive, negative) else { return self.clone() };
        let condition = self.fresh(self.value.numel, Dtype::Bool, &GT);
        let above = {
            let square = {
                let scaled = self.times_one(&positive);
                scaled.mul(self)
            };
            square.into_sum(self.times_buffer())
        };
        let below = {
            let product = {
                let difference = {
                    let grown = {
                        let least = self.minimum();
                        least.expm1()
                    };
                    grown.minus(self)
                };
                difference.times_one(&negative)
            };
            product.into_sum(self.times_buffer())
        };
        let chosen = condition.chosen(&above, &below);
        drop((condition, above, below));
        drop((positive, negative));
        chosen
    }

    /// `x * factor` with a tensor of one element.
    fn times_one(&self, factor: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let one = &factor.value;
            let node = state.node([one, x], mul_backward);
            if x.requires_grad() {
                state.save_view(node, one);
            }
            if one.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, promoted(one.dtype, x.dtype), &torch::MUL, node.output(0))
        })
    }

    /// `torch.erf(x)`.
    fn erf(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            // 2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad
            let node = state.node([x], |state, _, grad| {
                only(chain(state, grad, &[&torch::POW, &torch::NEG, &torch::EXP, &torch::MUL, &torch::MUL]))
            });
            state.save_view(node, x);
            state.new_like(x, x.dtype, &ERF, node.output(0))
        })
    }

    /// `torch.sqrt(x)`.
    fn sqrt(&self) -> Tensor<'m> {
        // grad / (2 * result)
        self.kept_by(&SQRT, |state, _, grad| only(chain(state, grad, &[&torch::MUL, &torch::DIV])))
    }

    /// `torch.expm1(x)`. autocast runs it in float32.
    fn expm1(&self) -> Tensor<'m> {
        let autocast = self.machine.with(|state| state.autocast.is_some());
        let x = self.to(if autocast { Dtype::F32 } else { self.value.dtype });
        // grad * (result + 1)
        x.kept_by(&EXPM1, |state, _, grad| only(chain(state, grad, &[&torch::ADD, &torch::MUL])))
    }

    /// An operation that saves its result.
    fn kept_by(
        &self,
        operation: &'static What,
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], derivative);
            let result = state.new_like(x, x.dtype, operation, node.output(0));
            state.save_view(node, &result);
            result
        })
    }

    /// `torch.min(x, number)`.
    fn minimum(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], minimum_backward);
            state.save_view(node, x);
            state.new_like(x, x.dtype, &MINIMUM, node.output(0))
        })
    }

    /// `torch.where(self, a, b)` of a condition.
    fn chosen(&self, a: &Tensor<'m>, b: &Tensor<'m>) -> Tensor<'m> {
        a.apply(|state, a| {
            let b = &b.value;
            let node = state.node([a, b], where_backward);
            state.save(node, self.value.storage);
            state.new_like(a, promoted(a.dtype, b.dtype), &torch::WHERE, node.output(0))
        })
    }

    /// `bloom_gelu_forward` inside an autograd function that saves its input only.
    fn bloom_gelu(&self) -> Tensor<'m> {
        let run = |like: &dyn Fn(&'static What) -> Tensor<'m>| {
            let half = like(&torch::MUL);
            let scaled = like(&torch::MUL);
            let cubic = {
                let small = like(&torch::MUL);
                let square = like(&torch::MUL);
                drop(small);
                let sum = like(&torch::ADD);
                drop(square);
                sum
            };
            let product = like(&torch::MUL);
            drop(scaled);
            drop(cubic);
            let tanh = like(&torch::TANH);
            drop(product);
            let sum = like(&torch::ADD);
            drop(tanh);
            let result = like(&GELU);
            drop(half);
            drop(sum);
            result
        };
        self.by_function(run, bloom_gelu_backward)
    }
}

/// models/bloom `bloom_gelu_back`.
fn bloom_gelu_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    let (numel, dtype) = (grad.numel, grad.dtype);
    let new = |state: &mut State| state.alloc(numel, dtype, &GELU);
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
    only(Grad { storage: result, view: false, ..*grad })
}

/// `where(self == other, grad / 2, grad).masked_fill_(self > other, 0)`.
fn minimum_backward(state: &mut State, _: &Node, grad: &mut Grad) -> Results {
    let half = like(state, grad, &torch::DIV);
    let equal = state.alloc_for(grad.storage, grad.numel, Dtype::Bool, &torch::EQ);
    let result = like(state, grad, &torch::WHERE);
    let above = state.alloc_for(grad.storage, grad.numel, Dtype::Bool, &GT);
    [above, equal, half.storage].into_iter().for_each(|storage| state.release(storage));
    only(result)
}

/// `where(condition, grad, 0)` and `where(condition, 0, grad)`.
fn where_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let mut results: Results = [None; INPUTS];
    for (input, result) in node.inputs.into_iter().zip(&mut results).take(2) {
        if input.wants() {
            let zero = state.alloc(1, grad.dtype, &torch::ZERO);
            *result = Some(like(state, grad, &torch::WHERE));
            state.release(zero);
        }
    }
    results
}
