//! What texts are compared by: rows of unit length, their products, and the logarithm of a sum of exponentials.

use super::indexing::topk_backward;
use super::matmul::mm_backward;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, fresh, like, only};
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{DERIVATIVES, What, torch};

static NORM: What = What::step("norm", "the length of each row");
static SIMILARITIES: What = What::step("mm", "how similar each text is to each other one");
static LOG_SUM_EXP: What = What::step("logsumexp", "the logarithm of the sum of each row's exponentials");
static PROBABILITIES: What = What::own(
    "exp (x - logsumexp)",
    "the probabilities, of which the gradient of a logsumexp is made",
    DERIVATIVES,
);

impl<'m> Tensor<'m> {
    /// `torch.gather(x, 1, index)` of one token of each text: so many elements.
    pub fn row_of_each(&self, index: &Tensor<'m>, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            // zeros, into which each row is put
            let node = state.node([x], topk_backward);
            state.save(node, index.value.storage);
            state.save(node, x.storage);
            let picked = Value { numel, ..*x };
            state.new_like(&picked, x.dtype, &torch::GATHER, node.output(0))
        })
    }

    /// `sentence_transformers.util.cos_sim(x, other)` of rows of `width`: float32 copies, divided by their lengths, multiplied.
    pub fn similarities(&self, other: &Tensor<'m>, (rows, width): (u64, u64)) -> Tensor<'m> {
        let (x, y) = (self.to(Dtype::F32), other.to(Dtype::F32));
        let (own, others) = (x.of_unit_length(width), y.of_unit_length(width));
        self.machine.tensor(|state| {
            let node = state.node([&own.value, &others.value], mm_backward);
            state.save_view(node, &others.value);
            state.save_view(node, &own.value);
            let numel = rows.saturating_mul(others.value.numel / width.max(1));
            let storage = state.alloc_product(numel, width, Dtype::F32, &SIMILARITIES);
            Value::plain(storage, numel, Dtype::F32).at(node.output(0))
        })
    }

    /// `torch.nn.functional.normalize(x, dim=-1)` of rows of `width`.
    fn of_unit_length(&self, width: u64) -> Tensor<'m> {
        let length = self.apply(|state, x| {
            let node = state.node([x], norm_backward);
            let rows = Value { numel: x.numel / width.max(1), ..*x };
            let length = state.new_like(&rows, x.dtype, &NORM, node.output(0));
            state.save_view(node, x);
            state.save_view(node, &length);
            length
        });
        self.divided_by_rows(&length.limited())
    }

    /// `torch.dot(x.flatten().to(torch.float32), gradients)` with gradients from elsewhere, times the loss's own.
    pub fn with_gradients(&self) -> Tensor<'m> {
        let x = self.to(Dtype::F32);
        // gradients that are float32 are taken as they are
        let gradients = match self.value.dtype {
            Dtype::F32 => self.machine.unassigned(),
            _ => self.fresh(self.value.numel, Dtype::F32, &torch::CAST),
        };
        x.apply(|state, x| {
            let node = state.node([x], dot_backward);
            state.save(node, gradients.value.storage);
            let one = Value { numel: 1, ..*x };
            state.new_like(&one, Dtype::F32, &torch::SUM, node.output(0))
        })
        .scale()
    }

    /// `torch.logsumexp(x, dim=1)` of so many rows.
    pub fn log_sum_exp(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, grad| {
                let whole = node.inputs[0];
                let [difference, probabilities] = [(); 2]
                    .map(|()| state.alloc_for(whole.storage, whole.numel, whole.dtype, &PROBABILITIES));
                let result = fresh(state, grad, (whole.numel, whole.layout), &torch::MUL);
                [probabilities, difference].into_iter().for_each(|storage| state.release(storage));
                only(result)
            });
            let highest = state.alloc(rows, x.dtype, &torch::MAX);
            let exponentials = state.alloc_for(x.storage, x.numel, x.dtype, &torch::EXP);
            let few = Value { numel: rows, ..*x };
            let result = state.new_like(&few, x.dtype, &LOG_SUM_EXP, node.output(0));
            state.release(exponentials);
            state.release(highest);
            state.save_view(node, x);
            state.save_view(node, &result);
            result
        })
    }

    /// `-(scores[own] - logsumexp(scores)).mean()` of scores that are scaled first.
    pub fn in_batch_negatives(self, places: &[Tensor<'m>; 2], rows: u64) -> Tensor<'m> {
        let scaled = self.scale();
        drop(self);
        let own = scaled.rows_at(&places[0], rows, 1);
        // `torch.cat` of the one direction that is asked for
        let all = scaled.copied();
        let normaliser = all.log_sum_exp(rows);
        own.minus(&normaliser).mean_rows(rows).negate()
    }
}

/// dot_backward: `gradients * grad`.
fn dot_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let whole = node.inputs[0];
    only(fresh(state, grad, (whole.numel, whole.layout), &torch::MUL))
}

/// linalg_vector_norm_backward: `self * (grad / norm)`, zero where the norm is.
fn norm_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let whole = node.inputs[0];
    let quotient = like(state, grad, &torch::DIV);
    let product = state.alloc_for(whole.storage, whole.numel, whole.dtype, &torch::MUL);
    let result = fresh(state, grad, (whole.numel, whole.layout), &torch::MASKED_FILL);
    state.release(product);
    state.release(quotient.storage);
    only(result)
}
