//! The optimizer's state and what its step needs.
//!
//! Sources: torch/optim/*.py (foreach implementations), transformers/optimization.py `Adafactor`, bitsandbytes
//! optim/optimizer.py, torchao/optim/adam.py, schedulefree 1.4.1 adamw_schedulefree.py, optimi 0.3.3 stableadamw.py; the temporaries were compared with the allocator's trace of each.

mod recipe;

use std::ops::Range;
use std::rc::Rc;

use super::gradient::OnGrad;
use super::heap::{BLOCK, NOTHING, StorageId, rounded};
use super::kernels;
use super::machine::State;
use super::params::{Kept, ParamId, Parameter};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::Optimizer;
use crate::step::what::{Dims, Rank, Source, What};
use recipe::{Bitsandbytes, Keeps, Step, recipe};

static FOREACH: What = What::own(
    "foreach",
    "the square roots of all second moments at once: foreach works on every parameter in one go",
    Source::At("PyTorch, torch/optim/adam.py"),
);
static OPTIMIZER_SCRATCH: What = What::own(
    "optimizer scratch",
    "the optimizer's scratch space for the largest parameter",
    Source::At("PyTorch, torch/optim; transformers, optimization.py"),
);
static OPTIMIZER_STATE: What = What::own(
    "optimizer state",
    "what the optimizer remembers from step to step",
    Source::At("PyTorch, torch/optim; bitsandbytes, optim; torchao, optim"),
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

/// Elements below which bitsandbytes keeps a 32-bit state (`min_8bit_size`), and torchao one of the parameter's type.
const MIN_8BIT: u64 = 4096;
/// Elements that share one scale in the 8-bit optimizers of bitsandbytes and torchao.
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
    rank: Rank,
    times: u32,
    body: u32,
    dtype: Dtype,
    wide_state: bool,
    /// Whether it is a matrix of a layer.
    in_layer: bool,
}

impl Trained {
    fn columns(&self) -> u64 {
        self.numel / self.rows.max(1)
    }

    fn dims(&self) -> Dims {
        Dims::Parameter(self.rows, self.columns(), self.rank)
    }

