//! What Unsloth's `GRPOTrainer` makes of a micro-batch of answers: all texts run in one row, the last hidden states of the answers' tokens
//! are chosen, and their log-probabilities are put back where the answers lie.
//!
//! Source: unsloth_zoo 2026.10.9 rl_replacements.py `grpo_accumulated_loss` and `UnslothEfficientGRPO`; unsloth 2026.10.9
//! models/rl_replacements.py `_get_per_token_logps_and_entropies` and models/rl.py `_install_grpo_hidden_states_forward_wrapper`; compared
//! with the allocator's trace.

use super::super::common::texts;
use super::functions;
use crate::dtype::Dtype;
use crate::job::Batch;
use crate::memory::Category;
use crate::scenario::{Lengths, Mask};
use crate::step::autograd::{Grad, only, saved_gradient};
use crate::step::forward::inputs::Shared;
use crate::step::forward::stacks::trl::log_probs::Asked;
use crate::step::forward::{Given, Hidden, Pass, find};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

const SOURCE: Source = Source::At("unsloth_zoo, rl_replacements.py");
static IDS: What = What::own("token ids", "of prompts and answers, as the trainer packs them", SOURCE);
static MASK: What = What::own("mask", "which tokens are answers, or of a text at all", SOURCE);
static PLACES: What = What::own("places", "the row and the column of every token", SOURCE);
static PUT: What = What::own("log-probabilities in place", "where the answers lie in their rows", SOURCE);
static LOSS_PARTS: What =
    What::own("parts of the loss", "ratios, bounds and what is weighed, a number for each token", SOURCE);
static LOSS_GRADIENT: What =
    What::own("gradient of the loss", "made with it, one number for each token of the answers", SOURCE);

/// Tensors of a number for each token that are there at once while the loss is made and differentiated, as they were counted in the allocator's
/// trace of a run without a reference.
const PARTS: usize = 9;

/// What comes of a micro-batch.
type Rewarded<'m> = (Tensor<'m>, Given<Shared<Value>>);

impl<'a> Pass<'_, 'a> {
    /// `grpo_accumulated_loss` of answers behind prompts of that length; whether the packed row is held against its texts by themselves
    /// first, as it is once.
    pub fn unsloth_reward(&self, prompt: u64, verifies: bool) -> Rewarded<'a> {
        let inputs = self.machine.as_category(Category::Batch, &roles::HEAD, || {
            [&IDS, &MASK].map(|what| self.of_tokens(self.batch.tokens(), Dtype::I64, what))
        });
        let (log_probs, held, given) = self.packed_log_probs(prompt);
        if verifies {
            self.verify(prompt);
            self.enter();
        }
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || log_probs.efficient_grpo());
        drop((log_probs, held));
        drop(inputs);
        (loss, given)
    }

    /// `_get_per_token_logps_and_entropies`: the same without a graph and without a loss.
    pub fn unsloth_scores(&self, prompt: u64, verifies: bool) -> Tensor<'a> {
        let (log_probs, held, _) = self.packed_log_probs(prompt);
        if verifies {
            self.verify(prompt);
        }
        drop(held);
        log_probs
    }

    /// The log-probabilities of the answers' tokens, and what the function's variables hold until it returns.
    fn packed_log_probs(&self, prompt: u64) -> (Tensor<'a>, Vec<Tensor<'a>>, Given<Shared<Value>>) {
        let (rows, length) = texts(self.batch);
        let tokens = self.batch.tokens();
        let answer = length.saturating_sub(prompt);
        let answers = rows.saturating_mul(answer);
        let ids = |numel, dtype, what| {
            self.machine.as_category(Category::Batch, &roles::HEAD, || self.constant(numel, dtype, what))
        };
        let packed = ids(tokens, Dtype::I64, &IDS);
        let completions = ids(answers, Dtype::I64, &MASK);
        let masks = [(); 2].map(|()| ids(tokens, Dtype::Bool, &MASK));
        let flat = ids(tokens, Dtype::I64, &IDS);
        let positions = ids(tokens, Dtype::I64, &torch::POSITIONS);
        let places = ids(tokens.saturating_mul(2), Dtype::I64, &PLACES);
        let shifted = tokens.saturating_sub(1);
        let chosen = ids(shifted, Dtype::Bool, &MASK);
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        // `_drop_spare_hidden_states`
        drop(self.returned());
        let layer = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let width = layer.shape.input;
        let mut held = vec![flat.clone(), positions, places];
        let log_probs = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let row = functions::text(&states).slice(shifted.saturating_mul(width));
            let picked = row.rows_where(&chosen, answers, width);
            drop(row);
            let targets = {
                let all = self.machine.unassigned().with(|value| value.dtype = Dtype::I64);
                all.rows_where(&chosen, answers, 1)
            };
            let stored = self.machine.with(|state| state.params.get(layer.weight.id()).dtype);
            let head = (layer.shape, stored);
            let scores = picked.unsloth_log_probs(head, &targets, Asked::NOTHING, self.device.is_small);
            self.leave_autocast();
            let placed = scores.log_probs.put_in_rows(&chosen, (rows, length), answer);
            held.extend([chosen.clone(), states, picked, targets, scores.log_probs]);
            placed
        });
        held.extend(masks);
        held.extend([packed, completions]);
        (log_probs, held, given)
    }

    /// The texts of a packed row by themselves, one after the other, the hidden states of one still there while the next one runs.
    fn verify(&self, prompt: u64) {
        let (rows, length) = texts(self.batch);
        let row = Batch { sequences: 1, length, lengths: Lengths::Equal, mask: Mask::None, ..self.batch };
        let _expected = self.constant(rows.saturating_mul(length.saturating_sub(prompt)), Dtype::F32, &PUT);
        let mut before = None;
        for _ in 0..rows.min(2) {
            let next = self.foreseeing(row, |pass| {
                let Hidden { states, .. } = pass.hidden();
                drop(pass.returned());
                let layer =
                    find(&pass.outside.linears, |layer| layer.name == pass.architecture.head.linear.name);
                let head =
                    (layer.shape, pass.machine.with(|state| state.params.get(layer.weight.id()).dtype));
                let scored = states.slice(length.saturating_sub(1).saturating_mul(layer.shape.input));
                let targets = pass.machine.unassigned();
                let small = pass.device.is_small;
                let scores = scored.unsloth_log_probs(head, &targets, Asked::NOTHING, small).log_probs;
                pass.leave_autocast();
                (states, scores)
            });
            before = Some(next);
        }
        drop(before);
    }
}

