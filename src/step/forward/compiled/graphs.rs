//! The graphs of a compiled layer of llama's code: what torch.compile traces, differentiates, divides and fuses of it.
//!
//! Both were read off the scheduler of PyTorch 2.11 for many shapes, with transformers 5.17. They are the same for all, but that
//! heads of queries and of keys that are of a size are rotated by one kernel, and that a norm's weight gradient is summed in one of
//! three ways ([`Sums`](super::draft::Sums)).

use super::draft::{
    ARGUMENTS, COS, DOWN, Draft, FIRST_NORM, GATE, HIDDEN, KEY, OUTPUT, QUERY, SECOND_NORM, SIN, Sizes, UP,
    VALUE, op,
};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Graph, Origin};

/// What forward saves for backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub first_scale: usize,
    pub first_normed: usize,
    pub values: usize,
    pub queries: usize,
    pub keys: usize,
    pub attended: usize,
    pub log_sums: usize,
    pub seeds: [usize; 2],
    pub projected: usize,
    pub second_scale: usize,
    pub second_normed: usize,
    pub gate: usize,
    pub up: usize,
    pub product: usize,
}

impl Kept {
    /// All of them.
    pub fn all(&self) -> [usize; 15] {
        [
            self.first_scale,
            self.first_normed,
            self.values,
            self.queries,
            self.keys,
            self.attended,
            self.log_sums,
            self.seeds[0],
            self.seeds[1],
            self.projected,
            self.second_scale,
            self.second_normed,
            self.gate,
            self.up,
            self.product,
        ]
    }
}

/// The forward graph.
pub(super) struct Forward {
    pub graph: Graph,
    pub kept: Kept,
    pub output: usize,
}

/// The graph of `LlamaDecoderLayer.forward`.
pub(super) fn forward(sizes: &Sizes) -> Forward {
    let Sizes { tokens, hidden, queries, keys, width, log_sums, seeds, dtype, .. } = *sizes;
    let mut draft = Draft::new(sizes, true);
    let rows = |of: u64| (tokens.saturating_mul(of), dtype);
    let number = (tokens, Dtype::F32);
    let [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b14, b15, b16, b17, b18, b19, b20, b21, b22] =
        [
            (number, Origin::Removed, false),
            (number, Origin::Made, true),
            (rows(hidden), Origin::Made, true),
            (rows(queries), Origin::Made, false),
            (rows(keys), Origin::Made, false),
            (rows(keys), Origin::Made, true),
            (rows(queries), Origin::Made, true),
            (rows(keys), Origin::Made, true),
            ((0, dtype), Origin::Bundle, false),
            (rows(queries), Origin::Part, true),
            ((log_sums, Dtype::F32), Origin::Part, true),
            ((seeds[0], Dtype::I64), Origin::Part, true),
            ((seeds[1], Dtype::I64), Origin::Part, true),
            (rows(hidden), Origin::Made, true),
            (number, Origin::Removed, false),
            (number, Origin::Made, true),
            (rows(hidden), Origin::Made, true),
            (rows(width), Origin::Made, true),
            (rows(width), Origin::Made, true),
            (rows(width), Origin::Made, true),
            (rows(hidden), Origin::Made, false),
            (rows(hidden), Origin::Made, true),
        ]
        .map(|(size, origin, returned)| {
            // the view of attention's result has a number and is none of the graph's buffers
            if draft.next == 13 {
                draft.next = 14;
            }
            draft.made(size, origin, returned)
        });
    for scale in [b1, b16] {
        draft.graph.buffers[scale].room = sizes.numbers;
    }
    draft.node(
        Call::Kernel,
        vec![op(b0, &[HIDDEN], &[]), op(b1, &[b0], &[]), op(b2, &[FIRST_NORM, HIDDEN, b1], &[])],
    );
    draft.simple(Call::Product(hidden), b3, &[b2, QUERY]);
    draft.simple(Call::Product(hidden), b4, &[b2, KEY]);
    draft.simple(Call::Product(hidden), b5, &[b2, VALUE]);
    let rotated = [op(b6, &[b3, COS, SIN], &[]), op(b7, &[b4, COS, SIN], &[])];
    if queries == keys {
        draft.node(Call::Kernel, rotated.to_vec());
    } else {
        rotated.into_iter().for_each(|op| draft.node(Call::Kernel, vec![op]));
    }
    draft.simple(Call::Attention, b8, &[b6, b7, b5]);
    for (index, part) in [b9, b10, b11, b12].into_iter().enumerate() {
        draft.simple(Call::Part(index), part, &[b8]);
    }
    draft.simple(Call::Product(queries), b14, &[b9, OUTPUT]);
    draft.node(
        Call::Kernel,
        vec![
            op(b15, &[HIDDEN, b14], &[]),
            op(b16, &[b15], &[]),
            op(b17, &[SECOND_NORM, HIDDEN, b14, b16], &[b14]),
        ],
    );
    draft.simple(Call::Product(hidden), b18, &[b17, GATE]);
    draft.simple(Call::Product(hidden), b19, &[b17, UP]);
    draft.node(Call::Kernel, vec![op(b20, &[b18, b19], &[b18, b19])]);
    draft.simple(Call::Product(width), b21, &[b20, DOWN]);
    draft.node(Call::Kernel, vec![op(b22, &[HIDDEN, b14, b21], &[b14, b21])]);
    let kept = Kept {
        first_scale: b1,
        first_normed: b2,
        values: b5,
        queries: b6,
        keys: b7,
        attended: b9,
        log_sums: b10,
        seeds: [b11, b12],
        projected: b14,
        second_scale: b16,
        second_normed: b17,
        gate: b18,
        up: b19,
        product: b20,
    };
    Forward { graph: draft.graph, kept, output: b22 }
}