    /// Whether torchao keeps its state in 8 bits (`_new_buffer` of torchao/optim/adam.py).
    fn is_quantised_by_torchao(&self) -> bool {
        self.numel >= MIN_8BIT && self.numel.is_multiple_of(BLOCK_8BIT)
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
    if let Some(numel) = state.parallel.partition() {
        let (module, rank, dtype) = ("", Rank::None, Dtype::F32);
        return vec![Trained {
            module,
            numel,
            rows: 1,
            rank,
            times: 1,
            body: 0,
            dtype,
            wide_state: false,
            in_layer: false,
        }];
    }
    let list = state.params.of(own);
    let mut trained = Vec::with_capacity(list.len());
    let wanted = |param: &&Parameter| param.trainable && wanted(param);
    trained.extend(list.iter().filter(wanted).map(|param| {
        let Parameter { module, kept, rank, times, body, wide_state, in_layer, .. } = *param;
        Trained {
            module,
            numel: kept.numel,
            rows: kept.rows,
            rank,
            times,
            body,
            dtype: kept.dtype,
            wide_state,
            in_layer,
        }
    }));
    trained
}

/// The parameters of each optimizer that steps: Muon is two, of which the one of matrices steps first.
fn one_after_the_other(optimizer: Optimizer, params: Vec<Trained>) -> impl Iterator<Item = Vec<Trained>> {
    let (first, second): (Vec<Trained>, Vec<Trained>) = match recipe(optimizer).step {
        Step::Muon => params.into_iter().partition(|param| param.in_layer),
        Step::InPlace
        | Step::Foreach { .. }
        | Step::OneByOne { .. }
        | Step::AdamOneByOne
        | Step::Torchao8bit
        | Step::Adafactor
        | Step::AdafactorTorch => (params, Vec::new()),
    };
    [first, second].into_iter().filter(|params| !params.is_empty())
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
            self.persistent(bytes, dtype, times, Category::Optimizer, &OPTIMIZER_STATE);
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
                self.persistent(bytes, param.dtype, param.times, Category::Temporaries, &FOREACH)
            };
            rounds.map(make).collect()
        } else {
            let bytes = params.iter().map(Trained::blocks).fold(0, u64::saturating_add);
            let bytes = bytes.saturating_mul(rounds as u64);
            vec![self.alloc_as(Category::Temporaries, bytes, Dtype::U8, &FOREACH)]
        };
        held.into_iter().rev().for_each(|storage| self.release(storage));
    }

    /// A tensor as large as a parameter that lives for a part of its step.
    fn scratch_like(&mut self, param: &Trained, dtype: Dtype) -> StorageId {
        let bytes = param.numel.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, &OPTIMIZER_SCRATCH)
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

    /// torchao's `single_param_adam`, one compiled kernel after the other: the first finds the scales and writes both moments in
    /// float32, from which the second makes 8-bit numbers.
    fn step_torchao(&mut self, params: &[Trained]) {
        for param in params.iter().filter(|param| param.is_quantised_by_torchao()) {
            let scales = [(); 2].map(|()| self.side(param.numel / BLOCK_8BIT, Dtype::F32));
            let moments = [(); 2].map(|()| self.scratch_like(param, Dtype::F32));
            moments.into_iter().chain(scales).for_each(|storage| self.release(storage));
        }
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

    /// `torch.optim.Muon` of matrices of the layers (torch/optim/_muon.py `_single_tensor_muon`), AdamW of all else. The update, as
    /// a local, lives until the next one is there.
    fn step_muon(&mut self, params: &[Trained]) {
        if params.iter().any(|param| !param.in_layer) {
            return self.scratch_all(params, 1);
        }
        let mut update = NOTHING;
        for param in in_turn(params) {
            let next = self.scratch_like(param, param.dtype);
            self.release(std::mem::replace(&mut update, next));
            let orthogonal = self.orthogonalised(param, next);
            self.release(std::mem::replace(&mut update, orthogonal));
        }
        self.release(update);
    }

    /// `_zeropower_via_newtonschulz`: five rounds, in bfloat16, of products as wide as the shorter side.
    fn orthogonalised(&mut self, param: &Trained, update: StorageId) -> StorageId {
        const ROUNDS: usize = 5;
        let side = param.rows.min(param.columns());
        let square = side.saturating_mul(side);
        self.retain(update);
        let mut orthogonal = update;
        if param.dtype != Dtype::Bf16 {
            orthogonal = self.scratch_like(param, Dtype::Bf16);
            self.release(update);
        }
        let [mut gram, mut gram_update] = [NOTHING; 2];
        for _ in 0..ROUNDS {
            for product in [&mut gram, &mut gram_update] {
                let next = self.side(square, Dtype::Bf16);
                self.release(std::mem::replace(product, next));
            }
            let next = self.scratch_like(param, Dtype::Bf16);
            self.release(std::mem::replace(&mut orthogonal, next));
        }
        self.release(gram);
        self.release(gram_update);
        orthogonal
    }

    /// A number for each row or column of a parameter.
    fn side(&mut self, numel: u64, dtype: Dtype) -> StorageId {
        let bytes = numel.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, &OPTIMIZER_SCRATCH)
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
        for params in one_after_the_other(optimizer, trained(self, own)) {
            self.make_states(optimizer, &params);
            self.step_all(optimizer, &params);
        }
    }

    fn make_states(&mut self, optimizer: Optimizer, params: &[Trained]) {
        let mut code_books = false;
        for param in params {
            self.module = param.module;
            let first = self.storages.len();
            self.make_state(optimizer, param, &mut code_books);
            self.note_dims_since(first, param.dims());
        }
        self.module = "";
    }

    /// The state of a parameter; `code_books` says whether the optimizer has made what all its 8-bit states share.
    fn make_state(&mut self, optimizer: Optimizer, param: &Trained, code_books: &mut bool) {
        let own = param.numel.saturating_mul(param.dtype.bytes());
        match recipe(optimizer).keeps {
            Keeps::Moments { count } => (0..count).for_each(|_| self.keep(own, param.dtype, param.times)),
            Keeps::StepAndMoments => {
                self.keep(4, Dtype::F32, param.times);
                (0..2).for_each(|_| self.keep(own, param.dtype, param.times));
            }
            Keeps::Bitsandbytes(states) => self.bitsandbytes(&states, param, code_books),
            Keeps::Torchao8bit if param.is_quantised_by_torchao() => {
                for _ in 0..2 {
                    self.keep(param.numel, Dtype::U8, param.times);
                    self.keep(param.numel / BLOCK_8BIT * 4, Dtype::F32, param.times);
                    self.keep(256 * 4, Dtype::F32, param.times);
                }
            }
            Keeps::Torchao8bit => (0..2).for_each(|_| self.keep(own, param.dtype, param.times)),
            Keeps::Factored => self.factored(param, param.dtype),
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

    /// The states of one of bitsandbytes' optimizers (optim/optimizer.py `init_state`, optim/ademamix.py `init_state`).
    fn bitsandbytes(&mut self, states: &Bitsandbytes, param: &Trained, code_books: &mut bool) {
        let quantised = states.bits == 8 && !param.wide_state && param.numel >= MIN_8BIT;
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

    /// Shampoo's for rows and for columns, each with its inverse root.
    fn preconditioners(&mut self, param: &Trained) {
        for side in [param.rows, param.columns()].into_iter().filter(|side| *side > 1) {
            for _ in 0..2 {
                self.keep(side.saturating_mul(side).saturating_mul(4), Dtype::F32, param.times);
            }
        }
    }

    /// Every later step.
    pub fn step(&mut self, optimizer: Optimizer, own: &Range<usize>) {
        for params in one_after_the_other(optimizer, trained(self, own)) {
            self.step_all(optimizer, &params);
        }
    }

    /// The step of one parameter, by an optimizer of its own, as soon as its gradient is there; the gradient goes after it.
    /// Inside a repeated body each run steps its own.
    fn step_in_backward(&mut self, stepper: Stepper, param: ParamId) {
        let Parameter { module, kept, rank, body, wide_state, in_layer, .. } =
            self.params.list[param as usize];
        let Kept { numel, rows, dtype } = kept;
        let own = Trained { module, numel, rows, rank, times: 1, body, dtype, wide_state, in_layer };
        let outer = std::mem::replace(&mut self.module, module);
        if !stepper.has_state {
            let first = self.storages.len();
            self.make_state(stepper.optimizer, &own, &mut false);
            self.note_dims_since(first, own.dims());
        }
        self.step_all(stepper.optimizer, &[own]);
        self.module = outer;
        let grad = std::mem::replace(&mut self.params.list[param as usize].grad, NOTHING);
        self.release(grad);
    }

    fn step_all(&mut self, optimizer: Optimizer, params: &[Trained]) {
        match recipe(optimizer).step {
            Step::InPlace => {}
            Step::Foreach { tensors } => self.scratch_all(params, tensors),
            Step::Torchao8bit => self.step_torchao(params),
            Step::AdamOneByOne => self.step_adam_one_by_one(params),
            Step::Adafactor => self.step_adafactor(params),
            Step::AdafactorTorch => self.step_adafactor_torch(params),
            Step::Muon => self.step_muon(params),
            Step::OneByOne { tensors, dtype } => self.step_with(params, tensors, dtype),
        }
    }
}
