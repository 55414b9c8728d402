//! State spaces of the second kind (mamba2, nemotron_h, bamba, granitemoehybrid) as transformers runs them without
//! mamba-ssm and causal-conv1d: every contraction is a product that is written out, then summed.
//!
//! Source: models/nemotron_h `NemotronHMamba2Mixer` and its `mamba2_chunk_scan`; those of the others are copies.

use super::super::{BoundLayer, Pass};
use crate::dtype::Dtype;
use crate::model::blocks::{Scan, StateSpace};
use crate::step::ops::matmul::unbatched_backward;
use crate::step::ops::norm::NormLayer;
use crate::step::ops::pointwise::promoted;
use crate::step::ops::pointwise::{add_backward, mul_backward};
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{What, roles, torch};

static NOT: What = What::step("not", "what is not chosen");

/// The sizes of a scan, in elements.
struct Sizes {
    /// `[batch, heads, padded sequence]`.
    rows: u64,
    /// Tokens of a chunk.
    chunk: u64,
    /// Chunks of a sequence.
    chunks: u64,
    /// Heads of the batch.
    heads: u64,
    /// Elements of a head, and of its state.
    head: u64,
    state: u64,
}

impl Sizes {
    fn times(&self, factors: &[u64]) -> u64 {
        factors.iter().fold(self.rows, |product: u64, factor| product.saturating_mul(*factor))
    }
}

