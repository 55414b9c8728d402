//! A layer in one 16-bit type, all of whose weights are trained: llama's, qwen2's with biases, qwen3's with norms of its heads.
//!
//! Heads of queries and of keys that are as many are rotated by one kernel, and a sum over tokens is computed in one of three ways
//! ([`Sums`]).

use super::super::draft::{
    ARGUMENTS, Arguments, Beside, COS, DOWN, Draft, FIRST_NORM, GATE, HIDDEN, KEY, KEY_NORM, OUTPUT,
    Projected, QUERY, QUERY_NORM, SECOND_NORM, SIN, Sizes, Sums, UP, VALUE, bias, op,
};
use super::{Backward, Forward, attention, attention_backward, backward_of, forward_of, norm};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Op, Origin};

/// What the layer is given.
pub(super) fn given(beside: Beside) -> Arguments {
    let mut given = [false; ARGUMENTS];
    for argument in [HIDDEN, FIRST_NORM, QUERY, KEY, VALUE, COS, SIN, OUTPUT, SECOND_NORM, GATE, UP, DOWN] {
        given[argument] = true;
    }
    match beside {
        Beside::Nothing => {}
        Beside::Biases => [QUERY, KEY, VALUE].into_iter().for_each(|of| given[bias(of)] = true),
        Beside::HeadNorms => [QUERY_NORM, KEY_NORM].into_iter().for_each(|of| given[of] = true),
    }
    given
}

/// The product of a linear layer that may have a bias.
fn projected(
    draft: &mut Draft,
    sizes: &Sizes,
    (x, weight): (usize, usize),
    to: u64,
    returned: bool,
) -> usize {
    let size = (sizes.tokens.saturating_mul(to), sizes.dtype);
    match sizes.beside {
        Beside::Biases => draft.product(sizes.hidden, size, returned, &[bias(weight), x, weight]),
        Beside::Nothing | Beside::HeadNorms => draft.product(sizes.hidden, size, returned, &[x, weight]),
    }
}

/// What forward computes of queries or keys before they are rotated: the product, the numbers by which a norm scales its heads, and the
/// operations that make these.
struct Made {
    product: usize,
    scale: Option<usize>,
    ops: Vec<Op>,
}

fn heads(draft: &mut Draft, sizes: &Sizes, normed: usize, weight: usize, of: Projected) -> Made {
    let has_norm = sizes.beside == Beside::HeadNorms;
    let product = projected(draft, sizes, (normed, weight), of.features, has_norm);
    let mut ops = Vec::new();
    let scale = has_norm.then(|| {
        let number = (sizes.tokens.saturating_mul(of.heads), Dtype::F32);
        let mean = draft.made(number, Origin::Removed, false);
        let scale = draft.returned(number);
        draft.graph.buffers[scale].storage_size = of.numbers;
        ops = vec![op(mean, &[product], &[]), op(scale, &[mean], &[])];
        scale
    });
    Made { product, scale, ops }
}

