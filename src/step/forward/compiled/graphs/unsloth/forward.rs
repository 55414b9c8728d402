//! Forward.

use super::super::super::draft::{Beside, DOWN, GATE, KEY, OUTPUT, QUERY, Sizes, UP, VALUE, op};
use super::super::{Forward, attention, forward_of};
use super::{Layer, Own};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Graph, Origin};

/// The graph of forward whose results backward needs.
pub(in super::super::super) fn forward(sizes: &Sizes, own: Own) -> Forward {
    let (layer, output) = written(sizes, own, true);
    forward_of(layer.draft, output)
}

/// The graph of forward that nothing is kept of, and what it returns.
pub(in super::super::super) fn answered(sizes: &Sizes, own: Own) -> (Graph, usize) {
    let (layer, output) = written(sizes, own, false);
    (layer.draft.done(), output)
}

fn written(sizes: &Sizes, own: Own, keeps: bool) -> (Layer<'_>, usize) {
    let mut layer = Layer::new(sizes, own);
    let hidden = layer.draft.buffer("primals_4", (0, sizes.dtype), Origin::Argument, keeps);
    let normed = layer.norm(hidden, keeps);
    let are_normed = sizes.beside == Beside::HeadNorms;
    let queries = layer.adapted(normed, QUERY, keeps, keeps && are_normed);
    let keys = layer.adapted(normed, KEY, keeps, keeps && are_normed);
    let values = layer.adapted(normed, VALUE, keeps, keeps);
    let [queries, keys] = if are_normed {
        layer.normed_and_rotated([queries, keys], keeps)
    } else {
        let queries = layer.rotated(queries, sizes.queries.features, keeps);
        [queries, layer.rotated(keys, sizes.keys.features, keeps)]
    };
    let attended = layer.attended([queries, keys, values], keeps);
    let attended = layer.adapted(attended, OUTPUT, keeps, false);
    let residual = |layer: &mut Layer| {
        let sum = layer.draft.made(layer.rows(sizes.hidden), Origin::Made, keeps);
        layer.draft.simple(Call::Kernel, sum, &[hidden, attended]);
        layer.of_tokens(sum)
    };
    let (sum, normed) = if keeps {
        let sum = residual(&mut layer);
        (Some(sum), layer.norm(sum, true))
    } else {
        // the sum is computed once more where the layer ends
        let [result, root] = layer.norms();
        let sum = residual(&mut layer);
        let [normed, _] = layer.draft.over(Call::Kernel, [result, root], &[sum]);
        (None, normed)
    };
    let gate = layer.adapted(normed, GATE, keeps, keeps);
    let up = layer.adapted(normed, UP, keeps, keeps);
    let product = layer.blank_rows(sizes.width, false);
    let [product] = layer.draft.over(Call::Kernel, [product], &[gate, up]);
    let down = layer.adapted(product, DOWN, keeps, false);
    let output = layer.draft.returned(layer.rows(sizes.hidden));
    let ops = match sum {
        Some(sum) => vec![op(output, &[sum, down], &[sum, down])],
        None => vec![op(output, &[hidden, attended, down], &[attended, down])],
    };
    layer.draft.node(Call::Kernel, ops);
    layer.of_tokens(output);
    (layer, output)
}

impl Layer<'_> {
    /// Memory for a norm's result and for a number of each row.
    fn norms(&mut self) -> [usize; 2] {
        self.norms_of(false)
    }

    fn norms_of(&mut self, returned: bool) -> [usize; 2] {
        let result = self.blank_rows(self.sizes.hidden, returned);
        let root = self.draft.blank((self.sizes.tokens, Dtype::F32), returned);
        [result, self.of_tokens(root)]
    }

    fn norm(&mut self, of: usize, returned: bool) -> usize {
        let over = self.norms_of(returned);
        let [normed, _] = self.draft.over(Call::Kernel, over, &[of]);
        normed
    }

    /// `matmul_lora`.
    fn adapted(&mut self, x: usize, linear: usize, keeps: bool, returned: bool) -> usize {
        let [input, output] = self.features(linear);
        let rank = self.rank;
        let weight = self.weight(linear);
        let product = |layer: &mut Self| layer.product(output, input, returned, &[x, weight]);
        let low = |layer: &mut Self| {
            let a = layer.cast(input.saturating_mul(rank));
            layer.product(rank, input, false, &[x, a])
        };
        let (product, low) = if keeps {
            let product = product(self);
            (product, low(self))
        } else {
            let low = low(self);
            (product(self), low)
        };
        let b = self.cast(output.saturating_mul(rank));
        self.add(product, rank, &[low, b])
    }

    /// `fast_qk_norm_rope`: one kernel norms and turns queries and keys, and leaves a number of each head's row.
    fn normed_and_rotated(&mut self, given: [usize; 2], returned: bool) -> [usize; 2] {
        let Sizes { queries, keys, tokens, .. } = self.sizes;
        let positions = self.draft.blank((1, Dtype::I32), returned);
        let [made, other] = [queries, keys].map(|heads| self.blank_rows(heads.features, returned));
        let roots = [queries, keys].map(|heads| {
            let root = self.draft.blank((tokens.saturating_mul(heads.heads), Dtype::F32), returned);
            self.of_tokens(root)
        });
        let over = [made, other, roots[0], roots[1]];
        let reads = [&given[..], &[positions]].concat();
        let [queries, keys, ..] = self.draft.over(Call::Kernel, over, &reads);
        [queries, keys]
    }

    /// Attention's kernel, which leaves more where backward needs it.
    fn attended(&mut self, given: [usize; 3], keeps: bool) -> usize {
        if keeps {
            let [attended, sums, ..] = attention(&mut self.draft, self.sizes, given);
            self.of_tokens(sums);
            return self.of_tokens(attended);
        }
        let tuple = self.draft.made((0, self.sizes.dtype), Origin::MultiOutputLayout, false);
        self.draft.simple(Call::Attention, tuple, &given);
        let attended = self.draft.made(self.rows(self.sizes.queries.features), Origin::MultiOutput, false);
        self.draft.simple(Call::MultiOutput(0), attended, &[tuple]);
        // three more that nobody takes, and the view of the first
        (0..4).for_each(|_| self.draft.skip());
        self.of_tokens(attended)
    }
}
