//! Routers: which experts a token visits, and how much each counts.
//!
//! Source: the routers of transformers 5.17's models/mixtral, qwen2_moe, deepseek_v2, deepseek_v3, ernie4_5_moe,
//! granitemoe and gpt_oss; most others are copies of one of these.

use super::{BoundLayer, Pass};
use crate::dtype::Dtype;
use crate::model::blocks::Moe;
use crate::model::modeling::Router;
use crate::step::ops::experts::Delta;
use crate::step::parallel::Module;
use crate::step::tensor::Tensor;
use crate::step::what::{EXPERTS, What, torch};

static SCORE_MASK: What =
    What::own("score mask", "which experts may be chosen, one number per token and expert", EXPERTS);
static GROUP_MASK: What = What::own("group mask", "which groups of experts may be chosen", EXPERTS);
static BOOL: What = What::step("bool", "as yes and no, one byte each");

impl Router {
    /// Whether the shared experts run before the router.
    pub(in crate::step) fn shared_first(self) -> bool {
        !matches!(self, Router::Groups | Router::SoftGroups | Router::BestFirst)
    }

    /// Whether the layer, not the block of experts, adds what the shared ones make (models/granitemoeshared).
    pub(in crate::step) fn shared_beside(self) -> bool {
        self == Router::BestFirst
    }
}

/// What a router decides.
pub(super) struct Routed<'m> {
    /// The router's logits, which the block keeps in a variable.
    pub logits: Tensor<'m>,
    /// Weights of the chosen experts.
    pub weights: Tensor<'m>,
    /// Their numbers.
    pub indices: Tensor<'m>,
}

/// What a router is asked: about rows of tokens, and with what an adapter on it does.
#[derive(Clone, Copy)]
pub(in crate::step::forward) struct Asked<'r, 'a> {
    pub layer: &'r BoundLayer<'a>,
    pub moe: &'r Moe,
    pub x: &'r Tensor<'a>,
    pub delta: Option<&'r Delta<'a>>,
}

