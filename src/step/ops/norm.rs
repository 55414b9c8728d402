//! Norms: the fused LayerNorm kernel and the ones that transformers writes in Python.

use super::pointwise::{mul_backward, pass_backward, sub_backward};
use crate::dtype::Dtype;
use crate::model::blocks::NormKind;
use crate::step::autograd::{Grad, INPUTS, Input, Node, Results};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::parallel::Module;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{What, roles, torch};

static LAYER_NORM: What = What::step("layer_norm", "the norm's output, saved as the next projection's input");
static RSTD: What = What::step("rstd", "one statistic per row: the reciprocal of the deviation");

/// A norm on the machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct NormLayer {
    pub name: &'static str,
    pub width: u64,
    pub kind: NormKind,
    pub weight: Option<ParamId>,
    pub bias: Option<ParamId>,
    /// Heads that have a norm each: the first one's weight is `weight`, the others' follow it (stablelm).
    pub heads: u64,
    /// What runs in the place of these operations, where another project brings a kernel.
    pub kernel: Option<NormKernel>,
}

/// A norm as another project's kernel runs it.
pub(in crate::step) type NormKernel = for<'m> fn(&Tensor<'m>, &NormLayer) -> Tensor<'m>;

impl<'m> Tensor<'m> {
    /// Runs a norm.
    pub fn normed(&self, norm: &NormLayer) -> Tensor<'m> {
        if norm.heads > 1 {
            return self.machine.within(norm.name, &roles::NORM, || self.normed_by_head(norm));
        }
        let module = Module::of([norm.weight, norm.bias]);
        self.machine.module(module, self, |own| own.normed_as(norm))
    }

    fn normed_as(&self, norm: &NormLayer) -> Tensor<'m> {
        if let Some(kernel) = norm.kernel {
            return self.machine.within(norm.name, &roles::NORM, || kernel(self, norm));
        }
        self.machine.within(norm.name, &roles::NORM, || match norm.kind {
            NormKind::LayerNorm { .. } | NormKind::LayerNormPlusOne | NormKind::LayerNormBare => {
                self.layer_norm(norm)
            }
            NormKind::LayerNormPlain => {
                let output = {
                    let float = self.to(Dtype::F32);
                    float.layer_norm(norm)
                };
                output.to(self.value.dtype)
            }
            NormKind::Identity => self.clone(),
            NormKind::RmsLate => {
                // t5: only the variance is computed from a copy in float32
                let variance = {
                    let squares = {
                        let float = self.to(Dtype::F32);
                        float.power()
                    };
                    squares.mean_rows(norm.width)
                };
                let mut output = {
                    let inverse = {
                        let shifted = variance.add_number();
                        shifted.rsqrt()
                    };
                    self.mul_rows(&inverse)
                };
                output = output.to(self.weight_dtype(norm));
                let result = output.weighted(norm);
                drop(output);
                drop(variance);
                result
            }
            NormKind::Rms => {
                let (normed, variance) = self.root_mean_square(norm.width, true);
                let cast = normed.to(self.value.dtype);
                let output = cast.weighted(norm);
                drop(cast);
                drop(normed);
                drop(variance);
                output
            }
            NormKind::RmsTyped => {
                let cast = {
                    let normed = self.root_mean_square(norm.width, false).0;
                    normed.to(self.value.dtype)
                };
                cast.weighted(norm)
            }
            NormKind::RmsPlusOne => {
                // gemma: `_norm(x.float()) * (1.0 + weight.float())`, then `.type_as(x)`
                let mut output = self.root_mean_square(norm.width, false).0;
                output = output.weighted_in_float(norm, true);
                output.to(self.value.dtype)
            }
            NormKind::RmsCastLast => {
                let (normed, _variance) = self.root_mean_square(norm.width, true);
                let output = normed.weighted(norm);
                output.to(self.value.dtype)
            }
            NormKind::RmsFloat => {
                let (normed, _variance) = self.root_mean_square(norm.width, true);
                let output = normed.weighted_in_float(norm, false);
                output.to(self.value.dtype)
            }
            NormKind::RmsPower => {
                let mut output = {
                    let x = self.to(Dtype::F32);
                    let mean = {
                        let mean = {
                            let squares = x.power();
                            squares.mean_rows(norm.width)
                        };
                        mean.add_number()
                    };
                    let normed = {
                        let power = mean.power();
                        x.mul_rows(&power)
                    };
                    drop(x);
                    drop(mean);
                    normed
                };
                output = output.weighted_in_float(norm, false);
                output.to(self.value.dtype)
            }
            NormKind::RmsPlain => {
                let normed = self.root_mean_square(norm.width, false).0;
                normed.to(self.value.dtype)
            }
            NormKind::LayerNormPython => {
                let mut x = self.to(Dtype::F32);
                let mean = x.mean_rows(norm.width);
                let variance = {
                    let squares = {
                        let centred = x.minus_rows(&mean);
                        centred.power()
                    };
                    squares.mean_rows(norm.width)
                };
                x = {
                    let centred = x.minus_rows(&mean);
                    let inverse = {
                        let shifted = variance.add_number();
                        shifted.rsqrt()
                    };
                    centred.mul_rows(&inverse)
                };
                x = x.weighted_in_float(norm, false);
                let output = x.to(self.value.dtype);
                drop(x);
                drop((mean, variance));
                output
            }
        })
    }

    /// models/stablelm `StableLmLayerNormPerHead`: each head through a norm of its own, then all joined.
    fn normed_by_head(&self, norm: &NormLayer) -> Tensor<'m> {
        let Ok(heads) = u8::try_from(norm.heads) else {
            return self.unmodelled("norms of more than 255 heads, each with its own");
        };
        let chunks = self.chunks(&vec![self.value.numel / norm.heads; usize::from(heads)]);
        let mut normed: Vec<_> = (0..)
            .zip(&chunks)
            .map(|(head, chunk)| {
                let norm = NormLayer { weight: norm.weight.map(|first| first + head), ..*norm };
                let module = Module::of([norm.weight, None]);
                self.machine.module(module, chunk, |chunk| chunk.layer_norm(&norm))
            })
            .collect();
        let joined = self.machine.stacked(&normed, self.value.numel);
        while normed.pop().is_some() {}
        joined
    }

    /// `x.float() * rsqrt(mean(x.float()²) + eps)` in float32, and the mean of squares where the caller has it `named`.
    pub fn root_mean_square(&self, width: u64, named: bool) -> (Tensor<'m>, Option<Tensor<'m>>) {
        let x = self.to(Dtype::F32);
        let variance = {
            let squares = x.power();
            squares.mean_rows(width)
        };
        let (shifted, variance) = {
            let shifted = variance.add_number();
            (shifted, named.then_some(variance))
        };
        let inverse = {
            let inverse = shifted.rsqrt();
            drop(shifted);
            inverse
        };
        (x.mul_rows(&inverse), variance)
    }

    /// The element type of a norm's weight, where it is a half; else this tensor's own.
    fn weight_dtype(&self, norm: &NormLayer) -> Dtype {
        let weight = norm.weight.map(|weight| self.machine.with(|state| state.params.get(weight).dtype));
        weight.filter(|dtype| dtype.is_half()).unwrap_or(self.value.dtype)
    }

    pub fn weighted(&self, norm: &NormLayer) -> Tensor<'m> {
        norm.weight.map_or_else(|| self.clone(), |weight| self.times_weight(weight))
    }

    /// `x * weight`.
    pub fn times_weight(&self, weight: ParamId) -> Tensor<'m> {
        self.apply(|state, x| {
            let weight = state.weight(weight);
            let node = state.row_node([&weight, x], mul_backward);
            if weight.wants() {
                state.save_view(node, x);
            }
            if x.requires_grad() {
                state.save(node, NOTHING);
            }
            // a float32 weight (k-bit preparation, mixed models) promotes the product
            let dtype = if weight.dtype.bytes() > x.dtype.bytes() { weight.dtype } else { x.dtype };
            let value = state.new_like(x, dtype, &torch::MUL, node.output(0));
            state.release(weight.storage);
            value
        })
    }

    /// `x * weight.float()`, or `x * (1 + weight).float()`: one more copy of the weight.
    pub fn times_float_weight(&self, weight: ParamId, plus_one: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let mut factor = state.weight(weight);
            if plus_one {
                let node = state.node([&factor], pass_backward);
                let sum = state.new_like(&factor, factor.dtype, &torch::ADD, node.output(0));
                state.release(factor.storage);
                factor = sum;
            }
            let float = state.cast(&factor, Dtype::F32);
            state.release(factor.storage);
            let node = state.row_node([&float, x], mul_backward);
            // the weight is `other`, which is saved before `self`
            if x.requires_grad() {
                state.save(node, float.storage);
            }
            if float.requires_grad() {
                state.save_view(node, x);
            }
            let value = state.new_like(x, x.dtype, &torch::MUL, node.output(0));
            state.release(float.storage);
            value
        })
    }

    /// `weight.float() * x`, or `(1 + weight.float()) * x`.
    fn weighted_in_float(&self, norm: &NormLayer, plus_one: bool) -> Tensor<'m> {
        // gemma4's `Gemma4RMSNorm(with_scale=False)` has none
        let Some(weight) = norm.weight else { return self.clone() };
        let factor = self.machine.tensor(|state| {
            let weight = state.weight(weight);
            let float = state.cast(&weight, Dtype::F32);
            state.release(weight.storage);
            if !plus_one {
                return float;
            }
            let node = state.node([&float], pass_backward);
            let sum = state.new_like(&float, Dtype::F32, &torch::ADD, node.output(0));
            state.release(float.storage);
            sum
        });
        self.times_factor(&factor, matches!(norm.kind, NormKind::LayerNormPython | NormKind::RmsFloat))
    }

    /// `factor[width] * x[rows, width]`, or with the factor behind: the second operand is saved before the first, and its gradient made
    /// before the other's.
    fn times_factor(&self, factor: &Tensor<'m>, first: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let operands = if first { [&factor.value, x] } else { [x, &factor.value] };
            let node = state.row_node(operands, mul_backward);
            if !first && x.requires_grad() {
                state.save(node, factor.value.storage);
            }
            if factor.value.requires_grad() {
                state.save_view(node, x);
            }
            if first && x.requires_grad() {
                state.save(node, factor.value.storage);
            }
            state.new_like(x, x.dtype, &torch::MUL, node.output(0))
        })
    }

    /// `x[rows, width] - r[rows, 1]`.
    pub fn minus_rows(&self, rows: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x, &rows.value], sub_backward);
            state.new_like(x, x.dtype, &torch::SUB, node.output(0))
        })
    }

    /// `F.rms_norm` with a weight of the input's element type: one kernel that keeps its input and the reciprocal root. What lies `between`
    /// other tensors is copied for it, forward and backward.
    pub fn fused_root_mean_square(&self, norm: &NormLayer, between: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let weight = state.weight_if(norm.weight);
            let rows = x.numel / norm.width.max(1);
            let derivative = move |state: &mut State, node: &Node, grad: &mut Grad| {
                strided_norm_backward(state, node, grad, (false, between))
            };
            let node = state.node([x, &weight], derivative);
            state.save_view(node, x);
            state.save(node, NOTHING);
            let dense_input = match between {
                true => state.alloc_for(x.storage, x.numel, x.dtype, &torch::CONTIGUOUS),
                false => NOTHING,
            };
            let output = state.new_like(x, x.dtype, &torch::RMS_NORM, node.output(0));
            let root = state.alloc_for(x.storage, rows, Dtype::F32, &RSTD);
            state.save(node, root);
            state.release(dense_input);
            state.release(root);
            state.release(weight.storage);
            output
        })
    }

    /// `F.layer_norm`: one kernel that keeps its input, mean and reciprocal deviation (float32). Under autocast it runs
    /// in float32 (ATen/autocast_mode.h, list `AT_FORALL_FP32`).
    fn layer_norm(&self, norm: &NormLayer) -> Tensor<'m> {
        self.machine.tensor(|state| {
            let plus_one = norm.kind == NormKind::LayerNormPlusOne;
            let cast = match state.autocast {
                None => self.value.dtype,
                // models/nemotron casts to autocast's own type and leaves autocast
                Some(target) if plus_one => target,
                Some(_) => Dtype::F32,
            };
            let mut inputs = [Input::NONE; INPUTS];
            let mut copies = [NOTHING; 2];
            let shifted = norm.weight.filter(|_| plus_one).map(|id| {
                let weight = state.weight(id);
                let node = state.node([&weight], pass_backward);
                let sum = state.new_like(&weight, weight.dtype, &torch::ADD, node.output(0));
                state.release(weight.storage);
                sum
            });
            for (slot, id) in [(1, norm.bias), (0, norm.weight)] {
                let Some(id) = id else { continue };
                let own = state.weight(id);
                let value = shifted.filter(|_| slot == 0).unwrap_or(own);
                let value = state.cast(&value, cast);
                state.release(own.storage);
                copies[slot] = value.storage;
                inputs[slot + 1] = value;
            }
            let x = state.cast(&self.value, cast);
            inputs[0] = x;
            let rows = x.numel / norm.width.max(1);
            // heads do not lie row after row; a copy of one of several in another type does
            let one_head = norm.heads > 1;
            let strided = if one_head { cast == self.value.dtype } else { x.layout != x.dense_layout() };
            let node = if one_head || strided {
                let derivative = move |state: &mut State, node: &Node, grad: &mut Grad| {
                    strided_norm_backward(state, node, grad, (one_head, strided))
                };
                state.node(inputs.each_ref(), derivative)
            } else {
                state.node(inputs.each_ref(), layer_norm_backward)
            };
            // in the order of their names: bias, input, weight
            state.save(node, copies[1]);
            state.save_view(node, &x);
            state.save(node, copies[0]);
            let dense_input = if strided {
                state.alloc_for(x.storage, x.numel, x.dtype, &torch::CONTIGUOUS)
            } else {
                NOTHING
            };
            let dense = Value { layout: x.dense_layout(), ..x };
            let value = state.new_like(&dense, x.dtype, &LAYER_NORM, node.output(0));
            let statistics =
                if x.dtype == Dtype::F16 || x.dtype == Dtype::Bf16 { Dtype::F32 } else { x.dtype };
            let statistics =
                [&torch::MEAN, &RSTD].map(|name| state.alloc_for(x.storage, rows, statistics, name));
            for storage in statistics {
                state.save(node, storage);
            }
            state.release(dense_input);
            for storage in statistics {
                state.release(storage);
            }
            let shifted = shifted.map_or(NOTHING, |shifted| shifted.storage);
            for storage in [x.storage, copies[0], copies[1], shifted] {
                state.release(storage);
            }
            value
        })
    }
}

