//! What trl's trainers make of the log-probabilities of answers: preferences (DPO, KTO) and reinforcement (GRPO, RLOO).
//!
//! Source: trl 1.16 trainer/dpo_trainer.py, trainer/kto_trainer.py, trainer/grpo_trainer.py and trainer/rloo_trainer.py
//! `_compute_loss`, compared with the allocator's trace.

use super::Scored;
use super::log_probs::Asked;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::LossKernel;
use crate::step::forward::inputs::Shared;
use crate::step::forward::{Given, Hidden, Pass};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static TOKEN_IDS: What = What::own("token ids", "the prompt's and the answer's, side by side", Source::Loss);
static MASK: What = What::own("mask", "the prompt's and the answer's, side by side", Source::Loss);
static PROMPT: What = What::own("prompt", "which tokens are of the prompt, one byte each", Source::Loss);

impl<'a> Pass<'_, 'a> {
    /// What is asked of the answers behind prompts of that length.
    pub fn label_log_probs(
        &self,
        hidden: Hidden<'a>,
        prompt: u64,
        asked: Asked,
    ) -> (Scored<'a>, Given<Shared<Value>>) {
        if self.member.loss == LossKernel::LogSoftmax {
            return self.all_log_probs(hidden);
        }
        if self.member.loss.replaces_fused_head() {
            return self.log_probs_of_all(hidden);
        }
        let unscored = self.batch.sequences.saturating_mul(prompt.max(1));
        let labels = self.batch.tokens().saturating_sub(unscored);
        let scored = self
            .machine
            .as_category(Category::Logits, &roles::HEAD, || self.fused_head(hidden.states, labels, asked));
        self.leave_autocast();
        let Scored { log_probs, others, logits, mask, balance } = scored;
        let balance = balance.map(|balance| self.further_result(&balance));
        let scored = Scored { log_probs: self.leave_forward(log_probs), others, logits, mask, balance };
        (scored, hidden.given)
    }

    /// `input_ids.masked_fill(completion_mask == 0, -100)` of the trainers' `_compute_loss`, which asks the fused head.
    pub fn answer_labels(&self) -> Tensor<'a> {
        if self.member.loss.replaces_fused_head() {
            return self.machine.unassigned();
        }
        self.machine.as_category(Category::Batch, &roles::HEAD, || {
            let _prompt = self.of_tokens(self.batch.tokens(), Dtype::Bool, &PROMPT);
            self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::LABELS)
        })
    }

    /// `-F.logsigmoid(beta * delta_score)` of trainer/dpo_trainer.py `_compute_loss`. The metrics that it logs on the way
    /// are gone before backward and are not followed.
    pub fn preference_loss(
        &self,
        policy_scores: &Scored<'a>,
        reference_scores: Option<&Scored<'a>>,
    ) -> Tensor<'a> {
        let half = self.batch.sequences / 2;
        let pairs = |scored: &Scored<'a>| {
            let row = scored.log_probs.value.numel / self.batch.sequences.max(1);
            scored.log_probs.sum_rows(row).chunks(&[half, half])
        };
        // those that come with the batch
        let precomputed = || {
            let sums =
                self.machine.unassigned().with(|value| (value.numel, value.dtype) = (half, Dtype::F32));
            vec![sums.clone(), sums]
        };
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let policy = pairs(policy_scores);
            let reference = reference_scores.map_or_else(precomputed, pairs);
            let ratios = policy.iter().zip(&reference).map(|(policy, reference)| policy.minus(reference));
            let ratios: Vec<Tensor<'a>> = ratios.collect();
            let [chosen, rejected] = &ratios[..] else {
                return policy_scores.log_probs.unmodelled("preferences without pairs");
            };
            let delta = chosen.minus(rejected);
            let losses = delta.scale().keeping_input(&torch::LOG_SIGMOID).negate();
            losses.sum_rows(half)
        })
    }

    /// `_compute_kl_logps` of trainer/kto_trainer.py: the log-probability of each of a batch of answers.
    pub fn answer_scores(&self, prompt: u64, asked: Asked) -> Tensor<'a> {
        let labels = self.answer_labels();
        let scored = self.label_log_probs(self.hidden(), prompt, asked).0.into_log_probs();
        let sums = scored.sum_rows(scored.value.numel / self.batch.sequences.max(1));
        drop((labels, scored));
        sums
    }

    /// The loss of trainer/kto_trainer.py `_compute_loss`: good answers and bad ones, each by how much likelier it has become
    /// than answers to other prompts have. The metrics that it logs on the way are gone before backward and are not followed.
    pub fn desirability_loss(
        &self,
        policy: &Scored<'a>,
        own_divergence: Option<&Tensor<'a>>,
        reference: Option<&(Tensor<'a>, Scored<'a>)>,
    ) -> Tensor<'a> {
        let sequences = self.batch.sequences;
        let sums =
            |scored: &Scored<'a>| scored.log_probs.sum_rows(scored.log_probs.value.numel / sequences.max(1));
        // those that come with the batch
        let brought =
            || self.machine.unassigned().with(|value| (value.numel, value.dtype) = (sequences, Dtype::F32));
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let policy = sums(policy);
            let scores = reference.map_or_else(brought, |(_, scored)| sums(scored));
            let divergence = reference.map_or_else(brought, |(divergence, _)| divergence.clone());
            let divergence = own_divergence.map(|own| own.minus(&divergence));
            let ratios = policy.minus(&scores);
            let losses = ratios.scale().keeping_output(&torch::SIGMOID).negate();
            drop(divergence);
            losses.sum_rows(sequences)
        })
    }

    /// `torch.cat([prompt_ids, completion_ids])`, the same of the masks and what is labelled of it, of trainer/grpo_trainer.py.
    pub fn reward_labels(&self) -> [Tensor<'a>; 3] {
        self.machine.as_category(Category::Batch, &roles::HEAD, || {
            [&TOKEN_IDS, &MASK, &torch::LABELS]
                .map(|what| self.of_tokens(self.batch.tokens(), Dtype::I64, what))
        })
    }

    /// The loss of trainer/grpo_trainer.py `_compute_loss`: how much likelier each token of an answer has become, that within
    /// bounds, both times the answer's advantage, the lesser of them. Whose levels, normalisers and bounds are other (GSPO,
    /// DAPO, Dr. GRPO) makes tensors of the same sizes or of less.
    pub fn reward_loss(
        &self,
        scored: &Scored<'a>,
        prompt: u64,
        [referred, corrected]: [bool; 2],
    ) -> Tensor<'a> {
        let answers = self.batch.length.saturating_sub(prompt).saturating_mul(self.batch.sequences);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let scores = scored.log_probs.slice(answers);
            // those of the round's earlier passes
            let earlier = self.machine.unassigned().with(|value| value.numel = answers);
            let ratio = scores.minus(&earlier).keeping_output(&torch::EXP);
            let bounded = ratio.keeping_input(&torch::CLAMP);
            let least = ratio.scale().mul(&bounded.scale());
            let weighted = if corrected { least.negate().scale() } else { least.negate() };
            let loss = if referred {
                let divergence = earlier.minus(&scores).keeping_output(&torch::EXP);
                weighted.add(&divergence.add_number().scale())
            } else {
                weighted
            };
            loss.scale().sum_rows(answers)
        })
    }

    /// The loss of trainer/rloo_trainer.py `_compute_loss`: the same of one number for each answer. How far it is from a
    /// reference is part of its reward.
    pub fn whole_reward_loss(&self, scored: &Scored<'a>, prompt: u64) -> Tensor<'a> {
        let sequences = self.batch.sequences;
        let length = self.batch.length.saturating_sub(prompt);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let scores = scored.log_probs.slice(length.saturating_mul(sequences)).copied();
            let score = scores.times_buffer().sum_rows(length);
            let earlier = self.machine.unassigned().with(|value| value.numel = sequences);
            let ratio = score.minus(&earlier).keeping_output(&torch::EXP);
            let bounded = ratio.keeping_input(&torch::CLAMP);
            let least = ratio.scale().mul(&bounded.scale());
            drop(scores);
            least.negate().sum_rows(sequences)
        })
    }
}
