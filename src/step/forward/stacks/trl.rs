//! trl's trainers: transformers' modules up to the last hidden state, then the log-probability of every label without all
//! logits ([`answers`] has those of preferences and reinforcement, [`all_logits`] what earlier versions made of preferences).
//! [`odds`] has the trainers that make all logits, [`comparison`] the one of reward models, [`divergence`] the one of distillation, [`gkd`] the one that makes all
//! logits for it.
//!
//! Source: trl 1.16 trainer/utils.py `add_fused_lm_head` and trainer/sft_trainer.py `compute_loss`; compared with the
//! allocator's trace.

pub(in crate::step) mod all_logits;
mod answers;
pub(in crate::step) mod balance;
mod comparison;
mod divergence;
mod gkd;
mod llama_factory;
pub(in crate::step) mod log_probs;
mod odds;
pub(in crate::step) mod policy;
mod selected;

use std::borrow::Cow;

use super::common::{not_compared, texts};
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{Batch, HeadKind, Member};
use crate::model::Architecture;
use crate::model::modeling::rewards_generically;
use crate::scenario::software::HeadCode;
use crate::scenario::{Mask, StepTime};
use crate::step::forward::classification::with_score;
use crate::step::forward::stacks::trl::log_probs::{Asked, Head};
use crate::step::forward::{Pass, adapters, find};
use crate::step::ops::linear::Weight;
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, torch};

static LABEL_MASK: What = What::own("label mask", "which tokens have a label, one byte each", Source::Loss);

/// The architecture as the trainers build it: a model that rewards has another head.
///
/// # Errors
/// What trl refuses, or what was not compared.
pub(super) fn architecture<'a>(
    architecture: &'a Architecture,
    member: &Member,
    batch: Batch,
) -> Result<Cow<'a, Architecture>, Issue> {
    check(architecture, member, batch)?;
    match member.head {
        HeadKind::Language | HeadKind::Embedding(_) => Ok(Cow::Borrowed(architecture)),
        HeadKind::Numbers(labels) => with_score(architecture, labels, rewards_generically).map(Cow::Owned),
    }
}

/// Refuses what trl refuses, or what was not compared.
fn check(architecture: &Architecture, member: &Member, batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: String| Err(Issue::error(field, message).with_fix(fix));
    if !architecture.family.is_some_and(|family| family.stacks.trl) {
        let message = format!("{} with trl is not modelled", architecture.model_type);
        return Err(not_compared(message, (!member.by_trl_alone).then_some("transformers"), |stacks| {
            stacks.trl
        }));
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
    if member.step_time() == StepTime::InBackward && !steps_by_itself(member) {
        let message = "trl's trainers step after backward";
        return refuse(Field::Step, message.into(), "let the optimizer step after backward".into());
    }
    Ok(())
}

/// Whether transformers' `Trainer`, which trl's trainers are made of, has that optimizer step in backward: LOMO, or a `_layerwise` one
/// that projects gradients.
fn steps_by_itself(member: &Member) -> bool {
    member.training.is_some_and(|training| training.optimizer.is_of_whole_model())
}

/// What the fused head says of every label.
pub(in crate::step) struct Scored<'m> {
    log_probs: Tensor<'m>,
    /// Entropies, mean logits, and whether the label is the likeliest, as far as they are asked for.
    others: Vec<Tensor<'m>>,
    /// All logits, where there are some.
    logits: Option<Tensor<'m>>,
    /// Which positions have a label that is scored.
    mask: Tensor<'m>,
    /// How unevenly experts were chosen, where that is part of the loss.
    balance: Option<Tensor<'m>>,
}

impl<'m> Scored<'m> {
    /// `loss + router_aux_loss_coef * outputs.aux_loss`, where experts are balanced.
    pub fn balanced(&self, loss: Tensor<'m>) -> Tensor<'m> {
        match &self.balance {
            Some(balance) => loss.add(&balance.scale()),
            None => loss,
        }
    }

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
        let Scored { log_probs, others, mask, balance, .. } =
            self.fused_head(hidden, labels, Asked { entropy: true, mean_logits: false, is_top1: true });
        replace();
        // accelerate's autocast is around the model alone
        self.leave_autocast();
        let losses = log_probs.negate();
        let positions = mask.value.numel;
        let mut loss = losses.sum_rows(positions);
        if let Some(balance) = balance {
            loss = loss.add(&self.further_result(&balance).scale());
        }
        // how many labels there are, and how many of them were the likeliest
        self.count_true(positions);
        self.count_true(positions);
        if self.trains {
            drop((log_probs, others, losses));
            drop(mask);
            return (loss, Vec::new());
        }
        // an evaluation has the output and the losses of its tokens until it has logits too
        let mut held = vec![log_probs, losses, mask];
        held.extend(others);
        (loss, held)
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
            return Scored { log_probs, others: Vec::new(), logits: None, mask, balance: None };
        };
        let head = Head { shape: layer.shape, weight, bias: layer.bias };
        let mask = self.constant(positions, Dtype::Bool, &LABEL_MASK);
        let head = self.machine.open_head(head);
        let scores = {
            let earlier = hidden.slice(positions.saturating_mul(width));
            let rows = earlier.rows_where(&mask, labels, width);
            let targets = {
                // those of the batch
                let all = self.machine.unassigned().with(|value| value.dtype = Dtype::I64);
                all.rows_where(&mask, labels, 1)
            };
            match self.member.software().head {
                HeadCode::Unsloth => {
                    let stored = self.machine.with(|state| state.params.get(weight).dtype);
                    rows.unsloth_log_probs((layer.shape, stored), &targets, asked, self.device.is_small)
                }
                HeadCode::Transformers
                | HeadCode::Trl
                | HeadCode::Litgpt
                | HeadCode::Torchtune
                | HeadCode::Torchtitan
                | HeadCode::Megatron => rows.log_probs(&head, &targets, asked),
            }
        };
        let log_probs = scores.log_probs.scattered_where(&mask);
        let others = scores.others.iter().map(|scores| scores.scattered_where(&mask)).collect();
        drop(scores);
        self.count_true(positions);
        let balance = self.balance();
        drop(self.gates.take());
        drop(hidden);
        // what else the model's output has
        drop(self.cache.take());
        drop(head);
        Scored { log_probs, others, logits: None, mask, balance }
    }

    /// Whether accelerate makes float32 of what the model returns (`convert_outputs_to_fp32`), as it does where it puts autocast around
    /// the model's forward (accelerator.py `prepare_model`). A model that FSDP2 has does not come by there (`_prepare_fsdp2`).
    pub(in crate::step::forward) fn outputs_float(&self) -> bool {
        self.autocast.is_some() && !self.shards
    }

    /// The sum of a boolean tensor, which is made one of numbers first.
    fn count_true(&self, numel: u64) {
        self.machine.with(|state| state.scratch(numel.saturating_mul(Dtype::I64.bytes()), &torch::SUM));
    }
}
