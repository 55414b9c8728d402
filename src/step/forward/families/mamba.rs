//! State spaces of the first kind (mamba, falcon_mamba, jamba) as transformers runs them without mamba-ssm and
//! causal-conv1d: the scan goes token by token and keeps the states of all of them.
//!
//! Source: models/mamba `MambaMixer` and its `mamba_selective_scan`; those of the others are copies with norms.

use super::super::{BoundLayer, Pass};
use crate::dtype::Dtype;
use crate::model::blocks::{Scan, StateSpace};
use crate::step::autograd::{Grad, Input, Node, Results};
use crate::step::machine::State;
use crate::step::ops::linear::Weight;
use crate::step::ops::matmul::bmm_backward;
use crate::step::ops::matmul::{Product, Second, mm_backward, multiplications};
use crate::step::ops::pointwise::mul_backward;
use crate::step::repeat::Alike;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Dims, torch};

impl<'a> Pass<'_, 'a> {
    /// `MambaMixer.forward`.
    pub(in crate::step::forward) fn mamba(
        &self,
        layer: &BoundLayer<'a>,
        space: &StateSpace,
        x: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Scan::Mamba { x: x_proj, dt: dt_proj, norms } = &space.scan else {
            return self.mamba2(layer, space, x);
        };
        let [log, d] = layer.bare[..] else { return x.unmodelled("a scan without its two parameters") };
        let dt_layer = layer.linear(dt_proj);
        let (Weight::Plain(dt_weight), Some(dt_bias)) = (dt_layer.weight, dt_layer.bias) else {
            return x.unmodelled("steps of a scan in 4-bit or without a bias");
        };
        let tokens = self.batch.tokens();
        let dtype = x.value.dtype;
        let (inner, states) = (tokens.saturating_mul(space.inner), tokens.saturating_mul(space.state));
        let x = self.without_padding(x);
        let projected = x.through(&layer.linear(&space.input)).heads_first();
        let a = self.decay(log);
        if self.modeling.casts_scan_arguments {
            // arguments of the kernel that is not there: no gradient comes back to them
            let _d = self.machine.weight(d).detach().to(Dtype::F32);
            let _bias = self.machine.weight(dt_bias).detach().to(Dtype::F32);
        }
        let [hidden, gate] = projected.split([inner, inner]);
        drop(projected);
        let mut hidden = self.causal_conv(layer, &space.conv, hidden);
        hidden = self.without_padding(&hidden.tokens_first());
        let all = hidden.flat_for_product().through(&layer.linear(x_proj));
        let rank = tokens.saturating_mul(dt_proj.input);
        let [mut step, mut b, mut c] = all.split([rank, states, states]);
        drop(all);
        for (part, norm) in [&mut step, &mut b, &mut c].into_iter().zip(norms) {
            *part = part.normed(&layer.norm(norm));
        }
        step = {
            let weight = self.machine.weight(dt_weight);
            self.steps_of(&weight, &step, [dt_proj.input, dt_proj.output])
        };
        let bias = self.machine.weight(dt_bias).to(Dtype::F32);
        let (hidden_first, b_first, c_first) = (hidden.heads_first(), b.heads_first(), c.heads_first());
        let d = self.machine.weight(d).to(Dtype::F32);
        let output =
            self.selective_scan(space, [&hidden_first, &step, &a, &b_first, &c_first], [&d, &bias, &gate]);
        drop(d);
        let result = {
            let tokens = output.tokens_first().to(dtype);
            tokens.flat_for_product().through(&layer.linear(&space.output))
        };
        drop((hidden_first, b_first, c_first));
        drop(a);
        drop(gate);
        drop(hidden);
        drop((step, b, c));
        drop(bias);
        drop(output);
        result
    }

    /// `dt_proj.weight @ time_step.transpose(1, 2)`: a product of all tokens, transposed, where the weight is trained.
    fn steps_of(&self, weight: &Tensor<'a>, step: &Tensor<'a>, [rank, width]: [u64; 2]) -> Tensor<'a> {
        let numel = (step.value.numel / rank.max(1)).saturating_mul(width);
        let transposed = step.heads_first();
        let target = self.autocast;
        let cast = |x: &Tensor<'a>| x.to(target.unwrap_or(x.value.dtype));
        let (transposed, weight) = (cast(&transposed), cast(weight));
        if weight.value.requires_grad() {
            let folded = weight.apply(|state, w| {
                let x = &transposed.value;
                let node = state.node([x, w], steps_backward);
                if x.requires_grad() {
                    state.save(node, w.storage);
                }
                state.save(node, x.storage);
                let whole = Value { numel, layout: Layout::Tokens, shape: Layout::Tokens, ..*x };
                state.new_like(&whole, x.dtype, &torch::MATMUL, node.output(0))
            });
            return folded.permuted().copied_heads();
        }
        weight.apply(|state, w| {
            let x = &transposed.value;
            let multiplied = multiplications([w.numel, x.numel, numel]);
            state.multiply(multiplied, 1);
            let node = state.node([&Input::NONE, x], move |state, node, grad| {
                bmm_backward(state, node, grad, (Layout::Heads, multiplied))
            });
            state.save(node, w.storage);
            let whole = Value { numel, layout: Layout::Heads, shape: Layout::Heads, ..*x };
            state.new_like(&whole, x.dtype, &torch::MATMUL, node.output(0))
        })
    }

    /// `mamba_selective_scan`.
    fn selective_scan(
        &self,
        space: &StateSpace,
        [hidden, step, a, b, c]: [&Tensor<'a>; 5],
        [d, bias, gate]: [&Tensor<'a>; 3],
    ) -> Tensor<'a> {
        let machine = self.machine;
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let dtype = hidden.value.dtype;
        let one = batch.saturating_mul(space.inner);
        let state_numel = one.saturating_mul(space.state);
        let whole = state_numel.saturating_mul(sequence);
        let mut dt = {
            let bias = bias.to(step.value.dtype).viewed();
            step.biased(&bias)
        };
        dt = dt.softplus();
        let (b, c) = (b.tokens_first(), c.tokens_first());
        let decays = {
            let product = a.viewed().times_wide(&dt.viewed(), whole);
            machine.with(|state| {
                let dims = state.by_tokens();
                state.note_dims(product.value.storage, dims);
            });
            product.keeping_output(&torch::EXP)
        };
        let inputs = {
            let float = b.viewed().to(Dtype::F32);
            float.same_for_channels(&dt.viewed(), whole)
        };
        let fed = {
            let float = hidden.viewed().to(Dtype::F32);
            inputs.times_wide(&float, whole)
        };
        let mut outputs: Vec<Tensor<'a>> = Vec::new();
        let mut variables = [self.constant(state_numel, dtype, &torch::ZEROS)];
        let alike = Alike::Inner { apart: self.runs_apart() };
        machine.repeat(sequence, alike, &mut variables, &mut |[state], _| {
            *state = {
                let kept = decays.selected(state_numel).mul(state);
                // of one token
                machine.with(|state| state.note_dims(kept.value.storage, Dims::Elements));
                kept.add(&fed.selected(state_numel))
            };
            let product = Product { numel: one, batch: 1, groups: 1, second: Second::Plain };
            let read = {
                let narrow = state.to(dtype);
                let column = c.selected(batch.saturating_mul(space.state)).viewed();
                machine.product(&narrow, &column, product, self.autocast)
            };
            outputs.push(read.selected(one));
        });
        let mut output = self.machine.stacked(&outputs, one.saturating_mul(sequence));
        output = {
            let skipped = hidden.times_wide(&d.viewed(), hidden.value.numel);
            let sum = output.add(&skipped);
            drop(skipped);
            drop(output);
            sum
        };
        output = {
            let open = gate.keeping_input(&torch::SILU);
            output.mul(&open)
        };
        drop(dt);
        drop((b, c));
        drop((decays, inputs, fed));
        drop(variables);
        while outputs.pop().is_some() {}
        output
    }
}

