//! The training loop: iterations of forward, backward, clip, step and zero_grad.

use std::cell::RefCell;

use super::forward::{Apart, Model, Output};
use super::gradient::OnGrad;
use super::heap::ledger::higher;
use super::heap::{NOTHING, StorageId};
use super::machine::Machine;
use super::optimizer::Stepper;
use super::tensor::Tensor;
use crate::dtype::Dtype;
use crate::job::{self, Batch};
use crate::memory::{Category, Iteration, Peak, Phase, Stage};
use crate::scenario::{Checkpointing, Mask, Offloading, Stack, StepTime};

/// Bytes of cuBLASLt's workspace for `addmm` with a bias: 1 MiB (measured on compute capability 7.5, 8.0 and 9.0).
const CUBLASLT_WORKSPACE: u64 = 1 << 20;

/// The phases of an iteration: training is its first act, the optimizer's step the second.
const FORWARD: Phase = Phase { act: 0, stage: Stage::Forward };
const BACKWARD: Phase = Phase { act: 0, stage: Stage::Backward };
const STEP: Phase = Phase { act: 1, stage: Stage::Step };

/// A model in training.
pub(super) struct Training<'a> {
    model: Model<'a>,
    batch: Batch,
    /// Micro-batches of one step.
    accumulation: u64,
    /// The output that the script keeps alive, and what the graph behind it holds.
    kept: (Vec<Tensor<'a>>, Vec<StorageId>),
    has_state: bool,
    notes: Notes<'a>,
    /// The batch's token ids.
    ids: StorageId,
    /// Events up to the end of the last step.
    stepped: usize,
}

impl<'a> Training<'a> {
    /// A model before its first iteration.
    pub fn new(model: Model<'a>, batch: Batch, accumulation: u64) -> Training<'a> {
        let notes = Notes { machine: model.machine, peaks: Vec::with_capacity(8) };
        Training {
            model,
            batch,
            accumulation,
            kept: Default::default(),
            has_state: false,
            notes,
            ids: NOTHING,
            stepped: 0,
        }
    }

    fn machine(&self) -> &'a Machine {
        self.model.machine
    }

    /// The batch and the cuBLAS workspaces (one per thread: the script's and autograd's).
    pub fn prepare(&mut self) {
        let (member, batch) = (self.model.member, self.batch);
        let ids = batch.tokens().saturating_mul(Dtype::I64.bytes());
        // ids, labels, and a mask or positions
        let tensors: u64 = match (member.stack, batch.mask) {
            // its labels are shifted into new ones, and no mask is made of padding
            (Stack::Torchtune, _) => 1,
            (_, Mask::None) => 2,
            (_, Mask::Ones | Mask::Padded | Mask::Packed | Mask::PaddingFree) => 3,
        };
        // transformers' Trainer brings all micro-batches of a step at once (`get_batch_samples`)
        let batches = if member.stack == Stack::Trl { self.accumulation } else { 1 };
        let batches = u32::try_from(batches).unwrap_or(u32::MAX);
        // `addmm` with a bias goes through cuBLASLt, whose workspace is one of its own per thread; only recomputation
        // runs it in autograd's thread
        let light = match (self.model.has_bias(), member.checkpointing) {
            ((false, _), _) => [0, 0],
            ((true, false), _) | (_, Checkpointing::Off) => [CUBLASLT_WORKSPACE, 0],
            ((true, true), _) => [CUBLASLT_WORKSPACE; 2],
        };
        self.machine().with(|state| {
            for _ in 0..tensors {
                self.ids = state.persistent(ids, Dtype::I64, batches, Category::Batch, "batch");
            }
            let workspace = state.device.workspace;
            state.due_workspaces = light.map(|light| [workspace, light]);
            if let Some(training) = member.training.filter(|training| training.step == StepTime::InBackward) {
                state.on_grad = Stepper { optimizer: training.optimizer, has_state: false }.hook();
            }
        });
    }

    /// One iteration: all micro-batches, then the step.
    pub fn iteration(&mut self) -> Iteration {
        self.notes.peaks.clear();
        self.micro_batches();
        self.optimize();
        self.forget_gradients();
        highest(&self.notes.peaks)
    }

    /// One iteration over micro-batches of their own lengths.
    pub fn iteration_of(&mut self, batches: &[Batch]) -> Iteration {
        self.notes.peaks.clear();
        for batch in batches {
            self.forward_and_backward(*batch);
        }
        self.optimize();
        self.forget_gradients();
        highest(&self.notes.peaks)
    }

