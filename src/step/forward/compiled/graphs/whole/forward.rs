//! Its forward.

use super::super::super::draft::{Draft, op};
use super::{Arguments, Weights, Whole};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Graph, Op, Origin};

/// The forward graph of a whole model.
pub(in super::super::super) struct WholeForward {
    pub graph: Graph,
    /// What is saved for backward.
    pub kept: Vec<usize>,
    /// The loss.
    pub output: usize,
    /// What it returns beside it.
    pub logits: usize,
}

/// What layers share.
struct Shared {
    angles: usize,
    /// The batch's mask, or else the positions of packed texts: what the first layer makes the mask of.
    packed: usize,
    mask: Option<usize>,
}

/// The graph of the model's forward.
pub(in super::super::super) fn forward(whole: &Whole) -> WholeForward {
    let mut draft = Draft::empty();
    let (given, [frequencies, labels]) = Arguments::new(&mut draft, whole, true);
    let length = whole.length;
    let hidden = whole.rows(whole.layer.hidden);
    let embedded = draft.returned(hidden);
    let packed = given.mask.unwrap_or_else(|| {
        let packed = draft.made((whole.layer.tokens, Dtype::I64), Origin::Made, whole.checkpoints);
        draft.simple(Call::Kernel, packed, &[]);
        packed
    });
    let positions = draft.own((length, Dtype::F32));
    draft.simple(Call::Kernel, positions, &[]);
    let angles = draft.product(1, whole.angles(), true, &[frequencies, positions]);
    let mut shared = Shared { angles, packed, mask: None };
    let looked_up = op(embedded, &[given.ids, given.embedding], &[]);
    let first_norm = given.layers.first().map_or(given.norm, |first| first.first_norm);
    let mut normed = normed(&mut draft, whole, (first_norm, &[embedded]), Some(looked_up), whole.checkpoints);
    let mut entering = embedded;
    for (index, weights) in given.layers.iter().enumerate() {
        let next = given.layers.get(index + 1).map_or(given.norm, |next| next.first_norm);
        (entering, normed) =
            layer(&mut draft, whole, (index, weights, next), (entering, normed), &mut shared);
    }
    let logits = draft.product(whole.layer.hidden, whole.logits(), true, &[normed, given.head]);
    let output = loss(&mut draft, whole, logits, labels);
    let graph = draft.done();
    let is_kept = |index: &usize| {
        let buffer = &graph.buffers[*index];
        buffer.returned && buffer.origin != Origin::Argument && *index != output
    };
    let kept = (0..graph.buffers.len()).filter(is_kept).collect();
    WholeForward { graph, kept, output, logits }
}

/// A norm of the sum of some parts, by a kernel that does something else first where there is something; returns its result. What is
/// computed again leaves nothing, others the scale too.
fn normed(
    draft: &mut Draft,
    whole: &Whole,
    (weight, of): (usize, &[usize]),
    before: Option<Op>,
    again: bool,
) -> usize {
    let mean = draft.made(whole.number(), Origin::Removed, false);
    let result = if again {
        let result = draft.own(whole.rows(whole.layer.hidden));
        let reads = [&[weight][..], of, &[mean]].concat();
        draft.node(Call::Kernel, vec![op(mean, of, &[]), op(result, &reads, of)]);
        result
    } else {
        let scale = draft.returned(whole.number());
        draft.graph.buffers[scale].storage_size = whole.layer.numbers;
        let result = draft.returned(whole.rows(whole.layer.hidden));
        let reads = [&[weight][..], of, &[scale]].concat();
        let ops = vec![op(mean, of, &[]), op(scale, &[mean], &[]), op(result, &reads, of)];
        draft.node(Call::Kernel, ops);
        result
    };
    if let (Some(node), Some(before)) = (draft.graph.nodes.last_mut(), before) {
        node.ops.insert(0, before);
    }
    result
}

