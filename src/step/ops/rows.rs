//! Products with a row that is broadcast over a tensor.

use super::pointwise::{mul_backward, promoted};
use crate::step::tensor::Tensor;
use crate::step::what::What;

impl<'m> Tensor<'m> {
    /// `row * x`: this is the row.
    pub(super) fn times_columns(&self, x: &Tensor<'m>, what: &'static What) -> Tensor<'m> {
        x.apply(|state, x| {
            let row = &self.value;
            let node = state.row_node([row, x], mul_backward);
            if row.requires_grad() {
                state.save_view(node, x);
            }
            if x.requires_grad() {
                state.save_view(node, row);
            }
            state.new_like(x, promoted(row.dtype, x.dtype), what, node.output(0))
        })
    }

    /// `x * row`.
    pub(super) fn times_row(&self, row: &Tensor<'m>, what: &'static What) -> Tensor<'m> {
        self.apply(|state, x| {
            let row = &row.value;
            let node = state.row_node([x, row], mul_backward);
            if x.requires_grad() {
                state.save_view(node, row);
            }
            if row.requires_grad() {
                state.save_view(node, x);
            }
            state.new_like(x, promoted(x.dtype, row.dtype), what, node.output(0))
        })
    }
}
