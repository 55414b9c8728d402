//! Casts to 8-bit floats, with their scales.
//!
//! Source: torchao 0.18 float8/float8_utils.py, float8_scaling_utils.py, float8_training_tensor.py.

use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::kernels;
use crate::step::tensor::Value;
use crate::step::what::{Dims, Source, What, torch};

const SOURCE: Source = Source::At("torchao, float8/float8_utils.py");
static MAGNITUDES: What =
    What::own("abs", "what is cast to 8 bits without its signs, of which the largest is looked for", SOURCE);
static LARGEST: What = What::own("amax", "the largest magnitudes, from which scales are made", SOURCE);
static SCALE_64: What = What::own("scale (float64)", "a step on the way to the scales of a cast", SOURCE);
pub(in crate::step) static SCALE: What = What::own("scale", "the scales of what is cast to 8 bits", SOURCE);
static FLOAT: What = What::own("float", "what is cast to 8 bits in float32", SOURCE);
static SCALED: What = What::own("scaled", "what is cast to 8 bits in float32, times its scales", SOURCE);
static CLAMPED: What = What::own(
    "clamp",
    "the same within the numbers that 8 bits can hold: eager casts do not saturate",
    SOURCE,
);
static CAST: What = What::own("8-bit cast", "an operand of a product in 8 bits", SOURCE);

/// What a scale is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Over {
    /// The whole tensor, of which a transposed one is laid out again to find the largest.
    All { transposed: bool },
    /// Each of so many rows, whose elements lie together.
    Rows(u64),
    /// Each column of so many rows of so many.
    Columns(u64, u64),
}

/// `hp_tensor_to_float8_dynamic`.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Cast {
    /// Whether scales are powers of two.
    pub rounds: bool,
}

/// What is cast: activations or a gradient, which have the rows of their storage, or a weight of that shape.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Whole {
    pub of: StorageId,
    pub numel: u64,
    pub dtype: Dtype,
    pub dims: Option<Dims>,
    /// Where it is cast.
    pub stream: Stream,
}

/// A tensor in 8 bits.
#[derive(Debug)]
pub(in crate::step) struct Float8Tensor {
    pub bits: StorageId,
    pub scale: StorageId,
    pub numel: u64,
    pub is_by_row: bool,
}

impl Whole {
    /// Activations or a gradient.
    pub fn rows(x: &Value) -> Whole {
        Whole { of: x.storage, numel: x.numel, dtype: x.dtype, dims: None, stream: Stream::Compute }
    }

    /// A weight, or a shard of one.
    pub fn weight(numel: u64, dtype: Dtype, dims: Dims, stream: Stream) -> Whole {
        Whole { of: NOTHING, numel, dtype, dims: Some(dims), stream }
    }

    fn alloc(self, heap: &mut Heap, numel: u64, dtype: Dtype, what: &'static What) -> StorageId {
        heap.alloc_on(self.stream, heap.category, numel.saturating_mul(dtype.bytes()), dtype, what)
    }

    /// A tensor of its size in another type.
    fn like(self, heap: &mut Heap, dtype: Dtype, what: &'static What) -> StorageId {
        let id = self.alloc(heap, self.numel, dtype, what);
        match self.dims {
            Some(dims) => heap.note_dims(id, dims),
            None => heap.take_dims(id, self.of),
        }
        id
    }

    /// `to_fp8_saturated(tensor.to(torch.float32) * scale)`.
    fn in_8_bits(self, heap: &mut Heap) -> StorageId {
        let wide = self.dtype != Dtype::F32;
        let float = if wide { self.like(heap, Dtype::F32, &FLOAT) } else { NOTHING };
        let scaled = self.like(heap, Dtype::F32, &SCALED);
        heap.release(float);
        let clamped = self.like(heap, Dtype::F32, &CLAMPED);
        let bits = self.like(heap, Dtype::U8, &CAST);
        heap.release(clamped);
        heap.release(scaled);
        bits
    }
}

impl Cast {
    /// A tensor in 8 bits.
    pub fn of(self, heap: &mut Heap, whole: Whole, over: Over) -> Float8Tensor {
        let scale = self.scale(heap, whole, over);
        let bits = whole.in_8_bits(heap);
        let is_by_row = !matches!(over, Over::All { .. });
        Float8Tensor { bits, scale, numel: whole.numel, is_by_row }
    }

    /// `tensor_to_scale`.
    fn scale(self, heap: &mut Heap, whole: Whole, over: Over) -> StorageId {
        let scales = over.scales();
        let magnitudes = whole.like(heap, whole.dtype, &MAGNITUDES);
        let largest = whole.alloc(heap, scales, whole.dtype, &LARGEST);
        match over {
            Over::All { transposed } => {
                let dense =
                    if transposed { whole.like(heap, whole.dtype, &torch::CONTIGUOUS) } else { NOTHING };
                kernels::maximum_scratch(heap, whole.numel, whole.dtype, whole.stream);
                heap.release(dense);
            }
            Over::Rows(_) => {}
            Over::Columns(rows, width) => kernels::column_maximum_scratch(heap, rows, width, whole.dtype),
        }
        heap.release(magnitudes);
        let [wide, clamped, inverse, quotient] =
            [(); 4].map(|()| whole.alloc(heap, scales, Dtype::F64, &SCALE_64));
        heap.release(inverse);
        heap.release(clamped);
        let mut scale = whole.alloc(heap, scales, Dtype::F32, &SCALE);
        heap.release(quotient);
        if self.rounds {
            let logarithm = whole.alloc(heap, scales, Dtype::F32, &SCALE);
            let floor = whole.alloc(heap, scales, Dtype::F32, &SCALE);
            heap.release(logarithm);
            let power = whole.alloc(heap, scales, Dtype::F32, &SCALE);
            heap.release(floor);
            heap.release(scale);
            scale = power;
        }
        heap.release(wide);
        heap.release(largest);
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
    /// A weight that was gathered in 8 bits.
    pub fn gathered(numel: u64) -> Float8Tensor {
        Float8Tensor { bits: NOTHING, scale: NOTHING, numel, is_by_row: false }
    }

    /// Lets go of it and of its scales.
    pub fn release(self, heap: &mut Heap) {
        heap.release(self.bits);
        heap.release(self.scale);
    }
}
