//! trl's SFTTrainer: transformers' modules up to the last hidden state, then the log-probability of every label without all
//! logits.
//!
//! Source: trl 1.16 trainer/utils.py `add_fused_lm_head` and trainer/sft_trainer.py `compute_loss`; compared with the
//! allocator's trace.

pub(in crate::step) mod log_probs;

use super::texts;
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::Architecture;
use crate::scenario::{Mask, StepTime};
use crate::step::forward::stacks::trl::log_probs::Head;
use crate::step::forward::{Pass, adapters, find};
use crate::step::ops::linear::Weight;
use crate::step::tensor::Tensor;

/// Families whose step was compared.
const FAMILIES: [&str; 34] = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma4_text",
    "phi",
    "phi3",
    "gpt2",
    "gpt_neox",
    "opt",
    "falcon",
    "bloom",
    "cohere",
    "cohere2",
    "olmo",
    "olmo2",
    "smollm3",
    "starcoder2",
    "stablelm",
    "gptj",
    "gpt_neo",
    "gpt_bigcode",
    "mpt",
    "nemotron",
    "exaone4",
    "ernie4_5",
    "arcee",
    "seed_oss",
    "vaultgemma",
    "jais2",
    "nanochat",
];

/// Refuses what trl refuses, or what was not compared.
pub(super) fn check(architecture: &Architecture, member: &Member, batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message: String, fix: String| Err(Issue::error(field, message).with_fix(fix));
    let family = &architecture.model_type;
    if !FAMILIES.contains(&&**family) {
        let fix = format!("choose transformers, or {}", FAMILIES.join(", "));
        return refuse(Field::Stack, format!("{family} with trl is not modelled"), fix);
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

impl<'a> Pass<'_, 'a> {
    /// `model(…, labels=labels, fused_lm_head=True)` and what `compute_loss` makes of it; there are no logits to return.
    pub(in crate::step::forward) fn trl_head(
        &self,
        hidden: Tensor<'a>,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let layer = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let Weight::Plain(weight) = layer.weight else { return (hidden, Vec::new()) };
        let head = Head { shape: layer.shape, weight, bias: layer.bias };
        let (tokens, width) = (self.batch.tokens(), layer.shape.input);
        // the last token of a row is scored by none, the first of a text is no other's label
        let positions = tokens.saturating_sub(self.batch.sequences);
        let labels = tokens.saturating_sub(texts(self.batch).0);
        let mask = self.constant(positions, Dtype::Bool, "label mask");
        let scores = {
            let earlier = hidden.slice(positions.saturating_mul(width));
            let rows = earlier.rows_where(&mask, labels, width);
            let targets = {
                // those of the batch
                let all = self.machine.unassigned().with(|value| value.dtype = Dtype::I64);
                all.rows_where(&mask, labels, 1)
            };
            rows.log_probs(head, &targets)
        };
        let [log_probs, entropy, is_top1] =
            [&scores.log_probs, &scores.entropy, &scores.is_top1].map(|scores| scores.scattered_where(&mask));
        drop(scores);
        self.count_true(positions);
        drop(hidden);
        replace();
        // accelerate's autocast is around the model alone
        self.leave_autocast();
        let losses = log_probs.negate();
        let loss = losses.sum_rows(positions);
        // how many labels there are, and how many of them were the likeliest
        self.count_true(positions);
        self.count_true(positions);
        drop((log_probs, entropy, is_top1, losses));
        (loss, Vec::new())
    }

    /// The sum of a boolean tensor, which is made one of numbers first.
    fn count_true(&self, numel: u64) {
        self.machine.state.borrow_mut().scratch(numel.saturating_mul(Dtype::I64.bytes()), "sum");
    }
}
