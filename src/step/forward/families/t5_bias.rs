//! The bias of t5's scores by distance: models/t5 `compute_bias`, and how attention takes it.

use crate::dtype::Dtype;
use crate::step::forward::Pass;
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;
use crate::step::what::{Dims, Rows, Source, What, torch};

static BUCKET: What = What::own(
    "bucket",
    "distances between queries and keys, which biases are looked up by",
    Source::Modeling,
);
static BUCKET_FLOAT: What = What::own(
    "bucket (float)",
    "distances between queries and keys as numbers, of which their buckets are made",
    Source::Modeling,
);
static BUCKET_MASK: What =
    What::own("bucket (mask)", "which distances are small, one byte each", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `compute_bias`: a row of the table for each pair of positions.
    pub(super) fn distance_bias(&self, table: ParamId, heads: u64, decodes: bool) -> Tensor<'a> {
        let sequence = self.batch.length;
        let square = sequence.saturating_mul(sequence);
        let context = self.range();
        let memory = self.of_positions(sequence, Dtype::I64, &torch::RANGE);
        let relative = self.of_queries(square, Dtype::I64, &torch::RELATIVE_POSITION);
        let buckets = self.buckets(square, decodes);
        let found = self.lookup(table, Some(&buckets), square, heads);
        let dims = Dims::Scores(Rows::Positions, sequence, sequence);
        self.machine.with(|state| state.note_dims(found.value.storage, dims));
        let values = found.heads_first();
        drop(found);
        drop((context, memory, relative));
        values
    }

    /// `_relative_position_bucket`.
    fn buckets(&self, square: u64, decodes: bool) -> Tensor<'a> {
        let longs = || self.of_queries(square, Dtype::I64, &BUCKET);
        let floats = || self.of_queries(square, Dtype::F32, &BUCKET_FLOAT);
        let bools = || self.of_queries(square, Dtype::Bool, &BUCKET_MASK);
        let next = |old: Tensor<'a>, make: &dyn Fn() -> Tensor<'a>| {
            let new = make();
            drop(old);
            new
        };
        let (sum, distance) = if decodes {
            let zeros = longs();
            let least = longs();
            drop(zeros);
            (None, next(least, &longs))
        } else {
            let sides = next(next(next(bools(), &longs), &longs), &longs);
            (Some(sides), longs())
        };
        let is_small = bools();
        let logarithm = next(next(next(next(floats(), &floats), &floats), &floats), &floats);
        let large = next(next(logarithm, &longs), &longs);
        let limited = {
            let most = longs();
            let limited = longs();
            drop(most);
            drop(large);
            limited
        };
        let chosen = longs();
        let buckets = match sum {
            // added in place
            Some(sum) => {
                drop(chosen);
                sum
            }
            None => next(chosen, &longs),
        };
        drop(distance);
        drop(is_small);
        drop(limited);
        buckets
    }

    /// `create_position_bias_mask`: the bias and the mask as one, or the bias with the causal pattern in it.
    pub(super) fn bias_as_mask(
        &self,
        bias: &Tensor<'a>,
        mask: Option<&Tensor<'a>>,
        causal: bool,
    ) -> Tensor<'a> {
        let square = self.batch.length.saturating_mul(self.batch.length);
        match mask {
            None if causal => {
                let allowed = {
                    let _ranges =
                        [(); 2].map(|()| self.of_positions(self.batch.length, Dtype::I64, &torch::RANGE));
                    self.of_queries(square, Dtype::Bool, &torch::CAUSAL_MASK)
                };
                let _lowest = self.constant(1, bias.value.dtype, &torch::LOWEST);
                bias.masked_fill(&allowed)
            }
            None => bias.clone(),
            Some(mask) if mask.value.dtype == Dtype::Bool => {
                let whole = bias.expanded_to(bias.value.numel.saturating_mul(self.batch.sequences));
                whole.masked_fill(mask)
            }
            Some(mask) => {
                let whole = bias.expanded_to(bias.value.numel.saturating_mul(self.batch.sequences));
                whole.add_row(mask)
            }
        }
    }
}
