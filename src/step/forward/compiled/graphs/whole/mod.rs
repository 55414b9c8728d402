//! A whole model as one graph: embedding, layers, the last norm, the head and the loss.

mod again;
mod backward;
mod forward;
mod kept;
#[cfg(test)]
mod tests;

pub(in super::super) use backward::{WholeBackward, backward};
pub(in super::super) use forward::{WholeForward, forward};

use super::super::draft::{Draft, Sizes};
use super::super::rules;
use crate::dtype::Dtype;

/// The sizes of a whole model, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Whole {
    /// Those of a layer.
    pub layer: Sizes,
    pub layers: usize,
    pub vocabulary: u64,
    /// Tokens of a sequence.
    pub length: u64,
    /// Whether the head is the embedding's table.
    pub tied: bool,
    /// Whether its layers are checkpointed: computed again in backward.
    pub checkpoints: bool,
    /// Whether the batch has a tensor `attention_mask`.
    pub masked: bool,
    /// Whether attention's kernel is cuDNN's, and the memory-efficient one otherwise.
    pub cudnn: bool,
}

impl Whole {
    fn rows(&self, of: u64) -> (u64, Dtype) {
        (self.layer.tokens.saturating_mul(of), self.layer.dtype)
    }

    /// A float32 number of each token.
    fn number(&self) -> (u64, Dtype) {
        (self.layer.tokens, Dtype::F32)
    }

    /// How many heads of queries share one of keys and values.
    fn group(&self) -> u64 {
        self.layer.queries.heads / self.layer.keys.heads.max(1)
    }

    /// Features of a head.
    fn head(&self) -> u64 {
        self.layer.queries.features / self.layer.queries.heads.max(1)
    }

    /// The angle of every position for every second feature of a head, in float32.
    fn angles(&self) -> (u64, Dtype) {
        (self.length.saturating_mul(self.head() / 2), Dtype::F32)
    }

    /// The mask: computed before anyone could look at the positions, it is there for texts of one length too.
    fn mask(&self) -> (u64, Dtype) {
        let all = self.length.saturating_mul(self.length).saturating_mul(self.layer.sequences);
        (all, self.layer.dtype)
    }

    fn logits(&self) -> (u64, Dtype) {
        self.rows(self.vocabulary)
    }

    /// The labels, shifted by a token: one more for each sequence.
    fn labels(&self) -> (u64, Dtype) {
        (rules::padded_rows(self.layer.sequences, self.length.saturating_add(1), Dtype::I64), Dtype::I64)
    }
}

/// What a graph is given of a layer.
#[derive(Clone, Copy)]
struct Weights {
    first_norm: usize,
    query: usize,
    key: usize,
    value: usize,
    output: usize,
    second_norm: usize,
    gate: usize,
    up: usize,
    down: usize,
}

/// All that a graph is given but tensors.
struct Arguments {
    ids: usize,
    embedding: usize,
    mask: Option<usize>,
    layers: Vec<Weights>,
    norm: usize,
    head: usize,
}

impl Arguments {
    /// Those of forward, numbered as they come.
    fn new(draft: &mut Draft, whole: &Whole, saves: bool) -> (Arguments, [usize; 2]) {
        let mut number = 0;
        let mut next = || {
            number += 1;
            let made = draft.argument(&format!("primals_{number}"));
            draft.graph.buffers[made].returned = saves;
            made
        };
        let [ids, embedding] = [next(), next()];
        let mask = if whole.masked { Some(next()) } else { None };
        let frequencies = next();
        let layers = (0..whole.layers).map(|_| Weights {
            first_norm: next(),
            query: next(),
            key: next(),
            value: next(),
            output: next(),
            second_norm: next(),
            gate: next(),
            up: next(),
            down: next(),
        });
        let layers = layers.collect();
        let norm = next();
        let head = if whole.tied { embedding } else { next() };
        let labels = next();
        // the others are saved for backward
        let table = (!whole.tied).then_some(embedding);
        let mask_again = mask.filter(|_| !whole.checkpoints);
        for not_saved in [frequencies, labels].into_iter().chain(table).chain(mask_again) {
            draft.graph.buffers[not_saved].returned = false;
        }
        (Arguments { ids, embedding, mask, layers, norm, head }, [frequencies, labels])
    }
}
