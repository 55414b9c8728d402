//! The optimizer's state and what its step needs.
//!
//! Sources: torch/optim/*.py (foreach implementations), transformers/optimization.py `Adafactor`, bitsandbytes
//! optim/optimizer.py, torchao/optim/adam.py, schedulefree 1.4.1 adamw_schedulefree.py, optimi 0.3.3 stableadamw.py; the temporaries were compared with the allocator's trace of each.
//! torch_optimizer 0.3 shampoo.py and adabelief.py were read and not measured.

mod fused;
mod low_rank;
mod mini;
mod recipe;
mod steps;
mod trained;
mod workspace;

use std::ops::Range;
use std::rc::Rc;

use super::gradient::OnGrad;
use super::heap::{BLOCK, NOTHING, StorageId};
use super::machine::State;
use super::params::ParamId;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::Optimizer;
use crate::step::parallel::pinned;
use crate::step::what::{Source, What};
use recipe::{BLOCK_8BIT, Bitsandbytes, Keeps, Step, recipe};
use trained::{MIN_8BIT, Trained, blocks, trained, trained_one, trained_where};

static OPTIMIZER_STATE: What = What::own(
    "optimizer state",
    "what the optimizer remembers from step to step",
    Source::At("PyTorch, torch/optim; bitsandbytes, optim; torchao, torchao/optim"),
);
static NORM: What = What::own(
    "norm",
    "norms of the gradients, for clipping",
    Source::At("PyTorch, torch/nn/utils/clip_grad.py"),
);
static NORMS: What = What::own(
    "norms",
    "norms of the gradients, for clipping",
    Source::At("PyTorch, torch/nn/utils/clip_grad.py"),
);
static PARTIAL_NORMS: What = What::own(
    "partial norms",
    "norms of the gradients, for clipping",
    Source::At("PyTorch, torch/nn/utils/clip_grad.py"),
);

impl Bitsandbytes {
    /// Whether the states of a parameter have 8 bits.
    fn quantises(&self, param: &Trained) -> bool {
        self.bits == 8 && !param.wide_state && param.numel >= MIN_8BIT
    }
}

/// Elements below which a paged optimizer keeps a tensor's state on the GPU all the same (bitsandbytes 0.50
/// optim/optimizer.py `get_state_buffer`).
const MIN_PAGED: u64 = 100_000;

/// How parameters step in backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepper {
    /// What each of them has one of.
    pub optimizer: Optimizer,
    /// Whether a step was made before.
    pub has_state: bool,
}

impl Stepper {
    /// The hook that steps a parameter and lets its gradient go.
    pub fn hook(self) -> OnGrad {
        if self.optimizer.steps_in_backward() {
            return fused::hook(self.optimizer);
        }
        OnGrad::Hook(Rc::new(move |state: &mut State, param| state.step_in_backward(self, param)))
    }
}

/// The hook of torchao's optimizer that copies a gradient to the CPU's memory and lets it go.
pub(super) fn leaving() -> OnGrad {
    OnGrad::Hook(Rc::new(|state: &mut State, param| {
        let Some(own) = state.params.list.get_mut(param as usize) else { return };
        if own.kept.numel >= MIN_8BIT {
            let grad = std::mem::replace(&mut own.grad, NOTHING);
            state.release(grad);
        }
    }))
}

/// The parameters of each optimizer that steps: Muon is two, of which the one of matrices steps first. What works on every parameter
/// in one go takes DTensors or tensors, not both: they are groups of their own, `apart`.
fn one_after_the_other(
    optimizer: Optimizer,
    params: Vec<Trained>,
    apart: bool,
) -> impl Iterator<Item = Vec<Trained>> {
    let (first, second): (Vec<Trained>, Vec<Trained>) = match recipe(optimizer).step {
        Step::Foreach { .. } if apart => params.into_iter().partition(|param| !param.divided),
        Step::Muon => params.into_iter().partition(|param| param.in_layer),
        Step::InPlace
        | Step::Foreach { .. }
        | Step::InPlaceByNorm
        | Step::AdaBelief
        | Step::Shampoo
        | Step::AdamOneByOne
        | Step::Torchao(_)
        | Step::Adafactor
        | Step::AdafactorTorch
        | Step::Mini
        | Step::LowRank(_) => (params, Vec::new()),
    };
    [first, second].into_iter().filter(|params| !params.is_empty())
}

impl State {
    fn keep(&mut self, bytes: u64, dtype: Dtype, times: u32) {
        if self.record.is_some() {
            self.persistent(bytes, dtype, times, Category::Optimizer, &OPTIMIZER_STATE);
        } else {
            self.ledger.add(Category::Optimizer, blocks(bytes, times));
        }
    }

