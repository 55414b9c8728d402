//! trl's `PPOTrainer`: all logits and all hidden states of a policy, the log-probabilities of its answers row by row, and what a value
//! model says of every token.
//!
//! Source: trl 1.12 experimental/ppo/ppo_trainer.py `train`, experimental/utils.py `get_reward`, trainer/utils.py
//! `selective_log_softmax`; compared with the allocator's trace.

use crate::dtype::Dtype;
use crate::job::{Batch, HeadKind};
use crate::memory::Category;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::forward::inputs::Shared;
use crate::step::forward::{Given, Hidden, Model, Pass, find};
use crate::step::heap::StorageId;
use crate::step::machine::{Machine, State};
use crate::step::repeat::Kept;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static INPUTS: What = What::own(
    "ids and positions",
    "the trainer's own ids, positions and mask of prompts and answers",
    TRAINER,
);
static LOGITS_GRADIENT: What = What::own(
    "logits gradient",
    "the gradient of the logits: of those of the answers, filled up to all tokens, and copied where they were divided in place",
    TRAINER,
);
static ROW_LOG_PROBS: What = What::own(
    "log-probabilities of an answer",
    "one number per token and vocabulary entry of one answer",
    SELECTED,
);
static PROBABILITIES: What = What::own(
    "probabilities",
    "those of every token of the answers, for the entropy that is logged",
    TRAINER,
);
const TRAINER: Source = Source::At("trl, experimental/ppo/ppo_trainer.py, train");
const SELECTED: Source = Source::At("trl, trainer/utils.py, selective_log_softmax");

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

    fn returned(&self) -> Returned<'a> {
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
        let row = answer.saturating_mul(vocabulary);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            logits.apply(|state, x| {
                let answers =
                    Value { numel: row.saturating_mul(sequences), ..Value::plain(x.storage, 0, x.dtype) };
                let node = state
                    .node([x, &answers], move |state, node, _| log_probs_backward(state, node, sequences));
                let mut last = None;
                for _ in 0..sequences {
                    if x.dtype == Dtype::F32 {
                        // torch.logsumexp
                        state.scratch(row.saturating_mul(x.dtype.bytes()), &torch::EXP);
                        continue;
                    }
                    let log_probs = state.alloc(row, x.dtype, &ROW_LOG_PROBS);
                    state.save(node, log_probs);
                    if let Some(before) = last.replace(log_probs) {
                        state.release(before);
                    }
                }
                let numel = answer.saturating_mul(sequences);
                let scores = state.alloc(numel, x.dtype, &torch::LOG_PROBABILITIES);
                if let Some(last) = last {
                    state.release(last);
                }
                Value::plain(scores, numel, x.dtype).at(node.output(0))
            })
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

/// The gradients of the rows are stacked; a slice's gradient is that of all tokens, and division in place copies it (`CopySlices`).
fn log_probs_backward(state: &mut State, node: &Node, sequences: u64) -> Results {
    let [logits, answers, _] = node.inputs;
    let row = answers.numel / sequences.max(1);
    let bytes = |numel: u64| numel.saturating_mul(logits.dtype.bytes());
    let mut rows = Vec::new();
    for index in 0..sequences {
        if logits.dtype == Dtype::F32 {
            let [minus, exp] = [&torch::SUB, &torch::EXP].map(|what| state.alloc(row, logits.dtype, what));
            rows.push(state.alloc(row, logits.dtype, &LOGITS_GRADIENT));
            state.release(exp);
            state.release(minus);
        } else {
            let gathered = state.alloc(row, logits.dtype, &torch::ZEROS);
            rows.push(state.alloc(row, logits.dtype, &LOGITS_GRADIENT));
            state.release(gathered);
            let last_first = u32::try_from(sequences - 1 - index).unwrap_or(u32::MAX);
            state.clear_saved(node, last_first);
        }
    }
    let stacked = state.alloc(answers.numel, logits.dtype, &LOGITS_GRADIENT);
    rows.into_iter().for_each(|row| state.release(row));
    if logits.dtype == Dtype::F32 {
        // torch.gather
        state.scratch(bytes(answers.numel), &torch::ZEROS);
    }
    let whole = state.alloc(logits.numel, logits.dtype, &LOGITS_GRADIENT);
    state.release(stacked);
    let copied = state.alloc_for(logits.storage, logits.numel, logits.dtype, &LOGITS_GRADIENT);
    let [slice, divided] = [(); 2].map(|()| state.alloc(answers.numel, logits.dtype, &LOGITS_GRADIENT));
    state.release(slice);
    state.release(divided);
    state.release(whole);
    only(Grad::new(copied, logits.numel, logits.dtype, Layout::Tokens))
}
