//! torchao's int8 weight-only layers: the weight becomes a 16-bit one for the product, and the scales of its rows multiply what comes
//! of it. Both are operations that autograd records, so the copy of the weight stays until backward wherever the input has a gradient.
//!
//! Source: torchao 0.18 quantization/quantize_/workflows/int8/int8_tensor.py (`aten.linear.default` of `Int8Tensor`).

use super::pointwise::mul_backward;
use super::shape::{OUTPUT, Shape};
use crate::dtype::Dtype;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::Value;
use crate::step::what::{Source, What};

pub(in crate::step) static ZERO_POINTS: What = What::own(
    "zero points",
    "zeros of a symmetric quantisation, one for each row of an 8-bit weight",
    SOURCE,
);
static OPENED: What = What::own(
    "8-bit weight in 16 bits",
    "the weight as numbers of the input's type, without its scales: autograd keeps it until the input has its gradient",
    SOURCE,
);
static ROW_SCALES: What =
    What::own("scales, cast", "the scales of an 8-bit weight's rows in the product's type", SOURCE);
static SCALED: What =
    What::own("linear (8-bit)", "the product with an 8-bit weight times its scales", SOURCE);

const SOURCE: Source = Source::At("torchao, quantization/quantize_/workflows/int8/int8_tensor.py");

impl State {
    /// `F.linear(x, weight)` of an `Int8Tensor` with scales for rows, without quantised activations. A frozen bias is added in place.
    pub(super) fn linear_weight_only(&mut self, x: &Value, shape: Shape, weight: ParamId) -> Value {
        let packed = self.weight(weight);
        // `torch.mm(x, w_vals_int8_t.to(output_dtype))`
        let opened = self.alloc(shape.weights(), x.dtype, &OPENED);
        self.note_dims(opened, shape.dims());
        let product = self.linear_with(x, shape, &Value::plain(opened, shape.weights(), x.dtype), None);
        self.release(opened);
        // `m * weight_tensor.scale.to(m.dtype).flatten()`
        let float = Value::plain(packed.storage, shape.output, Dtype::F32);
        let scales = match product.dtype {
            Dtype::F32 => float,
            dtype => Value::plain(self.alloc(shape.output, dtype, &ROW_SCALES), shape.output, dtype),
        };
        let node = self.row_node([&product, &scales], mul_backward);
        if product.requires_grad() {
            self.save_view(node, &scales);
        }
        let scaled = self.new_like(&product, product.dtype, &SCALED, node.output(0));
        if scales.dtype != Dtype::F32 {
            self.release(scales.storage);
        }
        // `y.to(output_dtype)`
        let result = self.cast_as(&scaled, x.dtype, &OUTPUT);
        [product.storage, scaled.storage, packed.storage].into_iter().for_each(|local| self.release(local));
        Value { flat: x.flat, ..result }
    }
}