    /// `clip_grad_norm_`: one norm per parameter over partial norms of 65,536 elements each.
    pub fn clip(&mut self, own: &Range<usize>) {
        const CHUNK: u64 = 65_536;
        let params = trained(self, own);
        let tensors: u64 = params.iter().map(|param| u64::from(param.times)).sum();
        let largest = params.iter().map(|param| param.numel.div_ceil(CHUNK)).max().unwrap_or(0);
        let partial = tensors.saturating_mul(largest).saturating_mul(4);
        let partial = self.alloc_as(Category::Temporaries, partial, Dtype::F32, &PARTIAL_NORMS);
        let norms: Vec<StorageId> = if self.record.is_some() {
            let norm =
                |param: &Trained| self.persistent(4, Dtype::F32, param.times, Category::Temporaries, &NORM);
            params.iter().map(norm).collect()
        } else {
            let bytes = tensors.saturating_mul(BLOCK);
            vec![self.alloc_as(Category::Temporaries, bytes, Dtype::F32, &NORMS)]
        };
        self.release(partial);
        norms.into_iter().rev().for_each(|storage| self.release(storage));
    }

    /// Makes the state of an optimizer that has one from the beginning; whether it is such a one. torch.optim.Adagrad and AdaLomo
    /// make theirs in `__init__`, of all parameters that they are given; all others make theirs in the first step.
    pub fn start(&mut self, optimizer: Optimizer, own: &Range<usize>) -> bool {
        let starts = matches!(optimizer, Optimizer::Adagrad | Optimizer::AdaLomo);
        if starts {
            let params = trained_where(self, own, |_| true);
            self.make_states(optimizer, &params);
        }
        starts
    }

    /// The first step: makes the state, then steps.
    pub fn first_step(&mut self, optimizer: Optimizer, own: &Range<usize>) {
        if let Step::LowRank(kind) = recipe(optimizer).step {
            let params = trained(self, own);
            return self.step_low_rank(kind, &params, true);
        }
        if matches!(recipe(optimizer).step, Step::Mini) {
            let params = trained(self, own);
            return self.first_step_mini(&params);
        }
        for params in one_after_the_other(optimizer, trained(self, own), self.parallel.mixes_dtensors()) {
            if matches!(recipe(optimizer).step, Step::InPlaceByNorm | Step::Torchao(_)) {
                self.first_step_in_turn(optimizer, &params);
                continue;
            }
            self.make_states(optimizer, &params);
            self.step_all(optimizer, &params);
        }
    }

    /// The same where each parameter steps before the state of the next one is made; of a repeated body the last one steps last,
    /// when the states of the others are there.
    fn first_step_in_turn(&mut self, optimizer: Optimizer, params: &[Trained]) {
        for body in params.chunk_by(|one, next| one.body == next.body) {
            let others = body.iter().filter(|param| param.times > 1);
            let others: Vec<Trained> =
                others.map(|param| Trained { times: param.times - 1, ..*param }).collect();
            self.make_states(optimizer, &others);
            for param in body {
                let last = [Trained { times: 1, ..*param }];
                self.make_states(optimizer, &last);
                self.step_all(optimizer, &last);
            }
        }
    }

    fn make_states(&mut self, optimizer: Optimizer, params: &[Trained]) {
        let mut code_books = false;
        for param in params {
            (self.module, self.layer) = (param.module, param.layer);
            let first = self.storages.len();
            self.make_state(optimizer, param, &mut code_books);
            self.note_dims_since(first, param.dims());
        }
        (self.module, self.layer) = ("", 0);
    }

