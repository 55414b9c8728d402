//! Inputs and weights that are rounded to 8-bit floats (`Float8FakeQuantizer`), and weights that are rounded to 4 bits after it
//! (`Int4WeightFakeQuantizer` for inputs in 8-bit floats).

use super::{PRIMITIVES, QAT};
use crate::dtype::Dtype;
use crate::step::autograd::{chain, only};
use crate::step::ops::pointwise::pass_backward;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{What, torch};

static MAGNITUDES: What =
    What::own("abs", "the magnitudes of what is rounded, kept for the gradient of its scale", PRIMITIVES);
static SIGNS: What = What::own("sgn", "the signs of what is rounded", PRIMITIVES);
static WIDE: What =
    What::own("cast", "what is rounded in 32 bits, kept for the gradient of its scale", PRIMITIVES);
static SCALES: What = What::own("cast", "the scales of what is rounded in 32 bits", PRIMITIVES);
static IN_8_BITS: What = What::own("cast", "what is rounded in 8-bit floats", PRIMITIVES);
static OPENED: What =
    What::own("cast", "what was rounded in 32 bits again, kept for the gradient of its scale", PRIMITIVES);
static ROUNDED: What = What::own("cast", "what was rounded, with which the layer multiplies", PRIMITIVES);
static ZEROS: What = What::own("zeros_like", "the zero points of groups of weights", QAT);

impl<'m> Tensor<'m> {
    /// `_choose_scale_float8`, `_quantize_affine_float8` and `_dequantize_affine_float8`, with a scale for so many elements; scales may
    /// have a lower bound.
    pub(super) fn rounded_to_float8(&self, width: u64, bounded: bool) -> Tensor<'m> {
        let scale = {
            let most = self.viewed().magnitudes().extreme_of_rows(width);
            let most = if bounded { most.limited_below() } else { most };
            let raw = most.scale();
            let scale = raw.to_as(Dtype::F32, &SCALES);
            drop((most, raw));
            scale
        };
        let stored = {
            let wide = self.to_as(Dtype::F32, &WIDE);
            let scaled = wide.divided_by_rows(&scale);
            let clamped = scaled.limited();
            let stored = clamped.in_8_bits();
            drop((wide, scaled, clamped));
            stored
        };
        let opened = stored.to_as(Dtype::F32, &OPENED);
        let scaled = opened.mul_rows(&scale);
        let rounded = scaled.to_as(self.value.dtype, &ROUNDED);
        drop((opened, scaled, stored, scale));
        rounded
    }

    /// `Int4WeightFakeQuantizer._fp8_activations_forward` of a weight: rounded to 8-bit floats by row, then to 4 bits by group.
    pub(super) fn rounded_to_4_bits_of_8(&self, row: u64, group: u64) -> Tensor<'m> {
        let machine = self.machine;
        let in_floats = self.rounded_to_float8(row, true);
        let most = in_floats.viewed().magnitudes().extreme_of_rows(group);
        let scale = {
            let divided = most.scale();
            divided.limited_below()
        };
        let (count, dtype) = (scale.value.numel, scale.value.dtype);
        let zeros = machine.tensor(|state| Value::plain(state.alloc(count, dtype, &ZEROS), count, dtype));
        let rounded = in_floats.rounded_by(&scale, false);
        drop((in_floats, most, scale, zeros));
        rounded
    }

    /// `x.abs()`.
    fn magnitudes(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            // grad * self.sgn()
            let node = state.node([x], |state, _, grad| only(chain(state, grad, &[&SIGNS, &torch::MUL])));
            state.save_view(node, x);
            state.new_like(x, x.dtype, &MAGNITUDES, node.output(0))
        })
    }

    /// `_RoundToFloat8.apply(x, torch.float8_e4m3fn)`: its gradient is passed on.
    fn in_8_bits(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            state.new_like(x, Dtype::U8, &IN_8_BITS, node.output(0))
        })
    }
}
