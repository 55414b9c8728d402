//! Adapters of peft's that are merged into the weights they stand beside.
//!
//! Source: peft 0.21 tuners/tuners_utils.py `_unload_and_optionally_merge`, tuners/lora/layer.py and tuners/lora/bnb.py `merge` and
//! `get_delta_weight`; bitsandbytes 0.50 nn/modules.py `Params4bit._quantize`; compared with the allocator's trace.

use std::ops::Range;

use super::four_bit::{
    CODE_BOOK, DOUBLE_QUANT_BLOCK, PACKED_WEIGHT, QUANT_BLOCK, Quantised, SCALES, SCALES_8BIT,
    SCALES_OF_SCALES,
};
use super::linear::{Adapter, Shape, Weight};
use super::pointwise::promoted;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::what::{Dims, Source, What, roles, torch};

const MERGE: Source = Source::At("peft, tuners/lora, merge");

static DELTA: What = What::own(
    "lora_B @ lora_A",
    "the product of A and B, of the weight's own size and in the adapter's element type",
    MERGE,
);
static SCALED_DELTA: What =
    What::own("delta weight", "the product of A and B with its scale, which is added to the weight", MERGE);
static MERGED: What = What::own(
    "merged weight",
    "the dequantised weight with what the adapter adds, in the wider type of both",
    MERGE,
);
static MOVED: What = What::own(
    "merged weight",
    "the same once more: it went to the CPU's memory and comes back to be quantised anew",
    MERGE,
);

/// A linear layer whose adapter can be merged.
#[derive(Clone, Debug)]
pub(in crate::step) struct Mergeable {
    /// Its name.
    pub name: &'static str,
    /// The layer that it is in, as the heap counts them.
    pub layer: u32,
    pub shape: Shape,
    pub weight: Weight,
    pub adapter: Adapter,
    /// Among these its quantised weight lies, with all that belongs to it.
    pub stored: Range<usize>,
    /// How many layers it stands for.
    pub times: u32,
}

impl State {
    /// `merge` of an adapter into its layer's weight.
    pub fn merge(&mut self, own: &Mergeable) {
        let outer = (self.module, self.layer, self.role);
        (self.module, self.layer, self.role) = (own.name, own.layer, &roles::MERGING);
        let repeat = self.begin_repeat(own.times);
        match own.weight {
            // added in place: what is narrower than the sum is no tensor
            Weight::Plain(_) => {
                let delta = self.delta(own);
                self.release(delta);
            }
            Weight::Quantised(quantised) => self.merge_quantised(own, quantised),
        }
        self.end_repeat(repeat, (Category::Temporaries, 0));
        (self.module, self.layer, self.role) = outer;
    }

    /// `get_delta_weight`: the scaled product of A and B.
    fn delta(&mut self, own: &Mergeable) -> StorageId {
        let dtype = self.params.get(own.adapter.a).dtype;
        let numel = own.shape.weights();
        let product = self.alloc_product(numel, own.adapter.rank, dtype, &DELTA);
        let scaled = self.alloc(numel, dtype, &SCALED_DELTA);
        [product, scaled].into_iter().for_each(|id| self.note_dims(id, own.shape.dims()));
        self.release(product);
        scaled
    }

    /// The same where the weight is packed: it is dequantised, goes through the CPU's memory and is quantised anew. The old one is there
    /// until the new one is.
    fn merge_quantised(&mut self, own: &Mergeable, quantised: Quantised) {
        let dims = own.shape.dims();
        let old: Vec<StorageId> = own.stored.clone().map(|id| id as StorageId).collect();
        let opened = self.dequantise(own.shape, quantised).storage;
        let delta = self.delta(own);
        let dtype = promoted(quantised.origin, self.params.get(own.adapter.a).dtype);
        let merged = self.alloc(own.shape.weights(), dtype, &MERGED);
        let moved = self.alloc(own.shape.weights(), dtype, &MOVED);
        [merged, moved].into_iter().for_each(|id| self.note_dims(id, dims));
        self.quantise_anew(own.shape, quantised.double);
        self.release(moved);
        for id in old {
            if self.references(id) > 0 && id != NOTHING {
                self.release(id);
            }
        }
        [opened, delta, merged].into_iter().for_each(|id| self.release(id));
    }

    /// `quantize_4bit`: what stays of it is as large as what was there before.
    fn quantise_anew(&mut self, shape: Shape, double: bool) {
        let numel = shape.weights();
        let scales = numel.div_ceil(QUANT_BLOCK);
        let first = self.storages.len();
        let kept = |state: &mut State, count: u64, dtype: Dtype, what: &'static What| {
            state.alloc_as(Category::QuantState, count.saturating_mul(dtype.bytes()), dtype, what)
        };
        let absolute = match double {
            true => self.alloc(scales, Dtype::F32, &SCALES),
            false => {
                kept(self, scales, Dtype::F32, &SCALES);
                NOTHING
            }
        };
        self.alloc_as(Category::Weights, numel.div_ceil(2), Dtype::U8, &PACKED_WEIGHT);
        kept(self, 16, Dtype::F32, &CODE_BOOK);
        if double {
            kept(self, 1, Dtype::F32, &torch::OFFSET);
            let centred = self.alloc(scales, Dtype::F32, &SCALES);
            kept(self, scales.div_ceil(DOUBLE_QUANT_BLOCK), Dtype::F32, &SCALES_OF_SCALES);
            kept(self, scales, Dtype::U8, &SCALES_8BIT);
            kept(self, 256, Dtype::F32, &CODE_BOOK);
            self.release(centred);
        }
        self.release(absolute);
        self.note_dims_since(first, Dims::matrix(shape.output, shape.input));
    }
}
