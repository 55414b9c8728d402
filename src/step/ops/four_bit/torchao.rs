//! torchao's `NF4Tensor`: a 4-bit weight that PyTorch's own operations take apart, one after the other.
//!
//! Source: torchao 0.10 dtypes/nf4tensor.py (`from_tensor`, `get_original_weight`, `dequantize_scalers`, `LinearNF4`).
//! Compared with the allocator's trace of that code.

use super::{DOUBLE_QUANT_BLOCK, QUANT_BLOCK, Quantised};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::four_bit::{
    CODE_BOOK, DEQUANTISED, PACKED_WEIGHT, SCALES, SCALES_8BIT, SCALES_OF_SCALES,
};
use crate::step::ops::shape::Shape;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{Source, What, torch};

static SCALES_REPEATED: What =
    What::own("scales, repeated", "a 4-bit weight's scales, one for each of its elements", Source::FourBit);
static FIRST_ELEMENTS: What = What::own(
    "first elements",
    "one half of a 4-bit weight's elements on their way back to numbers",
    Source::FourBit,
);
static SECOND_ELEMENTS: What = What::own(
    "second elements",
    "the other half of a 4-bit weight's elements on their way back to numbers",
    Source::FourBit,
);
static FIRST_SCALED: What = What::own(
    "first elements, scaled",
    "one half of a 4-bit weight's elements, dequantised",
    Source::FourBit,
);
static SECOND_SCALED: What = What::own(
    "second elements, scaled",
    "the other half of a 4-bit weight's elements, dequantised",
    Source::FourBit,
);

/// Weights that are compared with the code book at a time (`CHUNK_SIZE`).
const CHUNK: u64 = 1 << 20;

impl State {
    /// `to_nf4`: its five tensors. Returned are the packed weight and the one that it was made of. What quantising takes
    /// meanwhile is followed where events are recorded: it decides out of which cached blocks the tensors that stay are cut. Of a weight in
    /// shards three of the five are whole until this rank's part of each is cut out (torchtune/training/_distributed.py
    /// `load_from_full_model_state_dict`), and the weight that they were made of is gone by then.
    pub fn store_nf4(&mut self, numel: u64, dtype: Dtype, times: u32) -> (StorageId, StorageId) {
        let scales = numel.div_ceil(QUANT_BLOCK);
        let factors = scales.div_ceil(DOUBLE_QUANT_BLOCK);
        let (_, kept) = self.parallel.kept_packed(numel);
        let parts = self.parallel.units().map_or(1, |fsdp| fsdp.world().max(1));
        let is_sharded = self.parallel.has_units();
        if !factors.is_multiple_of(parts) {
            self.meet_unmodelled(
                "torchao's 4-bit weights that do not divide among the GPUs, at which it stops (\"must be divisible by\")",
            );
        }
        let weight = self.while_loading(numel, dtype);
        self.keep_nf4(16, dtype, times, &CODE_BOOK);
        let largest = self.largest_of_blocks(numel, scales, dtype);
        self.keep_nf4(1, dtype, times, &torch::OFFSET);
        let centred = self.while_loading(scales, dtype);
        self.release(largest);
        let largest = self.largest_of_blocks(scales, factors, dtype);
        let doubled = self.while_loading(scales, dtype);
        let reciprocal = self.while_loading(scales, dtype);
        let factor = self.while_loading(scales, dtype);
        self.release(reciprocal);
        self.release(doubled);
        let mut quantised = self.while_loading(scales, dtype);
        // round, then clamp
        for _ in 0..2 {
            let next = self.while_loading(scales, dtype);
            self.release(quantised);
            quantised = next;
        }
        let whole = if is_sharded {
            [self.while_loading(scales, Dtype::U8), self.while_loading(factors, dtype)]
        } else {
            self.keep_nf4(scales, Dtype::U8, times, &SCALES_8BIT);
            self.keep_nf4(factors, dtype, times, &SCALES_OF_SCALES);
            [NOTHING; 2]
        };
        [centred, largest, factor, quantised].into_iter().for_each(|local| self.release(local));
        let largest = self.largest_of_blocks(numel, scales, dtype);
        let scaled = self.while_loading(numel, dtype);
        let bytes = self.while_loading(numel, Dtype::U8);
        // all whole chunks are like the first
        for chunk in [numel.min(CHUNK), numel % CHUNK] {
            let difference = self.while_loading(chunk.saturating_mul(16), dtype);
            let absolute = self.while_loading(chunk.saturating_mul(16), dtype);
            self.release(difference);
            let values = self.while_loading(chunk, dtype);
            let indices = self.while_loading(chunk, Dtype::I64);
            self.release(values);
            self.release(absolute);
            let small = self.while_loading(chunk, Dtype::U8);
            self.release(indices);
            self.release(small);
        }
        let shifted = self.while_loading(numel / 2, Dtype::U8);
        let bytes_of_all = numel.div_ceil(2);
        if !is_sharded {
            let packed = self.keep_nf4(bytes_of_all, Dtype::U8, times, &PACKED_WEIGHT);
            [shifted, largest, bytes, scaled].into_iter().for_each(|local| self.release(local));
            return (packed, weight);
        }
        let packed = self.while_loading(bytes_of_all, Dtype::U8);
        [shifted, largest, bytes, scaled, weight].into_iter().for_each(|local| self.release(local));
        self.keep_nf4(scales / parts, Dtype::U8, times, &SCALES_8BIT);
        self.keep_nf4(factors / parts, dtype, times, &SCALES_OF_SCALES);
        let own = self.keep_nf4(kept.numel, Dtype::U8, times, &PACKED_WEIGHT);
        whole.into_iter().chain([packed]).for_each(|piece| self.release(piece));
        (own, NOTHING)
    }

