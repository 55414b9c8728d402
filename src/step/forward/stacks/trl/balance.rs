//! What trl's trainers add to the loss of a mixture of experts: how unevenly its routers choose.
//!
//! Source: transformers 5.17 models/mixtral `load_balancing_loss_func`, which trl 1.16 trainer/utils.py `_fused_forward` calls for every
//! family; compared with the allocator's trace.

use crate::dtype::Dtype;
use crate::job::Member;
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Moe};
use crate::scenario::software::HeadCode;
use crate::step::autograd::Edge;
use crate::step::forward::Pass;
use crate::step::tensor::Tensor;
use crate::step::what::{EXPERTS, What, torch};

static COUNTS: What = What::own("tokens of experts", "how many tokens chose each expert", EXPERTS);
static WEIGHTED: What = What::own(
    "mask of choices",
    "for each choice of an expert whether its token counts, a number each",
    EXPERTS,
);
static MASK: What = What::own("mask (float)", "whether each token counts, a number each", EXPERTS);

/// The experts that a loss may balance ([`Loss::balances`](crate::job::Loss::balances)).
pub(in crate::step) fn balanced<'a>(architecture: &'a Architecture, member: &Member) -> Option<&'a Moe> {
    // up to 1.6 it was so only where the model's configuration asks for `output_router_logits`
    if member.software().head != HeadCode::Trl || member.has_all_logits_of_trl() {
        return None;
    }
    architecture.blocks.iter().find_map(|block| match &block.ffn {
        FeedForward::Moe(moe) => Some(&**moe).filter(|moe| moe.balanced),
        FeedForward::Dense(_) | FeedForward::None => None,
    })
}

impl<'a> Pass<'_, 'a> {
    /// Keeps a router's logits for the loss (`OutputRecorder`). What is recomputed is not recorded again.
    pub(in crate::step::forward) fn note_gate(&self, logits: &Tensor<'a>) {
        let asked = self.balances && balanced(self.architecture, self.member).is_some();
        if asked && !self.machine.with(|state| state.recomputing) {
            self.gates.borrow_mut().push(logits.clone());
        }
    }

    /// `load_balancing_loss_func(router_logits, num_experts, num_experts_per_tok, attention_mask)`.
    pub(in crate::step::forward) fn balance(&self) -> Option<Tensor<'a>> {
        let moe = balanced(self.architecture, self.member).filter(|_| self.balances)?;
        let Moe { experts, top_k, .. } = *moe;
        let zeros = || self.constant(experts, Dtype::F32, &torch::ZEROS);
        let (mut counts, mut sums) = (zeros(), zeros());
        let tokens = self.batch.tokens();
        // texts without padding come without a mask: every token counts
        let is_masked = !self.batch.mask.is_packed();
        let mask = is_masked.then(|| self.of_tokens(tokens, Dtype::F32, &MASK));
        let mut rows = None;
        let mut chosen = None;
        for gate in &*self.gates.borrow() {
            let probabilities = gate.softmax();
            // nobody asks for the values: their graph goes at once
            let ungraphed = probabilities.clone().with(|value| value.edge = Edge::None);
            chosen.replace(ungraphed.top(top_k, experts));
            counts = {
                let into = zeros();
                if is_masked {
                    drop(self.of_tokens(tokens.saturating_mul(top_k), Dtype::F32, &WEIGHTED));
                }
                let sum = self.constant(experts, Dtype::F32, &COUNTS);
                drop(into);
                sum
            };
            sums = {
                let mut counted = probabilities.to(Dtype::F32);
                if let Some(mask) = &mask {
                    counted = counted.mul_rows(mask);
                }
                let sum = counted.sum_groups(tokens);
                drop(counted);
                sums.add(&sum)
            };
            let counted = self.constant(1, Dtype::F32, &torch::SUM);
            rows.replace(self.constant(1, Dtype::F32, &torch::ADD));
            drop(counted);
        }
        let rows = rows?;
        let share = self.constant(experts, Dtype::F32, &torch::DIV);
        let mean = sums.mul_constant(&rows);
        let loss = mean.mul_constant(&share).sum_rows(experts).scale();
        drop((counts, chosen));
        Some(loss)
    }
}
