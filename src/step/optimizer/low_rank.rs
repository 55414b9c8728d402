//! GaLore's and APOLLO's steps: the gradient of a matrix is projected onto few directions, in which the optimizer keeps its moments.
//!
//! Every step here makes the projections anew, as every `update_proj_gap`-th does (200 by default), the first among them: it is the
//! one that takes most, and a run of usual length comes to it. Sources: galore_torch 1.0 (galore_projector.py, adamw.py,
//! adamw8bit.py, adafactor.py), apollo_torch 1.0.3 (random_projector.py, apollo.py).

use super::recipe::{BITSANDBYTES, Bitsandbytes, LowRank};
use super::trained::{MIN_8BIT, Trained};
use super::workspace;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::what::{Source, What};

static PROJECTION: What = What::own(
    "projection",
    "the directions onto which the optimizer projects a matrix's gradient",
    Source::At("galore_torch, galore_projector.py; apollo_torch, random_projector.py"),
);
static DECOMPOSITION: What = What::own(
    "singular values",
    "the decomposition of a whole gradient in float32, from which GaLore takes its projection",
    Source::At("galore_torch, galore_projector.py; PyTorch, BatchLinearAlgebraLib.cpp"),
);
static LOW_RANK: What = What::own(
    "low-rank gradient",
    "a gradient in the few directions in which the optimizer keeps its moments, and what is computed there",
    Source::At("galore_torch; apollo_torch"),
);
static WHOLE_UPDATE: What = What::own(
    "update",
    "the update of a whole parameter, made of what was computed in few directions",
    Source::At("galore_torch; apollo_torch"),
);
static MOMENTS: What = What::own(
    "optimizer state",
    "what the optimizer remembers from step to step: of a projected gradient, in few directions",
    Source::At("galore_torch; apollo_torch"),
);
static MOVED_WEIGHT: What = What::own(
    "parameter",
    "the weight, which stands aside while the optimizer's update is written in its place",
    Source::At("galore_torch, adamw8bit.py"),
);

/// 8-bit moments of what is projected, and of all else. galore-torch hands its 100 for clipping by percentiles to bitsandbytes 0.50 in the
/// place of `max_unorm`, so that the norm of the update is kept.
const IN_8_BITS: Bitsandbytes = Bitsandbytes { bits: 8, bounded: true, ..BITSANDBYTES };

/// A matrix as the projection sees it: of its longer side every element stays, of its shorter one the rank.
struct Sides {
    longer: u64,
    shorter: u64,
    rank: u64,
}

impl Sides {
    fn of(kind: LowRank, param: &Trained, rank: u64) -> Sides {
        let (longer, shorter) = (param.rows.max(param.columns()), param.rows.min(param.columns()));
        // singular vectors are no more than the shorter side has elements, random ones as many as are asked for
        let rank = if kind == LowRank::Apollo { rank } else { rank.min(shorter) };
        Sides { longer, shorter, rank }
    }

    /// Elements of the projected gradient.
    fn projected(&self) -> u64 {
        self.longer.saturating_mul(self.rank)
    }

    /// Elements of the projection.
    fn projection(&self) -> u64 {
        self.shorter.saturating_mul(self.rank)
    }
}

/// The variables of a step's loop, which hold what they were given until they are given something else.
struct Locals {
    gradient: StorageId,
    weight: StorageId,
    denominator: StorageId,
    update: StorageId,
    factor: StorageId,
    scaled: StorageId,
}

impl Locals {
    const UNASSIGNED: Locals = Locals {
        gradient: NOTHING,
        weight: NOTHING,
        denominator: NOTHING,
        update: NOTHING,
        factor: NOTHING,
        scaled: NOTHING,
    };

    /// In the order in which they go when the function returns.
    fn all(self) -> [StorageId; 6] {
        [self.gradient, self.weight, self.denominator, self.update, self.factor, self.scaled]
    }
}

