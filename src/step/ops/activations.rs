//! Activation functions, operation by operation as transformers' activations.py writes them, and the derivatives that
//! nothing else needs.
//!
//! Sources: transformers 5.17 activations.py; tools/autograd/derivatives.yaml of PyTorch 2.11. What autocast runs in
//! float32 is listed in aten/src/ATen/autocast_mode.h: `pow`, `softplus` and `expm1` are, `erf`, `tanh` and `sigmoid` not.

use super::pointwise::promoted;
use crate::dtype::Dtype;
use crate::model::blocks::{Activation, XIELU_PARAMETERS};
use crate::step::autograd::{Grad, INPUTS, Input};
use crate::step::backward::{Op, Results, like};
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;

impl<'m> Tensor<'m> {
    /// Runs an activation function; `own` are the parameters of its layer by name, some of which may be the function's.
    pub(in crate::step) fn activated(&self, act: Activation, own: &[(&'static str, ParamId)]) -> Tensor<'m> {
        match act {
            Activation::Silu => self.keeping_input("silu"),
            Activation::Gelu | Activation::GeluTanh => self.keeping_input("gelu"),
            Activation::Hardswish => self.keeping_input("hardswish"),
            Activation::LeakyRelu => self.keeping_input("leaky_relu"),
            Activation::Mish => self.keeping_input("mish"),
            Activation::Relu6 => self.keeping_input("relu6"),
            Activation::Relu => self.keeping_output("relu"),
            Activation::Sigmoid => self.keeping_output("sigmoid"),
            Activation::Tanh => self.keeping_output("tanh"),
            Activation::Linear => self.clone(),
            Activation::Relu2 => {
                let positive = self.keeping_output("relu");
                positive.power()
            }
            Activation::SqrtSoftplus => {
                let positive = self.softplus();
                positive.sqrt()
            }
            Activation::GeluClipped => {
                let gelu = self.keeping_input("gelu");
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
                    scaled.keeping_output("tanh")
                };
                half.one_plus_times(tanh)
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
                        scaled.mul(&shifted)
                    };
                    product.keeping_output("tanh")
                };
                half.one_plus_times(tanh)
            }
            Activation::GeluPython => {
                let half = self.scale();
                let erf = {
                    let scaled = self.scale();
                    scaled.erf()
                };
                half.one_plus_times(erf)
            }
            Activation::QuickGelu => {
                let open = {
                    let scaled = self.scale();
                    scaled.keeping_output("sigmoid")
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
        }
    }

    /// `self * (1 + other)`.
    fn one_plus_times(&self, other: Tensor<'m>) -> Tensor<'m> {
        let shifted = other.add_number();
        drop(other);
        self.mul(&shifted)
    }

    /// `_xielu_python`: `where(x > 0, alpha_p * x * x + beta * x, (expm1(min(x, eps)) - x) * alpha_n + beta * x)`.
    fn xielu(&self, own: &[(&'static str, ParamId)]) -> Tensor<'m> {
        let [positive, negative] = XIELU_PARAMETERS.map(|name| {
            let known = own.iter().find(|(own, _)| *own == name);
            let value = known.map(|(_, id)| self.machine.state.borrow().parameter_value(*id));
            value.map(|value| Tensor { machine: self.machine, value }.softplus())
        });
        let negative = negative.map(|factor| factor.add_number());
        // `support` lets no layer through that lacks its parameters
        let (Some(positive), Some(negative)) = (positive, negative) else { return self.clone() };
        let condition = self.fresh(self.value.numel, Dtype::Bool, "gt");
        let above = {
            let square = {
                let scaled = self.times_one(&positive);
                scaled.mul(self)
            };
            square.add(&self.times_buffer())
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
            product.add(&self.times_buffer())
        };
        condition.chosen(&above, &below)
    }

    /// `x * factor` with a tensor of one element.
    fn times_one(&self, factor: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let one = &factor.value;
            let node = state.node(Op::Mul, [one.into(), x.into(), Input::NONE]);
            if x.requires_grad() {
                state.save_view(node, one);
            }
            if one.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, promoted(one.dtype, x.dtype), "mul", node.output(0))
        })
    }

    /// `torch.erf(x)`.
    fn erf(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Erf, [x.into(), Input::NONE, Input::NONE]);
            state.save_view(node, x);
            state.new_like(x, x.dtype, "erf", node.output(0))
        })
    }

