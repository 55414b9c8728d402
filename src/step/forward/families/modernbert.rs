//! models/modernbert/modeling_modernbert.py.

use crate::dtype::Dtype;
use crate::scenario::Mask;
use crate::step::forward::Pass;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::tensor::Tensor;
use crate::step::what::{MASKS, What, torch};

static EVERYWHERE: What =
    What::own("everywhere", "which tokens are no padding: a part of the attention mask", MASKS);

impl<'a> Pass<'_, 'a> {
    /// `ModernBertModel.forward` up to its layers: no positions but the rotary ones, windows on both sides.
    pub(in crate::step::forward) fn modernbert_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let positions = self.of_positions(self.batch.length, Dtype::I64, &torch::POSITIONS);
        let hidden = {
            let normed = {
                let rows = self.embed_tokens();
                self.embedding_norm(&rows)
            };
            normed.dropout(self.dropout(self.architecture.embeddings.dropout))
        };
        let full = self.bidirectional_mask(hidden.value.dtype);
        let window = self.attentions().find_map(|attention| attention.window);
        let sliding = window.and_then(|window| self.window_on_both_sides(window, hidden.value.dtype));
        let embedded = Embedded { hidden, kept: false, positions: Some(positions), locals: Vec::new() };
        let shared = Shared { full, sliding, positions: None, ..self.no_masks(&embedded) };
        let shared = self.with_rotary(shared, &embedded);
        (embedded, shared)
    }

    /// `create_bidirectional_sliding_window_mask`: `|q - k| <= window`.
    fn window_on_both_sides(&self, window: u64, dtype: Dtype) -> Option<Tensor<'a>> {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let given = self.batch.mask.is_given();
        let padding = given.then(|| self.of_queries(self.batch.tokens(), Dtype::Bool, &torch::PADDING_MASK));
        if sequence < window && self.batch.mask != Mask::Padded {
            return None;
        }
        let square = sequence.saturating_mul(sequence);
        let bools = |numel: u64, what: &'static What| self.of_queries(numel, Dtype::Bool, what);
        let indices = |numel: u64| self.of_positions(numel, Dtype::I64, &torch::INDICES);
        let ranges = [indices(batch), indices(1), self.range(), self.range()];
        let mut mask = {
            let ones = bools(1, &torch::ONES);
            let near = {
                let absolute = {
                    let _difference = indices(square);
                    indices(square)
                };
                let near = bools(square, &torch::WINDOW);
                drop(absolute);
                near
            };
            let windowed = bools(square, &torch::MASK);
            drop(near);
            drop(ones);
            let everywhere = bools(sequence, &EVERYWHERE);
            let both = bools(square, &torch::MASK);
            drop(everywhere);
            drop(windowed);
            both
        };
        if given {
            mask = self.padded(mask, self.batch.length);
        }
        ranges.into_iter().for_each(drop);
        if self.is_eager() {
            mask = self.additive(mask, self.batch.length, dtype);
        }
        drop(padding);
        Some(mask)
    }
}
