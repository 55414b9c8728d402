//! What torchtitan's plan of tensor parallelism puts around a Llama's modules: between them each GPU has its part of every sequence
//! (`SequenceParallel`), inside them its heads, columns and part of the vocabulary, the loss too (`loss_parallel`).
//!
//! Source: torchtitan 0.2.2 models/llama3/infra/parallelize.py `apply_tp`; PyTorch 2.11 torch/distributed/_functional_collectives.py,
//! torch/distributed/tensor/placement_types.py and parallel/loss.py. Compared with the allocator's trace.

use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Linear, Mixer, Mlp, Projection};
use crate::step::autograd::{Grad, INPUTS, only};
use crate::step::forward::Pass;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::embedding::look_up_backward;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};
use crate::units::grouped;

const COLLECTIVES: Source = Source::At("PyTorch, torch/distributed/_functional_collectives.py");
const PLACEMENT: Source = Source::At("PyTorch, torch/distributed/tensor/placement_types.py");
const LOSS: Source = Source::At("PyTorch, torch/distributed/tensor/parallel/loss.py");

static BY_RANKS: What = What::own(
    "all_gather_into_tensor",
    "the tokens of all GPUs that share a layer, rank after rank",
    COLLECTIVES,
);
static WHOLE: What = What::own("cat", "the same, sequence after sequence", COLLECTIVES);
static BY_PARTS: What =
    What::own("cat", "a part of a sum, laid out by the GPUs that are sent it", COLLECTIVES);
static SCATTERED: What = What::own(
    "reduce_scatter_tensor",
    "this GPU's tokens of a sum over the GPUs that share a layer",
    COLLECTIVES,
);
static OUTSIDE: What =
    What::own("mask", "which tokens are not in this GPU's part of the vocabulary", PLACEMENT);
static SHIFTED: What = What::own("sub", "the tokens' places in this GPU's part of the vocabulary", PLACEMENT);
static OWN_PART: What = What::own("clone", "this GPU's part of a gradient of the whole table", PLACEMENT);
static ROW: What = What::own("row", "a number for each token, of this GPU's logits or of all", LOSS);
static LOGITS: What =
    What::own("log_softmax", "this GPU's logits, shifted, exponentiated or as log-probabilities", LOSS);
static LOGITS_GRADIENT: What = What::own("grad_input", "the gradient of this GPU's logits", LOSS);

/// The model as each of so many GPUs has it.
///
/// # Errors
/// Where they cannot share it evenly.
pub(super) fn divide(own: &mut Architecture, parts: u64, tokens: u64) -> Result<(), Issue> {
    let divided = |number: u64, what: &str| {
        if number.is_multiple_of(parts) {
            return Ok(number / parts);
        }
        let message = format!("{parts} GPUs cannot share the {} {what}", grouped(number));
        Err(Issue::error(Field::TensorParallel, message).with_fix("use a smaller tensor parallel size"))
    };
    divided(tokens, "tokens of a sequence")?;
    for block in &mut own.blocks {
        let Mixer::Attention(attention) = &mut block.mixer else { continue };
        attention.heads = divided(attention.heads, "heads of queries")?;
        attention.kv_heads = divided(attention.kv_heads, "heads of keys and values")?;
        if let Projection::Separate { q, k, v } = &mut attention.projection {
            for linear in [q, k, v] {
                columns(linear, parts);
            }
        }
        attention.output.input /= parts;
        if let FeedForward::Dense(Mlp::Gated { gate, up, down, .. }) = &mut block.ffn {
            divided(gate.output, "columns of the feed-forward networks")?;
            columns(gate, parts);
            columns(up, parts);
            down.input /= parts;
        }
    }
    own.embeddings.tokens.rows = divided(own.embeddings.tokens.rows, "rows of the vocabulary")?;
    own.head.linear.output = own.embeddings.tokens.rows;
    Ok(())
}

fn columns(linear: &mut Linear, parts: u64) {
    linear.output /= parts;
}

impl<'a> Pass<'_, 'a> {
    /// The embedding; where GPUs share layers each has some of its rows, and their sums are scattered by tokens.
    pub(in crate::step::forward) fn torchtitan_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        if self.machine.with(|state| state.parallel.parts()) <= 1 {
            return self.tokens_alone();
        }
        let hidden = self.torchtitan_embedding();
        (Embedded { hidden, kept: false, positions: None, locals: Vec::new() }, Shared::none())
    }

    fn torchtitan_embedding(&self) -> Tensor<'a> {
        let (rows, width) = (self.batch.tokens(), self.architecture.embeddings.tokens.width);
        let table = self.outside.tokens;
        self.machine.token_unit(|| self.machine.tensor(|state| state.embedding_scattered(table, rows, width)))
    }
}