    /// `torch.sqrt(x)`.
    fn sqrt(&self) -> Tensor<'m> {
        self.kept_by(Op::Sqrt, "sqrt")
    }

    /// `torch.expm1(x)`. autocast runs it in float32.
    fn expm1(&self) -> Tensor<'m> {
        let autocast = self.machine.state.borrow().autocast.is_some();
        self.to(if autocast { Dtype::F32 } else { self.value.dtype }).kept_by(Op::Expm1, "expm1")
    }

    /// An operation that saves its result.
    fn kept_by(&self, op: Op, operation: &'static str) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(op, [x.into(), Input::NONE, Input::NONE]);
            let result = state.new_like(x, x.dtype, operation, node.output(0));
            state.save_view(node, &result);
            result
        })
    }

    /// `torch.min(x, number)`.
    fn minimum(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node(Op::Minimum, [x.into(), Input::NONE, Input::NONE]);
            state.save_view(node, x);
            state.new_like(x, x.dtype, "minimum", node.output(0))
        })
    }

    /// `torch.where(self, a, b)` of a condition.
    fn chosen(&self, a: &Tensor<'m>, b: &Tensor<'m>) -> Tensor<'m> {
        a.apply(|state, a| {
            let b = &b.value;
            let node = state.node(Op::Where, [a.into(), b.into(), Input::NONE]);
            state.save(node, self.value.storage);
            state.new_like(a, promoted(a.dtype, b.dtype), "where", node.output(0))
        })
    }
}

/// Names of the temporaries of a derivative, in the order in which they are made; the last is the result.
fn chain(state: &mut State, grad: Grad, operations: &[&'static str]) -> Grad {
    let mut made: Vec<Grad> = operations.iter().map(|operation| like(state, grad, operation)).collect();
    let result = made.pop();
    made.into_iter().rev().for_each(|temporary| state.release(temporary.storage));
    result.unwrap_or(grad)
}

/// `2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad`.
pub(in crate::step) fn erf_backward(state: &mut State, grad: Grad) -> Grad {
    chain(state, grad, &["pow", "neg", "exp", "mul", "mul"])
}

/// `grad * (result + 1)`.
pub(in crate::step) fn expm1_backward(state: &mut State, grad: Grad) -> Grad {
    chain(state, grad, &["add", "mul"])
}

/// `grad / (2 * result)`.
pub(in crate::step) fn sqrt_backward(state: &mut State, grad: Grad) -> Grad {
    chain(state, grad, &["mul", "div"])
}

/// `where(self == other, grad / 2, grad).masked_fill_(self > other, 0)`.
pub(in crate::step) fn minimum_backward(state: &mut State, grad: Grad) -> Grad {
    let half = like(state, grad, "div");
    let equal = state.alloc(grad.numel, Dtype::Bool, "eq");
    let result = like(state, grad, "where");
    let above = state.alloc(grad.numel, Dtype::Bool, "gt");
    [above, equal, half.storage].into_iter().for_each(|storage| state.release(storage));
    result
}

/// `where(condition, grad, 0)` and `where(condition, 0, grad)`.
pub(in crate::step) fn where_backward(state: &mut State, inputs: [Input; 2], grad: Grad) -> Results {
    let mut results: Results = [None; INPUTS];
    for (input, result) in inputs.into_iter().zip(&mut results) {
        if input.wants() {
            let zero = state.alloc(1, grad.dtype, "zero");
            *result = Some(like(state, grad, "where"));
            state.release(zero);
        }
    }
    results
}
