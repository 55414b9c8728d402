//! `torch.mm` of tensors in 8-bit floats: `torch._scaled_mm`, with what it wants laid out otherwise.
//!
//! Source: torchao 0.18 float8/float8_ops.py.

use crate::dtype::Dtype;
use crate::step::float8::casts::{Float8Tensor, SCALE};
use crate::step::float8::{MULTIPLE, stream_k};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::what::{Source, What};

const SOURCE: Source = Source::At("torchao, float8/float8_ops.py");
static PADDED: What = What::own("pad", "a copy of an operand in 8 bits, padded to a multiple of 16", SOURCE);
static LAID_OUT: What =
    What::own("contiguous", "an operand in 8 bits laid out as the product takes it", SOURCE);
static INVERSE: What = What::own("reciprocal", "scales that a product is multiplied by", SOURCE);
static OUTER: What = What::own(
    "outer product of scales",
    "a float32 number for each element of a product in backward, which is scaled after it",
    SOURCE,
);
static SHARED_TILES: What = What::own(
    "workspace of a product",
    "partial sums of blocks that share a tile of an 8-bit product",
    Source::At("PyTorch, aten/src/ATen/native/cuda/RowwiseScaledMM.cu"),
);

/// An operand of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    numel: u64,
    is_by_row: bool,
    row_major: bool,
}

impl Operand {
    /// A tensor as an operand, whose rows lie together or whose columns do.
    pub fn of(tensor: &Float8Tensor, row_major: bool) -> Operand {
        Operand { numel: tensor.numel, is_by_row: tensor.is_by_row, row_major }
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
        let missing = (MULTIPLE - inner % MULTIPLE) % MULTIPLE;
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
        let mut product = self.multiplied(state, (rows, inner, columns), is_by_row, (made, what));
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

    /// `torch._scaled_mm`: cuBLASLt's, which takes a workspace of cuBLAS and one of its own, or CUTLASS's, for scales of rows on cards other
    /// than of compute capability 9, of which that of 8.9 takes one for the product (aten/src/ATen/native/cuda/ScaledBlas.cpp; seen on 8.9,
    /// 9.0, 10.0 and 12.0).
    fn multiplied(
        self,
        state: &mut State,
        dims: (u64, u64, u64),
        is_by_row: bool,
        (dtype, what): (Dtype, &'static What),
    ) -> StorageId {
        let (rows, inner, columns) = dims;
        let numel = rows.saturating_mul(columns);
        if !(is_by_row && self.is_fast && state.device.has_cutlass_by_row()) {
            return state.alloc_product(numel, inner, dtype, what);
        }
        state.multiply(numel, inner);
        let product = state.alloc(numel, dtype, what);
        if state.device.shares_tiles() {
            let bytes = stream_k::workspace(dims, state.device.multiprocessors);
            state.scratch(bytes, &SHARED_TILES);
        }
        product
    }
}