impl<'m> Tensor<'m> {
    /// `Shard(1)` to `Replicate()`: all tokens. Where GPUs share no layers it is the tensor itself.
    pub(super) fn of_all_tokens(&self) -> Tensor<'m> {
        let parts = self.machine.with(|state| state.parallel.parts());
        if parts <= 1 {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                let numel = grad.numel / parts;
                let storage = state.scatter_tokens(grad.storage, numel, grad.dtype, false);
                only(Grad::new(storage, numel, grad.dtype, Layout::Tokens))
            });
            // those of a DTensor are added beside both
            state.sum_beside(node);
            let numel = x.numel.saturating_mul(parts);
            let storage = state.gather_all_tokens(x.storage, numel, x.dtype);
            Value { storage, numel, layout: Layout::Tokens, ..*x }.at(node.output(0))
        })
    }

    /// `Partial()` to `Shard(1)`: this GPU's tokens of the sum, which selective checkpointing may keep.
    pub(super) fn of_own_tokens(&self, keeps: bool) -> Tensor<'m> {
        let parts = self.machine.with(|state| state.parallel.parts());
        if parts <= 1 {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                let numel = grad.numel.saturating_mul(parts);
                let storage = state.gather_all_tokens(grad.storage, numel, grad.dtype);
                only(Grad::new(storage, numel, grad.dtype, Layout::Tokens))
            });
            let numel = x.numel / parts;
            let storage = state.scatter_tokens(x.storage, numel, x.dtype, keeps);
            Value { storage, numel, ..*x }.at(node.output(0))
        })
    }

    /// `F.cross_entropy` of so many tokens under `loss_parallel`: each GPU has its part of the vocabulary.
    pub(super) fn cross_entropy_in_parts(&self, tokens: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, node, grad| {
                let numel = node.inputs[0].numel;
                let gradient = state.loss_backward_in_parts(tokens, numel);
                only(Grad::new(gradient, numel, grad.dtype, Layout::Tokens))
            });
            let row = |state: &mut State| state.alloc(tokens, Dtype::F32, &ROW);
            let reduced = |state: &mut State| {
                let own = state.alloc(tokens, Dtype::F32, &ROW);
                let all = state.alloc(tokens, Dtype::F32, &ROW);
                state.release(own);
                all
            };
            let largest = reduced(state);
            let shifted = state.alloc_for(x.storage, x.numel, x.dtype, &LOGITS);
            let exponentials = state.alloc_for(x.storage, x.numel, x.dtype, &LOGITS);
            let own = row(state);
            state.release(exponentials);
            let sums = row(state);
            state.release(own);
            let logarithms = row(state);
            let log = state.alloc_for(x.storage, x.numel, x.dtype, &LOGITS);
            [shifted, largest, sums, logarithms].into_iter().for_each(|local| state.release(local));
            state.save(node, log);
            state.release(log);
            let labels = state.labels_beside(tokens);
            let (mask, places) = state.places_in_part(tokens);
            let chosen = row(state);
            state.release(mask);
            let negative = row(state);
            let all = row(state);
            let losses = state.where_labelled(tokens, row);
            state.release(all);
            let count = state.alloc(tokens, Dtype::Bool, &OUTSIDE);
            let number = state.alloc(tokens, Dtype::I64, &ROW);
            state.release(number);
            state.release(count);
            let weight = state.alloc(1, Dtype::F32, &torch::LOSS);
            let loss = state.alloc(1, Dtype::F32, &torch::LOSS);
            [losses, labels, places, chosen, negative].into_iter().for_each(|local| state.release(local));
            state.save(node, weight);
            state.release(weight);
            Value::plain(loss, 1, Dtype::F32).at(node.output(0))
        })
    }
}

impl State {
    /// `all_gather_tensor(gather_dim=1)`: rank after rank, then sequence after sequence where there are several.
    fn gather_all_tokens(&mut self, of: StorageId, numel: u64, dtype: Dtype) -> StorageId {
        self.gather_tokens(numel.saturating_mul(dtype.bytes()));
        let ranks = self.alloc_for(of, numel, dtype, &BY_RANKS);
        if self.sequences <= 1 {
            return ranks;
        }
        let whole = self.alloc_for(of, numel, dtype, &WHOLE);
        self.release(ranks);
        whole
    }

