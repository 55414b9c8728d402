//! Changes of element type.

use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{ENGINE, What, torch};

static CAST_GRADIENT: What = What::own("cast", "a gradient in its tensor's element type", ENGINE);

impl State {
    /// A change of element type; the same tensor where there is none to make.
    pub fn cast(&mut self, value: &Value, dtype: Dtype) -> Value {
        self.cast_as(value, dtype, &torch::CAST)
    }

    /// The same of which more is known.
    pub fn cast_as(&mut self, value: &Value, dtype: Dtype, what: &'static What) -> Value {
        if value.dtype == dtype {
            self.retain(value.storage);
            return *value;
        }
        let node = self.node([value], cast_backward);
        self.new_like(value, dtype, what, node.output(0))
    }
}

impl<'m> Tensor<'m> {
    /// `x.to(dtype)`.
    pub fn to(&self, dtype: Dtype) -> Tensor<'m> {
        self.apply(|state, x| state.cast(x, dtype))
    }

    /// The same of which more is known.
    pub fn to_as(&self, dtype: Dtype, what: &'static What) -> Tensor<'m> {
        self.apply(|state, x| state.cast_as(x, dtype, what))
    }
}

/// The gradient in the element type that the input has.
pub(in crate::step) fn cast_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let dtype = node.inputs[0].dtype;
    let storage = state.alloc_for(grad.storage, grad.numel, dtype, &CAST_GRADIENT);
    only(Grad { storage, dtype, view: false, ..*grad })
}