impl<'m> Tensor<'m> {
    /// `zeros.index_put((places,), x).view(rows, length)[:, -answer:]`.
    fn put_in_rows(&self, chosen: &Tensor<'m>, (rows, length): (u64, u64), answer: u64) -> Tensor<'m> {
        let whole = rows.saturating_mul(length);
        let placed = self.apply(|state, x| {
            let node = state.node([x], move |state, node, _| {
                let part = node.inputs[0];
                let whole = state.alloc(whole, Dtype::F32, &PUT);
                let own = state.alloc(part.numel, Dtype::F32, &torch::INDEX);
                state.release(whole);
                only(Grad::new(own, part.numel, Dtype::F32, part.layout))
            });
            let places = state.alloc(chosen.value.numel, Dtype::I64, &PLACES);
            let own = state.alloc(x.numel, Dtype::I64, &PLACES);
            state.release(places);
            state.save(node, own);
            state.release(own);
            let zeros = state.alloc(whole, Dtype::F32, &torch::ZEROS);
            let value = state.alloc(whole, Dtype::F32, &PUT);
            state.release(zeros);
            Value::plain(value, whole, Dtype::F32).at(node.output(0))
        });
        placed.slice(rows.saturating_mul(answer))
    }

    /// `UnslothEfficientGRPO.apply`: the loss and, with it, its gradient.
    fn efficient_grpo(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, _| {
                let input = node.inputs[0];
                only(saved_gradient(state, node, (&input, 0)))
            });
            let gradient = state.alloc(x.numel, Dtype::F32, &LOSS_GRADIENT);
            let parts: Vec<_> = (0..PARTS).map(|_| state.alloc(x.numel, Dtype::F32, &LOSS_PARTS)).collect();
            parts.into_iter().for_each(|part| state.release(part));
            let loss = state.alloc(1, Dtype::F32, &torch::LOSS);
            state.save(node, gradient);
            state.release(gradient);
            Value::plain(loss, 1, Dtype::F32).at(node.output(0))
        })
    }
}