impl<'m> Tensor<'m> {
    /// What a linear layer is given where the last dimension does not lie one after the other: a copy of several sequences.
    fn flat_for_product(&self) -> Tensor<'m> {
        let (several, autocast) = self.machine.with(|state| (state.sequences > 1, state.autocast));
        let cast = self.to(autocast.unwrap_or(self.value.dtype));
        if several && cast.value.layout != cast.value.shape { cast.copied_dense() } else { cast }
    }

    /// `other * x`, where x is broadcast over the channels.
    fn same_for_channels(&self, other: &Tensor<'m>, numel: u64) -> Tensor<'m> {
        other.apply(|state, y| {
            let x = &self.value;
            let node = state.row_node([y, x], mul_backward);
            if y.requires_grad() {
                state.save(node, x.storage);
            }
            if x.requires_grad() {
                state.save(node, y.storage);
            }
            let whole = Value { numel, layout: Layout::Tokens, shape: Layout::Tokens, ..*x };
            state.new_like(&whole, x.dtype, &torch::MUL, node.output(0))
        })
    }

    /// A copy that lies head after head.
    fn copied_heads(&self) -> Tensor<'m> {
        let mut copy = self.copied();
        (copy.value.layout, copy.value.shape) = (Layout::Heads, Layout::Heads);
        copy
    }
}

/// The product of a projection of steps, whose input is a view.
fn steps_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [own, other, _] = mm_backward(state, node, grad);
    [own.map(|own| Grad { view: true, layout: Layout::Tokens, ..own }), other, None]
}