impl<'a> Pass<'_, 'a> {
    /// Runs the router on rows of tokens: a module whose own parameter its weight is.
    pub(super) fn routed(&self, layer: &BoundLayer<'a>, moe: &Moe, x: &Tensor<'a>) -> Routed<'a> {
        if moe.router_is_linear || moe.layers.is_some() {
            return self.decided(Asked { layer, moe, x, delta: None });
        }
        let router = layer.linear(&moe.router);
        let module = Module::of([Some(router.weight.id()), router.bias]);
        let mut beside = None;
        let mut run = |x: &Tensor<'a>, delta: Option<&Delta<'a>>| {
            self.machine.module(module, x, |x| {
                let Routed { logits, weights, indices } = self.decided(Asked { layer, moe, x, delta });
                beside = Some((logits, indices));
                weights
            })
        };
        let weights = match self.router_matrix(layer, moe) {
            Some(matrix) => Delta::wrapped(self.machine, x, &matrix, run),
            None => run(x, None),
        };
        let (logits, indices) = beside.unwrap_or_else(|| (weights.clone(), weights.clone()));
        Routed { logits, weights, indices }
    }

    fn decided(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        match self.modeling.router {
            Router::Mixtral | Router::Qwen | Router::Plain => self.softmax_router(asked),
            Router::Groups => self.sigmoid_router(asked),
            Router::Sigmoid => self.corrected_sigmoid_router(asked),
            Router::SoftGroups => self.soft_group_router(asked),
            Router::Corrected => self.corrected_router(asked),
            Router::Every => self.every_expert_router(asked),
            Router::BestFirst | Router::BestFirstInPlace => self.best_first_router(asked),
        }
    }

    /// mixtral, qwen: softmax over all experts, the best of them, divided by their sum.
    fn softmax_router(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        let Asked { layer, moe, x, .. } = asked;
        let (logits, _adapted) = match moe.layers {
            Some(_) => (x.through(&layer.linear(&moe.router)), None),
            None => self.router_logits(asked, false),
        };
        let probabilities = if self.modeling.router == Router::Mixtral {
            let float = logits.to(Dtype::F32);
            float.softmax()
        } else {
            logits.softmax_float()
        };
        let [mut weights, indices] = probabilities.top(moe.top_k, moe.experts);
        if self.modeling.router != Router::Plain {
            let sum = weights.sum_rows(moe.top_k);
            weights = weights.divide_rows_in_place(&sum);
        }
        if self.modeling.router != Router::Mixtral {
            weights = weights.to(logits.value.dtype);
        }
        Routed { logits, weights, indices }
    }

    /// granitemoe, gpt_oss: the best logits, softmax over them.
    fn best_first_router(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        let moe = asked.moe;
        let (mut logits, _adapted) = self.router_logits(asked, false);
        if self.modeling.router == Router::BestFirst {
            logits = logits.to(Dtype::F32);
        }
        let [best, indices] = logits.top(moe.top_k, moe.experts);
        let weights = if self.modeling.router == Router::BestFirst {
            best.softmax().to(asked.x.value.dtype)
        } else {
            best.softmax_as_it_is()
        };
        drop(best);
        Routed { logits, weights, indices }
    }

    /// The choice of groups by the sum of their best two scores (`pairs`) or by their best one. No gradient comes back through
    /// it, but autograd notes it: its tensors, returned, live as long as the router runs and no longer.
    fn group_choice(&self, moe: &Moe, scores: &Tensor<'a>, pairs: bool) -> Vec<Tensor<'a>> {
        let numel = scores.value.numel;
        let [groups, groups_chosen] = moe.groups;
        let rows = numel / moe.experts.max(1);
        let per_group = rows.saturating_mul(groups);
        let (saved, group_scores) = if pairs {
            let best = self.of_tokens(per_group.saturating_mul(2), Dtype::F32, &torch::TOPK);
            let indices = self.of_tokens(per_group.saturating_mul(2), Dtype::I64, &torch::TOPK_INDICES);
            let sums = self.of_tokens(per_group, Dtype::F32, &torch::SUM);
            drop(best);
            (indices, sums)
        } else {
            let best = self.of_tokens(per_group, Dtype::F32, &torch::MAX);
            (self.of_tokens(per_group, Dtype::I64, &torch::MAX_INDICES), best)
        };
        let chosen = rows.saturating_mul(groups_chosen);
        let values = self.of_tokens(chosen, Dtype::F32, &torch::TOPK);
        let index = self.of_tokens(chosen, Dtype::I64, &torch::TOPK_INDICES);
        drop(values);
        let group_mask = self.of_tokens(per_group, Dtype::F32, &GROUP_MASK);
        // one group for all is expanded without a copy
        let score_mask = (groups > 1).then(|| self.of_tokens(numel, Dtype::F32, &SCORE_MASK));
        let mut kept = vec![saved, group_scores, index, group_mask];
        kept.extend(score_mask);
        kept
    }

    /// `~score_mask.bool()`.
    fn masked(&self, scores: &Tensor<'a>) -> Tensor<'a> {
        let numel = scores.value.numel;
        let _bools = self.of_tokens(numel, Dtype::Bool, &BOOL);
        self.of_tokens(numel, Dtype::Bool, &torch::OTHERS)
    }

    /// models/deepseek_v3 `DeepseekV3TopkRouter`.
    fn sigmoid_router(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        let moe = asked.moe;
        let (logits, _adapted) = self.router_logits(asked, true);
        let scores = logits.keeping_output(&torch::SIGMOID);
        let mut for_choice = self.of_tokens(scores.value.numel, Dtype::F32, &torch::ADD);
        let choice = self.group_choice(moe, &for_choice, true);
        let others = self.masked(&for_choice);
        for_choice = self.of_tokens(scores.value.numel, Dtype::F32, &torch::MASKED_FILL);
        let chosen = (scores.value.numel / moe.experts.max(1)).saturating_mul(moe.top_k);
        let indices = {
            let values = self.of_tokens(chosen, Dtype::F32, &torch::TOPK);
            let indices = self.of_tokens(chosen, Dtype::I64, &torch::TOPK_INDICES);
            drop(values);
            indices
        };
        let mut weights = scores.gathered(&indices);
        let denominator = {
            let sum = weights.sum_rows(moe.top_k);
            sum.add_number()
        };
        weights = weights.divide_rows_in_place(&denominator);
        weights = weights.scale();
        drop(scores);
        drop((others, for_choice));
        drop(choice);
        drop(denominator);
        Routed { logits, weights, indices }
    }

    /// models/minimax_m2 `MiniMaxM2TopKRouter`: unlike deepseek's, its choice is part of the graph.
    fn corrected_sigmoid_router(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        let moe = asked.moe;
        let (logits, _adapted) = self.router_logits(asked, false);
        let all = {
            let float = logits.to(Dtype::F32);
            float.keeping_output(&torch::SIGMOID)
        };
        let corrected = all.add_number();
        let [best, indices] = corrected.top(moe.top_k, moe.experts);
        let mut weights = all.gathered(&indices);
        let sum = weights.sum_rows(moe.top_k);
        weights = weights.divide_rows_in_place(&sum);
        drop(sum);
        drop(all);
        drop((corrected, best));
        Routed { logits, weights, indices }
    }

    /// models/deepseek_v2 `DeepseekV2TopkRouter`.
    fn soft_group_router(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        let moe = asked.moe;
        let (logits, _adapted) = self.router_logits(asked, true);
        let mut scores = logits.softmax_float();
        let choice = (moe.groups[0] > 1).then(|| {
            let choice = self.group_choice(moe, &scores, false);
            scores = scores.masked_fill(&self.masked(&scores));
            choice
        });
        let [mut weights, indices] = scores.top(moe.top_k, moe.experts);
        weights = weights.scale();
        drop(scores);
        drop(choice);
        Routed { logits, weights, indices }
    }

    /// models/ernie4_5_moe `Ernie4_5_MoeTopKRouter`.
    fn corrected_router(&self, asked: Asked<'_, 'a>) -> Routed<'a> {
        let Asked { moe, x, .. } = asked;
        let outer = self.machine.with(|state| state.autocast.take());
        let (logits, _adapted) = self.router_logits(asked, true);
        let all = logits.softmax();
        let chosen = (all.value.numel / moe.experts.max(1)).saturating_mul(moe.top_k);
        let indices = {
            let corrected = self.of_tokens(all.value.numel, Dtype::F32, &torch::ADD);
            let values = self.of_tokens(chosen, Dtype::F32, &torch::TOPK);
            let indices = self.of_tokens(chosen, Dtype::I64, &torch::TOPK_INDICES);
            drop(corrected);
            drop(values);
            indices
        };
        let mut weights = all.gathered(&indices);
        drop(all);
        weights = {
            let limited = {
                let sum = weights.sum_rows(moe.top_k);
                sum.keeping_input(&torch::CLAMP)
            };
            weights.divided_by_rows(&limited)
        };
        self.machine.with(|state| state.autocast = outer);
        let weights = weights.to(x.value.dtype);
        Routed { logits, weights, indices }
    }
}