fn layer(
    draft: &mut Draft,
    whole: &Whole,
    (index, weights, next_norm): (usize, &Weights, usize),
    (entering, mut input): (usize, usize),
    shared: &mut Shared,
) -> (usize, usize) {
    let sizes = &whole.layer;
    let (hidden, width) = (sizes.hidden, sizes.width);
    let [queries, keys] = [sizes.queries, sizes.keys].map(|of| whole.rows(of.features));
    let repeats = whole.group() > 1;
    let again = whole.checkpoints;
    let query = draft.product(hidden, queries, false, &[input, weights.query]);
    let key = draft.product(hidden, keys, false, &[input, weights.key]);
    let value = draft.product(hidden, keys, !repeats && !again, &[input, weights.value]);
    let [turned, turned_key] = [(); 2].map(|()| draft.made(queries, Origin::Made, !again));
    let turns = [op(turned, &[query, shared.angles], &[]), op(turned_key, &[key, shared.angles], &[])];
    let value = if repeats {
        turns.into_iter().for_each(|turn| draft.node(Call::Kernel, vec![turn]));
        let repeated = draft.made(queries, Origin::Made, !again);
        draft.simple(Call::Kernel, repeated, &[value]);
        repeated
    } else {
        draft.node(Call::Kernel, turns.to_vec());
        value
    };
    let mask = *shared.mask.get_or_insert_with(|| {
        let mask = draft.made(whole.mask(), Origin::Made, !again);
        draft.simple(Call::Kernel, mask, &[shared.packed]);
        mask
    });
    let attended = attention(draft, whole, &[turned, turned_key, value, mask]);
    // the first layer's sum is computed again where it is needed, and so is all that a checkpoint does not keep
    let keeps_sum = index > 0 && !again;
    let output = {
        let returned = !keeps_sum && !again;
        draft.product(sizes.queries.features, whole.rows(hidden), returned, &[attended, weights.output])
    };
    let mut parts = vec![entering, output];
    let mut before = None;
    if keeps_sum {
        let sum = draft.returned(whole.rows(hidden));
        before = Some(op(sum, &parts, &parts));
        parts = vec![sum];
    }
    input = normed(draft, whole, (weights.second_norm, &parts), before, again);
    let gate = draft.product(hidden, whole.rows(width), !again, &[input, weights.gate]);
    let up = draft.product(hidden, whole.rows(width), !again, &[input, weights.up]);
    let activated = draft.made(whole.rows(width), Origin::Made, !again);
    draft.node(Call::Kernel, vec![op(activated, &[gate, up], &[gate, up])]);
    let down = draft.product(width, whole.rows(hidden), false, &[activated, weights.down]);
    parts.push(down);
    let is_last = index + 1 == whole.layers;
    if again && is_last {
        return (entering, normed(draft, whole, (next_norm, &parts), None, false));
    }
    let sum = draft.returned(whole.rows(hidden));
    let before = op(sum, &parts, &parts);
    (sum, normed(draft, whole, (next_norm, &[sum]), Some(before), again && !is_last))
}

/// Attention's result. Without checkpoints the logarithms of its sums and two tensors for its random numbers are kept beside it.
fn attention(draft: &mut Draft, whole: &Whole, given: &[usize]) -> usize {
    let sizes = &whole.layer;
    let tuple = draft.made((0, sizes.dtype), Origin::MultiOutputLayout, false);
    draft.simple(Call::Attention, tuple, given);
    let returned = [
        whole.rows(sizes.queries.features),
        (sizes.log_sums, Dtype::F32),
        (sizes.seeds[0], Dtype::I64),
        (sizes.seeds[1], Dtype::I64),
    ];
    let again = whole.checkpoints;
    let parts = returned.map(|size| draft.made(size, Origin::MultiOutput, !again));
    let taken = if again { 1 } else { parts.len() };
    for (index, part) in parts.into_iter().take(taken).enumerate() {
        draft.simple(Call::MultiOutput(index), part, &[tuple]);
    }
    parts[0]
}

/// The loss, and what it leaves for backward.
fn loss(draft: &mut Draft, whole: &Whole, logits: usize, labels: usize) -> usize {
    let shifted = draft.returned((whole.labels().0, Dtype::I64));
    draft.simple(Call::Kernel, shifted, &[labels]);
    let (number, one) = (whole.number(), (1, Dtype::F32));
    let highest = draft.returned(number);
    let sum = draft.made(number, Origin::Removed, false);
    let logarithm = draft.returned(number);
    let rows = vec![op(highest, &[logits], &[]), op(sum, &[logits], &[]), op(logarithm, &[sum], &[sum])];
    draft.node(Call::Kernel, rows);
    let count = draft.made((1, Dtype::I64), Origin::Removed, false);
    let counted = draft.returned(one);
    let total = draft.own(one);
    let loss = draft.returned(one);
    let ops = vec![
        op(count, &[shifted], &[]),
        op(total, &[shifted, logits, highest, logarithm], &[]),
        op(counted, &[count], &[]),
        op(loss, &[total, counted], &[total]),
    ];
    draft.node(Call::Kernel, ops);
    loss
}
