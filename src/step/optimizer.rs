//! The optimizer's state and what its step needs.
//!
//! Sources: torch/optim/*.py (foreach implementations), transformers/optimization.py `Adafactor`, bitsandbytes
//! optim/optimizer.py; the temporaries were compared with the allocator's trace of each.

use std::ops::Range;
use std::rc::Rc;

use super::gradient::OnGrad;
use super::heap::{BLOCK, NOTHING, StorageId, rounded};
use super::kernels;
use super::machine::State;
use super::params::{ParamId, Parameter};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::Optimizer;

/// Elements below which bitsandbytes keeps a 32-bit state (`min_8bit_size`).
const MIN_8BIT: u64 = 4096;
/// Elements that share one scale in bitsandbytes' 8-bit optimizers.
const BLOCK_8BIT: u64 = 256;
/// Elements below which a paged optimizer keeps a tensor's state on the GPU all the same (bitsandbytes 0.50
/// optim/optimizer.py `get_state_buffer`).
const MIN_PAGED: u64 = 100_000;

/// What the optimizer knows of a parameter.
#[derive(Clone, Copy)]
struct Trained {
    module: &'static str,
    numel: u64,
    rows: u64,
    times: u32,
    body: u32,
    dtype: Dtype,
    wide_state: bool,
}

impl Trained {
    fn columns(&self) -> u64 {
        self.numel / self.rows.max(1)
    }

    /// Bytes of a tensor like it, and of those that it stands for.
    fn blocks(&self) -> u64 {
        blocks(self.numel.saturating_mul(self.dtype.bytes()), self.times)
    }
}

/// Bytes of so many tensors of `bytes` bytes, each rounded up as the allocator does.
fn blocks(bytes: u64, times: u32) -> u64 {
    rounded(bytes).saturating_mul(u64::from(times))
}

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
        OnGrad::Hook(Rc::new(move |state: &mut State, param| state.step_in_backward(self, param)))
    }
}

/// The trained parameters of a model that have a gradient, in order: optimizers and `clip_grad_norm_` pass the others over.
fn trained(state: &State, own: &Range<usize>) -> Vec<Trained> {
    trained_where(state, own, |param| param.grad != NOTHING)
}

fn trained_where(state: &State, own: &Range<usize>, wanted: fn(&Parameter) -> bool) -> Vec<Trained> {
    let list = state.params.of(own);
    let mut trained = Vec::with_capacity(list.len());
    let wanted = |param: &&Parameter| param.trainable && wanted(param);
    trained.extend(list.iter().filter(wanted).map(|param| {
        let Parameter { module, numel, rows, times, body, dtype, wide_state, .. } = *param;
        Trained { module, numel, rows, times, body, dtype, wide_state }
    }));
    trained
}

/// The parameters as a loop comes by them, where what it leaves of one meets the next: those of a repeated body twice, as
/// the first one's follow the last one's.
fn in_turn(params: &[Trained]) -> impl Iterator<Item = &Trained> {
    params.chunk_by(|one, next| one.body == next.body).flat_map(|body| {
        let again = body.first().is_some_and(|first| first.times > 1);
        std::iter::repeat_n(body, 1 + usize::from(again)).flatten()
    })
}

impl State {
    fn keep(&mut self, bytes: u64, dtype: Dtype, times: u32) {
        if self.record.is_some() {
            self.persistent(bytes, dtype, times, Category::Optimizer, "optimizer state");
        } else {
            self.ledger.add(Category::Optimizer, blocks(bytes, times));
        }
    }

    /// Scratch for every parameter at once, as a foreach implementation has it.
    fn scratch_all(&mut self, params: &[Trained], rounds: usize) {
        let held: Vec<StorageId> = if self.record.is_some() {
            let rounds = std::iter::repeat_n(params, rounds).flatten();
            let make = |param: &Trained| {
                let bytes = param.numel.saturating_mul(param.dtype.bytes());
                self.persistent(bytes, param.dtype, param.times, Category::Temporaries, "foreach")
            };
            rounds.map(make).collect()
        } else {
            let bytes = params.iter().map(Trained::blocks).fold(0, u64::saturating_add);
            let bytes = bytes.saturating_mul(rounds as u64);
            vec![self.alloc_as(Category::Temporaries, bytes, Dtype::U8, "foreach")]
        };
        held.into_iter().rev().for_each(|storage| self.release(storage));
    }

