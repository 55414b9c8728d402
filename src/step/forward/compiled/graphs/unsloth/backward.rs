//! Backward.

use super::super::super::draft::{
    ARGUMENTS, Beside, DOWN, GATE, HIDDEN, KEY, OUTPUT, QUERY, Sizes, UP, VALUE, lora_a, lora_b, op,
};
use super::super::{Backward, attention_backward, backward_of};
use super::{Layer, Own};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Origin};

/// What forward saved.
struct Saved {
    first_normed: usize,
    first_root: usize,
    values: usize,
    /// Where heads are normed: queries and keys before it, a number of each head's row of both, and where positions would be.
    normed: Option<[usize; 5]>,
    queries: usize,
    keys: usize,
    attended: usize,
    sums: usize,
    seeds: [usize; 2],
    sum: usize,
    second_normed: usize,
    second_root: usize,
    gate: usize,
    up: usize,
    /// The layer's input, which the caller has as well.
    hidden: usize,
    rotary: [usize; 2],
}

/// The gradients of an adapter's two matrices, in the type of the products.
type Factors = [usize; 2];

/// The graph of backward.
pub(in super::super::super) fn backward(sizes: &Sizes, own: Own) -> Backward {
    let mut layer = Layer::new(sizes, own);
    let mut gradients = [None; ARGUMENTS];
    let gradient = layer.draft.argument("tangents_1");
    let saved = layer.saved();
    let (of_normed, of_mlp) = layer.mlp(gradient, &saved);
    for (linear, factors) in [GATE, UP, DOWN].into_iter().zip(of_mlp) {
        layer.give(&mut gradients, linear, factors);
    }
    let of_sum = {
        let back = layer.norm_back([of_normed, saved.sum, saved.second_root]);
        let made = layer.draft.own(layer.rows(sizes.hidden));
        layer.draft.node(Call::Kernel, vec![op(made, &[gradient, back], &[back])]);
        layer.of_tokens(made)
    };
    let (of_attended, of_output) = layer.output(of_sum, saved.attended);
    layer.give(&mut gradients, OUTPUT, of_output);
    let given = [
        of_attended,
        saved.queries,
        saved.keys,
        saved.values,
        saved.attended,
        saved.sums,
        saved.seeds[0],
        saved.seeds[1],
    ];
    let [queries, keys, values] = attention_backward(&mut layer.draft, sizes, &given, [true; 3]);
    for part in [queries, keys, values] {
        layer.of_tokens(part);
    }
    let [queries, keys] = match saved.normed {
        Some(normed) => layer.turned_and_normed_back([queries, keys], normed, &saved),
        None => {
            let keys = layer.turned_back(keys, sizes.keys.features, &saved);
            [layer.turned_back(queries, sizes.queries.features, &saved), keys]
        }
    };
    let (of_normed, of_attention) = layer.projections([queries, keys, values], saved.first_normed);
    for (linear, factors) in [QUERY, KEY, VALUE].into_iter().zip(of_attention) {
        layer.give(&mut gradients, linear, factors);
    }
    let back = layer.norm_back([of_normed, saved.hidden, saved.first_root]);
    let made = layer.draft.returned(layer.rows(sizes.hidden));
    layer.draft.node(Call::Kernel, vec![op(made, &[of_sum, back], &[of_sum, back])]);
    layer.of_tokens(made);
    gradients[HIDDEN] = Some(made);
    backward_of(layer.draft, gradient, gradients)
}

