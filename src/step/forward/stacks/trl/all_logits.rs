//! trl's trainers before their head was fused with the log-probabilities: of fine-tuning (up to 1.6) and of preferences (up to 1.14), with
//! functions of their own over all logits or with axolotl's kernels, and what is logged of the logits before backward.
//!
//! Source: trl 1.6 trainer/sft_trainer.py `compute_loss`, trl 1.9 trainer/dpo_trainer.py and trainer/kto_trainer.py `_compute_loss`,
//! trainer/utils.py `entropy_from_logits`; compared with the allocator's trace.

use super::selected::Rows;
use super::{LABEL_MASK, Scored};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::LossKernel;
use crate::step::forward::inputs::Shared;
use crate::step::forward::stacks::fused_loss::lengths;
use crate::step::forward::{Given, Hidden, Pass};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles};

static FLAT_LOGITS: What = What::own(
    "flat logits",
    "a copy of the logits but those of each last token, for the entropy that is logged",
    LOGGED,
);
static ENTROPY: What = What::own(
    "entropy",
    "log-probabilities of 128 tokens at a time, what they are the logarithms of and their product",
    LOGGED,
);
static LIKELIEST: What =
    What::own("likeliest tokens", "one index for each label, for the accuracy that is logged", LOGGED);
static HALF: What = What::own("logits of answers", "those of the better or of the worse answers", LOGGED);
static SCORED_LOGITS: What =
    What::own("logits of labels", "those of the tokens that are scored, for the mean that is logged", LOGGED);
const LOGGED: Source = Source::At(
    "trl 1.6, trainer/sft_trainer.py; trl 1.9, trainer/dpo_trainer.py, trainer/kto_trainer.py and trainer/utils.py",
);

/// Tokens whose entropy is made at a time (`entropy_from_logits`).
const ENTROPY_ROWS: u64 = 128;

/// How the answers of a batch are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Halves {
    /// Chosen ones, then as many rejected ones: views of the logits.
    Joined,
    /// Each by its label: copies of the logits.
    Labelled,
}