impl<'a> Pass<'_, 'a> {
    /// `NemotronHMamba2Mixer.forward`.
    pub(in crate::step::forward) fn mamba2(
        &self,
        layer: &BoundLayer<'a>,
        space: &StateSpace,
        x: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Scan::Mamba2 { heads, groups, norm_groups, chunk, norm } = &space.scan else {
            return x.unmodelled("a scan of another kind");
        };
        let [bias, log, d] = layer.bare[..] else {
            return x.unmodelled("a scan without its three parameters");
        };
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let tokens = self.batch.tokens();
        let dtype = x.value.dtype;
        let states = tokens.saturating_mul(*groups).saturating_mul(space.state);
        let inner = tokens.saturating_mul(space.inner);
        let sizes = {
            let heads = batch.saturating_mul(*heads);
            let chunks = sequence.div_ceil(*chunk);
            let rows = heads.saturating_mul(chunks).saturating_mul(*chunk);
            let head = space.inner / (heads / batch.max(1)).max(1);
            Sizes { rows, chunk: *chunk, chunks, heads, head, state: space.state }
        };
        let x = self.without_padding(x);
        let projected = x.through(&layer.linear(&space.input));
        let a = self.decay(log);
        let convolved = inner.saturating_add(states.saturating_mul(2));
        let [gate, mixed, dt] = projected.split([inner, convolved, tokens.saturating_mul(*heads)]);
        drop(projected);
        let mut mixed = self.causal_conv(layer, &space.conv, mixed.heads_first());
        mixed = self.without_padding(&mixed.tokens_first());
        let [hidden, b, c] = mixed.split([inner, states, states]).map(|part| part.viewed());
        let mut output = {
            let repeats = heads / (*groups).max(1);
            self.chunk_scan(&sizes, repeats, [&hidden, &dt, &a, &b, &c], [bias, d])
        };
        output = output.viewed();
        output = self.within("norm", &roles::NORM, || {
            output.gate_normed(&layer.norm(norm), space.inner / (*norm_groups).max(1), &gate)
        });
        let result = output.to(dtype).through(&layer.linear(&space.output));
        drop(a);
        drop(gate);
        drop((hidden, mixed));
        drop((dt, b, c));
        drop(output);
        result
    }

    /// `mamba2_chunk_scan`.
    fn chunk_scan(
        &self,
        sizes: &Sizes,
        repeats: u64,
        [hidden, dt, a, b, c]: [&Tensor<'a>; 5],
        [bias, d]: [ParamId; 2],
    ) -> Tensor<'a> {
        let Sizes { chunk, chunks, heads, head, state, .. } = *sizes;
        let sequence = self.batch.length;
        let tokens_of = |width: u64| heads.saturating_mul(sequence).saturating_mul(width);
        let mut dt = {
            let bias = self.machine.weight(bias).to(dt.value.dtype);
            dt.plus_each(&bias)
        };
        dt = dt.softplus();
        dt = dt.limited();
        let mut hidden = hidden.to(Dtype::F32);
        let [mut b, mut c] = [b, c].map(|x| {
            let float = x.to(Dtype::F32);
            float.repeated(repeats)
        });
        let wide = sizes.times(&[head]);
        let skipped = {
            let padded = hidden.padded_to(wide);
            self.machine.weight(d).viewed().times_each(&padded)
        };
        hidden = {
            let steps = dt.viewed().to(Dtype::F32);
            hidden.mul_rows(&steps)
        };
        let mut a = {
            let steps = dt.to(Dtype::F32);
            a.times_each(&steps)
        };
        let numels = [wide, sizes.rows, sizes.times(&[state]), sizes.times(&[state])];
        let padded = [(&hidden, numels[0]), (&a, numels[1]), (&b, numels[2]), (&c, numels[3])]
            .map(|(x, numel)| x.padded_to(numel).viewed());
        [hidden, a, b, c] = padded;
        a = a.heads_first();
        let cumulated = a.cumsum();
        let decays = {
            let sums = self.segment_sum(a.clone(), chunk);
            sums.keeping_output(&torch::EXP)
        };
        let scores = {
            let product = c.viewed().times_wide(&b.viewed(), sizes.times(&[chunk, state]));
            product.sum_last(state)
        };
        let masked = {
            let product = scores.viewed().times_wide(&decays.heads_back().viewed(), sizes.times(&[chunk]));
            product.sum_last(1)
        };
        let diagonal = {
            let product = masked.viewed().times_wide(&hidden.viewed(), sizes.times(&[chunk, head]));
            product.sum_last(chunk)
        };
        let to_end = {
            let rest = cumulated.selected(heads.saturating_mul(chunks)).minus_to(&cumulated, sizes.rows);
            rest.keeping_output(&torch::EXP)
        };
        let b_decayed = b.mul_rows(&to_end.viewed().in_tokens());
        let one_state = heads.saturating_mul(head).saturating_mul(state);
        let mut states = {
            let product = b_decayed.viewed().times_wide(&hidden.viewed(), sizes.times(&[head, state]));
            product.sum_last(chunk)
        };
        let previous = self.constant(one_state, states.value.dtype, &torch::ZEROS);
        states = previous.cat(&states);
        let between = {
            let sums = {
                let ends = cumulated.selected(heads.saturating_mul(chunks));
                let padded = ends.padded_to(heads.saturating_mul(chunks.saturating_add(1)));
                drop(ends);
                self.segment_sum(padded, chunks.saturating_add(1))
            };
            sums.keeping_output(&torch::EXP).heads_back()
        };
        let new_states = {
            let pairs = chunks.saturating_add(1).saturating_mul(chunks.saturating_add(1));
            let product = between.viewed().times_wide(&states.viewed(), one_state.saturating_mul(pairs));
            product.sum_last(chunks.saturating_add(1))
        };
        states = new_states.selected(one_state.saturating_mul(chunks));
        let from_start = cumulated.keeping_output(&torch::EXP);
        let c_states = c.viewed().times_wide(&states.viewed(), sizes.times(&[head, state]));
        let off_diagonal = {
            let sum = c_states.sum_last(state);
            sum.mul_rows(&from_start.viewed().in_tokens())
        };
        let mut output = diagonal.add(&off_diagonal).viewed();
        output = output.add(&skipped);
        output = output.slice(tokens_of(head));
        drop((hidden, dt));
        drop(a);
        drop((b, c));
        drop(skipped);
        drop(cumulated);
        drop((decays, scores, masked));
        drop(diagonal);
        drop((to_end, b_decayed));
        drop(states);
        drop(previous);
        drop((between, new_states, from_start));
        drop(c_states);
        drop(off_diagonal);
        output
    }

    /// `segment_sum` over the last dimension of `length` elements.
    fn segment_sum(&self, x: Tensor<'a>, length: u64) -> Tensor<'a> {
        let square = length.saturating_mul(length);
        let mask = || {
            let ones = self.of_queries(square, Dtype::Bool, &torch::ONES);
            let mask = self.of_queries(square, Dtype::Bool, &torch::TRIL);
            drop(ones);
            mask
        };
        let others = || self.of_queries(square, Dtype::Bool, &NOT);
        let whole = x.value.numel.saturating_mul(length);
        let mut expanded = x.viewed().expanded_to(whole);
        expanded.value.layout = expanded.value.shape;
        let mut below = mask();
        expanded = {
            let others = others();
            expanded.masked_fill(&others)
        };
        drop(x);
        let mut sums = expanded.cumsum();
        let ones = self.of_queries(square, Dtype::Bool, &torch::ONES);
        let lower = self.of_queries(square, Dtype::Bool, &torch::TRIL);
        drop(ones);
        below = {
            drop(below);
            lower
        };
        sums = {
            let others = others();
            let filled = sums.masked_fill(&others);
            drop(sums);
            filled
        };
        drop(expanded);
        drop(below);
        sums
    }
}

