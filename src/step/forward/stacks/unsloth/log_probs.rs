//! The head and the log-probabilities of labels as one operation, in the place of trl's: with a frozen head it makes the gradient of its
//! input in the forward pass.
//!
//! Source: unsloth 2026.10.9 models/rl.py `_UnslothFusedLinearHead`; unsloth_zoo 2026.10.9 fused_losses/fused_linear.py
//! `fused_linear_logprobs`, `_logprobs_impl`, `_tiled_forward` and `_scale_rows_impl`; compared with the allocator's trace.

use super::compute_dtype;
use super::loss::{LABELLED, MOST_ROWS, SCALED_GRADIENT, SPLIT, TILE_SUMS, chunk, tile};
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, only};
use crate::step::forward::stacks::fused_loss::lengths;
use crate::step::forward::stacks::trl::log_probs::{Asked, Scores};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::linear::Shape;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static ENTROPY: What = What::own("entropy", "the entropy of each token's probabilities", Source::FusedLoss);
static MEAN_LOGITS: What = What::own("mean logits", "the mean logit of each token", Source::FusedLoss);
static LIKELIEST: What =
    What::own("likeliest token", "whether a label is the likeliest token, one byte each", Source::FusedLoss);
static TARGET_LOG_PROBABILITIES: What = What::own(
    "log-probabilities for backward",
    "a copy of those of the labels, from which an entropy's gradient would be made",
    Source::FusedLoss,
);

impl<'m> Tensor<'m> {
    /// `fused_linear_logprobs` of rows that all have a label, over a frozen head of that shape and stored element type.
    pub(in crate::step::forward) fn unsloth_log_probs(
        &self,
        head: (Shape, Dtype),
        targets: &Tensor<'m>,
        asked: Asked,
        small: bool,
    ) -> Scores<'m> {
        let targets = targets.value.storage;
        let (log_probs, others) =
            self.machine.with(|state| state.unsloth_log_probs(&self.value, head, (targets, asked), small));
        let tensor = |value| Tensor { machine: self.machine, value };
        Scores { log_probs: tensor(log_probs), others: others.into_iter().map(tensor).collect() }
    }
}

impl State {
    fn unsloth_log_probs(
        &mut self,
        x: &Value,
        (shape, stored): (Shape, Dtype),
        (targets, asked): (StorageId, Asked),
        small: bool,
    ) -> (Value, Vec<Value>) {
        let rows = x.numel / shape.input.max(1);
        let compute = compute_dtype(self.autocast, stored);
        // products of bfloat16 with a float32 result need compute capability 8.0
        let wide = compute == Dtype::F16 || self.device.capability >= 80;
        let logit = if wide { Dtype::F32 } else { compute };
        let learns = self.graph.enabled;
        let node = self.node_of(2, [x], |state, node, _| {
            let input = node.inputs[0];
            let storage = state.alloc_for(input.storage, input.numel, input.dtype, &SCALED_GRADIENT);
            only(Grad::new(storage, input.numel, input.dtype, Layout::Tokens))
        });
        let index = self.alloc(rows, Dtype::I64, &LABELLED);
        let log_probs = self.alloc(rows, Dtype::F32, &torch::LOG_PROBABILITIES);
        let log_sum = self.alloc(rows, Dtype::F32, &torch::SUMS_OF_LOGITS);
        let mut others = Vec::with_capacity(3);
        let mut told = |state: &mut State, is_asked: bool, dtype, what| {
            is_asked.then(|| {
                let storage = state.alloc(rows, dtype, what);
                others.push(Value::plain(storage, rows, dtype));
                storage
            })
        };
        let entropy = told(self, asked.entropy, Dtype::F32, &ENTROPY);
        told(self, asked.mean_logits, Dtype::F32, &MEAN_LOGITS);
        told(self, asked.is_top1, Dtype::Bool, &LIKELIEST);
        if let (Some(_), Some(entropy)) = (entropy, others.first_mut()) {
            *entropy = entropy.at(node.output(1));
        }
        // fp16's is stored before the scaler's factor is known
        let own = if x.dtype == Dtype::F16 { Dtype::F32 } else { x.dtype };
        let gradient = if learns { self.alloc(x.numel, own, &torch::LOSS_INPUT_GRADIENT) } else { NOTHING };
        let numel = rows.saturating_mul(shape.output);
        (0..1 + u32::from(learns)).for_each(|_| self.multiply(numel, shape.input));
        (0..1 + u32::from(learns)).for_each(|_| self.write(numel.saturating_mul(logit.bytes())));
        let fewest = if small { 0 } else { MOST_ROWS };
        let held = if wide && shape.output.div_ceil(SPLIT) > 2 && rows >= fewest {
            self.log_prob_tiles(rows, shape, learns);
            [NOTHING; 2]
        } else {
            self.log_prob_chunks(rows, shape, logit, (asked.mean_logits, learns))
        };
        let copy = self.alloc(rows, Dtype::F32, &TARGET_LOG_PROBABILITIES);
        held.into_iter().for_each(|storage| self.release(storage));
        match entropy {
            Some(entropy) => [gradient, x.storage, targets, index, log_sum, entropy, copy]
                .into_iter()
                .for_each(|storage| self.save(node, storage)),
            None => self.save(node, gradient),
        }
        [gradient, index, log_sum, copy].into_iter().for_each(|storage| self.release(storage));
        (Value::plain(log_probs, rows, Dtype::F32).at(node.output(0)), others)
    }

    /// Chunks of the rows, each over the whole vocabulary: their gradient is written over the logits.
    /// Returns what the function's variables hold until it returns.
    fn log_prob_chunks(
        &mut self,
        rows: u64,
        shape: Shape,
        logit: Dtype,
        (mean, learns): (bool, bool),
    ) -> [StorageId; 2] {
        let length = chunk(rows, shape, logit.bytes());
        let splits = shape.output.div_ceil(SPLIT);
        let buffer = self.logits_of(length, shape.output.next_multiple_of(8), logit);
        let mut sums = NOTHING;
        for length in lengths(rows, length) {
            if mean {
                let next = self.alloc(length, Dtype::F32, &torch::SUM);
                self.release(std::mem::replace(&mut sums, next));
            }
            if splits > 2 {
                let partial = splits.saturating_mul(7).saturating_mul(length);
                self.scratch(partial.saturating_mul(4), &TILE_SUMS);
            }
            if mean {
                self.scratch(length.saturating_mul(4), &torch::DIV);
            }
            if learns {
                let inputs = length.saturating_mul(shape.input);
                let product = self.alloc_product(inputs, 0, Dtype::F32, &torch::CHUNK_GRADIENT);
                self.release(product);
            }
        }
        [sums, buffer]
    }

    /// Tiles of rows and vocabulary, with the gradient summed over the tiles of its rows.
    fn log_prob_tiles(&mut self, rows: u64, shape: Shape, learns: bool) {
        let height = tile(rows);
        let buffer = self.logits_of(height, SPLIT, Dtype::F32);
        let summed = if learns { self.sums_of_tiles(height, shape) } else { [NOTHING; 2] };
        let mut partial = NOTHING;
        for height in lengths(rows, height) {
            let parts = shape.output.div_ceil(SPLIT).saturating_mul(8).saturating_mul(height);
            let next = self.alloc(parts, Dtype::F32, &TILE_SUMS);
            self.release(std::mem::replace(&mut partial, next));
        }
        let [sums, running] = summed;
        [sums, partial, buffer, running].into_iter().for_each(|storage| self.release(storage));
    }
}