    fn keep_nf4(&mut self, count: u64, dtype: Dtype, times: u32, what: &'static What) -> StorageId {
        let category = if what == &PACKED_WEIGHT { Category::Weights } else { Category::QuantState };
        self.persistent(count.saturating_mul(dtype.bytes()), dtype, times, category, what)
    }

    /// `get_block_absmax`.
    fn largest_of_blocks(&mut self, numel: u64, blocks: u64, dtype: Dtype) -> StorageId {
        let absolute = self.while_loading(numel, dtype);
        let values = self.while_loading(blocks, dtype);
        let indices = self.while_loading(blocks, Dtype::I64);
        self.release(absolute);
        self.release(indices);
        values
    }

    /// `linear_nf4`.
    pub(super) fn linear_nf4(&mut self, x: &Value, shape: Shape, quantised: Quantised) -> Value {
        let origin = quantised.origin;
        let packed = self.weight(quantised.weight);
        let node =
            self.node([x, &packed], move |state, node, grad| nf4_backward(state, node, grad, shape, origin));
        let weight = self.original_weight(shape, origin);
        let numel = (x.numel / shape.input.max(1)).saturating_mul(shape.output);
        let storage = self.alloc_product_for(x.storage, (numel, shape.input), x.dtype, &torch::LINEAR_4BIT);
        self.release(weight);
        self.release(packed.storage);
        Value { flat: x.flat, ..Value::plain(storage, numel, x.dtype) }.at(node.output(0))
    }

    /// `get_original_weight`: every byte becomes two 64-bit indices into the code book.
    fn original_weight(&mut self, shape: Shape, dtype: Dtype) -> StorageId {
        let numel = shape.weights();
        let (half, scales) = (numel / 2, numel.div_ceil(QUANT_BLOCK));
        let [first, second] = [&FIRST_ELEMENTS, &SECOND_ELEMENTS].map(|name| {
            let small = self.alloc(half, Dtype::U8, name);
            let wide = self.alloc(half, Dtype::I64, name);
            self.release(small);
            wide
        });
        let looked_up = [&FIRST_ELEMENTS, &SECOND_ELEMENTS].map(|name| self.alloc(half, dtype, name));
        let quotient = self.alloc(scales, dtype, &SCALES);
        let scales = self.alloc(scales, dtype, &SCALES);
        self.release(quotient);
        let scaled = [&FIRST_SCALED, &SECOND_SCALED].map(|name| {
            let repeated = self.alloc(half, dtype, &SCALES_REPEATED);
            let scaled = self.alloc(half, dtype, name);
            self.release(repeated);
            scaled
        });
        let weight = self.alloc(numel, dtype, &DEQUANTISED);
        self.note_dims(weight, shape.dims());
        let locals = [first, second].into_iter().chain(looked_up).chain([scales]).chain(scaled);
        locals.for_each(|local| self.release(local));
        weight
    }
}

/// `LinearNF4.backward`.
fn nf4_backward(state: &mut State, node: &Node, grad: &Grad, shape: Shape, origin: Dtype) -> Results {
    let x = node.inputs[0];
    let weight = state.original_weight(shape, origin);
    let storage =
        state.alloc_product_for(x.storage, (x.numel, shape.output), grad.dtype, &torch::INPUT_GRADIENT);
    state.release(weight);
    only(Grad::new(storage, x.numel, grad.dtype, Layout::Tokens))
}
