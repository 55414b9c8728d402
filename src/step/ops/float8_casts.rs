//! What a product in 8-bit floats is made of: casts with their scales, and `torch._scaled_mm` with what it wants laid out otherwise.
//!
//! Source: torchao 0.18 float8/float8_utils.py, float8_scaling_utils.py, float8_training_tensor.py, float8_ops.py.

use super::shape::Shape;
use crate::dtype::Dtype;
use crate::step::float8::MULTIPLE;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::tensor::Value;
use crate::step::what::{Dims, Source, What, torch};

const SOURCE: Source = Source::At("torchao, float8/float8_utils.py and float8_ops.py");
static MAGNITUDES: What =
    What::own("abs", "what is cast to 8 bits without its signs, of which the largest is looked for", SOURCE);
static LARGEST: What = What::own("amax", "the largest magnitudes, from which scales are made", SOURCE);
static SCALE_64: What = What::own("scale (float64)", "a step on the way to the scales of a cast", SOURCE);
static SCALE: What = What::own("scale", "the scales of what is cast to 8 bits", SOURCE);
static FLOAT: What = What::own("float", "what is cast to 8 bits in float32", SOURCE);
static SCALED: What = What::own("scaled", "what is cast to 8 bits in float32, times its scales", SOURCE);
static CLAMPED: What = What::own(
    "clamp",
    "the same within the numbers that 8 bits can hold: eager casts do not saturate",
    SOURCE,
);
static CAST: What = What::own("8-bit cast", "an operand of a product in 8 bits", SOURCE);
static PADDED: What = What::own("pad", "a copy of an operand in 8 bits, padded to a multiple of 16", SOURCE);
static LAID_OUT: What =
    What::own("contiguous", "an operand in 8 bits laid out as the product takes it", SOURCE);
static INVERSE: What = What::own("reciprocal", "scales that a product is multiplied by", SOURCE);
static OUTER: What = What::own(
    "outer product of scales",
    "a float32 number for each element of a product in backward, which is scaled after it",
    SOURCE,
);

/// What a scale is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The whole tensor, of which a transposed one is laid out again to find the largest.
    All { transposed: bool },
    /// Each of so many rows, whose elements lie together.
    Rows(u64),
    /// Each column of so many rows of so many.
    Columns(u64, u64),
}

/// `hp_tensor_to_float8_dynamic`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    /// Whether scales are powers of two.
    pub rounds: bool,
}

/// What is cast: activations or a gradient, which have the rows of their storage, or a weight of that shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub of: StorageId,
    pub numel: u64,
    pub dtype: Dtype,
    pub dims: Option<Dims>,
}

/// A tensor in 8 bits.
#[derive(Debug)]
pub(super) struct Float8Tensor {
    bits: StorageId,
    scale: StorageId,
    numel: u64,
    is_by_row: bool,
}

/// An operand of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    numel: u64,
    is_by_row: bool,
    row_major: bool,
}

impl Whole {
    /// Activations or a gradient.
    pub fn rows(x: &Value) -> Whole {
        Whole { of: x.storage, numel: x.numel, dtype: x.dtype, dims: None }
    }

    /// A weight.
    pub fn weight(weight: &Value, shape: Shape) -> Whole {
        Whole { dims: Some(shape.dims()), ..Whole::rows(weight) }
    }

    /// A tensor of its size in another type.
    fn like(self, state: &mut State, dtype: Dtype, what: &'static What) -> StorageId {
        let id = state.alloc_for(self.of, self.numel, dtype, what);
        if let Some(dims) = self.dims {
            state.note_dims(id, dims);
        }
        id
    }

    /// `to_fp8_saturated(tensor.to(torch.float32) * scale)`.
    fn in_8_bits(self, state: &mut State) -> StorageId {
        let wide = self.dtype != Dtype::F32;
        let float = if wide { self.like(state, Dtype::F32, &FLOAT) } else { NOTHING };
        let scaled = self.like(state, Dtype::F32, &SCALED);
        state.release(float);
        let clamped = self.like(state, Dtype::F32, &CLAMPED);
        let bits = self.like(state, Dtype::U8, &CAST);
        state.release(clamped);
        state.release(scaled);
        bits
    }
}

impl Cast {
    /// A tensor in 8 bits.
    pub fn of(self, state: &mut State, whole: Whole, over: Over) -> Float8Tensor {
        let scale = self.scale(state, whole, over);
        let bits = whole.in_8_bits(state);
        let is_by_row = !matches!(over, Over::All { .. });
        Float8Tensor { bits, scale, numel: whole.numel, is_by_row }
    }

