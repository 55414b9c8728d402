//! A weight that is rounded to 4 bits as the kernels of MSLK have it (`Int4WeightFakeQuantizer` for bfloat16 inputs).

use super::QAT;
use crate::dtype::Dtype;
use crate::step::tensor::Tensor;
use crate::step::what::What;

static WIDE: What = What::own(
    "cast",
    "the weight in 32 bits, of which the extremes of each group are taken; kept for their gradient",
    QAT,
);
static RANGE: What = What::own("sub", "how far the weights of a group lie apart", QAT);
static SHIFTED: What =
    What::own("sub", "the weight above the smallest of its group, kept for the gradient of its scale", QAT);
static CENTRED: What =
    What::own("sub", "the rounded weight, from -8 to 7, kept for the gradient of its scale", QAT);
static OPENED: What = What::own("add", "the rounded weight in 32 bits", QAT);
static ROUNDED: What = What::own(
    "cast",
    "the rounded weight, with which the layer multiplies; kept for the gradient of its input",
    QAT,
);

impl<'m> Tensor<'m> {
    /// `Int4WeightFakeQuantizer._bf16_activations_forward` of a weight.
    pub(super) fn rounded_to_4_bits(&self, group: u64) -> Tensor<'m> {
        let dtype = self.value.dtype;
        let groups = {
            let wide = self.to_as(Dtype::F32, &WIDE);
            wide.viewed()
        };
        let most = groups.extreme_of_rows(group);
        let least = groups.extreme_of_rows(group);
        let scale = {
            let range = most.minus_as(&least, &RANGE);
            let limited = range.limited_below();
            drop(range);
            limited.scale()
        };
        let zero = {
            let shift = scale.scale();
            least.add(&shift)
        };
        let stored = {
            let shifted = groups.minus_as(&least, &SHIFTED);
            let divided = shifted.divided_by_rows(&scale);
            drop(shifted);
            let rounded = divided.rounded();
            drop(divided);
            rounded.limited()
        };
        let centred = stored.add_number_as(&CENTRED);
        drop(stored);
        // a line of Python: what it begins with stays until its end
        let opened = centred.mul_rows(&scale).add_as(&zero, &OPENED);
        drop(centred);
        let result = opened.viewed().to_as(dtype, &ROUNDED);
        drop((groups, most, least, scale, zero, opened));
        result
    }
}
