//! A linear layer under VeRA, as peft 0.21 runs it.

use super::four_bit::Format;
use super::linear::{Layer, Shape, Weight};
use super::shape::OUTPUT;
use super::tuned::Vera;
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What};

const VERA: Source = Source::At("peft, tuners/vera/layer.py");
static WIDE_INPUT: What = What::own("cast", "the layer's input in the element type of VeRA's vectors", VERA);
static SCALED: What = What::own(
    "mul",
    "what a matrix of VeRA's made, times its vector, for the gradient of which the first stays",
    VERA,
);
static ADAPTED: What = What::own("add", "the layer's output with what VeRA adds", VERA);

impl<'m> Tensor<'m> {
    /// `Linear.forward`, which is that of quantised layers too.
    pub(super) fn by_shared_factors(&self, layer: &Layer, tuned: Vera) -> Tensor<'m> {
        let machine = self.machine;
        let base = self.base(layer);
        let dtype = base.value.dtype;
        let base = match layer.weight {
            Weight::Plain(_) => base,
            // `maybe_clone_base_result` of utils/quantization_utils.py
            Weight::Quantised(quantised) => match quantised.format {
                Format::Bitsandbytes | Format::BitsandbytesEarly | Format::Nf4Tensor => {
                    let copy = base.copied();
                    drop(base);
                    copy
                }
                Format::Int8 | Format::TorchaoInt8 | Format::Gptq | Format::Awq(_) => base,
            },
        };
        let [d, b] = [tuned.d, tuned.b].map(|id| machine.weight(id));
        let x = self.to_as(d.value.dtype, &WIDE_INPUT);
        let added = {
            let dropped = x.dropout(tuned.dropout);
            let low =
                dropped.by_matrix(Shape { input: layer.shape.input, output: tuned.rank }, tuned.shared[0]);
            drop(dropped);
            let scaled = d.times_columns(&low, &SCALED);
            drop(low);
            let high =
                scaled.by_matrix(Shape { input: tuned.rank, output: layer.shape.output }, tuned.shared[1]);
            drop(scaled);
            b.times_columns(&high, &SCALED)
        };
        let sum = base.add_as(&added, &ADAPTED);
        drop((added, base));
        let narrow = sum.to_as(dtype, &OUTPUT);
        drop(sum);
        narrow.to_as(self.value.dtype, &OUTPUT)
    }

    /// `F.linear(x, matrix[…])` with a slice of a frozen matrix.
    fn by_matrix(&self, shape: Shape, matrix: ParamId) -> Tensor<'m> {
        self.apply(|state, x| {
            let whole = state.weight(matrix);
            let slice = Value { numel: shape.weights(), ..whole };
            let product = state.linear_with(x, shape, &slice, None);
            state.release(whole.storage);
            product
        })
    }
}
