//! Short convolutions: models/lfm2/modeling_lfm2.py `Lfm2ShortConv`, without the kernels of causal-conv1d. What cuDNN takes
//! as its workspace for the convolution is not known, and counts nothing.

use super::{BoundLayer, Pass};
use crate::model::blocks::ShortConv;
use crate::step::tensor::Tensor;

impl<'a> Pass<'_, 'a> {
    /// `C * conv(B * x)`, all three from one projection.
    pub(super) fn short_conv(&self, layer: &BoundLayer<'a>, short: &ShortConv, x: &Tensor<'a>) -> Tensor<'a> {
        let projected = x.through(&layer.linear(&short.input)).heads_first();
        let third = projected.value.numel / 3;
        let [b, c, v] = projected.split([third, third, third]);
        let mut hidden = b.mul(&v);
        if let Some(further) = self.further_conv(&short.conv, &hidden) {
            hidden = further;
        } else if let Some((weight, bias)) = layer.conv {
            let padding = short.conv.kernel.saturating_sub(1);
            let more = self.batch.sequences.saturating_mul(short.conv.channels).saturating_mul(padding);
            let whole = hidden.apply(|state, x| state.convolved(x, weight, bias, more));
            hidden = whole.slice(third);
        }
        let gated = c.mul(&hidden).to_tokens();
        gated.through(&layer.linear(&short.output))
    }
}
