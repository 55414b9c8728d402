//! Forward.

use super::super::super::draft::{Beside, DOWN, GATE, KEY, OUTPUT, Projected, QUERY, Sizes, UP, VALUE, op};
use super::super::{Forward, attention_alone, forward_of};
use super::{Attends, Layer, Own};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Graph, Origin};
use crate::step::ops::attention::Kernel;

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
    let projected = match sizes.beside {
        Beside::Nothing => {
            let returned = keeps && own.attends == Attends::Grouped;
            let [queries, keys, values] = layer.projected(normed, keeps, false);
            let queries = layer.rotated(queries, sizes.queries.features, returned);
            ([queries, layer.rotated(keys, sizes.keys.features, returned)], vec![values])
        }
        Beside::HeadNorms => {
            let [queries, keys, values] = layer.projected(normed, keeps, keeps);
            (layer.normed_and_rotated([queries, keys], keeps), vec![values])
        }
        Beside::Biases if keeps => layer.biased(normed),
        Beside::Biases => layer.biased_and_let_go(normed),
    };
    let (turned, values) = projected;
    let attended = layer.attended(turned, &values, keeps);
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

    /// `LoRA_QKV`: queries, keys and values, of which backward needs the former two where their heads are `normed`.
    fn projected(&mut self, x: usize, keeps: bool, normed: bool) -> [usize; 3] {
        let queries = self.adapted(x, QUERY, keeps, normed);
        let keys = self.adapted(x, KEY, keeps, normed);
        let returned = keeps && self.own.attends == Attends::Grouped;
        [queries, keys, self.adapted(x, VALUE, keeps, returned)]
    }

    /// The same of projections with biases, which run peft's own code: queries and keys turned by their positions, and the parts of the
    /// values, which are added up as they are copied where they are.
    fn biased(&mut self, x: usize) -> ([usize; 2], Vec<usize>) {
        let [queries, keys, values] = [QUERY, KEY, VALUE].map(|linear| {
            let weight = self.weight(linear);
            self.added_up(x, linear, weight, true)
        });
        let returned = self.own.attends == Attends::Grouped;
        let values = self.values(values, returned);
        let queries = self.sum_rotated(queries, QUERY, returned);
        ([queries, self.sum_rotated(keys, KEY, returned)], values)
    }

    /// The same where backward needs nothing: all weights are dequantised first, and each projection is done before the next.
    fn biased_and_let_go(&mut self, x: usize) -> ([usize; 2], Vec<usize>) {
        let [query, key, value] = [QUERY, KEY, VALUE].map(|linear| self.weight(linear));
        let queries = self.added_up(x, QUERY, query, false);
        let queries = self.sum_rotated(queries, QUERY, false);
        let keys = self.added_up(x, KEY, key, false);
        let keys = self.sum_rotated(keys, KEY, false);
        let values = self.added_up(x, VALUE, value, false);
        ([queries, keys], self.values(values, false))
    }

    fn values(&mut self, parts: [usize; 2], returned: bool) -> Vec<usize> {
        match self.own.attends {
            Attends::Grouped => vec![self.sum(parts, VALUE, returned)],
            Attends::Copied | Attends::Repeated | Attends::Padded(_) => parts.to_vec(),
        }
    }

    /// A linear layer of peft's: what its own weight and bias give, and what the adapter gives.
    fn added_up(&mut self, x: usize, linear: usize, weight: usize, keeps: bool) -> [usize; 2] {
        let [input, output] = self.features(linear);
        let rank = self.rank;
        let bias = self.argument;
        let base = self.product(output, input, false, &[bias, x, weight]);
        let a = self.cast(input.saturating_mul(rank), keeps);
        let low = self.product(rank, input, keeps, &[x, a]);
        let b = self.cast(output.saturating_mul(rank), keeps);
        [base, self.product(output, rank, false, &[low, b])]
    }

    /// Both together.
    fn sum(&mut self, parts: [usize; 2], linear: usize, returned: bool) -> usize {
        let [_, output] = self.features(linear);
        let made = self.draft.made(self.rows(output), Origin::Made, returned);
        self.draft.simple_over(Call::Kernel, made, &parts);
        self.of_tokens(made)
    }

    /// Both together, turned by their positions: the memory for the result comes before the sum.
    fn sum_rotated(&mut self, parts: [usize; 2], linear: usize, returned: bool) -> usize {
        let [_, output] = self.features(linear);
        let over = self.rotation(output, returned);
        let sum = self.sum(parts, linear, false);
        let [rotated, _] = self.draft.over(Call::Kernel, over, &[sum]);
        rotated
    }

    /// `matmul_lora`.
    fn adapted(&mut self, x: usize, linear: usize, keeps: bool, returned: bool) -> usize {
        let [input, output] = self.features(linear);
        let rank = self.rank;
        let weight = self.weight(linear);
        let product = |layer: &mut Self| layer.product(output, input, returned, &[x, weight]);
        let low = |layer: &mut Self| {
            let a = layer.cast(input.saturating_mul(rank), false);
            layer.product(rank, input, false, &[x, a])
        };
        let (product, low) = if keeps {
            let product = product(self);
            (product, low(self))
        } else {
            let low = low(self);
            (product(self), low)
        };
        let b = self.cast(output.saturating_mul(rank), false);
        self.add(product, rank, &[low, b])
    }

    /// `fast_qk_norm_rope`: one kernel norms and turns queries and keys, and leaves a number of each head's row. What stands for the
    /// positions is made first where gradients are wanted, last where none are.
    fn normed_and_rotated(&mut self, given: [usize; 2], keeps: bool) -> [usize; 2] {
        let heads = [self.sizes.queries, self.sizes.keys];
        let as_turned = keeps && self.own.attends == Attends::Grouped;
        let positions = |layer: &mut Self| layer.draft.blank((1, Dtype::I32), keeps);
        let turned = |layer: &mut Self, heads: Projected| layer.blank_rows(heads.features, as_turned);
        let root = |layer: &mut Self, heads: Projected| {
            let numel = layer.sizes.tokens.saturating_mul(heads.heads);
            let root = layer.draft.blank((numel, Dtype::F32), keeps);
            layer.of_tokens(root)
        };
        let (over, positions) = if keeps {
            let positions = positions(self);
            let [queries, keys] = heads.map(|heads| turned(self, heads));
            let [first, second] = heads.map(|heads| root(self, heads));
            ([queries, keys, first, second], positions)
        } else {
            let [[queries, first], [keys, second]] =
                heads.map(|heads| [turned(self, heads), root(self, heads)]);
            ([queries, keys, first, second], positions(self))
        };
        let reads = [&given[..], &[positions]].concat();
        let [queries, keys, ..] = self.draft.over(Call::Kernel, over, &reads);
        [queries, keys]
    }

    /// Attention's kernel and what it is given, which leave more where backward needs it.
    fn attended(&mut self, turned: [usize; 2], values: &[usize], keeps: bool) -> usize {
        let sizes = self.of_kernel();
        let given = self.given_to_kernel(turned, values, keeps);
        let attended = if keeps {
            let [attended, sums, ..] = attention_alone(&mut self.draft, &sizes, given);
            self.of_tokens(sums);
            attended
        } else {
            let tuple = self.draft.made((0, sizes.dtype), Origin::MultiOutputLayout, false);
            self.draft.simple(Call::Attention, tuple, &given);
            let size = (sizes.tokens.saturating_mul(sizes.queries.features), sizes.dtype);
            let attended = self.draft.made(size, Origin::MultiOutput, false);
            self.draft.simple(Call::MultiOutput(0), attended, &[tuple]);
            // three more that nobody takes
            (0..3).for_each(|_| self.draft.skip());
            attended
        };
        self.of_tokens(attended);
        // the view of flash's result has a number and is none of the graph's buffers
        if self.own.kernel == Kernel::Flash {
            self.draft.skip();
        }
        match self.lies_by_heads() {
            true => self.copied(&[attended], self.rows(self.sizes.queries.features), keeps),
            false => attended,
        }
    }

    /// Queries, keys and values as attention's kernel is given them.
    fn given_to_kernel(&mut self, [queries, keys]: [usize; 2], values: &[usize], keeps: bool) -> [usize; 3] {
        let sizes = self.of_kernel();
        let attends = self.own.attends;
        let mut copied = |of: &[usize], heads: Projected| {
            let size = (sizes.tokens.saturating_mul(heads.features), sizes.dtype);
            self.copied(of, size, keeps)
        };
        match (attends, values) {
            (Attends::Grouped, [values]) => [queries, keys, *values],
            // where gradients are wanted repeated heads are copied as soon as they are
            (Attends::Repeated, _) if keeps => {
                let [keys, values] = [&[keys][..], values].map(|of| copied(of, sizes.keys));
                [copied(&[queries], sizes.queries), keys, values]
            }
            (Attends::Grouped | Attends::Copied | Attends::Repeated | Attends::Padded(_), _) => {
                [copied(&[queries], sizes.queries), copied(&[keys], sizes.keys), copied(values, sizes.keys)]
            }
        }
    }
}
