//! models/llama4/modeling_llama4.py: every expert is given every token, each times a score that is 0 where the expert was not chosen.

use crate::dtype::Dtype;
use crate::model::blocks::Moe;
use crate::step::autograd::{Grad, Node, Results, fresh, only};
use crate::step::forward::router::{Asked, Routed};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::machine::State;
use crate::step::ops::experts::Expert;
use crate::step::ops::pointwise::pass_backward;
use crate::step::parallel::Module;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{EXPERTS, Source, What, roles, torch};

static SCORES: What = What::own(
    "scatter",
    "a score for each token and expert: minus infinity where the expert was not chosen",
    EXPERTS,
);
static TEMPERATURES: What =
    What::own("attn_scales", "a number for each position by which queries are multiplied", Source::Modeling);
static REPEATED: What = What::own("repeat", "all tokens once for every expert, chosen or not", EXPERTS);

impl<'a> Pass<'_, 'a> {
    /// `Llama4Router.forward`.
    pub(in crate::step::forward) fn every_expert_router(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        let moe = asked.moe;
        let (logits, _adapted) = self.router_logits(asked, false);
        let [best, indices] = logits.top(moe.top_k, moe.experts);
        let mut scores = best.scattered_at(&indices, logits.value.numel);
        scores = {
            let open = {
                let float = scores.to(Dtype::F32);
                float.keeping_output(&torch::SIGMOID)
            };
            open.to(logits.value.dtype)
        };
        drop(best);
        Routed { logits, weights: scores, indices }
    }

    /// `attn_scales`: a number for each position, by which queries that are not rotated are multiplied.
    pub(in crate::step::forward) fn temperatures(&self) -> Tensor<'a> {
        let length = self.batch.length;
        let make = || self.of_positions(length, Dtype::F32, &TEMPERATURES);
        let positions = {
            let range = self.of_positions(length, Dtype::I64, &torch::RANGE);
            range.fresh(length, Dtype::I64, &torch::POSITIONS)
        };
        // each operation's result takes the place of the one before
        let scales = (0..6).fold(make(), |before, _| {
            let next = make();
            drop(before);
            next
        });
        drop(positions);
        scales
    }

    /// `Llama4TextMoe.forward`.
    pub(in crate::step::forward) fn every_expert(
        &self,
        layer: &BoundLayer<'a>,
        moe: &Moe,
        x: &Tensor<'a>,
    ) -> Tensor<'a> {
        let x = &x.flattened();
        let Routed { logits, weights: scores, indices } =
            self.within("router", &roles::ROUTER, || self.routed(layer, moe, x));
        drop(indices);
        let (given, made) = self.within("experts", &roles::EXPERTS, || {
            let [first, last] = layer.experts[..] else {
                return (x.clone(), x.unmodelled("experts without two layers"));
            };
            let mut given = x.for_each_expert(moe.experts);
            given = {
                let column = scores.in_order_of_experts();
                given.mul_rows(&column)
            };
            let module = Module::of([Some(first.weight), Some(last.weight)]);
            let made = self
                .machine
                .module(module, &given, |given| self.all_experts(layer, moe, given, [&first, &last]));
            (given, made)
        });
        let output = match &moe.shared {
            None => made.split_heads().sum_groups(moe.experts),
            Some(shared) => {
                let output = self.shared_experts(layer, shared, x);
                let sum = made.split_heads().sum_groups(moe.experts);
                output.add_in_place(&sum)
            }
        };
        drop(scores);
        drop(given);
        drop(made);
        self.routed.replace(Some(logits));
        output.unflattened()
    }

    /// `Llama4TextExperts.forward`: two batched products, a matrix for each expert.
    fn all_experts(
        &self,
        layer: &BoundLayer<'a>,
        moe: &Moe,
        given: &Tensor<'a>,
        [first, last]: [&Expert; 2],
    ) -> Tensor<'a> {
        // peft finds no layers among them
        let both = given.batched(first);
        let half = both.value.numel / 2;
        let [gate, up] = both.split([half, half]);
        let product = {
            let active = gate.activated(moe.act, &layer.params);
            up.mul(&active)
        };
        product.batched(last)
    }
}

impl<'m> Tensor<'m> {
    /// `full_like(…).scatter_(1, indices, x)`: the indices are kept.
    fn scattered_at(&self, indices: &Tensor<'m>, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], gather_backward);
            state.save(node, indices.value.storage);
            let whole = Value { numel, ..*x };
            state.new_like(&whole, x.dtype, &SCORES, node.output(0))
        })
    }

    /// `x.repeat(count, 1)`; its gradient is the sum over them.
    fn for_each_expert(&self, count: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let own = x.numel;
            let node = state.node([x], move |state, _, grad| {
                only(fresh(state, grad, (own, Layout::Tokens), &torch::SUM))
            });
            let whole = Value { numel: x.numel.saturating_mul(count), ..*x };
            state.new_like(&whole, x.dtype, &REPEATED, node.output(0))
        })
    }

    /// `x.transpose(0, 1).reshape(-1, 1)`: a copy, whose gradient is a view.
    fn in_order_of_experts(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            state.new_like(x, x.dtype, &torch::CONTIGUOUS, node.output(0))
        })
    }
}

/// `grad.gather(1, indices)`.
fn gather_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let best = node.inputs[0];
    only(fresh(state, grad, (best.numel, best.layout), &torch::GATHER))
}
