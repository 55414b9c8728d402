//! The router of a mixture of experts: which tokens an expert is given, and a loss that balances them. Deepseek's gives as many to
//! each, as it was run (`--moe-pad-expert-input-to-capacity`); mixtral's and qwen3_moe's what was chosen.
//!
//! Source: megatron/core/transformer/moe/{router,moe_utils}.py of Megatron-core 0.16.1.

use crate::dtype::Dtype;
use crate::model::blocks::Moe;
use crate::model::modeling::Router;
use crate::step::autograd::{Grad, Results, fresh, only, share};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

const ROUTER: Source = Source::At("Megatron-core, megatron/core/transformer/moe/moe_utils.py");

static SCATTERED: What =
    What::own("scatter", "a number for each token and expert, 0 for those not chosen", ROUTER);
static GATHERED: What =
    What::own("scatter (gradient)", "of what was put to the experts that were chosen, its gradient", ROUTER);
static AS_NUMBERS: What = What::own("int", "whole numbers, one per token and expert", ROUTER);
static CHOICE: What =
    What::own("routing map", "which expert each token goes to, one byte per token and expert", ROUTER);
static GROUP_MASK: What = What::own("group mask", "which groups of experts may be chosen", ROUTER);
static SCORE_MASK: What =
    What::own("score mask", "which experts may be chosen, per token and expert", ROUTER);
static TOKENS_OF_EXPERTS: What = What::own(
    "tokens per expert",
    "how many tokens chose each expert, for the loss that balances them",
    ROUTER,
);

/// What a router decides.
pub(super) struct Routed<'a> {
    /// How much each expert counts for each token.
    pub probabilities: Tensor<'a>,
    /// Which expert each token goes to.
    pub map: Tensor<'a>,
}

/// How many tokens an expert is given of so many (`get_capacity`, with a factor of 1).
pub(super) fn capacity(tokens: u64, moe: &Moe) -> u64 {
    tokens.saturating_mul(moe.top_k).div_ceil(moe.router.output.max(1))
}

