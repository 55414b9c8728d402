//! A linear layer under (IA)³, as peft 0.21 runs it.

use super::four_bit::Format;
use super::linear::{Layer, Weight};
use super::shape::OUTPUT;
use super::tuned::Ia3;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, like, only};
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What};

const IA3: Source = Source::At("peft, tuners/ia3/layer.py");
static FACTORS: What = What::own("mul", "the factors of (IA)³, once more: 1 times the parameter", IA3);
static INPUT_TO_SCALE: What = What::own(
    "cast",
    "the layer's input in the element type of (IA)³'s factors, kept for the gradient of these",
    IA3,
);
static SCALED: What = What::own("mul", "features times the factors of (IA)³", IA3);
static NARROW: What = What::own("cast", "what was scaled, in the element type that it had", IA3);

impl<'m> Tensor<'m> {
    /// `Linear.forward`; of 4-bit layers tuners/ia3/bnb.py `Linear4bit.forward`.
    pub(super) fn by_factors(&self, layer: &Layer, tuned: Ia3) -> Tensor<'m> {
        let factors = self.machine.weight(tuned.scale).once_more();
        match layer.weight {
            Weight::Plain(_) if tuned.of_input => {
                let dtype = self.value.dtype;
                let x = self.to_as(factors.value.dtype, &INPUT_TO_SCALE);
                let scaled = x.times_row(&factors, &SCALED);
                let narrow = scaled.to_as(dtype, &NARROW);
                drop(scaled);
                let result = narrow.base(layer);
                drop((x, factors, narrow));
                result
            }
            Weight::Plain(_) => {
                let result = self.base(layer);
                let scaled = result.times_row(&factors, &SCALED);
                let narrow = scaled.to_as(result.value.dtype, &NARROW);
                drop(scaled);
                narrow
            }
            Weight::Quantised(quantised) => {
                let autocast = self.machine.with(|state| state.autocast.is_some());
                let wide = if autocast { self.clone() } else { self.to_as(Dtype::F32, &INPUT_TO_SCALE) };
                let result = if tuned.of_input {
                    let scaled = wide.times_row(&factors, &SCALED);
                    scaled.base(layer)
                } else {
                    let result = wide.base(layer);
                    result.times_row(&factors, &SCALED)
                };
                match quantised.format {
                    Format::Bitsandbytes | Format::BitsandbytesEarly | Format::Nf4Tensor => result.copied(),
                    Format::Int8 | Format::TorchaoInt8 | Format::Gptq | Format::Awq(_) => {
                        result.to_as(self.value.dtype, &OUTPUT)
                    }
                }
            }
        }
    }

    /// `1 * parameter.flatten()`.
    fn once_more(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| {
                let product = like(state, grad, &FACTORS);
                only(Grad { view: true, ..product })
            });
            state.new_like(x, x.dtype, &FACTORS, node.output(0))
        })
    }
}
