//! torchao's `NF4Tensor`: a 4-bit weight that PyTorch's own operations take apart, one after the other.
//!
//! Source: torchao 0.10 dtypes/nf4tensor.py (`from_tensor`, `get_original_weight`, `dequantize_scalers`, `LinearNF4`).
//! Compared with the allocator's trace of that code.

use super::autograd::{Grad, Input, Node};
use super::backward::{Op, Results};
use super::linear::{DOUBLE_QUANT_BLOCK, QUANT_BLOCK, Quantised, Shape};
use super::machine::{State, StorageId};
use super::tensor::{Layout, Value};
use crate::dtype::Dtype;

/// What an `NF4Tensor` of so many weights of an element type keeps: bytes and element type of each of its tensors.
pub(super) fn stored(numel: u64, dtype: Dtype) -> [(u64, Dtype, &'static str); 5] {
    let scales = numel.div_ceil(QUANT_BLOCK);
    let bytes = |count: u64| count.saturating_mul(dtype.bytes());
    [
        (numel.div_ceil(2), Dtype::U8, "4-bit weight"),
        (scales, Dtype::U8, "scales (8-bit)"),
        (bytes(scales.div_ceil(DOUBLE_QUANT_BLOCK)), dtype, "scales of scales"),
        (bytes(1), dtype, "offset"),
        (bytes(16), dtype, "code book"),
    ]
}

impl State {
    /// `linear_nf4`.
    #[inline(never)]
    pub fn linear_nf4(&mut self, x: &Value, shape: Shape, quantised: Quantised) -> Value {
        let node = self.node(Op::Linear4bit(shape, quantised), [x.into(), Input::NONE, Input::NONE]);
        let weight = self.original_weight(shape, quantised.origin);
        let numel = (x.numel / shape.input.max(1)).saturating_mul(shape.output);
        let storage = self.alloc_product(numel, x.dtype, "linear (4-bit)");
        self.release(weight);
        Value { flat: x.flat, ..Value::plain(storage, numel, x.dtype) }.at(node.output(0))
    }

    /// `get_original_weight`: every byte becomes two 64-bit indices into the code book.
    fn original_weight(&mut self, shape: Shape, dtype: Dtype) -> StorageId {
        let numel = shape.weights();
        let (half, scales) = (numel / 2, numel.div_ceil(QUANT_BLOCK));
        let [first, second] = ["first elements", "second elements"].map(|name| {
            let small = self.alloc(half, Dtype::U8, name);
            let wide = self.alloc(half, Dtype::I64, name);
            self.release(small);
            wide
        });
        let looked_up = ["first elements", "second elements"].map(|name| self.alloc(half, dtype, name));
        let quotient = self.alloc(scales, dtype, "scales");
        let scales = self.alloc(scales, dtype, "scales");
        self.release(quotient);
        let scaled = ["first elements, scaled", "second elements, scaled"].map(|name| {
            let repeated = self.alloc(half, dtype, "scales, repeated");
            let scaled = self.alloc(half, dtype, name);
            self.release(repeated);
            scaled
        });
        let weight = self.alloc(numel, dtype, "dequantised weight");
        let locals = [first, second].into_iter().chain(looked_up).chain([scales]).chain(scaled);
        locals.for_each(|local| self.release(local));
        weight
    }
}

/// `LinearNF4.backward`.
#[inline(never)]
pub(super) fn backward(
    state: &mut State,
    node: &Node,
    shape: Shape,
    quantised: Quantised,
    grad: Grad,
) -> Results {
    let x = node.inputs[0];
    let weight = state.original_weight(shape, quantised.origin);
    let storage = state.alloc_product(x.numel, grad.dtype, "linear (input gradient)");
    state.release(weight);
    [Some(Grad::new(storage, x.numel, grad.dtype, Layout::Tokens)), None, None]
}