/// The backward graph.
pub(super) struct Backward {
    pub graph: Graph,
    /// What it is given of what forward saved.
    pub kept: Kept,
    /// The gradient of the layer's output.
    pub gradient: usize,
    /// By argument of the layer: the gradient, where it has one.
    pub gradients: [Option<usize>; ARGUMENTS],
}

/// The graph of the layer's backward.
pub(super) fn backward(sizes: &Sizes) -> Backward {
    let Sizes { tokens, hidden, queries, keys, width, log_sums, seeds, dtype, sums, .. } = *sizes;
    let mut draft = Draft::new(sizes, false);
    let rows = |of: u64| (tokens.saturating_mul(of), dtype);
    let number = (tokens, Dtype::F32);
    let mut saved = |name: &str, size| draft.buffer(name, size, Origin::Saved, false);
    let kept = Kept {
        first_scale: saved("rsqrt", number),
        first_normed: saved("view", rows(hidden)),
        values: saved("permute_5", rows(keys)),
        queries: saved("add_1", rows(queries)),
        keys: saved("add_2", rows(keys)),
        attended: saved("getitem", rows(queries)),
        log_sums: saved("getitem_1", (log_sums, Dtype::F32)),
        seeds: [saved("getitem_6", (seeds[0], Dtype::I64)), saved("getitem_7", (seeds[1], Dtype::I64))],
        projected: saved("mm_3", rows(hidden)),
        second_scale: saved("rsqrt_1", number),
        second_normed: saved("view_12", rows(hidden)),
        gate: saved("mm_4", rows(width)),
        up: saved("mm_5", rows(width)),
        product: saved("view_16", rows(width)),
    };
    let gradient = draft.buffer("tangents_1", rows(hidden), Origin::Argument, false);
    let split = sums.split();
    let is_mixed = sums.mixed().is_some();
    let partial = |rows: u64| (rows.saturating_mul(hidden), Dtype::F32);
    // the two buffers of a norm's sum: partial and whole, one and the same where it is not split
    let summed = |draft: &mut Draft| match split {
        None => {
            let whole = draft.made((hidden, dtype), Origin::Made, true);
            (whole, whole)
        }
        Some(rows) => {
            let origin = if is_mixed { Origin::Removed } else { Origin::Made };
            (draft.made(partial(rows), origin, false), draft.made((hidden, dtype), Origin::Made, true))
        }
    };
    let weight = |inner: u64, outer: u64| (inner.saturating_mul(outer), dtype);
    let b0 = draft.made(weight(hidden, width), Origin::Made, true);
    let b1 = draft.made(rows(width), Origin::Made, false);
    let b2 = draft.made(rows(width), Origin::Made, false);
    let b3 = draft.made(weight(hidden, width), Origin::Made, true);
    let b4 = draft.made(rows(hidden), Origin::Made, false);
    let b5 = draft.made(rows(width), Origin::Made, false);
    let b6 = draft.made(weight(hidden, width), Origin::Made, true);
    let b7 = draft.made(rows(hidden), Origin::Made, false);
    let (b8, b9) = summed(&mut draft);
    let b10 = draft.made(number, Origin::Removed, false);
    let b11 = draft.made(rows(hidden), Origin::Made, false);
    let b12 = draft.made(weight(hidden, queries), Origin::Made, true);
    let b13 = draft.made(rows(queries), Origin::Made, false);
    let b14 = draft.made((0, dtype), Origin::Bundle, false);
    let b15 = draft.made(rows(queries), Origin::Part, false);
    let b16 = draft.made(rows(keys), Origin::Part, false);
    let b17 = draft.made(rows(keys), Origin::Part, false);
    let b18 = draft.made(weight(hidden, keys), Origin::Made, true);
    let b19 = draft.made(rows(hidden), Origin::Made, false);
    let b20 = draft.made(rows(keys), Origin::Made, false);
    let b21 = draft.made(weight(hidden, keys), Origin::Made, true);
    let b22 = draft.made(rows(hidden), Origin::Made, false);
    let b23 = draft.made(rows(queries), Origin::Made, false);
    let b24 = draft.made(weight(hidden, queries), Origin::Made, true);
    let b25 = draft.made(rows(hidden), Origin::Made, false);
    let (b26, b27) = summed(&mut draft);
    let b28 = draft.made(number, Origin::Removed, false);
    let b29 = draft.made(rows(hidden), Origin::Made, true);
    let Kept { projected, up, gate, .. } = kept;
    draft.simple(Call::Product(tokens), b0, &[gradient, kept.product]);
    draft.simple(Call::Product(hidden), b1, &[gradient, DOWN]);
    draft
        .node(Call::Kernel, vec![op(b2, &[b1, gate], &[b1, gate]), op(b5, &[b1, up, gate], &[b1, up, gate])]);
    draft.simple(Call::Product(tokens), b3, &[b2, kept.second_normed]);
    draft.simple(Call::Product(width), b4, &[b2, UP]);
    draft.simple(Call::Product(tokens), b6, &[b5, kept.second_normed]);
    draft.simple(Call::Product(width), b7, &[b5, GATE]);
    draft.node(
        Call::Kernel,
        vec![
            op(b10, &[b4, b7, SECOND_NORM, HIDDEN, projected], &[]),
            op(
                b11,
                &[gradient, b4, b7, SECOND_NORM, kept.second_scale, b10, HIDDEN, projected],
                &[b4, b7, projected],
            ),
        ],
    );
    draft.simple(Call::Product(hidden), b13, &[b11, OUTPUT]);
    let [seed, offset] = kept.seeds;
    draft.simple(
        Call::Attention,
        b14,
        &[b13, kept.queries, kept.keys, kept.values, kept.attended, kept.log_sums, seed, offset],
    );
    draft.simple(Call::Part(2), b17, &[b14]);
    draft.simple(Call::Product(keys), b19, &[b17, VALUE]);
    let turned = [op(b20, &[b16, SIN, COS], &[]), op(b23, &[b15, SIN, COS], &[])];
    if queries == keys {
        draft.simple(Call::Part(0), b15, &[b14]);
        draft.simple(Call::Part(1), b16, &[b14]);
        draft.node(Call::Kernel, turned.to_vec());
        draft.simple(Call::Product(keys), b22, &[b20, KEY]);
    } else {
        let [of_keys, of_queries] = turned;
        draft.simple(Call::Part(1), b16, &[b14]);
        draft.node(Call::Kernel, vec![of_keys]);
        draft.simple(Call::Product(keys), b22, &[b20, KEY]);
        draft.simple(Call::Part(0), b15, &[b14]);
        draft.node(Call::Kernel, vec![of_queries]);
    }
    draft.simple(Call::Product(queries), b25, &[b23, QUERY]);
    let columns = [
        op(b8, &[b4, b7, HIDDEN, projected, kept.second_scale], &[]),
        op(b26, &[b19, b22, b25, HIDDEN, kept.first_scale], &[]),
    ];
    let sums_of_rows = [
        op(b28, &[b19, b22, b25, FIRST_NORM, HIDDEN], &[]),
        op(b29, &[b11, b19, b22, b25, FIRST_NORM, kept.first_scale, b28, HIDDEN], &[b11, b19, b22, b25]),
    ];
    if is_mixed {
        draft.node(Call::Mixed([b9, b27]), sums_of_rows.iter().chain(&columns).cloned().collect());
    } else {
        draft.node(Call::Kernel, columns.to_vec());
    }
    let whole = if is_mixed { Call::Nothing } else { Call::Kernel };
    if split.is_some() {
        draft.simple(whole, b9, &[b8]);
    }
    draft.simple(Call::Product(tokens), b12, &[b11, kept.attended]);
    draft.simple(Call::Product(tokens), b18, &[b17, kept.first_normed]);
    draft.simple(Call::Product(tokens), b21, &[b20, kept.first_normed]);
    draft.simple(Call::Product(tokens), b24, &[b23, kept.first_normed]);
    if split.is_some() {
        draft.simple(whole, b27, &[b26]);
    }
    if !is_mixed {
        draft.node(Call::Kernel, sums_of_rows.to_vec());
    }
    let mut gradients = [None; ARGUMENTS];
    for (argument, gradient) in [
        (HIDDEN, b29),
        (FIRST_NORM, b27),
        (QUERY, b24),
        (KEY, b21),
        (VALUE, b18),
        (OUTPUT, b12),
        (SECOND_NORM, b9),
        (GATE, b6),
        (UP, b3),
        (DOWN, b0),
    ] {
        gradients[argument] = Some(gradient);
    }
    Backward { graph: draft.graph, kept, gradient, gradients }
}

