//! The training loop: iterations of forward, backward, clip, step and zero_grad.

use std::cell::RefCell;

use super::forward::{Model, Output};
use super::kernels::Device;
use super::machine::{Machine, NOTHING, StorageId};
use super::optimizer::Stepper;
use super::plan::Plan;
use super::support;
use super::tensor::Tensor;
use crate::dtype::Dtype;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::memory::{Category, Counted, Iteration, Memory, Parameters, Peak, Phase};
use crate::model::Architecture;
use crate::scenario::{Checkpointing, Mask, Method, Offloading, Scenario, Stack, StepTime};
use crate::units::Bytes;

/// Executes the step on behalf of all layers of a kind at once and says what it needs.
///
/// # Errors
/// An [`Issue`] where the architecture has a part that is not modelled.
pub fn run(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Memory, Issue> {
    let device = Device::of(gpu);
    let modeling = support::modeling(architecture, scenario, device)?;
    let scenario = &*scenario.laid_out();
    let named = architecture;
    let architecture = &*super::forward::stacks::architecture(architecture, scenario)?;
    let machine = Machine::new(device, false);
    // what waits in the CPU's memory leaves its layer while the next ones run: no layer stands for others
    let whole = scenario.savings.offloading == Offloading::On;
    if whole {
        Plan::of(architecture, modeling, scenario, device)?;
    }
    let model = Model::load(&machine, architecture, modeling, scenario, device, whole);
    support::adapted(&model, named)?;
    let mut training = Training::new(model);
    training.prepare();
    let first = training.iteration();
    support::attended(&machine, scenario)?;
    let steady = training.steady(&first);
    let resting = machine.state.borrow().ledger.parts;
    let offloaded = machine.state.borrow().graph.offload.as_ref().map_or(0, |offload| offload.bytes.1);
    let memory = Memory {
        counted: Counted::Tensors,
        parameters: parameters(architecture, scenario, &machine),
        first,
        steady,
        resting,
        context: gpu.context,
        offloaded: Bytes(offloaded),
    };
    drop(training);
    Ok(memory)
}

fn parameters(architecture: &Architecture, scenario: &Scenario, machine: &Machine) -> Parameters {
    let trained: u64 = machine
        .state
        .borrow()
        .params
        .list
        .iter()
        .filter(|param| param.trainable)
        .map(|param| param.numel.saturating_mul(u64::from(param.times)))
        .fold(0, u64::saturating_add);
    let adapters = if scenario.method == Method::Full { 0 } else { trained };
    Parameters { total: architecture.parameters().saturating_add(adapters), trainable: trained }
}

/// Bytes of cuBLASLt's workspace for `addmm` with a bias: 1 MiB (measured on compute capability 7.5, 8.0 and 9.0).
const CUBLASLT_WORKSPACE: u64 = 1 << 20;

/// A model in training.
pub(super) struct Training<'a> {
    model: Model<'a>,
    /// The output that the script keeps alive, and what the graph behind it holds.
    kept: (Vec<Tensor<'a>>, Vec<StorageId>),
    has_state: bool,
    /// The batch's token ids.
    ids: StorageId,
    /// Events up to the end of the last step.
    stepped: usize,
}

impl<'a> Training<'a> {
    /// A model before its first iteration.
    pub fn new(model: Model<'a>) -> Training<'a> {
        Training { model, kept: Default::default(), has_state: false, ids: NOTHING, stepped: 0 }
    }

    fn machine(&self) -> &'a Machine {
        self.model.machine
    }

    /// The batch and the cuBLAS workspaces (one per thread: the script's and autograd's).
    pub fn prepare(&mut self) {
        let scenario = self.model.scenario;
        let mut state = self.machine().state.borrow_mut();
        let ids = scenario.tokens().saturating_mul(Dtype::I64.bytes());
        // ids, labels, and a mask or positions
        let tensors: u64 = match (scenario.stack, scenario.mask) {
            // its labels are shifted into new ones, and no mask is made of padding
            (Stack::Torchtune, _) => 1,
            (_, Mask::None) => 2,
            (_, Mask::Ones | Mask::Padded | Mask::Packed | Mask::PaddingFree) => 3,
        };
        for _ in 0..tensors {
            self.ids = state.persistent(ids, Dtype::I64, 1, Category::Batch, "batch");
        }
        // `addmm` with a bias goes through cuBLASLt, whose workspace is one of its own per thread; only recomputation
        // runs it in autograd's thread
        let light = match (self.model.has_bias(), scenario.checkpointing) {
            ((false, _), _) => [0, 0],
            ((true, false), _) | (_, Checkpointing::Off) => [CUBLASLT_WORKSPACE, 0],
            ((true, true), _) => [CUBLASLT_WORKSPACE; 2],
        };
        let workspace = state.device.workspace;
        state.due_workspaces = light.map(|light| [workspace, light]);
        if scenario.savings.step == StepTime::InBackward {
            state.stepper = Some(Stepper { optimizer: scenario.optimizer, has_state: false });
        }
        // where they lie among other blocks matters to the allocator only: the summarised step has them from the beginning
        if !self.model.whole {
            for in_backward in [true, false] {
                state.in_backward = in_backward;
                state.get_workspace();
            }
        }
    }

    fn begin(&self, phase: Phase) {
        let mut state = self.machine().state.borrow_mut();
        state.ledger.reset_peak();
        state.mark(phase);
    }

    fn peak(&self) -> Peak {
        self.machine().state.borrow_mut().ledger.peak()
    }

    /// One iteration: all micro-batches, then the step.
    pub fn iteration(&mut self) -> Iteration {
        let mut iteration = Iteration::default();
        // every micro-batch after the second repeats the second
        for _ in 0..self.model.scenario.accumulation.clamp(1, 2) {
            self.forward_and_backward(&mut iteration);
        }
        self.optimize(iteration)
    }

    /// One iteration over micro-batches of their own lengths.
    pub fn iteration_of(&mut self, batches: &'a [Scenario]) -> Iteration {
        let mut iteration = Iteration::default();
        for scenario in batches {
            self.model.scenario = scenario;
            self.forward_and_backward(&mut iteration);
        }
        self.optimize(iteration)
    }

    fn optimize(&mut self, mut iteration: Iteration) -> Iteration {
        let scenario = self.model.scenario;
        self.begin(Phase::Step);
        {
            let mut state = self.machine().state.borrow_mut();
            if let Some(stepper) = &mut state.stepper {
                stepper.has_state = true;
            } else {
                if scenario.training_loop.clips {
                    state.clip();
                }
                if self.has_state {
                    state.step(scenario.optimizer);
                } else {
                    state.first_step(scenario.optimizer);
                }
            }
        }
        self.has_state = true;
        self.stepped = self.machine().state.borrow().events();
        iteration.phases[Phase::Step as usize] = self.peak();
        if scenario.training_loop.grads_to_none {
            self.machine().state.borrow_mut().drop_gradients();
        }
        iteration
    }

    fn forward_and_backward(&mut self, iteration: &mut Iteration) {
        self.begin(Phase::Forward);
        if self.model.scenario.savings.offloading == Offloading::On {
            self.begin_offloading();
        }
        self.machine().state.borrow_mut().category = Category::Activations;
        let before = RefCell::new(std::mem::take(&mut self.kept));
        let Output { loss, outputs, shared } = self.model.forward(&|| {
            let (outputs, held) = before.take();
            drop(outputs);
            self.free(held);
        });
        let kept = self.model.scenario.training_loop.keeps_outputs;
        if kept {
            self.kept.0 = outputs.iter().map(Tensor::detach).collect();
        }
        drop(outputs);
        highest(&mut iteration.phases[Phase::Forward as usize], self.peak());
        self.begin(Phase::Backward);
        self.machine().state.borrow_mut().category = Category::Temporaries;
        let model = &self.model;
        self.machine().backward(loss, &|layer, input| model.recompute(layer, input, &shared));
        self.machine().state.borrow_mut().drop_leaves();
        let held = self.machine().state.borrow_mut().graph.take_held();
        if kept {
            self.kept.1 = held;
        } else {
            self.free(held);
        }
        highest(&mut iteration.phases[Phase::Backward as usize], self.peak());
    }

    /// trl's context around forward and backward, or torchtune's around the forward pass. bitsandbytes, which peft loads too, makes it empty the allocator's cache.
    fn begin_offloading(&self) {
        let scenario = self.model.scenario;
        let mut state = self.machine().state.borrow_mut();
        let offload = state.graph.offload.get_or_insert_default();
        offload.ids = self.ids;
        if scenario.stack == Stack::Torchtune {
            offload.forgetful = true;
            return;
        }
        if scenario.method != Method::Full || scenario.optimizer.is_of_bitsandbytes() {
            state.empty_cache();
        }
    }

    /// Events up to the end of the last step, where they are recorded.
    pub fn stepped(&self) -> usize {
        self.stepped
    }

    fn free(&self, storages: Vec<StorageId>) {
        let mut state = self.machine().state.borrow_mut();
        storages.into_iter().for_each(|storage| state.release(storage));
    }

    /// A later iteration. Where nothing but the optimizer's state has come to stay, forward and backward are the first
    /// one's above that state.
    fn steady(&mut self, first: &Iteration) -> Iteration {
        let scenario = self.model.scenario;
        let alters = scenario.savings.step == StepTime::InBackward;
        if self.model.whole
            || alters
            || scenario.training_loop.keeps_outputs
            || !scenario.training_loop.grads_to_none
        {
            return self.iteration();
        }
        let state = self.machine().state.borrow().ledger.parts.get(Category::Optimizer);
        let mut steady = *first;
        for phase in [Phase::Forward, Phase::Backward] {
            let peak = &mut steady.phases[phase as usize];
            peak.bytes += state;
            peak.parts.0[Category::Optimizer.index()] += state.0;
        }
        self.step_again(&mut steady);
        steady
    }

    /// The step with its state there and all gradients alive.
    fn step_again(&mut self, steady: &mut Iteration) {
        let machine = self.machine();
        let gradients = machine.state.borrow_mut().gradients();
        self.begin(Phase::Step);
        {
            let mut state = machine.state.borrow_mut();
            if self.model.scenario.training_loop.clips {
                state.clip();
            }
            state.step(self.model.scenario.optimizer);
        }
        steady.phases[Phase::Step as usize] = self.peak();
        machine.state.borrow_mut().release(gradients);
    }
}

fn highest(peak: &mut Peak, other: Peak) {
    if other.bytes > peak.bytes {
        *peak = other;
    }
}