    /// The state of a parameter; `code_books` says whether the optimizer has made what all its 8-bit states share.
    fn make_state(&mut self, optimizer: Optimizer, param: &Trained, code_books: &mut bool) {
        let own = param.numel.saturating_mul(param.dtype.bytes());
        match recipe(optimizer).keeps {
            Keeps::Moments { count } => (0..count).for_each(|_| self.keep(own, param.dtype, param.times)),
            // torchao keeps it in the CPU's memory
            Keeps::OnCpu if param.numel >= MIN_8BIT => {}
            Keeps::StepAndMoments | Keeps::OnCpu => {
                self.keep(4, Dtype::F32, param.times);
                (0..2).for_each(|_| self.keep(own, param.dtype, param.times));
            }
            Keeps::Bitsandbytes(states) => self.bitsandbytes(&states, param, code_books),
            Keeps::Torchao(how) if param.is_quantised_by_torchao(how) => {
                for _ in 0..2 {
                    self.keep(param.numel / 8 * u64::from(how.bits), Dtype::U8, param.times);
                    self.keep(param.numel / how.block * 4, Dtype::F32, param.times);
                    self.keep(4 << how.bits, Dtype::F32, param.times);
                }
            }
            Keeps::Torchao(_) => (0..2).for_each(|_| self.keep(own, param.dtype, param.times)),
            Keeps::Factored => self.factored(param, param.dtype),
            Keeps::FactoredInFloat32 => self.factored(param, Dtype::F32),
            // with the step
            Keeps::Projected => {}
            Keeps::FactoredAndRms => {
                self.factored(param, Dtype::F32);
                self.keep(4, Dtype::F32, param.times);
            }
            Keeps::Preconditioners => self.preconditioners(param),
            Keeps::Stable => {
                let (lost, dtype) = if param.dtype.is_half() { (own, param.dtype) } else { (1, Dtype::U8) };
                (0..2).for_each(|_| self.keep(own, param.dtype, param.times));
                self.keep(param.dtype.bytes(), param.dtype, param.times);
                self.keep(lost, dtype, param.times);
                self.keep(4, Dtype::F32, param.times);
            }
            Keeps::Muon => {
                let count = if param.in_layer { 1 } else { 2 };
                (0..count).for_each(|_| self.keep(own, param.dtype, param.times));
            }
        }
    }

    /// Bytes of these parameters' states in CUDA's unified memory, outside PyTorch's allocator (bitsandbytes, functional.py `get_paged`): on
    /// the card as far as it has room, and in the CPU's memory otherwise.
    pub fn optimizer_paged(&self, optimizer: Optimizer, own: &Range<usize>) -> u64 {
        let Keeps::Bitsandbytes(states) = recipe(optimizer).keeps else { return 0 };
        if !states.paged {
            return 0;
        }
        let params = trained_where(self, own, |_| true);
        let of_each = params.iter().filter(|param| param.numel >= MIN_PAGED).map(|param| {
            let bytes = if states.quantises(param) { Dtype::U8.bytes() } else { Dtype::F32.bytes() };
            let copies: u64 = states.copies.iter().sum();
            param.numel.saturating_mul(copies).saturating_mul(bytes).saturating_mul(u64::from(param.times))
        });
        of_each.fold(0, u64::saturating_add)
    }

    /// The states of one of bitsandbytes' optimizers (optim/optimizer.py `init_state`, optim/ademamix.py `init_state`).
    fn bitsandbytes(&mut self, states: &Bitsandbytes, param: &Trained, code_books: &mut bool) {
        let quantised = states.quantises(param);
        if quantised && !std::mem::replace(code_books, true) {
            // of signed and of unsigned numbers (`fill_qmap`)
            (0..2).for_each(|_| self.keep(256 * 4, Dtype::F32, 1));
        }
        let dtype = if quantised { Dtype::U8 } else { Dtype::F32 };
        let paged = states.paged && param.numel >= MIN_PAGED;
        let scales = |state: &mut State| {
            for copies in states.copies.iter().filter(|_| quantised) {
                let count = copies.saturating_mul(param.numel.div_ceil(BLOCK_8BIT));
                state.keep(count.saturating_mul(4), Dtype::F32, param.times);
            }
        };
        if states.scales_first {
            scales(self);
        }
        for copies in states.copies.iter().filter(|_| !paged) {
            let count = copies.saturating_mul(param.numel);
            self.keep(count.saturating_mul(dtype.bytes()), dtype, param.times);
        }
        if !states.scales_first {
            scales(self);
        }
        if states.bounded {
            self.keep(4, Dtype::F32, param.times);
        }
    }

    /// A number for each row and each column.
    fn factored(&mut self, param: &Trained, dtype: Dtype) {
        let sides: &[u64] = if param.rows > 1 { &[param.rows, param.columns()] } else { &[param.numel] };
        for side in sides {
            self.keep(side.saturating_mul(dtype.bytes()), dtype, param.times);
        }
    }

    /// Shampoo's for rows and for columns, each with its inverse root, and the gradient that they made last, which is the momentum's where
    /// there is none, too. All in float32, as torch.svd takes them.
    fn preconditioners(&mut self, param: &Trained) {
        for side in [param.rows, param.columns()].into_iter().filter(|side| *side > 1) {
            for _ in 0..2 {
                self.keep(side.saturating_mul(side).saturating_mul(4), Dtype::F32, param.times);
            }
        }
        self.keep(param.numel.saturating_mul(4), Dtype::F32, param.times);
    }

