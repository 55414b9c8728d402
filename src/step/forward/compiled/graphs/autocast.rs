//! A layer of llama's code with float32 weights under autocast, all of which are trained.
//!
//! Each weight is cast by a kernel of its own, and the cast is kept for backward, which casts each weight's gradient back. What enters and
//! leaves the layer is float32.

use super::super::draft::{
    ARGUMENTS, Beside, COS, DOWN, Draft, FIRST_NORM, GATE, HIDDEN, KEY, LINEARS, OUTPUT, QUERY, SECOND_NORM,
    SIN, Sizes, UP, VALUE, op,
};
use super::full::{Sum, given};
use super::{Backward, Forward, attention, attention_backward, backward_of, forward_of, norm};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Origin};

/// Elements of a linear layer's weight.
fn weight(sizes: &Sizes, linear: usize) -> u64 {
    let other = match linear {
        QUERY | OUTPUT => sizes.queries.features,
        KEY | VALUE => sizes.keys.features,
        _ => sizes.width,
    };
    sizes.hidden.saturating_mul(other)
}

/// A weight's cast, which backward needs too.
fn cast(draft: &mut Draft, sizes: &Sizes, linear: usize) -> usize {
    let cast = draft.returned((weight(sizes, linear), sizes.dtype));
    draft.simple(Call::Kernel, cast, &[linear]);
    cast
}

/// The graph of the layer's forward.
pub(super) fn forward(sizes: &Sizes) -> Forward {
    let Sizes { tokens, hidden, queries, keys, width, dtype, .. } = *sizes;
    // of weights backward needs the casts
    let mut draft = Draft::new(&given(Beside::Nothing), |argument| !LINEARS.contains(&argument));
    let rows = |of: u64| (tokens.saturating_mul(of), dtype);
    let number = (tokens, Dtype::F32);
    let mean = draft.made(number, Origin::Removed, false);
    let first_scale = draft.returned(number);
    let of_queries = cast(&mut draft, sizes, QUERY);
    let first = draft.returned(rows(hidden));
    norm(&mut draft, FIRST_NORM, &[HIDDEN], [mean, first_scale, first]);
    let query = draft.product(hidden, rows(queries.features), false, &[first, of_queries]);
    let of_keys = cast(&mut draft, sizes, KEY);
    let key = draft.product(hidden, rows(keys.features), false, &[first, of_keys]);
    let of_values = cast(&mut draft, sizes, VALUE);
    let values = draft.product(hidden, rows(keys.features), true, &[first, of_values]);
    // queries are cast for the kernel after keys
    let [turned_key, turned_query] = [keys, queries].map(|of| draft.returned(rows(of.features)));
    let turned = [op(turned_key, &[key, COS, SIN], &[]), op(turned_query, &[query, COS, SIN], &[])];
    if queries.heads == keys.heads {
        draft.node(Call::Kernel, turned.to_vec());
    } else {
        turned.into_iter().for_each(|op| draft.node(Call::Kernel, vec![op]));
    }
    let [attended, ..] = attention(&mut draft, sizes, [turned_query, turned_key, values]);
    let of_output = cast(&mut draft, sizes, OUTPUT);
    let output = draft.product(queries.features, rows(hidden), true, &[attended, of_output]);
    let mean = draft.made(number, Origin::Removed, false);
    let second_scale = draft.returned(number);
    let of_gate = cast(&mut draft, sizes, GATE);
    let second = draft.returned(rows(hidden));
    norm(&mut draft, SECOND_NORM, &[HIDDEN, output], [mean, second_scale, second]);
    for scale in [first_scale, second_scale] {
        draft.graph.buffers[scale].storage_size = sizes.numbers;
    }
    let gate = draft.product(hidden, rows(width), true, &[second, of_gate]);
    let of_up = cast(&mut draft, sizes, UP);
    let up = draft.product(hidden, rows(width), true, &[second, of_up]);
    let of_down = cast(&mut draft, sizes, DOWN);
    let activated = draft.returned(rows(width));
    draft.node(Call::Kernel, vec![op(activated, &[gate, up], &[gate, up])]);
    let down = draft.product(width, rows(hidden), false, &[activated, of_down]);
    let sum = draft.returned((tokens.saturating_mul(hidden), Dtype::F32));
    draft.node(Call::Kernel, vec![op(sum, &[HIDDEN, output, down], &[output, down])]);
    forward_of(draft, sum)
}

/// A linear layer's two products: its weight's gradient, which is cast, and its input's.
fn linear_backward(
    draft: &mut Draft,
    sizes: &Sizes,
    (linear, cast): (usize, usize),
    (gradient, input): (usize, usize),
) -> (usize, usize) {
    let Sizes { tokens, hidden, queries, keys, width, dtype, .. } = *sizes;
    let (from, to) = match linear {
        QUERY => (hidden, queries.features),
        KEY | VALUE => (hidden, keys.features),
        OUTPUT => (queries.features, hidden),
        DOWN => (width, hidden),
        _ => (hidden, width),
    };
    let numel = weight(sizes, linear);
    let of_weight = draft.product(tokens, (numel, dtype), false, &[gradient, input]);
    let of_input = draft.product(to, (tokens.saturating_mul(from), dtype), false, &[gradient, cast]);
    let back = draft.returned((numel, Dtype::F32));
    draft.simple(Call::Kernel, back, &[of_weight]);
    (back, of_input)
}

