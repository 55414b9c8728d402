//! Its backward.

use super::super::super::draft::{Draft, op};
use super::super::full::Sum;
use super::again::Again;
use super::kept::{Kept, Outside, Saved};
use super::{Arguments, Weights, Whole};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Graph, Op, Origin};

/// The backward graph of a whole model.
pub(in super::super::super) struct WholeBackward {
    pub graph: Graph,
    /// What forward saved, in forward's order.
    pub kept: Vec<usize>,
    /// The gradient of the logits.
    pub logits: usize,
    /// The gradients of what forward returns: of the loss, and of the logits, which nobody used.
    pub given: [usize; 2],
    /// The gradients of all parameters, in the order of forward's arguments.
    pub gradients: Vec<usize>,
}

/// The graph of the model's backward.
pub(in super::super::super) fn backward(whole: &Whole) -> WholeBackward {
    let sizes = whole.layer;
    let tokens = sizes.tokens;
    let mut draft = Draft::empty();
    let (arguments, _) = Arguments::new(&mut draft, whole, false);
    let Saved { entering, packed, layers, mut outside } = Saved::new(&mut draft, whole);
    let is_kept =
        |index: &usize| matches!(draft.graph.buffers[*index].origin, Origin::Saved | Origin::Shared);
    let kept = (0..draft.graph.buffers.len()).filter(is_kept).collect();
    let given = [draft.argument("tangents_1"), draft.argument("tangents_2")];
    let Outside { labels, highest, logarithm, count, .. } = outside;
    let sum = draft.made(whole.number(), Origin::Removed, false);
    let logits = draft.own(whole.logits());
    draft.node(
        Call::Kernel,
        vec![
            op(sum, &[labels, given[0], count], &[]),
            op(logits, &[given[1], labels, given[0], count, outside.logits, highest, logarithm, sum], &[]),
        ],
    );
    let table = (whole.vocabulary.saturating_mul(sizes.hidden), sizes.dtype);
    // shared with the embedding, the table has its gradient at the end
    let of_head = (!whole.tied).then(|| draft.product(tokens, table, true, &[logits, outside.last_normed]));
    let normed = draft.product(whole.vocabulary, whole.rows(sizes.hidden), false, &[logits, arguments.head]);
    let masks = packed.or(arguments.mask.filter(|_| whole.checkpoints));
    let mask = masks.map(|packed| {
        let mask = draft.own(whole.mask());
        draft.simple(Call::Kernel, mask, &[packed]);
        mask
    });
    let mut again = Again { mask: mask.unwrap_or(outside.angles), key: None, query: None };
    let mut flowing = None;
    let mut waiting = Waiting::default();
    let mut gradients = Vec::new();
    let mut saved = layers.into_iter().rev();
    for (index, weights) in arguments.layers.iter().enumerate().rev() {
        let is_last = index + 1 == whole.layers;
        let mut kept = match saved.next() {
            Some(kept) => kept,
            None => again.layer(&mut draft, whole, (index, weights), entering[index], &outside),
        };
        if is_last {
            if whole.checkpoints {
                let down = draft.product(
                    sizes.width,
                    whole.rows(sizes.hidden),
                    false,
                    &[kept.activated, weights.down],
                );
                outside.last = kept.between.iter().copied().chain([down]).collect();
            }
            flowing = Some(last_norm(&mut draft, whole, (normed, arguments.norm), &outside, &mut waiting));
            let sum = waiting.sums.last().or(waiting.done.last()).map(|sum| sum.whole);
            gradients = sum.into_iter().chain(of_head).collect();
        }
        let layer = Layer { whole, weights, kept: &mut kept, outside: &outside, index };
        let (next, own) = layer.backward(&mut draft, flowing.unwrap_or(normed), &mut waiting, &mut again);
        flowing = Some(next);
        gradients.splice(0..0, own);
    }
    for turn in [again.query.take(), again.key.take()].into_iter().flatten() {
        draft.node(Call::Kernel, vec![turn]);
    }
    let of_table = waiting.embedding(&mut draft, whole, arguments.ids, flowing.unwrap_or(normed));
    let of_both =
        |draft: &mut Draft| draft.product(tokens, table, true, &[of_table, logits, outside.last_normed]);
    gradients.insert(0, if whole.tied { of_both(&mut draft) } else { of_table });
    WholeBackward { graph: draft.done(), kept, logits, given, gradients }
}