impl<'a> Pass<'_, 'a> {
    /// `model(…).logits` as the trainer has them.
    pub(super) fn all_logits(&self, states: Tensor<'a>, replace: &dyn Fn()) -> Tensor<'a> {
        let logits = self.machine.head_unit(&states, |states| self.logits(states));
        drop(states);
        replace();
        self.leave_autocast();
        let logits = self.as_returned(logits);
        // LLaMA-Factory's trainer makes float32 of whatever it gets
        let floats = self.member.loss == LossKernel::LogSoftmax;
        self.leave_forward(if floats { self.widened(logits) } else { logits })
    }

    /// The log-probability of every token but each first one, from all logits.
    pub(super) fn log_probs_of_all(&self, hidden: Hidden<'a>) -> (Scored<'a>, Given<Shared<Value>>) {
        let scored = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let logits = self.all_logits(hidden.states, &|| {});
            let (sequences, labels) = (self.batch.sequences, self.scored_tokens());
            let vocabulary = logits.value.numel / self.batch.tokens().max(1);
            let each = (labels / sequences.max(1)).saturating_mul(vocabulary);
            let rows = Rows { sequences, each, divided: false };
            let mask = self.constant(labels, Dtype::Bool, &LABEL_MASK);
            let log_probs = self.labels_of(&logits, rows, labels).masked_fill_in_place(&mask);
            Scored { log_probs, others: Vec::new(), logits: Some(logits), mask, balance: None }
        });
        (scored, hidden.given)
    }

    /// `selective_log_softmax` as the trainer has it.
    pub(super) fn labels_of(&self, logits: &Tensor<'a>, rows: Rows, labels: u64) -> Tensor<'a> {
        match self.member.loss == LossKernel::Axolotl {
            true => logits.fused_log_softmax(rows, labels),
            false => logits.selective_log_softmax(rows, labels),
        }
    }

    /// What the trainers log of all logits before backward, at which a run may peak.
    pub fn log_of_all(&self, scored: &Scored<'a>, prompt: u64, halves: Halves) {
        let Some(logits) = &scored.logits else { return };
        let sequences = self.batch.sequences;
        let vocabulary = logits.value.numel / self.batch.tokens().max(1);
        let of =
            |tokens: u64, what| self.constant(tokens.saturating_mul(vocabulary), logits.value.dtype, what);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            // axolotl's kernel reads the slice as it lies
            if self.member.loss == LossKernel::Full {
                self.entropies(logits);
            }
            let answers = [sequences.div_ceil(2), sequences / 2];
            let length = self.batch.length.saturating_sub(1);
            let scored = self.batch.length.saturating_sub(prompt.max(1));
            let copies = answers
                .map(|count| (halves == Halves::Labelled).then(|| of(count.saturating_mul(length), &HALF)));
            for count in answers {
                drop(of(count.saturating_mul(scored), &SCORED_LOGITS));
            }
            drop(copies);
        });
    }

    /// `entropy_from_logits` of all logits but those of each last token.
    fn entropies(&self, logits: &Tensor<'a>) {
        let (sequences, labels) = (self.batch.sequences, self.scored_tokens());
        let vocabulary = logits.value.numel / self.batch.tokens().max(1);
        let of =
            |tokens: u64, what| self.constant(tokens.saturating_mul(vocabulary), logits.value.dtype, what);
        // of one sequence the slice is contiguous
        let _flat = (sequences > 1).then(|| of(labels, &FLAT_LOGITS));
        let mut last = None;
        for rows in lengths(labels, ENTROPY_ROWS) {
            let log_probs = of(rows, &ENTROPY);
            drop(last.replace(log_probs));
            let exp = of(rows, &ENTROPY);
            let product = of(rows, &ENTROPY);
            drop((exp, product));
        }
    }

    /// `compute_loss` of fine-tuning up to 1.6: the loss that transformers makes of all logits, and what is logged of these. The model's
    /// forward pass is over.
    pub(in crate::step::forward) fn logged_loss(&self, hidden: Tensor<'a>, replace: &dyn Fn()) -> Tensor<'a> {
        let logits = self.machine.head_unit(&hidden, |hidden| self.logits(hidden));
        let loss = self.labels_loss(&logits);
        drop(hidden);
        self.leave_peft();
        replace();
        self.leave_autocast();
        let loss = self.leave_forward(loss);
        let logits = self.as_returned(logits);
        self.entropies(&logits);
        let labels = self.scored_tokens();
        let likeliest = self.constant(labels, Dtype::I64, &LIKELIEST);
        // how many labels there are, and how many of them were the likeliest
        self.count_true(labels);
        self.count_true(labels);
        drop((logits, likeliest));
        loss
    }

    /// The logits as the trainer gets them: float32 where accelerate put the model's forward under autocast, and a copy where DDP looks for
    /// unused parameters (torch/nn/parallel/distributed.py `_DDPSink`).
    fn as_returned(&self, logits: Tensor<'a>) -> Tensor<'a> {
        let logits = if self.outputs_float() { self.widened(logits) } else { logits };
        // references are asked without DDP around them (trainer/dpo_trainer.py `self.model`)
        if !self.trains || !self.machine.with(|state| state.parallel.copies_output()) {
            return logits;
        }
        self.machine.serving(&roles::LOGITS, || logits.copied())
    }

    /// The logits in float32.
    fn widened(&self, logits: Tensor<'a>) -> Tensor<'a> {
        if logits.value.dtype == Dtype::F32 {
            return logits;
        }
        self.machine.serving(&roles::LOGITS, || logits.to(Dtype::F32))
    }

    /// Every token but each first one.
    pub(super) fn scored_tokens(&self) -> u64 {
        self.batch.tokens().saturating_sub(self.batch.sequences)
    }
}
