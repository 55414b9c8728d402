//! trl's SFTTrainer and DPOTrainer: transformers' modules up to the last hidden state, then the log-probability of every
//! label without all logits.
//!
//! Source: trl 1.16 trainer/utils.py `add_fused_lm_head`, trainer/sft_trainer.py `compute_loss` and trainer/dpo_trainer.py
//! `_compute_loss`; the first compared with the allocator's trace.

pub(in crate::step) mod log_probs;

use super::common::{not_compared, texts};
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::memory::Category;
use crate::model::Architecture;
use crate::scenario::{Mask, StepTime};
use crate::step::forward::inputs::Shared;
use crate::step::forward::stacks::trl::log_probs::{Asked, Head};
use crate::step::forward::{Given, Hidden, Pass, adapters, find};
use crate::step::ops::linear::Weight;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static LOG_SIGMOID: What = What::step("log_sigmoid", "the logarithm of a sigmoid");
static LABEL_MASK: What = What::own("label mask", "which tokens have a label, one byte each", Source::Loss);
static TOKEN_IDS: What = What::own("token ids", "the prompt's and the answer's, side by side", Source::Loss);
static MASK: What = What::own("mask", "the prompt's and the answer's, side by side", Source::Loss);
static PROMPT: What = What::own("prompt", "which tokens are of the prompt, one byte each", Source::Loss);

/// Refuses what trl refuses, or what was not compared.
pub(super) fn check(architecture: &Architecture, member: &Member, batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: String| Err(Issue::error(field, message).with_fix(fix));
    if !architecture.family.is_some_and(|family| family.stacks.trl) {
        let message = format!("{} with trl is not modelled", architecture.model_type);
        return Err(not_compared(message, |stacks| stacks.trl));
    }
    if adapters::adapts_head(member, architecture.head.linear.name) {
        let message =
            "trl scores labels with the head's own weight: it refuses an adapter on the output head";
        return refuse(Field::LoraTargets, message.into(), "leave the head out".into());
    }
    if batch.mask == Mask::Packed && batch.sequences > 1 {
        let message = "trl packs texts into one row of the whole micro-batch";
        return refuse(Field::Mask, message.into(), "choose padding-free".into());
    }
    if member.step_time() == StepTime::InBackward {
        let message = "trl's trainers step after backward";
        return refuse(Field::Step, message.into(), "let the optimizer step after backward".into());
    }
    Ok(())
}

/// What the fused head says of every label.
pub(in crate::step) struct Scored<'m> {
    log_probs: Tensor<'m>,
    /// Entropies, mean logits, and whether the label is the likeliest, as far as they are asked for.
    others: Vec<Tensor<'m>>,
    /// Which positions have a label that is scored.
    mask: Tensor<'m>,
}

impl<'m> Scored<'m> {
    /// The log-probabilities alone.
    pub fn into_log_probs(self) -> Tensor<'m> {
        self.log_probs
    }
}

impl<'a> Pass<'_, 'a> {
    /// `model(…, labels=labels, fused_lm_head=True)` and what `compute_loss` makes of it; there are no logits to return.
    pub(in crate::step::forward) fn trl_head(
        &self,
        hidden: Tensor<'a>,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        // the first token of a text is no other's label
        let labels = self.batch.tokens().saturating_sub(texts(self.batch).0);
        let Scored { log_probs, others, mask } =
            self.fused_head(hidden, labels, Asked { entropy: true, mean_logits: false, is_top1: true });
        replace();
        // accelerate's autocast is around the model alone
        self.leave_autocast();
        let losses = log_probs.negate();
        let positions = mask.value.numel;
        let loss = losses.sum_rows(positions);
        // how many labels there are, and how many of them were the likeliest
        self.count_true(positions);
        self.count_true(positions);
        drop((log_probs, others, losses));
        drop(mask);
        (loss, Vec::new())
    }

    /// What `add_fused_lm_head` makes of the last hidden states: so many labels scored.
    fn fused_head(&self, hidden: Tensor<'a>, labels: u64, asked: Asked) -> Scored<'a> {
        let layer = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let width = layer.shape.input;
        // the last token of a row is scored by none
        let positions = self.batch.tokens().saturating_sub(self.batch.sequences);
        let Weight::Plain(weight) = layer.weight else {
            let log_probs = hidden.unmodelled("a 4-bit output head under trl");
            let mask = self.constant(positions, Dtype::Bool, &LABEL_MASK);
            return Scored { log_probs, others: Vec::new(), mask };
        };
        let head = Head { shape: layer.shape, weight, bias: layer.bias };
        let mask = self.constant(positions, Dtype::Bool, &LABEL_MASK);
        let scores = {
            let earlier = hidden.slice(positions.saturating_mul(width));
            let rows = earlier.rows_where(&mask, labels, width);
            let targets = {
                // those of the batch
                let all = self.machine.unassigned().with(|value| value.dtype = Dtype::I64);
                all.rows_where(&mask, labels, 1)
            };
            rows.log_probs(head, &targets, asked)
        };
        let log_probs = scores.log_probs.scattered_where(&mask);
        let others = scores.others.iter().map(|scores| scores.scattered_where(&mask)).collect();
        drop(scores);
        self.count_true(positions);
        drop(hidden);
        Scored { log_probs, others, mask }
    }

    /// What is asked of the answers behind prompts of that length.
    pub fn label_log_probs(
        &self,
        hidden: Hidden<'a>,
        prompt: u64,
        asked: Asked,
    ) -> (Scored<'a>, Given<Shared<Value>>) {
        let unscored = self.batch.sequences.saturating_mul(prompt.max(1));
        let labels = self.batch.tokens().saturating_sub(unscored);
        let scored = self
            .machine
            .as_category(Category::Logits, &roles::HEAD, || self.fused_head(hidden.states, labels, asked));
        self.leave_autocast();
        (scored, hidden.given)
    }

    /// `input_ids.masked_fill(completion_mask == 0, -100)` of trainer/dpo_trainer.py `_compute_loss`.
    pub fn preference_labels(&self) -> Tensor<'a> {
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
            let losses = delta.scale().keeping_input(&LOG_SIGMOID).negate();
            losses.sum_rows(half)
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
    pub fn reward_loss(&self, scored: &Scored<'a>, prompt: u64, referred: bool) -> Tensor<'a> {
        let answers = self.batch.length.saturating_sub(prompt).saturating_mul(self.batch.sequences);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let scores = scored.log_probs.slice(answers);
            // those of the round's earlier passes
            let earlier = self.machine.unassigned().with(|value| value.numel = answers);
            let ratio = scores.minus(&earlier).keeping_output(&torch::EXP);
            let bounded = ratio.keeping_input(&torch::CLAMP);
            let least = ratio.scale().mul(&bounded.scale());
            let weighted = least.negate().scale();
            let loss = if referred {
                let divergence = earlier.minus(&scores).keeping_output(&torch::EXP);
                weighted.add(&divergence.add_number().scale())
            } else {
                weighted
            };
            loss.scale().sum_rows(answers)
        })
    }

    /// The sum of a boolean tensor, which is made one of numbers first.
    fn count_true(&self, numel: u64) {
        self.machine.with(|state| state.scratch(numel.saturating_mul(Dtype::I64.bytes()), &torch::SUM));
    }
}