/// Sums over tokens for norms' weights that one kernel computes, and what reduces rows beside them.
#[derive(Default)]
struct Waiting {
    sums: Vec<Sum>,
    columns: Vec<Op>,
    /// Those whose kernels are written.
    done: Vec<Sum>,
    rows: Vec<Op>,
}

impl Waiting {
    fn sum(&mut self, draft: &mut Draft, whole: &Whole, reads: &[usize]) -> Sum {
        let sizes = whole.layer;
        let sum = Sum::new(draft, sizes.sums, (sizes.hidden, sizes.dtype));
        self.sums.push(sum);
        self.columns.push(op(sum.partial, reads, &[]));
        sum
    }

    /// The nodes of what waits, and of what reduces rows with it.
    fn write(&mut self, draft: &mut Draft, whole: &Whole, rows: Vec<Op>) {
        let columns = std::mem::take(&mut self.columns);
        let sums = std::mem::take(&mut self.sums);
        match whole.layer.sums.mix_order() {
            Some(left) => {
                let of: Vec<usize> = sums.iter().map(|sum| sum.whole).collect();
                draft.mix_orders(left, &of, rows.into_iter().chain(columns).collect());
            }
            None => {
                draft.node(Call::Kernel, columns);
                draft.node(Call::Kernel, rows);
            }
        }
        sums.iter().for_each(|sum| sum.finish(draft));
        self.done = sums;
    }

    /// The gradient of the embedding: summed in a float32 table, by the kernel that makes what is added.
    fn embedding(&mut self, draft: &mut Draft, whole: &Whole, ids: usize, flowing: usize) -> usize {
        let sizes = whole.layer;
        let all = whole.vocabulary.saturating_mul(sizes.hidden);
        let table = draft.own((all, Dtype::F32));
        draft.simple(Call::Kernel, table, &[]);
        // the same memory after what is added: nothing of its own
        let added = draft.made((0, Dtype::F32), Origin::Removed, false);
        let mut ops = std::mem::take(&mut self.rows);
        if let Some(last) = ops.last_mut().filter(|_| !whole.checkpoints) {
            last.reads.insert(0, ids);
        }
        ops.push(op(added, &[ids, flowing, table], &[]));
        self.write(draft, whole, ops);
        let cast = draft.made((all, sizes.dtype), Origin::Made, !whole.tied);
        draft.simple(Call::Kernel, cast, &[added, table]);
        cast
    }
}

/// The backward of the last norm: the gradient of what it normed.
fn last_norm(
    draft: &mut Draft,
    whole: &Whole,
    (normed, weight): (usize, usize),
    outside: &Outside,
    waiting: &mut Waiting,
) -> usize {
    let last = &outside.last[..];
    let scale = outside.last_scale;
    waiting.sum(draft, whole, &[&[normed][..], last, &[scale]].concat());
    let mean = draft.made(whole.number(), Origin::Removed, false);
    let gradient = draft.own(whole.rows(whole.layer.hidden));
    let rows = vec![
        op(mean, &[&[normed, weight][..], last].concat(), &[]),
        op(gradient, &[&[normed, weight, scale, mean][..], last].concat(), &[&[normed][..], last].concat()),
    ];
    if whole.checkpoints {
        // its sum waits for those of the last layer, which read the same
        draft.node(Call::Kernel, rows);
    } else {
        waiting.write(draft, whole, rows);
    }
    gradient
}

/// A layer whose backward is written.
struct Layer<'g> {
    whole: &'g Whole,
    weights: &'g Weights,
    kept: &'g mut Kept,
    outside: &'g Outside,
    index: usize,
}