    /// The first iteration and a later one.
    ///
    /// Where nothing but the optimizer's state and the workspaces come to stay, forward and backward of the later one are
    /// the first one's above these.
    pub fn first_and_later(&mut self) -> [Iteration; 2] {
        let alters = |training: job::Training| {
            training.step == StepTime::InBackward || training.keeps_outputs || !training.grads_to_none
        };
        if self.model.apart == Apart::All || self.model.member.training.is_none_or(alters) {
            return [self.iteration(), self.iteration()];
        }
        self.micro_batches();
        self.optimize();
        let first = highest(&self.notes.peaks);
        self.notes.peaks.retain(|(phase, _)| phase.stage != Stage::Step);
        let resting = self.machine().with(|state| state.ledger.parts);
        for (_, peak) in &mut self.notes.peaks {
            for category in [Category::Optimizer, Category::Workspace] {
                let more = resting.get(category).saturating_sub(peak.parts.get(category));
                *peak = peak.with(category, more.0);
            }
        }
        // the gradients are there still, as the next iteration's will be
        self.optimize();
        self.forget_gradients();
        [first, highest(&self.notes.peaks)]
    }

    fn micro_batches(&mut self) {
        // every micro-batch after the second repeats the second
        for _ in 0..self.accumulation.clamp(1, 2) {
            self.forward_and_backward(self.batch);
        }
    }

    fn optimize(&mut self) {
        let Some(training) = self.model.member.training else { return };
        self.notes.begin(STEP);
        self.machine().with(|state| match state.on_grad {
            OnGrad::Hook(_) => {
                state.on_grad = Stepper { optimizer: training.optimizer, has_state: true }.hook();
            }
            OnGrad::Keep => {
                if training.clips {
                    state.clip();
                }
                if self.has_state {
                    state.step(training.optimizer);
                } else {
                    state.first_step(training.optimizer);
                }
            }
        });
        self.has_state = true;
        self.stepped = self.machine().with(|state| state.events());
        self.notes.end(STEP);
    }

    fn forget_gradients(&self) {
        if self.model.member.training.is_some_and(|training| training.grads_to_none) {
            self.machine().with(|state| state.drop_gradients());
        }
    }

    fn forward_and_backward(&mut self, batch: Batch) {
        self.notes.begin(FORWARD);
        if self.model.member.offloading == Offloading::On {
            self.begin_offloading();
        }
        self.machine().with(|state| state.category = Category::Activations);
        let before = RefCell::new(std::mem::take(&mut self.kept));
        let pass = self.model.pass(batch);
        let Output { loss, outputs, shared } = pass.loss(pass.hidden(), &|| {
            let (outputs, held) = before.take();
            drop(outputs);
            self.free(held);
        });
        let kept = self.model.member.keeps_outputs();
        if kept {
            self.kept.0 = outputs.iter().map(Tensor::detach).collect();
        }
        drop(outputs);
        self.notes.end(FORWARD);
        self.notes.begin(BACKWARD);
        self.machine().with(|state| state.category = Category::Temporaries);
        self.machine().backward(loss, &|layer, input| pass.recompute(layer, input, &shared));
        // the graph of the outputs that are kept holds its leaves too
        let mut held = self.machine().with(|state| state.take_leaves());
        held.extend(self.machine().with(|state| state.graph.take_held()));
        if kept {
            self.kept.1 = held;
        } else {
            self.free(held);
        }
        self.notes.end(BACKWARD);
    }

    /// trl's context around forward and backward, or torchtune's around the forward pass. bitsandbytes, which peft loads too, makes it empty the allocator's cache.
    fn begin_offloading(&self) {
        let member = self.model.member;
        self.machine().with(|state| {
            let offload = state.graph.offload.get_or_insert_default();
            offload.ids = self.ids;
            if member.stack == Stack::Torchtune {
                offload.forgetful = true;
            } else if member.loads_bitsandbytes() {
                state.empty_cache();
            }
        });
    }

    /// Events up to the end of the last step, where they are recorded.
    pub fn stepped(&self) -> usize {
        self.stepped
    }

    fn free(&self, storages: Vec<StorageId>) {
        self.machine().with(|state| storages.into_iter().for_each(|storage| state.release(storage)));
    }
}

/// The highest points of the running iteration by phase, those before a thread got its workspaces apart.
struct Notes<'a> {
    machine: &'a Machine,
    peaks: Vec<(Phase, Peak)>,
}

impl Notes<'_> {
    fn begin(&self, phase: Phase) {
        self.machine.with(|state| {
            state.early = None;
            state.ledger.restart();
            state.mark(phase);
        });
    }

    /// Notes the highest point of a phase that ends, and the one before its thread got its workspaces.
    fn end(&mut self, phase: Phase) {
        let (early, highest) = self.machine.with(|state| (state.early.take(), state.ledger.peak()));
        self.peaks.extend(early.into_iter().chain([highest]).map(|peak| (phase, peak)));
    }
}

/// The highest of the peaks of each phase.
fn highest(peaks: &[(Phase, Peak)]) -> Iteration {
    let mut iteration = Iteration { phases: Vec::with_capacity(3) };
    for (phase, peak) in peaks {
        let highest = iteration.phase_mut(*phase);
        *highest = higher(*highest, *peak);
    }
    iteration
}