/// The graph of the layer's forward.
pub(super) fn forward(sizes: &Sizes) -> Forward {
    let Sizes { tokens, hidden, queries, keys, width, dtype, .. } = *sizes;
    // a bias is not needed in backward
    let is_bias = |argument| [QUERY, KEY, VALUE].into_iter().any(|linear| argument == bias(linear));
    let mut draft = Draft::new(&given(sizes.beside), |argument| !is_bias(argument));
    let rows = |of: u64| (tokens.saturating_mul(of), dtype);
    let number = (tokens, Dtype::F32);
    let mean = draft.made(number, Origin::Removed, false);
    let first_scale = draft.returned(number);
    let first = draft.returned(rows(hidden));
    norm(&mut draft, FIRST_NORM, &[HIDDEN], [mean, first_scale, first]);
    let of_queries = heads(&mut draft, sizes, first, QUERY, queries);
    let of_keys = heads(&mut draft, sizes, first, KEY, keys);
    let values = projected(&mut draft, sizes, (first, VALUE), keys.features, true);
    let [query, key] = [queries, keys].map(|of| draft.returned(rows(of.features)));
    let turn = |makes: usize, made: &Made, norm: usize| match made.scale {
        Some(scale) => op(makes, &[norm, made.product, scale, COS, SIN], &[]),
        None => op(makes, &[made.product, COS, SIN], &[]),
    };
    let turned = [turn(query, &of_queries, QUERY_NORM), turn(key, &of_keys, KEY_NORM)];
    if queries.heads == keys.heads {
        let before = of_queries.ops.iter().chain(&of_keys.ops);
        draft.node(Call::Kernel, before.chain(&turned).cloned().collect());
    } else {
        for (made, turned) in [&of_queries, &of_keys].into_iter().zip(turned) {
            draft.node(Call::Kernel, made.ops.iter().cloned().chain([turned]).collect());
        }
    }
    let [attended, ..] = attention(&mut draft, sizes, [query, key, values]);
    let output = draft.product(queries.features, rows(hidden), true, &[attended, OUTPUT]);
    let mean = draft.made(number, Origin::Removed, false);
    let second_scale = draft.returned(number);
    let second = draft.returned(rows(hidden));
    norm(&mut draft, SECOND_NORM, &[HIDDEN, output], [mean, second_scale, second]);
    for scale in [first_scale, second_scale] {
        draft.graph.buffers[scale].storage_size = sizes.numbers;
    }
    let gate = draft.product(hidden, rows(width), true, &[second, GATE]);
    let up = draft.product(hidden, rows(width), true, &[second, UP]);
    let activated = draft.returned(rows(width));
    draft.node(Call::Kernel, vec![op(activated, &[gate, up], &[gate, up])]);
    let down = draft.product(width, rows(hidden), false, &[activated, DOWN]);
    let sum = draft.returned(rows(hidden));
    draft.node(Call::Kernel, vec![op(sum, &[HIDDEN, output, down], &[output, down])]);
    forward_of(draft, sum)
}

/// A sum over tokens: of its two buffers the first is partial, and the same as the second where the sum is not split.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub partial: usize,
    pub whole: usize,
    sums: Sums,
}

impl Sum {
    pub fn new(draft: &mut Draft, sums: Sums, (columns, dtype): (u64, Dtype)) -> Sum {
        let partial = sums.split().map(|rows| {
            let origin = if sums.mix_order().is_some() { Origin::Removed } else { Origin::Made };
            draft.made((rows.saturating_mul(columns), Dtype::F32), origin, false)
        });
        let whole = draft.returned((columns, dtype));
        Sum { partial: partial.unwrap_or(whole), whole, sums }
    }

    /// The node of its second part, if it has one.
    pub fn finish(self, draft: &mut Draft) {
        if self.partial != self.whole {
            let call = if self.sums.mix_order().is_some() { Call::Nothing } else { Call::Kernel };
            draft.simple(call, self.whole, &[self.partial]);
        }
    }

    /// The nodes of both norms' sums over tokens, and of what reduces rows beside them.
    pub fn finish_both(draft: &mut Draft, both: [Sum; 2], rows: [Op; 2], columns: [Op; 2]) {
        match both[0].sums.mix_order() {
            Some(left) => {
                let ops = rows.into_iter().chain(columns).collect();
                draft.mix_orders(left, &both.map(|sum| sum.whole), ops);
            }
            None => {
                draft.node(Call::Kernel, columns.to_vec());
                draft.node(Call::Kernel, rows.to_vec());
            }
        }
        both.into_iter().for_each(|sum| sum.finish(draft));
    }
}

/// What backward is given of queries or keys where its heads have a norm: the product and the numbers that scale it.
type Scaled = Option<[usize; 2]>;

/// The gradient of queries or keys before the products: rotated back, and through the norm of its heads.
struct Turned {
    gradient: usize,
    /// The operation that rotates, and those of the norm's rows.
    ops: [Vec<Op>; 2],
    /// What sums for the norm's weight.
    columns: Option<(Sum, Op)>,
}

