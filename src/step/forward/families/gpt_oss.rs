//! models/gpt_oss/modeling_gpt_oss.py.

use crate::step::forward::Pass;
use crate::step::forward::layer::Mixed;
use crate::step::ops::matmul::{Product, Second};
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;
use crate::step::what::{Dims, Rows};

impl<'a> Pass<'_, 'a> {
    /// The rest of `eager_attention_forward` after the mask: a learned sink joins each row of scores.
    pub(in crate::step::forward) fn eager_with_sinks(
        &self,
        scores: Tensor<'a>,
        sinks: ParamId,
        [q, k, v]: [&Tensor<'a>; 3],
        dropout: bool,
    ) -> Mixed<'a> {
        let batch = self.batch.sequences;
        let numel = scores.value.numel;
        let rows = numel / self.batch.length.max(1);
        let sinks = self.machine.weight(sinks).expanded_to(rows);
        let mut combined = scores.cat(&sinks);
        // the sink is one more key
        let keys = self.batch.length.saturating_add(1);
        let dims = Dims::Scores(Rows::Tokens, self.batch.tokens(), keys);
        self.machine.with(|state| state.note_dims(combined.value.storage, dims));
        combined = {
            let highest = combined.highest_of_rows(rows);
            combined.minus_rows(&highest)
        };
        let probabilities = self.probabilities(|| combined.softmax_as_it_is());
        let kept = probabilities.slice(numel);
        let weights = self.probabilities(|| kept.dropout(dropout).to(v.value.dtype));
        drop(scores);
        let shape = Product { numel: q.value.numel, batch, groups: 1, second: Second::Plain };
        let context = self.machine.product(&weights, v, shape, self.autocast);
        let output = context.to_tokens();
        drop(context);
        drop((combined, probabilities, kept));
        drop((k, sinks));
        Mixed { output, weights: Some(weights) }
    }
}
