//! Linear layers under quantisation-aware training (torchao's `FakeQuantizedLinear`), in eager mode: the weight, and with 8-bit inputs the
//! input, is rounded as quantisation would, one operation after the other, and autograd keeps what these need.
//!
//! Source: torchao 0.18 quantization/qat/{linear,fake_quantizer}.py and quantization/quant_primitives.py; the order of events was compared
//! with the allocator's trace of a layer.

mod by_scale;
mod float8;
mod mslk;
mod rounding;

use super::linear::Layer;
use crate::memory::Category;
use crate::step::fake_quant::{FakeQuantizer, InputRounding, WeightRounding};
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;
use crate::step::what::Source;

const QAT: Source = Source::At("torchao, quantization/qat/fake_quantizer.py");
const PRIMITIVES: Source = Source::At("torchao, quantization/quant_primitives.py");

impl<'m> Tensor<'m> {
    /// `FakeQuantizedLinear.forward`.
    pub(super) fn linear_faked(&self, layer: &Layer, (weight, fake): (ParamId, FakeQuantizer)) -> Tensor<'m> {
        let machine = self.machine;
        let row = layer.shape.input;
        let input = fake.input.map(|rounding| match rounding {
            InputRounding::ByToken(scales) => self.rounded_by_token(row, (weight, scales)),
            InputRounding::Float8(granularity) => {
                self.rounded_to_float8(granularity.width(self.value.numel, row), false)
            }
        });
        // what the output head's weight becomes are no logits
        let category = match machine.with(|state| state.category) {
            Category::Logits => Category::Activations,
            other => other,
        };
        let rounded = machine.in_category(category, || {
            let whole = machine.weight(weight);
            match fake.weight {
                WeightRounding::Mslk => whole.rounded_to_4_bits(fake.group),
                WeightRounding::MslkOfFloat8 => whole.rounded_to_4_bits_of_8(row, fake.group),
                WeightRounding::ByScale => whole.rounded_by_group(fake.group, weight),
                WeightRounding::Float8(granularity) => {
                    whole.rounded_to_float8(granularity.width(whole.value.numel, row), false)
                }
            }
        });
        let x = input.as_ref().unwrap_or(self);
        let output =
            machine.tensor(|state| state.linear_with(&x.value, layer.shape, &rounded.value, layer.bias));
        drop((input, rounded));
        output
    }
}