fn turned(
    draft: &mut Draft,
    sizes: &Sizes,
    (of, norm): (Projected, usize),
    given: usize,
    scaled: Scaled,
) -> Turned {
    let rows = (sizes.tokens.saturating_mul(of.features), sizes.dtype);
    let rotated = draft.own(rows);
    let turn = vec![op(rotated, &[given, SIN, COS], &[])];
    let Some([product, scale]) = scaled else {
        return Turned { gradient: rotated, ops: [turn, Vec::new()], columns: None };
    };
    let sum = Sum::new(draft, of.sums, (of.features / of.heads.max(1), sizes.dtype));
    let mean = draft.made((sizes.tokens.saturating_mul(of.heads), Dtype::F32), Origin::Removed, false);
    let gradient = draft.own(rows);
    let through = vec![
        op(mean, &[rotated, norm, product], &[]),
        op(gradient, &[rotated, norm, scale, mean, product], &[rotated, product]),
    ];
    let columns = op(sum.partial, &[rotated, product, scale], &[]);
    Turned { gradient, ops: [turn, through], columns: Some((sum, columns)) }
}

/// The nodes that rotate gradients of queries and keys, one for both where their heads are as many.
fn turn_back(draft: &mut Draft, together: bool, of: [&Turned; 2]) {
    let mixes =
        |turned: &Turned| turned.columns.as_ref().is_some_and(|(sum, _)| sum.sums.mix_order().is_some());
    // the rotation, with the norm's rows where these are not reduced together with its columns
    let first = |turned: &Turned| -> Vec<Vec<Op>> {
        turned.ops.iter().take(if mixes(turned) { 1 } else { 2 }).cloned().collect()
    };
    if together {
        let [keys, queries] = of.map(first);
        let rotations = keys[..1].iter().chain(&queries[..1]);
        let all = rotations.chain(&keys[1..]).chain(&queries[1..]).flatten().cloned().collect();
        draft.node(Call::Kernel, all);
    } else {
        of.into_iter().for_each(|turned| draft.node(Call::Kernel, first(turned).concat()));
    }
    for turned in of {
        let Some((sum, columns)) = &turned.columns else { continue };
        match sum.sums.mix_order() {
            Some(rows) => {
                let ops = turned.ops[1].iter().chain([columns]).cloned().collect();
                draft.mix_orders(rows, &[sum.whole], ops);
            }
            None => draft.node(Call::Kernel, vec![columns.clone()]),
        }
        sum.finish(draft);
    }
}

/// The gradient of a bias of queries, keys or values: a sum over tokens of what their weight's product is given.
fn bias_sum(draft: &mut Draft, sizes: &Sizes, of: Projected, gradient: usize) -> Option<usize> {
    (sizes.beside == Beside::Biases).then(|| {
        let sum = Sum::new(draft, of.sums, (of.features, sizes.dtype));
        draft.simple(Call::Kernel, sum.partial, &[gradient]);
        sum.finish(draft);
        sum.whole
    })
}

/// The gradients that a linear layer of queries, keys or values gives: its weight's, its input's and its bias's.
#[derive(Clone, Copy)]
struct Given {
    weight: usize,
    input: usize,
    bias: Option<usize>,
}

fn linear_backward(
    draft: &mut Draft,
    sizes: &Sizes,
    (of, weight): (Projected, usize),
    (gradient, normed): (usize, usize),
) -> Given {
    let Sizes { tokens, hidden, dtype, .. } = *sizes;
    let of_weight = |draft: &mut Draft| {
        let size = (hidden.saturating_mul(of.features), dtype);
        draft.product(tokens, size, true, &[gradient, normed])
    };
    let of_input = |draft: &mut Draft| {
        let size = (tokens.saturating_mul(hidden), dtype);
        draft.product(of.features, size, false, &[gradient, weight])
    };
    // the derivative of addmm gives its input's first
    if sizes.beside == Beside::Biases {
        let input = of_input(draft);
        let weight = of_weight(draft);
        Given { weight, input, bias: bias_sum(draft, sizes, of, gradient) }
    } else {
        let weight = of_weight(draft);
        Given { weight, input: of_input(draft), bias: None }
    }
}

