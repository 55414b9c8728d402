//! Checkpointed layers, which backward computes again.

use super::super::super::draft::{Draft, op};
use super::kept::{Kept, Outside};
use super::{Weights, Whole};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Op, Origin};

/// What checkpointed layers compute again.
pub(super) struct Again {
    pub mask: usize,
    /// A rotation of keys that shares its kernel with that of the layer before, and one of a gradient of queries that does with the
    /// rotation of that layer's queries.
    pub key: Option<Op>,
    pub query: Option<Op>,
}

impl Again {
    pub fn layer(
        &mut self,
        draft: &mut Draft,
        whole: &Whole,
        (index, weights): (usize, &Weights),
        entering: usize,
        outside: &Outside,
    ) -> Kept {
        let sizes = whole.layer;
        let hidden = whole.rows(sizes.hidden);
        let [queries, keys] = [sizes.queries, sizes.keys].map(|of| whole.rows(of.features));
        let is_last = index + 1 == whole.layers;
        let first_scale = draft.made(whole.number(), Origin::Made, false);
        let first = draft.own(hidden);
        draft.node(
            Call::Kernel,
            vec![
                op(first_scale, &[entering], &[]),
                op(first, &[weights.first_norm, entering, first_scale], &[entering]),
            ],
        );
        let query = draft.product(sizes.hidden, queries, false, &[first, weights.query]);
        let key = draft.product(sizes.hidden, keys, false, &[first, weights.key]);
        let value = draft.product(sizes.hidden, keys, false, &[first, weights.value]);
        let turned = draft.own(queries);
        let turned_key = draft.own(queries);
        let turns = [op(turned, &[query, outside.angles], &[]), op(turned_key, &[key, outside.angles], &[])];
        let [turn, turn_key] = turns;
        let gradient = self.query.take();
        draft.node(Call::Kernel, gradient.into_iter().chain([turn]).collect());
        if is_last {
            draft.node(Call::Kernel, vec![turn_key]);
        } else {
            match self.key.take() {
                Some(before) => draft.node(Call::Kernel, vec![before, turn_key]),
                None => self.key = Some(turn_key),
            }
        }
        let repeated = draft.own(queries);
        draft.simple(Call::Kernel, repeated, &[value]);
        let tuple = draft.made((0, sizes.dtype), Origin::MultiOutputLayout, false);
        draft.simple(Call::Attention, tuple, &[turned, turned_key, repeated, self.mask]);
        let returned = [
            queries,
            (sizes.log_sums, Dtype::F32),
            (sizes.seeds[0], Dtype::I64),
            (sizes.seeds[1], Dtype::I64),
        ];
        let [attended, log_sums, seed, offset] =
            returned.map(|size| draft.made(size, Origin::MultiOutput, false));
        for (index, part) in [attended, log_sums, seed, offset].into_iter().enumerate() {
            draft.simple(Call::MultiOutput(index), part, &[tuple]);
        }
        let output = draft.product(sizes.queries.features, hidden, false, &[attended, weights.output]);
        let second_scale = draft.made(whole.number(), Origin::Made, false);
        let second = draft.own(hidden);
        draft.node(
            Call::Kernel,
            vec![
                op(second_scale, &[entering, output], &[]),
                op(second, &[weights.second_norm, entering, output, second_scale], &[entering, output]),
            ],
        );
        let gate = draft.product(sizes.hidden, whole.rows(sizes.width), false, &[second, weights.gate]);
        let up = draft.product(sizes.hidden, whole.rows(sizes.width), false, &[second, weights.up]);
        let activated = draft.own(whole.rows(sizes.width));
        let activates = op(activated, &[gate, up], &[gate, up]);
        if is_last {
            draft.node(Call::Kernel, vec![activates.clone()]);
        }
        Kept {
            entering,
            between: vec![entering, output],
            first_scale,
            second_scale,
            first,
            second,
            values: repeated,
            queries: turned,
            keys: turned_key,
            attended,
            log_sums,
            seeds: [seed, offset],
            mask: self.mask,
            gate,
            up,
            activated,
            activates: (!is_last).then_some(activates),
        }
    }
}
