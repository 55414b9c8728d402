//! Linear attention of a further token, which continues from the states of those before it.
//!
//! Source: models/qwen3_next, models/qwen3_5 `causal_conv1d_update`, `torch_recurrent_gated_delta_rule`.

use super::super::{BoundLayer, Pass};
use crate::dtype::Dtype;
use crate::model::blocks::{Conv, DeltaNet};
use crate::step::ops::linear::CONVOLUTION;
use crate::step::tensor::Tensor;
use crate::step::what::torch;

impl<'a> Pass<'_, 'a> {
    /// The convolution of a layer that remembers what it was given last, where anything is cached: a further token is joined with that.
    pub(super) fn remembered_conv(&self, layer: &BoundLayer<'a>, conv: &Conv, x: Tensor<'a>) -> Tensor<'a> {
        let row = self.batch.sequences.saturating_mul(conv.channels);
        let held = self.held_state(row.saturating_mul(conv.kernel), x.value.dtype);
        let Some(held) = held.filter(|_| self.continues()) else { return self.causal_conv(layer, conv, x) };
        let out = {
            let _whole = self.joined_before(conv, &x);
            drop(held);
            self.of_two(conv, &x).keeping_input(&torch::SILU)
        };
        drop(x);
        out
    }

    /// `torch.cat([conv_state, hidden_states])`.
    fn joined_before(&self, conv: &Conv, x: &Tensor<'a>) -> Tensor<'a> {
        let row = self.batch.sequences.saturating_mul(conv.channels);
        x.fresh(row.saturating_mul(conv.kernel.saturating_add(1)), x.value.dtype, &torch::CAT)
    }

    /// The last output of a convolution that pads nothing: of one token more than its kernel is long two come.
    fn of_two(&self, conv: &Conv, x: &Tensor<'a>) -> Tensor<'a> {
        let row = self.batch.sequences.saturating_mul(conv.channels);
        x.fresh(row.saturating_mul(2), x.value.dtype, &CONVOLUTION).slice(row)
    }

    /// The convolution of lfm2 of a further token, where anything is cached; its states are kept in any case.
    pub(in crate::step::forward) fn further_conv(&self, conv: &Conv, x: &Tensor<'a>) -> Option<Tensor<'a>> {
        let row = self.batch.sequences.saturating_mul(conv.channels);
        let _held = self.held_state(row.saturating_mul(conv.kernel), x.value.dtype)?;
        self.continues().then(|| {
            let _whole = self.joined_before(conv, x);
            self.of_two(conv, x)
        })
    }

    /// `torch_recurrent_gated_delta_rule` of one token.
    pub(super) fn delta_rule_of_one(
        &self,
        net: &DeltaNet,
        given: [&Tensor<'a>; 5],
        state_numel: u64,
    ) -> (Tensor<'a>, Option<Tensor<'a>>) {
        let dtype = given[0].value.dtype;
        let [mut query, mut key, value, beta, decay] = given.map(|x| x.heads_first().dense_float());
        query = query.unit_rows(net.key_dim);
        key = key.unit_rows(net.key_dim);
        query = query.scale();
        let rows = state_numel / net.key_dim.max(1);
        let state_of = |what| self.constant(state_numel, Dtype::F32, what);
        let rows_of = |what| self.constant(rows, Dtype::F32, what);
        let core = rows_of(&torch::ZEROS);
        let decayed = decay.keeping_output(&torch::EXP);
        let kept = state_of(&torch::MUL);
        let known = {
            let _products = state_of(&torch::MUL);
            rows_of(&torch::SUM)
        };
        let delta = {
            let _rest = rows_of(&torch::SUB);
            rows_of(&torch::MUL)
        };
        let last = {
            let _outer = state_of(&torch::MUL);
            state_of(&torch::ADD)
        };
        drop(kept);
        {
            let sum = {
                let _products = state_of(&torch::MUL);
                rows_of(&torch::SUM)
            };
            drop(sum);
        }
        let result = {
            let core = core.viewed();
            core.to(dtype)
        };
        drop(core);
        drop((query, key, value, beta, decay));
        drop((decayed, known, delta));
        (result, Some(last))
    }
}