/// What backward is given of what forward saved.
struct Saved {
    first_scale: usize,
    first: usize,
    of_queries: Scaled,
    of_keys: Scaled,
    values: usize,
    queries: usize,
    keys: usize,
    attended: usize,
    log_sums: usize,
    seeds: [usize; 2],
    output: usize,
    second_scale: usize,
    second: usize,
    gate: usize,
    up: usize,
    activated: usize,
}

impl Saved {
    /// All of it, in forward's order.
    fn new(draft: &mut Draft, sizes: &Sizes) -> Saved {
        let rows = |of: u64| (sizes.tokens.saturating_mul(of), sizes.dtype);
        let number = (sizes.tokens, Dtype::F32);
        let norms = sizes.beside == Beside::HeadNorms;
        // operations of a kind are numbered in the graph that torch.compile traced: a bias makes addmm of a product
        let products = if sizes.beside == Beside::Biases { 0 } else { 3 };
        let product = |index: usize| match products + index {
            0 => "mm".to_owned(),
            number => format!("mm_{number}"),
        };
        let [added, scale] = if norms { [3, 3] } else { [1, 1] };
        let first_scale = draft.saved("rsqrt", number);
        let first = draft.saved("view", rows(sizes.hidden));
        let mut scaled = |of: Projected, product: &str, scale: &str| {
            let number = (sizes.tokens.saturating_mul(of.heads), Dtype::F32);
            norms.then(|| [draft.saved(product, rows(of.features)), draft.saved(scale, number)])
        };
        let of_queries = scaled(sizes.queries, "mm", "rsqrt_1");
        let of_keys = scaled(sizes.keys, "mm_1", "rsqrt_2");
        Saved {
            first_scale,
            first,
            of_queries,
            of_keys,
            values: draft.saved("permute_5", rows(sizes.keys.features)),
            queries: draft.saved(&format!("add_{added}"), rows(sizes.queries.features)),
            keys: draft.saved(&format!("add_{}", added + 1), rows(sizes.keys.features)),
            attended: draft.saved("getitem", rows(sizes.queries.features)),
            log_sums: draft.saved("getitem_1", (sizes.log_sums, Dtype::F32)),
            seeds: [
                draft.saved("getitem_6", (sizes.seeds[0], Dtype::I64)),
                draft.saved("getitem_7", (sizes.seeds[1], Dtype::I64)),
            ],
            output: draft.saved(&product(0), rows(sizes.hidden)),
            second_scale: draft.saved(&format!("rsqrt_{scale}"), number),
            second: draft.saved("view_12", rows(sizes.hidden)),
            gate: draft.saved(&product(1), rows(sizes.width)),
            up: draft.saved(&product(2), rows(sizes.width)),
            activated: draft.saved("view_16", rows(sizes.width)),
        }
    }
}

