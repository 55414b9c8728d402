//! The head and the cross entropy as one operation, which makes the gradient of its input in the forward pass.
//!
//! Source: unsloth_zoo 2026.10.9 fused_losses/fused_linear.py `_ce_impl`, `fused_linear_rows`, `_tiled_forward`,
//! `_tiled_layout`; fused_losses/chunked_logprob.py `unsloth_chunked_ce_loss`.

use super::super::common::texts;
use super::compute_dtype;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, only};
use crate::step::forward::stacks::fused_loss::lengths;
use crate::step::forward::{Pass, find};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::linear::{Shape, Weight};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, torch};

pub(super) static LABELLED: What =
    What::own("tokens with a label", "which tokens have a label", Source::FusedLoss);
pub(super) static SCALED_GRADIENT: What = What::own(
    "scaled gradient",
    "the gradient of the hidden states that the head was given",
    Source::FusedLoss,
);
static SUMMED_INPUT_GRADIENT: What = What::own(
    "sum of the gradient",
    "the gradient of the hidden states, summed over tiles of the logits",
    Source::FusedLoss,
);
static RUNNING_MAXIMUM: What =
    What::own("running maximum", "the largest logit of each token so far", Source::FusedLoss);
pub(super) static TILE_SUMS: What =
    What::own("partial sums", "partial sums of a tile of the logits", Source::FusedLoss);
static WIDE_LOG_PROBABILITIES: What = What::own(
    "log-probabilities in float64",
    "the log-probability of each token's label, as they are summed",
    Source::FusedLoss,
);

/// Logits that a chunk has at least (`_MIN_LOGITS`), within the rows below.
const FEWEST_LOGITS: u64 = 512 * 151_936;
/// Rows that a chunk has at least (`fused_linear_rows`), and at most (`_MAX_ROWS`, `_BWD_ROWS`).
const FEWEST_ROWS: u64 = 512;
/// See [`FEWEST_ROWS`].
pub(super) const MOST_ROWS: u64 = 4096;
/// Bytes of a chunk's logits at most (`_CHUNK_GB`), or half of what is free where that is less, which is not followed.
const LARGEST_CHUNK: u64 = 2 << 30;
/// Tokens of the vocabulary that one program of a kernel sees (`_SPLIT_COLS`), and how wide a tile is (`_tiled_layout`): beside the most rows
/// 256 MiB of logits (`_BWD_TILE_BYTES`) have room for no more, and beside fewer, which are run in tiles on a small card alone, none are wider
/// there.
pub(super) const SPLIT: u64 = 16_384;

impl<'a> Pass<'_, 'a> {
    /// `unsloth_fused_ce_loss`; there are no logits to return.
    pub(in crate::step::forward) fn unsloth_head(
        &self,
        hidden: Tensor<'a>,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let head = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let labels = self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::SHIFTED_LABELS);
        // the last token of each text has no label
        let (texts, _) = texts(self.batch);
        let kept = self.batch.tokens().saturating_sub(texts).max(1);
        let small = self.device.is_small;
        let loss = hidden.apply(|state, x| state.unsloth_loss(x, head.shape, head.weight, (kept, small)));
        drop(labels);
        drop(hidden);
        replace();
        (loss, Vec::new())
    }
}

/// Rows of a chunk: the power of two at or below that many, as hold about as many logits as all inputs together.
pub(super) fn chunk(rows: u64, shape: Shape, logit: u64) -> u64 {
    let power = |n: u64| n.checked_ilog2().map_or(0, |log| 1 << log);
    let vocabulary = shape.output.max(1);
    let even = power(rows.saturating_mul(shape.input) / vocabulary);
    let fewest = power(FEWEST_LOGITS / vocabulary).clamp(FEWEST_ROWS, MOST_ROWS);
    let most = LARGEST_CHUNK / vocabulary.saturating_mul(logit).max(1);
    even.clamp(fewest, MOST_ROWS).min(most.max(2)).min(rows).max(1)
}

/// Rows of a tile.
pub(super) fn tile(rows: u64) -> u64 {
    rows.clamp(1, MOST_ROWS)
}

impl State {
    fn unsloth_loss(&mut self, x: &Value, shape: Shape, weight: Weight, (rows, small): (u64, bool)) -> Value {
        let stored = match weight {
            Weight::Plain(id) => self.params.get(id).dtype,
            Weight::Quantised(quantised) => quantised.compute,
        };
        let dtype = compute_dtype(self.autocast, stored);
        // products of bfloat16 with a float32 result need compute capability 8.0
        let wide = dtype == Dtype::F16 || self.device.capability >= 80;
        let node = self.node([x], |state, node, _| {
            let input = node.inputs[0];
            let storage = state.alloc_for(input.storage, input.numel, input.dtype, &SCALED_GRADIENT);
            let grad = Grad::new(storage, input.numel, input.dtype, input.layout);
            only(Grad { view: true, ..grad })
        });
        let index = self.alloc(rows, Dtype::I64, &LABELLED);
        let gradient = self.alloc_for(x.storage, x.numel, x.dtype, &torch::LOSS_INPUT_GRADIENT);
        let sums = self.alloc(rows, Dtype::F32, &torch::LOG_PROBABILITIES);
        let fewest = if small { 0 } else { MOST_ROWS };
        let splits = shape.output.div_ceil(SPLIT);
        let tiled = wide && splits > 2 && rows >= fewest && self.device.capability >= 80;
        let logit = if wide { Dtype::F32 } else { dtype };
        // the logits and the input's gradient from what is written over them
        let numel = rows.saturating_mul(shape.output);
        (0..2).for_each(|_| self.multiply(numel, shape.input));
        (0..2).for_each(|_| self.write(numel.saturating_mul(logit.bytes())));
        let kept = if tiled {
            self.unsloth_tiles(rows, shape, dtype)
        } else {
            self.unsloth_chunks(rows, shape, (dtype, x.dtype), logit)
        };
        // the sum is made in float64, of eight bytes as an index has
        let wide = self.alloc(rows, Dtype::I64, &WIDE_LOG_PROBABILITIES);
        let negative = self.alloc(rows, Dtype::I64, &torch::NEG);
        self.release(wide);
        let loss = self.alloc(1, Dtype::F32, &torch::LOSS);
        for storage in [index].into_iter().chain(kept).chain([sums, negative]) {
            self.release(storage);
        }
        self.save(node, gradient);
        self.release(gradient);
        Value::plain(loss, 1, Dtype::F32).at(node.output(0))
    }