impl State {
    /// A step of all these parameters; the first makes their states too. Those that are not projected come first, as a group of
    /// their own.
    pub(super) fn step_low_rank(&mut self, kind: LowRank, params: &[Trained], is_first: bool) {
        let (whole, projected): (Vec<&Trained>, Vec<&Trained>) =
            params.iter().partition(|param| param.projection_rank.is_none());
        let (mut locals, mut code_books) = (Locals::UNASSIGNED, false);
        for param in whole.into_iter().chain(projected) {
            (self.module, self.layer) = (param.module, param.layer);
            match kind {
                LowRank::GaLore | LowRank::Apollo => self.step_moments(kind, param, &mut locals, is_first),
                LowRank::GaLore8bit => {
                    self.step_in_8_bits(param, &mut locals, is_first.then_some(&mut code_books));
                }
                LowRank::GaLoreAdafactor => self.step_factored(param, &mut locals, is_first),
            }
        }
        (self.module, self.layer) = ("", 0);
        locals.all().into_iter().for_each(|storage| self.release(storage));
    }

    fn low(&mut self, numel: u64, dtype: Dtype, what: &'static What) -> StorageId {
        self.alloc_as(Category::Temporaries, numel.saturating_mul(dtype.bytes()), dtype, what)
    }

    /// The gradient in few directions, after the projection onto them was made anew.
    fn onto_few(&mut self, kind: LowRank, param: &Trained, sides: &Sides, dtype: Dtype) -> StorageId {
        let made = match kind {
            LowRank::Apollo => self.random_projection(param, sides, dtype),
            LowRank::GaLore | LowRank::GaLore8bit | LowRank::GaLoreAdafactor => {
                self.singular_projection(param, sides, dtype)
            }
        };
        let before = std::mem::replace(&mut self.params.list[param.id as usize].projection, made);
        self.release(before);
        self.low(sides.projected(), dtype, &LOW_RANK)
    }

    /// `get_orthogonal_matrix` of GaLore. Of a 16-bit gradient the rows that are taken are copied; of a float32 one they are a view,
    /// which keeps the whole square matrix that they are rows of.
    fn singular_projection(&mut self, param: &Trained, sides: &Sides, dtype: Dtype) -> StorageId {
        let Sides { longer, shorter, rank } = *sides;
        let square = shorter.saturating_mul(shorter);
        let copied = dtype.is_half();
        let copy = if copied { self.low(param.numel, Dtype::F32, &DECOMPOSITION) } else { NOTHING };
        let wide = |state: &mut State| state.low(param.numel, Dtype::F32, &DECOMPOSITION);
        // what is taken has the shorter side twice
        let taken = |state: &mut State| {
            let (category, what) = match copied {
                true => (Category::Temporaries, &DECOMPOSITION),
                false => (Category::Optimizer, &PROJECTION),
            };
            state.alloc_as(category, square.saturating_mul(4), Dtype::F32, what)
        };
        let of_columns = param.rows >= param.columns();
        let (left, right) = match of_columns {
            true => (wide(self), taken(self)),
            false => (taken(self), wide(self)),
        };
        let values = self.low(shorter, Dtype::F32, &DECOMPOSITION);
        let info = self.low(1, Dtype::F32, &DECOMPOSITION);
        let overwritten = self.low(param.numel, Dtype::F32, &DECOMPOSITION);
        let scratch = self.low(workspace::of_decomposition(longer, shorter), Dtype::F32, &DECOMPOSITION);
        [scratch, overwritten, info].into_iter().for_each(|storage| self.release(storage));
        // the other factor is scaled and thrown away
        let diagonal = self.low(rank.saturating_mul(rank), Dtype::F32, &DECOMPOSITION);
        let product = self.low(sides.projected(), Dtype::F32, &DECOMPOSITION);
        self.release(diagonal);
        let projection = if copied {
            self.kept_projection(sides, dtype)
        } else {
            let taken = if of_columns { right } else { left };
            self.retain(taken);
            taken
        };
        [copy, left, values, right, product].into_iter().for_each(|storage| self.release(storage));
        projection
    }

    fn kept_projection(&mut self, sides: &Sides, dtype: Dtype) -> StorageId {
        let bytes = sides.projection().saturating_mul(dtype.bytes());
        self.alloc_as(Category::Optimizer, bytes, dtype, &PROJECTION)
    }