    /// `reduce_scatter_tensor(scatter_dim=1)` down to so many elements.
    fn scatter_tokens(&mut self, of: StorageId, numel: u64, dtype: Dtype, keeps: bool) -> StorageId {
        let whole = numel.saturating_mul(self.parallel.parts());
        self.gather_tokens(whole.saturating_mul(dtype.bytes()));
        let parts = self.alloc_for(of, whole, dtype, &BY_PARTS);
        if keeps {
            self.begin_kept();
        }
        let own = self.alloc_for(of, numel, dtype, &SCATTERED);
        if keeps {
            self.end_kept();
        }
        self.release(parts);
        own
    }

    /// `_mask_tensor`: which tokens are elsewhere, and the places of the others.
    fn places_in_part(&mut self, tokens: u64) -> (StorageId, StorageId) {
        let masks = [(); 3].map(|()| self.alloc(tokens, Dtype::Bool, &OUTSIDE));
        masks[..2].iter().for_each(|mask| self.release(*mask));
        let shifted = self.alloc(tokens, Dtype::I64, &SHIFTED);
        let places = self.alloc(tokens, Dtype::I64, &SHIFTED);
        self.release(shifted);
        (masks[2], places)
    }

    /// `torch.where(target != ignore_index, target, 0)`.
    fn labels_beside(&mut self, tokens: u64) -> StorageId {
        let mask = self.alloc(tokens, Dtype::Bool, &OUTSIDE);
        let zero = self.alloc(1, Dtype::I64, &torch::ZERO);
        let labels = self.alloc(tokens, Dtype::I64, &SHIFTED);
        self.release(zero);
        self.release(mask);
        labels
    }

    /// `torch.where(target != ignore_index, …, 0)` of a number for each token.
    fn where_labelled(&mut self, tokens: u64, make: impl Fn(&mut State) -> StorageId) -> StorageId {
        let mask = self.alloc(tokens, Dtype::Bool, &OUTSIDE);
        let zero = self.alloc(1, Dtype::F32, &torch::ZERO);
        let made = make(self);
        self.release(zero);
        self.release(mask);
        made
    }

    /// `_nll_loss_and_log_softmax_backward`.
    fn loss_backward_in_parts(&mut self, tokens: u64, numel: u64) -> StorageId {
        let row = |state: &mut State| state.alloc(tokens, Dtype::F32, &ROW);
        let labels = self.labels_beside(tokens);
        let zeros = self.alloc(numel, Dtype::F32, &LOGITS_GRADIENT);
        let (mask, places) = self.places_in_part(tokens);
        let float = row(self);
        let update = row(self);
        self.release(float);
        let range = self.alloc(tokens, Dtype::I64, &SHIFTED);
        let output = self.where_labelled(tokens, row);
        let probabilities = self.alloc(numel, Dtype::F32, &LOGITS_GRADIENT);
        let sum = self.alloc(numel, Dtype::F32, &LOGITS_GRADIENT);
        self.release(probabilities);
        let gradient = self.alloc(numel, Dtype::F32, &LOGITS_GRADIENT);
        [sum, output, labels, zeros, mask, places, update, range]
            .into_iter()
            .for_each(|local| self.release(local));
        gradient
    }

    /// `F.embedding` of a table of which each GPU has some rows, whose sums are scattered by tokens. Its gradient is made of the whole table.
    fn embedding_scattered(&mut self, table: ParamId, rows: u64, width: u64) -> Value {
        let parts = self.parallel.parts();
        let table = self.weight(table);
        let node = self.node([&table], move |state, node, grad| {
            let own = node.inputs[0];
            let numel = grad.numel.saturating_mul(parts);
            let storage = state.gather_all_tokens(grad.storage, numel, grad.dtype);
            state.release(std::mem::replace(&mut grad.storage, NOTHING));
            let gathered = Grad::new(storage, numel, grad.dtype, Layout::Tokens);
            let whole =
                look_up_backward(state, &gathered, rows, (own.storage, own.numel.saturating_mul(parts)));
            state.release(storage);
            let part = state.alloc_for(own.storage, own.numel, grad.dtype, &OWN_PART);
            state.release(whole);
            state.give(own.edge, Grad::new(part, own.numel, grad.dtype, Layout::Tokens));
            [None; INPUTS]
        });
        self.save(node, NOTHING);
        let (mask, places) = self.places_in_part(rows);
        let numel = rows.saturating_mul(width);
        let sum = self.alloc(numel, table.dtype, &torch::INDEX);
        self.release(places);
        self.release(mask);
        let own = self.scatter_tokens(sum, numel / parts.max(1), table.dtype, false);
        self.release(sum);
        self.release(table.storage);
        Value::plain(own, numel / parts.max(1), table.dtype).at(node.output(0))
    }
}
