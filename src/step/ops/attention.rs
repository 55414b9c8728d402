//! Scaled dot-product attention: which kernel PyTorch picks, and what each keeps and needs.
//!
//! Sources: aten/src/ATen/native/transformers/attention.cpp; transformers 5.17 integrations/sdpa_attention.py and the models'
//! `eager_attention_forward`.

mod arguments;
mod choice;
mod fused;
mod math;
mod ring;
mod splits;

use crate::step::tensor::Tensor;
pub(in crate::step) use arguments::{Arguments, Kernel, Scores};
pub(in crate::step) use choice::Choice;
pub(in crate::step) use fused::{alone, alone_backward};

/// `F.scaled_dot_product_attention` with the chosen kernel: `[batch, heads, sequence, head]`.
pub(in crate::step) fn scaled_dot_product<'m>(scores: Scores, given: &Arguments<'_, 'm>) -> Tensor<'m> {
    match scores.kernel {
        Kernel::Math | Kernel::Eager | Kernel::Efficient if scores.ranks > 1 => {
            let what = "sequences that GPUs share, with another attention kernel than flash and cuDNN's, which PyTorch takes for these values on this card,";
            math::attention(scores, given).unmodelled(what)
        }
        Kernel::Math | Kernel::Eager => math::attention(scores, given),
        Kernel::Flash | Kernel::Efficient | Kernel::Cudnn | Kernel::Package => {
            fused::attention(scores, given)
        }
    }
}
