//! What PyTorch's context parallelism does with a micro-batch before the model is given it: every tensor with a number for each token is put in
//! the order in which work is even (each GPU has a piece of either end), and each GPU keeps its share.
//!
//! Sources: transformers 5.17 trainer.py `_prepare_context_parallel_inputs`; torch 2.11
//! distributed/tensor/experimental/_context_parallel/_attention.py `context_parallel`.

use super::Rounds;
use crate::dtype::Dtype;
use crate::job::Batch;
use crate::memory::Category;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Dims, Rows, Source, What};

const DIVIDING: Source =
    Source::At("PyTorch, torch/distributed/tensor/experimental/_context_parallel/_attention.py");

static SHIFTED: What = What::own(
    "labels (shifted)",
    "the next token of each, made of the whole sequence before it is divided",
    Source::At("transformers, trainer.py"),
);
static POSITIONS: What = What::own(
    "position ids",
    "those of the whole sequence, made before it is divided",
    Source::At("transformers, trainer.py"),
);
static ORDER: What = What::own("order of tokens", "the order in which GPUs have as much work each", DIVIDING);
static ORDERED: What = What::own(
    "batch (in order)",
    "a tensor of the batch in the order in which GPUs have as much work each",
    DIVIDING,
);
static SHARE: What = What::own("batch (this GPU's)", "what this GPU has of a tensor of the batch", DIVIDING);

impl<'a> Rounds<'a> {
    /// Divides a micro-batch, of which `batch` is this GPU's share: what waits for the end of its backward pass. What the batch itself keeps
    /// waits for the end of the step. Ids, labels and the others stay as long as they were: they are resized where they lie.
    pub(super) fn divide(&mut self, batch: Batch) -> Vec<Tensor<'a>> {
        let contexts = self.machine.with(|state| state.parallel.contexts());
        if contexts <= 1 {
            return Vec::new();
        }
        let machine = self.machine;
        let own = batch.tokens();
        let whole = own.saturating_mul(contexts);
        let length = batch.length.saturating_mul(contexts);
        let make = |numel: u64, dtype: Dtype, what: &'static What, tokens: u64| {
            machine.tensor(|state| {
                let storage =
                    state.alloc_as(Category::Batch, numel.saturating_mul(dtype.bytes()), dtype, what);
                state.note_dims(storage, Dims::Rows(Rows::Tokens, tokens));
                Value::plain(storage, numel, dtype)
            })
        };
        let numbers = |numel: u64, what: &'static What| make(numel, Dtype::I64, what, numel);
        {
            let padded = numbers(whole.saturating_add(batch.sequences), &SHIFTED);
            let shifted = if batch.sequences > 1 { numbers(whole, &SHIFTED) } else { padded.clone() };
            let positions = numbers(length, &POSITIONS);
            self.divided.extend([shifted, positions]);
        }
        // ids, labels, labels of the next tokens, the mask, positions
        const BUFFERS: usize = 5;
        let mut held: Vec<Tensor<'a>> = Vec::with_capacity(BUFFERS + 1);
        {
            let _order = make(length, Dtype::I32, &ORDER, length);
            for _ in 0..BUFFERS {
                let _ordered = numbers(whole, &ORDERED);
                held.push(numbers(own, &SHARE));
            }
        }
        for _ in 1..BUFFERS {
            drop(numbers(own, &SHARE));
        }
        held.push(numbers(own, &SHARE));
        if own > length {
            // those of one sequence were expanded for all, and now each has its own
            let positions = numbers(own, &POSITIONS);
            if let Some(last) = self.divided.last_mut() {
                *last = positions;
            }
        }
        held
    }
}