impl<'a> Pass<'_, 'a> {
    /// Whether each expert is given as many tokens (`--moe-pad-expert-input-to-capacity`, a factor of 1), which softmax before
    /// the choice goes with here.
    pub(super) fn fills_up(&self) -> bool {
        self.modeling.router == Router::SoftGroups
    }

    /// `TopKRouter.forward` with a loss that balances each sequence (`seq_aux_loss`) or all tokens (`aux_loss`), which allocate
    /// the same.
    pub(super) fn te_routed(&self, layer: &BoundLayer<'a>, moe: &Moe, x: &Tensor<'a>) -> Routed<'a> {
        let logits = x.megatron_through(&layer.linear(&moe.router));
        let chosen = self.chosen(moe, &logits);
        let Routed { probabilities, map } =
            if self.fills_up() { self.filled_up(moe, chosen) } else { chosen };
        // a checkpoint's first pass has no loss that balances, of which nothing stays: it is run as the second one is
        let probabilities = self.balancing(moe, &logits, &probabilities);
        drop(logits);
        Routed { probabilities, map }
    }

    /// `topk_routing_with_score_function`: softmax before the choice, or of what was chosen (`--moe-router-pre-softmax` or not).
    fn chosen(&self, moe: &Moe, logits: &Tensor<'a>) -> Routed<'a> {
        let (all, dtype) = (logits.value.numel, logits.value.dtype);
        let (scores, weights, indices) = if self.fills_up() {
            let scores = logits.softmax_float().to(dtype);
            let [best, indices] = if moe.groups[0] > 1 {
                self.best_of_groups(moe, &scores)
            } else {
                scores.top(moe.top_k, moe.router.output)
            };
            let scaled = best.scale();
            drop(best);
            (scores, scaled, indices)
        } else {
            let [scores, indices] = logits.top(moe.top_k, moe.router.output);
            let weights = scores.softmax_float().to(dtype);
            (scores, weights, indices)
        };
        let probabilities = {
            let zeros = logits.beside(all, dtype, &torch::ZEROS);
            let probabilities = weights.put_to(&indices, all);
            drop(zeros);
            probabilities
        };
        let map = logits.choice();
        drop(scores);
        drop(weights);
        Routed { probabilities, map }
    }

    /// `group_limited_topk`: the groups whose best scores add up to most. No gradient flows through their choice.
    fn best_of_groups(&self, moe: &Moe, scores: &Tensor<'a>) -> [Tensor<'a>; 2] {
        let (all, dtype) = (scores.value.numel, scores.value.dtype);
        let [groups, chosen] = moe.groups;
        let rows = all / moe.router.output.max(1);
        let per_group = rows.saturating_mul(groups);
        let best_of_each = per_group.saturating_mul(moe.top_k / chosen.max(1));
        let best = self.of_tokens(best_of_each, dtype, &torch::TOPK);
        let best_indices = self.of_tokens(best_of_each, Dtype::I64, &torch::TOPK_INDICES);
        let group_scores = self.of_tokens(per_group, dtype, &torch::SUM).then_drop(best);
        let group_values = self.of_tokens(rows.saturating_mul(chosen), dtype, &torch::TOPK);
        let group_indices = self
            .of_tokens(rows.saturating_mul(chosen), Dtype::I64, &torch::TOPK_INDICES)
            .then_drop(group_values);
        let group_mask = self.of_tokens(per_group, dtype, &GROUP_MASK);
        let score_mask = self.of_tokens(all, dtype, &SCORE_MASK);
        let masked = {
            let own = self.of_tokens(all, Dtype::Bool, &CHOICE);
            let others = self.of_tokens(all, Dtype::Bool, &torch::OTHERS).then_drop(own);
            scores.masked_fill(&others)
        };
        let best = masked.top(moe.top_k, moe.router.output);
        drop(best_indices);
        drop((group_scores, group_indices, group_mask, score_mask));
        drop(masked);
        best
    }

    /// `apply_router_token_dropping` with `pad_to_capacity`: the likeliest tokens of each expert, as many of all.
    fn filled_up(&self, moe: &Moe, chosen: Routed<'a>) -> Routed<'a> {
        let (all, dtype) = (chosen.probabilities.value.numel, chosen.probabilities.value.dtype);
        let given = capacity(self.batch.tokens(), moe).saturating_mul(moe.router.output);
        let values = self.of_tokens(given, dtype, &torch::TOPK);
        let indices = self.of_tokens(given, Dtype::I64, &torch::TOPK_INDICES);
        let map = {
            let zeros = self.of_tokens(all, dtype, &torch::ZEROS);
            let scattered = self.of_tokens(all, dtype, &SCATTERED).then_drop(zeros);
            self.of_tokens(all, Dtype::Bool, &CHOICE).then_drop(scattered)
        };
        let probabilities = chosen.probabilities.mul_constant(&map);
        drop(values);
        drop(indices);
        drop(chosen);
        Routed { probabilities, map }
    }

    /// `compute_routing_scores_for_aux_loss` and `_apply_seq_aux_loss`: the probabilities, which lead to the loss too.
    fn balancing(&self, moe: &Moe, logits: &Tensor<'a>, probabilities: &Tensor<'a>) -> Tensor<'a> {
        let all = logits.value.numel;
        let chosen = (all / moe.router.output.max(1)).saturating_mul(moe.top_k);
        let scores = logits.softmax_float();
        let values = logits.beside(chosen, Dtype::F32, &torch::TOPK);
        let indices = logits.beside(chosen, Dtype::I64, &torch::TOPK_INDICES);
        let map = logits.choice();
        drop(values);
        drop(indices);
        let counts = self.tokens_of_experts(moe, &map);
        probabilities.leading_to_loss(&scores, &counts)
    }

    /// `routing_map.sum(dim=0)`, for which the map becomes whole numbers.
    pub(super) fn tokens_of_experts(&self, moe: &Moe, map: &Tensor<'a>) -> Tensor<'a> {
        let counts = self.constant(moe.router.output, Dtype::I64, &TOKENS_OF_EXPERTS);
        drop(map.beside(map.value.numel, Dtype::I64, &AS_NUMBERS));
        counts
    }
}

impl<'m> Tensor<'m> {
    /// Another tensor with as many rows, through which no gradient flows.
    pub(super) fn beside(&self, numel: u64, dtype: Dtype, what: &'static What) -> Tensor<'m> {
        self.machine.tensor(|state| {
            let storage = state.alloc_for(self.value.storage, numel, dtype, what);
            Value::plain(storage, numel, dtype)
        })
    }

    /// `torch.zeros_like(logits).int().scatter(1, top_indices, 1).bool()`.
    fn choice(&self) -> Tensor<'m> {
        let (all, dtype) = (self.value.numel, self.value.dtype);
        let numbers = {
            let zeros = self.beside(all, dtype, &torch::ZEROS);
            let numbers = self.beside(all, Dtype::I32, &AS_NUMBERS);
            drop(zeros);
            numbers
        };
        let scattered = self.beside(all, Dtype::I32, &SCATTERED);
        drop(numbers);
        self.beside(all, Dtype::Bool, &CHOICE).then_drop(scattered)
    }

    /// Itself, once another tensor has gone.
    fn then_drop(self, other: Tensor<'m>) -> Tensor<'m> {
        drop(other);
        self
    }

    /// `zeros.scatter(1, index, x)`: keeps the index.
    fn put_to(&self, index: &Tensor<'m>, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, grad| {
                let chosen = node.inputs[0];
                only(fresh(state, grad, (chosen.numel, chosen.layout), &GATHERED))
            });
            state.save(node, index.value.storage);
            let whole = Value { numel, ..*x };
            state.new_like(&whole, x.dtype, &SCATTERED, node.output(0))
        })
    }

    /// `MoEAuxLossAutoScaler`: the same tensor, whose backward begins that of the loss too. Of the loss' own chain only what is
    /// as large as the scores counts: their sum over the tokens, whose gradient is one number for each expert.
    fn leading_to_loss(&self, scores: &Tensor<'m>, counts: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let experts = counts.value.numel;
            let node = state.node([x, &scores.value], move |state, node, grad| {
                let scores = node.inputs[1];
                let sums = state.alloc(experts, scores.dtype, &torch::SUM);
                let mut results: Results = only(share(state, grad));
                results[1] = Some(Grad::new(sums, scores.numel, scores.dtype, Layout::Tokens));
                results
            });
            state.save(node, counts.value.storage);
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }
}
