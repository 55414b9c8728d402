//! What a member learns: a micro-batch forward and backward, the step, and gradients that go.

use std::cell::RefCell;
use std::ops::Range;

use super::contrast::Columns;
use super::{Rounds, Running};
use crate::job::{Act, Batch, Loss};
use crate::memory::{Category, Phase, Stage};
use crate::scenario::software::Trainer;
use crate::scenario::{Offloading, StepTime};
use crate::step::forward::{Model, Output};
use crate::step::tensor::Tensor;

impl<'a> Rounds<'a> {
    /// The optimizer's step.
    pub(super) fn update(&mut self, act: u16, member: usize) {
        let params = self.stepping(member);
        let Running { model, has_state, .. } = &mut self.members[member];
        let Some(training) = model.member.training else { return };
        let phase = Phase { act, stage: Stage::Step };
        self.notes.begin(phase);
        if training.step == StepTime::AfterBackward {
            self.machine.with(|state| {
                if state.step_own(training.clips, !*has_state) {
                    return;
                }
                let [states, gradients] = [Category::Optimizer, Category::Gradients]
                    .map(|category| state.ledger.parts.get(category).0);
                // a fused step writes weights and states where they are, and clipping the gradients
                let rewritten = 1 + u64::from(training.clips);
                state.write(states.saturating_add(gradients.saturating_mul(rewritten)));
                state.enter_step();
                // an engine that steps a partition takes the norm of that
                if training.clips && state.parallel.partition().is_none() {
                    state.clip(&params);
                }
                for number in 0..state.parallel.steps() {
                    state.enter_partition(number);
                    if *has_state {
                        state.step(training.optimizer, &params);
                    } else {
                        state.first_step(training.optimizer, &params);
                    }
                    state.leave_partition();
                }
                state.leave_step();
            });
        }
        *has_state = true;
        self.divided.clear();
        self.stepped = self.machine.with(|state| state.events());
        self.notes.end(phase);
    }

    /// The parameters of a member's optimizer, which a value model shares that was loaded after the member.
    fn stepping(&self, member: usize) -> Range<usize> {
        let own = self.members[member].model.params.clone();
        let value = self.round.iter().find_map(|act| match *act {
            Act::Train { member: policy, loss: Loss::Advantage { value, .. }, .. } if policy == member => {
                Some(value)
            }
            _ => None,
        });
        value.map_or(own.clone(), |value| own.start..self.members[value].model.params.end)
    }

    /// `optimizer.zero_grad()`, where it sets gradients to nothing.
    pub(super) fn forget_gradients(&self, member: usize) {
        let model = &self.members[member].model;
        let params = self.stepping(member);
        if model.member.training.is_some_and(|training| training.grads_to_none) {
            self.machine.with(|state| {
                state.drop_gradients(&params);
                state.zero_grad();
            });
        }
    }

    /// One micro-batch forward and backward; whether it is the last before the step.
    pub(super) fn train(&mut self, act: u16, member: usize, batch: Batch, loss: Loss, is_last: bool) {
        if let Loss::Contrast { texts, cached } = loss {
            return self.contrast(act, member, Columns { batch, texts, cached }, is_last);
        }
        let [forward, backward] = [Stage::Forward, Stage::Backward].map(|stage| Phase { act, stage });
        self.notes.begin(forward);
        self.turn_pictures(true);
        let before = RefCell::new(std::mem::take(&mut self.members[member].kept));
        self.begin_training(member, is_last);
        let divided = self.divide(batch);
        let own = &self.members[member];
        let replace = || {
            // the loss and its graph come first
            let (outputs, held) = before.take();
            self.free(held);
            drop(outputs);
        };
        let pass = own.model.pass_towards(loss, batch);
        let Output { loss, outputs, shared } = self.forward(act, member, &pass, loss, &replace);
        let keeps = own.model.member.keeps_outputs();
        let kept = if keeps { outputs.iter().map(Tensor::detach).collect() } else { Vec::new() };
        drop(outputs);
        self.notes.end(forward);
        self.notes.begin(backward);
        self.machine.with(|state| state.category = Category::Temporaries);
        self.machine.backward(loss, &|layer, input| pass.recompute(layer, input, &shared));
        if let Some(training) = own.model.member.training {
            self.machine.with(|state| state.end_fused(training.optimizer));
        }
        // the graph of the outputs that are kept holds its leaves too
        let mut held = self.machine.with(|state| state.graph.take_held());
        held.extend(self.machine.with(|state| state.take_leaves()));
        drop(pass);
        drop(divided);
        if keeps {
            self.members[member].kept = (kept, held);
        } else {
            self.free(held);
        }
        self.notes.end(backward);
    }

    /// What a micro-batch begins with; whether it is the last before the step.
    pub(super) fn begin_training(&self, member: usize, is_last: bool) {
        let own = &self.members[member];
        if own.model.member.offloading == Offloading::On {
            self.begin_offloading(&own.model);
        }
        self.machine.with(|state| {
            state.on_grad = own.on_grad();
            state.is_last = is_last;
            state.category = Category::Activations;
        });
    }

    /// trl's context around forward and backward, or torchtune's around the forward pass. bitsandbytes, which peft loads
    /// too, makes it empty the allocator's cache.
    fn begin_offloading(&self, model: &Model<'a>) {
        self.machine.with(|state| {
            let offload = state.graph.offload.get_or_insert_default();
            offload.ids = self.ids;
            if model.member.software().trainer == Trainer::Torchtune {
                offload.forgetful = true;
            } else if model.member.loads_bitsandbytes() {
                state.empty_cache();
            }
        });
    }
}