/// The graph of the layer's backward.
pub(super) fn backward(sizes: &Sizes) -> Backward {
    let Sizes { tokens, hidden, queries, keys, width, dtype, sums, .. } = *sizes;
    let mut draft = Draft::new(&given(sizes.beside), |_| false);
    let rows = |of: u64| (tokens.saturating_mul(of), dtype);
    let number = (tokens, Dtype::F32);
    let saved = Saved::new(&mut draft, sizes);
    let gradient = draft.buffer("tangents_1", rows(hidden), Origin::Argument, false);
    let weight = (hidden.saturating_mul(width), dtype);
    let of_down = draft.product(tokens, weight, true, &[gradient, saved.activated]);
    let activated = draft.product(hidden, rows(width), false, &[gradient, DOWN]);
    let up = draft.own(rows(width));
    let of_up = draft.product(tokens, weight, true, &[up, saved.second]);
    let from_up = draft.product(width, rows(hidden), false, &[up, UP]);
    let gate = draft.own(rows(width));
    let of_gate = draft.product(tokens, weight, true, &[gate, saved.second]);
    let from_gate = draft.product(width, rows(hidden), false, &[gate, GATE]);
    let Saved { output, second_scale, .. } = saved;
    draft.node(
        Call::Kernel,
        vec![
            op(up, &[activated, saved.gate], &[activated, saved.gate]),
            op(gate, &[activated, saved.up, saved.gate], &[activated, saved.up, saved.gate]),
        ],
    );
    let second_sum = Sum::new(&mut draft, sums, (hidden, dtype));
    let mean = draft.made(number, Origin::Removed, false);
    let between = draft.own(rows(hidden));
    draft.node(
        Call::Kernel,
        vec![
            op(mean, &[from_up, from_gate, SECOND_NORM, HIDDEN, output], &[]),
            op(
                between,
                &[gradient, from_up, from_gate, SECOND_NORM, second_scale, mean, HIDDEN, output],
                &[from_up, from_gate, output],
            ),
        ],
    );
    let square = (hidden.saturating_mul(queries.features), dtype);
    let of_output = draft.product(tokens, square, true, &[between, saved.attended]);
    let attended = draft.product(hidden, rows(queries.features), false, &[between, OUTPUT]);
    let [seed, offset] = saved.seeds;
    let [query, key, value] = attention_backward(
        &mut draft,
        sizes,
        &[attended, saved.queries, saved.keys, saved.values, saved.attended, saved.log_sums, seed, offset],
        [true; 3],
    );
    let first = saved.first;
    let values = linear_backward(&mut draft, sizes, (keys, VALUE), (value, first));
    let key = turned(&mut draft, sizes, (keys, KEY_NORM), key, saved.of_keys);
    let of_keys = linear_backward(&mut draft, sizes, (keys, KEY), (key.gradient, first));
    let query = turned(&mut draft, sizes, (queries, QUERY_NORM), query, saved.of_queries);
    let of_queries = linear_backward(&mut draft, sizes, (queries, QUERY), (query.gradient, first));
    turn_back(&mut draft, queries.heads == keys.heads, [&key, &query]);
    let first_sum = Sum::new(&mut draft, sums, (hidden, dtype));
    let mean = draft.made(number, Origin::Removed, false);
    let sum = draft.returned(rows(hidden));
    let inputs = [values.input, of_keys.input, of_queries.input];
    let [a, b, c] = inputs;
    let scale = saved.first_scale;
    let columns = [
        op(second_sum.partial, &[from_up, from_gate, HIDDEN, output, second_scale], &[]),
        op(first_sum.partial, &[a, b, c, HIDDEN, scale], &[]),
    ];
    let sums_of_rows = [
        op(mean, &[a, b, c, FIRST_NORM, HIDDEN], &[]),
        op(sum, &[between, a, b, c, FIRST_NORM, scale, mean, HIDDEN], &[between, a, b, c]),
    ];
    Sum::finish_both(&mut draft, [second_sum, first_sum], sums_of_rows, columns);
    let mut gradients = [None; ARGUMENTS];
    for (argument, gradient) in [
        (HIDDEN, sum),
        (FIRST_NORM, first_sum.whole),
        (QUERY, of_queries.weight),
        (KEY, of_keys.weight),
        (VALUE, values.weight),
        (OUTPUT, of_output),
        (SECOND_NORM, second_sum.whole),
        (GATE, of_gate),
        (UP, of_up),
        (DOWN, of_down),
    ] {
        gradients[argument] = Some(gradient);
    }
    for (linear, given) in [(QUERY, of_queries), (KEY, of_keys), (VALUE, values)] {
        gradients[bias(linear)] = given.bias;
    }
    for (norm, turned) in [(QUERY_NORM, &query), (KEY_NORM, &key)] {
        gradients[norm] = turned.columns.as_ref().map(|(sum, _)| sum.whole);
    }
    backward_of(draft, gradient, gradients)
}
