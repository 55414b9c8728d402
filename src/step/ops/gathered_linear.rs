//! The linear layer that DeepSpeed puts in the place of PyTorch's under ZeRO-3: it saves its input whoever is trained, and what
//! it saves of the weight goes when the weight is partitioned again.
//!
//! Source: deepspeed/runtime/zero/linear.py (`LinearFunctionForZeroStage3`) of DeepSpeed 0.19.8.

use super::linear::{Shape, WEIGHT_GRADIENT, dense_gradient};
use super::matmul::multiplications;
use crate::step::autograd::{Grad, INPUTS, Input, Node, Results};
use crate::step::heap::NOTHING;
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{ENGINE, What, torch};

static BIAS_GRADIENT: What =
    What::own("linear (bias gradient)", "a bias's gradient before it is handed to its parameter", ENGINE);

impl State {
    /// `LinearFunctionForZeroStage3.apply(x, weight, bias)`: the bias is added in place.
    pub(super) fn gathered_linear(
        &mut self,
        x: &Value,
        shape: Shape,
        weight: ParamId,
        bias: Option<ParamId>,
    ) -> Value {
        // a recomputation detaches what it saves and requires a gradient (torch/utils/checkpoint.py `_recomputation_hook`),
        // which holds what the parameter was gathered in
        let detaches = self.recomputing && self.params.get(weight).trainable;
        let held = if detaches { self.parallel.gathered(weight) } else { NOTHING };
        let weight = self.weight(weight);
        let has_bias = bias.is_some();
        let bias = self.weight_if(bias);
        let node = self.node([x, &weight, &bias], backward);
        let rows = x.numel / shape.input.max(1);
        let numel = rows.saturating_mul(shape.output);
        let storage = self.alloc_product(numel, shape.input, x.dtype, &torch::LINEAR);
        self.take_rows(storage, x.storage, rows);
        self.save_view(node, x);
        self.save(node, held);
        if has_bias {
            self.save(node, NOTHING);
        }
        Value { flat: x.flat, ..Value::plain(storage, numel, x.dtype) }.at(node.output(0))
    }
}

impl State {
    /// The same of a weight that is a tensor of its own, which is saved too, whoever is trained.
    pub(super) fn gathered_product(&mut self, x: &Value, shape: Shape, weight: &Value) -> Value {
        let node = self.node([x, weight, &Input::NONE], backward);
        let rows = x.numel / shape.input.max(1);
        let numel = rows.saturating_mul(shape.output);
        let storage = self.alloc_product(numel, shape.input, x.dtype, &torch::LINEAR);
        self.take_rows(storage, x.storage, rows);
        self.save_view(node, x);
        self.save_view(node, weight);
        Value { flat: x.flat, ..Value::plain(storage, numel, x.dtype) }.at(node.output(0))
    }
}

/// The input's gradient comes first.
fn backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [x, weight, bias] = node.inputs;
    *grad = dense_gradient(state, *grad);
    let mut results: Results = [None; INPUTS];
    let rows = multiplications([x.numel, weight.numel, grad.numel]) / weight.numel.max(1);
    if x.wants() {
        let product = (x.numel, grad.numel / rows.max(1));
        let storage = state.alloc_product_for(x.storage, product, grad.dtype, &torch::INPUT_GRADIENT);
        results[0] = Some(Grad::new(storage, x.numel, grad.dtype, Layout::Tokens));
    }
    if weight.wants() {
        let storage = state.alloc_product(weight.numel, rows, grad.dtype, &WEIGHT_GRADIENT);
        results[1] = Some(Grad::new(storage, weight.numel, grad.dtype, Layout::Tokens));
    }
    if bias.wants() {
        let storage = state.alloc(bias.numel, grad.dtype, &BIAS_GRADIENT);
        kernels::column_sum_scratch(state, grad.numel / bias.numel.max(1), bias.numel, grad.dtype);
        results[2] = Some(Grad::new(storage, bias.numel, grad.dtype, Layout::Tokens));
    }
    results
}
