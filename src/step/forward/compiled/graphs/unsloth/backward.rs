//! Backward.

use super::super::super::draft::{
    ARGUMENTS, Beside, DOWN, GATE, HIDDEN, KEY, OUTPUT, Projected, QUERY, Sizes, UP, VALUE, lora_a, lora_b,
    op,
};
use super::super::{Backward, attention_backward, backward_of};
use super::{Attends, Layer, Own};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Origin};

/// What forward saved.
struct Saved {
    first_normed: usize,
    first_root: usize,
    /// Where projections have biases: of queries, keys and values what the adapter's first matrix is cast to, what it makes, and what the
    /// second is cast to.
    biased: Option<[[usize; 3]; 3]>,
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
    /// What the output projection is given: what is attended, or a copy of it.
    given_to_output: usize,
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
    let (of_attended, of_output) = layer.output(of_sum, saved.given_to_output);
    layer.give(&mut gradients, OUTPUT, of_output);
    let given = layer.attention(of_attended, &saved);
    let back = if let Some(biased) = saved.biased {
        layer.biased_back(
            &mut gradients,
            given,
            (saved.first_normed, biased),
            [saved.hidden, saved.first_root],
        )
    } else {
        let (of_normed, of_attention) = layer.projections(given, saved.first_normed);
        for (linear, factors) in [QUERY, KEY, VALUE].into_iter().zip(of_attention) {
            layer.give(&mut gradients, linear, factors);
        }
        layer.norm_back([of_normed, saved.hidden, saved.first_root])
    };
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
        let is_biased = sizes.beside == Beside::Biases;
        // autograd numbers what calls return, and dequantised weights are such, where no projections with biases ran between
        let number = |with: u32, without: u32| match (quantised, is_biased) {
            (true, false) => format!("getitem_{with}"),
            (false, false) => format!("getitem_{without}"),
            (true, true) => format!("getitem_{}", with - 6),
            (false, true) => format!("getitem_{}", without - 3),
        };
        let root = (sizes.tokens, Dtype::F32);
        let of = |features: u64| (sizes.tokens.saturating_mul(features), sizes.dtype);
        let first_normed =
            self.kept_rows(if is_biased { "getitem" } else { "permute_187" }, of(sizes.hidden));
        let first_root = self.kept_rows("getitem_1", root);
        let biased = is_biased.then(|| {
            let names = [
                (QUERY, ["permute_178", "mm", "permute_174"]),
                (KEY, ["permute_166", "mm_2", "permute_162"]),
                (VALUE, ["permute_156", "mm_4", "permute_152"]),
            ];
            names.map(|(linear, [a, low, b])| {
                let [of_a, of_b] = self.elements(linear).map(|numel| self.numbers(numel));
                let low_size = of(self.rank);
                [self.draft.saved(a, of_a), self.kept_rows(low, low_size), self.draft.saved(b, of_b)]
            })
        });
        let are_normed = sizes.beside == Beside::HeadNorms;
        let before = are_normed.then(|| {
            let [queries, keys] = [("view_25", sizes.queries), ("view_28", sizes.keys)];
            [queries, keys].map(|(name, heads)| self.kept_rows(name, of(heads.features)))
        });
        let is_grouped = self.own.attends == Attends::Grouped;
        let given = |layer: &mut Self, name: &str, heads: Projected| {
            is_grouped.then(|| layer.kept_rows(name, of(heads.features)))
        };
        let values = given(self, if is_biased { "permute_14" } else { "permute_41" }, sizes.keys);
        let positions = are_normed.then(|| self.draft.saved("empty_5", (1, Dtype::I32)));
        let queries = given(self, &number(11, 8), sizes.queries);
        let keys = given(self, &number(13, 10), sizes.keys);
        let normed = before.zip(positions).map(|([of_queries, of_keys], positions)| {
            let roots = [(number(12, 9), sizes.queries), (number(14, 11), sizes.keys)];
            let [first, second] = roots.map(|(name, heads)| {
                let numel = sizes.tokens.saturating_mul(heads.heads);
                self.kept_rows(&name, (numel, Dtype::F32))
            });
            [of_queries, of_keys, first, second, positions]
        });
        let [queries, keys, values] = match (queries, keys, values) {
            (Some(queries), Some(keys), Some(values)) => [queries, keys, values],
            _ => self.saved_copies(),
        };
        let of_kernel = self.of_kernel();
        let attended_size = of_kernel.tokens.saturating_mul(of_kernel.queries.features);
        let attended = self.kept_rows(&number(15, 12), (attended_size, sizes.dtype));
        let sums = self.kept_rows(&number(16, 13), (sizes.log_sums, Dtype::F32));
        let seeds = [0, 1].map(|at| {
            let name = number([21, 22][at], [18, 19][at]);
            self.kept_rows(&name, (sizes.seeds[at], Dtype::I64))
        });
        let given_to_output = match self.lies_by_heads() {
            true => self.kept_rows("permute_126", of(sizes.queries.features)),
            false => attended,
        };
        let sum = self.kept_rows(if is_biased { "view_40" } else { "view_39" }, of(sizes.hidden));
        let second_normed =
            self.kept_rows(if is_biased { "permute_73" } else { "permute_86" }, of(sizes.hidden));
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
            biased,
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
            given_to_output,
            hidden,
            rotary,
        }
    }

    /// The copies of queries, keys and values that attention's kernel was given, in the order in which they were made.
    fn saved_copies(&mut self) -> [usize; 3] {
        let sizes = self.of_kernel();
        let copy = |layer: &mut Self, name: &str, heads: Projected| {
            layer.kept_rows(name, (sizes.tokens.saturating_mul(heads.features), sizes.dtype))
        };
        if self.own.attends == Attends::Repeated {
            let [keys, values] = ["view_39", "view_42"].map(|name| copy(self, name, sizes.keys));
            return [copy(self, "clone_2", sizes.queries), keys, values];
        }
        let queries = copy(self, "clone", sizes.queries);
        [queries, copy(self, "clone_1", sizes.keys), copy(self, "clone_2", sizes.keys)]
    }

    /// What forward saved, of a size for each token.
    fn kept_rows(&mut self, name: &str, size: (u64, Dtype)) -> usize {
        let made = self.draft.saved(name, size);
        self.of_tokens(made)
    }

    /// Casts the gradients of an adapter's matrices to these' type.
    fn give(&mut self, gradients: &mut [Option<usize>; ARGUMENTS], linear: usize, [a, b]: Factors) {
        self.give_one(gradients, lora_a(linear), a);
        self.give_one(gradients, lora_b(linear), b);
    }

    fn give_one(&mut self, gradients: &mut [Option<usize>; ARGUMENTS], argument: usize, factor: usize) {
        let numel = self.draft.graph.buffers[factor].numel;
        let made = self.draft.returned((numel, Dtype::F32));
        self.draft.simple_over(Call::Kernel, made, &[factor]);
        gradients[argument] = Some(made);
    }

    /// peft's projections with biases: what their gradients come to through the norm. Each part's gradients are cast as they come.
    fn biased_back(
        &mut self,
        gradients: &mut [Option<usize>; ARGUMENTS],
        given: [usize; 3],
        (x, saved): (usize, [[usize; 3]; 3]),
        [hidden, root]: [usize; 2],
    ) -> usize {
        let rank = self.rank;
        let mut parts = Vec::with_capacity(6);
        for at in [2, 1, 0] {
            let linear = [QUERY, KEY, VALUE][at];
            let ([a, low, b], gradient) = (saved[at], given[at]);
            let [input, output] = self.features(linear);
            let [of_a, of_b] = self.elements(linear);
            // attention's gradient of values may be of more tokens, or of more heads that are summed
            let attends = if linear == VALUE { self.own.attends } else { Attends::Grouped };
            let (scaled, gradient) = match attends {
                Attends::Repeated => self.summed_and_scaled(gradient, output),
                Attends::Padded(_) => (self.part_of(gradient, self.sizes.keys), gradient),
                Attends::Grouped | Attends::Copied => {
                    let scaled = self.draft.own(self.rows(output));
                    self.draft.simple_over(Call::Kernel, scaled, &[gradient]);
                    (self.of_tokens(scaled), gradient)
                }
            };
            let of_b = self.factor(of_b, &[scaled, low]);
            let of_low = self.product(rank, output, false, &[scaled, b]);
            self.give_one(gradients, lora_b(linear), of_b);
            let of_a = self.factor(of_a, &[of_low, x]);
            let of_adapter = self.product(input, rank, false, &[of_low, a]);
            self.give_one(gradients, lora_a(linear), of_a);
            let weight = self.weight(linear);
            let gradient = match attends {
                Attends::Padded(_) => self.part_of(gradient, self.sizes.keys),
                Attends::Grouped | Attends::Copied | Attends::Repeated => gradient,
            };
            let of_base = self.product(input, output, false, &[gradient, weight]);
            parts.extend([of_adapter, of_base]);
        }
        let back = self.blank_rows(self.sizes.hidden, false);
        let sum = self.draft.own(self.rows(self.sizes.hidden));
        // values' adapter and weight, then keys', then queries'
        self.draft.simple_over(Call::Kernel, sum, &parts);
        self.of_tokens(sum);
        let [back] = self.draft.over(Call::Kernel, [back], &[sum, hidden, root]);
        back
    }

    /// The gradient of heads that were repeated, scaled for an adapter and not, by one kernel.
    fn summed_and_scaled(&mut self, gradient: usize, features: u64) -> (usize, usize) {
        let sum = self.draft.own(self.rows(features));
        let scaled = self.draft.own(self.rows(features));
        self.draft.node(Call::Kernel, vec![op(sum, &[gradient], &[]), op(scaled, &[gradient], &[])]);
        (self.of_tokens(scaled), self.of_tokens(sum))
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

    /// The backward of attention's kernel and of the positions: the gradients of queries, keys and values.
    fn attention(&mut self, gradient: usize, saved: &Saved) -> [usize; 3] {
        let sizes = self.of_kernel();
        let attends = self.own.attends;
        let gradient = match attends {
            Attends::Padded(tokens) => {
                let size = (tokens.saturating_mul(sizes.queries.features), sizes.dtype);
                self.copied(&[gradient], size, false)
            }
            Attends::Grouped | Attends::Copied | Attends::Repeated => gradient,
        };
        let Saved { queries, keys, values, attended, sums, seeds, .. } = *saved;
        let given = [gradient, queries, keys, values, attended, sums, seeds[0], seeds[1]];
        let parts = attention_backward(&mut self.draft, &sizes, &given, [true; 3]);
        for part in parts {
            self.of_tokens(part);
        }
        let [queries, keys, values] = parts;
        let is_padded = matches!(attends, Attends::Padded(_));
        let is_fewer = is_padded || attends == Attends::Repeated;
        let heads = [self.sizes.queries, self.sizes.keys];
        let [queries, keys] = match saved.normed {
            Some(normed) => {
                let made = heads.map(|heads| self.blank_rows(heads.features, false));
                let queries = if is_padded { self.part_of(queries, heads[0]) } else { queries };
                let keys = if is_fewer { self.part_of(keys, heads[1]) } else { keys };
                let reads = [&[queries, keys][..], &normed, &saved.rotary].concat();
                self.draft.over(Call::Kernel, made, &reads)
            }
            None => {
                let keys = self.turned_back(keys, heads[1], is_fewer, saved);
                [self.turned_back(queries, heads[0], is_padded, saved), keys]
            }
        };
        // where projections have biases each of the two that need it takes its part
        let is_whole = !(self.lies_by_heads() || is_fewer) || saved.biased.is_some();
        let values = if is_whole { values } else { self.part_of(values, heads[1]) };
        [queries, keys, values]
    }

    /// The gradient of heads in one of more tokens, of other heads, or that lies in another way.
    fn part_of(&mut self, of: usize, heads: Projected) -> usize {
        self.copied(&[of], self.rows(heads.features), false)
    }

    fn turned_back(&mut self, of: usize, heads: Projected, is_part: bool, saved: &Saved) -> usize {
        let over = self.rotation(heads.features, false);
        let of = if is_part { self.part_of(of, heads) } else { of };
        let [first, second] = saved.rotary;
        let [turned, _] = self.draft.over(Call::Kernel, over, &[of, first, second]);
        turned
    }

    /// `LoRA_MLP.backward`: the gradient of its input, and the factors of gate's, up's and down's adapters.
    fn mlp(&mut self, gradient: usize, saved: &Saved) -> (usize, [Factors; 3]) {
        let sizes = self.sizes;
        let (hidden, width, rank) = (sizes.hidden, sizes.width, self.rank);
        let x = saved.second_normed;
        let weight = self.weight(DOWN);
        let inner = self.product(width, hidden, false, &[gradient, weight]);
        let [down_a, down_b] = self.elements(DOWN);
        let a = self.cast(down_a, false);
        let b = self.cast(down_b, false);
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
        let b = self.cast(gate_b, false);
        let low_up = self.product(rank, width, false, &[of_up, b]);
        let b = self.cast(gate_b, false);
        let low_gate = self.product(rank, width, false, &[of_gate, b]);
        let of_up_a = self.factor(gate_a, &[for_up_a, x, low_up]);
        let up_a = self.cast(gate_a, false);
        let low = self.product(rank, hidden, false, &[up_a, x]);
        let of_up_b = self.factor(gate_b, &[for_up_b, low, of_up]);
        let of_gate_a = self.factor(gate_a, &[for_gate_a, x, low_gate]);
        let gate_a = self.cast(gate_a, false);
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
        let cast = self.cast(b, false);
        let low = self.product(rank, hidden, false, &[gradient, cast]);
        let of_a = self.factor(a, &[for_a, attended, low]);
        let cast = self.cast(a, false);
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
            let b = self.cast(elements[at][1], false);
            let features = self.features(linears[at])[1];
            self.product(rank, features, false, &[gradients[at], b])
        });
        let mut casts = [0; 3];
        let factors = [0, 1, 2].map(|at| {
            let ([a, b], [for_a, for_b]) = (elements[at], blanks[at]);
            let of_a = self.factor(a, &[for_a, x, lows[at]]);
            casts[at] = self.cast(a, false);
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