impl Layer<'_> {
    /// What forward saved, in forward's order; what somebody else has as well behind it.
    fn saved(&mut self) -> Saved {
        let sizes = self.sizes;
        let quantised = self.own.is_quantised;
        // autograd numbers what calls return, and dequantised weights are such
        let number = |with: u32, without: u32| format!("getitem_{}", if quantised { with } else { without });
        let root = (sizes.tokens, Dtype::F32);
        let of = |features: u64| (sizes.tokens.saturating_mul(features), sizes.dtype);
        let first_normed = self.kept_rows("permute_187", of(sizes.hidden));
        let first_root = self.kept_rows("getitem_1", root);
        let are_normed = sizes.beside == Beside::HeadNorms;
        let before = are_normed.then(|| {
            let [queries, keys] = [("view_25", sizes.queries), ("view_28", sizes.keys)];
            [queries, keys].map(|(name, heads)| self.kept_rows(name, of(heads.features)))
        });
        let values = self.kept_rows("permute_41", of(sizes.keys.features));
        let positions = are_normed.then(|| self.draft.saved("empty_5", (1, Dtype::I32)));
        let queries = self.kept_rows(&number(11, 8), of(sizes.queries.features));
        let keys = self.kept_rows(&number(13, 10), of(sizes.keys.features));
        let normed = before.zip(positions).map(|([of_queries, of_keys], positions)| {
            let roots = [(number(12, 9), sizes.queries), (number(14, 11), sizes.keys)];
            let [first, second] = roots.map(|(name, heads)| {
                let numel = sizes.tokens.saturating_mul(heads.heads);
                self.kept_rows(&name, (numel, Dtype::F32))
            });
            [of_queries, of_keys, first, second, positions]
        });
        let attended = self.kept_rows(&number(15, 12), of(sizes.queries.features));
        let sums = self.kept_rows(&number(16, 13), (sizes.log_sums, Dtype::F32));
        let seeds = [0, 1].map(|at| {
            let name = number([21, 22][at], [18, 19][at]);
            self.kept_rows(&name, (sizes.seeds[at], Dtype::I64))
        });
        let sum = self.kept_rows("view_39", of(sizes.hidden));
        let second_normed = self.kept_rows("permute_86", of(sizes.hidden));
        let second_root = self.kept_rows(&number(28, 24), root);
        let gate = self.kept_rows(&number(31, 26), of(sizes.width));
        let up = self.kept_rows(&number(34, 28), of(sizes.width));
        let shared =
            |layer: &mut Self, name: &str, size| layer.draft.buffer(name, size, Origin::Shared, false);
        let hidden = shared(self, "view", of(sizes.hidden));
        let rotary = ["squeeze", "squeeze_1"].map(|name| shared(self, name, self.own.rotary));
        Saved {
            first_normed,
            first_root,
            values,
            normed,
            queries,
            keys,
            attended,
            sums,
            seeds,
            sum,
            second_normed,
            second_root,
            gate,
            up,
            hidden,
            rotary,
        }
    }

    /// What forward saved, of a size for each token.
    fn kept_rows(&mut self, name: &str, size: (u64, Dtype)) -> usize {
        let made = self.draft.saved(name, size);
        self.of_tokens(made)
    }

    /// Casts the gradients of an adapter's matrices to these' type.
    fn give(&mut self, gradients: &mut [Option<usize>; ARGUMENTS], linear: usize, [a, b]: Factors) {
        for (argument, factor) in [(lora_a(linear), a), (lora_b(linear), b)] {
            let numel = self.draft.graph.buffers[factor].numel;
            let made = self.draft.returned((numel, Dtype::F32));
            self.draft.node(Call::Kernel, vec![op(made, &[factor], &[factor])]);
            gradients[argument] = Some(made);
        }
    }

    /// Elements of an adapter's two matrices.
    fn elements(&self, linear: usize) -> [u64; 2] {
        self.features(linear).map(|features| features.saturating_mul(self.rank))
    }

    /// A product of matrices that have a row for each token: so many numbers.
    fn factor(&mut self, numel: u64, reads: &[usize]) -> usize {
        self.draft.product(self.sizes.tokens, self.numbers(numel), false, reads)
    }

    /// `Fast_RMS_Layernorm.backward`.
    fn norm_back(&mut self, [gradient, of, root]: [usize; 3]) -> usize {
        let made = self.blank_rows(self.sizes.hidden, false);
        let [back] = self.draft.over(Call::Kernel, [made], &[gradient, of, root]);
        back
    }

    fn turned_back(&mut self, of: usize, features: u64, saved: &Saved) -> usize {
        let made = self.blank_rows(features, false);
        let other = self.draft.blank(self.numbers(1), false);
        let [first, second] = saved.rotary;
        let [turned, _] = self.draft.over(Call::Kernel, [made, other], &[of, first, second]);
        turned
    }

    /// The backward of `fast_qk_norm_rope`.
    fn turned_and_normed_back(&mut self, of: [usize; 2], normed: [usize; 5], saved: &Saved) -> [usize; 2] {
        let made = [self.sizes.queries, self.sizes.keys].map(|heads| self.blank_rows(heads.features, false));
        let reads = [&of[..], &normed, &saved.rotary].concat();
        self.draft.over(Call::Kernel, made, &reads)
    }

    /// `LoRA_MLP.backward`: the gradient of its input, and the factors of gate's, up's and down's adapters.
    fn mlp(&mut self, gradient: usize, saved: &Saved) -> (usize, [Factors; 3]) {
        let sizes = self.sizes;
        let (hidden, width, rank) = (sizes.hidden, sizes.width, self.rank);
        let x = saved.second_normed;
        let weight = self.weight(DOWN);
        let inner = self.product(width, hidden, false, &[gradient, weight]);
        let [down_a, down_b] = self.elements(DOWN);
        let a = self.cast(down_a);
        let b = self.cast(down_b);
        let low_down = self.product(rank, hidden, false, &[gradient, b]);
        let inner = self.add(inner, rank, &[low_down, a]);
        // the gradients of up and gate: three new tensors beside the three that they are computed from
        let of_up = self.draft.own(self.rows(width));
        let of_gate = self.draft.own(self.rows(width));
        let [gate_a, gate_b] = self.elements(GATE);
        let blanks =
            [down_a, down_b, gate_a, gate_b, gate_a, gate_b].map(|numel| self.draft.own(self.numbers(numel)));
        let product = self.draft.own(self.rows(width));
        let (gate, up) = (saved.gate, saved.up);
        let ops = vec![
            op(of_up, &[inner, gate], &[inner, gate]),
            op(of_gate, &[inner, up, gate], &[inner, up, gate]),
            op(product, &[gate, up], &[gate, up]),
        ];
        self.draft.node(Call::Kernel, ops);
        for made in [of_up, of_gate, product] {
            self.of_tokens(made);
        }
        for blank in blanks {
            self.draft.simple(Call::Empty, blank, &[]);
        }
        let [for_down_a, for_down_b, for_gate_a, for_gate_b, for_up_a, for_up_b] = blanks;
        let of_down_a = self.factor(down_a, &[for_down_a, product, low_down]);
        let low = self.product(rank, width, false, &[a, product]);
        let of_down_b = self.factor(down_b, &[for_down_b, low, gradient]);
        let b = self.cast(gate_b);
        let low_up = self.product(rank, width, false, &[of_up, b]);
        let b = self.cast(gate_b);
        let low_gate = self.product(rank, width, false, &[of_gate, b]);
        let of_up_a = self.factor(gate_a, &[for_up_a, x, low_up]);
        let up_a = self.cast(gate_a);
        let low = self.product(rank, hidden, false, &[up_a, x]);
        let of_up_b = self.factor(gate_b, &[for_up_b, low, of_up]);
        let of_gate_a = self.factor(gate_a, &[for_gate_a, x, low_gate]);
        let gate_a = self.cast(gate_a);
        let low = self.product(rank, hidden, false, &[gate_a, x]);
        let of_gate_b = self.factor(gate_b, &[for_gate_b, low, of_gate]);
        let weight = self.weight(UP);
        let result = self.product(hidden, width, false, &[of_up, weight]);
        let result = self.add(result, rank, &[low_up, up_a]);
        let weight = self.weight(GATE);
        let result = self.add(result, width, &[of_gate, weight]);
        let result = self.add(result, rank, &[low_gate, gate_a]);
        (result, [[of_gate_a, of_gate_b], [of_up_a, of_up_b], [of_down_a, of_down_b]])
    }

    /// `LoRA_W.backward` of the output projection: the gradient of its input, and its adapter's factors.
    fn output(&mut self, gradient: usize, attended: usize) -> (usize, Factors) {
        let sizes = self.sizes;
        let (hidden, features, rank) = (sizes.hidden, sizes.queries.features, self.rank);
        let [a, b] = self.elements(OUTPUT);
        let for_a = self.draft.blank(self.numbers(a), false);
        let for_b = self.draft.blank(self.numbers(b), false);
        let cast = self.cast(b);
        let low = self.product(rank, hidden, false, &[gradient, cast]);
        let of_a = self.factor(a, &[for_a, attended, low]);
        let cast = self.cast(a);
        let other = self.product(rank, features, false, &[cast, attended]);
        let of_b = self.factor(b, &[for_b, other, gradient]);
        let weight = self.weight(OUTPUT);
        let result = self.product(features, hidden, false, &[gradient, weight]);
        (self.add(result, rank, &[low, cast]), [of_a, of_b])
    }

    /// `LoRA_QKV.backward`.
    fn projections(&mut self, gradients: [usize; 3], x: usize) -> (usize, [Factors; 3]) {
        let (hidden, rank) = (self.sizes.hidden, self.rank);
        let linears = [QUERY, KEY, VALUE];
        let elements = linears.map(|linear| self.elements(linear));
        let blanks =
            elements.map(|matrices| matrices.map(|numel| self.draft.blank(self.numbers(numel), false)));
        let lows = [0, 1, 2].map(|at| {
            let b = self.cast(elements[at][1]);
            let features = self.features(linears[at])[1];
            self.product(rank, features, false, &[gradients[at], b])
        });
        let mut casts = [0; 3];
        let factors = [0, 1, 2].map(|at| {
            let ([a, b], [for_a, for_b]) = (elements[at], blanks[at]);
            let of_a = self.factor(a, &[for_a, x, lows[at]]);
            casts[at] = self.cast(a);
            let low = self.product(rank, hidden, false, &[casts[at], x]);
            [of_a, self.factor(b, &[for_b, low, gradients[at]])]
        });
        let mut result = None;
        for at in 0..3 {
            let features = self.features(linears[at])[1];
            let weight = self.weight(linears[at]);
            let reads = [gradients[at], weight];
            let sum = match result {
                None => self.product(hidden, features, false, &reads),
                Some(sum) => self.add(sum, features, &reads),
            };
            result = Some(self.add(sum, rank, &[lows[at], casts[at]]));
        }
        (result.unwrap_or(x), factors)
    }
}