    /// `get_orthogonal_matrix` of APOLLO, which reads no more of a gradient than its shape and copies it to float32 all the same.
    fn random_projection(&mut self, param: &Trained, sides: &Sides, dtype: Dtype) -> StorageId {
        if !dtype.is_half() {
            let drawn = self.low(sides.projection(), Dtype::F32, &PROJECTION);
            let projection = self.kept_projection(sides, dtype);
            self.release(drawn);
            return projection;
        }
        let copy = self.low(param.numel, Dtype::F32, &LOW_RANK);
        let drawn = self.low(sides.projection(), Dtype::F32, &PROJECTION);
        let scaled = self.low(sides.projection(), Dtype::F32, &PROJECTION);
        self.release(drawn);
        let projection = self.kept_projection(sides, dtype);
        [scaled, copy].into_iter().for_each(|storage| self.release(storage));
        projection
    }

    /// `project_back`: the product, and the product times the scale.
    fn project_back(&mut self, param: &Trained, dtype: Dtype) -> StorageId {
        let product = self.low(param.numel, dtype, &WHOLE_UPDATE);
        let scaled = self.low(param.numel, dtype, &WHOLE_UPDATE);
        self.release(product);
        scaled
    }

    fn assign(&mut self, variable: &mut StorageId, value: StorageId) {
        self.release(std::mem::replace(variable, value));
    }

    fn keep_one(&mut self, numel: u64, dtype: Dtype) {
        let bytes = numel.saturating_mul(dtype.bytes());
        self.alloc_as(Category::Optimizer, bytes, dtype, &MOMENTS);
    }

    /// AdamW's step, of a projected gradient where the parameter has a projection.
    fn step_moments(&mut self, kind: LowRank, param: &Trained, locals: &mut Locals, is_first: bool) {
        let dtype = param.dtype;
        let sides = param.projection_rank.map(|rank| Sides::of(kind, param, rank));
        self.assign(&mut locals.gradient, NOTHING);
        if let Some(sides) = &sides {
            locals.gradient = self.onto_few(kind, param, sides, dtype);
        }
        let numel = sides.as_ref().map_or(param.numel, Sides::projected);
        if is_first {
            (0..2).for_each(|_| self.keep_one(numel, dtype));
        }
        for variable in [&mut locals.denominator, &mut locals.update] {
            let next = self.low(numel, dtype, &LOW_RANK);
            self.assign(variable, next);
        }
        match sides {
            Some(sides) if kind == LowRank::Apollo => self.scale(param, &sides, locals, is_first),
            Some(_) => {
                let whole = self.project_back(param, dtype);
                self.assign(&mut locals.update, whole);
            }
            None => {}
        }
    }

    /// APOLLO's update: the gradient itself, each channel scaled as the low-rank update is to the low-rank gradient. From the second
    /// step on it is bounded by the norm of the one before.
    fn scale(&mut self, param: &Trained, sides: &Sides, locals: &mut Locals, is_first: bool) {
        let dtype = param.dtype;
        let [of_update, of_gradient, divisor] = {
            let of_update = self.low(sides.longer, dtype, &LOW_RANK);
            let of_gradient = self.low(sides.longer, dtype, &LOW_RANK);
            [of_update, of_gradient, self.low(sides.longer, dtype, &LOW_RANK)]
        };
        self.release(of_gradient);
        let factor = self.low(sides.longer, dtype, &LOW_RANK);
        [of_update, divisor].into_iter().for_each(|storage| self.release(storage));
        self.assign(&mut locals.factor, factor);
        let scaled = self.low(param.numel, dtype, &WHOLE_UPDATE);
        self.assign(&mut locals.scaled, scaled);
        if is_first {
            self.keep_one(1, dtype);
        } else {
            let bounded = self.low(param.numel, dtype, &WHOLE_UPDATE);
            self.assign(&mut locals.scaled, bounded);
        }
        self.retain(locals.scaled);
        self.assign(&mut locals.update, locals.scaled);
    }

    /// The step of bitsandbytes' 8-bit AdamW, which is given the low-rank gradient as the gradient of a parameter of zeros: the weight
    /// stands aside as a copy, and what became of the zeros is added to it.
    fn step_in_8_bits(&mut self, param: &Trained, locals: &mut Locals, code_books: Option<&mut bool>) {
        let dtype = param.dtype;
        let Some(rank) = param.projection_rank else {
            return self.update_in_8_bits(param, code_books);
        };
        let sides = Sides::of(LowRank::GaLore8bit, param, rank);
        let projected = self.onto_few(LowRank::GaLore8bit, param, &sides, dtype);
        self.assign(&mut locals.gradient, projected);
        let bytes = param.numel.saturating_mul(dtype.bytes());
        let aside = self.alloc_as(Category::Weights, bytes, dtype, &MOVED_WEIGHT);
        let zeros = self.low(sides.projected(), dtype, &LOW_RANK);
        self.retain(projected);
        let own = &mut self.params.list[param.id as usize];
        let weight = std::mem::replace(&mut own.storage, aside);
        let gradient = std::mem::replace(&mut own.grad, projected);
        self.recategorise(projected, Category::Gradients);
        [weight, gradient].into_iter().for_each(|storage| self.release(storage));
        self.update_in_8_bits(&Trained { numel: sides.projected(), ..*param }, code_books);
        let whole = self.project_back(param, dtype);
        [whole, zeros].into_iter().for_each(|storage| self.release(storage));
    }

