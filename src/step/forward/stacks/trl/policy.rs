//! trl's `PPOTrainer`: all logits and all hidden states of a policy, the log-probabilities of its answers row by row, and what a value
//! model says of every token.
//!
//! Source: trl 1.12 experimental/ppo/ppo_trainer.py `train`, experimental/utils.py `get_reward`; compared with the allocator's
//! trace.

use super::selected::Rows;
use crate::dtype::Dtype;
use crate::job::{Batch, HeadKind};
use crate::memory::Category;
use crate::step::forward::inputs::Shared;
use crate::step::forward::{Given, Hidden, Model, Pass, find};
use crate::step::heap::StorageId;
use crate::step::machine::Machine;
use crate::step::repeat::Kept;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static INPUTS: What = What::own(
    "ids and positions",
    "the trainer's own ids, positions and mask of prompts and answers",
    TRAINER,
);
static PROBABILITIES: What = What::own(
    "probabilities",
    "those of every token of the answers, for the entropy that is logged",
    TRAINER,
);
const TRAINER: Source = Source::At("trl, experimental/ppo/ppo_trainer.py, train");

/// What a forward pass returned beside what is learned from: hidden states, keys and values.
pub(in crate::step) struct Returned<'m> {
    machine: &'m Machine,
    tensors: Vec<Tensor<'m>>,
    states: Vec<Tensor<'m>>,
    others: Vec<Kept>,
    /// Gradients of leaves among the hidden states.
    gradients: Vec<StorageId>,
}

impl Returned<'_> {
    /// The same where the first hidden states are a leaf, whose gradient is there as long as they are.
    pub fn with_gradients(mut self, gradients: Vec<StorageId>) -> Self {
        self.gradients = gradients;
        self
    }
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        self.tensors.clear();
        self.states.clear();
        let (others, gradients) = (std::mem::take(&mut self.others), std::mem::take(&mut self.gradients));
        self.machine.with(|state| {
            others.into_iter().for_each(|kept| kept.release(state));
            gradients.into_iter().for_each(|gradient| state.release(gradient));
        });
    }
}

impl<'a> Model<'a> {
    /// What the rollout asks of a batch of answers: the log-probabilities of every token, or a number for it.
    pub(in crate::step::forward) fn judged(&self, batch: Batch, prompt: u64) -> Tensor<'a> {
        self.scoring(batch, |pass| match self.member.head {
            HeadKind::Language => {
                // behind the log-probabilities of what was generated (`del logits; empty_cache()`)
                self.machine.with(|state| state.empty_cache());
                let given = pass.trainers_inputs();
                let (logits, shared, returned) = pass.policy_logits();
                drop((given, shared));
                let log_probs = pass.answers_log_probs(&logits, prompt);
                drop((returned, logits));
                self.machine.with(|state| state.empty_cache());
                log_probs
            }
            HeadKind::Numbers(_) | HeadKind::Embedding(_) => {
                // `use_cache=False`
                let pass = Pass { caches: false, trains: false, ..self.pass(batch) };
                let given = pass.trainers_inputs();
                let (numbers, _, returned) = pass.numbers();
                drop((returned, given));
                numbers
            }
        })
    }
}

impl<'a> Pass<'_, 'a> {
    /// `attention_mask`, `position_ids` and `input_ids` of the trainer's `forward`.
    pub fn trainers_inputs(&self) -> [Tensor<'a>; 3] {
        self.machine.as_category(Category::Batch, &roles::HEAD, || {
            [Dtype::Bool, Dtype::I64, Dtype::I64]
                .map(|dtype| self.of_tokens(self.batch.tokens(), dtype, &INPUTS))
        })
    }

    pub fn returned(&self) -> Returned<'a> {
        Returned {
            machine: self.machine,
            tensors: self.cache.take(),
            states: self.states.take(),
            others: self.states_of_others.take(),
            gradients: Vec::new(),
        }
    }

    /// `self.value_model.score(output.hidden_states[-1])` of `PolicyAndValueWrapper.forward` and `get_reward`.
    pub fn numbers(&self) -> (Tensor<'a>, Given<Shared<Value>>, Returned<'a>) {
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        let head = &self.architecture.head.linear;
        let layer = find(&self.outside.linears, |layer| layer.name == head.name);
        let numbers = self.machine.as_category(Category::Logits, &roles::HEAD, || states.through(&layer));
        drop(states);
        (numbers, given, self.returned())
    }

    /// `model(…, output_hidden_states=True)`: all logits.
    pub fn policy_logits(&self) -> (Tensor<'a>, Given<Shared<Value>>, Returned<'a>) {
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        let logits = self.machine.as_category(Category::Logits, &roles::HEAD, || self.logits(&states));
        drop(states);
        self.leave_autocast();
        (logits, given, self.returned())
    }

    /// `logits[:, context_length - 1 : -1]`, divided in place, and `selective_log_softmax` of them.
    pub fn answers_log_probs(&self, logits: &Tensor<'a>, prompt: u64) -> Tensor<'a> {
        let (sequences, tokens) = (self.batch.sequences, self.batch.tokens());
        let vocabulary = logits.value.numel / tokens.max(1);
        let answer = self.batch.length.saturating_sub(prompt);
        let rows = Rows { sequences, each: answer.saturating_mul(vocabulary), divided: true };
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            logits.selective_log_softmax(rows, answer.saturating_mul(sequences))
        })
    }

    /// The loss of `train`: how much likelier each token has become, that within bounds, both times its advantage, the lesser of them; and
    /// how far its value is from what it was worth.
    pub fn advantage_loss(&self, log_probs: &Tensor<'a>, numbers: &Tensor<'a>, prompt: u64) -> Tensor<'a> {
        let answers = self.batch.length.saturating_sub(prompt).saturating_mul(self.batch.sequences);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let values = numbers.slice(answers);
            let value_loss = values.keeping_input(&torch::POW).sum_rows(answers);
            let earlier = self.machine.unassigned().with(|value| value.numel = answers);
            let ratio = log_probs.minus(&earlier).keeping_output(&torch::EXP);
            let bounded = ratio.keeping_input(&torch::CLAMP);
            let most = ratio.scale().mul(&bounded.scale());
            most.sum_rows(answers).add(&value_loss.scale())
        })
    }

    /// The statistics of a micro-batch that are logged: the probabilities of every token of its answers, which stay, and their entropy.
    pub fn entropy_of(&self, logits: &Tensor<'a>, prompt: u64) -> Tensor<'a> {
        let (sequences, tokens) = (self.batch.sequences, self.batch.tokens());
        let answers = self.batch.length.saturating_sub(prompt).saturating_mul(sequences);
        let numel = answers.saturating_mul(logits.value.numel / tokens.max(1));
        let dtype = logits.value.dtype;
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let made = || self.constant(numel, dtype, &PROBABILITIES);
            let probabilities = made();
            // of one answer the slice is contiguous
            drop((sequences > 1).then(made));
            // torch.logsumexp, then the product that is summed
            drop(made());
            drop(made());
            probabilities
        })
    }
}