    /// A tensor as large as a parameter that lives for a part of its step.
    fn scratch_like(&mut self, param: &Trained, dtype: Dtype) -> StorageId {
        let bytes = param.numel.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, "optimizer scratch")
    }

    /// torch's for-loop Adam: `denom = (exp_avg_sq.sqrt() / …).add_(eps)`. As a local of the loop, `denom` lives until
    /// the next parameter's is there.
    fn step_adam_one_by_one(&mut self, params: &[Trained]) {
        let mut denominator = NOTHING;
        for param in in_turn(params) {
            let root = self.scratch_like(param, param.dtype);
            let next = self.scratch_like(param, param.dtype);
            self.release(root);
            self.release(std::mem::replace(&mut denominator, next));
        }
        self.release(denominator);
    }

    /// transformers' `Adafactor.step`: float32 copies of gradient and weight where they are 16-bit, then the update in
    /// float32; the loop's locals live until they are assigned again.
    fn step_adafactor(&mut self, params: &[Trained]) {
        let [mut gradient, mut weight, mut update] = [NOTHING; 3];
        for param in in_turn(params) {
            // both variables are given the tensor itself first
            for copy in [&mut gradient, &mut weight].into_iter().filter(|_| param.dtype.is_half()) {
                self.release(std::mem::replace(copy, NOTHING));
                *copy = self.scratch_like(param, Dtype::F32);
            }
            let squares = self.scratch_like(param, Dtype::F32);
            let sum = self.scratch_like(param, Dtype::F32);
            self.release(squares);
            self.release(std::mem::replace(&mut update, sum));
            let scaled = if param.rows > 1 {
                let row_means = self.side(param.rows, Dtype::F32);
                self.release(row_means);
                let column_means = self.column_norms(param, Dtype::F32);
                self.release(column_means);
                let [rows, columns] = [param.rows, param.columns()].map(|side| self.side(side, Dtype::F32));
                let scaled = self.scratch_like(param, Dtype::F32);
                self.release(rows);
                self.release(columns);
                scaled
            } else {
                self.scratch_like(param, Dtype::F32)
            };
            self.release(std::mem::replace(&mut update, scaled));
            let step = self.scratch_like(param, Dtype::F32);
            self.release(step);
        }
        [gradient, weight, update].into_iter().for_each(|storage| self.release(storage));
    }

    /// `torch.optim.Adafactor`, one parameter after the other: the update, as a local, lives until the next one.
    fn step_adafactor_torch(&mut self, params: &[Trained]) {
        let [mut row_means, mut column_means, mut squares, mut update] = [NOTHING; 4];
        for param in in_turn(params) {
            if param.rows > 1 {
                let rows = self.side(param.rows, param.dtype);
                self.release(std::mem::replace(&mut row_means, rows));
                let columns = self.column_norms(param, param.dtype);
                self.release(std::mem::replace(&mut column_means, columns));
            } else {
                let squared = self.scratch_like(param, param.dtype);
                self.release(std::mem::replace(&mut squares, squared));
            }
            let next = self.scratch_like(param, param.dtype);
            self.release(std::mem::replace(&mut update, next));
        }
        [row_means, column_means, squares, update].into_iter().for_each(|storage| self.release(storage));
    }

    /// A number for each row or column of a parameter.
    fn side(&mut self, numel: u64, dtype: Dtype) -> StorageId {
        let bytes = numel.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, "optimizer scratch")
    }

    /// A mean or norm of each column, with the scratch of its kernel.
    fn column_norms(&mut self, param: &Trained, dtype: Dtype) -> StorageId {
        let norms = self.side(param.columns(), dtype);
        kernels::column_sum_scratch(self, param.rows, param.columns(), dtype);
        norms
    }

    /// Optimizers outside torch that loop over parameters with so many tensors of a parameter's size at a time.
    fn step_with(&mut self, params: &[Trained], tensors: usize, dtype: Option<Dtype>) {
        for param in params {
            let dtype = dtype.unwrap_or(param.dtype);
            let held: Vec<StorageId> = (0..tensors).map(|_| self.scratch_like(param, dtype)).collect();
            held.into_iter().rev().for_each(|storage| self.release(storage));
        }
    }

    /// `clip_grad_norm_`: one norm per parameter over partial norms of 65,536 elements each.
    pub fn clip(&mut self, own: &Range<usize>) {
        const CHUNK: u64 = 65_536;
        let params = trained(self, own);
        let tensors: u64 = params.iter().map(|param| u64::from(param.times)).sum();
        let largest = params.iter().map(|param| param.numel.div_ceil(CHUNK)).max().unwrap_or(0);
        let partial = tensors.saturating_mul(largest).saturating_mul(4);
        let partial = self.alloc_as(Category::Temporaries, partial, Dtype::F32, "partial norms");
        let norms: Vec<StorageId> = if self.record.is_some() {
            let norm =
                |param: &Trained| self.persistent(4, Dtype::F32, param.times, Category::Temporaries, "norm");
            params.iter().map(norm).collect()
        } else {
            let bytes = tensors.saturating_mul(BLOCK);
            vec![self.alloc_as(Category::Temporaries, bytes, Dtype::F32, "norms")]
        };
        self.release(partial);
        norms.into_iter().rev().for_each(|storage| self.release(storage));
    }

    /// Makes the state of an optimizer that has one from the beginning; whether it is such a one. torch.optim.Adagrad makes
    /// its sums in `__init__`, of all parameters that it is given; all others make theirs in the first step.
    pub fn start(&mut self, optimizer: Optimizer, own: &Range<usize>) -> bool {
        let starts = optimizer == Optimizer::Adagrad;
        if starts {
            let params = trained_where(self, own, |_| true);
            self.make_states(optimizer, &params);
        }
        starts
    }

    /// The first step: makes the state, then steps.
    pub fn first_step(&mut self, optimizer: Optimizer, own: &Range<usize>) {
        let params = trained(self, own);
        self.make_states(optimizer, &params);
        self.step_all(optimizer, &params);
    }

    fn make_states(&mut self, optimizer: Optimizer, params: &[Trained]) {
        for param in params {
            self.module = param.module;
            let first = self.storages.len();
            self.make_state(optimizer, param);
            self.note_shapes(first, (param.rows, param.columns()));
        }
        self.module = "";
    }

    fn make_state(&mut self, optimizer: Optimizer, param: &Trained) {
        let times = param.times;
        let own = param.numel.saturating_mul(param.dtype.bytes());
        let moments = |state: &mut State, count: usize, bytes: u64, dtype: Dtype| {
            for _ in 0..count {
                state.keep(bytes, dtype, times);
            }
        };
        match optimizer {
            // bitsandbytes' LAMB keeps float32 moments
            Optimizer::Lamb => moments(self, 2, param.numel.saturating_mul(4), Dtype::F32),
            Optimizer::AdamW
            | Optimizer::AdamWEarly
            | Optimizer::AdamWForLoop
            | Optimizer::Adam
            | Optimizer::NAdam
            | Optimizer::SparseAdam
            | Optimizer::AdaBelief => moments(self, 2, own, param.dtype),
            Optimizer::AdamWFused => {
                self.keep(4, Dtype::F32, times);
                moments(self, 2, own, param.dtype);
            }
            Optimizer::AmsGrad => moments(self, 3, own, param.dtype),
            Optimizer::Sgd => {}
            Optimizer::SgdMomentum | Optimizer::Nesterov | Optimizer::Adagrad | Optimizer::RmsProp => {
                moments(self, 1, own, param.dtype);
            }
            Optimizer::AdamW8bit if param.wide_state => {
                moments(self, 2, param.numel.saturating_mul(4), Dtype::F32);
            }
            Optimizer::Lion8bit if param.wide_state => {
                moments(self, 1, param.numel.saturating_mul(4), Dtype::F32);
            }
            Optimizer::PagedAdamW8bit if param.wide_state && param.numel >= MIN_PAGED => {}
            Optimizer::AdamW8bit => self.eight_bit(param, 2),
            Optimizer::Lion8bit => self.eight_bit(param, 1),
            // the states themselves live in unified memory, but for those of small tensors
            Optimizer::PagedAdamW8bit if param.numel < MIN_PAGED => self.eight_bit(param, 2),
            Optimizer::PagedAdamW8bit => self.scales_8bit(param, 2),
            Optimizer::PagedAdamW if param.numel < MIN_PAGED => {
                moments(self, 2, param.numel.saturating_mul(4), Dtype::F32);
            }
            Optimizer::PagedAdamW => {}
            Optimizer::Lion => moments(self, 1, param.numel.saturating_mul(4), Dtype::F32),
            // transformers' keeps float32 statistics, torch's the gradient's type
            Optimizer::Adafactor => {
                self.factored(param, Dtype::F32);
                // state["RMS"]
                self.keep(4, Dtype::F32, times);
            }
            Optimizer::AdafactorTorch => self.factored(param, param.dtype),
            Optimizer::Shampoo => self.preconditioners(param),
        }
    }

    /// A number for each row and each column.
    fn factored(&mut self, param: &Trained, dtype: Dtype) {
        let sides: &[u64] = if param.rows > 1 { &[param.rows, param.columns()] } else { &[param.numel] };
        for side in sides {
            self.keep(side.saturating_mul(dtype.bytes()), dtype, param.times);
        }
    }

    /// Shampoo's for rows and for columns, each with its inverse root.
    fn preconditioners(&mut self, param: &Trained) {
        for side in [param.rows, param.columns()].into_iter().filter(|side| *side > 1) {
            for _ in 0..2 {
                self.keep(side.saturating_mul(side).saturating_mul(4), Dtype::F32, param.times);
            }
        }
    }

    fn eight_bit(&mut self, param: &Trained, moments: usize) {
        if param.numel < MIN_8BIT {
            for _ in 0..moments {
                self.keep(param.numel.saturating_mul(4), Dtype::F32, param.times);
            }
            return;
        }
        for _ in 0..moments {
            self.keep(param.numel, Dtype::U8, param.times);
        }
        self.scales_8bit(param, moments);
    }

    fn scales_8bit(&mut self, param: &Trained, moments: usize) {
        if param.numel < MIN_8BIT {
            return;
        }
        for _ in 0..moments {
            self.keep(param.numel.div_ceil(BLOCK_8BIT).saturating_mul(4), Dtype::F32, param.times);
        }
    }

    /// Every later step.
    pub fn step(&mut self, optimizer: Optimizer, own: &Range<usize>) {
        let params = trained(self, own);
        self.step_all(optimizer, &params);
    }

    /// The step of one parameter, by an optimizer of its own, as soon as its gradient is there; the gradient goes after it.
    /// Inside a repeated body each run steps its own.
    fn step_in_backward(&mut self, stepper: Stepper, param: ParamId) {
        let Parameter { module, numel, rows, body, dtype, wide_state, .. } = self.params.list[param as usize];
        let own = Trained { module, numel, rows, times: 1, body, dtype, wide_state };
        let outer = std::mem::replace(&mut self.module, module);
        if !stepper.has_state {
            let first = self.storages.len();
            self.make_state(stepper.optimizer, &own);
            self.note_shapes(first, (own.rows, own.columns()));
        }
        self.step_all(stepper.optimizer, &[own]);
        self.module = outer;
        let grad = std::mem::replace(&mut self.params.list[param as usize].grad, NOTHING);
        self.release(grad);
    }

    fn step_all(&mut self, optimizer: Optimizer, params: &[Trained]) {
        match optimizer {
            Optimizer::AdamW
            | Optimizer::Adam
            | Optimizer::RmsProp
            | Optimizer::NAdam
            | Optimizer::AmsGrad => self.scratch_all(params, 1),
            // the denominator beside the root
            Optimizer::Adagrad | Optimizer::AdamWEarly => self.scratch_all(params, 2),
            Optimizer::AdamWForLoop => self.step_adam_one_by_one(params),
            Optimizer::Adafactor => self.step_adafactor(params),
            Optimizer::AdafactorTorch => self.step_adafactor_torch(params),
            // the residual to the mean and the denominator
            Optimizer::AdaBelief => self.step_with(params, 2, None),
            // a preconditioned gradient and the product that makes it
            Optimizer::Shampoo => self.step_with(params, 2, Some(Dtype::F32)),
            Optimizer::Sgd
            | Optimizer::SgdMomentum
            | Optimizer::Nesterov
            | Optimizer::SparseAdam
            | Optimizer::Lamb
            | Optimizer::AdamWFused
            | Optimizer::AdamW8bit
            | Optimizer::PagedAdamW8bit
            | Optimizer::PagedAdamW
            | Optimizer::Lion
            | Optimizer::Lion8bit => {}
        }
    }
}