impl Layer<'_> {
    /// The gradient of what entered it, and those of its parameters.
    fn backward(
        self,
        draft: &mut Draft,
        flowing: usize,
        waiting: &mut Waiting,
        again: &mut Again,
    ) -> (usize, [usize; 9]) {
        let Layer { whole, weights, outside, index, .. } = self;
        let kept = &*self.kept;
        let is_first = index == 0;
        let sizes = whole.layer;
        let (tokens, hidden, width) = (sizes.tokens, sizes.hidden, sizes.width);
        let rows = |of: u64| whole.rows(of);
        let matrix = |of: u64, to: u64| (of.saturating_mul(to), sizes.dtype);
        let of_down = draft.product(tokens, matrix(hidden, width), true, &[flowing, kept.activated]);
        let activated = draft.product(hidden, rows(width), false, &[flowing, weights.down]);
        let up = draft.own(rows(width));
        let of_up = draft.product(tokens, matrix(hidden, width), true, &[up, kept.second]);
        let from_up = draft.product(width, rows(hidden), false, &[up, weights.up]);
        let gate = draft.own(rows(width));
        let of_gate = draft.product(tokens, matrix(hidden, width), true, &[gate, kept.second]);
        let from_gate = draft.product(width, rows(hidden), false, &[gate, weights.gate]);
        let activations = [
            op(up, &[activated, kept.gate], &[activated, kept.gate]),
            op(gate, &[activated, kept.up, kept.gate], &[activated, kept.up, kept.gate]),
        ];
        draft.node(Call::Kernel, kept.activates.iter().cloned().chain(activations).collect());
        let normed = &kept.between[..];
        let inputs = [from_up, from_gate];
        let second_sum = waiting.sum(draft, whole, &[&inputs[..], normed, &[kept.second_scale]].concat());
        let mean = draft.made(whole.number(), Origin::Removed, false);
        let between = draft.own(rows(hidden));
        let second_rows = vec![
            op(mean, &[&inputs[..], &[weights.second_norm], normed].concat(), &[]),
            op(
                between,
                &[&[flowing][..], &inputs, &[weights.second_norm, kept.second_scale, mean], normed].concat(),
                &[&[flowing][..], &inputs, normed].concat(),
            ),
        ];
        // its sum waits for the first norm's where that reads the same
        if kept.between.contains(&kept.entering) {
            draft.node(Call::Kernel, second_rows);
        } else {
            waiting.write(draft, whole, second_rows);
        }
        let square = matrix(hidden, sizes.queries.features);
        let of_output = draft.product(tokens, square, true, &[between, kept.attended]);
        let attended = draft.product(hidden, rows(sizes.queries.features), false, &[between, weights.output]);
        let mask = if whole.checkpoints && index + 1 == whole.layers {
            // repeated for every head of queries: the only one that is
            let (numel, dtype) = whole.mask();
            let copy = draft.own((numel.saturating_mul(sizes.queries.heads), dtype));
            draft.simple(Call::Kernel, copy, &[kept.mask]);
            copy
        } else {
            kept.mask
        };
        let [query, key, value] = attention(draft, whole, kept, (attended, mask));
        let first = kept.first;
        let keys = sizes.keys.features;
        let linear = |draft: &mut Draft, features: u64, gradient: usize, weight: usize| {
            let of_weight = draft.product(tokens, matrix(hidden, features), true, &[gradient, first]);
            let from = draft.product(features, rows(hidden), false, &[gradient, weight]);
            [of_weight, from]
        };
        let (of_values, of_keys, of_queries);
        if whole.group() == 1 {
            of_values = linear(draft, keys, value, weights.value);
            let turned_key = draft.own(rows(keys));
            of_keys = linear(draft, keys, turned_key, weights.key);
            let turned = draft.own(rows(keys));
            let turns =
                vec![op(turned_key, &[key, outside.angles], &[]), op(turned, &[query, outside.angles], &[])];
            draft.node(Call::Kernel, turns);
            of_queries = linear(draft, keys, turned, weights.query);
        } else {
            // a sum of less than eight heads is written out (torch/_inductor/config.py `unroll_reductions_threshold`); one of less than
            // four is short enough to be rotated by the same kernel
            let (is_reduction, is_short) = (whole.group() >= 8, whole.group() < 4);
            let is_fused = is_short && !whole.cudnn;
            let summed = if is_reduction { Some(draft.own(rows(keys))) } else { None };
            let origin = if is_fused { Origin::Removed } else { Origin::Made };
            let summed_key = draft.made(rows(keys), origin, false);
            let summed_value = draft.own(rows(keys));
            match summed {
                Some(sum) => {
                    draft.simple(Call::Kernel, sum, &[value]);
                    draft.simple(Call::Kernel, summed_value, &[sum]);
                }
                None => draft.simple(Call::Kernel, summed_value, &[value]),
            }
            of_values = linear(draft, keys, summed_value, weights.value);
            let turned_key = draft.own(rows(keys));
            let angles = outside.angles;
            let read = if is_reduction { vec![key] } else { vec![key, angles] };
            let sum = op(summed_key, &read, &[]);
            if is_fused {
                draft.node(Call::Kernel, vec![sum, op(turned_key, &[summed_key], &[summed_key])]);
            } else {
                draft.node(Call::Kernel, vec![sum]);
                let read = match (is_reduction, is_short) {
                    (true, _) => vec![summed_key, angles],
                    (false, true) => vec![summed_key],
                    (false, false) => vec![summed_key, key, angles],
                };
                draft.simple(Call::Kernel, turned_key, &read);
            }
            of_keys = linear(draft, keys, turned_key, weights.key);
            let turned = draft.own(rows(sizes.queries.features));
            let turn = op(turned, &[query, outside.angles], &[]);
            if whole.checkpoints {
                again.query = Some(turn);
            } else {
                draft.node(Call::Kernel, vec![turn]);
            }
            of_queries = linear(draft, sizes.queries.features, turned, weights.query);
        }
        let [a, b, c] = [of_values[1], of_keys[1], of_queries[1]];
        let first_sum = waiting.sum(draft, whole, &[a, b, c, kept.entering, kept.first_scale]);
        let mean = draft.made(whole.number(), Origin::Removed, false);
        let sum = match (is_first, whole.checkpoints, sizes.sums.mix_order()) {
            (true, false, _) => draft.made((rows(hidden).0, Dtype::F32), Origin::Removed, false),
            (true, true, Some(_)) => draft.made(rows(hidden), Origin::Removed, false),
            (true, true, None) | (false, _, _) => draft.own(rows(hidden)),
        };
        let first_rows = vec![
            op(mean, &[a, b, c, weights.first_norm, kept.entering], &[]),
            op(
                sum,
                &[between, a, b, c, weights.first_norm, kept.first_scale, mean, kept.entering],
                &[between, a, b, c, kept.entering],
            ),
        ];
        if is_first {
            waiting.rows = first_rows;
        } else {
            waiting.write(draft, whole, first_rows);
        }
        let gradients = [
            first_sum.whole,
            of_queries[0],
            of_keys[0],
            of_values[0],
            of_output,
            second_sum.whole,
            of_gate,
            of_up,
            of_down,
        ];
        (sum, gradients)
    }
}

/// What attention's kernel leaves: the gradients of queries, and of keys and values for every head of queries.
fn attention(draft: &mut Draft, whole: &Whole, kept: &Kept, (attended, mask): (usize, usize)) -> [usize; 3] {
    let tuple = draft.made((0, whole.layer.dtype), Origin::MultiOutputLayout, false);
    let [seed, offset] = kept.seeds;
    let result = [kept.attended, kept.log_sums, seed, offset];
    let mut given = vec![attended, kept.queries, kept.keys, kept.values];
    if whole.cudnn {
        given.extend(result.into_iter().chain([mask]));
    } else {
        given.extend([mask].into_iter().chain(result));
    }
    draft.simple(Call::AttentionBackward, tuple, &given);
    let mut index = 0;
    [(); 3].map(|()| {
        let part = draft.made(whole.rows(whole.layer.queries.features), Origin::MultiOutput, false);
        draft.simple(Call::MultiOutput(index), part, &[tuple]);
        index += 1;
        part
    })
}
