//! What lies around a linear layer or a table that several GPUs share: the conversions between what each has and what all have
//! that transformers' own plan of tensor parallelism puts there.
//!
//! Source: transformers 5.17 distributed/tensor_parallel.py, over PyTorch's DTensors; compared with the allocator's trace.

use std::cell::Cell;
use std::rc::Rc;

use super::embedding::look_up_backward;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, INPUTS, like, only, share_view};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

const DTENSOR: Source = Source::At("PyTorch, torch/distributed/tensor/placement_types.py");

static ADDED_UP: What = What::own(
    "all_reduce",
    "what the GPUs that share a layer made of it, added up: a tensor of its own",
    DTENSOR,
);
static INPUT_ADDED_UP: What = What::own(
    "all_reduce (backward)",
    "a shared layer's gradient of its input, added up over the GPUs that share it",
    DTENSOR,
);
static BY_RANKS: What = What::own(
    "all_gather_into_tensor",
    "the logits of all GPUs' parts of the vocabulary, one after the other",
    DTENSOR,
);
static WHOLE_ROWS: What = What::own("cat", "the logits of the whole vocabulary, token after token", DTENSOR);
static OWN_PART: What = What::own("clone", "this GPU's part of a gradient that all of them have", DTENSOR);
static OUTSIDE: What =
    What::own("mask", "which tokens are not in this GPU's part of the vocabulary", DTENSOR);
static SHIFTED: What = What::own("sub", "the tokens' places in this GPU's part of the vocabulary", DTENSOR);

impl<'m> Tensor<'m> {
    /// The input of a layer whose outputs are divided: each GPU's gradient of it is a part of a sum.
    pub(super) fn entering_parts(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| {
                state.all_reduce(grad.numel.saturating_mul(grad.dtype.bytes()));
                only(like(state, grad, &INPUT_ADDED_UP))
            });
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// What `module` makes of it, which has a hook for its backward: that adds up the gradient of its weights, of which each GPU's
    /// heads give a part, and holds the gradient of its output until that of its input is there (torch/utils/hooks.py `BackwardHook`).
    pub(in crate::step) fn through_hooked(
        &self,
        module: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        let held = Rc::new(Cell::new(NOTHING));
        let (given, taken) = (Rc::clone(&held), held);
        let input = self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                state.release(taken.replace(NOTHING));
                only(share_view(state, grad))
            });
            state.retain(x.storage);
            x.at(node.output(0))
        });
        let output = module(&input);
        drop(input);
        output.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                state.retain(grad.storage);
                given.set(grad.storage);
                only(share_view(state, grad))
            });
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// The output of a layer whose inputs are divided: a part of a sum.
    pub(super) fn added_up(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(share_view(state, grad)));
            state.all_reduce(x.numel.saturating_mul(x.dtype.bytes()));
            state.new_like(x, x.dtype, &ADDED_UP, node.output(0))
        })
    }

    /// The output of a layer whose outputs are divided, whole.
    pub(super) fn gathered_parts(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let parts = state.parallel.parts();
            let numel = x.numel.saturating_mul(parts);
            let node = state.node([x], move |state, _, grad| {
                let numel = grad.numel / parts.max(1);
                let storage = state.alloc_for(grad.storage, numel, grad.dtype, &OWN_PART);
                only(Grad::new(storage, numel, grad.dtype, Layout::Tokens))
            });
            state.gather_tokens(numel.saturating_mul(x.dtype.bytes()));
            let gathered = state.alloc_for(x.storage, numel, x.dtype, &BY_RANKS);
            let whole = Value { numel, ..*x };
            let whole = state.new_like(&whole, x.dtype, &WHOLE_ROWS, node.output(0));
            state.release(gathered);
            whole
        })
    }
}

impl State {
    /// `F.embedding` of a table of which each GPU has some rows: tokens that are not among them give zeros. Its gradient is made
    /// of the whole table.
    pub fn embedding_in_parts(&mut self, table: ParamId, rows: u64, width: u64) -> Value {
        let parts = self.parallel.parts();
        let table = self.weight(table);
        let node = self.node([&table], move |state, node, grad| {
            let own = node.inputs[0];
            let whole = look_up_backward(state, grad, rows, (own.storage, own.numel.saturating_mul(parts)));
            state.release(std::mem::replace(&mut grad.storage, NOTHING));
            let part = state.alloc_for(own.storage, own.numel, grad.dtype, &OWN_PART);
            // it is cut where it is added to the head's, and goes after that
            state.give(own.edge, Grad::new(part, own.numel, grad.dtype, Layout::Tokens));
            state.release(whole);
            [None; INPUTS]
        });
        self.save(node, NOTHING);
        let below = self.alloc(rows, Dtype::Bool, &OUTSIDE);
        let above = self.alloc(rows, Dtype::Bool, &OUTSIDE);
        let outside = self.alloc(rows, Dtype::Bool, &OUTSIDE);
        [below, above].into_iter().for_each(|mask| self.release(mask));
        let shifted = self.alloc(rows, Dtype::I64, &SHIFTED);
        let places = self.alloc(rows, Dtype::I64, &SHIFTED);
        self.release(shifted);
        let numel = rows.saturating_mul(width);
        let dims = self.by_tokens();
        let own = self.alloc(numel, table.dtype, &torch::INDEX);
        [places, outside].into_iter().for_each(|made| self.release(made));
        self.all_reduce(numel.saturating_mul(table.dtype.bytes()));
        let sum = self.alloc(numel, table.dtype, &ADDED_UP);
        self.note_dims(sum, dims);
        self.release(own);
        self.release(table.storage);
        Value::plain(sum, numel, table.dtype).at(node.output(0))
    }
}