#[cfg(test)]
mod tests {
    use super::super::rules::{padded, sums};
    use super::*;
    use crate::hardware::Gpu;
    use crate::step::device::Device;
    use crate::step::inductor::Line;
    use crate::units::Bytes;

    /// What PyTorch 2.11 generated on compute capability 8.0 for layers of eight shapes: `layer`, the hidden size, the width of the
    /// feed-forward network, heads of queries, heads of keys, their size, sequences, and tokens of each; then the lines of both graphs that
    /// allocate, write over and free.
    const GENERATED: &str = include_str!("../../../../tests/fixtures/compiled/generated.txt");

    fn written(graph: &Graph) -> Vec<String> {
        let name = |buffer: usize| graph.buffers[buffer].name.as_str();
        let lines = graph.lines().into_iter().filter_map(|line| match line {
            Line::Make(made) => Some(format!("make {} {}", name(made), graph.buffers[made].room)),
            Line::Take { made, from } => Some(format!("take {} {}", name(made), name(from))),
            Line::Free(gone) => Some(format!("free {}", name(gone))),
            Line::Run(_) => None,
        });
        lines.collect()
    }

    #[test]
    fn the_code_is_what_inductor_generates() {
        let device = Device::of(&Gpu::custom(Bytes::gib(80.0)));
        let layers: Vec<&str> = GENERATED.split("layer ").filter(|layer| !layer.is_empty()).collect();
        assert_eq!(layers.len(), 8);
        for layer in layers {
            let (shape, code) = layer.split_once('\n').expect("a shape and its code");
            let numbers: Vec<u64> =
                shape.split(' ').map(|number| number.parse().expect("a number")).collect();
            let [hidden, width, heads, kv_heads, head, sequences, length] = numbers[..] else {
                panic!("{shape}: seven numbers")
            };
            let tokens = sequences * length;
            let sizes = Sizes {
                tokens,
                hidden,
                queries: heads * head,
                keys: kv_heads * head,
                width,
                numbers: padded(sequences, length),
                log_sums: tokens * heads,
                seeds: [2, 1],
                dtype: Dtype::Bf16,
                sums: sums(device, tokens, hidden),
            };
            let (first, second) = code.split_once("backward\n").expect("both graphs");
            for (generated, graph) in [
                (first.trim_start_matches("forward\n"), forward(&sizes).graph),
                (second, backward(&sizes).graph),
            ] {
                let generated: Vec<&str> = generated.lines().collect();
                let own = written(&graph);
                assert_eq!(own[..generated.len()], generated, "{shape}");
                // what would be freed last is left to the end of the function
                assert!(
                    own[generated.len()..].iter().all(|line| line.starts_with("free")),
                    "{shape}: {own:?}"
                );
            }
        }
    }
}
