//! bitsandbytes' 4-bit layers: the weight is dequantised for the product, or its kernel multiplies by it as it is.
//!
//! Source: bitsandbytes 0.50 nn/modules.py `Linear4bit.forward`, autograd/_functions.py `MatMul4Bit`.

use super::kernel::is_fused;
use super::{QUANT_BLOCK, Quantised};
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::four_bit::{DEQUANTISED, SCALES};
use crate::step::ops::shape::{INPUT, OUTPUT, Shape};
use crate::step::tensor::{Layout, Value};
use crate::step::what::torch;

impl State {
    /// `Linear4bit.forward`; versions that are `early` have no kernel that multiplies by the weight as it is, and hold their
    /// input.
    pub(super) fn linear_bitsandbytes(
        &mut self,
        x: &Value,
        shape: Shape,
        quantised: Quantised,
        early: bool,
    ) -> Value {
        let input_dtype = x.dtype;
        let x = self.cast_as(x, quantised.compute, &INPUT);
        let packed = self.weight(quantised.weight);
        let node = self
            .node([&x, &packed], move |state, node, grad| backward_4bit(state, node, grad, shape, quantised));
        if early {
            self.hold(node, x.storage);
        }
        if x.requires_grad() {
            // `ctx.tensors = (None, B)`: what the weight was gathered in stays although it is partitioned again
            let gathered = self.parallel.gathered(quantised.weight);
            self.hold(node, gathered);
        }
        let rows = x.numel / shape.input.max(1);
        let numel = rows.saturating_mul(shape.output);
        let product = (numel, shape.input);
        let fused = !early && is_fused(self.device, quantised.compute, rows, shape);
        let storage = if fused {
            self.read_operand(packed.bytes());
            self.alloc_product_for(x.storage, product, quantised.compute, &torch::LINEAR_4BIT)
        } else {
            let weight = self.dequantised(shape, quantised, true);
            self.read_operand(shape.weights().saturating_mul(quantised.compute.bytes()));
            let storage = self.alloc_product_for(x.storage, product, quantised.compute, &torch::LINEAR_4BIT);
            weight.into_iter().for_each(|storage| self.release(storage));
            storage
        };
        let output = Value { flat: x.flat, ..Value::plain(storage, numel, quantised.compute) };
        let output = output.at(node.output(0));
        let result = self.cast_as(&output, input_dtype, &OUTPUT);
        self.release(output.storage);
        self.release(packed.storage);
        self.release(x.storage);
        result
    }

    /// `dequantize_4bit(weight.data, weight.quant_state)`: the weight in the element type that it had.
    pub(in crate::step) fn dequantise(&mut self, shape: Shape, quantised: Quantised) -> Value {
        let (numel, dtype) = (shape.weights(), quantised.origin);
        let count = if quantised.double { numel.div_ceil(QUANT_BLOCK) } else { 0 };
        let scales = if count > 0 { self.alloc(count, Dtype::F32, &SCALES) } else { NOTHING };
        let weight = self.alloc(numel, dtype, &DEQUANTISED);
        self.note_dims(weight, shape.dims());
        self.release(scales);
        Value::plain(weight, numel, dtype)
    }

    /// The dequantised weight and the scales that making it takes; the order is that of freeing.
    fn dequantised(&mut self, shape: Shape, quantised: Quantised, forward: bool) -> [StorageId; 3] {
        let numel = shape.weights();
        let scales = numel.div_ceil(QUANT_BLOCK);
        let mut first = NOTHING;
        let mut second = NOTHING;
        if quantised.double {
            first = self.alloc(scales, Dtype::F32, &SCALES);
            if forward {
                second = self.alloc(scales, Dtype::F32, &SCALES);
            }
        }
        let dtype = if forward { quantised.opened } else { quantised.origin };
        let mut weight = self.alloc(numel, dtype, &DEQUANTISED);
        self.note_dims(weight, shape.dims());
        if dtype != quantised.compute {
            if !forward {
                self.release(std::mem::replace(&mut first, NOTHING));
            }
            let cast = self.alloc_for(weight, numel, quantised.compute, &torch::CAST);
            self.release(weight);
            weight = cast;
        }
        [second, first, weight]
    }
}

/// MatMul4Bit's backward: the weight is dequantised once more.
fn backward_4bit(state: &mut State, node: &Node, grad: &Grad, shape: Shape, quantised: Quantised) -> Results {
    let x = node.inputs[0];
    let [_, scales, weight] = state.dequantised(shape, quantised, false);
    state.release(scales);
    let storage =
        state.alloc_product_for(x.storage, (x.numel, shape.output), grad.dtype, &torch::INPUT_GRADIENT);
    state.release(weight);
    only(Grad::new(storage, x.numel, grad.dtype, Layout::Tokens))
}
