//! A round of trl's `PPOTrainer`: answers are generated a few at a time, and policy and value model learn from them together.
//!
//! Source: trl 1.12 experimental/ppo/ppo_trainer.py `batch_generation`, `PolicyAndValueWrapper`, `train`.

use super::{Rounds, passes};
use crate::dtype::Dtype;
use crate::job::{Act, Batch, Loss};
use crate::memory::{Category, Phase, Stage};
use crate::scenario::Generation;
use crate::step::forward::stacks::trl::policy::Returned;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles};

static GENERATED: What = What::own(
    "scores of the answers",
    "float32 numbers by which every token of all answers of a round was chosen, one per token and vocabulary entry: the trainer keeps them \
     until the next round's are there",
    Source::At("trl, experimental/ppo/ppo_trainer.py, batch_generation"),
);

/// What the script's variables hold of a micro-batch after it.
pub(super) struct Left<'m> {
    _returned: Returned<'m>,
    logits: Tensor<'m>,
    /// Those of the micro-batch before until the statistics are made.
    _probabilities: Option<Tensor<'m>>,
    /// Whose statistics they are.
    of: (usize, Batch, u64),
}

/// A pass over a mini-batch's micro-batch.
#[derive(Clone, Copy)]
struct Micro {
    batch: Batch,
    prompt: u64,
    /// Whether it is the first of a mini-batch.
    begins: bool,
    /// Whether it is the last before the step.
    is_last: bool,
}

impl<'a> Rounds<'a> {
    /// `batch_generation`: answers, a few at a time, whose scores are joined at the end.
    pub(super) fn roll_out(
        &mut self,
        act: u16,
        member: usize,
        (batch, how): (Batch, Generation),
        times: u64,
    ) {
        let [prefill, decode] = [Stage::Prefill, Stage::Decode].map(|stage| Phase { act, stage });
        let run = self.different(times);
        let mut generated: Vec<Tensor<'a>> = Vec::new();
        for number in 1..=run {
            self.notes.forget_work(act);
            self.notes.begin(prefill);
            let passes = passes(batch.length, how.new_tokens, self.most_passes);
            let model = &self.members[member].model;
            let prompts = [(); 2].map(|()| model.prompts(batch));
            let scores = model.generate(batch, how, &passes, || {
                self.notes.end(prefill);
                self.notes.begin(decode);
            });
            drop(prompts);
            generated.extend(scores);
            if number == 1 {
                generated.extend(self.like_the_last(&generated, times.saturating_sub(run)));
            }
            if number < run {
                self.notes.end(if passes.is_empty() { prefill } else { decode });
            }
        }
        let joined = self.machine.as_category(Category::Logits, &roles::LOGITS, || {
            let numel = generated.first().map_or(0, |one| one.value.numel).saturating_mul(times);
            self.scores_of(numel)
        });
        drop(generated);
        // the variable lets go of the last round's
        self.rolled_out = Some(joined);
        self.notes.end(if how.new_tokens > 1 { decode } else { prefill });
        self.notes.repeat_work(act, times);
    }