/// The graph of the layer's backward.
pub(super) fn backward(sizes: &Sizes) -> Backward {
    let Sizes { tokens, hidden, queries, keys, width, dtype, sums, .. } = *sizes;
    let mut draft = Draft::new(&given(Beside::Nothing), |_| false);
    let rows = |of: u64| (tokens.saturating_mul(of), dtype);
    let number = (tokens, Dtype::F32);
    let wide = (tokens.saturating_mul(hidden), Dtype::F32);
    let first_scale = draft.saved("rsqrt", number);
    let of_queries = draft.saved("permute_41", (weight(sizes, QUERY), dtype));
    let first = draft.saved("view", rows(hidden));
    let of_keys = draft.saved("permute_36", (weight(sizes, KEY), dtype));
    let of_values = draft.saved("permute_31", (weight(sizes, VALUE), dtype));
    let values = draft.saved("permute_5", rows(keys.features));
    let saved_keys = draft.saved("convert_element_type_12", rows(keys.features));
    let saved_queries = draft.saved("convert_element_type_13", rows(queries.features));
    let attended = draft.saved("getitem", rows(queries.features));
    let log_sums = draft.saved("getitem_1", (sizes.log_sums, Dtype::F32));
    let seed = draft.saved("getitem_6", (sizes.seeds[0], Dtype::I64));
    let offset = draft.saved("getitem_7", (sizes.seeds[1], Dtype::I64));
    let of_output = draft.saved("permute_25", (weight(sizes, OUTPUT), dtype));
    let output = draft.saved("mm_3", rows(hidden));
    let second_scale = draft.saved("rsqrt_1", number);
    let of_gate = draft.saved("permute_21", (weight(sizes, GATE), dtype));
    let second = draft.saved("view_12", rows(hidden));
    let gate = draft.saved("mm_4", rows(width));
    let of_up = draft.saved("permute_17", (weight(sizes, UP), dtype));
    let up = draft.saved("mm_5", rows(width));
    let of_down = draft.saved("permute_13", (weight(sizes, DOWN), dtype));
    let activated = draft.saved("view_16", rows(width));
    let gradient = draft.buffer("tangents_1", wide, Origin::Argument, false);

    let narrow = draft.own(rows(hidden));
    draft.simple(Call::Kernel, narrow, &[gradient]);
    let (of_down, from_down) = linear_backward(&mut draft, sizes, (DOWN, of_down), (narrow, activated));
    let to_up = draft.own(rows(width));
    let (of_up, from_up) = linear_backward(&mut draft, sizes, (UP, of_up), (to_up, second));
    let to_gate = draft.own(rows(width));
    let (of_gate, from_gate) = linear_backward(&mut draft, sizes, (GATE, of_gate), (to_gate, second));
    draft.node(
        Call::Kernel,
        vec![
            op(to_up, &[from_down, gate], &[from_down, gate]),
            op(to_gate, &[from_down, up, gate], &[from_down, up, gate]),
        ],
    );
    let second_sum = Sum::new(&mut draft, sums, (hidden, Dtype::F32));
    let mean = draft.made(number, Origin::Removed, false);
    let between = draft.own(wide);
    let narrow = draft.own(rows(hidden));
    draft.node(
        Call::Kernel,
        vec![
            op(mean, &[from_up, from_gate, SECOND_NORM, HIDDEN, output], &[]),
            op(
                between,
                &[gradient, from_up, from_gate, SECOND_NORM, second_scale, mean, HIDDEN, output],
                &[from_up, from_gate, output],
            ),
            op(narrow, &[between], &[between]),
        ],
    );
    let (of_output, from_output) =
        linear_backward(&mut draft, sizes, (OUTPUT, of_output), (narrow, attended));
    let given = [from_output, saved_queries, saved_keys, values, attended, log_sums, seed, offset];
    let [query, key, value] = attention_backward(&mut draft, sizes, &given, [true; 3]);
    let (of_values, a) = linear_backward(&mut draft, sizes, (VALUE, of_values), (value, first));
    let to_keys = draft.own(rows(keys.features));
    let (of_keys, b) = linear_backward(&mut draft, sizes, (KEY, of_keys), (to_keys, first));
    let to_queries = draft.own(rows(queries.features));
    let (of_queries, c) = linear_backward(&mut draft, sizes, (QUERY, of_queries), (to_queries, first));
    let turned = [op(to_keys, &[key, SIN, COS], &[]), op(to_queries, &[query, SIN, COS], &[])];
    if queries.heads == keys.heads {
        draft.node(Call::Kernel, turned.to_vec());
    } else {
        turned.into_iter().for_each(|op| draft.node(Call::Kernel, vec![op]));
    }
    let first_sum = Sum::new(&mut draft, sums, (hidden, Dtype::F32));
    let mean = draft.made(number, Origin::Removed, false);
    let sum = draft.returned(wide);
    let columns = [
        op(second_sum.partial, &[from_up, from_gate, HIDDEN, output, second_scale], &[]),
        op(first_sum.partial, &[a, b, c, HIDDEN, first_scale], &[]),
    ];
    let sums_of_rows = [
        op(mean, &[a, b, c, FIRST_NORM, HIDDEN], &[]),
        op(sum, &[between, a, b, c, FIRST_NORM, first_scale, mean, HIDDEN], &[between, a, b, c]),
    ];
    Sum::finish_both(&mut draft, [second_sum, first_sum], sums_of_rows, columns);
    let mut gradients = [None; ARGUMENTS];
    for (argument, gradient) in [
        (HIDDEN, sum),
        (FIRST_NORM, first_sum.whole),
        (QUERY, of_queries),
        (KEY, of_keys),
        (VALUE, of_values),
        (OUTPUT, of_output),
        (SECOND_NORM, second_sum.whole),
        (GATE, of_gate),
        (UP, of_up),
        (DOWN, of_down),
    ] {
        gradients[argument] = Some(gradient);
    }
    backward_of(draft, gradient, gradients)
}