    /// Chunks of the rows, each over the whole vocabulary: their gradient is written over the logits.
    fn unsloth_chunks(
        &mut self,
        rows: u64,
        shape: Shape,
        (dtype, hidden): (Dtype, Dtype),
        logit: Dtype,
    ) -> Vec<StorageId> {
        let length = chunk(rows, shape, logit.bytes());
        let splits = shape.output.div_ceil(SPLIT);
        let buffer = self.logits_of(length, shape.output.next_multiple_of(8), logit);
        let (mut taken, mut made) = (NOTHING, NOTHING);
        for length in lengths(rows, length) {
            let inputs = length.saturating_mul(shape.input);
            let next = self.alloc(inputs, dtype, &torch::INDEX_SELECT);
            self.release(std::mem::replace(&mut taken, next));
            if splits > 2 {
                let partial = splits.saturating_mul(7).saturating_mul(length);
                self.scratch(partial.saturating_mul(4), &TILE_SUMS);
            }
            let next = self.alloc_product(inputs, 0, Dtype::F32, &torch::CHUNK_GRADIENT);
            self.release(std::mem::replace(&mut made, next));
            if hidden != Dtype::F32 {
                self.scratch(inputs.saturating_mul(hidden.bytes()), &torch::CAST);
            }
        }
        vec![taken, buffer, made]
    }

    /// Tiles of rows and vocabulary: the gradient is summed over the tiles of its rows.
    fn unsloth_tiles(&mut self, rows: u64, shape: Shape, dtype: Dtype) -> Vec<StorageId> {
        let height = tile(rows);
        let maxima = self.alloc(rows, Dtype::F32, &torch::SUMS_OF_LOGITS);
        let buffer = self.logits_of(height, SPLIT, Dtype::F32);
        let [sums, running] = self.sums_of_tiles(height, shape);
        let (mut taken, mut partial) = (NOTHING, NOTHING);
        for height in lengths(rows, height) {
            let next = self.alloc(height.saturating_mul(shape.input), dtype, &torch::INDEX_SELECT);
            self.release(std::mem::replace(&mut taken, next));
            let parts = shape.output.div_ceil(SPLIT).saturating_mul(8).saturating_mul(height);
            let next = self.alloc(parts, Dtype::F32, &TILE_SUMS);
            self.release(std::mem::replace(&mut partial, next));
        }
        for storage in [taken, sums, partial, buffer, running, maxima] {
            self.release(storage);
        }
        Vec::new()
    }

    /// Where the gradient of a tile's rows is summed, and the largest logit of each so far.
    pub(super) fn sums_of_tiles(&mut self, height: u64, shape: Shape) -> [StorageId; 2] {
        let sums = self.alloc(height.saturating_mul(shape.input), Dtype::F32, &SUMMED_INPUT_GRADIENT);
        [sums, self.alloc(height, Dtype::F32, &RUNNING_MAXIMUM)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fused_linear_rows` of unsloth_zoo returns where 2 GiB are free.
    #[test]
    fn chunks_are_as_unsloth_cuts_them() {
        for (rows, input, output, logit, length) in [
            // a power of two of rows with as many logits as there are inputs
            (16_383, 4096, 32_000, 4, 2048),
            (60_000, 8192, 32_000, 4, 4096),
            (30_000, 8192, 128_256, 4, 1024),
            (65_535, 5120, 262_144, 4, 1024),
            // no fewer than 512 at 151,936 tokens have, nor 512
            (2047, 896, 151_936, 4, 512),
            (8190, 4096, 128_256, 4, 512),
            (4095, 2048, 32_000, 2, 2048),
            (8191, 5376, 262_208, 4, 512),
            // no more rows than 4,096, nor logits than 2 GiB, nor rows than there are
            (100_000, 16_384, 200_064, 2, 4096),
            (131_072, 8192, 256_000, 8, 1048),
            (1000, 512, 300_000_000, 4, 2),
            (511, 2048, 128_256, 4, 511),
            (3000, 2048, 1000, 4, 3000),
            (1, 64, 50_257, 4, 1),
        ] {
            let shape = Shape { input, output };
            assert_eq!(chunk(rows, shape, logit), length, "{rows} × {input}, {output}");
        }
    }

    /// The first of what `_tiled_layout` returns, of which the second is 16,384 in each of these: where no card is small, and on one of 24 GB.
    #[test]
    fn a_tile_is_of_4096_rows_at_most() {
        for (rows, height) in [(4096, 4096), (8191, 4096), (5000, 4096), (511, 511), (1000, 1000), (1, 1)] {
            assert_eq!(tile(rows), height, "{rows}");
        }
    }
}
