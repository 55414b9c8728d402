//! Dropout.

use crate::dtype::Dtype;
use crate::step::autograd::{like, only};
use crate::step::tensor::Tensor;
use crate::step::what::What;

static DROPOUT: What = What::step("dropout", "after dropout, the next operation's input");
static DROPOUT_MASK: What =
    What::step("dropout mask", "which elements dropout kept, one byte each, for its backward");

impl<'m> Tensor<'m> {
    /// `nn.functional.dropout` in training; the same tensor at probability 0.
    pub fn dropout(&self, active: bool) -> Tensor<'m> {
        if !active {
            return self.clone();
        }
        self.apply(|state, x| {
            // native_dropout draws its mask first only where the output does not exist yet
            let node = state.node([x], |state, _, grad| only(like(state, grad, &DROPOUT)));
            let mask = state.alloc_for(x.storage, x.numel, Dtype::Bool, &DROPOUT_MASK);
            let result = state.new_like(x, x.dtype, &DROPOUT, node.output(0));
            state.save(node, mask);
            state.release(mask);
            result
        })
    }
}