/// native_layer_norm_backward: the input's gradient, then weight's and bias's.
fn layer_norm_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    strided_norm_backward(state, node, grad, (false, false))
}

/// The same of one head of several, whose gradient is a slice of that of all; the input is copied for the kernel if it is
/// `strided`.
fn strided_norm_backward(
    state: &mut State,
    node: &Node,
    grad: &mut Grad,
    (one_head, strided): (bool, bool),
) -> Results {
    let input = node.inputs[0];
    let dense_input = if strided {
        state.alloc_for(input.storage, input.numel, input.dtype, &torch::CONTIGUOUS)
    } else {
        NOTHING
    };
    let mut results: Results = [None; INPUTS];
    for (input, result) in node.inputs.iter().zip(&mut results) {
        if input.wants() {
            let storage = state.alloc_for(input.storage, input.numel, input.dtype, &LAYER_NORM);
            *result = Some(Grad::new(storage, input.numel, input.dtype, input.dense_layout()));
        }
    }
    let lies_dense = matches!(grad.layout, Layout::Either | Layout::Expanded) || grad.layout == input.shape;
    let is_dense = lies_dense && (!one_head || state.sequences == 1);
    if !is_dense {
        state.scratch(grad.numel.saturating_mul(grad.dtype.bytes()), &torch::CONTIGUOUS);
    }
    state.release(dense_input);
    results
}
