//! Masks, as transformers' masking_utils.py builds them.

use super::Pass;
use super::inputs::MaskCall;
use crate::dtype::Dtype;
use crate::model::blocks::Mixer;
use crate::scenario::Mask;
use crate::step::tensor::Tensor;
use crate::step::what::{MASKS, What, torch};

static SAME_TEXT: What =
    What::own("same text", "which tokens are of one text: a part of the attention mask", MASKS);
static TEXT_NUMBERS: What =
    What::own("text numbers", "which of the texts that share a sequence a token belongs to", MASKS);
static PADDING: What =
    What::own("padding", "which tokens are no padding: a part of the attention mask", MASKS);

impl<'a> Pass<'_, 'a> {
    /// `create_causal_mask` and `create_sliding_window_causal_mask` of transformers' masking_utils.py: none where the
    /// kernel's own causal flag does, a boolean one for SDPA, an additive one for eager.
    pub(super) fn mask(&self, window: Option<u64>, dtype: Dtype, asked: MaskCall) -> Option<Tensor<'a>> {
        let asked =
            MaskCall { may_skip: asked.may_skip && !self.always_masks() && self.prefix() == 0, ..asked };
        let (batch, sequence, keys) = (self.batch.sequences, self.batch.length, self.keys(window));
        let square = sequence.saturating_mul(keys);
        let seen = batch.saturating_mul(self.seen());
        let padding = asked.given.then(|| self.of_tokens(seen, Dtype::Bool, &torch::PADDING_MASK));
        let eager = self.is_eager() || asked.eager;
        let windowed = window.is_some_and(|window| keys >= window);
        let texts = self.batch.mask.is_packed().then(|| self.text_numbers());
        if self.is_flash_attn() {
            return padding.filter(|_| asked.padded);
        }
        let _looked_at = (asked.may_skip && asked.given && !eager && keys < self.seen()).then(|| {
            // of a cache that has let go of what no window sees: `padding_mask[:, mask_indices]`
            let indices = self.range_of(keys);
            let seen = batch.saturating_mul(keys);
            (self.of_queries(seen, Dtype::Bool, &torch::PADDING_MASK), indices)
        });
        if asked.may_skip && asked.given && !eager && !windowed {
            self.looked_for_padding(asked.padded);
        }
        if asked.may_skip && !eager && !asked.padded && !windowed && texts.is_none() {
            return None;
        }
        let bools = |numel: u64, what: &'static What| self.of_queries(numel, Dtype::Bool, what);
        let indices = |numel: u64| self.of_positions(numel, Dtype::I64, &torch::INDICES);
        let ranges = [indices(batch), indices(1), self.range(), self.range_of(keys)];
        let mut mask = if window.is_none() {
            bools(square, &torch::CAUSAL_MASK)
        } else {
            let ones = bools(1, &torch::ONES);
            let window = {
                let _edge = indices(sequence);
                bools(square, &torch::WINDOW)
            };
            let windowed = bools(square, &torch::MASK);
            drop(window);
            drop(ones);
            let causal = bools(square, &torch::CAUSAL_MASK);
            let both = bools(square, &torch::MASK);
            drop(causal);
            drop(windowed);
            both
        };
        if asked.given {
            mask = self.padded(mask, keys);
        }
        if texts.is_some() {
            mask = self.within_texts(mask);
        }
        ranges.into_iter().for_each(drop);
        if eager {
            mask = self.additive(mask, keys, dtype);
        }
        drop(padding);
        Some(mask)
    }

    /// `_ignore_causal_mask_sdpa`: the padding mask is summed as integers, once more where there is padding.
    fn looked_for_padding(&self, padded: bool) {
        for _ in 0..if padded { 2 } else { 1 } {
            let sum = self.constant(1, Dtype::I64, &torch::SUM);
            let seen = self.batch.sequences.saturating_mul(self.seen());
            drop(self.of_queries(seen, Dtype::I64, &torch::SUM));
            let all = self.constant(1, Dtype::Bool, &torch::EQ);
            drop(sum);
            drop(all);
        }
    }

    /// `create_recurrent_attention_mask`: whether any token of the prompt is padding, which linear attention is not given.
    pub(super) fn looked_for_recurrent_padding(&self, asked: MaskCall) {
        let mut mixers = self.architecture.blocks.iter().map(|block| &block.mixer);
        let asks = self.generating.is_some() && asked.given && self.batch.length > 1;
        if asks && mixers.any(|mixer| matches!(mixer, Mixer::DeltaNet(_) | Mixer::ShortConv(_))) {
            let _ones = self.of_tokens(self.batch.tokens(), Dtype::Bool, &torch::EQ);
            self.constant(1, Dtype::Bool, &torch::EQ);
        }
    }

    /// `find_packed_sequence_indices(position_ids)`: the number of its text for each token.
    fn text_numbers(&self) -> Tensor<'a> {
        let (batch, tokens) = (self.batch.sequences, self.batch.tokens());
        let indices = |numel: u64| self.of_positions(numel, Dtype::I64, &TEXT_NUMBERS);
        let first = indices(batch);
        let difference = {
            let _longer = indices(tokens.saturating_add(batch));
            indices(tokens)
        };
        let starts = self.of_tokens(tokens, Dtype::Bool, &torch::TEXT_STARTS);
        let numbers = indices(tokens);
        drop(indices(tokens));
        drop((starts, first, difference));
        numbers
    }

    /// `and_masks(mask, packed_sequence_mask_function(texts))`: one mask for each sequence.
    fn within_texts(&self, mask: Tensor<'a>) -> Tensor<'a> {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let square = batch.saturating_mul(sequence).saturating_mul(sequence);
        let bools = |numel: u64, what: &'static What| self.of_queries(numel, Dtype::Bool, what);
        let ones = bools(1, &torch::ONES);
        let causal = bools(mask.value.numel, &torch::MASK);
        drop((mask, ones));
        let same = {
            let of_each = || {
                let indices = || self.of_queries(self.batch.tokens(), Dtype::I64, &TEXT_NUMBERS);
                // the number of the sequence needs no copy where there is but one
                let _index = [Some(indices()), (batch > 1).then(indices)];
                indices()
            };
            let _texts = [of_each(), of_each()];
            bools(square, &SAME_TEXT)
        };
        let mask = bools(square, &torch::MASK);
        drop((same, causal));
        mask
    }

    /// `create_bidirectional_mask`: none without padding.
    pub(super) fn bidirectional_mask(&self, dtype: Dtype) -> Option<Tensor<'a>> {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let given = self.batch.mask.is_given();
        let padding = given.then(|| self.of_queries(self.batch.tokens(), Dtype::Bool, &torch::PADDING_MASK));
        if self.batch.mask != Mask::Padded {
            return None;
        }
        let ranges = [
            self.constant(batch, Dtype::I64, &torch::INDICES),
            self.constant(1, Dtype::I64, &torch::INDICES),
        ];
        let more = [self.range(), self.range()];
        let everywhere = self.of_positions(sequence, Dtype::Bool, &torch::MASK);
        let mut mask = self.padded(everywhere, sequence);
        drop(ranges);
        drop(more);
        if self.is_eager() {
            mask = self.additive(mask, sequence, dtype);
        }
        drop(padding);
        Some(mask)
    }

    /// `and_masks(mask, padding_mask_function(padding))`: one mask for each sequence.
    pub(super) fn padded(&self, mask: Tensor<'a>, keys: u64) -> Tensor<'a> {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let tokens = batch.saturating_mul(keys);
        let bools = |numel: u64, what: &'static What| self.of_queries(numel, Dtype::Bool, what);
        let ones = bools(1, &torch::ONES);
        let result = bools(mask.value.numel, &torch::MASK);
        drop(mask);
        drop(ones);
        let row = {
            // the number of the sequence needs no copy where there is but one
            let of_sequence = (batch > 1).then(|| self.of_tokens(tokens, Dtype::I64, &torch::INDICES));
            let of_token = self.of_tokens(tokens, Dtype::I64, &torch::INDICES);
            let padding = bools(tokens, &PADDING);
            drop(of_token);
            drop(of_sequence);
            padding
        };
        let mask = bools(batch.saturating_mul(sequence).saturating_mul(keys), &torch::MASK);
        drop(row);
        drop(result);
        mask
    }

    /// `torch.where(mask, 0, lowest)`, expanded over the batch.
    pub(super) fn additive(&self, mask: Tensor<'a>, keys: u64, dtype: Dtype) -> Tensor<'a> {
        let scalars = [self.constant(1, dtype, &torch::ZERO), self.constant(1, dtype, &torch::LOWEST)];
        let square = self.batch.length.saturating_mul(keys);
        let additive =
            self.of_queries(square.saturating_mul(self.batch.sequences), dtype, &torch::ADDITIVE_MASK);
        drop(scalars);
        drop(mask);
        additive
    }

    /// `torch.arange(sequence) + offset`.
    pub(super) fn range(&self) -> Tensor<'a> {
        self.range_of(self.batch.length)
    }

    /// The same of so many positions.
    fn range_of(&self, positions: u64) -> Tensor<'a> {
        let range = self.of_positions(positions, Dtype::I64, &torch::RANGE);
        let shifted = self.of_positions(positions, Dtype::I64, &torch::RANGE);
        drop(range);
        shifted
    }
}