    /// Bytes of the CPU's memory that an optimizer takes of these parameters: torchao's has of each a pinned copy, one of its gradient,
    /// and the two moments, which are not pinned (torchao/optim/cpu_offload.py).
    pub fn optimizer_on_host(&self, optimizer: Optimizer, own: &Range<usize>) -> u64 {
        if !optimizer.is_on_cpu() {
            return 0;
        }
        let params = trained_where(self, own, |_| true);
        let of_each = params.iter().filter(|param| param.numel >= MIN_8BIT).map(|param| {
            let bytes = param.numel.saturating_mul(param.dtype.bytes());
            let copies = pinned(bytes).saturating_mul(2);
            copies.saturating_add(bytes.saturating_mul(2)).saturating_mul(u64::from(param.times))
        });
        of_each.fold(0, u64::saturating_add)
    }

    /// Every later step.
    pub fn step(&mut self, optimizer: Optimizer, own: &Range<usize>) {
        for params in one_after_the_other(optimizer, trained(self, own), self.parallel.mixes_dtensors()) {
            self.step_all(optimizer, &params);
        }
    }

    /// The step of one parameter, by an optimizer of its own, as soon as its gradient is there; the gradient goes after it.
    /// Inside a repeated body each run steps its own.
    fn step_in_backward(&mut self, stepper: Stepper, param: ParamId) {
        let Some(own) = trained_one(self, param) else { return };
        let outer = (self.module, self.layer);
        self.module = own.module;
        if let Step::LowRank(kind) = recipe(stepper.optimizer).step {
            self.step_low_rank(kind, &[own], !stepper.has_state);
            (self.module, self.layer) = outer;
            let grad = std::mem::replace(&mut self.params.list[param as usize].grad, NOTHING);
            return self.release(grad);
        }
        if !stepper.has_state {
            let first = self.storages.len();
            self.make_state(stepper.optimizer, &own, &mut false);
            self.note_dims_since(first, own.dims());
        }
        self.step_all(stepper.optimizer, &[own]);
        self.module = outer.0;
        let grad = std::mem::replace(&mut self.params.list[param as usize].grad, NOTHING);
        self.release(grad);
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::{Category, Stage};
    use crate::{estimate, share};

    /// Bytes of an optimizer's state, and of what its step takes at once beside weights, gradients and state, of Llama 3.2 1B in float32.
    fn state_and_scratch(optimizer: &str) -> [u64; 2] {
        let link = format!("v=1&m=meta-llama/Llama-3.2-1B&method=full&p=fp32&s=128&o={optimizer}");
        let answer = estimate(&share::decode(&link).scenarios[0]);
        let memory = answer.memory.unwrap_or_else(|| panic!("{optimizer}: {:?}", answer.issues));
        let of_step = |stage: Stage| stage == Stage::Step;
        let step = memory.steady.phases.iter().find(|(phase, _)| of_step(phase.stage));
        let (_, peak) = step.unwrap_or_else(|| panic!("{optimizer}: {:?}", memory.steady.phases));
        [memory.resting.get(Category::Optimizer).0, peak.parts.get(Category::Temporaries).0]
    }

    const EMBEDDING: (u64, u64) = (128_256, 2048);

    /// torch_optimizer 0.3 adabelief.py: `exp_avg` and `exp_avg_var`; `grad_residual`, and beside it the root and what is made of it.
    #[test]
    fn adabelief_keeps_two_moments_and_makes_three_tensors_at_a_time() {
        let [state, scratch] = state_and_scratch("adabelief");
        assert_eq!(state, 2 * 4 * 1_235_814_400);
        assert_eq!(scratch, 3 * 4 * EMBEDDING.0 * EMBEDDING.1);
    }

    /// shampoo.py: `precond_` and `inv_precond_` of each side, and `momentum_buffer`; the largest of what is made is a product as large as the
    /// embedding's preconditioner.
    #[test]
    fn shampoo_keeps_two_squares_for_each_side() {
        let [state, scratch] = state_and_scratch("shampoo");
        let squares = |(rows, columns): (u64, u64)| 2 * 4 * (rows * rows + columns * columns);
        let layer = 2 * squares((2048, 2048)) + 2 * squares((512, 2048)) + 3 * squares((8192, 2048));
        // of a norm there is one side
        let norms = 33 * 2 * 4 * 2048 * 2048;
        assert_eq!(state, squares(EMBEDDING) + 16 * layer + norms + 4 * 1_235_814_400);
        assert_eq!(scratch, 4 * EMBEDDING.0 * EMBEDDING.0);
    }
}