    fn scores_of(&self, numel: u64) -> Tensor<'a> {
        let machine = self.machine;
        let storage = machine.with(|state| state.alloc(numel, Dtype::F32, &GENERATED));
        Tensor { machine, value: Value::plain(storage, numel, Dtype::F32) }
    }

    /// So many more of the last one's size.
    fn like_the_last(&self, all: &[Tensor<'a>], more: u64) -> Option<Tensor<'a>> {
        let Value { numel, dtype, .. } = all.last().filter(|_| more > 0)?.value;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let bytes = numel.saturating_mul(dtype.bytes());
        let others =
            self.machine.with(|state| state.persistent(bytes, dtype, more, Category::Logits, &GENERATED));
        Some(Tensor { machine: self.machine, value: Value::plain(others, numel, dtype) })
    }

    /// So many micro-batches, `each` of them a mini-batch, in every epoch.
    pub(super) fn learn(
        &mut self,
        act: u16,
        members: (usize, usize),
        (batch, prompt): (Batch, u64),
        [each, times]: [u64; 2],
    ) {
        let run = self.different(times);
        // behind the scores of all answers, and behind their advantages
        self.machine.with(|state| state.empty_cache());
        for number in 1..=run {
            self.notes.forget_work(act);
            let begins = (number - 1).is_multiple_of(each.max(1));
            self.advance(act, members, Micro { batch, prompt, begins, is_last: number == run });
        }
        self.notes.repeat_work(act, times.saturating_mul(self.updates()));
    }

    /// How often the optimizer steps in a round: once in each epoch of a policy's.
    pub(super) fn updates(&self) -> u64 {
        let epochs = |act: &Act| match act {
            Act::Train { loss: Loss::Advantage { epochs, .. }, .. } => Some(*epochs),
            _ => None,
        };
        self.round.iter().find_map(epochs).unwrap_or(1)
    }

    /// Forward and backward of a micro-batch: the value model's layers, the policy, then both backward.
    fn advance(&mut self, act: u16, (policy, value): (usize, usize), micro: Micro) {
        let Micro { batch, prompt, begins, is_last } = micro;
        let [forward, backward] = [Stage::Forward, Stage::Backward].map(|stage| Phase { act, stage });
        if begins {
            self.forget_micro_batch();
        }
        let (before, probabilities) = match self.left.take() {
            Some(Left { _returned, logits, _probabilities, .. }) => {
                (Some((_returned, logits)), _probabilities)
            }
            None => (None, None),
        };
        self.notes.begin(forward);
        self.begin_training(policy, is_last);
        let [policy_model, value_model] = [policy, value].map(|member| &self.members[member].model);
        let layers = policy_model.layers.len().max(1);
        let number = value_model.layers.len().div_ceil(layers);
        let passes = [value_model.pass(batch), policy_model.pass_after(number, batch, None)];
        let inputs = passes[0].trainers_inputs();
        let (numbers, of_value, returned_value) = passes[0].numbers();
        let (logits, of_policy, returned) = passes[1].policy_logits();
        drop(returned_value);
        drop(inputs);
        // `output`, then `logits` are assigned to
        drop(before);
        let log_probs = passes[1].answers_log_probs(&logits, prompt);
        let loss = passes[1].advantage_loss(&log_probs, &numbers, prompt);
        drop((log_probs, numbers));
        self.notes.end(forward);
        self.notes.begin(backward);
        self.machine.with(|state| state.category = Category::Temporaries);
        self.machine.backward(loss, &|checkpoint, input| {
            if checkpoint < number * layers {
                passes[0].recompute(checkpoint, input, &of_value);
            } else {
                passes[1].recompute(checkpoint % layers, input, &of_policy);
            }
        });
        let held = self.machine.with(|state| state.graph.take_held());
        self.free(held);
        let returned = returned.with_gradients(self.machine.with(|state| state.take_leaves()));
        drop(passes);
        let mut left =
            Left { _returned: returned, logits, _probabilities: probabilities, of: (policy, batch, prompt) };
        if !is_last {
            left = self.measured(left);
        }
        self.left = Some(left);
        self.notes.end(backward);
    }

    /// The statistics that are logged of a micro-batch.
    fn measured(&self, left: Left<'a>) -> Left<'a> {
        let (policy, batch, prompt) = left.of;
        let pass = self.members[policy].model.pass(batch);
        let probabilities = pass.entropy_of(&left.logits, prompt);
        Left { _probabilities: Some(probabilities), ..left }
    }

    /// What follows a step: the last micro-batch's statistics, and the end of its mini-batch.
    pub(super) fn after_step(&mut self, act: u16) {
        let Some(left) = self.left.take() else { return };
        let phase = Phase { act, stage: Stage::Step };
        self.notes.begin(phase);
        let left = self.measured(left);
        self.notes.end(phase);
        self.left = Some(left);
        self.forget_micro_batch();
    }

    /// `del output, …; empty_cache()`.
    fn forget_micro_batch(&mut self) {
        if self.left.take().is_some() {
            self.machine.with(|state| state.empty_cache());
        }
    }
}