impl<'m> Tensor<'m> {
    /// `x + row`, a number for each element of a row.
    fn plus_each(&self, row: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &row.value;
            let node = state.row_of_heads_node([x, y], add_backward);
            let dense = Value { layout: x.shape, ..*x };
            state.new_like(&dense, promoted(x.dtype, y.dtype), &torch::ADD, node.output(0))
        })
    }

    /// `x.repeat_interleave(times, dim=2)`: a copy whatever the number.
    fn repeated(&self, times: u64) -> Tensor<'m> {
        if times <= 1 { self.copied_dense() } else { self.repeat_heads(times) }
    }

    /// `x * other`, both broadcast to `numel` elements.
    pub(in crate::step::forward) fn times_wide(&self, other: &Tensor<'m>, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &other.value;
            let node = state.node([x, y], mul_backward);
            if x.requires_grad() {
                state.save(node, y.storage);
            }
            if y.requires_grad() {
                state.save(node, x.storage);
            }
            let whole = Value { numel, ..*x };
            state.new_like(&whole, promoted(x.dtype, y.dtype), &torch::MUL, node.output(0))
        })
    }

    /// `x.sum(dim)` over a dimension of `count` elements. autocast makes its result float32.
    fn sum_last(&self, count: u64) -> Tensor<'m> {
        self.sum_groups(count)
    }

    /// `x.permute(…)` back to the order of tokens: its gradient lies head after head.
    fn heads_back(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| unbatched_backward(state, grad, 1));
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// The same where the gradient keeps the order of tokens.
    fn in_tokens(&self) -> Tensor<'m> {
        let mut view = self.viewed();
        view.value.shape = crate::step::tensor::Layout::Tokens;
        view
    }

    /// `Zamba2RMSNormGated`: the gate, then the norm over groups of `width`.
    pub(in crate::step::forward) fn gate_normed(
        &self,
        norm: &NormLayer,
        width: u64,
        gate: &Tensor<'m>,
    ) -> Tensor<'m> {
        let dtype = self.value.dtype;
        let mut hidden = self.to(Dtype::F32);
        hidden = {
            let open = {
                let float = gate.to(Dtype::F32);
                float.keeping_input(&torch::SILU)
            };
            hidden.mul(&open)
        };
        let (normed, variance) = hidden.viewed().root_mean_square(width, true);
        let result = normed.to(dtype).weighted(norm);
        drop(hidden);
        drop((normed, variance));
        result
    }
}
