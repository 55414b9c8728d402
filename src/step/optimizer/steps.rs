//! What each optimizer's step takes for a moment.

use super::recipe::{Step, Torchao, recipe};
use super::trained::{Trained, in_turn};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::Optimizer;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::what::{Source, What};

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

impl State {
    /// A step of all these parameters.
    pub(super) fn step_all(&mut self, optimizer: Optimizer, params: &[Trained]) {
        match recipe(optimizer).step {
            Step::InPlace => {}
            Step::Foreach { tensors } => self.scratch_all(params, tensors),
            Step::Torchao(how) => self.step_torchao(how, params),
            Step::InPlaceByNorm => self.copy_for_norms(params),
            Step::AdamOneByOne => self.step_adam_one_by_one(params),
            Step::Adafactor => self.step_adafactor(params),
            Step::AdafactorTorch => self.step_adafactor_torch(params),
            Step::Mini => self.step_mini(params),
            Step::Muon => self.step_muon(params),
            Step::LowRank(kind) => self.step_low_rank(kind, params, false),
            Step::AdaBelief => self.step_adabelief(params),
            Step::Shampoo => self.step_shampoo(params),
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
    pub(super) fn scratch_like(&mut self, param: &Trained, dtype: Dtype) -> StorageId {
        let bytes = param.numel.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, &OPTIMIZER_SCRATCH)
    }

    /// bitsandbytes' `optimizer_update_32bit` with `max_unorm`: `torch.norm(p.data.float())`.
    fn copy_for_norms(&mut self, params: &[Trained]) {
        for param in params.iter().filter(|param| param.dtype.is_half()) {
            let copy = self.scratch_like(param, Dtype::F32);
            self.release(copy);
        }
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
    /// float32, from which the second makes 8-bit numbers. 4-bit ones are 64-bit integers before a third packs them, of one moment
    /// after the other.
    fn step_torchao(&mut self, how: Torchao, params: &[Trained]) {
        for param in params.iter().filter(|param| param.is_quantised_by_torchao(how)) {
            let scales = [(); 2].map(|()| self.side(param.numel / how.block, Dtype::F32));
            let moments = [(); 2].map(|()| self.scratch_like(param, Dtype::F32));
            if how.bits == 8 {
                moments.into_iter().chain(scales).for_each(|storage| self.release(storage));
                continue;
            }
            let codes = [(); 2].map(|()| self.scratch_like(param, Dtype::I64));
            for (moment, (code, scale)) in moments.into_iter().zip(codes.into_iter().zip(scales)) {
                [moment, code, scale].into_iter().for_each(|storage| self.release(storage));
            }
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
    pub(super) fn side(&mut self, numel: u64, dtype: Dtype) -> StorageId {
        let bytes = numel.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Temporaries, bytes, dtype, &OPTIMIZER_SCRATCH)
    }

    /// A mean or norm of each column, with the scratch of its kernel.
    fn column_norms(&mut self, param: &Trained, dtype: Dtype) -> StorageId {
        let norms = self.side(param.columns(), dtype);
        kernels::column_sum_scratch(self, param.rows, param.columns(), dtype);
        norms
    }

    /// torch_optimizer's AdaBelief: the residual to the mean, then the denominator as of torch's for-loop Adam. Both, as locals, live until the
    /// next parameter's are there.
    fn step_adabelief(&mut self, params: &[Trained]) {
        let [mut residual, mut denominator] = [NOTHING; 2];
        for param in in_turn(params) {
            let next = self.scratch_like(param, param.dtype);
            self.release(std::mem::replace(&mut residual, next));
            let root = self.scratch_like(param, param.dtype);
            let next = self.scratch_like(param, param.dtype);
            self.release(root);
            self.release(std::mem::replace(&mut denominator, next));
        }
        [residual, denominator].into_iter().for_each(|storage| self.release(storage));
    }

    /// torch_optimizer's Shampoo: of each side the product that is added to its preconditioner, then the inverse root as it comes from the CPU.
    /// The gradient of a matrix is multiplied from the left and turned for the other side; the turned one lives as long as its view.
    fn step_shampoo(&mut self, params: &[Trained]) {
        let mut turned = NOTHING;
        for param in in_turn(params) {
            self.release(std::mem::replace(&mut turned, NOTHING));
            for (index, side) in
                [param.rows, param.columns()].into_iter().filter(|side| *side > 1).enumerate()
            {
                if index > 0 {
                    let left = self.scratch_like(param, Dtype::F32);
                    turned = self.scratch_like(param, Dtype::F32);
                    self.release(left);
                }
                for _ in 0..2 {
                    let square = self.side(side.saturating_mul(side), Dtype::F32);
                    self.release(square);
                }
            }
            // it takes the last one's place
            let preconditioned = self.scratch_like(param, Dtype::F32);
            self.release(preconditioned);
        }
        self.release(turned);
    }
}