    /// bitsandbytes' `init_state` and `update_step`; what is too small for 8 bits is copied to float32 for its norm. transformers asks
    /// for no 32-bit states of embeddings here.
    fn update_in_8_bits(&mut self, param: &Trained, code_books: Option<&mut bool>) {
        if let Some(code_books) = code_books {
            self.bitsandbytes(&IN_8_BITS, &Trained { wide_state: false, ..*param }, code_books);
        }
        if param.numel < MIN_8BIT && param.dtype.is_half() {
            let copy = self.low(param.numel, Dtype::F32, &LOW_RANK);
            self.release(copy);
        }
    }

    /// Adafactor's step in float32, of a projected gradient where the parameter has a projection.
    fn step_factored(&mut self, param: &Trained, locals: &mut Locals, is_first: bool) {
        let kind = LowRank::GaLoreAdafactor;
        let sides = param.projection_rank.map(|rank| Sides::of(kind, param, rank));
        // the variable is given the tensor itself first
        self.assign(&mut locals.gradient, NOTHING);
        if param.dtype.is_half() {
            locals.gradient = self.low(param.numel, Dtype::F32, &WHOLE_UPDATE);
        }
        let (mut rows, mut columns) = (param.rows, param.columns());
        if let Some(sides) = &sides {
            (rows, columns) = if rows >= columns { (rows, sides.rank) } else { (sides.rank, columns) };
            let projected = self.onto_few(kind, param, sides, Dtype::F32);
            self.assign(&mut locals.gradient, projected);
        }
        let numel = rows.saturating_mul(columns);
        let is_matrix = param.rows > 1;
        if is_first {
            let states: &[u64] = if is_matrix { &[rows, columns] } else { &[numel] };
            states.iter().for_each(|side| self.keep_one(*side, Dtype::F32));
            self.keep_one(1, Dtype::F32);
        }
        self.assign(&mut locals.weight, NOTHING);
        if param.dtype.is_half() {
            locals.weight = self.low(param.numel, Dtype::F32, &WHOLE_UPDATE);
        }
        self.factored_update(numel, is_matrix.then_some((rows, columns)), &mut locals.update);
        if sides.is_some() {
            let whole = self.project_back(param, Dtype::F32);
            self.assign(&mut locals.update, whole);
        }
        let negative = self.low(param.numel, Dtype::F32, &WHOLE_UPDATE);
        self.release(negative);
    }

    /// Adafactor's update in float32 from the squares of a gradient: of a matrix by the means of its rows and columns.
    pub(super) fn factored_update(&mut self, numel: u64, matrix: Option<(u64, u64)>, update: &mut StorageId) {
        let squares = self.low(numel, Dtype::F32, &WHOLE_UPDATE);
        let sum = self.low(numel, Dtype::F32, &WHOLE_UPDATE);
        self.release(squares);
        self.assign(update, sum);
        let next = if let Some((rows, columns)) = matrix {
            let row_means = self.low(rows, Dtype::F32, &LOW_RANK);
            self.release(row_means);
            let column_means = self.low(columns, Dtype::F32, &LOW_RANK);
            kernels::column_sum_scratch(self, rows, columns, Dtype::F32);
            self.release(column_means);
            let [by_row, by_column] = [rows, columns].map(|side| self.low(side, Dtype::F32, &LOW_RANK));
            let next = self.low(numel, Dtype::F32, &WHOLE_UPDATE);
            [by_row, by_column].into_iter().for_each(|storage| self.release(storage));
            next
        } else {
            self.low(numel, Dtype::F32, &WHOLE_UPDATE)
        };
        self.assign(update, next);
    }
}