    /// `tensor_to_scale`.
    fn scale(self, state: &mut State, whole: Whole, over: Over) -> StorageId {
        let scales = over.scales();
        let magnitudes = whole.like(state, whole.dtype, &MAGNITUDES);
        let largest = state.alloc(scales, whole.dtype, &LARGEST);
        match over {
            Over::All { transposed } => {
                let dense =
                    if transposed { whole.like(state, whole.dtype, &torch::CONTIGUOUS) } else { NOTHING };
                kernels::maximum_scratch(state, whole.numel, whole.dtype);
                state.release(dense);
            }
            Over::Rows(_) => {}
            Over::Columns(rows, width) => kernels::column_maximum_scratch(state, rows, width, whole.dtype),
        }
        state.release(magnitudes);
        let [wide, clamped, inverse, quotient] = [(); 4].map(|()| state.alloc(scales, Dtype::F64, &SCALE_64));
        state.release(inverse);
        state.release(clamped);
        let mut scale = state.alloc(scales, Dtype::F32, &SCALE);
        state.release(quotient);
        if self.rounds {
            let logarithm = state.alloc(scales, Dtype::F32, &SCALE);
            let floor = state.alloc(scales, Dtype::F32, &SCALE);
            state.release(logarithm);
            let power = state.alloc(scales, Dtype::F32, &SCALE);
            state.release(floor);
            state.release(scale);
            scale = power;
        }
        state.release(wide);
        state.release(largest);
        scale
    }
}

impl Over {
    fn scales(self) -> u64 {
        match self {
            Over::All { .. } => 1,
            Over::Rows(rows) => rows,
            Over::Columns(_, width) => width,
        }
    }
}

impl Float8Tensor {
    /// It as an operand, whose rows lie together or whose columns do.
    pub fn operand(&self, row_major: bool) -> Operand {
        Operand { numel: self.numel, is_by_row: self.is_by_row, row_major }
    }

    /// Lets go of it and of its scales.
    pub fn release(self, state: &mut State) {
        state.release(self.bits);
        state.release(self.scale);
    }
}

/// `torch.mm` of two tensors in 8 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    /// Whether sums may be rounded on the way (`use_fast_accum`): forward's alone.
    pub is_fast: bool,
    /// `pad_inner_dim`.
    pub pads: bool,
}

impl Product {
    /// The product of `[rows, inner]` and `[inner, columns]`, in that type.
    pub fn of(
        self,
        state: &mut State,
        [a, b]: [Operand; 2],
        (rows, inner, columns): (u64, u64, u64),
        (dtype, what): (Dtype, &'static What),
    ) -> StorageId {
        let missing = inner.next_multiple_of(MULTIPLE) - inner;
        let mut copies = [NOTHING; 2];
        if self.pads {
            for (copy, (operand, across)) in copies.iter_mut().zip([(&a, rows), (&b, columns)]) {
                let numel = operand.numel.saturating_add(missing.saturating_mul(across));
                *copy = state.alloc(numel, Dtype::U8, &PADDED);
            }
        }
        // what is padded in earnest lies row after row
        let lies = |operand: &Operand| operand.row_major || self.pads && missing > 0;
        for (copy, (operand, again)) in copies.iter_mut().zip([(&a, !lies(&a)), (&b, lies(&b))]) {
            if again {
                let padded = if self.pads { missing } else { 0 };
                let across = operand.numel / inner.max(1);
                let numel = operand.numel.saturating_add(padded.saturating_mul(across));
                let dense = state.alloc(numel, Dtype::U8, &LAID_OUT);
                state.release(std::mem::replace(copy, dense));
            }
        }
        let by_row = [a.is_by_row, b.is_by_row];
        let repeated = match by_row {
            [true, false] => state.alloc(columns, Dtype::F32, &SCALE),
            [false, true] => state.alloc(rows, Dtype::F32, &SCALE),
            [true, true] | [false, false] => NOTHING,
        };
        let is_by_row = by_row != [false; 2];
        let inverse = |is_by_row: bool, count: u64| if is_by_row { count } else { 1 };
        let mut inverses =
            [rows, columns].map(|count| state.alloc(inverse(is_by_row, count), Dtype::F32, &INVERSE));
        let numel = rows.saturating_mul(columns);
        let mut outer = NOTHING;
        if is_by_row && !self.is_fast {
            outer = state.alloc(numel, Dtype::F32, &OUTER);
            for inverse in &mut inverses {
                let one = state.alloc(1, Dtype::F32, &INVERSE);
                state.release(std::mem::replace(inverse, one));
            }
        }
        let made = if is_by_row { Dtype::Bf16 } else { dtype };
        let mut product = self.multiplied(state, (numel, inner), is_by_row, (made, what));
        if made != dtype {
            let cast = state.alloc(numel, dtype, what);
            state.release(product);
            product = cast;
        }
        for storage in inverses.into_iter().chain([outer]).chain(copies).chain([repeated]) {
            state.release(storage);
        }
        product
    }

    /// `torch._scaled_mm`: cuBLASLt's, which takes a workspace of cuBLAS and one of its own, or CUTLASS's, which takes none, for scales of
    /// rows on cards other than of compute capability 9 (aten/src/ATen/native/cuda/ScaledBlas.cpp; seen on 8.9 and 9.0).
    fn multiplied(
        self,
        state: &mut State,
        (numel, inner): (u64, u64),
        is_by_row: bool,
        (dtype, what): (Dtype, &'static What),
    ) -> StorageId {
        if is_by_row && self.is_fast && state.device.has_cutlass_by_row() {
            state.multiply(numel, inner);
            return state.alloc(numel, dtype, what);
        }
        state.alloc_product(numel, inner, dtype, what)
    }
}
