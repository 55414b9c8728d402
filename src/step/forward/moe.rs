//! Mixtures of experts: router, sorting, the experts' products, shared experts.
//!
//! Source: transformers 5.17 integrations/moe.py `grouped_mm_experts_forward` and the routers of models/mixtral,
//! models/qwen3_moe and those written after them.

use super::{BoundLayer, Model};
use crate::dtype::Dtype;
use crate::model::blocks::{Linear, Moe};
use crate::step::experts::{Delta, Expert};
use crate::step::linear::Weight;
use crate::step::tensor::Tensor;

/// Whose router runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Router {
    /// mixtral: logits are cast before the softmax, weights stay in float32.
    Mixtral,
    /// qwen3_moe and those written after it.
    Qwen,
}

impl Router {
    /// The router of a model type.
    pub fn of(model_type: &str) -> Router {
        match model_type {
            "mixtral" => Router::Mixtral,
            _ => Router::Qwen,
        }
    }
}

/// What a router decides.
struct Routed<'m> {
    /// The router's logits, which the block keeps in a variable.
    logits: Tensor<'m>,
    /// Weights of the chosen experts.
    weights: Tensor<'m>,
    /// Their numbers.
    indices: Tensor<'m>,
}

impl<'a> Model<'a> {
    /// A sparse feed-forward block.
    pub(super) fn experts(&self, layer: &BoundLayer<'a>, moe: &Moe, x: &Tensor<'a>) -> Tensor<'a> {
        let x = &x.flattened();
        let shared = moe.shared.as_ref().map(|shared| self.mlp(layer, shared, x));
        let Routed { logits, weights, indices } = self.within("router", || self.routed(layer, moe, x));
        let chosen = self.within("experts", || self.chosen_experts(layer, moe, x, &weights, indices.clone()));
        let output = match shared {
            None => chosen,
            Some(mut shared) => {
                if let Some(gate) = &moe.shared_gate {
                    let gate = {
                        let open = x.through(&layer.linear(gate));
                        open.keeping_output("sigmoid")
                    };
                    shared = shared.mul_rows(&gate);
                }
                let sum = chosen.add(&shared);
                drop(chosen);
                sum
            }
        };
        drop(logits);
        drop(weights);
        drop(indices);
        output.unflattened()
    }

    /// The router of mixtral and qwen: softmax over all experts, the best of them, divided by their sum.
    fn routed(&self, layer: &BoundLayer<'a>, moe: &Moe, x: &Tensor<'a>) -> Routed<'a> {
        let (logits, _adapted) = self.router_logits(layer, &moe.router, x);
        let probabilities = if self.router == Router::Mixtral {
            let float = logits.to(Dtype::F32);
            float.softmax()
        } else {
            logits.softmax_float()
        };
        let [mut weights, indices] = probabilities.top(moe.top_k, moe.experts);
        weights = {
            let sum = weights.sum_rows(moe.top_k);
            weights.divide_rows_in_place(&sum)
        };
        if self.router != Router::Mixtral {
            weights = weights.to(logits.value.dtype);
        }
        Routed { logits, weights, indices }
    }

    /// `F.linear(hidden_states, self.weight)`, the weight adapted where LoRA's targets name it.
    /// What the adapter adds lives as long as the router runs.
    fn router_logits(
        &self,
        layer: &BoundLayer<'a>,
        spec: &Linear,
        x: &Tensor<'a>,
    ) -> (Tensor<'a>, Option<(Tensor<'a>, Delta<'a>)>) {
        let bound = layer.linear(spec);
        let (Some(adapter), Weight::Plain(weight)) = (bound.adapter, bound.weight) else {
            return (x.flattened().through(&bound), None);
        };
        let (input, output) = (bound.shape.input, bound.shape.output);
        let expert = Expert { weight, experts: 1, input, output, adapter: Some(adapter) };
        let delta = Delta::activate(self.machine, &expert, adapter);
        let x = x.flattened();
        let adapted = delta.adapted(self.machine, &expert);
        let mut state = self.machine.state.borrow_mut();
        let value = state.linear_with(&x.value, bound.shape, &adapted.value);
        drop(state);
        (Tensor { machine: self.machine, value }, Some((adapted, delta)))
    }

    /// `grouped_mm_experts_forward`: rows sorted by expert, two grouped products, rows put back and summed.
    fn chosen_experts(
        &self,
        layer: &BoundLayer<'a>,
        moe: &Moe,
        x: &Tensor<'a>,
        weights: &Tensor<'a>,
        indices: Tensor<'a>,
    ) -> Tensor<'a> {
        let [first, last] = layer.experts[..] else { return x.clone() };
        // peft wraps the last matrices first
        let last_delta = last.adapter.map(|adapter| Delta::activate(self.machine, &last, adapter));
        let first_delta = first.adapter.map(|adapter| Delta::activate(self.machine, &first, adapter));
        let rows = indices.value.numel;
        let [ids, order] = indices.sorted();
        let selected = {
            let tokens = order.fresh(rows, Dtype::I64, "order // k");
            x.rows_at(&tokens, rows, moe.hidden)
        };
        let row_weights = weights.rows_at(&order, rows, 1);
        let short = ids.fresh(rows, Dtype::I32, "ids");
        let counts = ids.fresh(moe.experts, Dtype::I32, "tokens per expert");
        let offsets = ids.fresh(moe.experts, Dtype::I32, "offsets");
        self.machine.state.borrow_mut().scratch(1023, "cumsum (temporary storage)");
        let padding = ids.fresh(rows, Dtype::Bool, "sentinels");
        // what an adapter makes of them stays until its module is left
        let first_matrices = self.matrices(&first, first_delta.as_ref());
        let selected = selected.masked_fill_in_place(&padding);
        let mut output = selected.grouped(&first_matrices, &offsets, &first);
        output = output.masked_fill(&padding);
        output = {
            let half = output.value.numel / 2;
            let [gate, up] = output.split([half, half]);
            let active = gate.activated(moe.act);
            active.mul(&up)
        };
        let last_matrices = self.matrices(&last, last_delta.as_ref());
        output = output.grouped(&last_matrices, &offsets, &last);
        output = output.masked_fill(&padding);
        let mut weighted = output.mul_rows(&row_weights);
        let inverse = order.fresh(rows, Dtype::I64, "inverse order");
        drop(order.fresh(rows, Dtype::I64, "range"));
        weighted = weighted.rows_at(&inverse, rows, moe.hidden);
        let sum = weighted.split_heads().sum_groups(moe.top_k);
        let result = sum.to(x.value.dtype);
        drop((row_weights, ids, order, selected));
        drop((short, counts, offsets, padding));
        drop((output, weighted, inverse, sum));
        drop((first_matrices, last_matrices));
        result
    }

    /// The matrices with what an adapter adds to them.
    fn matrices(&self, expert: &Expert, delta: Option<&Delta<'a>>) -> Tensor<'a> {
        match delta {
            Some(delta) => delta.adapted(self.machine, expert),
            None => {
                let value = self.machine.state.borrow().parameter_value(expert.weight);
                Tensor { machine: self.machine, value }
            }
        }
    }
}
